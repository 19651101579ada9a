//! The content-addressed store: `store/<bundle-hash>/{files/, manifest.json}`. A bundle is
//! read-only, and nothing in it is ever changed.
//!
//! Installed skills are read only through [`examine_stored`]. It verifies the manifest's signature,
//! then the size, hash and mode of every file, and that there are no other files. If one of these
//! checks fails, nothing in the folder is used. Only metadata files of operating systems and
//! editors may lie beside the signed files; they are never used. [`Examined::first_deviation`]
//! reports those of them that no operating system creates by itself.

mod trusted;
mod write;

pub(crate) use trusted::Trusted;
pub(crate) use write::*;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use vault_format::bundle;
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::manifest::{
    MAX_FILE_BYTES, MAX_FILES, MAX_SKILL_BYTES, Manifest, ManifestError, ManifestExpectation, Mode,
    SignedManifest,
};
use vault_format::name::{AgentId, SkillName};
use vault_format::root::{RootState, SignerRefusal, VaultId};
use vault_gate as gate;
use vault_gate::document::{Document, SKILL_MD};

use crate::disk::source::SourceLimits;
use crate::disk::tree::{self, FileStat, StoreEntry};
use crate::disk::{self, FileError, HeldPath, Kind, Location};

/// Size limit for reading a signed manifest, in bytes. A manifest that lists the maximum of 1,024
/// files with the longest paths is far smaller.
const MAX_MANIFEST: u64 = 4 * 1024 * 1024;
/// Limits on the folder of one skill before it is signed.
pub(crate) const LIMITS: SourceLimits = SourceLimits {
    files: MAX_FILES,
    file_bytes: MAX_FILE_BYTES,
    total_bytes: MAX_SKILL_BYTES,
    depth: 16,
};
const MANIFEST: &str = "manifest.json";
const FILES: &str = "files";

/// A difference between a stored skill and its signed manifest.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The bundle's folder, its manifest or a signed file is absent.
    #[error("{0} is missing")]
    Missing(String),
    /// The manifest is not signed by a trusted key, or belongs to another skill or vault.
    #[error("the manifest is not valid: {0}")]
    Manifest(#[from] ManifestError),
    /// The folder contains a file or folder that the manifest does not list.
    #[error("{} is not part of the signed skill", disk::displayable_path(.0))]
    Extra(String),
    /// The bytes of a file differ from the signed ones.
    #[error("{} was modified after signing", disk::displayable_path(.0))]
    Changed(String),
    /// The permissions of a file or folder differ from the expected ones.
    #[error(
        "{} has mode {found:04o} instead of {expected:04o}",
        disk::displayable_path(path)
    )]
    Mode {
        /// The file, relative to the skill.
        path: String,
        /// Permission bits of the file or folder on the disk.
        found: u32,
        /// Permission bits that follow from the signed mode.
        expected: u32,
    },
    /// A link, FIFO, device or socket stands in place of a file or folder.
    #[error("{} is not a regular file", disk::displayable_path(.0))]
    Foreign(String),
    /// Manifest and files do not give the hash that is the folder's name.
    #[error("the content is not that of bundle {expected}")]
    Bundle {
        /// Hash that names the bundle's folder.
        expected: Digest,
    },
    /// This machine knows no keys of the vault: its folder was copied here without its trust
    /// folder.
    #[error("this machine has no record of the keys that the vault {0} trusts")]
    Untrusted(VaultId),
    /// The version is older than the installed one, or the skill was removed since.
    #[error(
        "version {found} is back, although this machine signed version {known} after it or removed it"
    )]
    Older {
        /// Version in the store.
        found: u64,
        /// Highest version that this machine has recorded for the skill.
        known: u64,
    },
    /// A variant for this agent stands in place of the skill that it was rendered from.
    #[error("it is the variant for {0}, not the skill itself")]
    Variant(AgentId),
    /// The link of an own skill is absent, and no command removed it.
    #[error("its link skills/{0} was removed from the vault's folder")]
    Unlinked(SkillName),
    /// The current catalog of the linked vault does not list the bundle.
    #[error("the current catalog of its vault does not list the bundle {0}")]
    NotListed(Digest),
    /// A system call failed, so the content could not be checked.
    #[error(transparent)]
    Unreadable(FileError),
}

