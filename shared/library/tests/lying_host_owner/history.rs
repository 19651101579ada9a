//! Random histories of a vault: root versions, forks and heals, and what its publishers released.

use std::collections::BTreeSet;
use std::sync::Arc;

use vault_format::catalog::{Catalog, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, SecretKey, Signer};
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit};
use vault_format::time::Timestamp;

use super::dice::Dice;
use super::skills::{NAMES, Skills, Twist};

/// The owner's own key.
pub const ANNA: usize = 0;
/// Keys of other publishers, in the order in which they come.
pub const PUBLISHERS: std::ops::Range<usize> = 1..7;
/// Root keys.
pub const ROOTS: std::ops::Range<usize> = 7..11;
/// A key that never had a role.
pub const NOBODY: usize = 11;

/// All keys, by number.
pub struct Keys(Vec<Box<dyn Signer + Send + Sync>>);

impl Keys {
    pub fn new(anna: Box<dyn Signer + Send + Sync>) -> Self {
        let others = (1..=NOBODY).map(|number| {
            let seed = u8::try_from(number).unwrap();
            Box::new(SecretKey::from_seed([seed; 32])) as Box<dyn Signer + Send + Sync>
        });
        Self([anna].into_iter().chain(others).collect())
    }

    pub fn get(&self, number: usize) -> &(dyn Signer + Send + Sync) {
        &*self.0[number]
    }

    pub fn public(&self, number: usize) -> PublicKey {
        self.get(number).public_key()
    }

    fn entry(&self, number: usize) -> KeyEntry {
        let public_key = self.public(number);
        KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        }
    }
}

/// Who may do what in a root version.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    pub root: Vec<usize>,
    pub root_threshold: usize,
    pub release: Vec<usize>,
    pub threshold: usize,
    pub revoked: BTreeSet<usize>,
}

/// Root versions, each with its roles.
#[derive(Clone)]
pub struct Line {
    /// The chain up to each version.
    chains: Vec<Arc<RootChain>>,
    pub roles: Vec<Roles>,
}

impl Line {
    pub fn newest(&self) -> &Roles {
        self.roles.last().unwrap()
    }

    pub fn chain(&self) -> &RootChain {
        self.chains.last().unwrap()
    }

    /// SHA-256 of the payload of the newest version.
    pub fn sha256(&self) -> Digest {
        *self.chain().newest().payload_sha256()
    }

    pub fn until(&self, versions: usize) -> Self {
        Self {
            chains: self.chains[..versions].to_vec(),
            roles: self.roles[..versions].to_vec(),
        }
    }

    /// The same versions and one more.
    pub fn with(&self, chain: RootChain, roles: Roles) -> Self {
        let mut longer = self.clone();
        longer.chains.push(Arc::new(chain));
        longer.roles.push(roles);
        longer
    }

