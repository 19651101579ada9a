//! The bundle: one stored JSON object with a skill's signed manifest and all its files, named by
//! its SHA-256.
//!
//! The encoding is canonical: the same manifest and files always give the same bytes, and so the
//! same hash. A file that is UTF-8 without U+0000 is stored as text, any other as base64. Large
//! files are cut into part objects of their own, so that no object exceeds 4 MiB; manifest and
//! files determine which ones. A reader rejects every other choice.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dsse::{decode_base64, decoded_length};
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::manifest::{
    FileEntry, MAX_FILE_BYTES, MAX_SKILL_BYTES, Manifest, ManifestError, ManifestExpectation,
    ManifestTrust, Mode, SignedManifest,
};
use crate::path::FilePath;

mod encode;

use encode::encode_entries;
pub use encode::{compute_bundle_hash, encode};

/// The value of the member `schema` of a bundle.
pub const SCHEMA: &str = "vault.bundle/1";
/// The value of the member `schema` of a part.
pub const PART_SCHEMA: &str = "vault.part/1";
/// The largest size of a stored object, in bytes, whether bundle or part.
pub const MAX_OBJECT_BYTES: usize = 4 << 20;
/// The largest content of a file inside the bundle, in bytes as encoded (base64 or escaped text).
/// Larger files are cut into parts.
pub const MAX_INLINE_BYTES: usize = 1 << 20;
/// The number of a file's own bytes in each part, before base64; the last part has what remains.
pub const PART_BYTES: usize = 3_000_000;

/// A file of a skill with its bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// Path in the skill's folder.
    pub path: FilePath,
    /// Whether the file is executable.
    pub mode: Mode,
    /// Content as it lies in the skill's folder.
    pub bytes: Vec<u8>,
}

/// A bundle as it is stored, with its parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedBundle {
    /// SHA-256 of `bytes`, under which the object is stored.
    pub hash: Digest,
    /// The bundle's JSON, to be stored as it is: any change makes another hash.
    pub bytes: Vec<u8>,
    /// The part objects that the bundle names, in its order; each is stored as an object of its
    /// own.
    pub parts: Vec<EncodedPart>,
}

/// A part object as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedPart {
    /// SHA-256 of `bytes`, under which the object is stored.
    pub hash: Digest,
    /// The part's JSON, to be stored as it is.
    pub bytes: Vec<u8>,
}

/// A bundle's reference to a part.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct PartRef {
    /// SHA-256 of the part object, which is also its name in the store.
    pub bundle_hash: Digest,
    /// The exact length of the part object in bytes.
    pub size: u64,
}

/// A reason to reject a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bytes have another hash than expected.
    #[error("the bytes of the bundle have another hash")]
    Hash,
    /// The bytes are more or fewer than expected, or more than an object may have.
    #[error("the bundle has another size than expected, or is larger than 4 MiB")]
    Size,
    /// Not JSON of a bundle's shape.
    #[error("not a bundle: {0}")]
    Json(#[from] JsonError),
    /// The schema is another one, or a file has members that its encoding does not allow.
    #[error("{0}")]
    Schema(&'static str),
    /// The paths of the files differ from those in the manifest, or have another order.
    #[error("the files of the bundle are not those of its manifest, in that order")]
    Files,
    /// A file is stored as text, base64 or parts although the canonical encoding requires another
    /// of the three.
    #[error("{0} is not encoded as its content requires")]
    Encoding(String),
    /// A file has another size or SHA-256 than the manifest states.
    #[error("the bytes of {0} do not match the manifest")]
    Content(String),
    /// A part is missing, or has other bytes than expected.
    #[error("the parts of {0} are missing or wrong")]
    Parts(String),
    /// The manifest inside is rejected.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl BundleError {
    /// The machine-readable code of the error; the test vectors of the format use the same codes.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::Hash => "bundle_hash",
            Self::Size => "bundle_size",
            Self::Json(_) | Self::Schema(_) => "bundle_schema",
            Self::Files => "bundle_files",
            Self::Encoding(_) => "bundle_encoding",
            Self::Content(_) => "bundle_content",
            Self::Parts(_) => "bundle_parts",
            Self::Manifest(error) => error.error_code(),
        }
    }
}

