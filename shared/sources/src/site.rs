//! Sites that list their skills under `/.well-known/`: the index of version 0.2.0, whose digests are checked, and the older one without.

use serde::Deserialize;
use url::Url;
use vault_skill::gate::RawFile;
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::manifest::{Mode, SKILL_MD, SignedManifest};
use vault_store::fetch::{FetchedSkill, SignedSkill, Upstream};

use crate::archive::{self, MAX_ARCHIVE_FILES, MAX_DOWNLOAD_BYTES, MAX_UNPACKED_BYTES};
use crate::error::{FetchError, shown};
use crate::fetcher::{Fetcher, Found, parse_identifier, plain};
use crate::find;
use crate::policy::SourcePolicy;
use crate::source::{origin_text, well_known_names};

/// The schema of version 0.2.0; compared as it stands.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// Where the index stands.
const INDEX: &str = "/.well-known/agent-skills/index.json";
/// Where it stood before.
const OLDER_INDEX: &str = "/.well-known/skills/index.json";
/// Largest index, in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 20;
/// Largest signed manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 2 << 20;

/// A site's list of skills.
#[derive(Debug)]
pub(crate) struct Site {
    origin: Url,
    /// Where the index came from in the end: addresses in it are relative to that.
    base: Url,
    entries: Vec<Entry>,
    pub(crate) notices: Vec<String>,
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

/// Gets and reads a site's index.
pub(crate) async fn open(
    fetcher: &Fetcher,
    origin: &Url,
    policy: &SourcePolicy,
) -> Result<Site, FetchError> {
    let at = |path| {
        origin
            .join(path)
            .map_err(|error| FetchError::content(origin, error.to_string()))
    };
    let (new, old) = (at(INDEX)?, at(OLDER_INDEX)?);
    let got = match fetcher.http.get(&new, MAX_INDEX_BYTES, policy).await? {
        Some(got) => got,
        None => fetcher
            .http
            .get(&old, MAX_INDEX_BYTES, policy)
            .await?
            .ok_or_else(|| {
                FetchError::NotFound(format!(
                    "{} lists no skills: neither {INDEX} nor {OLDER_INDEX} is there",
                    origin_text(origin)
                ))
            })?,
    };
    let broken = |reason: String| FetchError::content(&got.url, reason);
    let index: Index = serde_json::from_slice(&got.body).map_err(|error| {
        broken(format!(
            "the index cannot be read: {}",
            shown(&error.to_string())
        ))
    })?;
    if let Some(schema) = index.schema.as_deref().filter(|schema| *schema != SCHEMA) {
        return Err(broken(format!(
            "the index has the schema {}, which is not known",
            shown(schema)
        )));
    }
    let pinned = index.schema.is_some();
    if !pinned && policy.wants_digests() {
        return Err(FetchError::Policy {
            place: origin_text(origin),
            reason: "its index carries no digests (signed_only)".to_owned(),
        });
    }
    let mut site = Site {
        origin: origin.clone(),
        base: got.url.clone(),
        entries: Vec::new(),
        notices: Vec::new(),
    };
    if !pinned {
        site.notices.push(
            "unpinned: the site's index is of version 0.1.0, which carries no digests".to_owned(),
        );
    }
    for value in index.skills.into_iter().take(find::MAX_SKILLS) {
        let listed: Listed = match serde_json::from_value(value) {
            Ok(listed) => listed,
            Err(error) => {
                site.notices.push(format!(
                    "an entry was skipped: {}",
                    shown(&error.to_string())
                ));
                continue;
            }
        };
        let name = listed.name.clone();
        match artifact(pinned, listed.kind.as_deref(), &listed) {
            Ok(artifact) if is_name(&name) => site.entries.push(Entry {
                name,
                description: listed.description,
                artifact,
                signed: listed.meta.and_then(|meta| meta.signed),
            }),
            Ok(_) => site.notices.push(format!(
                "{} was skipped: it is no name of a skill",
                shown(&name)
            )),
            Err(why) => site
                .notices
                .push(format!("{} was skipped: {why}", shown(&name))),
        }
    }
    Ok(site)
}

fn is_name(name: &str) -> bool {
    (1..=256).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && !name.contains(['/', '\\', ':', '?', '#', '@', '%'])
        && !name
            .chars()
            .any(|c| c.is_whitespace() || vault_skill::name::is_deceptive(c))
}

fn artifact(pinned: bool, kind: Option<&str>, listed: &Listed) -> Result<Artifact, String> {
    if !pinned {
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
    match kind {
        Some("skill-md") => Ok(Artifact::SkillMd { url, digest }),
        Some("archive") => Ok(Artifact::Archive { url, digest }),
        other => Err(format!(
            "its type {} is not known",
            shown(other.unwrap_or("nothing"))
        )),
    }
}

impl Site {
    pub(crate) fn found(&self) -> Vec<Found> {
        self.entries
            .iter()
            .map(|entry| Found {
                name: entry.name.clone(),
                folder: entry.name.clone(),
                description: entry.description.clone(),
            })
            .collect()
    }

    fn entry(&self, name: &str) -> Result<&Entry, FetchError> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| {
                FetchError::NotFound(format!(
                    "{} lists no skill named {}",
                    origin_text(&self.origin),
                    shown(name)
                ))
            })
    }

