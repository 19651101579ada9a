//! Which chain counts for a reader: the one function that devices, the service, libraries and
//! archives ask.

use std::collections::BTreeSet;

use super::chain::{RootChain, RootList, ShownChain, reaches, read_after};
use super::document::{RevokedKey, RootDocument};
use super::error::{RootError, RootWarning};
use super::{VaultFingerprint, VaultId};
use crate::hash::Digest;
use crate::keys::PublicKey;

/// What a reader knows of a vault's keys: the chain that counts, and the keys that were revoked in
/// chains that it gave up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RootState {
    chain: RootChain,
    revoked: BTreeSet<RevokedKey>,
}

/// The result of [`judge`]: the state that counts from now on.
#[derive(Clone, Debug)]
pub struct JudgedRoots {
    /// The reader's state from now on.
    pub state: RootState,
    /// Whether the state is another one than before and must be stored.
    pub taken: bool,
    /// SHA-256 of the newest version that was shown.
    pub shown_newest_sha256: Digest,
    /// What a person should hear about.
    pub warnings: Vec<RootWarning>,
}

impl RootState {
    /// A state with a chain and the keys that were revoked in chains given up before.
    pub const fn new(chain: RootChain, revoked: BTreeSet<RevokedKey>) -> Self {
        Self { chain, revoked }
    }

    /// Verifies a stored state anew; fails when the list does not count, or is of another vault
    /// than was stored with it.
    pub fn load(
        root1_sha256: &Digest,
        list: &RootList,
        revoked: BTreeSet<RevokedKey>,
    ) -> Result<Self, RootError> {
        let chain = RootChain::verify(list)?;
        if chain.root1_sha256() != root1_sha256 {
            return Err(RootError::VaultChanged);
        }
        Ok(Self { chain, revoked })
    }

    /// The chain that counts.
    pub const fn chain(&self) -> &RootChain {
        &self.chain
    }

    /// The newest root document.
    pub fn document(&self) -> &RootDocument {
        self.chain.document()
    }

    /// The vault's id.
    pub fn vault_id(&self) -> VaultId {
        self.chain.vault_id()
    }

    /// The keys that were revoked in chains given up; stored beside the chain.
    pub const fn revoked_elsewhere(&self) -> &BTreeSet<RevokedKey> {
        &self.revoked
    }

    /// Whether the key counts nowhere at this reader.
    pub fn is_revoked(&self, key: &PublicKey) -> bool {
        self.chain.revokes(key) || self.revoked.contains(&key.into())
    }

    /// The keys of the release role that count at this reader.
    pub fn release_keys(&self) -> Vec<PublicKey> {
        let keys = self.document().release().keys().iter();
        keys.filter(|key| !self.is_revoked(key)).copied().collect()
    }
}

/// Decides whether a shown list of root versions replaces what a reader knows, and refuses what
/// contradicts it.
///
/// `own` is `None` for a reader who pins what it is shown. `expected` is a fingerprint that the
/// counted chain must contain. Nothing is changed: the caller stores [`JudgedRoots::state`] when it
/// was taken.
pub fn judge(
    own: Option<&RootState>,
    shown: &RootList,
    expected: Option<&VaultFingerprint>,
) -> Result<JudgedRoots, RootError> {
    let shown = read_after(own.map(RootState::chain), shown)?;
    let shown_newest_sha256 = *shown.chain.newest().payload_sha256();
    let mut warnings = Vec::new();
    let (state, taken) = match own {
        None => (RootState::new(shown.chain, BTreeSet::new()), true),
        Some(own) => compare(own, shown, &mut warnings)?,
    };
    if let Some(expected) = expected {
        warnings.extend(meets(&state.chain, expected)?);
    }
    Ok(JudgedRoots {
        state,
        taken,
        shown_newest_sha256,
        warnings,
    })
}

/// Like [`judge`], for an archive: its own list is not a reason to trust it, so a reader has a
/// state or an expectation.
pub fn judge_archive(
    own: Option<&RootState>,
    shown: &RootList,
    expected: Option<&VaultFingerprint>,
) -> Result<JudgedRoots, RootError> {
    if own.is_none() && expected.is_none() {
        return Err(RootError::ExpectKeyNeeded);
    }
    judge(own, shown, expected)
}

/// Compares a chain that is good in itself with the reader's own.
fn compare(
    own: &RootState,
    shown: ShownChain,
    warnings: &mut Vec<RootWarning>,
) -> Result<(RootState, bool), RootError> {
    let ShownChain { chain, shared } = shown;
    let (own_length, length) = (own.chain.versions().len(), chain.versions().len());
    if shared == 0 {
        return Err(RootError::VaultChanged);
    }
    if shared == length {
        return Ok((own.clone(), false));
    }
    if shared == own_length {
        return Ok((RootState::new(chain, own.revoked.clone()), true));
    }
    if length <= own_length || !settles_fork(&own.chain, &chain, shared) {
        return Err(RootError::Forked {
            version: shared as u64 + 1,
        });
    }
    warnings.push(RootWarning::HistoryDiffers);
    let mut revoked = own.revoked.clone();
    revoked.extend(own.document().revoked());
    Ok((RootState::new(chain, revoked), true))
}

/// Whether a longer chain that differs from the own one may replace it: the own newest root role
/// agrees to every version from the difference on, and no key that it revoked has come into a role
/// again.
fn settles_fork(own: &RootChain, other: &RootChain, shared: usize) -> bool {
    let role = own.document().root();
    let mut later = other.versions().iter().skip(shared);
    later.all(|version| reaches(version.envelope(), role))
        && !other
            .document()
            .keys()
            .iter()
            .any(|entry| own.revokes(&entry.public_key))
}

/// Whether the chain has the expected version, and what has changed since.
fn meets(chain: &RootChain, expected: &VaultFingerprint) -> Result<Option<RootWarning>, RootError> {
    let version = chain
        .version_of(expected)
        .ok_or(RootError::NotExpected(*expected))?;
    // The fingerprint of the chain names the last change of the root role.
    let changed = chain.fingerprint().version() > version.document().version();
    Ok(changed.then_some(RootWarning::RoleChanged))
}