/// Returns the bytes as text if they are UTF-8 without U+0000, which is exactly when a bundle
/// stores them as text.
fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

fn check_content(
    bytes: &[u8],
    size: u64,
    sha256: &Digest,
    path: &FilePath,
) -> Result<(), BundleError> {
    if bytes.len() as u64 == size && Digest::of(bytes) == *sha256 {
        Ok(())
    } else {
        Err(BundleError::Content(path.to_string()))
    }
}

/// A bundle whose size and hash are the expected ones. Nobody's signature is verified yet:
/// [`Bundle::open`] does that.
#[derive(Clone, Debug)]
pub struct Bundle {
    signed: SignedManifest,
    files: Vec<StoredFile>,
}

#[derive(Clone, Debug)]
struct StoredFile {
    path: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Text(String),
    Base64(String),
    Parts(Vec<PartRef>),
}

/// A bundle whose manifest and files are verified.
#[derive(Clone, Debug)]
pub struct OpenedBundle {
    /// The manifest, verified against the reader's trust and expectations.
    pub manifest: Manifest,
    /// The signed envelope that holds the manifest, with its exact bytes.
    pub signed: SignedManifest,
    /// The files with their bytes and modes, in the order of the manifest.
    pub files: Vec<File>,
}

impl Bundle {
    /// Checks the size, then the hash, then reads the JSON. Fails at the first check that does not
    /// hold.
    pub fn parse(
        bytes: &[u8],
        expected_hash: &Digest,
        expected_size: u64,
    ) -> Result<Self, BundleError> {
        // Size first: it needs no work, and the signed size bounds what is hashed.
        if bytes.len() as u64 != expected_size || bytes.len() > MAX_OBJECT_BYTES {
            return Err(BundleError::Size);
        }
        // The hash covers the exact bytes, so it is checked before a parser sees anything that a
        // host could have changed.
        if Digest::of(bytes) != *expected_hash {
            return Err(BundleError::Hash);
        }
        let wire: BundleWire<'_> = json::parse(bytes)?;
        if wire.schema != SCHEMA {
            return Err(BundleError::Schema("the schema is not vault.bundle/1"));
        }
        let signed = SignedManifest::parse(wire.manifest.get().as_bytes())?;
        let files = wire
            .files
            .into_iter()
            .map(BundledFileWire::open)
            .collect::<Result<Vec<_>, _>>()?;
        // Check the parts already here: callers fetch them before they verify the manifest.
        check_parts(&files)?;
        Ok(Self { signed, files })
    }

    /// The signed envelope of the manifest, not verified yet.
    pub const fn signed_manifest(&self) -> &SignedManifest {
        &self.signed
    }

    /// The parts that [`Bundle::open`] asks for, in order. The caller fetches them before. A part
    /// that occurs twice in the skill is listed twice.
    pub fn part_refs(&self) -> impl Iterator<Item = &PartRef> {
        self.files.iter().flat_map(|file| match &file.content {
            Content::Parts(parts) => parts.as_slice(),
            Content::Text(_) | Content::Base64(_) => &[],
        })
    }

    /// The paths of the files whose content is in parts.
    pub fn paths_in_parts(&self) -> BTreeSet<String> {
        let cut = self.files.iter();
        let cut = cut.filter(|file| matches!(file.content, Content::Parts(_)));
        cut.map(|file| file.path.clone()).collect()
    }

    /// The hashes of the parts that [`Bundle::open`] will ask for.
    pub fn part_hashes(&self) -> Vec<Digest> {
        self.part_refs().map(|part| part.bundle_hash).collect()
    }

