//! Sites that list their skills under `/.well-known/`: the index of version 0.2.0, whose digests are checked, and the older one without.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use url::Url;
use vault_skill::gate::RawFile;
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::manifest::{Mode, SKILL_MD, SignedManifest};
use vault_store::fetch::{FetchedSkill, SignedSkill, Upstream};
use vault_store::shelf::DriftState;

use super::{Content, Kind, join_url, plain_file, upstream};
use crate::archive::{self, MAX_ARCHIVE_FILES, MAX_DOWNLOAD_BYTES, MAX_UNPACKED_BYTES};
use crate::compare::{Comparison, once};
use crate::error::{FetchError, Result, shown};
use crate::fetcher::{Access, Found, Opened};
use crate::find;
use crate::source::{origin_text, well_known_names};

/// The schema of version 0.2.0, an opaque string.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// The path of the index.
const INDEX: &str = "/.well-known/agent-skills/index.json";
/// The path of the older index.
const OLDER_INDEX: &str = "/.well-known/skills/index.json";
/// Largest index, in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 20;
/// Largest signed manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 2 << 20;

/// The address of a site, and one of its skills.
pub(crate) struct Address<'a> {
    pub(crate) origin: &'a Url,
    pub(crate) skill: Option<&'a str>,
}

/// A site's list of skills.
#[derive(Debug)]
pub(crate) struct Site {
    origin: Url,
    /// The address of the index after all redirects: addresses in it are relative to that.
    base: Url,
    entries: Vec<Entry>,
    notices: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    description: Option<String>,
    artifact: Artifact,
    signed: Option<SignedSkill>,
}

#[derive(Debug)]
enum Artifact {
    SkillMd {
        url: String,
        digest: Digest,
    },
    Archive {
        url: String,
        digest: Digest,
    },
    /// Of the older index: files below the site's folder, without digests.
    Files(Vec<String>),
}

#[derive(Deserialize)]
struct Index {
    #[serde(rename = "$schema")]
    schema: Option<String>,
    #[serde(default)]
    skills: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    description: Option<String>,
    url: Option<String>,
    digest: Option<String>,
    files: Option<Vec<String>>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    /// Under [`vault_store::fetch::SIGNED_META`].
    #[serde(rename = "dev.vault/signed")]
    signed: Option<SignedSkill>,
}

#[async_trait]
impl Kind for Address<'_> {
    async fn open(&self, access: Access<'_>) -> Result<Opened> {
        let mut site = Site::fetch(access, self.origin).await?;
        let wanted = |entry: &&Entry| self.skill.is_none_or(|skill| entry.name == skill);
        let found: Vec<Found> = site
            .entries
            .iter()
            .filter(wanted)
            .map(|entry| Found {
                name: entry.name.clone(),
                folder: entry.name.clone(),
                description: entry.description.clone(),
            })
            .collect();
        if let (Some(skill), true) = (self.skill, found.is_empty()) {
            return Err(site.lacks(skill));
        }
        let notices = std::mem::take(&mut site.notices);
        let mut opened = Opened::new(found, site);
        opened.notices = notices;
        Ok(opened)
    }

    async fn compare(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        let fetch = async {
            let site = Site::fetch(comparison.access, self.origin).await;
            site.map(Arc::new)
        };
        let site = once(&comparison.round.sites, self.origin.to_string(), fetch).await?;
        match &site.entry(self.skill.unwrap_or_default())?.artifact {
            Artifact::SkillMd { digest, .. } | Artifact::Archive { digest, .. } => {
                Ok(comparison.with_revision(&format!("sha256:{digest}")))
            }
            Artifact::Files(_) => comparison.by_bytes().await,
        }
    }
}

/// Whether an index carries digests, and its entries. Fails with the reason for an index of another version.
fn read_index(body: &[u8]) -> Result<(bool, Vec<serde_json::Value>), String> {
    let index: Index = serde_json::from_slice(body)
        .map_err(|error| format!("the index cannot be read: {}", shown(&error.to_string())))?;
    match index.schema.as_deref() {
        Some(SCHEMA) => Ok((true, index.skills)),
        None => Ok((false, index.skills)),
        Some(other) => Err(format!(
            "the index has the schema {}, which is not known",
            shown(other)
        )),
    }
}

impl Entry {
    /// Fails with the reason why an entry of the index is skipped.
    fn parse(value: serde_json::Value, is_pinned: bool) -> Result<Self, String> {
        let listed: Listed = serde_json::from_value(value)
            .map_err(|error| format!("an entry was skipped: {}", shown(&error.to_string())))?;
        let skipped = |why: &str| format!("{} was skipped: {why}", shown(&listed.name));
        let artifact = artifact(is_pinned, &listed).map_err(|why| skipped(&why))?;
        if !is_name(&listed.name) {
            return Err(skipped("it is no name of a skill"));
        }
        Ok(Self {
            artifact,
            name: listed.name,
            description: listed.description,
            signed: listed.meta.and_then(|meta| meta.signed),
        })
    }
}

