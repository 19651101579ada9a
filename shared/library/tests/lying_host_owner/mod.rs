//! A host that lies, with a thief's keys, to the machine of a vault's owner: nothing is signed that
//! was not shown, and no review is empty where something changes.
//!
//! Each of 10,000 histories has root versions of its own (thresholds of 1 and 2, publishers who are
//! added, removed and revoked, other root keys, lines that fork and are healed), releases of several
//! publishers, a machine that has missed a part of both, and one lie: old, forged, hidden and
//! relayed files, signed by any set of keys below the newest threshold. All of that is in memory.
//!
//! Every history meets the pure judges and the difference of two releases. One in eight meets a
//! whole command as well, on a vault on disk whose record of root versions and releases is that of
//! the history: `sync` and `sync --adopt` (the plan, the review, the take-over, the next plan),
//! `cloud rollback` (the plan, and what it signs), or `release show|sign` (the
//! judge, the review, the signature). Its library has the same two skills each time. The others
//! meet what is pure of `drafts accept`: the digest that answers for a draft.
//!
//! What counts and what must have a line is decided in [`oracle`]. What the command line prints,
//! and what a server signs for a draft, is in the test of the same name in `tests/attacks`.
//!
//! `VAULT_TEST_LYING_HOST=SEED:COUNT` runs other histories, or one of them again.

mod dice;
mod history;
mod lies;
mod oracle;
mod owner;
mod scene;
mod skills;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use vault_format::catalog::{ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::root::RootChain;
use vault_format::time::Timestamp;
use vault_library::publish::OnDivergence;

use self::dice::Dice;
use self::history::{ANNA, Beginning, History, Keys, Signed};
use self::lies::Liars;
use self::owner::Owner;
use self::scene::Scene;
use self::skills::Skills;

/// What came of the histories, so that a test of nothing is seen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Outcome {
    Counted,
    Refused,
    Unchanged,
    TakenOver,
    Published,
    RolledBack,
    Judged,
    Reviewed,
    Signed,
    Draft,
}

#[test]
fn nothing_is_signed_that_was_not_shown() {
    let (first, count) = range(wanted().as_deref());
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let outcomes = std::thread::scope(|scope| {
        let run = || {
            let mut world = World::new();
            let mut outcomes = BTreeMap::<Outcome, u64>::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return outcomes;
                }
                let history = catch_unwind(AssertUnwindSafe(|| world.history(seed)));
                match history {
                    Ok(seen) => seen
                        .into_iter()
                        .for_each(|outcome| *outcomes.entry(outcome).or_default() += 1),
                    Err(failure) => {
                        eprintln!("seed {seed}: VAULT_TEST_LYING_HOST={seed}:1 runs it again");
                        next.store(first + count, Ordering::Relaxed);
                        resume_unwind(failure);
                    }
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let mut all = BTreeMap::<Outcome, u64>::new();
        for worker in workers {
            let outcomes = worker
                .join()
                .unwrap_or_else(|failure| resume_unwind(failure));
            for (outcome, times) in outcomes {
                *all.entry(outcome).or_default() += times;
            }
        }
        all
    });
    eprintln!("{count} histories from seed {first}: {outcomes:?}");
    // Lies that are all refused at once would prove little.
    let all = [
        Outcome::Counted,
        Outcome::Refused,
        Outcome::Unchanged,
        Outcome::TakenOver,
        Outcome::Published,
        Outcome::RolledBack,
        Outcome::Reviewed,
        Outcome::Signed,
        Outcome::Draft,
    ];
    for outcome in all {
        let times = outcomes.get(&outcome).copied().unwrap_or_default();
        assert!(count < 10_000 || times >= 10, "{outcome:?}: {times}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person names a history to run again"
)]
fn wanted() -> Option<String> {
    std::env::var("VAULT_TEST_LYING_HOST").ok()
}

/// The first seed and the number of histories.
fn range(wanted: Option<&str>) -> (u64, u64) {
    let Some(wanted) = wanted else {
        return (0, 10_000);
    };
    let (seed, count) = wanted.split_once(':').unwrap_or((wanted, "1"));
    (seed.parse().unwrap(), count.parse().unwrap())
}

/// One owner's machine, and everything that anybody signs.
struct World {
    owner: Owner,
    keys: Keys,
    skills: Skills,
    first: Signed,
    chain: RootChain,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let (owner, host) = Owner::new();
        let vault = &owner.home.vault;
        let key = vault.release_key().unwrap();
        let keys = Keys::new(vault.keys().signer(&key).unwrap());
        let trust = vault.require_trust().unwrap();
        let now = owner.home.now();
        let mut skills = Skills::new(*vault.id(), now);
        skills.objects = host.objects.clone();
        let catalog = host.catalog();
        for entry in &catalog.skills {
            skills.learn(entry, trust.roots());
        }
        let bytes = host.current.clone().unwrap();
        let first = Signed {
            payload_sha256: SignedCatalog::parse(&bytes).unwrap().payload_sha256(),
            signers: [ANNA].into(),
            bytes,
            catalog,
        };
        Self {
            chain: trust.chain().clone(),
            owner,
            keys,
            skills,
            first,
            now,
        }
    }

    /// One history, one lie and one command; what came of it.
    fn history(&mut self, seed: u64) -> Vec<Outcome> {
        let mut dice = Dice::new(seed);
        let start = Beginning {
            keys: &self.keys,
            first: &self.first,
            chain: &self.chain,
            now: self.now,
        };
        let history = History::new(&start, &mut self.skills, &mut dice);
        let liars = Liars::new(&self.keys, &history, self.now, &mut dice);
        let shown = liars.current(&mut self.skills, &mut dice);
        let needs_two = history.known.newest().threshold > 1;
        let command = dice.below(12);
        let is_release = command > if needs_two { 4 } else { 10 };
        let proposed =
            is_release.then(|| liars.proposal(shown.as_ref(), &mut self.skills, &mut dice));
        let mut scene = Scene {
            owner: &mut self.owner,
            keys: &self.keys,
            skills: &self.skills,
            history: &history,
            has_record: !dice.one_in(12),
            last_good: last_good(&history, &mut dice),
        };
        let mut outcomes = Vec::new();
        if let Some(file) = &shown {
            outcomes.extend(scene.judge_current(file));
        }
        if let Some(file) = &proposed {
            outcomes.extend(scene.judge_proposed(file, shown.as_ref()));
        }
        if !seed.is_multiple_of(8) {
            outcomes.extend(scene.draft(&mut dice));
            return outcomes;
        }
        scene.owner.live(&history, scene.has_record);
        outcomes.extend(match (command % 5, &proposed) {
            (_, Some(proposed)) => scene.release(shown.as_ref(), proposed),
            (0 | 1, _) => scene.sync(shown.as_ref(), OnDivergence::Stop),
            (2 | 3, _) => scene.sync(shown.as_ref(), OnDivergence::Adopt),
            _ => scene.rollback(shown.as_ref(), &mut dice),
        });
        scene.follows_the_owner_s_roots();
        outcomes
    }
}

/// A release that the owner read on a device and named, or a wrong one under its number.
fn last_good(history: &History, dice: &mut Dice) -> Option<ReleaseRef> {
    if !dice.one_in(6) {
        return None;
    }
    let good = dice.pick(&history.releases).stored();
    Some(if dice.one_in(2) {
        good
    } else {
        ReleaseRef {
            payload_sha256: Digest::of(b"another"),
            ..good
        }
    })
}
