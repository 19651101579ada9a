//! Random vaults against a second, small implementation of the rules of chains.
//!
//! Versions are made by random owners and thieves, and branch. Several readers with different pins
//! are shown lists by a host that cuts, reorders and mixes them. The model knows neither bytes nor
//! signatures: it has sets of keys.

use std::collections::BTreeSet;

use base64::Engine as _;
use proptest::prelude::*;
use vault_format::catalog;
use vault_format::catalog::{Catalog, CatalogOutcome, CatalogReader, ReaderKind, judge_catalog};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::root::{
    PAYLOAD_TYPE, RootList, RootState, SkillPlace, VaultFingerprint, VaultId, judge_roots,
};

use crate::make::{NOW, catalog_of, key, slug};

const KEYS: u8 = 6;
type Keys = BTreeSet<u8>;

/// A root version as the model sees it, with the bytes that it became.
#[derive(Clone, Debug)]
struct Version {
    parent: Option<usize>,
    number: u64,
    root: Keys,
    root_threshold: usize,
    release: Keys,
    release_threshold: usize,
    revoked: Keys,
    signers: Keys,
    payload_sha256: Digest,
    envelope: String,
}

/// How a version differs from the one before.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    AddPublisher(u8),
    RemovePublisher(u8),
    AddRoot(u8),
    RemoveRoot(u8),
    Revoke(u8),
    Unrevoke(u8),
    Thresholds(usize, usize),
}

/// Who signs a version.
#[derive(Clone, Debug)]
enum Signers {
    /// All keys that the rules ask for.
    Right,
    /// Whoever the thief holds.
    Some(Keys),
}

#[derive(Clone, Debug)]
struct Step {
    parent: prop::sample::Index,
    changes: Vec<Change>,
    signers: Signers,
}

/// What the host shows: the versions up to one, perhaps with a fault.
#[derive(Clone, Debug)]
struct Show {
    reader: usize,
    version: prop::sample::Index,
    fault: Fault,
    catalog_signers: Keys,
    names: prop::sample::Index,
}

