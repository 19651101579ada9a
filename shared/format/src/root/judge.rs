//! Decides which chain of root versions (signed lists of a vault's keys) a reader accepts: one
//! function for devices, the service, libraries and archives.

use std::collections::BTreeSet;

use super::chain::{RootChain, RootList, ShownChain, reaches_threshold, read_after};
use super::document::{RevokedKey, RootDocument};
use super::error::{RootError, RootWarning};
use super::{VaultFingerprint, VaultId};
use crate::hash::Digest;
use crate::keys::PublicKey;

/// What a reader has accepted about a vault's keys: the chain of root versions, and the keys that
/// were revoked in forks which the chain has replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RootState {
    chain: RootChain,
    revoked: BTreeSet<RevokedKey>,
}

/// The result of [`judge_roots`].
#[derive(Clone, Debug)]
pub struct JudgedRoots {
    /// The state that the reader uses from now on.
    pub state: RootState,
    /// Whether the state differs from the reader's and must be stored.
    pub taken: bool,
    /// SHA-256 of the payload of the newest version in the list.
    pub shown_newest_sha256: Digest,
    /// Warnings for the user.
    pub warnings: Vec<RootWarning>,
}

impl RootState {
    /// Creates a state from a verified chain and the keys that were revoked in replaced forks.
    pub const fn new(chain: RootChain, revoked: BTreeSet<RevokedKey>) -> Self {
        Self { chain, revoked }
    }

    /// Reads a state from a store and verifies it again. Fails if the list is not a valid chain, or
    /// does not begin with the version 1 that was recorded.
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

    /// The accepted chain of root versions.
    pub const fn chain(&self) -> &RootChain {
        &self.chain
    }

    /// The newest root document, whose keys and roles are in force.
    pub fn document(&self) -> &RootDocument {
        self.chain.document()
    }

    /// The vault's id.
    pub fn vault_id(&self) -> VaultId {
        self.chain.vault_id()
    }

    /// The keys that were revoked in replaced forks. The caller stores them beside the chain.
    pub const fn revoked_elsewhere(&self) -> &BTreeSet<RevokedKey> {
        &self.revoked
    }

    /// Tells whether this reader rejects every signature of the key.
    pub fn is_revoked(&self, key: &PublicKey) -> bool {
        self.chain.revokes(key) || self.revoked.contains(&key.into())
    }

    /// The keys of the release role, without those that this reader holds revoked.
    pub fn release_keys(&self) -> Vec<PublicKey> {
        let keys = self.document().release().keys().iter();
        keys.filter(|key| !self.is_revoked(key)).copied().collect()
    }
}

/// Decides whether a list of root versions from a host replaces the reader's state, and rejects a
/// list that contradicts it.
///
/// `own` is `None` for a reader that has no state of this vault yet and accepts the list as it is.
/// `expected` is a fingerprint that the resulting chain must contain. The function stores nothing:
/// the caller stores [`JudgedRoots::state`] if [`JudgedRoots::taken`] is set.
pub fn judge_roots(
    own: Option<&RootState>,
    shown: &RootList,
    expected: Option<&VaultFingerprint>,
) -> Result<JudgedRoots, RootError> {
    let shown = read_after(own.map(RootState::chain), shown)?;
    let shown_newest_sha256 = *shown.chain.newest().payload_sha256();
    let mut warnings = Vec::new();
    let (state, taken) = match own {
        None => (RootState::new(shown.chain, BTreeSet::new()), true),
        Some(own) => compare_chains(own, shown, &mut warnings)?,
    };
    if let Some(expected) = expected {
        warnings.extend(check_expected(&state.chain, expected)?);
    }
    Ok(JudgedRoots {
        state,
        taken,
        shown_newest_sha256,
        warnings,
    })
}

/// Like [`judge_roots`], for an archive, which anybody could have made: the reader needs a state of
/// the vault or an expected fingerprint.
pub fn judge_archive(
    own: Option<&RootState>,
    shown: &RootList,
    expected: Option<&VaultFingerprint>,
) -> Result<JudgedRoots, RootError> {
    if own.is_none() && expected.is_none() {
        return Err(RootError::ExpectKeyNeeded);
    }
    judge_roots(own, shown, expected)
}

/// Compares a verified chain from a host with the reader's own.
fn compare_chains(
    own: &RootState,
    shown: ShownChain,
    warnings: &mut Vec<RootWarning>,
) -> Result<(RootState, bool), RootError> {
    let ShownChain { chain, shared } = shown;
    let (own_length, length) = (own.chain.versions().len(), chain.versions().len());
    if shared == 0 {
        return Err(RootError::VaultChanged);
    }
    // A beginning of the own chain, or the same one, changes nothing: a host cannot shorten what
    // the reader has.
    if shared == length {
        return Ok((own.clone(), false));
    }
    if shared == own_length {
        return Ok((RootState::new(chain, own.revoked.clone()), true));
    }
    // Only a strictly longer chain may replace this one, so that readers of two forks end on the
    // same chain and none goes back.
    if length <= own_length || !settles_fork(&own.chain, &chain, shared) {
        return Err(RootError::Forked {
            version: shared as u64 + 1,
        });
    }
    warnings.push(RootWarning::HistoryDiffers);
    let mut revoked = own.revoked.clone();
    // A thief with an old root key must not be able to undo a revocation by a fork.
    revoked.extend(own.document().revoked());
    Ok((RootState::new(chain, revoked), true))
}

/// Tells whether a longer chain that differs from the own one may replace it: the newest root role
/// of the own chain must have signed every version from the difference on, and no key that it
/// revoked may be in a role again.
fn settles_fork(own: &RootChain, other: &RootChain, shared: usize) -> bool {
    let role = own.document().root();
    let mut later = other.versions().iter().skip(shared);
    later.all(|version| reaches_threshold(version.envelope(), role))
        && !other
            .document()
            .keys()
            .iter()
            .any(|entry| own.revokes(&entry.public_key))
}

/// Checks that the chain has the version with the expected fingerprint. Returns a warning if the
/// root role has changed since that version.
fn check_expected(
    chain: &RootChain,
    expected: &VaultFingerprint,
) -> Result<Option<RootWarning>, RootError> {
    let version = chain
        .version_of(expected)
        .ok_or(RootError::NotExpected(*expected))?;
    // The chain's own fingerprint names the version that last changed the root role.
    let changed = chain.fingerprint().version() > version.document().version();
    Ok(changed.then_some(RootWarning::RoleChanged))
}
