//! Decides which signers are accepted on which bundles, for every reader of the store.
//!
//! A [`Trusted`] answers three questions about a bundle of one vault: may it be used at all, whose
//! signature counts on it, and which versions of a skill are too old. A vault's keys come from its
//! root versions, signed lists of its keys; a key there may publish, be retired, or be revoked.

use std::collections::BTreeSet;
use std::sync::Arc;

use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::manifest::ManifestTrust;
use vault_format::name::SkillName;
use vault_format::root::{KeyStanding, RootState, SkillPlace, VaultId};

use super::Damage;
use crate::vault::own_skills::{LocalSource, OwnSkills};
use crate::vault::trust::VaultTrust;
use crate::vault::{Vault, VaultError};

/// The vault to which bundles must belong, the keys that it has, and the rule for its bundles.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    pub(crate) vault_id: VaultId,
    /// Known root versions of the vault. Without them no signature is accepted, whatever the rule.
    roots: Option<Arc<RootState>>,
    bundles: TrustedBundles,
}

/// The rule that decides which signatures are accepted on a bundle.
#[derive(Clone, Debug)]
enum TrustedBundles {
    /// For the own skills: a signature by a current publisher on any bundle, and by a retired one
    /// on bundles that were taken over.
    Own {
        /// Bundles that stay valid although the publisher that signed them was retired.
        taken_over: Arc<BTreeSet<Digest>>,
        /// Bundles that a revoked key signed. They are rejected until the owner signs the skills
        /// again.
        sign_again: Arc<BTreeSet<Digest>>,
        /// Versions that this machine installed, below which no bundle is accepted. Empty if
        /// versions do not matter.
        skills: Arc<OwnSkills>,
        /// Whether the bundles are variants of skills. A variant has the version of the skill that
        /// it was rendered from, and may be used after that version was replaced.
        variants: bool,
    },
    /// For linked skills and the like: bundles of a list that this machine made from accepted
    /// catalogs, signed by any key that was a publisher and is not revoked.
    Listed(Arc<BTreeSet<Digest>>),
    /// For content that passes the gate and is signed again before it is used: any bundle, by any
    /// key that was a publisher and is not revoked.
    Earlier,
}

impl Trusted {
    /// Returns the trust for the own skills of a vault, in any version.
    pub(crate) fn for_own(trust: VaultTrust) -> Self {
        Self {
            vault_id: trust.roots.vault_id(),
            bundles: TrustedBundles::Own {
                taken_over: Arc::new(trust.taken_over),
                sign_again: Arc::new(trust.sign_again),
                skills: Arc::default(),
                variants: false,
            },
            roots: Some(Arc::new(trust.roots)),
        }
    }

    /// Returns the trust for the own skills of a vault. Versions older than the installed ones are
    /// rejected.
    pub(crate) fn for_installed(trust: VaultTrust, skills: OwnSkills) -> Self {
        let mut trusted = Self::for_own(trust);
        if let TrustedBundles::Own {
            skills: skills_slot,
            ..
        } = &mut trusted.bundles
        {
            *skills_slot = Arc::new(skills);
        }
        trusted
    }

    /// Returns this trust for variants of the own skills. It accepts variants in any version.
    pub(crate) fn for_variants(&self) -> Self {
        let mut trusted = self.clone();
        if let TrustedBundles::Own {
            skills, variants, ..
        } = &mut trusted.bundles
        {
            // A variant has the version of the skill that it was rendered from, which may be older.
            *skills = Arc::default();
            *variants = true;
        }
        trusted
    }

    /// Returns whether a variant may stand where a skill is expected.
    pub(crate) fn allows_variants(&self) -> bool {
        match &self.bundles {
            TrustedBundles::Own { variants, .. } => *variants,
            // A list names each bundle by its hash, variants included. Earlier content is checked
            // again.
            TrustedBundles::Listed(_) | TrustedBundles::Earlier => true,
        }
    }

