//! Writes the next root version (signed list of a vault's keys). A chain of versions has a largest
//! length; writers keep a part of it in reserve, so that a recovery or a revocation is always
//! possible.

use std::collections::BTreeSet;

use super::chain::{MAX_CHAIN_BYTES, PAYLOAD_TYPE, RootChain};
use super::document::{
    KeyEntry, MAX_RELEASE_KEYS, MAX_THRESHOLD, MAX_VERSION, RevokedKey, Role, RootDocument, SCHEMA,
    Wire,
};
use super::error::{InvalidRoot, RootError};
use crate::dsse::Envelope;
use crate::json;
use crate::keys::{PublicKey, Signer, SignerError};
use crate::path::fold_name;
use crate::time::Timestamp;

/// The number of versions that only recovery and revocation may use.
pub const RESERVED_VERSIONS: u64 = 16;
/// The number of bytes that only recovery and revocation may use.
pub const RESERVED_BYTES: usize = 32 << 10;

/// The reason not to write a root version.
#[derive(Debug, thiserror::Error)]
pub enum RootWriteError {
    /// The change would break a rule of root documents.
    #[error("the new list of keys would be invalid: {0}")]
    Invalid(#[from] InvalidRoot),
    /// A reader would reject the signed version, usually because signatures of the root role are
    /// missing.
    #[error("the new list of keys would be refused: {0}")]
    Refused(#[from] RootError),
    /// The release threshold is higher than readers allow, or than the number of publishers.
    #[error("release threshold {wanted} is too high: {}", highest_threshold(*.publishers))]
    HighThreshold {
        /// The requested threshold.
        wanted: usize,
        /// The number of keys in the release role.
        publishers: usize,
    },
    /// Keys that both publish and change keys would need more signatures for a release than for a
    /// change of the keys.
    #[error("release threshold {0} is too high: the vault has no recovery key")]
    NoRecoveryKey(usize),
    /// The last publisher would be removed.
    #[error("the vault would have no publisher left")]
    NoPublisher,
    /// The number of publishers has reached its limit.
    #[error("the vault already has {MAX_RELEASE_KEYS} publishers, and can have no more")]
    ManyPublishers,
    /// A signer failed to sign.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The key to remove or replace is in no role.
    #[error("the key is in no role of the vault")]
    NotInRole,
    /// The key is in the role already, or was in a role before and cannot come back.
    #[error("the key is or was in a role of the vault; make a new key")]
    UsedKey,
    /// Two keys would have names that look the same.
    #[error("two keys have names that look the same: {0}")]
    SameName(String),
    /// The rest of the chain's limits is in reserve for recovery and revocation.
    #[error(
        "the last {RESERVED_VERSIONS} root versions and 32 KiB are kept for recovery and revocation"
    )]
    Reserved,
}

/// How much of the limits of a chain is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RootBudget {
    /// The number of versions, at most [`MAX_VERSION`].
    pub versions: u64,
    /// The lengths of all envelopes together, in bytes, at most [`MAX_CHAIN_BYTES`].
    pub bytes: usize,
}

impl RootBudget {
    /// Measures what a chain uses of its limits.
    pub fn used_by(chain: &RootChain) -> Self {
        Self {
            versions: chain.version(),
            bytes: chain.byte_length(),
        }
    }

    /// Tells whether three quarters of the versions or of the bytes are used, so that a sync warns.
    pub const fn is_nearly_used(&self) -> bool {
        self.versions >= MAX_VERSION / 4 * 3 || self.bytes >= MAX_CHAIN_BYTES / 4 * 3
    }

    const fn leaves_reserve(&self) -> bool {
        self.versions <= MAX_VERSION - RESERVED_VERSIONS
            && self.bytes <= MAX_CHAIN_BYTES - RESERVED_BYTES
    }
}

/// A draft of the next version: the keys of both roles and their names, before they are signed.
#[derive(Clone, Debug)]
pub struct RootEdit<'a> {
    base: Option<&'a RootChain>,
    issued_at: Timestamp,
    expires_at: Option<Timestamp>,
    keys: Vec<KeyEntry>,
    root: Vec<PublicKey>,
    root_threshold: usize,
    release: Vec<PublicKey>,
    release_threshold: usize,
    revoked: BTreeSet<RevokedKey>,
    uses_reserve: bool,
}

