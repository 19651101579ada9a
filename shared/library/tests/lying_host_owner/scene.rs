//! One machine that meets one lie: by the pure judges, and by whole commands.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::bundle::files_sha256;
use vault_format::catalog::{
    Catalog, CatalogChanges, CatalogJudgement, CatalogReader, LastCatalog, NewRoots, ReaderKind,
    ReleaseRef, SignedCatalog, judge_catalog, judge_proposal,
};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::root::{RootChain, RootState};
use vault_library::adopt::{self, Exceptions};
use vault_library::publish::{self, OnDivergence, Plan, PlanRequest, Proposal, TakeOver};

use super::Outcome;
use super::dice::Dice;
use super::history::{ANNA, History, Keys, Line, NOBODY, Signed};
use super::oracle::{a_review_is_whole, every_difference_has_a_line, may_be_used};
use super::owner::Owner;
use super::skills::Skills;
use crate::support::host::BASE;

/// A gate that refuses flags, with no exception.
const OWN: Exceptions = Exceptions {
    strict: true,
    allow: Vec::new(),
    reason: None,
};

/// What a judge knows on the owner's machine.
struct Read {
    slug: Slug,
    own: RootState,
    last: Option<LastCatalog>,
}

/// One machine that meets one lie.
pub struct Scene<'a> {
    pub owner: &'a mut Owner,
    pub keys: &'a Keys,
    pub skills: &'a Skills,
    pub history: &'a History,
    pub has_record: bool,
    pub last_good: Option<ReleaseRef>,
}

