//! The standing of a key for a reader, and whether the skills that it signed count.

use super::RootState;
use crate::keys::PublicKey;

/// The standing of a key for a reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyStanding {
    /// It is in the release role.
    Release,
    /// It is in the root role alone.
    RootOnly,
    /// It was in the release role, is in no role now and is not revoked.
    Retired,
    /// It was revoked, in the chain that counts or in an abandoned one.
    Revoked,
    /// It was never in the release role, and is in no role now.
    Unknown,
}

/// The place in which a reader found a skill. The same signer counts in one place and not in
/// another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SkillPlace {
    /// A catalog that otherwise counts lists the bundle, or a profile that it names does.
    Listed,
    /// A counted catalog listed it at installation; it is about to be used.
    Installed,
    /// The owner's own library.
    Own {
        /// Whether the bundle hash is on the list of bundles that were taken over when the signer
        /// was retired.
        taken_over: bool,
    },
    /// The owner's own library, for a skill that the owner has to sign again because a revoked key
    /// signed it. Only a signature by a current publisher counts.
    SignAgain,
    /// An archive. If releases need several publishers, the signature of one is not enough.
    Archive {
        /// Whether a catalog that counts for this reader lists the bundle, including one that came
        /// with the archive.
        listed: bool,
    },
}

/// A reason why the signer of a manifest does not count.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignerRefusal {
    /// A catalog lists a bundle by a key that is revoked, unknown, or was never in the release
    /// role.
    #[error("the catalog lists a skill signed by a key that is not a publisher's")]
    Catalog,
    /// The signature is not by a key that counts here.
    #[error("the manifest is not signed by a publisher of this vault")]
    Signature,
    /// The signer is retired, and nothing confirms this bundle.
    #[error("the signer of the skill is no longer a publisher of this vault")]
    Retired,
    /// The signer was revoked after the skill was installed, and the next release is awaited.
    #[error(
        "the key that signed the skill is revoked; its owner has not published a release since"
    )]
    ReleaseAwaited,
    /// Releases of the vault need several publishers, and no release that counts lists the bundle.
    #[error(
        "one publisher has signed the skill, but no release that enough publishers of its vault \
         signed lists it"
    )]
    NotReleased,
}

impl SignerRefusal {
    /// The machine-readable code.
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
    /// Returns the standing of the key for this reader.
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

    /// Whether the key was a publisher's in some version and is not revoked.
    pub fn was_publisher(&self, key: &PublicKey) -> bool {
        self.chain().ever_released(key) && !self.is_revoked(key)
    }

    /// Whether a release with these signers is void: one of them is revoked or unknown. Its number,
    /// its previous release and its withdrawals are no longer compared, and the service serves no
    /// content from it.
    pub fn voids_release(&self, signers: &[PublicKey]) -> bool {
        !signers.iter().all(|key| self.was_publisher(key))
    }

    /// Checks whether a skill by this signer counts in this place. `None` is a signature by no key
    /// of the chain.
    pub fn judge_signer(
        &self,
        signer: Option<&PublicKey>,
        place: SkillPlace,
    ) -> Result<(), SignerRefusal> {
        let standing = signer.map_or(KeyStanding::Unknown, |key| self.standing(key));
        let was_publisher = signer.is_some_and(|key| self.was_publisher(key));
        match place {
            // A release that counts confirms the bundle, so a publisher that has left still counts
            // here.
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