impl Damage {
    /// Returns whether files or modes differ from the signed ones, whichever key signed them.
    pub(crate) fn is_changed_content(&self) -> bool {
        matches!(
            self,
            Self::Extra(_)
                | Self::Changed(_)
                | Self::Mode { .. }
                | Self::Foreign(_)
                | Self::Bundle { .. }
        )
    }

    /// Returns whether the skill is intact but not used until its vault's next release, because the
    /// key that signed it is revoked.
    pub const fn is_withheld(&self) -> bool {
        matches!(
            self,
            Self::Manifest(ManifestError::Signer(SignerRefusal::ReleaseAwaited))
        )
    }

    /// Returns whether somebody changed the stored skill. False for a missing bundle or file and
    /// for a disk error, which prove no change. True for a missing manifest, because the folder had
    /// one.
    pub fn is_tampering(&self) -> bool {
        match self {
            Self::Missing(what) => what == MANIFEST,
            Self::Unreadable(_) => false,
            _ => true,
        }
    }
}

/// A stored skill whose files were all compared with its signed manifest.
#[derive(Debug)]
pub struct Examined {
    /// The manifest with its signature, exact bytes.
    pub signed: SignedManifest,
    /// Key that signed the manifest.
    pub signer: PublicKey,
    /// Content of the manifest.
    pub manifest: Manifest,
    /// Verified files, in the manifest's order.
    pub files: Vec<File>,
    /// Metadata files of operating systems and editors beside the signed files, relative to the
    /// skill. They are not part of the skill.
    pub(crate) ignored: Vec<String>,
    /// First path in `ignored` that no operating system creates by itself.
    extra: Option<String>,
    /// Paths of the checked entries below the bundle's folder.
    pub(crate) paths: Vec<String>,
    /// File metadata of each path, in the same order, as it was when the path was read.
    pub(crate) stats: Vec<FileStat>,
}

impl Examined {
    /// Returns the first file beside the signed ones that no operating system creates by itself, as
    /// damage to report. The signed bytes can be used without it, but an agent that reads the
    /// folder sees it.
    pub fn first_deviation(&self) -> Option<Damage> {
        self.extra.clone().map(Damage::Extra)
    }

    pub(crate) fn skill_md(&self) -> Option<&[u8]> {
        let file = self
            .files
            .iter()
            .find(|file| file.path.as_str() == SKILL_MD);
        file.map(|file| &file.bytes[..])
    }

    /// Returns the parsed SKILL.md; `None` if an older version of vault admitted one that this
    /// version can't parse.
    pub(crate) fn parse_document(&self) -> Option<Document> {
        Document::parse_known(self.skill_md()?, &self.manifest.name).ok()
    }
}

pub(crate) fn bundle_folder(store: &HeldPath, hash: &Digest) -> HeldPath {
    store.join(hash.to_string())
}

/// Returns the link target for a bundle, relative to a folder `depth` levels below the vault's
/// root.
pub(crate) fn link_target(hash: &Digest, depth: usize) -> PathBuf {
    let mut target = PathBuf::new();
    for _ in 0..depth {
        target.push("..");
    }
    target.push("store");
    target.push(hash.to_string());
    target.push(FILES);
    target
}

/// Returns the bundle to which a target made by [`link_target`] leads; `None` for any other target.
pub(crate) fn linked_bundle(target: &[u8]) -> Option<Digest> {
    let text = std::str::from_utf8(target).ok()?;
    let rest = text.strip_suffix("/files")?;
    let (ups, hash) = rest.split_once("store/")?;
    // A link of any other form was not made by `link_target`, so it is not treated as the vault's
    // own.
    let ups_only = !ups.is_empty() && ups.split_terminator('/').all(|part| part == "..");
    ups_only.then(|| hash.parse().ok()).flatten()
}

/// Returns the bundle to which the link at a path leads; `None` if there is no link, or it does not
/// lead into the store.
pub(crate) fn bundle_at(link: &(impl Location + ?Sized)) -> Result<Option<Digest>, FileError> {
    let target = disk::link_target(link)?;
    Ok(target.and_then(|target| linked_bundle(target.as_os_str().as_encoded_bytes())))
}