impl<'a> RootEdit<'a> {
    /// Begins version 1 of a new vault: no keys yet, thresholds of 1.
    pub const fn begin_first(issued_at: Timestamp) -> Self {
        Self {
            base: None,
            issued_at,
            expires_at: None,
            keys: Vec::new(),
            root: Vec::new(),
            root_threshold: 1,
            release: Vec::new(),
            release_threshold: 1,
            revoked: BTreeSet::new(),
            uses_reserve: false,
        }
    }

    /// Begins the version after the newest one, with the same keys, thresholds, revocations and
    /// expiry. If that expiry is past, no version can be signed until [`RootEdit::set_expiry`] sets
    /// another one.
    pub fn begin_after(base: &'a RootChain, issued_at: Timestamp) -> Self {
        let document = base.document();
        Self {
            base: Some(base),
            issued_at,
            expires_at: document.expires_at(),
            keys: document.keys().to_vec(),
            root: document.root().keys().to_vec(),
            root_threshold: document.root().threshold(),
            release: document.release().keys().to_vec(),
            release_threshold: document.release().threshold(),
            revoked: document.revoked().iter().copied().collect(),
            uses_reserve: false,
        }
    }

    /// Adds a key to the root role; it may be in the release role already.
    pub fn add_root_key(&mut self, entry: KeyEntry) -> Result<&mut Self, RootWriteError> {
        if self.root.contains(&entry.public_key) {
            return Err(RootWriteError::UsedKey);
        }
        self.root.push(entry.public_key);
        self.add_key_entry(entry)
    }

    /// Adds a key to the release role; it may be in the root role already.
    pub fn add_publisher(&mut self, entry: KeyEntry) -> Result<&mut Self, RootWriteError> {
        if self.release.contains(&entry.public_key) {
            return Err(RootWriteError::UsedKey);
        }
        self.release.push(entry.public_key);
        self.add_key_entry(entry)
    }

    fn add_key_entry(&mut self, entry: KeyEntry) -> Result<&mut Self, RootWriteError> {
        let key = entry.public_key;
        let is_known = self.keys.iter().any(|other| other.public_key == key);
        // Every reader refuses a key that left all roles, and one that is revoked.
        let was_used = self.base.is_some_and(|base| base.ever_named(&key));
        if !is_known && (was_used || self.revoked.contains(&(&key).into())) {
            return Err(RootWriteError::UsedKey);
        }
        if !is_known {
            self.keys.push(entry);
        }
        Ok(self)
    }

    /// Removes a key from the root role. It stays a publisher if it is one.
    pub fn remove_root_key(&mut self, key: &PublicKey) -> Result<&mut Self, RootWriteError> {
        remove_key(&mut self.root, key)?;
        self.drop_unused_keys();
        Ok(self)
    }

    /// Removes a key from the release role. It stays a root key if it is one.
    pub fn remove_publisher(&mut self, key: &PublicKey) -> Result<&mut Self, RootWriteError> {
        remove_key(&mut self.release, key)?;
        self.drop_unused_keys();
        Ok(self)
    }

    /// Removes a key from every role. What it has signed stays valid where an accepted catalog
    /// lists the skill; compare [`RootEdit::revoke`].
    pub fn retire(&mut self, key: &PublicKey) -> Result<&mut Self, RootWriteError> {
        // Both removals run before either result is checked: a key may be in one role only.
        let from_root = remove_key(&mut self.root, key);
        let from_release = remove_key(&mut self.release, key);
        from_root.or(from_release)?;
        self.drop_unused_keys();
        Ok(self)
    }

    /// Revokes a key, whether or not it has a role: readers accept no signature of it any more. The
    /// version may use the reserve.
    pub fn revoke(&mut self, key: &PublicKey) -> &mut Self {
        self.root.retain(|other| other != key);
        self.release.retain(|other| other != key);
        self.revoked.insert(key.into());
        self.uses_reserve = true;
        self.drop_unused_keys();
        self
    }

    /// Adds a new key to each role of the old one, and retires the old one.
    pub fn replace(&mut self, old: &PublicKey, new: KeyEntry) -> Result<&mut Self, RootWriteError> {
        let (in_root, in_release) = (self.root.contains(old), self.release.contains(old));
        self.retire(old)?;
        if in_root {
            self.add_root_key(new.clone())?;
        }
        if in_release {
            self.add_publisher(new)?;
        }
        Ok(self)
    }