    /// Returns the manifest and the files that the bundle itself holds, for a reader that does not
    /// need the parts of large files and expects no particular name. The manifest and these files
    /// are verified as [`Bundle::open`] does; a file in parts comes without bytes.
    pub fn open_without_parts(
        self,
        trust: &ManifestTrust<'_>,
    ) -> Result<(Manifest, Vec<File>), BundleError> {
        let manifest = self.signed.verify_signature(trust)?;
        self.check_paths(&manifest)?;
        let mut files = Vec::with_capacity(self.files.len());
        for (entry, stored) in manifest.files.iter().zip(self.files) {
            let bytes = match stored.content {
                // The rule for cutting files is not checked in this function: it needs the bytes of
                // every file.
                Content::Parts(_) => Vec::new(),
                content => {
                    let bytes = content.decode_content(&entry.path, entry.size, &|_| None)?;
                    check_content(&bytes, entry.size, &entry.sha256, &entry.path)?;
                    bytes
                }
            };
            files.push(File {
                path: entry.path.clone(),
                mode: entry.mode,
                bytes,
            });
        }
        Ok((manifest, files))
    }

    fn check_paths(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let named = manifest.files.iter().map(|entry| entry.path.as_str());
        if named.eq(self.files.iter().map(|file| file.path.as_str())) {
            Ok(())
        } else {
            Err(BundleError::Files)
        }
    }

    /// Verifies the manifest, then every file against it. `parts` returns the bytes of a part
    /// object, or `None` if it is not available.
    pub fn open(
        self,
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
        trust: &ManifestTrust<'_>,
        expected: &ManifestExpectation<'_>,
    ) -> Result<OpenedBundle, BundleError> {
        let manifest = self.signed.verify(trust, expected)?;
        self.check_paths(&manifest)?;
        // Remember which files are cut, because decoding consumes the contents. The check below
        // compares this with the only valid choice.
        let cut: Vec<bool> = self
            .files
            .iter()
            .map(|file| matches!(file.content, Content::Parts(_)))
            .collect();
        let mut files = Vec::with_capacity(self.files.len());
        for (entry, stored) in manifest.files.iter().zip(self.files) {
            let bytes = stored
                .content
                .decode_content(&entry.path, entry.size, parts)?;
            check_content(&bytes, entry.size, &entry.sha256, &entry.path)?;
            files.push(File {
                path: entry.path.clone(),
                mode: entry.mode,
                bytes,
            });
        }
        // Reject a bundle that cuts other files than the writer would: otherwise, one skill could
        // be published under several hashes.
        let entries = encode_entries(self.signed.as_bytes().len(), &files);
        for ((entry, cut), file) in entries.iter().zip(cut).zip(&files) {
            if entry.parts.is_some() != cut {
                return Err(BundleError::Encoding(file.path.to_string()));
            }
        }
        Ok(OpenedBundle {
            manifest,
            signed: self.signed,
            files,
        })
    }
}

/// Computes the SHA-256 of the files of a skill, independent of signer and time: of the list of
/// their paths, sizes, digests and modes, as a manifest writes it, sorted by path. It identifies
/// exactly the content that a person has reviewed before it is signed.
pub fn files_sha256(files: &[File]) -> Digest {
    // The form of a manifest's file list, so that the digest of a signed skill can be computed from
    // its manifest alone.
    let entry = |file: &File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    let mut entries: Vec<FileEntry> = files.iter().map(entry).collect();
    entries.sort_by(|a, b| a.path.as_str().cmp(b.path.as_str()));
    Digest::of(&json::to_bytes(&entries))
}

/// Limits the parts that a reader fetches before the manifest is verified to what any skill may
/// hold.
fn check_parts(files: &[StoredFile]) -> Result<(), BundleError> {
    const FRAME: u64 = 64; // at least the size of the JSON around a part's content
    let most = MAX_FILE_BYTES.div_ceil(PART_BYTES as u64);
    // Parts hold base64, four characters for three bytes.
    let mut left = MAX_SKILL_BYTES.div_ceil(3) * 4;
    for file in files {
        let Content::Parts(parts) = &file.content else {
            continue;
        };
        let wrong = || BundleError::Parts(file.path.clone());
        // The manifest does not cover these sizes. Without the limits, whoever made the bundle
        // could make a client download without end.
        if parts.is_empty() || parts.len() as u64 > most {
            return Err(wrong());
        }
        for part in parts {
            if part.size > MAX_OBJECT_BYTES as u64 {
                return Err(wrong());
            }
            left = left
                .checked_sub(part.size.saturating_sub(FRAME))
                .ok_or_else(wrong)?;
        }
    }
    Ok(())
}

