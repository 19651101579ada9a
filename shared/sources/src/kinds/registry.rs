//! Registries of skills: ClawHub's protocol, which may refer to a repository, and an older protocol
//! with addresses `<base>/skills/<slug>[/<version>]/SKILL.md`.

use async_trait::async_trait;
use serde::Deserialize;
use url::Url;
use vault_format::hash::Digest;
use vault_format::manifest::SKILL_MD;
use vault_shelf::DriftState;
use vault_shelf::fetch::Upstream;

use super::batch::Comparison;
use super::files::{open_archive, open_files};
use super::repository::Repository;
use super::{
    Kind, MAX_JSON_BYTES, MAX_SKILL_MD_BYTES, fetch_file, join_url, new_upstream, parse_json,
    plain_file,
};
use crate::access::Access;
use crate::archive::{self, MAX_DOWNLOAD_BYTES};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::git::is_commit;
use crate::opened::Opened;
use crate::source::{GitSource, ParseOptions, Source, is_slug};

/// A skill in the registry that speaks ClawHub's protocol.
#[derive(Clone, Copy)]
pub(crate) struct ClawHub<'a> {
    pub(crate) owner: Option<&'a str>,
    pub(crate) slug: &'a str,
    pub(crate) version: Option<&'a str>,
}

/// A skill in a registry that speaks the older protocol, which serves only a SKILL.md per skill.
pub(crate) struct FileRegistry<'a> {
    pub(crate) slug: &'a str,
    pub(crate) version: Option<&'a str>,
}

#[derive(Deserialize)]
struct Discovery {
    #[serde(rename = "apiBase")]
    api_base: Option<String>,
}

#[derive(Deserialize)]
struct Skill {
    #[serde(rename = "latestVersion")]
    latest: Option<Version>,
    owner: Option<Owner>,
    moderation: Option<Moderation>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Owner {
    handle: Option<String>,
}

#[derive(Deserialize)]
struct Moderation {
    #[serde(rename = "isMalwareBlocked", default)]
    blocked: bool,
}

#[derive(Deserialize)]
struct Verdict {
    ok: Option<bool>,
    #[serde(default)]
    reasons: Vec<serde_json::Value>,
}

/// The registry's response for a skill that lives in a repository.
#[derive(Deserialize)]
struct HandOff {
    repo: String,
    commit: String,
    path: Option<String>,
}

#[async_trait]
impl Kind for ClawHub<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let api = api_base(access).await?;
        let (version, publisher) = self.resolve_version(access, &api).await?;
        self.check_verdict(access, &api, &version).await?;
        let mut url = api_endpoint(&api, &["download"])?;
        url.query_pairs_mut()
            .append_pair("slug", self.slug)
            .append_pair("version", &version);
        let got = access.fetch_if_found(&url, MAX_DOWNLOAD_BYTES).await?;
        let got = got.ok_or_else(|| self.missing_error(Some(&version)))?;
        // Record the publisher even if the user named none: a later owner of the slug must not be
        // able to update the skill.
        let owner = self.owner.map(str::to_owned).or(publisher);
        let owner = owner.map(|owner| format!("{owner}/"));
        let identifier = format!(
            "registry:clawhub/{}{}",
            owner.unwrap_or_default(),
            self.slug
        );
        let recorded = Upstream {
            reference: self.version.map(str::to_owned),
            ..new_upstream(&identifier, version)?
        };
        // If the answer is JSON and not an archive, it refers to a commit of a repository.
        if got.content_type.contains("json") {
            let hand_off: HandOff = parse_json(&url, &got.body)?;
            let source = hand_off.git_source(&url, &access.fetcher.settings.parse)?;
            // The repository is another source than the registry, so the policy decides again.
            access.policy.check_source(&Source::Git(source.clone()))?;
            let repository = Repository::fetch_repository(access, &source).await?;
            return repository.recorded_as(recorded).open_all().await;
        }
        let unpacked = archive::unpack_archive(url.as_str(), got.body).await?;
        open_archive(unpacked, recorded, &format!("clawhub:{}", self.slug)).await
    }

    async fn compare_state(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        // A published version does not change.
        if self.version.is_some() {
            return Ok(DriftState::UpToDate);
        }
        let access = comparison.access;
        let api = api_base(access).await?;
        let (latest, _) = self.resolve_version(access, &api).await?;
        Ok(comparison.compare_revision(&latest))
    }
}

