//! The publishing state of each namespace: the releases that the service acknowledged, and signed
//! releases that it has not acknowledged yet.
//!
//! ```text
//! vaults/<vault id>/releases/<origin>/<slug>.json            numbers and hashes
//! vaults/<vault id>/releases/<origin>/<slug>.catalog.json    the last accepted catalog
//! vaults/<vault id>/releases/<origin>/<slug>.pending.json    a signed, unacknowledged catalog
//! vaults/<vault id>/releases/<origin>/<slug>.waiting.json    the release that a sync showed last
//! ```
//! The files lie in the trust folder, because they decide which skills are signed again after a key
//! was stolen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vault_format::catalog::{Catalog, FormerSkills, ReleaseRef, SignedCatalog, SkillEntry};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::time::Timestamp;

use super::folder::{PrivateFolder, file_name, vault_folder};
use super::{Vault, VaultError};

/// Number of earlier releases whose payload hashes are recorded. Recovery from a stolen key needs
/// these hashes to find the last release that can be trusted.
const MAX_HISTORY: usize = 1_000;

/// Number of payloads that are recorded as signed. Release numbers only grow, so the oldest ones
/// are no longer needed.
const MAX_SIGNED: usize = 100;

/// The publishing state of one namespace, which is a vault at one service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CloudState {
    /// Address of the service, without a slash at its end.
    pub base: String,
    /// Name of the vault at the service.
    pub slug: Slug,
    /// Last release that the service acknowledged, or that this machine took over from it.
    pub published: Option<RecordedRelease>,
    /// Release that this machine signed and the service has not acknowledged.
    pub pending: Option<RecordedRelease>,
    /// Highest release number that this machine has signed for the namespace.
    pub highest_signed: u64,
    /// Payload hashes of earlier releases, sorted by release number.
    pub(crate) history: Vec<ReleaseRef>,
    /// Payloads that this machine has signed, proposals of other publishers included, the newest
    /// last.
    #[serde(default)]
    pub(crate) signed: Vec<SignedPayload>,
    /// Skills of earlier releases that the published one no longer contains.
    #[serde(default, skip_serializing_if = "FormerSkills::is_empty")]
    pub(crate) former: FormerSkills,
}

/// A payload that this machine has signed for a namespace. It never signs a different payload with
/// the same root version and release number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SignedPayload {
    pub(crate) root_version: u64,
    pub(crate) release: u64,
    pub(crate) payload_sha256: Digest,
}

/// A release that this machine signed or took over from the service, as its publishing state
/// records it. The service may not have acknowledged it yet.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RecordedRelease {
    /// Number of the release.
    pub release: u64,
    /// SHA-256 of the signed payload.
    pub payload_sha256: Digest,
    /// SHA-256 of the catalog file. A push sends it in `If-Match`, to name the catalog that it
    /// replaces.
    pub file_sha256: Digest,
    /// Time at which readers stop accepting the release.
    pub expires_at: Timestamp,
    /// Number of skills in the release.
    pub skills: u64,
    /// Time of the acknowledgement; for a pending release, the time of signing.
    pub at: Timestamp,
    /// SHA-256 of everything that a release is built from. While it stays the same, no new release
    /// is needed.
    pub(crate) inputs: Option<Digest>,
    /// For a pending release, the file hash of the release that it follows.
    pub(crate) follows: Option<Digest>,
}

/// The record that a sync without a terminal printed the changes of another publisher's release,
/// which waits for a review. It only decides whether the next such sync prints all changes again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WaitingReview {
    /// SHA-256 of the payload of the release.
    pub payload_sha256: Digest,
    /// Time at which the changes were printed.
    pub at: Timestamp,
}

/// Time for which a sync without a terminal does not print the same changes again, in seconds.
const SHOWN_SECONDS: i64 = 24 * 60 * 60;

/// Returns the record for this payload if a sync without a terminal printed its changes within the
/// last day.
pub fn shown_today(
    vault: &Vault,
    (base, slug): (&str, &Slug),
    payload_sha256: &Digest,
) -> Result<Option<WaitingReview>, VaultError> {
    let record = origin_folder(vault, base).read_record::<WaitingReview>(&waiting_file(slug));
    let now = vault.clock().now();
    let is_recent = |waiting: &WaitingReview| {
        let age = now.unix() - waiting.at.unix();
        // A negative age means that the clock was set back in between. Print the changes again
        // then.
        waiting.payload_sha256 == *payload_sha256 && (0..SHOWN_SECONDS).contains(&age)
    };
    Ok(record?.filter(is_recent))
}