    /// The digest that the index gives for a skill, `sha256:` before it; `None` in the older form.
    pub(crate) fn digest(&self, name: &str) -> Result<Option<String>, FetchError> {
        Ok(match &self.entry(name)?.artifact {
            Artifact::SkillMd { digest, .. } | Artifact::Archive { digest, .. } => {
                Some(format!("sha256:{digest}"))
            }
            Artifact::Files(_) => None,
        })
    }

    pub(crate) async fn take(
        &self,
        fetcher: &Fetcher,
        found: &Found,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill, FetchError> {
        let entry = self.entry(&found.folder)?;
        policy.check_names(&well_known_names(&self.origin, Some(&entry.name)))?;
        let (mut files, revision) = match &entry.artifact {
            Artifact::SkillMd { url, digest } => {
                let body = self.artifact(fetcher, url, digest, policy).await?;
                (vec![plain(SKILL_MD, body)], format!("sha256:{digest}"))
            }
            Artifact::Archive { url, digest } => {
                let body = self.artifact(fetcher, url, digest, policy).await?;
                let files = archive::unpack(url, &body)?;
                if !files.iter().any(|file| file.path == SKILL_MD) {
                    return Err(FetchError::content(
                        url,
                        format!("the archive has no {SKILL_MD} at its root"),
                    ));
                }
                (files, format!("sha256:{digest}"))
            }
            Artifact::Files(files) => {
                let files = self.files(fetcher, &entry.name, files, policy).await?;
                let revision = format!("sha256:{}", content_digest(&files));
                (files, revision)
            }
        };
        let signature = match &entry.signed {
            Some(signed) => Some(
                self.signature(fetcher, entry, signed, policy, &mut files)
                    .await?,
            ),
            None => None,
        };
        let origin = origin_text(&self.origin);
        let plain_origin = origin.strip_prefix("http://");
        let identifier = match plain_origin {
            Some(rest) => format!("wellknown:https://{rest}/{}", entry.name),
            None => format!("wellknown:{origin}/{}", entry.name),
        };
        Ok(FetchedSkill {
            files,
            folder: Some(entry.name.clone()),
            upstream: Upstream {
                identifier: parse_identifier(&identifier)?,
                address: plain_origin.is_some().then_some(origin),
                path: None,
                reference: None,
                revision: Some(revision),
                tree: None,
                signer: signature.map(|(key, _)| key),
                signed_version: signature.map(|(_, version)| version),
            },
        })
    }

    /// Whose signature the skill carries, and at which version: verified over exactly these files, under the name that the site lists. Fails
    /// where the site claims one that is not good, and where the policy does not know the signer.
    async fn signature(
        &self,
        fetcher: &Fetcher,
        entry: &Entry,
        signed: &SignedSkill,
        policy: &SourcePolicy,
        files: &mut [RawFile],
    ) -> Result<(PublicKey, u64), FetchError> {
        let key = signed.public_key;
        policy.check_signer(&origin_text(&self.origin), &key)?;
        let at = self
            .base
            .join(&signed.manifest)
            .map_err(|error| FetchError::content(&signed.manifest, error.to_string()))?;
        policy.check_hop(&self.origin, &at)?;
        let wrong = |reason: String| FetchError::Signer {
            place: shown(at.as_str()),
            reason,
        };
        let got = fetcher.http.get(&at, MAX_MANIFEST_BYTES, policy).await?;
        let body = got
            .ok_or_else(|| wrong("it is not there, though the index names it".to_owned()))?
            .body;
        let manifest = SignedManifest::parse(&body)
            .and_then(|envelope| envelope.verify_signature(&[key]))
            .map_err(|error| wrong(error.to_string()))?;
        // A good skill under another's name is another skill.
        if manifest.name.as_str() != entry.name {
            return Err(wrong(format!("it is of {}", manifest.name)));
        }
        // One file by itself comes without its mode; the signature knows it.
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

    async fn artifact(
        &self,
        fetcher: &Fetcher,
        url: &str,
        digest: &Digest,
        policy: &SourcePolicy,
    ) -> Result<Vec<u8>, FetchError> {
        let at = self
            .base
            .join(url)
            .map_err(|error| FetchError::content(url, error.to_string()))?;
        policy.check_hop(&self.origin, &at)?;
        let got = fetcher.http.get(&at, MAX_DOWNLOAD_BYTES, policy).await?;
        let body = got
            .ok_or_else(|| {
                FetchError::NotFound(format!("{at} is not there, though the index names it"))
            })?
            .body;
        // Before anything looks into it.
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

    async fn files(
        &self,
        fetcher: &Fetcher,
        name: &str,
        paths: &[String],
        policy: &SourcePolicy,
    ) -> Result<Vec<RawFile>, FetchError> {
        let mut left = MAX_UNPACKED_BYTES;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let fine = path.split('/').all(|part| {
                !matches!(part, "" | "." | "..") && !part.contains(['\\', '%', '?', '#', '\0'])
            });
            let folder = format!("/.well-known/skills/{name}/");
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
            let got = fetcher
                .http
                .get(&at, left.min(MAX_DOWNLOAD_BYTES), policy)
                .await?;
            let body = got
                .ok_or_else(|| {
                    FetchError::NotFound(format!("{at} is not there, though the index names it"))
                })?
                .body;
            left -= body.len() as u64;
            files.push(RawFile {
                path: path.clone(),
                mode: Mode::Plain,
                bytes: body,
            });
        }
        Ok(files)
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