    /// Sets the number of keys of the root role that must sign the next version.
    pub const fn set_root_threshold(&mut self, threshold: usize) -> &mut Self {
        self.root_threshold = threshold;
        self
    }

    /// Sets the number of publishers that must sign a release.
    pub const fn set_release_threshold(&mut self, threshold: usize) -> &mut Self {
        self.release_threshold = threshold;
        self
    }

    /// Sets the time until which catalogs under this version count; `None` for no end.
    pub const fn set_expiry(&mut self, expires_at: Option<Timestamp>) -> &mut Self {
        self.expires_at = expires_at;
        self
    }

    /// Lets the version use the part of the limits that is in reserve for recovery and revocation.
    pub const fn use_reserve(&mut self) -> &mut Self {
        self.uses_reserve = true;
        self
    }

    fn drop_unused_keys(&mut self) {
        let (root, release) = (&self.root, &self.release);
        self.keys.retain(|entry| {
            root.contains(&entry.public_key) || release.contains(&entry.public_key)
        });
    }

    /// Returns the document to be signed. Fails if it breaks a rule for readers or writers.
    pub fn to_document(&self) -> Result<RootDocument, RootWriteError> {
        let mut keys = self.keys.clone();
        // Readers require the order of the texts.
        keys.sort_by_cached_key(|entry| entry.public_key.to_string());
        self.check_publishers()?;
        let mut names = BTreeSet::new();
        for entry in &keys {
            // Stricter than readers, which compare exact names: two names that differ in case
            // mislead people.
            if !names.insert(fold_name(entry.name.as_str()).into_owned()) {
                return Err(RootWriteError::SameName(entry.name.to_string()));
            }
        }
        let document = RootDocument::try_from(Wire {
            schema: SCHEMA.to_owned(),
            vault_id: self.base.map(RootChain::vault_id),
            version: self.base.map_or(1, |base| base.version() + 1),
            previous_sha256: self.base.map(|base| *base.newest().payload_sha256()),
            issued_at: self.issued_at,
            expires_at: self.expires_at,
            keys,
            root: Role::new(self.root_threshold, self.root.clone())?,
            release: Role::new(self.release_threshold, self.release.clone())?,
            revoked: self.revoked.iter().copied().collect(),
        })?;
        Ok(document)
    }

    /// Checks the rules about publishers that a command can break. The general check of the
    /// document would report them without the numbers that a person needs.
    fn check_publishers(&self) -> Result<(), RootWriteError> {
        let (wanted, publishers) = (self.release_threshold, self.release.len());
        if publishers == 0 {
            return Err(RootWriteError::NoPublisher);
        }
        if publishers > MAX_RELEASE_KEYS {
            return Err(RootWriteError::ManyPublishers);
        }
        if wanted > publishers.min(MAX_THRESHOLD) {
            return Err(RootWriteError::HighThreshold { wanted, publishers });
        }
        // Otherwise, one machine with a root key could lower the threshold by itself.
        let is_shared = self.root.iter().any(|key| self.release.contains(key));
        if is_shared && self.root_threshold < wanted {
            return Err(RootWriteError::NoRecoveryKey(wanted));
        }
        Ok(())
    }

    /// Signs the version with all given signers and returns the longer chain. Fails if a reader
    /// would reject it: the signers must reach the root threshold of the version before and of this
    /// one.
    pub fn sign(&self, signers: &[&dyn Signer]) -> Result<RootChain, RootWriteError> {
        let payload = json::to_bytes(&self.to_document()?);
        let envelope = Envelope::sign_with(PAYLOAD_TYPE, &payload, signers)?;
        let chain = match self.base {
            Some(base) => base.with_version(envelope)?,
            None => RootChain::begin_with(envelope)?,
        };
        if self.uses_reserve || RootBudget::used_by(&chain).leaves_reserve() {
            Ok(chain)
        } else {
            Err(RootWriteError::Reserved)
        }
    }
}