impl Scene<'_> {
    /// The root versions that the machine follows: the owner's, or a line that its root holders
    /// signed and gave up, which a machine that has seen neither cannot tell.
    fn line(&self) -> Line {
        let (versions, newest) = self.owner.roots();
        let line = self.followed(versions, &newest);
        line.expect("root versions that the owner made")
    }

    fn followed(&self, versions: usize, newest: &Digest) -> Option<Line> {
        let lines = self.history.followed();
        let mut lines = lines.filter(|line| line.roles.len() >= versions);
        lines.find_map(|line| {
            let line = line.until(versions);
            (line.sha256() == *newest).then_some(line)
        })
    }

    /// The same, with the root versions that a file adds.
    fn line_with(&self, file: &Signed) -> Line {
        let shown = SignedCatalog::parse(&file.bytes).unwrap();
        let shown = RootChain::verify(shown.roots()).unwrap();
        let versions = usize::try_from(shown.version()).unwrap();
        let own = self.line();
        let longer = self.followed(versions, shown.newest().payload_sha256());
        let longer = longer.filter(|line| line.roles.len() > own.roles.len());
        longer.unwrap_or(own)
    }

    #[track_caller]
    pub fn follows_the_owner_s_roots(&self) {
        assert!(self.line().roles.len() >= self.history.known.roles.len());
    }

    /// The release that counted last here.
    fn before(&self) -> Option<&Catalog> {
        let last = self.history.last_counted();
        self.has_record.then_some(&last.catalog)
    }

    #[track_caller]
    fn may_be_used(&self, file: &Signed) {
        let line = self.line_with(file);
        let is_good = may_be_used(file, &line, self.history, self.has_record, self.last_good);
        let (release, signers) = (file.catalog.release, &file.signers);
        let roles = line.newest();
        assert!(
            is_good,
            "release {release} by {signers:?} does not count: {roles:?}"
        );
    }

    /// What the owner's machine last counted, as the judges read it.
    fn last(&self) -> Option<LastCatalog> {
        let last = self.has_record.then(|| self.history.last_counted())?;
        let signers = last.signers.iter().map(|number| self.keys.public(*number));
        Some(
            LastCatalog::read_stored(&last.bytes, &last.payload_sha256, signers.collect()).unwrap(),
        )
    }

    fn reader<'a>(&self, read: &'a Read, side: ReaderKind) -> CatalogReader<'a> {
        CatalogReader {
            side,
            base: BASE,
            slug: &read.slug,
            now: self.owner.home.now(),
            latest_seen_at: None,
            own: Some(&read.own),
            expected: None,
            last: read.last.as_ref(),
            accept_fork: false,
        }
    }

    fn read(&self) -> Read {
        Read {
            slug: "acme".parse().unwrap(),
            own: RootState::new(self.history.known.chain().clone(), BTreeSet::new()),
            last: self.last(),
        }
    }

    /// The root versions under which a judge has read a file.
    #[track_caller]
    fn judged_under(&self, judged: &CatalogJudgement) -> Line {
        let line = match &judged.roots {
            NewRoots::Now(state) | NewRoots::WithCatalog(state) => {
                let newest = state.chain().newest().payload_sha256();
                self.followed(state.chain().versions().len(), newest)
            }
            NewRoots::None => Some(self.history.known.clone()),
        };
        line.expect("root versions that the owner made")
    }

    /// Asks the pure judge about a file that is shown as the current release.
    pub fn judge_current(&self, file: &Signed) -> Option<Outcome> {
        let read = self.read();
        let judged = judge_catalog(&file.bytes, &self.reader(&read, ReaderKind::Publisher));
        let line = self.judged_under(&judged);
        self.is_shown_whole(&file.catalog);
        judged.outcome.ok()?;
        let counts = may_be_used(file, &line, self.history, self.has_record, None);
        assert!(
            counts,
            "release {} by {:?}",
            file.catalog.release, file.signers
        );
        Some(Outcome::Counted)
    }

    /// Asks the pure judge about a proposal above what is shown as the current release.
    pub fn judge_proposed(&self, file: &Signed, current: Option<&Signed>) -> Option<Outcome> {
        let read = self.read();
        let reader = self.reader(&read, ReaderKind::Device);
        let follows = current.map(Signed::stored);
        let judged = judge_proposal(&file.bytes, &reader, follows, &|_, _| None);
        let line = self.judged_under(&judged);
        self.is_shown_whole(&file.catalog);
        judged.outcome.ok()?;
        let roles = line.newest();
        let mut publishers = file.signers.iter().filter(|it| roles.release.contains(it));
        let publisher = publishers.find(|it| !roles.revoked.contains(it));
        assert!(publisher.is_some(), "by {:?}", file.signers);
        Some(Outcome::Judged)
    }

    #[track_caller]
    fn is_shown_whole(&self, catalog: &Catalog) {
        let changes = CatalogChanges::between(self.before(), catalog);
        let lines: Vec<String> = changes
            .describe_lines(None)
            .into_iter()
            .map(|line| line.text)
            .collect();
        every_difference_has_a_line(self.before(), catalog, &lines);
    }

    /// What a person reads before anything else is fetched.
    #[track_caller]
    fn is_compared_with_what_counted_here(&self, change: &publish::ReleaseChange) -> Vec<String> {
        assert_eq!(change.before.as_ref(), self.before());
        let lines = change.changes.describe_lines(None);
        let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        every_difference_has_a_line(self.before(), &change.catalog, &lines);
        lines
    }

    pub fn sync(&mut self, shown: Option<&Signed>, on_divergence: OnDivergence) -> Vec<Outcome> {
        let slug = "acme".parse().unwrap();
        let profiles = shown.map(|shown| self.skills.profiles(&shown.catalog));
        let mut request = PlanRequest {
            on_divergence,
            last_good: self.last_good,
            ..PlanRequest::new(BASE, &slug, shown.map(|shown| &*shown.bytes))
        };
        let mut outcomes = Vec::new();
        let mut taken: Option<Box<TakeOver>> = None;
        for _ in 0..5 {
            let kept = self.owner.kept();
            let vault = self.owner.home.vault.clone();
            match publish::plan_release(&vault, &request) {
                Err(_) => {
                    assert_eq!(self.owner.kept(), kept, "a refused plan changes nothing");
                    outcomes.push(Outcome::Refused);
                    return outcomes;
                }
                Ok(Plan::Unchanged(known)) => {
                    let shown = shown.unwrap();
                    assert_eq!(known.payload_sha256, shown.payload_sha256);
                    if taken.is_none() {
                        self.may_be_used(shown);
                    }
                    outcomes.push(Outcome::Unchanged);
                    return outcomes;
                }
                Ok(Plan::FetchProfiles(_)) => request.current_profiles = profiles.as_deref(),
                Ok(Plan::FetchVariants(rivals)) => panic!("no owner has transforms: {rivals:?}"),
                Ok(Plan::TakeOver(next)) => {
                    let shown = shown.unwrap();
                    assert!(taken.is_none(), "everything is taken over at once");
                    assert_eq!(self.owner.kept(), kept, "nothing is taken over unseen");
                    self.is_shown_before_it_is_taken(&next, shown);
                    if !self.take_over(&next) {
                        outcomes.push(Outcome::Refused);
                        return outcomes;
                    }
                    outcomes.push(Outcome::TakenOver);
                    taken = Some(next);
                }
                Ok(Plan::Publish(plan) | Plan::Propose(plan)) => {
                    self.owner.note_changed();
                    self.only_what_is_here_is_signed(&plan.catalog, taken.as_deref());
                    outcomes.push(Outcome::Published);
                    return outcomes;
                }
                Ok(Plan::SignAgain(names)) => panic!("nobody's key was revoked here: {names:?}"),
            }
        }
        panic!("the plan asks without end")
    }

    #[track_caller]
    fn is_shown_before_it_is_taken(&self, taken: &TakeOver, shown: &Signed) {
        assert_eq!(taken.payload_sha256, shown.payload_sha256);
        self.may_be_used(shown);
        let lines = self.is_compared_with_what_counted_here(&taken.change);
        assert_eq!(taken.change.catalog, shown.catalog);
        let names = taken.skills.iter().map(|entry| &entry.name);
        for name in names.chain(&taken.removed) {
            assert!(
                lines.iter().any(|line| line.contains(name.as_str())),
                "{name}"
            );
        }
    }

    /// Reviews a release and takes it over; false where the review refuses it.
    fn take_over(&mut self, taken: &TakeOver) -> bool {
        let vault = self.owner.home.vault.clone();
        let skills = self.skills;
        let fetched = |hash: &Digest| skills.objects.get(hash).cloned();
        let Ok(reviewed) = taken.change.verify_content(&vault, &OWN, &fetched) else {
            return false;
        };
        let (before, line) = (self.before().cloned(), self.line());
        a_review_is_whole(&taken.change, &reviewed, before.as_ref(), &line, skills);
        let mut wanted = self.owner.skills();
        self.owner.note_changed();
        if adopt::take_over(&vault, taken, &OWN, &fetched).is_err() {
            return false;
        }
        for entry in &taken.skills {
            wanted.insert(entry.name.to_string(), entry.bundle_hash);
        }
        for name in &taken.removed {
            wanted.remove(name.as_str());
        }
        assert_eq!(
            self.owner.skills(),
            wanted,
            "exactly what was shown is taken over"
        );
        true
    }

    /// A release of this machine holds its own library and what its owner has taken over.
    #[track_caller]
    fn only_what_is_here_is_signed(&self, file: &[u8], taken: Option<&TakeOver>) {
        let file = SignedCatalog::parse(file).unwrap();
        let catalog = file.read_counted(&file.payload_sha256()).unwrap();
        let all: Vec<_> = (0..=NOBODY)
            .map(|number| self.keys.public(number))
            .collect();
        assert_eq!(file.valid_signers(&all), [self.keys.public(ANNA)]);
        let listed = catalog.skills.iter();
        let listed: BTreeMap<_, _> = listed
            .map(|entry| (entry.name.to_string(), entry.bundle_hash))
            .collect();
        assert_eq!(listed, self.owner.skills());
        assert_eq!(catalog.index, self.skills.index(&catalog));
        let base = taken.map(|taken| &taken.change.catalog).or(self.before());
        let policy = taken.and_then(|taken| taken.change.catalog.policy);
        assert!(catalog.policy.is_none() || catalog.policy == policy);
        let withdrawn = base.map_or(&[][..], |base| &base.withdrawn);
        for entry in &catalog.withdrawn {
            assert!(withdrawn.contains(entry), "{entry:?} was not shown");
        }
        assert_eq!(catalog.audience, [format!("{BASE}/v/acme/")]);
        let named: Vec<_> = catalog
            .skills
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect();
        let has_agents = named
            .iter()
            .any(|it| !self.skills.get(it).manifest.agents.is_empty());
        assert!(catalog.profiles.is_empty() || has_agents);
        assert_eq!(catalog.root_sha256, self.line().sha256());
        // A number that a key has used which is revoked since binds nobody.
        let trust = self.owner.home.vault.trust().unwrap().unwrap();
        let counts = |last: &LastCatalog| !trust.roots().voids_release(&last.signers);
        if let Some(last) = self.last().filter(counts) {
            assert!(catalog.release > last.catalog.release);
        }
        assert!(self.owner.has_pending());
    }

    pub fn rollback(&mut self, shown: Option<&Signed>, dice: &mut Dice) -> Vec<Outcome> {
        let Some(shown) = shown else {
            return vec![Outcome::Refused];
        };
        let slug = "acme".parse().unwrap();
        let request = PlanRequest {
            last_good: self.last_good,
            ..PlanRequest::new(BASE, &slug, Some(&shown.bytes))
        };
        let asked = if dice.one_in(5) {
            dice.pick(&self.history.releases).catalog.release
        } else {
            shown.catalog.release
        };
        let vault = self.owner.home.vault.clone();
        let kept = self.owner.kept();
        let planned = adopt::plan_rollback(&vault, &request, asked);
        assert_eq!(self.owner.kept(), kept);
        let Ok(rollback) = planned else {
            return vec![Outcome::Refused];
        };
        assert_eq!(asked, shown.catalog.release);
        assert_eq!(rollback.payload_sha256, shown.payload_sha256);
        self.may_be_used(shown);
        let before = self.before().map(|before| before.release);
        assert_eq!(rollback.change.changes.from, before);
        self.is_compared_with_what_counted_here(&rollback.change);
        assert_eq!(rollback.change.catalog, shown.catalog);
        let skills = self.skills;
        let fetched = |hash: &Digest| skills.objects.get(hash).cloned();
        self.owner.note_changed();
        if adopt::roll_back(&vault, &rollback, &OWN, &fetched).is_err() {
            assert_eq!(self.owner.kept().skills, kept.skills);
            return vec![Outcome::Refused];
        }
        for entry in &shown.catalog.skills {
            let made = self.skills.get(&entry.bundle_hash);
            assert!(!made.twist.is_refused(), "{}: {:?}", entry.name, made.twist);
            let installed = vault_library::run::inspect_skill(&vault, &entry.name).unwrap();
            assert_eq!(installed.examined.files, made.files);
        }
        assert_eq!(self.owner.skills().len(), shown.catalog.skills.len());
        vec![Outcome::RolledBack]
    }

    pub fn release(&mut self, shown: Option<&Signed>, proposed: &Signed) -> Vec<Outcome> {
        let slug = "acme".parse().unwrap();
        let request = PlanRequest::new(BASE, &slug, shown.map(|shown| &*shown.bytes));
        let vault = self.owner.home.vault.clone();
        let kept = self.owner.kept();
        let refused = |scene: &Self| {
            assert_eq!(scene.owner.kept(), kept, "a refusal signs nothing");
            vec![Outcome::Refused]
        };
        if publish::take_roots(&vault, &request).is_err() {
            return refused(self);
        }
        let Ok(proposal) = Proposal::judge(&vault, &request, &proposed.bytes) else {
            return refused(self);
        };
        assert_eq!(proposal.payload_sha256, proposed.payload_sha256);
        let change = proposal.change.clone();
        assert_eq!(change.catalog, proposed.catalog);
        self.is_compared_with_what_counted_here(&change);
        let roles = self.line().newest().clone();
        let by = proposed
            .signers
            .iter()
            .find(|key| roles.release.contains(key));
        assert!(by.is_some(), "no publisher has signed it");
        let skills = self.skills;
        let fetched = |hash: &Digest| skills.objects.get(hash).cloned();
        let Ok(reviewed) = change.verify_content(&vault, &OWN, &fetched) else {
            return [refused(self), vec![Outcome::Judged]].concat();
        };
        let (before, line) = (self.before().cloned(), self.line());
        a_review_is_whole(&change, &reviewed, before.as_ref(), &line, skills);
        let signed = proposal.sign(&vault, request.current).unwrap();
        self.owner.note_changed();
        let file = SignedCatalog::parse(&signed.bytes).unwrap();
        assert_eq!(
            file.payload_sha256(),
            proposed.payload_sha256,
            "what was shown"
        );
        let anna = self.keys.public(ANNA);
        assert_eq!(file.valid_signers(&[anna]), [anna]);
        assert_eq!(signed.is_complete, signed.signatures >= roles.threshold);
        vec![Outcome::Judged, Outcome::Reviewed, Outcome::Signed]
    }

    /// A draft whose source has other files when it is fetched again: the digest that its reader
    /// accepted does not answer for them.
    pub fn draft(&self, dice: &mut Dice) -> Vec<Outcome> {
        let all = self
            .history
            .releases
            .iter()
            .flat_map(|it| &it.catalog.skills);
        let all: Vec<_> = all.map(|entry| entry.bundle_hash).collect();
        let read = &self.skills.get(dice.pick(&all)).files;
        let mut signed = read.clone();
        let at = dice.below(signed.len());
        match dice.below(5) {
            0 => signed[at].bytes.push(b'\n'),
            1 => {
                let byte = dice.below(signed[at].bytes.len());
                signed[at].bytes[byte] ^= 1 << dice.below(8);
            }
            2 => signed[at].mode = vault_format::manifest::Mode::Executable,
            3 => drop(signed.remove(at)),
            _ => signed.clone_from(&self.skills.get(dice.pick(&all)).files),
        }
        let reversed: Vec<_> = read.iter().rev().cloned().collect();
        assert_eq!(files_sha256(read), files_sha256(&reversed));
        assert_eq!(files_sha256(read) == files_sha256(&signed), *read == signed);
        vec![Outcome::Draft]
    }
}