fn is_name(name: &str) -> bool {
    (1..=256).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && !name.contains(['/', '\\', ':', '?', '#', '@', '%'])
        && !name
            .chars()
            .any(|c| c.is_whitespace() || vault_skill::name::is_deceptive(c))
}

fn artifact(is_pinned: bool, listed: &Listed) -> Result<Artifact, String> {
    if !is_pinned {
        let files = listed.files.clone().ok_or("it lists no files")?;
        if files.len() > MAX_ARCHIVE_FILES || !files.iter().any(|file| file == SKILL_MD) {
            return Err(format!(
                "it lists no {SKILL_MD}, or more than {MAX_ARCHIVE_FILES} files"
            ));
        }
        return Ok(Artifact::Files(files));
    }
    let url = listed.url.clone().ok_or("it has no address")?;
    let digest = listed
        .digest
        .as_deref()
        .and_then(|digest| digest.strip_prefix("sha256:"))
        .and_then(|digest| digest.parse().ok())
        .ok_or("it has no digest of the form sha256:<64 hex>")?;
    match listed.kind.as_deref() {
        Some("skill-md") => Ok(Artifact::SkillMd { url, digest }),
        Some("archive") => Ok(Artifact::Archive { url, digest }),
        other => Err(format!(
            "its type {} is not known",
            shown(other.unwrap_or("nothing"))
        )),
    }
}

impl Site {
    /// Gets and reads a site's index.
    async fn fetch(access: Access<'_>, origin: &Url) -> Result<Self> {
        let (index, older) = (join_url(origin, INDEX)?, join_url(origin, OLDER_INDEX)?);
        let got = match access.get(&index, MAX_INDEX_BYTES).await? {
            Some(got) => Some(got),
            None => access.get(&older, MAX_INDEX_BYTES).await?,
        };
        let got = got.ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} lists no skills: neither {INDEX} nor {OLDER_INDEX} is there",
                origin_text(origin)
            ))
        })?;
        let index = read_index(&got.body);
        let (is_pinned, values) = index.map_err(|why| FetchError::content(&got.url, why))?;
        let mut notices = Vec::new();
        if !is_pinned {
            if access.policy.wants_digests() {
                return Err(FetchError::Policy {
                    place: origin_text(origin),
                    reason: "its index carries no digests (signed_only)".to_owned(),
                });
            }
            notices.push(
                "unpinned: the site's index is of version 0.1.0, which carries no digests"
                    .to_owned(),
            );
        }
        let mut entries = Vec::new();
        for value in values.into_iter().take(find::MAX_SKILLS) {
            match Entry::parse(value, is_pinned) {
                Ok(entry) => entries.push(entry),
                Err(notice) => notices.push(notice),
            }
        }
        Ok(Self {
            origin: origin.clone(),
            base: got.url,
            entries,
            notices,
        })
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.ok_or_else(|| self.lacks(name))
    }

    fn lacks(&self, name: &str) -> FetchError {
        FetchError::NotFound(format!(
            "{} lists no skill named {}",
            origin_text(&self.origin),
            shown(name)
        ))
    }

    /// The files of a skill, and the digest that is recorded of it.
    async fn files_of(&self, access: Access<'_>, entry: &Entry) -> Result<(Vec<RawFile>, Digest)> {
        match &entry.artifact {
            Artifact::SkillMd { url, digest } => {
                let body = self.artifact(access, url, digest).await?;
                Ok((vec![plain_file(SKILL_MD, body)], *digest))
            }
            Artifact::Archive { url, digest } => {
                let body = self.artifact(access, url, digest).await?;
                let files = archive::unpack(url, &body)?;
                if files.iter().any(|file| file.path == SKILL_MD) {
                    Ok((files, *digest))
                } else {
                    let reason = format!("the archive has no {SKILL_MD} at its root");
                    Err(FetchError::content(url, reason))
                }
            }
            Artifact::Files(paths) => {
                let files = self.listed_files(access, entry, paths).await?;
                let digest = content_digest(&files);
                Ok((files, digest))
            }
        }
    }

    /// The signer of a skill and the signed version, verified over exactly these files and the listed name. Fails where the signature is not
    /// valid, and where the policy does not list the signer.
    async fn signature(
        &self,
        access: Access<'_>,
        entry: &Entry,
        signed: &SignedSkill,
        files: &mut [RawFile],
    ) -> Result<(PublicKey, u64)> {
        let key = signed.public_key;
        access
            .policy
            .check_signer(&origin_text(&self.origin), &key)?;
        let at = join_url(&self.base, &signed.manifest)?;
        access.policy.check_hop(&self.origin, &at)?;
        let wrong = |reason: String| FetchError::Signer {
            place: shown(at.as_str()),
            reason,
        };
        let got = access.get(&at, MAX_MANIFEST_BYTES).await?;
        let body = got
            .ok_or_else(|| wrong("it is not there, though the index names it".to_owned()))?
            .body;
        let manifest = SignedManifest::parse(&body)
            .and_then(|envelope| envelope.verify_signature(&[key]))
            .map_err(|error| wrong(error.to_string()))?;
        // A valid signature of another skill proves nothing about this one.
        if manifest.name.as_str() != entry.name {
            return Err(wrong(format!("it is of {}", manifest.name)));
        }
        // A single file comes without its mode, which is signed.
        if let (Artifact::SkillMd { .. }, [only], [signed]) =
            (&entry.artifact, &mut *files, &manifest.files[..])
        {
            only.mode = signed.mode;
        }
        let found = files
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice()));
        manifest
            .compare(found)
            .map_err(|error| wrong(error.to_string()))?;
        Ok((key, manifest.version))
    }

    async fn artifact(&self, access: Access<'_>, url: &str, digest: &Digest) -> Result<Vec<u8>> {
        let at = join_url(&self.base, url)?;
        access.policy.check_hop(&self.origin, &at)?;
        let got = access.fetch(&at, MAX_DOWNLOAD_BYTES).await?;
        let body = got.body;
        // Before anything parses it.
        let found = Digest::of(&body);
        if found != *digest {
            return Err(FetchError::Digest {
                place: shown(at.as_str()),
                wanted: digest.to_string(),
                found: found.to_string(),
            });
        }
        Ok(body)
    }

    /// The files of a skill in an older index, which are below the site's folder.
    async fn listed_files(
        &self,
        access: Access<'_>,
        entry: &Entry,
        paths: &[String],
    ) -> Result<Vec<RawFile>> {
        let mut left = MAX_UNPACKED_BYTES;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let fine = path.split('/').all(|part| {
                !matches!(part, "" | "." | "..") && !part.contains(['\\', '%', '?', '#', '\0'])
            });
            let folder = format!("/.well-known/skills/{}/", entry.name);
            let at = self
                .origin
                .join(&folder)
                .and_then(|folder| folder.join(&format!("./{path}")))
                .ok()
                .filter(|at| fine && at.path().starts_with(&folder))
                .ok_or_else(|| {
                    FetchError::content(
                        &self.base,
                        format!("{} is no path of a skill's file", shown(path)),
                    )
                })?;
            let max = left.min(MAX_DOWNLOAD_BYTES);
            let body = access.fetch(&at, max).await?.body;
            left -= body.len() as u64;
            files.push(plain_file(path, body));
        }
        Ok(files)
    }
}