impl ClawHub<'_> {
    /// Returns the version to fetch (the requested one, or else the latest) and the publisher that
    /// the registry names. Fails if the registry blocks the skill as malware or names another
    /// publisher than the requested one.
    async fn resolve_version(
        &self,
        access: Access<'_>,
        api: &Url,
    ) -> Result<(String, Option<String>)> {
        let url = api_endpoint(api, &["skills", self.slug])?;
        let got = access.fetch_if_found(&url, MAX_JSON_BYTES).await?;
        let got = got.ok_or_else(|| self.missing_error(None))?;
        let skill: Skill = parse_json(&url, &got.body)?;
        if skill.moderation.is_some_and(|state| state.blocked) {
            return Err(self.policy_error("the registry marks it as malware".to_owned()));
        }
        let handle = skill.owner.and_then(|owner| owner.handle);
        // The slug may belong to another publisher by now, so a given owner must match. Patterns of
        // the policy name owners too, so an answer without one does not count as a match.
        if let Some(asked) = self.owner {
            let slug = self.slug;
            let fault = match &handle {
                Some(handle) if asked.eq_ignore_ascii_case(handle) => None,
                Some(handle) => Some(format!(
                    "clawhub:{slug} is published by {}, not by {asked}",
                    escape_untrusted(handle)
                )),
                None => Some(format!(
                    "the registry names no publisher of clawhub:{slug}, so it is not known to be \
                     {asked}'s"
                )),
            };
            if let Some(fault) = fault {
                return Err(FetchError::NotFound(fault));
            }
        }
        let publisher = handle
            .map(|handle| handle.to_ascii_lowercase())
            .filter(|handle| is_slug(handle));
        if let Some(version) = self.version {
            return Ok((version.to_owned(), publisher));
        }
        // The version becomes part of an address and of the record.
        let version = skill.latest.map(|latest| latest.version).filter(|version| {
            (1..=100).contains(&version.len())
                && version.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let version = version
            .ok_or_else(|| FetchError::content_error(&url, "the skill has no published version"))?;
        Ok((version, publisher))
    }

    /// Fails if the registry's own check rejects the version. Succeeds if the registry has no such
    /// check.
    async fn check_verdict(&self, access: Access<'_>, api: &Url, version: &str) -> Result<()> {
        let mut url = api_endpoint(api, &["skills", self.slug, "verify"])?;
        url.query_pairs_mut().append_pair("version", version);
        let Some(got) = access.fetch_if_found(&url, MAX_JSON_BYTES).await? else {
            return Ok(());
        };
        let verdict: Verdict = parse_json(&url, &got.body)?;
        if verdict.ok != Some(false) {
            return Ok(());
        }
        let reasons = verdict.reasons.iter().take(5);
        let reasons: Vec<String> = reasons
            .map(|reason| match reason.as_str() {
                Some(text) => escape_untrusted(text),
                None => escape_untrusted(&reason.to_string()),
            })
            .collect();
        let reasons = reasons.join("; ");
        Err(self.policy_error(format!("the registry's own scan refuses it: {reasons}")))
    }

    fn policy_error(&self, reason: String) -> FetchError {
        FetchError::Policy {
            place: format!("clawhub:{}", self.slug),
            reason,
        }
    }

    fn missing_error(&self, version: Option<&str>) -> FetchError {
        let version = version.map(|version| format!(" in version {}", escape_untrusted(version)));
        FetchError::NoSkill(format!(
            "the registry has no skill {}{}",
            self.slug,
            version.unwrap_or_default()
        ))
    }
}

impl HandOff {
    fn git_source(&self, url: &Url, options: &ParseOptions) -> Result<GitSource> {
        if !is_commit(&self.commit) {
            return Err(FetchError::content_error(
                url,
                "it points to a repository without a full commit id",
            ));
        }
        // The registry gives the repository as an address or as `owner/name`.
        let repository = self
            .repo
            .trim_start_matches("https://github.com/")
            .trim_end_matches(".git");
        let text = format!("github:{repository}#{}", self.commit);
        let source = Source::parse(&text, options, &|_| false);
        let path = self.path.as_deref().map(|path| path.trim_matches('/'));
        let source = source.and_then(|source| match path {
            None | Some("" | ".") => Ok(source),
            Some(path) => source.with_path(path.strip_suffix("/SKILL.md").unwrap_or(path)),
        });
        match source {
            Ok(Source::Git(source)) => Ok(source),
            Ok(_) => Err(FetchError::content_error(url, "it points to no repository")),
            Err(bad) => Err(FetchError::content_error(url, bad.to_string())),
        }
    }
}

/// Returns the base address of the API: `apiBase` of the discovery document, or else the registry's
/// own address.
pub(super) async fn api_base(access: Access<'_>) -> Result<Url> {
    let base = &access.fetcher.settings.clawhub;
    let address = join_url(base, "/.well-known/clawhub.json")?;
    let Some(got) = access.fetch_if_found(&address, MAX_JSON_BYTES).await? else {
        return Ok(base.clone());
    };
    let discovery: Discovery = parse_json(&address, &got.body)?;
    let Some(text) = discovery.api_base else {
        return Ok(base.clone());
    };
    let url: Url = text
        .parse()
        .map_err(|_| FetchError::content_error(&address, "its apiBase is not an address"))?;
    // The discovery document may name another host, which the policy must allow like the target of
    // a redirect.
    access.policy.check_redirect(base, &url)?;
    Ok(url)
}

pub(super) fn api_endpoint(api: &Url, parts: &[&str]) -> Result<Url> {
    let mut url = api.clone();
    url.set_query(None);
    // A base address without an API path gets the default one.
    let prefix: &[&str] = if url.path().contains("/api/") {
        &[]
    } else {
        &["api", "v1"]
    };
    url.path_segments_mut()
        .map_err(|()| FetchError::content_error(api, "it is not a base address"))?
        .pop_if_empty()
        .extend(prefix)
        .extend(parts);
    Ok(url)
}

#[async_trait]
impl Kind for FileRegistry<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let base = access.fetcher.settings.registry.as_ref();
        let base = base.ok_or_else(|| FetchError::Unsupported {
            message: "no registry is set".to_owned(),
            hint: "set VAULT_REGISTRY_URL to its base address".to_owned(),
        })?;
        let host = base.host_str().unwrap_or_default();
        // A recorded identifier contains the host before the slug.
        let slug = self.slug.strip_prefix(&format!("{host}/"));
        let slug = slug.unwrap_or(self.slug);
        let mut url = base.clone();
        url.path_segments_mut()
            .map_err(|()| FetchError::content_error(base, "it is not a base address"))?
            .pop_if_empty()
            .push("skills")
            .extend(slug.split('/'))
            .extend(self.version)
            .push(SKILL_MD);
        let body = fetch_file(access, &url, MAX_SKILL_MD_BYTES).await?;
        let revision = match self.version {
            Some(version) => version.to_owned(),
            None => format!("sha256:{}", Digest::of(&body)),
        };
        // The host in an identifier must not contain colons, so an IPv6 address needs another form.
        let host = host.trim_matches(['[', ']']).replace(':', "-");
        let upstream = Upstream {
            reference: self.version.map(str::to_owned),
            ..new_upstream(&format!("registry:{host}/{slug}"), revision)?
        };
        let files = vec![plain_file(SKILL_MD, body)];
        open_files(files, upstream, &format!("registry:{}", self.slug)).await
    }

    async fn compare_state(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        match self.version {
            Some(_) => Ok(DriftState::UpToDate),
            None => comparison.by_fetching().await,
        }
    }
}