/// Signs further versions without a change until the number is above `above`, so that readers on a
/// fork move to this chain. The signers must reach the root threshold of the chain, and of each
/// fork that a reader may follow.
pub fn heal_fork(
    chain: &RootChain,
    above: u64,
    issued_at: Timestamp,
    signers: &[&dyn Signer],
) -> Result<RootChain, RootWriteError> {
    let mut healed = chain.clone();
    // A reader on a fork takes only a longer chain, so the number has to be above those of all
    // forks.
    while healed.version() <= above {
        let mut edit = RootEdit::begin_after(&healed, issued_at);
        healed = edit.use_reserve().sign(signers)?;
    }
    Ok(healed)
}

/// Describes the release thresholds that a vault with this number of publishers can have.
fn highest_threshold(publishers: usize) -> String {
    match publishers {
        1 => "the vault has 1 publisher".to_owned(),
        2..MAX_THRESHOLD => format!("the vault has {publishers} publishers"),
        _ => format!("vault allows 1 to {MAX_THRESHOLD}"),
    }
}

fn remove_key(keys: &mut Vec<PublicKey>, key: &PublicKey) -> Result<(), RootWriteError> {
    let before = keys.len();
    keys.retain(|other| other != key);
    if keys.len() == before {
        Err(RootWriteError::NotInRole)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SecretKey;
    use crate::root::{KeyName, RootState, judge_roots};

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn key(number: u8) -> SecretKey {
        SecretKey::from_seed([number; 32])
    }

    fn entry(number: u8) -> KeyEntry {
        let public_key = key(number).public();
        KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        }
    }

    fn first(number: u8) -> RootChain {
        let mut edit = RootEdit::begin_first(NOW);
        edit.add_root_key(entry(number)).unwrap();
        edit.add_publisher(entry(number)).unwrap();
        edit.sign(&[&key(number)]).unwrap()
    }

    #[test]
    fn a_vault_lives_through_rotation_recovery_and_revocation() {
        let chain = first(1);
        // Give the root role to a recovery key.
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.add_root_key(entry(9)).unwrap();
        edit.remove_root_key(&key(1).public()).unwrap();
        let chain = edit.sign(&[&key(1), &key(9)]).unwrap();
        assert_eq!(chain.fingerprint().version(), 2);
        // Add a second publisher, and replace the key of the first one.
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.add_publisher(entry(2)).unwrap();
        edit.replace(&key(1).public(), entry(3)).unwrap();
        let chain = edit.sign(&[&key(9)]).unwrap();
        // Revoke the replaced key, which is retired already.
        let mut edit = RootEdit::begin_after(&chain, NOW);
        let chain = edit.revoke(&key(1).public()).sign(&[&key(9)]).unwrap();
        assert_eq!(chain.fingerprint().version(), 2);
        let judged = judge_roots(None, &chain.to_list(), None).unwrap();
        assert_eq!(judged.state.chain(), &chain);
        assert!(judged.state.is_revoked(&key(1).public()));
        assert_eq!(judged.state.release_keys().len(), 2);
    }

    #[test]
    fn a_version_without_enough_signatures_is_not_written() {
        let chain = first(1);
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.add_root_key(entry(9)).unwrap();
        edit.remove_root_key(&key(1).public()).unwrap();
        for signers in [[&key(1) as &dyn Signer], [&key(9)]] {
            assert!(matches!(
                edit.sign(&signers),
                Err(RootWriteError::Refused(RootError::Invalid {
                    version: 2,
                    ..
                }))
            ));
        }
        assert!(matches!(edit.sign(&[]), Err(RootWriteError::Signer(_))));
    }

    #[test]
    fn used_keys_and_like_names_are_refused() {
        let chain = first(1);
        let mut edit = RootEdit::begin_after(&chain, NOW);
        assert!(matches!(
            edit.add_publisher(entry(1)),
            Err(RootWriteError::UsedKey)
        ));
        assert!(matches!(
            edit.retire(&key(2).public()),
            Err(RootWriteError::NotInRole)
        ));
        edit.replace(&key(1).public(), entry(2)).unwrap();
        let chain = edit.sign(&[&key(1), &key(2)]).unwrap();
        let mut edit = RootEdit::begin_after(&chain, NOW);
        assert!(matches!(
            edit.add_publisher(entry(1)),
            Err(RootWriteError::UsedKey)
        ));
        for (number, name) in [(3, "Bob"), (4, "bob")] {
            let mut entry = entry(number);
            entry.name = name.parse().unwrap();
            edit.add_publisher(entry).unwrap();
        }
        assert!(matches!(
            edit.to_document(),
            Err(RootWriteError::SameName(_))
        ));
    }

    #[test]
    fn a_rule_that_a_person_breaks_is_named() {
        let mut edit = RootEdit::begin_first(NOW);
        edit.add_root_key(entry(200)).unwrap();
        let text = |edit: &RootEdit<'_>| edit.to_document().unwrap_err().to_string();
        assert_eq!(text(&edit), "the vault would have no publisher left");
        edit.add_publisher(entry(1)).unwrap();
        edit.set_release_threshold(2);
        let too_high = "release threshold 2 is too high: the vault has 1 publisher";
        assert_eq!(text(&edit), too_high);
        edit.add_publisher(entry(2)).unwrap();
        assert!(edit.to_document().is_ok());
        edit.set_release_threshold(3);
        let too_high = "release threshold 3 is too high: the vault has 2 publishers";
        assert_eq!(text(&edit), too_high);
        for number in 3..=32 {
            edit.add_publisher(entry(number)).unwrap();
        }
        edit.set_release_threshold(5);
        let too_high = "release threshold 5 is too high: vault allows 1 to 4";
        assert_eq!(text(&edit), too_high);
        edit.add_publisher(entry(33)).unwrap();
        let too_many = "the vault already has 32 publishers, and can have no more";
        assert_eq!(text(&edit), too_many);
        let chain = first(1);
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.add_publisher(entry(2)).unwrap();
        edit.set_release_threshold(2);
        let shared = "release threshold 2 is too high: the vault has no recovery key";
        assert_eq!(text(&edit), shared);
    }

    #[test]
    fn the_last_versions_are_kept_for_emergencies() {
        let mut chain = first(1);
        loop {
            match RootEdit::begin_after(&chain, NOW).sign(&[&key(1)]) {
                Ok(longer) => chain = longer,
                Err(RootWriteError::Reserved) => break,
                Err(other) => panic!("{other}"),
            }
        }
        let budget = RootBudget::used_by(&chain);
        assert!(budget.is_nearly_used() && budget.leaves_reserve());
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.replace(&key(1).public(), entry(2)).unwrap();
        let revoked = edit.revoke(&key(1).public()).sign(&[&key(1), &key(2)]);
        assert!(!RootBudget::used_by(&revoked.unwrap()).leaves_reserve());
    }

    #[test]
    fn an_unnamed_recovery_key_is_not_called_a_publisher() {
        let chain = first(1);
        let mut edit = RootEdit::begin_after(&chain, NOW);
        edit.add_root_key(entry(9)).unwrap();
        edit.remove_root_key(&key(1).public()).unwrap();
        let document = edit.to_document().unwrap();
        let shown = document.shown_name(&key(9).public()).unwrap();
        assert_eq!(shown.as_str(), "recovery key");
        let publisher = entry(1);
        let shown = document.shown_name(&publisher.public_key);
        assert_eq!(shown, Some(publisher.name));
        assert_eq!(document.shown_name(&key(5).public()), None);
    }

    #[test]
    fn a_healed_chain_replaces_a_fork() {
        let base = first(1);
        let mut fork = base.clone();
        for number in [2, 3] {
            let mut edit = RootEdit::begin_after(&fork, NOW);
            edit.add_publisher(entry(number)).unwrap();
            fork = edit.sign(&[&key(1)]).unwrap();
        }
        let mut edit = RootEdit::begin_after(&fork, NOW);
        let fork = edit.revoke(&key(3).public()).sign(&[&key(1)]).unwrap();
        let reader = RootState::new(fork, BTreeSet::new());
        let own = RootEdit::begin_after(&base, NOW.plus_seconds(1))
            .sign(&[&key(1)])
            .unwrap();
        for (above, word) in [(2, Err("root_forked")), (3, Err("root_forked")), (4, Ok(5))] {
            let healed = heal_fork(&own, above, NOW, &[&key(1)]).unwrap();
            let judged = judge_roots(Some(&reader), &healed.to_list(), None);
            let result = judged.as_ref().map(|judged| judged.state.chain().version());
            assert_eq!(result.map_err(RootError::error_code), word);
            if let Ok(judged) = judged {
                assert!(judged.state.is_revoked(&key(3).public()));
                assert!(!judged.state.chain().revokes(&key(3).public()));
            }
        }
    }
}
