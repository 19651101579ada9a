//! The index of a site under `/.well-known/`: version 0.2.0 with digests, and the older version
//! without.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;
use vault_format::hash::Digest;
use vault_format::manifest::{MAX_FILES, SKILL_MD};
use vault_gate::is_document_name;
use vault_gate::skill_folders::{LeftOut, LeftOutReason};
use vault_shelf::fetch::SignedSkill;

use super::{join_url, parse_object};
use crate::access::Access;
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find;
use crate::http::FetchedBody;
use crate::source::origin_text;

/// The schema identifier of version 0.2.0. It is compared as a string and never fetched.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// The path of the index, below that of the site.
const INDEX: &str = "/.well-known/agent-skills/index.json";
/// The path of the older index, below that of the site.
const OLDER_INDEX: &str = "/.well-known/skills/index.json";
/// Maximum size of an index, in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 20;

/// The parsed index of a site.
#[derive(Debug)]
pub(crate) struct Site {
    /// The address of the site, with its path.
    pub(super) origin: Url,
    /// The URL of the index after all redirects. Addresses in the index are relative to it.
    pub(super) base: Url,
    pub(super) entries: Vec<SiteEntry>,
    /// The entries that cannot be used, with the reasons.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) notices: Vec<String>,
}

#[derive(Debug)]
pub(super) struct SiteEntry {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) artifact: Artifact,
    pub(super) signed: Option<SignedSkill>,
}

#[derive(Debug)]
pub(super) enum Artifact {
    SkillMd {
        url: String,
        digest: Digest,
    },
    Archive {
        url: String,
        digest: Digest,
    },
    /// An entry of the older index: paths of files in the skill's folder beside the index, without
    /// digests.
    Files(Vec<String>),
}

#[derive(Deserialize)]
struct Index {
    #[serde(rename = "$schema")]
    schema: Option<String>,
    /// The entries are not parsed yet, so that one faulty entry does not hide the others and a
    /// repeated member is found.
    #[serde(default)]
    skills: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct IndexItem {
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
    /// The JSON key is [`vault_shelf::fetch::SIGNED_META`].
    #[serde(rename = "dev.vault/signed")]
    signed: Option<SignedSkill>,
}

/// Parses an index. Returns whether it contains digests, and its entries. Fails with the reason if
/// its version is unknown.
fn parse_index(body: &[u8]) -> Result<(bool, Vec<Box<RawValue>>), String> {
    let index: Index =
        parse_object(body).map_err(|why| format!("the index cannot be read: {why}"))?;
    match index.schema.as_deref() {
        Some(SCHEMA) => Ok((true, index.skills)),
        None => Ok((false, index.skills)),
        Some(other) => Err(format!(
            "the index has the schema {}, which is not known",
            escape_untrusted(other)
        )),
    }
}

impl SiteEntry {
    /// Parses an entry. `is_pinned` means that the index contains digests. Fails with the name and
    /// the reason for leaving the entry out.
    fn parse(value: &RawValue, is_pinned: bool) -> Result<Self, (Option<String>, String)> {
        let listed: IndexItem = parse_object(value.get().as_bytes()).map_err(|why| (None, why))?;
        let artifact =
            parse_artifact(is_pinned, &listed).map_err(|why| (Some(listed.name.clone()), why))?;
        if !is_name(&listed.name) {
            let reason = "it is not the name of a skill".to_owned();
            return Err((Some(listed.name), reason));
        }
        Ok(Self {
            artifact,
            name: listed.name,
            description: listed.description,
            signed: listed.meta.and_then(|meta| meta.signed),
        })
    }
}

/// Parses the entries of an index. One faulty entry does not hide the others.
fn parse_entries(values: &[Box<RawValue>], is_pinned: bool) -> (Vec<SiteEntry>, Vec<LeftOut>) {
    let mut entries: Vec<SiteEntry> = Vec::new();
    let mut left_out = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let bad_entry = |path, why| LeftOut::new(path, LeftOutReason::BadEntry(why));
    for (number, value) in values.iter().enumerate() {
        match SiteEntry::parse(value, is_pinned) {
            Ok(entry) => {
                *names.entry(entry.name.clone()).or_default() += 1;
                entries.push(entry);
            }
            Err((name, why)) => {
                let path = name.unwrap_or_else(|| format!("entry {}", number + 1));
                left_out.push(bad_entry(path, why));
            }
        }
    }
    // Tools differ in which of two entries with one name they use, so use neither. Each is
    // reported.
    names.retain(|_, number| *number > 1);
    entries.retain(|entry| !names.contains_key(&entry.name));
    for (name, number) in names {
        let again = bad_entry(name, "the index lists it twice".to_owned());
        left_out.extend(std::iter::repeat_n(again, number));
    }
    (entries, left_out)
}

fn is_name(name: &str) -> bool {
    // The name becomes part of addresses and identifiers, so reject characters with a meaning
    // there.
    (1..=256).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && !name.contains(['/', '\\', ':', '?', '#', '@', '%'])
        && !name
            .chars()
            .any(|c| c.is_whitespace() || vault_format::name::is_deceptive(c))
}

fn parse_artifact(is_pinned: bool, listed: &IndexItem) -> Result<Artifact, String> {
    if !is_pinned {
        let files = listed.files.clone().ok_or("it lists no files")?;
        if files.len() > MAX_FILES || !files.iter().any(|file| is_document_name(file)) {
            return Err(format!(
                "it lists no {SKILL_MD}, or more than {MAX_FILES} files"
            ));
        }
        let mut paths = HashSet::new();
        if let Some(twice) = files.iter().find(|file| !paths.insert(file.as_str())) {
            return Err(format!("it lists {} twice", escape_untrusted(twice)));
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
            escape_untrusted(other.unwrap_or("nothing"))
        )),
    }
}