/// Records that the changes of a release that waits for a review are printed now.
pub fn note_shown(
    vault: &Vault,
    (base, slug): (&str, &Slug),
    payload_sha256: Digest,
) -> Result<(), VaultError> {
    let at = vault.clock().now();
    let waiting = WaitingReview { payload_sha256, at };
    Ok(origin_folder(vault, base).write_record(&waiting_file(slug), &waiting)?)
}

fn waiting_file(slug: &Slug) -> String {
    format!("{slug}.waiting.json")
}

/// Which of the two stored catalog files is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CatalogFile {
    Published,
    Pending,
}

impl CloudState {
    pub(crate) fn new(base: &str, slug: &Slug) -> Self {
        Self {
            base: base.to_owned(),
            slug: slug.clone(),
            published: None,
            pending: None,
            highest_signed: 0,
            history: Vec::new(),
            signed: Vec::new(),
            former: FormerSkills::default(),
        }
    }

    /// Returns the hash of the payload that this machine has signed with this root version and
    /// release number; `None` if it has signed none.
    pub(crate) fn signed_payload(&self, root_version: u64, release: u64) -> Option<Digest> {
        let mut signed = self.signed.iter();
        let signed = signed
            .find(|signed| signed.root_version == root_version && signed.release == release)?;
        Some(signed.payload_sha256)
    }

    /// Records a payload that this machine is about to sign. Its later releases get higher numbers.
    pub(crate) fn note_signed(&mut self, payload: SignedPayload) {
        self.highest_signed = self.highest_signed.max(payload.release);
        if !self.signed.contains(&payload) {
            self.signed.push(payload);
        }
        let surplus = self.signed.len().saturating_sub(MAX_SIGNED);
        self.signed.drain(..surplus);
    }

    /// Returns the highest release number that is recorded for this namespace as signed, pending or
    /// published.
    pub fn highest_release(&self) -> u64 {
        // Another machine may have published a higher number than this one ever signed.
        let recorded = [&self.published, &self.pending];
        recorded
            .into_iter()
            .flatten()
            .map(|known| known.release)
            .fold(self.highest_signed, u64::max)
    }

    /// Returns the exact bytes of the last catalog that was published or taken over.
    pub fn catalog_bytes(&self, vault: &Vault) -> Result<Option<Vec<u8>>, VaultError> {
        self.read_catalog_file(vault, CatalogFile::Published)
    }

    /// Returns the catalog of the last acknowledged release; `None` if there is none, or if the
    /// stored bytes do not match the recorded hash.
    pub(crate) fn published_catalog(&self, vault: &Vault) -> Result<Option<Catalog>, VaultError> {
        let (Some(published), Some(bytes)) = (&self.published, self.catalog_bytes(vault)?) else {
            return Ok(None);
        };
        let file = SignedCatalog::parse(&bytes).ok();
        Ok(file.and_then(|file| file.read_counted(&published.payload_sha256).ok()))
    }