/// Reads and verifies a stored skill: signature, name, exactly the signed files, sizes, hashes and
/// modes. `name` is the name it is installed under; `None` skips that comparison.
pub(crate) fn examine_stored(
    store: &HeldPath,
    hash: &Digest,
    name: Option<&SkillName>,
    trusted: &Trusted,
) -> Result<Examined, Damage> {
    match examine_under(store, hash, name, trusted) {
        // A skill is withheld only if it is intact, so verify it under the root version in which
        // its signer was last valid.
        Err(damage) if damage.is_withheld() => match trust_of_signing_time(store, hash, trusted) {
            Some(before) => Err(examine_under(store, hash, name, &before)
                .err()
                .unwrap_or(damage)),
            None => Err(damage),
        },
        examined => examined,
    }
}

/// Returns the trust under the newest root version (signed list of the vault's keys) in which the
/// bundle's signer may publish.
fn trust_of_signing_time(store: &HeldPath, hash: &Digest, trusted: &Trusted) -> Option<Trusted> {
    let roots = trusted.roots()?;
    let signer = read_signer(store, hash, roots)?;
    let mut versions = roots.chain().versions().iter().rev();
    let version = versions.find(|version| version.document().release().contains(&signer))?;
    let chain = roots.chain().until_version(version.document().version())?;
    let roots = RootState::new(chain, BTreeSet::new());
    Some(Trusted::for_listed(Arc::new(roots), [*hash].into()))
}

/// Verifies a stored skill with this trust, and reports the first difference.
fn examine_under(
    store: &HeldPath,
    hash: &Digest,
    name: Option<&SkillName>,
    trusted: &Trusted,
) -> Result<Examined, Damage> {
    let mut examination = Examination {
        hash,
        name,
        trusted,
        manifest: None,
        folders: BTreeSet::new(),
        files: Vec::new(),
        mode: None,
        ignored: Vec::new(),
        extra: None,
        paths: Vec::new(),
        stats: Vec::new(),
    };
    let mut damage = None;
    let root = bundle_folder(store, hash);
    let walked = tree::walk_tree(&root, MAX_MANIFEST, &mut |path, stat, entry| {
        // The walk can't be stopped early, so after the first damage, later entries are skipped.
        if damage.is_none() {
            damage = examination.check_entry(path, stat, entry).err();
        }
    });
    // Only `NotFound` proves absence: after any other error the skill may be there and intact.
    walked.map_err(|failed| match failed.cause.kind() {
        std::io::ErrorKind::NotFound => Damage::Missing(hash.to_string()),
        _ => Damage::Unreadable(failed),
    })?;
    let (examined, mode) = match damage {
        Some(damage) => Err(damage),
        None => examination.finish_examination(),
    }?;
    // If only the listed hash makes the signature valid, the bytes must have that hash. Without
    // this check an older bundle of the same signer would pass too.
    if trusted.requires_listed_hash(&examined.signer) {
        encode_examined(hash, &examined)?;
    }
    mode.map_or(Ok(examined), Err)
}

/// Encodes the bundle of an examined skill. Fails if its hash is not the folder's name.
fn encode_examined(hash: &Digest, examined: &Examined) -> Result<bundle::EncodedBundle, Damage> {
    bundle::encode(&examined.signed, &examined.manifest, &examined.files)
        .ok()
        .filter(|encoded| encoded.hash == *hash)
        .ok_or(Damage::Bundle { expected: *hash })
}

/// Like [`examine_stored`], but also encodes the bundle again, which proves that its hash is the
/// folder's name.
pub(crate) fn examine_and_encode(
    store: &HeldPath,
    hash: &Digest,
    name: Option<&SkillName>,
    trusted: &Trusted,
) -> Result<(Examined, bundle::EncodedBundle), Damage> {
    let examined = examine_stored(store, hash, name, trusted)?;
    let encoded = encode_examined(hash, &examined)?;
    Ok((examined, encoded))
}

/// Returns the manifest of a stored bundle; `None` unless a trusted key signed it. Does not check
/// the files.
pub(crate) fn read_manifest(
    store: &HeldPath,
    hash: &Digest,
    trusted: &Trusted,
) -> Option<Manifest> {
    let bytes = disk::read(&bundle_folder(store, hash).join(MANIFEST), MAX_MANIFEST).ok()??;
    let signed = SignedManifest::parse(&bytes).ok()?;
    signed
        .verify_signature(&trusted.manifest_trust(hash).ok()?)
        .ok()
}