    fn next(
        &self,
        keys: &Keys,
        now: Timestamp,
        change: impl FnOnce(&mut RootEdit<'_>, &mut Roles),
    ) -> Self {
        let mut roles = self.newest().clone();
        let mut edit = RootEdit::begin_after(self.chain(), now);
        change(&mut edit, &mut roles);
        let before = &self.newest().root[..self.newest().root_threshold];
        let signers: BTreeSet<usize> = before.iter().chain(&roles.root).copied().collect();
        let signers: Vec<&dyn Signer> = signers
            .into_iter()
            .map(|number| keys.get(number) as &dyn Signer)
            .collect();
        self.with(edit.sign(&signers).unwrap(), roles)
    }

    /// A version with other publishers, another threshold or another root key.
    fn changed(&self, keys: &Keys, now: Timestamp, dice: &mut Dice, unused: &mut Unused) -> Self {
        let roles = self.newest().clone();
        let others: Vec<usize> = roles
            .release
            .iter()
            .copied()
            .filter(|it| *it != ANNA)
            .collect();
        let may_leave = !others.is_empty() && roles.release.len() > roles.threshold;
        match dice.below(6) {
            0 | 1 if may_leave => {
                let gone = *dice.pick(&others);
                let revokes = dice.one_in(2);
                self.next(keys, now, |edit, roles| {
                    if revokes {
                        edit.revoke(&keys.public(gone));
                        roles.revoked.insert(gone);
                    } else {
                        edit.retire(&keys.public(gone)).unwrap();
                    }
                    roles.release.retain(|it| *it != gone);
                })
            }
            2 if !unused.root.is_empty() => {
                let (old, new) = (*dice.pick(&roles.root), unused.root.remove(0));
                self.next(keys, now, |edit, roles| {
                    edit.replace(&keys.public(old), keys.entry(new)).unwrap();
                    roles.root.retain(|it| *it != old);
                    roles.root.push(new);
                })
            }
            3 | 4 if roles.release.len() > 1 => {
                let threshold = 3 - roles.threshold;
                self.next(keys, now, |edit, roles| {
                    edit.set_release_threshold(threshold);
                    roles.threshold = threshold;
                })
            }
            _ if !unused.release.is_empty() => {
                let new = unused.release.remove(0);
                self.next(keys, now, |edit, roles| {
                    edit.add_publisher(keys.entry(new)).unwrap();
                    roles.release.push(new);
                })
            }
            _ => self.next(keys, now, |_, _| {}),
        }
    }
}

/// Keys that have had no role yet.
struct Unused {
    root: Vec<usize>,
    release: Vec<usize>,
}

/// A catalog that keys signed.
#[derive(Clone, Debug)]
pub struct Signed {
    pub catalog: Catalog,
    pub bytes: Vec<u8>,
    pub payload_sha256: Digest,
    pub signers: BTreeSet<usize>,
}

impl Signed {
    pub fn stored(&self) -> ReleaseRef {
        ReleaseRef {
            release: self.catalog.release,
            payload_sha256: self.payload_sha256,
        }
    }
}

/// What really happened.
pub struct History {
    /// The root versions that count.
    pub line: Line,
    /// Root versions that counted once and were given up, and those that a former root key made.
    pub forks: Vec<Line>,
    /// What counted, oldest first.
    pub releases: Vec<Signed>,
    /// A release that one publisher proposed and nobody else signed.
    pub proposed: Option<Signed>,
    /// How many root versions the owner's machine has, and which root versions these are.
    pub known: Line,
    /// The release that counted last on the owner's machine, by its place in `releases`.
    pub counted: usize,
    /// All releases that the owner's machine published or took over.
    pub recorded: BTreeSet<usize>,
}

/// What every history begins with: one key, one root version, one release.
pub struct Beginning<'a> {
    pub keys: &'a Keys,
    pub first: &'a Signed,
    pub chain: &'a RootChain,
    pub now: Timestamp,
}

impl History {
    pub fn new(start: &Beginning<'_>, skills: &mut Skills, dice: &mut Dice) -> Self {
        let (keys, now) = (start.keys, start.now);
        let mut unused = Unused {
            root: ROOTS.collect(),
            release: PUBLISHERS.collect(),
        };
        let mut line = Line {
            chains: vec![Arc::new(start.chain.clone())],
            roles: vec![Roles {
                root: vec![ANNA],
                root_threshold: 1,
                release: vec![ANNA],
                threshold: 1,
                revoked: BTreeSet::new(),
            }],
        };
        let mut releases = vec![start.first.clone()];
        let mut forks = Vec::new();
        line = recovery_keys(&line, keys, now, dice, &mut unused);
        for _ in 0..dice.below(4) {
            if dice.one_in(5) {
                // Two root holders signed at once, and one line was given up.
                forks.push(line.changed(keys, now, dice, &mut unused));
                line = line.changed(keys, now, dice, &mut unused);
            }
            line = line.changed(keys, now, dice, &mut unused);
            for _ in 0..dice.below(3) {
                releases.push(released(
                    &line,
                    keys,
                    releases.last().unwrap(),
                    skills,
                    dice,
                ));
            }
        }
        let proposed = (line.newest().threshold > 1 && dice.one_in(2)).then(|| {
            let mut proposed = released(&line, keys, releases.last().unwrap(), skills, dice);
            let author = *proposed.signers.iter().find(|it| **it != ANNA).unwrap();
            proposed.catalog.public_key = keys.public(author);
            sign(proposed.catalog, line.chain(), &[author], keys)
        });
        // The machine may not have heard of the newest changes.
        let counted = dice.below(releases.len());
        let named = releases[counted].catalog.root_version;
        let first = usize::try_from(named).unwrap();
        let known = first + dice.below(line.roles.len() - first + 1);
        let recorded = (0..counted).filter(|_| dice.one_in(2)).chain([0, counted]);
        Self {
            known: line.until(known),
            recorded: recorded.collect(),
            counted,
            line,
            forks,
            releases,
            proposed,
        }
    }

