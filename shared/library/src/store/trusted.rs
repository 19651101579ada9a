//! Whose signatures count on which bundles.

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

/// The vault that a skill must belong to, and whose signatures count on its bundles.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    pub(crate) vault_id: VaultId,
    /// What is known of the vault's keys. Without it no signature counts.
    roots: Option<Arc<RootState>>,
    bundles: Bundles,
}

/// The bundles on which signatures count.
#[derive(Clone, Debug)]
enum Bundles {
    /// The own library: every bundle by a publisher, and those that were taken over from a retired
    /// one.
    Own {
        taken_over: Arc<BTreeSet<Digest>>,
        /// What a revoked key signed and the owner signs again with the next release.
        sign_again: Arc<BTreeSet<Digest>>,
        /// What this machine installed; empty where that does not matter.
        skills: Arc<OwnSkills>,
        /// Whether the bundles are variants of skills. A variant is no skill of its own: it keeps
        /// the version of the skill that it was rendered from, and outlives it.
        variants: bool,
    },
    /// Bundles on a list that this machine made from counted catalogs, by a key that is not
    /// revoked.
    Listed(Arc<BTreeSet<Digest>>),
    /// Every bundle by a key that was a publisher's and is not revoked. For content that is not
    /// used before it passes the gate and is signed again.
    Earlier,
}

impl Trusted {
    /// The own library of a vault.
    pub(crate) fn own(trust: VaultTrust) -> Self {
        Self {
            vault_id: trust.roots.vault_id(),
            bundles: Bundles::Own {
                taken_over: Arc::new(trust.taken_over),
                sign_again: Arc::new(trust.sign_again),
                skills: Arc::default(),
                variants: false,
            },
            roots: Some(Arc::new(trust.roots)),
        }
    }

    /// The own library with the skills that this machine installed: an older version counts no
    /// more.
    pub(crate) fn installed(trust: VaultTrust, skills: OwnSkills) -> Self {
        let mut trusted = Self::own(trust);
        if let Bundles::Own { skills: none, .. } = &mut trusted.bundles {
            *none = Arc::new(skills);
        }
        trusted
    }

    /// The same signatures, on variants of the own skills in place of the skills.
    pub(crate) fn on_variants(&self) -> Self {
        let mut trusted = self.clone();
        if let Bundles::Own {
            skills, variants, ..
        } = &mut trusted.bundles
        {
            // A variant has the version of the skill that it was rendered from, which may be older.
            *skills = Arc::default();
            *variants = true;
        }
        trusted
    }

    /// Whether a variant may stand here, in place of a skill.
    pub(crate) fn allows_variants(&self) -> bool {
        match &self.bundles {
            Bundles::Own { variants, .. } => *variants,
            Bundles::Listed(_) | Bundles::Earlier => true,
        }
    }

    /// The version that an installed skill of this name must have at least.
    pub(crate) fn lowest(&self, name: &SkillName) -> Option<u64> {
        match &self.bundles {
            Bundles::Own { skills, .. } => skills.lowest(name),
            _ => None,
        }
    }

    /// The highest version that a name has reached in the own library; 0 if it was never used.
    pub(crate) fn reached(&self, name: &SkillName) -> u64 {
        match &self.bundles {
            Bundles::Own { skills, .. } => skills.reached(name),
            _ => 0,
        }
    }

    /// Where an own skill was added from on this machine, if that is known.
    pub(crate) fn local(&self, name: &SkillName) -> Option<&LocalSource> {
        match &self.bundles {
            Bundles::Own { skills, .. } => skills.local(name),
            _ => None,
        }
    }