/// Returns the vault's key that signed the manifest of a stored bundle, whether or not the key is
/// still accepted; `None` if another key did. Does not check the files.
pub(crate) fn read_signer(store: &HeldPath, hash: &Digest, roots: &RootState) -> Option<PublicKey> {
    let bytes = disk::read(&bundle_folder(store, hash).join(MANIFEST), MAX_MANIFEST).ok()??;
    SignedManifest::parse(&bytes).ok()?.signer(roots)
}

/// The state of verifying one stored skill, entry by entry.
struct Examination<'a> {
    hash: &'a Digest,
    name: Option<&'a SkillName>,
    trusted: &'a Trusted,
    manifest: Option<(SignedManifest, PublicKey, Manifest)>,
    folders: BTreeSet<String>,
    /// Files read so far, at their positions in the manifest.
    files: Vec<Option<File>>,
    /// First wrong mode. It is reported only if all content is intact, because wrong content
    /// matters more.
    mode: Option<Damage>,
    ignored: Vec<String>,
    extra: Option<String>,
    paths: Vec<String>,
    stats: Vec<FileStat>,
}

impl Examination<'_> {
    /// Checks one entry of the bundle's folder. The walk visits the entries of a folder before
    /// those of its subfolders, so it reaches the manifest first.
    fn check_entry(&mut self, path: &str, stat: FileStat, entry: StoreEntry) -> Result<(), Damage> {
        if path == MANIFEST {
            self.check_manifest(stat, entry)?;
        } else if path == FILES {
            self.check_folder(path, stat, &entry)?;
        } else if let Some(inside) = path.strip_prefix("files/") {
            if gate::is_ignored(inside) {
                if self.extra.is_none() && !is_system_metadata(inside, &entry) {
                    self.extra = Some(inside.to_owned());
                }
                self.ignored.push(inside.to_owned());
                return Ok(());
            }
            match entry {
                StoreEntry::Dir => self.check_folder(inside, stat, &entry)?,
                _ => self.check_file(inside, stat, entry)?,
            }
        } else if is_system_metadata(path, &entry) {
            return Ok(());
        } else {
            return Err(Damage::Extra(path.to_owned()));
        }
        self.paths.push(path.to_owned());
        self.stats.push(stat);
        Ok(())
    }

    fn check_manifest(&mut self, stat: FileStat, entry: StoreEntry) -> Result<(), Damage> {
        let bytes = file_content(MANIFEST, entry)?;
        self.note_mode(MANIFEST, stat, 0o444);
        let signed = SignedManifest::parse(&bytes)?;
        let trust = self.trusted.manifest_trust(self.hash)?;
        let expected = self.name.map(|name| ManifestExpectation {
            name,
            version: None,
            stored_version: None,
        });
        let (manifest, signer) = signed.verify_with_signer(&trust, expected.as_ref())?;
        // A variant has the name and version of its skill and a valid signature, so it could be put
        // in the skill's place.
        if let Some(from) = &manifest.rendered_from
            && !self.trusted.allows_variants()
        {
            return Err(Damage::Variant(from.agent.clone()));
        }
        // The signature of an old version stays valid, so without this check an attacker could
        // bring back a version with a known flaw.
        let lowest = self.trusted.lowest_accepted_version(&manifest.name);
        if lowest.is_some_and(|lowest| manifest.version < lowest) {
            return Err(Damage::Older {
                found: manifest.version,
                known: self.trusted.highest_recorded_version(&manifest.name),
            });
        }
        self.files.resize_with(manifest.files.len(), || None);
        // Collect the parent folders of all signed files; no other folder may exist.
        for file in &manifest.files {
            let mut path = file.path.as_str();
            while let Some((parent, _)) = path.rsplit_once('/') {
                if !self.folders.insert(parent.to_owned()) {
                    break;
                }
                path = parent;
            }
        }
        self.manifest = Some((signed, signer, manifest));
        Ok(())
    }

    fn check_folder(
        &mut self,
        path: &str,
        stat: FileStat,
        entry: &StoreEntry,
    ) -> Result<(), Damage> {
        if !matches!(entry, StoreEntry::Dir) {
            return Err(Damage::Foreign(path.to_owned()));
        }
        if path != FILES && !self.folders.contains(path) {
            return Err(Damage::Extra(path.to_owned()));
        }
        self.note_mode(path, stat, 0o555);
        Ok(())
    }

    fn check_file(&mut self, path: &str, stat: FileStat, entry: StoreEntry) -> Result<(), Damage> {
        let Some((_, _, manifest)) = &self.manifest else {
            return Err(Damage::Missing(MANIFEST.to_owned()));
        };
        // The manifest parser rejects unsorted files, so a binary search finds every one.
        let position = manifest
            .files
            .binary_search_by(|file| file.path.as_str().as_bytes().cmp(path.as_bytes()));
        let Ok(at) = position else {
            return Err(Damage::Extra(path.to_owned()));
        };
        let signed = &manifest.files[at];
        let bytes = file_content(path, entry)?;
        // Compare the content before the mode: a changed file often has another mode too, and its
        // content matters more.
        if bytes.len() as u64 != signed.size || Digest::of(&bytes) != signed.sha256 {
            return Err(Damage::Changed(path.to_owned()));
        }
        let expected = disk_mode(signed.mode);
        self.files[at] = Some(File {
            path: signed.path.clone(),
            mode: signed.mode,
            bytes,
        });
        self.note_mode(path, stat, expected);
        Ok(())
    }

    /// Notes the first entry whose permissions are not the expected ones.
    fn note_mode(&mut self, path: &str, stat: FileStat, expected: u32) {
        let actual = stat.permissions();
        if actual != expected && self.mode.is_none() {
            self.mode = Some(Damage::Mode {
                path: path.to_owned(),
                found: actual,
                expected,
            });
        }
    }

    /// Returns the skill if no file is missing, together with the first wrong mode.
    fn finish_examination(self) -> Result<(Examined, Option<Damage>), Damage> {
        let Some((signed, signer, manifest)) = self.manifest else {
            return Err(Damage::Missing(MANIFEST.to_owned()));
        };
        if let Some(at) = self.files.iter().position(Option::is_none) {
            return Err(Damage::Missing(manifest.files[at].path.to_string()));
        }
        let examined = Examined {
            signed,
            signer,
            manifest,
            files: self.files.into_iter().flatten().collect(),
            ignored: self.ignored,
            extra: self.extra,
            paths: self.paths,
            stats: self.stats,
        };
        Ok((examined, self.mode))
    }
}