    /// The lines that the owner's machine may follow.
    pub fn followed(&self) -> impl Iterator<Item = &Line> {
        let known = self.known.sha256();
        let forks = self.forks.iter();
        let forks = forks.filter(move |fork| fork.chain().find(&known).is_some());
        [&self.line].into_iter().chain(forks)
    }

    pub fn last_counted(&self) -> &Signed {
        &self.releases[self.counted]
    }
}

/// The second version: the root role goes to recovery keys, and there is another publisher.
fn recovery_keys(
    line: &Line,
    keys: &Keys,
    now: Timestamp,
    dice: &mut Dice,
    unused: &mut Unused,
) -> Line {
    let (threshold, release_threshold) = (1 + dice.below(2), 1 + dice.below(2));
    let roots: Vec<usize> = unused
        .root
        .drain(..=dice.below(2).max(threshold - 1))
        .collect();
    let publishers: Vec<usize> = unused.release.drain(..=dice.below(2)).collect();
    line.next(keys, now, |edit, roles| {
        for number in &roots {
            edit.add_root_key(keys.entry(*number)).unwrap();
        }
        edit.remove_root_key(&keys.public(ANNA)).unwrap();
        edit.set_root_threshold(threshold);
        for number in &publishers {
            edit.add_publisher(keys.entry(*number)).unwrap();
        }
        edit.set_release_threshold(release_threshold);
        roles.threshold = release_threshold;
        roles.root = roots;
        roles.root_threshold = threshold;
        roles.release.extend(publishers);
    })
}

/// The next release of honest publishers.
fn released(
    line: &Line,
    keys: &Keys,
    before: &Signed,
    skills: &mut Skills,
    dice: &mut Dice,
) -> Signed {
    let roles = line.newest();
    let signers = &dice.shuffled(&roles.release)[..roles.threshold];
    let author = signers[0];
    let mut catalog = Catalog {
        release: before.catalog.release + 1 + u64::try_from(dice.below(2)).unwrap(),
        previous: Some(before.stored()),
        public_key: keys.public(author),
        root_version: line.chain().version(),
        root_sha256: line.sha256(),
        ..before.catalog.clone()
    };
    for _ in 0..dice.below(4) {
        skills.change(
            &mut catalog,
            dice,
            (author, keys.get(author)),
            &Twist::HONEST,
        );
    }
    // What a revoked key signed is signed again before it is released.
    for entry in &mut catalog.skills {
        let made = skills.get(&entry.bundle_hash).clone();
        if roles.revoked.contains(&made.by) {
            let name = NAMES.into_iter().find(|name| *name == entry.name.as_str());
            let wanted = (name.unwrap(), entry.version + 1, author, made.twist);
            *entry = skills.make(wanted, keys.get(author));
        }
    }
    skills.complete(&mut catalog);
    sign(catalog, line.chain(), signers, keys)
}

fn sign(catalog: Catalog, chain: &RootChain, signers: &[usize], keys: &Keys) -> Signed {
    let signing: Vec<&dyn Signer> = signers
        .iter()
        .map(|number| keys.get(*number) as &dyn Signer)
        .collect();
    let file = SignedCatalog::sign(&catalog, chain, &signing).unwrap();
    Signed {
        bytes: file.to_bytes(),
        payload_sha256: file.payload_sha256(),
        signers: signers.iter().copied().collect(),
        catalog,
    }
}