#[async_trait]
impl Content for Site {
    async fn take(&self, access: Access<'_>, found: &Found) -> Result<FetchedSkill> {
        let entry = self.entry(&found.folder)?;
        access
            .policy
            .check_names(&well_known_names(&self.origin, Some(&entry.name)))?;
        let (mut files, digest) = self.files_of(access, entry).await?;
        let signature = match &entry.signed {
            Some(signed) => Some(self.signature(access, entry, signed, &mut files).await?),
            None => None,
        };
        // Plain HTTP, which only tests use, is recorded as HTTPS with its address beside it.
        let origin = origin_text(&self.origin);
        let plain = origin.strip_prefix("http://");
        let identifier = match plain {
            Some(rest) => format!("wellknown:https://{rest}/{}", entry.name),
            None => format!("wellknown:{origin}/{}", entry.name),
        };
        Ok(FetchedSkill {
            files,
            folder: Some(entry.name.clone()),
            upstream: Upstream {
                address: plain.is_some().then_some(origin.clone()),
                signer: signature.map(|(key, _)| key),
                signed_version: signature.map(|(_, version)| version),
                ..upstream(&identifier, format!("sha256:{digest}"))?
            },
        })
    }

    fn base(&self) -> Option<&str> {
        None
    }
}

/// One digest for a set of files: SHA-256 over a line `<mode> <sha256> <path>` for each, by path. Equal for equal files, wherever they
/// are kept and whoever signed them.
pub fn content_digest(files: &[RawFile]) -> Digest {
    digest_of(
        files
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice())),
    )
}

/// [`content_digest`] of files in any form: path, mode, bytes.
pub fn digest_of<'a>(files: impl Iterator<Item = (&'a str, Mode, &'a [u8])>) -> Digest {
    let mut lines: Vec<(&str, String)> = files
        .map(|(path, mode, bytes)| {
            (
                path,
                format!("{:04o} {} {path}\n", mode.bits(), Digest::of(bytes)),
            )
        })
        .collect();
    lines.sort_unstable();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    Digest::of(text.as_bytes())
}