    /// Returns the lowest version of an own skill that is accepted; `None` if every version is. It
    /// lies above the highest recorded version if the skill was removed.
    pub(crate) fn lowest_accepted_version(&self, name: &SkillName) -> Option<u64> {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.lowest_accepted_version(name),
            _ => None,
        }
    }

    /// Returns the highest version that this machine has recorded for a name, installed or not; 0
    /// if none. The next version to sign must be higher.
    pub(crate) fn highest_recorded_version(&self, name: &SkillName) -> u64 {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.highest_recorded_version(name),
            _ => 0,
        }
    }

    /// Returns the folder or archive of this machine that an own skill was added from, if it is
    /// recorded.
    pub(crate) fn local_source(&self, name: &SkillName) -> Option<&LocalSource> {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.local_source(name),
            _ => None,
        }
    }

    /// Returns the trust in exactly the bundles of a list.
    pub(crate) fn for_listed(roots: Arc<RootState>, listed: BTreeSet<Digest>) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(roots),
            bundles: TrustedBundles::Listed(Arc::new(listed)),
        }
    }

    /// Returns the trust for earlier content of a vault, which the caller must check and sign again
    /// before it is used.
    pub(crate) fn for_earlier(roots: RootState) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(Arc::new(roots)),
            bundles: TrustedBundles::Earlier,
        }
    }

    /// Returns the trust for a vault whose keys this machine does not know. Without root versions
    /// it accepts nothing.
    pub(crate) fn for_unknown_keys(vault_id: VaultId) -> Self {
        Self {
            vault_id,
            roots: None,
            bundles: TrustedBundles::Earlier,
        }
    }

    /// Returns the known root versions of the vault; `None` if this machine does not know its keys.
    pub(crate) fn roots(&self) -> Option<&Arc<RootState>> {
        self.roots.as_ref()
    }

    /// Returns whether this machine knows the vault's keys.
    pub(crate) fn is_known(&self) -> bool {
        self.roots.is_some()
    }

    /// Returns whether the rule is a list that contains the bundle.
    pub(crate) fn lists_bundle(&self, bundle: &Digest) -> bool {
        matches!(&self.bundles, TrustedBundles::Listed(listed) if listed.contains(bundle))
    }

    /// Returns the trust with which the manifest of a bundle is verified. Fails if the bundle can't
    /// be accepted, whoever signed it.
    pub(crate) fn manifest_trust(&self, bundle: &Digest) -> Result<ManifestTrust<'_>, Damage> {
        let state = self
            .roots
            .as_deref()
            .ok_or(Damage::Untrusted(self.vault_id))?;
        let place = self.skill_place(bundle).ok_or(Damage::NotListed(*bundle))?;
        Ok(ManifestTrust { state, place })
    }

    /// Returns the rule for the bundle in terms of the manifest format; `None` if the bundle is not
    /// in the list. [`SkillPlace::SignAgain`] rejects the revoked signer, but accepts a new
    /// signature.
    fn skill_place(&self, bundle: &Digest) -> Option<SkillPlace> {
        match &self.bundles {
            // Check this case first: a bundle by a revoked key must not be accepted because it was
            // taken over before.
            TrustedBundles::Own { sign_again, .. } if sign_again.contains(bundle) => {
                Some(SkillPlace::SignAgain)
            }
            TrustedBundles::Own { taken_over, .. } => Some(SkillPlace::Own {
                taken_over: taken_over.contains(bundle),
            }),
            TrustedBundles::Listed(listed) => {
                listed.contains(bundle).then_some(SkillPlace::Installed)
            }
            TrustedBundles::Earlier => Some(SkillPlace::Installed),
        }
    }

    /// Returns whether this signer's signature on the bundle is accepted.
    pub(crate) fn accepts_signer(&self, signer: &PublicKey, bundle: &Digest) -> bool {
        self.manifest_trust(bundle).is_ok_and(|trust| {
            let judged = trust.state.judge_signer(Some(signer), trust.place);
            judged.is_ok()
        })
    }

    /// Returns whether this signer's bundles are accepted only by their hash in a list, so that the
    /// bytes must be compared with that hash. A current publisher's signature on an own skill is
    /// accepted on any bundle.
    pub(super) fn requires_listed_hash(&self, signer: &PublicKey) -> bool {
        let is_publisher = || {
            let standing = self.roots.as_ref().map(|roots| roots.standing(signer));
            standing == Some(KeyStanding::Release)
        };
        match self.bundles {
            TrustedBundles::Own { .. } => !is_publisher(),
            TrustedBundles::Listed(_) => true,
            TrustedBundles::Earlier => false,
        }
    }
}

impl Vault {
    /// Returns the trust for this vault's own skills. It accepts nothing if this machine has no
    /// trust folder for the vault.
    pub(crate) fn trusted(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(self.own_skills()?)
    }

    /// Like [`Self::trusted`], with the record of own skills that the caller has read already.
    pub(crate) fn trusted_with(&self, skills: OwnSkills) -> Result<Trusted, VaultError> {
        Ok(match self.trust()? {
            Some(trust) => Trusted::for_installed(trust, skills),
            None => Trusted::for_unknown_keys(*self.id()),
        })
    }

    /// Like [`Self::trusted`], for a bundle that was installed when the caller listed it, and may
    /// have been replaced by a newer version since.
    pub(crate) fn trusted_in_any_version(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(OwnSkills::default())
    }

    /// Returns the trust for earlier content of this vault, which must be signed again before it is
    /// used.
    pub(crate) fn trusted_for_earlier(&self) -> Result<Trusted, VaultError> {
        let trust = self.trust()?;
        Ok(trust.map_or_else(
            || Trusted::for_unknown_keys(*self.id()),
            |trust| Trusted::for_earlier(trust.roots),
        ))
    }
}