    /// The bundles of a list.
    pub(crate) fn listed(roots: Arc<RootState>, listed: BTreeSet<Digest>) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(roots),
            bundles: Bundles::Listed(Arc::new(listed)),
        }
    }

    /// Earlier content of a vault.
    pub(crate) fn earlier(roots: RootState) -> Self {
        Self {
            vault_id: roots.vault_id(),
            roots: Some(Arc::new(roots)),
            bundles: Bundles::Earlier,
        }
    }

    /// A vault whose keys are unknown to this machine.
    pub(crate) fn nothing(vault_id: VaultId) -> Self {
        Self {
            vault_id,
            roots: None,
            bundles: Bundles::Earlier,
        }
    }

    /// What is known of the vault's keys.
    pub(crate) fn roots(&self) -> Option<&Arc<RootState>> {
        self.roots.as_ref()
    }

    /// Whether anything is known of the vault's keys.
    pub(crate) fn is_known(&self) -> bool {
        self.roots.is_some()
    }

    /// Whether the bundle is on the list that this was made for.
    pub(crate) fn lists(&self, bundle: &Digest) -> bool {
        matches!(&self.bundles, Bundles::Listed(listed) if listed.contains(bundle))
    }

    /// What the reader of this bundle's manifest goes by.
    pub(crate) fn of_bundle(&self, bundle: &Digest) -> Result<ManifestTrust<'_>, Damage> {
        let state = self
            .roots
            .as_deref()
            .ok_or(Damage::Untrusted(self.vault_id))?;
        let place = self.place(bundle).ok_or(Damage::NotListed(*bundle))?;
        Ok(ManifestTrust { state, place })
    }

    fn place(&self, bundle: &Digest) -> Option<SkillPlace> {
        match &self.bundles {
            Bundles::Own { sign_again, .. } if sign_again.contains(bundle) => {
                Some(SkillPlace::SignAgain)
            }
            Bundles::Own { taken_over, .. } => Some(SkillPlace::Own {
                taken_over: taken_over.contains(bundle),
            }),
            Bundles::Listed(listed) => listed.contains(bundle).then_some(SkillPlace::Installed),
            Bundles::Earlier => Some(SkillPlace::Installed),
        }
    }

    /// Whether a bundle by this signer counts.
    pub(crate) fn counts(&self, signer: &PublicKey, bundle: &Digest) -> bool {
        self.of_bundle(bundle).is_ok_and(|trust| {
            let judged = trust.state.judge_signer(Some(signer), trust.place);
            judged.is_ok()
        })
    }

    /// Whether a bundle by this signer counts for its hash alone, so that its bytes must have it. A
    /// publisher's signature counts on any bundle of the own library.
    pub(super) fn counts_by_hash(&self, signer: &PublicKey) -> bool {
        let is_publisher = || {
            let standing = self.roots.as_ref().map(|roots| roots.standing(signer));
            standing == Some(KeyStanding::Release)
        };
        match self.bundles {
            Bundles::Own { .. } => !is_publisher(),
            Bundles::Listed(_) => true,
            Bundles::Earlier => false,
        }
    }
}

impl Vault {
    /// Whose signatures count on this vault's own skills: nobody's where this machine has no trust
    /// folder for it.
    pub(crate) fn trusted(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(self.own_skills()?)
    }

    /// Like [`Self::trusted`], with the record of own skills that was read before.
    pub(crate) fn trusted_with(&self, skills: OwnSkills) -> Result<Trusted, VaultError> {
        Ok(match self.trust()? {
            Some(trust) => Trusted::installed(trust, skills),
            None => Trusted::nothing(*self.id()),
        })
    }

    /// Like [`Self::trusted`], for a bundle that was the installed one when it was listed.
    pub(crate) fn trusted_as_listed(&self) -> Result<Trusted, VaultError> {
        self.trusted_with(OwnSkills::default())
    }

    /// Whose signatures count on earlier content of this vault.
    pub(crate) fn ever_trusted(&self) -> Result<Trusted, VaultError> {
        let trust = self.trust()?;
        Ok(trust.map_or_else(
            || Trusted::nothing(*self.id()),
            |trust| Trusted::earlier(trust.roots),
        ))
    }
}