impl Site {
    /// Fetches and parses the index of a site. Fails if the site has none.
    pub(super) async fn fetch_index(access: Access<'_>, origin: &Url) -> Result<Self> {
        let got = Self::find_index(access, origin).await?;
        let got = got.ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} lists no skills: neither {INDEX} nor {OLDER_INDEX} is there",
                origin_text(origin)
            ))
        })?;
        Self::read_index(access, origin, got)
    }

    /// Fetches the index of a site. Returns `None` if it has none.
    pub(super) async fn find_index(
        access: Access<'_>,
        origin: &Url,
    ) -> Result<Option<FetchedBody>> {
        let below = |path: &str| join_url(origin, &format!(".{path}"));
        // Use the older index only if the newer one does not exist.
        match access
            .fetch_if_found(&below(INDEX)?, MAX_INDEX_BYTES)
            .await?
        {
            Some(got) => Ok(Some(got)),
            None => {
                access
                    .fetch_if_found(&below(OLDER_INDEX)?, MAX_INDEX_BYTES)
                    .await
            }
        }
    }

    pub(super) fn read_index(access: Access<'_>, origin: &Url, got: FetchedBody) -> Result<Self> {
        let index = parse_index(&got.body);
        let (is_pinned, values) = index.map_err(|why| FetchError::content_error(&got.url, why))?;
        let mut notices = Vec::new();
        if !is_pinned {
            // `signed_only` demands that the index fixes the content, and only an index with
            // digests does.
            if access.policy.wants_digests() {
                return Err(FetchError::Policy {
                    place: origin_text(origin),
                    reason: "its index has no digests (signed_only)".to_owned(),
                });
            }
            notices.push(
                "unpinned: the site's index is of version 0.1.0, which has no digests".to_owned(),
            );
        }
        find::check_number(&origin_text(origin), values.len())?;
        let (entries, left_out) = parse_entries(&values, is_pinned);
        if entries.is_empty() {
            let site = origin_text(origin);
            let why = left_out.last().map(|left| {
                let LeftOut { path, reason } = left;
                format!("{}: {reason}", escape_untrusted(path))
            });
            let why = why.unwrap_or_else(|| "its index is empty".to_owned());
            let text = format!("{site} has an index without a usable skill: {why}");
            return Err(if left_out.is_empty() {
                FetchError::NoSkill(text)
            } else {
                FetchError::NotFound(text)
            });
        }
        Ok(Self {
            origin: origin.clone(),
            base: got.url,
            entries,
            left_out,
            notices,
        })
    }

    pub(super) fn find_entry(&self, name: &str) -> Result<&SiteEntry> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.ok_or_else(|| self.missing_skill_error(name))
    }

    pub(super) fn missing_skill_error(&self, name: &str) -> FetchError {
        let site = origin_text(&self.origin);
        let shown = escape_untrusted(name);
        let mut left_out = self.left_out.iter();
        match left_out.find(|left| left.path == name) {
            Some(left) => FetchError::NotFound(format!(
                "{shown} of {site} cannot be taken: {}",
                left.reason
            )),
            None => FetchError::NoSkill(format!("{site} lists no skill named {shown}")),
        }
    }
}