impl Content {
    fn decode_content(
        self,
        path: &FilePath,
        size: u64,
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, BundleError> {
        let wrong_encoding = || BundleError::Encoding(path.to_string());
        match self {
            // One encoding per content: text must not hold U+0000, and base64 must not hold text. A
            // second spelling would give one skill two hashes.
            Self::Text(text) if text.contains('\0') => Err(wrong_encoding()),
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => {
                let mut bytes = Vec::new();
                decode_base64(&text, &mut bytes).ok_or_else(wrong_encoding)?;
                match as_text(&bytes) {
                    Some(_) => Err(wrong_encoding()),
                    None => Ok(bytes),
                }
            }
            Self::Parts(refs) => {
                join_parts(&refs, size, parts).ok_or_else(|| BundleError::Parts(path.to_string()))
            }
        }
    }
}

/// Joins the parts of a file of this size. Returns `None` if a part is missing or is not exactly as
/// expected.
fn join_parts(
    refs: &[PartRef],
    size: u64,
    parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    // The number of parts follows from the size in the manifest, which does not cover the list of
    // parts itself.
    if refs.is_empty() || refs.len() != size.div_ceil(PART_BYTES) {
        return None;
    }
    let mut bytes = Vec::with_capacity(size);
    for part in refs {
        let object = parts(&part.bundle_hash)?;
        let wanted = PART_BYTES.min(size - bytes.len());
        decode_part(&object, part, wanted, &mut bytes)?;
    }
    Some(bytes)
}

/// Checks size and hash of a part object, then appends the bytes that it holds. Their number must
/// be `wanted`.
fn decode_part(object: &[u8], part: &PartRef, wanted: usize, bytes: &mut Vec<u8>) -> Option<()> {
    if object.len() as u64 != part.size
        || object.len() > MAX_OBJECT_BYTES
        || Digest::of(object) != part.bundle_hash
    {
        return None;
    }
    let wire: PartWire<'_> = json::parse(object).ok()?;
    // The length is known from the text, so a part of the wrong length is rejected before it is
    // decoded.
    if wire.schema != PART_SCHEMA || decoded_length(&wire.content) != Some(wanted) {
        return None;
    }
    decode_base64(&wire.content, bytes)
}

#[derive(Deserialize)]
struct BundleWire<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    #[serde(borrow)]
    manifest: &'a RawValue,
    #[serde(borrow)]
    files: Vec<BundledFileWire<'a>>,
}

#[derive(Deserialize)]
struct BundledFileWire<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow)]
    encoding: Cow<'a, str>,
    #[serde(default, deserialize_with = "json::optional")]
    content: Option<String>,
    #[serde(default, deserialize_with = "json::optional")]
    parts: Option<Vec<PartRef>>,
}

#[derive(Deserialize)]
struct PartWire<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

impl BundledFileWire<'_> {
    fn open(self) -> Result<StoredFile, BundleError> {
        let path = self.path.into_owned();
        let content = match (&*self.encoding, self.content, self.parts) {
            ("utf-8", Some(text), None) => Content::Text(text),
            ("base64", Some(text), None) => Content::Base64(text),
            ("parts", None, Some(parts)) => Content::Parts(parts),
            ("utf-8" | "base64" | "parts", ..) => {
                return Err(BundleError::Schema(
                    "a file has either content or parts, as its encoding says",
                ));
            }
            _ => return Err(BundleError::Encoding(path)),
        };
        Ok(StoredFile { path, content })
    }
}