    pub(crate) fn read_catalog_file(
        &self,
        vault: &Vault,
        file: CatalogFile,
    ) -> Result<Option<Vec<u8>>, VaultError> {
        let bytes = origin_folder(vault, &self.base).read_file(&self.catalog_file(file))?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    pub(crate) fn write_catalog_file(
        &self,
        vault: &Vault,
        file: CatalogFile,
        bytes: &[u8],
    ) -> Result<(), VaultError> {
        Ok(origin_folder(vault, &self.base).replace_file(&self.catalog_file(file), bytes)?)
    }

    /// Forgets the pending release. The caller writes the state.
    pub(crate) fn drop_pending(&mut self, vault: &Vault) -> Result<(), VaultError> {
        self.pending = None;
        origin_folder(vault, &self.base).remove_file(&self.catalog_file(CatalogFile::Pending))?;
        Ok(())
    }

    /// Writes the state to the trust folder.
    pub(crate) fn write_state(&self, vault: &Vault) -> Result<(), VaultError> {
        Ok(origin_folder(vault, &self.base).write_record(&format!("{}.json", self.slug), self)?)
    }

    fn catalog_file(&self, file: CatalogFile) -> String {
        let ending = match file {
            CatalogFile::Published => "catalog",
            CatalogFile::Pending => "pending",
        };
        format!("{}.{ending}.json", self.slug)
    }

    /// Returns the recorded payload hash of a release; `None` if it is too old or unknown.
    pub(crate) fn payload_of(&self, release: u64) -> Option<Digest> {
        self.history
            .iter()
            .find(|stored| stored.release == release)
            .map(|stored| stored.payload_sha256)
    }

    /// Stores the exact bytes of a release and makes it the namespace's current one. `signer`
    /// returns the key that signed a skill of the previous release. The caller must call
    /// [`Self::write_state`] afterwards.
    pub(crate) fn store_acknowledged(
        &mut self,
        vault: &Vault,
        bytes: &[u8],
        known: RecordedRelease,
        signer: impl Fn(&SkillEntry) -> Option<PublicKey>,
    ) -> Result<(), VaultError> {
        self.note_former(vault, bytes, &known, signer)?;
        // Write the bytes before the record of their hash. A kill in between leaves a mismatch,
        // which `published_catalog` treats like a missing catalog.
        self.write_catalog_file(vault, CatalogFile::Published, bytes)?;
        self.note_published(known);
        Ok(())
    }

    /// Records the skills that this release no longer contains. Must run before the previous
    /// catalog file is replaced.
    fn note_former(
        &mut self,
        vault: &Vault,
        bytes: &[u8],
        known: &RecordedRelease,
        signer: impl Fn(&SkillEntry) -> Option<PublicKey>,
    ) -> Result<(), VaultError> {
        let before = self.published_catalog(vault)?;
        let file = SignedCatalog::parse(bytes).ok();
        let after = file.and_then(|file| file.read_counted(&known.payload_sha256).ok());
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(());
        };
        let former = self.former.clone();
        self.former.record_removed(&before, &after, signer);
        // Write the state now, because the former skills can't be found out once the catalog file
        // is replaced.
        if self.former != former {
            self.write_state(vault)?;
        }
        Ok(())
    }

    fn note_published(&mut self, acknowledged: RecordedRelease) {
        let by_release: BTreeMap<u64, Digest> = self
            .history
            .iter()
            .map(|stored| (stored.release, stored.payload_sha256))
            .chain([(acknowledged.release, acknowledged.payload_sha256)])
            .collect();
        let skip = by_release.len().saturating_sub(MAX_HISTORY);
        self.history = by_release
            .into_iter()
            .skip(skip)
            .map(|(release, payload_sha256)| ReleaseRef {
                release,
                payload_sha256,
            })
            .collect();
        self.published = Some(acknowledged);
    }
}

fn releases_folder(vault: &Vault) -> PrivateFolder {
    vault_folder(&vault.paths().config, vault.id()).child("releases")
}

fn origin_folder(vault: &Vault, base: &str) -> PrivateFolder {
    releases_folder(vault).child(&file_name(base))
}

/// Reads the state of one namespace; `None` if this machine never published to it.
pub fn read_state(
    vault: &Vault,
    base: &str,
    slug: &Slug,
) -> Result<Option<CloudState>, VaultError> {
    origin_folder(vault, base).read_record(&format!("{slug}.json"))
}

/// Reads the state of one namespace, or returns an empty one.
pub(crate) fn read_or_new(
    vault: &Vault,
    base: &str,
    slug: &Slug,
) -> Result<CloudState, VaultError> {
    Ok(read_state(vault, base, slug)?.unwrap_or_else(|| CloudState::new(base, slug)))
}

/// Reads the states of all namespaces of this vault.
pub fn list_states(vault: &Vault) -> Result<Vec<CloudState>, VaultError> {
    let mut states = Vec::new();
    let releases = releases_folder(vault);
    for origin in releases.folder_names()? {
        let origin = releases.child(&origin);
        for name in origin.file_names()? {
            let slug = name
                .strip_suffix(".json")
                // The other files of a namespace end in `.json` too, after a second dot; a slug has
                // none.
                .filter(|slug| !slug.contains('.'));
            if slug.is_some() {
                states.extend(origin.read_record(&name)?);
            }
        }
    }
    Ok(states)
}