#[derive(Clone, Debug)]
enum Fault {
    None,
    LeaveOut(prop::sample::Index),
    Swap(prop::sample::Index),
    Strip(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let key = 0..KEYS;
    prop_oneof![
        1 => Just(Change::Nothing),
        3 => key.clone().prop_map(Change::AddPublisher),
        2 => key.clone().prop_map(Change::RemovePublisher),
        2 => key.clone().prop_map(Change::AddRoot),
        1 => key.clone().prop_map(Change::RemoveRoot),
        3 => key.clone().prop_map(Change::Revoke),
        1 => key.prop_map(Change::Unrevoke),
        1 => (0..3_usize, 0..3_usize).prop_map(|(root, release)| Change::Thresholds(root, release)),
    ]
}

fn keys() -> impl Strategy<Value = Keys> {
    prop::collection::btree_set(0..KEYS, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let signers = prop_oneof![4 => Just(Signers::Right), 1 => keys().prop_map(Signers::Some)];
    (
        any::<prop::sample::Index>(),
        prop::collection::vec(change(), 0..3),
        signers,
    )
        .prop_map(|(parent, changes, signers)| Step {
            parent,
            changes,
            signers,
        })
}

fn show() -> impl Strategy<Value = Show> {
    let index = any::<prop::sample::Index>;
    let fault = prop_oneof![
        6 => Just(Fault::None),
        1 => index().prop_map(Fault::LeaveOut),
        1 => index().prop_map(Fault::Swap),
        2 => index().prop_map(Fault::Strip),
    ];
    (0..3_usize, index(), fault, keys(), index()).prop_map(
        |(reader, version, fault, catalog_signers, names)| Show {
            reader,
            version,
            fault,
            catalog_signers,
            names,
        },
    )
}

fn texts(keys: &Keys) -> Vec<String> {
    let mut texts: Vec<String> = keys
        .iter()
        .map(|number| key(*number).public().to_string())
        .collect();
    texts.sort();
    texts
}

impl Version {
    /// Version 1 of the vault: key 0 in both roles.
    fn first() -> Self {
        let mut version = Self {
            parent: None,
            number: 1,
            root: [0].into(),
            root_threshold: 1,
            release: [0].into(),
            release_threshold: 1,
            revoked: Keys::new(),
            signers: [0].into(),
            payload_sha256: Digest::of(b""),
            envelope: String::new(),
        };
        version.write(0, None, None);
        version
    }

    fn after(step: &Step, versions: &[Self]) -> Self {
        // One of the last few, so that chains become long and branch late.
        let near = versions.len().min(5);
        let parent = versions.len() - 1 - step.parent.index(near);
        let before = &versions[parent];
        let mut version = Self {
            parent: Some(parent),
            number: before.number + 1,
            ..before.clone()
        };
        for change in &step.changes {
            version.change(change);
        }
        version.signers = match &step.signers {
            Signers::Right => before.root.union(&version.root).copied().collect(),
            Signers::Some(keys) => keys.clone(),
        };
        version.write(versions.len(), Some(&versions[0]), Some(before));
        version
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Nothing => {}
            Change::AddPublisher(key) => drop(self.release.insert(*key)),
            Change::RemovePublisher(key) => drop(self.release.remove(key)),
            Change::AddRoot(key) => drop(self.root.insert(*key)),
            Change::RemoveRoot(key) => drop(self.root.remove(key)),
            Change::Revoke(key) => {
                self.root.remove(key);
                self.release.remove(key);
                self.revoked.insert(*key);
            }
            Change::Unrevoke(key) => drop(self.revoked.remove(key)),
            Change::Thresholds(root, release) => {
                (self.root_threshold, self.release_threshold) = (*root, *release);
            }
        }
    }

    /// Writes the document without any help of the code under test. `place` makes equal documents
    /// differ.
    fn write(&mut self, place: usize, first: Option<&Self>, before: Option<&Self>) {
        let all: Keys = self.root.union(&self.release).copied().collect();
        let keys = texts(&all);
        let keys: Vec<String> = keys
            .iter()
            .map(|text| format!(r#"{{"public_key":"{text}","name":"{}"}}"#, &text[..8]))
            .collect();
        let list = |keys: &Keys| format!("{:?}", texts(keys));
        let quoted =
            |text: Option<String>| text.map_or("null".to_owned(), |text| format!("{text:?}"));
        let vault_id = first.map(|first| VaultId::derive(&first.payload_sha256).to_string());
        let previous = before.map(|before| before.payload_sha256.to_string());
        let payload = format!(
            r#"{{"schema":"vault.root/1","vault_id":{},"version":{},"previous_sha256":{},"issued_at":"2026-11-22T09:00:00Z","expires_at":null,"keys":[{}],"root":{{"threshold":{},"keys":{}}},"release":{{"threshold":{},"keys":{}}},"revoked":{},"place":{place}}}"#,
            quoted(vault_id),
            self.number,
            quoted(previous),
            keys.join(","),
            self.root_threshold,
            list(&self.root),
            self.release_threshold,
            list(&self.release),
            list(&self.revoked),
        );
        self.payload_sha256 = Digest::of(payload.as_bytes());
        let signers: Vec<SecretKey> = self.signers.iter().map(|number| key(*number)).collect();
        let signers: Vec<&SecretKey> = signers.iter().collect();
        let envelope = Envelope::sign(PAYLOAD_TYPE, payload.as_bytes(), &signers);
        self.envelope = String::from_utf8(envelope.to_bytes()).unwrap();
    }

    fn has_good_shape(&self) -> bool {
        let role = |keys: &Keys, threshold: usize| (1..=keys.len().min(4)).contains(&threshold);
        let shared = self.root.intersection(&self.release).count();
        role(&self.root, self.root_threshold)
            && role(&self.release, self.release_threshold)
            && (shared == 0 || shared == self.root.len())
            && (shared == 0 || self.root_threshold >= self.release_threshold)
            && self.revoked.is_disjoint(&self.root)
            && self.revoked.is_disjoint(&self.release)
    }

    fn is_signed_by(&self, role: &Keys, threshold: usize) -> bool {
        self.signers.intersection(role).count() >= threshold
    }
}

/// The versions of a vault, as a tree.
struct World(Vec<Version>);

/// What a reader keeps, in the model.
#[derive(Clone, Debug, Default, PartialEq)]
struct Memory {
    chain: Vec<usize>,
    revoked: Keys,
}

/// One place of a shown list: a version, and whether its signatures are destroyed.
type Shown = (usize, bool);

impl World {
    fn new(steps: &[Step]) -> Self {
        let mut versions = vec![Version::first()];
        for step in steps {
            let version = Version::after(step, &versions);
            versions.push(version);
        }
        Self(versions)
    }

    fn path(&self, mut at: usize) -> Vec<usize> {
        let mut path = vec![at];
        while let Some(parent) = self.0[at].parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    fn shown(&self, show: &Show) -> Vec<Shown> {
        let path = self.path(show.version.index(self.0.len()));
        let mut list: Vec<Shown> = path.into_iter().map(|version| (version, false)).collect();
        match &show.fault {
            Fault::None => {}
            Fault::LeaveOut(at) => drop(list.remove(at.index(list.len()))),
            Fault::Swap(at) => {
                let at = at.index(list.len());
                let other = (at + 1) % list.len();
                list.swap(at, other);
            }
            Fault::Strip(at) => {
                let at = at.index(list.len());
                list[at].1 = true;
            }
        }
        list
    }

    fn list(&self, shown: &[Shown]) -> String {
        let stranger = [7_u8; 64];
        let envelope = |(version, stripped): &Shown| {
            let text = &self.0[*version].envelope;
            if !*stripped {
                return text.clone();
            }
            // The same payload with a signature that is none.
            let envelope = Envelope::parse(text.as_bytes());
            let payload = envelope.map_or(Vec::new(), |envelope| envelope.payload().to_vec());
            let mut bare = Envelope::sign(PAYLOAD_TYPE, &payload, &[&key(99)]).to_bytes();
            let sig = bare
                .windows(7)
                .position(|window| window == br#""sig":""#)
                .unwrap()
                + 7;
            let other = base64::engine::general_purpose::STANDARD.encode(stranger);
            bare[sig..sig + other.len()].copy_from_slice(other.as_bytes());
            String::from_utf8(bare).unwrap()
        };
        let envelopes: Vec<String> = shown.iter().map(envelope).collect();
        format!("[{}]", envelopes.join(","))
    }

    /// Whether a version counts after the ones before it.
    fn counts_after(&self, before: &[usize], (at, stripped): Shown) -> bool {
        let version = &self.0[at];
        let Some(last) = before.last().map(|last| &self.0[*last]) else {
            return version.parent.is_none() && !stripped;
        };
        let named = |keys: &Version| keys.root.union(&keys.release).copied().collect::<Keys>();
        let ever: Keys = before.iter().flat_map(|at| named(&self.0[*at])).collect();
        let came_back = named(version)
            .difference(&named(last))
            .any(|key| ever.contains(key));
        !stripped
            && version.parent == before.last().copied()
            && version.has_good_shape()
            && version.is_signed_by(&last.root, last.root_threshold)
            && version.is_signed_by(&version.root, version.root_threshold)
            && last.revoked.is_subset(&version.revoked)
            && !came_back
    }

    fn judge(&self, own: &Memory, shown: &[Shown]) -> Result<Memory, &'static str> {
        let mut chain: Vec<usize> = Vec::new();
        for (place, one) in shown.iter().enumerate() {
            let shared = own.chain.get(..place) == Some(chain.as_slice());
            let known = shared && own.chain.get(place) == Some(&one.0);
            if !known && !self.counts_after(&chain, *one) {
                return Err("root_invalid");
            }
            chain.push(one.0);
        }
        if chain.is_empty() {
            return Err("root_invalid");
        }
        let common = chain
            .iter()
            .zip(&own.chain)
            .take_while(|(a, b)| a == b)
            .count();
        if own.chain.is_empty() || (common == own.chain.len() && chain.len() > common) {
            return Ok(Memory {
                chain,
                revoked: own.revoked.clone(),
            });
        }
        if common == chain.len() {
            return Ok(own.clone());
        }
        let newest = &self.0[*own.chain.last().unwrap()];
        let other = &self.0[*chain.last().unwrap()];
        let agreed = |at: &usize| self.0[*at].is_signed_by(&newest.root, newest.root_threshold);
        let named: Keys = other.root.union(&other.release).copied().collect();
        if chain.len() > own.chain.len()
            && chain[common..].iter().all(agreed)
            && newest.revoked.is_disjoint(&named)
        {
            let revoked = own.revoked.union(&newest.revoked).copied().collect();
            return Ok(Memory { chain, revoked });
        }
        Err("root_forked")
    }
}

fn parsed(list: &str) -> RootList {
    serde_json::from_str(list).unwrap()
}

/// A catalog file under a list, which names one of the versions.
fn catalog_file(world: &World, list: &str, names: &Version, signers: &Keys) -> Vec<u8> {
    let first = key(signers.first().copied().unwrap_or(0));
    let catalog = Catalog {
        vault_id: VaultId::derive(&world.0[0].payload_sha256),
        root_version: names.number,
        root_sha256: names.payload_sha256,
        public_key: first.public(),
        ..crate::make::catalog(1, 0)
    };
    let payload = json::to_bytes(&catalog);
    let keys: Vec<SecretKey> = signers.iter().map(|number| key(*number)).collect();
    let keys: Vec<&SecretKey> = keys.iter().collect();
    let envelope = Envelope::sign(catalog::PAYLOAD_TYPE, &payload, &keys).to_bytes();
    let envelope = String::from_utf8(envelope).unwrap();
    let public_key = first.public();
    format!(
        r#"{{"public_key":"{public_key}","roots":{list},{}"#,
        &envelope[1..]
    )
    .into_bytes()
}

/// Whether a catalog counts for a reader who has taken the roots beside it.
fn model_counts(world: &World, memory: &Memory, names: usize, signers: &Keys) -> bool {
    let newest = *memory.chain.last().unwrap();
    let version = &world.0[newest];
    let revoked: Keys = memory.revoked.union(&version.revoked).copied().collect();
    let role: Keys = version.release.difference(&revoked).copied().collect();
    let valid = signers.intersection(&role).count();
    let first = signers.first();
    valid >= version.release_threshold
        && names == newest
        && first.is_some_and(|first| role.contains(first))
}

struct Reader {
    state: Option<RootState>,
    memory: Memory,
    /// Every key that this reader ever saw revoked in a chain that counted.
    seen_revoked: Keys,
}

impl Reader {
    fn look(&mut self, world: &World, show: &Show) {
        let shown = world.shown(show);
        let list = world.list(&shown);
        let judged = judge_roots(self.state.as_ref(), &parsed(&list), None);
        let expected = world.judge(&self.memory, &shown);
        self.check_catalog(world, show, &list, expected.as_ref().ok());
        match (judged, expected) {
            (Ok(judged), Ok(memory)) => {
                assert_eq!(judged.taken, self.state.is_none() || memory != self.memory);
                (self.state, self.memory) = (Some(judged.state), memory);
            }
            (Err(error), Err(word)) => assert_eq!(error.error_code(), word),
            (judged, expected) => {
                panic!("{:?} but the model says {expected:?}", judged.map(|_| ()))
            }
        }
        self.check_memory(world);
    }

    fn check_catalog(&self, world: &World, show: &Show, list: &str, after: Option<&Memory>) {
        let names = show.names.index(world.0.len());
        let signers = &show.catalog_signers;
        let bytes = catalog_file(world, list, &world.0[names], signers);
        let slug = slug();
        let reader = CatalogReader {
            side: ReaderKind::Device,
            base: "https://vault.example",
            slug: &slug,
            now: NOW,
            latest_seen_at: None,
            own: self.state.as_ref(),
            expected: None,
            last: None,
            accept_fork: false,
        };
        let outcome = judge_catalog(&bytes, &reader).outcome;
        let counts = matches!(outcome, Ok(CatalogOutcome::Release(_)));
        let expected = after.is_some_and(|memory| model_counts(world, memory, names, signers));
        assert_eq!(counts, expected, "{:?}", outcome.map(|_| ()));
    }

    /// What was revoked once at this reader counts nowhere, whatever was shown since.
    fn check_memory(&mut self, world: &World) {
        let Some(state) = &self.state else { return };
        let newest = &world.0[*self.memory.chain.last().unwrap()];
        self.seen_revoked.extend(&newest.revoked);
        for number in 0..KEYS {
            let key: PublicKey = key(number).public();
            let revoked = self.seen_revoked.contains(&number);
            assert_eq!(state.is_revoked(&key), revoked, "key {number}");
            assert_eq!(
                state.chain().ever_released(&key),
                self.memory
                    .chain
                    .iter()
                    .any(|at| world.0[*at].release.contains(&number))
            );
            if revoked {
                assert!(!state.release_keys().contains(&key) && state.voids_release(&[key]));
                for place in [
                    SkillPlace::Listed,
                    SkillPlace::Installed,
                    SkillPlace::Own { taken_over: true },
                    SkillPlace::Archive { listed: true },
                ] {
                    assert!(state.judge_signer(Some(&key), place).is_err(), "{place:?}");
                }
            }
        }
        assert_eq!(state.chain().version(), newest.number);
        assert_eq!(
            *state.chain().newest().payload_sha256(),
            newest.payload_sha256
        );
        // What is stored and read again is the same.
        let stored = String::from_utf8(json::to_bytes(state.chain())).unwrap();
        let revoked = state.revoked_elsewhere().clone();
        let again = RootState::load(state.chain().root1_sha256(), &parsed(&stored), revoked);
        assert_eq!(again.as_ref().unwrap(), state);
        // An expected fingerprint is met by the chains that contain it, and by no other.
        for version in &world.0 {
            let fingerprint = VaultFingerprint::new(version.number, &version.payload_sha256);
            let contained = self
                .memory
                .chain
                .iter()
                .any(|at| world.0[*at].payload_sha256 == version.payload_sha256);
            assert_eq!(state.chain().version_of(&fingerprint).is_some(), contained);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn readers_agree_with_the_model_and_never_forget_a_revocation(
        steps in prop::collection::vec(step(), 1..14),
        shows in prop::collection::vec(show(), 1..24),
    ) {
        let world = World::new(&steps);
        let mut readers: Vec<Reader> = (0..3)
            .map(|_| Reader { state: None, memory: Memory::default(), seen_revoked: Keys::new() })
            .collect();
        for show in &shows {
            readers[show.reader].look(&world, show);
        }
    }

    /// The same with owners who do everything right, so that chains become long and forks are
    /// healed.
    #[test]
    fn careful_owners_with_a_backup_that_was_restored(
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..20),
        shows in prop::collection::vec(show(), 1..30),
    ) {
        let steps: Vec<Step> = changes.into_iter().map(|(parent, change)| Step {
            parent,
            changes: vec![match change {
                Change::AddRoot(key) | Change::RemoveRoot(key) => Change::AddPublisher(key % 5),
                Change::Thresholds(..) | Change::Unrevoke(_) | Change::Revoke(5) => Change::Nothing,
                other => other,
            }],
            signers: Signers::Some([0, 5].into()),
        }).collect();
        let mut world = World::new(&[]);
        let mut second = world.0[0].clone();
        (second.parent, second.number) = (Some(0), 2);
        (second.root, second.signers) = ([5].into(), [0, 5].into());
        let first = world.0[0].clone();
        second.write(1, Some(&first), Some(&first));
        world.0.push(second);
        for step in &steps {
            let version = Version::after(step, &world.0[..]);
            world.0.push(version);
        }
        let mut reader = Reader { state: None, memory: Memory::default(), seen_revoked: Keys::new() };
        for show in &shows {
            reader.look(&world, show);
        }
    }
}

/// The model is not needed to see that a catalog by the owner counts.
#[test]
fn a_first_version_and_its_catalog_count() {
    let world = World::new(&[]);
    let list = world.list(&[(0, false)]);
    let state = judge_roots(None, &parsed(&list), None).unwrap().state;
    assert_eq!(
        catalog_of(state.chain(), 1, 0).root_sha256,
        world.0[0].payload_sha256
    );
    let memory = Memory {
        chain: vec![0],
        revoked: Keys::new(),
    };
    assert!(model_counts(&world, &memory, 0, &[0].into()));
    assert!(!model_counts(&world, &memory, 0, &[1].into()));
}