/// Returns whether an entry is a file that an operating system creates by itself, such as
/// `.DS_Store`.
fn is_system_metadata(path: &str, entry: &StoreEntry) -> bool {
    !matches!(entry, StoreEntry::Dir | StoreEntry::Foreign) && gate::is_system_metadata(path)
}

fn file_content(path: &str, entry: StoreEntry) -> Result<Vec<u8>, Damage> {
    match entry {
        StoreEntry::File(bytes) => Ok(bytes),
        // A signed file is within the size limit, and vault never writes to a stored file. So a
        // file that is too large or changes during the read was modified.
        StoreEntry::TooLarge | StoreEntry::Changing => Err(Damage::Changed(path.to_owned())),
        StoreEntry::Foreign | StoreEntry::Dir => Err(Damage::Foreign(path.to_owned())),
    }
}

/// Returns the permissions of a stored file: the signed mode without write permission.
const fn disk_mode(mode: Mode) -> u32 {
    match mode {
        Mode::Plain => 0o444,
        Mode::Executable => 0o555,
    }
}

/// Lists the bundles in the store and the names of all other entries, both sorted. Both are empty
/// if there is no store.
pub(crate) fn list_bundles(store: &HeldPath) -> Result<(Vec<Digest>, Vec<String>), FileError> {
    let (mut bundles, mut foreign) = (Vec::new(), Vec::new());
    for (name, kind) in disk::list(store)? {
        match name.to_str().and_then(|name| name.parse().ok()) {
            Some(hash) if kind == Kind::Dir => bundles.push(hash),
            _ => foreign.push(name.to_string_lossy().into_owned()),
        }
    }
    Ok((bundles, foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_a_bundle_only_in_the_one_way_we_write_it() {
        let hash = Digest::of(b"x");
        for depth in [1, 4] {
            let target = link_target(&hash, depth);
            assert_eq!(
                linked_bundle(target.as_os_str().as_encoded_bytes()),
                Some(hash)
            );
        }
        for bad in [
            format!("store/{hash}/files"),
            format!("/store/{hash}/files"),
            format!("../x/store/{hash}/files"),
            format!("../store/{hash}"),
            format!("../store/{hash}/files/"),
            format!("../store/{}/files", hash.to_string().to_uppercase()),
            "../store/../files".to_owned(),
        ] {
            assert_eq!(linked_bundle(bad.as_bytes()), None, "{bad}");
        }
    }
}
