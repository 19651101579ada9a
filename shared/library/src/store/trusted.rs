//! Trust in signatures: which signers are accepted on which bundles.

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

/// The vault that a skill must belong to, and the signers that are accepted on its bundles.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    pub(crate) vault_id: VaultId,
    /// The known root versions of the vault. Without them no signature is accepted.
    roots: Option<Arc<RootState>>,
    bundles: TrustedBundles,
}

/// The bundles on which signatures are accepted.
#[derive(Clone, Debug)]
enum TrustedBundles {
    /// The own library: every bundle that a publisher signed, and the bundles that were taken over
    /// from a retired publisher.
    Own {
        taken_over: Arc<BTreeSet<Digest>>,
        /// Bundles that a revoked key signed and that the owner signs again with the next release.
        sign_again: Arc<BTreeSet<Digest>>,
        /// The skills that this machine installed; empty if versions do not matter.
        skills: Arc<OwnSkills>,
        /// Whether the bundles are variants of skills. A variant has the version of the skill that
        /// it was rendered from, and may be used after that version was replaced.
        variants: bool,
    },
    /// The bundles of a list that this machine made from accepted catalogs, signed by any key that
    /// is not revoked.
    Listed(Arc<BTreeSet<Digest>>),
    /// Every bundle by a key that was ever a publisher's and is not revoked. For content that must
    /// pass the gate and be signed again before it is used.
    Earlier,
}

impl Trusted {
    /// Returns the trust for the own library of a vault, whatever its versions.
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

    /// Returns the trust for the own library with the skills that this machine installed: older
    /// versions of them are rejected.
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

    /// Returns the same trust for variants of the own skills, which are then accepted in place of
    /// the skills.
    pub(crate) fn on_variants(&self) -> Self {
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

    /// Returns whether a variant is accepted in place of a skill.
    pub(crate) fn allows_variants(&self) -> bool {
        match &self.bundles {
            TrustedBundles::Own { variants, .. } => *variants,
            // A list names each bundle by hash, variants for agents included.
            TrustedBundles::Listed(_) | TrustedBundles::Earlier => true,
        }
    }

    /// The lowest acceptable version of an installed skill of this name.
    pub(crate) fn lowest_version(&self, name: &SkillName) -> Option<u64> {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.lowest_version(name),
            _ => None,
        }
    }

    /// The highest version that a name has reached in the own library; 0 if it was never used.
    pub(crate) fn reached_version(&self, name: &SkillName) -> u64 {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.reached_version(name),
            _ => 0,
        }
    }

    /// The local source of an own skill, if it is recorded.
    pub(crate) fn local_source(&self, name: &SkillName) -> Option<&LocalSource> {
        match &self.bundles {
            TrustedBundles::Own { skills, .. } => skills.local_source(name),
            _ => None,
        }
    }

    /// Returns the trust for the bundles of a list.
    pub(crate) fn for_listed(roots: Arc<RootState>, listed: BTreeSet<Digest>) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(roots),
            bundles: TrustedBundles::Listed(Arc::new(listed)),
        }
    }

    /// Returns the trust for earlier content of a vault, by any key that was ever its publisher's.
    pub(crate) fn for_earlier(roots: RootState) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(Arc::new(roots)),
            bundles: TrustedBundles::Earlier,
        }
    }

    /// Returns the trust for a vault whose keys this machine does not know: it accepts nothing.
    pub(crate) fn for_unknown_keys(vault_id: VaultId) -> Self {
        Self {
            vault_id,
            roots: None,
            bundles: TrustedBundles::Earlier,
        }
    }

    /// The known root versions of the vault.
    pub(crate) fn roots(&self) -> Option<&Arc<RootState>> {
        self.roots.as_ref()
    }

    /// Returns whether this machine knows the vault's keys.
    pub(crate) fn is_known(&self) -> bool {
        self.roots.is_some()
    }

    /// Returns whether this trust was made from a list that contains the bundle.
    pub(crate) fn lists_bundle(&self, bundle: &Digest) -> bool {
        matches!(&self.bundles, TrustedBundles::Listed(listed) if listed.contains(bundle))
    }

    /// Returns the trust for verifying this bundle's manifest.
    pub(crate) fn manifest_trust(&self, bundle: &Digest) -> Result<ManifestTrust<'_>, Damage> {
        let state = self
            .roots
            .as_deref()
            .ok_or(Damage::Untrusted(self.vault_id))?;
        let place = self.skill_place(bundle).ok_or(Damage::NotListed(*bundle))?;
        Ok(ManifestTrust { state, place })
    }

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

    /// Returns whether this signer's bundles are accepted by their listed hash only, so that the
    /// bytes must be compared with that hash. In the own library, a publisher's signature is
    /// accepted on any bundle.
    pub(super) fn counts_by_hash(&self, signer: &PublicKey) -> bool {
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
    /// The trust for this vault's own skills. It accepts nothing if this machine has no trust
    /// folder for the vault.
    pub(crate) fn trusted(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(self.own_skills()?)
    }

    /// Like [`Self::trusted`], with the record of own skills that was read before.
    pub(crate) fn trusted_with(&self, skills: OwnSkills) -> Result<Trusted, VaultError> {
        Ok(match self.trust()? {
            Some(trust) => Trusted::for_installed(trust, skills),
            None => Trusted::for_unknown_keys(*self.id()),
        })
    }

    /// Like [`Self::trusted`], for a bundle that was installed when it was listed and may have been
    /// replaced since.
    pub(crate) fn trusted_as_listed(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(OwnSkills::default())
    }

    /// The trust for earlier content of this vault.
    pub(crate) fn ever_trusted(&self) -> Result<Trusted, VaultError> {
        let trust = self.trust()?;
        Ok(trust.map_or_else(
            || Trusted::for_unknown_keys(*self.id()),
            |trust| Trusted::for_earlier(trust.roots),
        ))
    }
}
