//! The standing of a key: whether a reader still accepts signatures by it, and on which skills.

use super::RootState;
use crate::keys::PublicKey;

/// What a key of a vault may do, by the reader's state of the vault's keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyStanding {
    /// The key is in the release role: it may publish.
    Release,
    /// The key is only in the root role: it may change the keys, not publish.
    RootOnly,
    /// The key was in the release role, is in no role now and is not revoked.
    Retired,
    /// The key was revoked, in the reader's chain of root versions or in an abandoned fork of it.
    Revoked,
    /// The key was never in the release role, and is in no role now.
    Unknown,
}

/// How a reader came by a skill. It decides which signers the reader accepts: a former publisher's
/// signature is good enough where a verified catalog lists the skill, and not elsewhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SkillPlace {
    /// A catalog that passes all other checks lists the bundle, or one of its profiles does.
    Listed,
    /// An accepted catalog listed the skill when it was installed; it is about to be used.
    Installed,
    /// The owner's own library.
    Own {
        /// Whether the bundle's hash was recorded as taken over when its signer was retired.
        taken_over: bool,
    },
    /// The owner's own library, for a skill that the owner must sign anew because its signer's key
    /// was revoked. Only a signature by a current publisher is accepted.
    SignAgain,
    /// An archive. If a release needs several publishers, the one signature of a manifest is not
    /// enough.
    Archive {
        /// Whether an accepted catalog lists the bundle, including one that came with the archive.
        listed: bool,
    },
}

/// The reason why a reader does not accept the signer of a manifest.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignerRefusal {
    /// A catalog lists a bundle by a key that is revoked, unknown, or was never in the release
    /// role.
    #[error("the catalog lists a skill signed by a key that is not a publisher's")]
    Catalog,
    /// The signature is not by a key that is accepted in this place.
    #[error("the manifest is not signed by a publisher of this vault")]
    Signature,
    /// The signer is retired, and no release or list of taken-over bundles confirms this bundle.
    #[error("the signer of the skill is no longer a publisher of this vault")]
    Retired,
    /// The signer was revoked after the skill was installed; the owner's next release must replace
    /// it.
    #[error(
        "the key that signed the skill is revoked; its owner has not published a release since"
    )]
    ReleaseAwaited,
    /// A release of the vault needs several publishers, and no accepted release lists the bundle.
    #[error(
        "one publisher has signed the skill, but no release that enough publishers of its vault \
         signed lists it"
    )]
    NotReleased,
}

impl SignerRefusal {
    /// The machine-readable code of the error.
    pub const fn error_code(self) -> &'static str {
        match self {
            Self::Catalog => "catalog_signer",
            Self::Signature => "manifest_signature",
            Self::Retired => "signer_retired",
            Self::ReleaseAwaited | Self::NotReleased => "release_awaited",
        }
    }
}

impl RootState {
    /// Returns which role the key has or had, or that this reader holds it revoked.
    pub fn standing(&self, key: &PublicKey) -> KeyStanding {
        let document = self.document();
        // Check this first: a key that was revoked in an abandoned chain may still have a role in
        // the current one.
        if self.is_revoked(key) {
            KeyStanding::Revoked
        } else if document.release().contains(key) {
            KeyStanding::Release
        } else if document.root().contains(key) {
            KeyStanding::RootOnly
        } else if self.chain().ever_released(key) {
            KeyStanding::Retired
        } else {
            KeyStanding::Unknown
        }
    }

    /// Tells whether the key was in the release role in some version and is not revoked.
    pub fn was_publisher(&self, key: &PublicKey) -> bool {
        self.chain().ever_released(key) && !self.is_revoked(key)
    }

    /// Tells whether a release with these signers is void because one of them is revoked or
    /// unknown. Readers then ignore its number, its previous release and its withdrawals, and the
    /// service serves no content from it.
    pub fn voids_release(&self, signers: &[PublicKey]) -> bool {
        !signers.iter().all(|key| self.was_publisher(key))
    }

    /// Decides whether a skill by this signer is accepted in this place. `None` stands for a
    /// signature by no key of the chain.
    pub fn judge_signer(
        &self,
        signer: Option<&PublicKey>,
        place: SkillPlace,
    ) -> Result<(), SignerRefusal> {
        let standing = signer.map_or(KeyStanding::Unknown, |key| self.standing(key));
        let was_publisher = signer.is_some_and(|key| self.was_publisher(key));
        match place {
            // The accepted release confirms the bundle, so a publisher that has left is still
            // accepted.
            SkillPlace::Listed | SkillPlace::Installed if was_publisher => Ok(()),
            SkillPlace::Listed => Err(SignerRefusal::Catalog),
            SkillPlace::Installed => Err(SignerRefusal::ReleaseAwaited),
            SkillPlace::SignAgain => match standing {
                KeyStanding::Release => Ok(()),
                KeyStanding::Revoked => Err(SignerRefusal::ReleaseAwaited),
                KeyStanding::Retired => Err(SignerRefusal::Retired),
                KeyStanding::RootOnly | KeyStanding::Unknown => Err(SignerRefusal::Signature),
            },
            SkillPlace::Own { taken_over: known } | SkillPlace::Archive { listed: known } => {
                // A manifest has one signature. In a vault with several required publishers only a
                // catalog proves that the others agreed.
                let needs_release = matches!(place, SkillPlace::Archive { .. })
                    && self.document().release().threshold() > 1;
                match standing {
                    KeyStanding::Release if needs_release && !known => {
                        Err(SignerRefusal::NotReleased)
                    }
                    KeyStanding::Release => Ok(()),
                    KeyStanding::Retired if known => Ok(()),
                    KeyStanding::Retired => Err(SignerRefusal::Retired),
                    KeyStanding::RootOnly | KeyStanding::Revoked | KeyStanding::Unknown => {
                        Err(SignerRefusal::Signature)
                    }
                }
            }
        }
    }
}
