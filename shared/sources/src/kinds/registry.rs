//! Registries: ClawHub's protocol, with its hand-off to a repository, and the older form `<base>/skills/<slug>[/<version>]/SKILL.md`.

use async_trait::async_trait;
use serde::Deserialize;
use url::Url;
use vault_skill::hash::Digest;
use vault_skill::manifest::SKILL_MD;
use vault_store::fetch::Upstream;
use vault_store::shelf::DriftState;

use super::files::open_all;
use super::repository::Repository;
use super::{Kind, MAX_JSON_BYTES, MAX_SKILL_MD_BYTES, parse_json, plain_file, upstream};
use crate::archive::{self, MAX_DOWNLOAD_BYTES};
use crate::compare::Comparison;
use crate::error::{FetchError, shown};
use crate::fetcher::{Fetcher, Opened};
use crate::git::is_commit;
use crate::policy::SourcePolicy;
use crate::source::{GitSource, ParseOptions, Source};

/// A skill of the registry with ClawHub's protocol.
#[derive(Clone, Copy)]
pub(crate) struct ClawHub<'a> {
    pub(crate) owner: Option<&'a str>,
    pub(crate) slug: &'a str,
    pub(crate) version: Option<&'a str>,
}

/// A skill of a registry of the older form, which serves one file for each.
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

/// The answer for a skill that a repository holds.
#[derive(Deserialize)]
struct HandOff {
    repo: String,
    commit: String,
    path: Option<String>,
}

#[async_trait]
impl Kind for ClawHub<'_> {
    async fn open(&self, fetcher: &Fetcher, policy: &SourcePolicy) -> Result<Opened, FetchError> {
        let api = api_base(fetcher, policy).await?;
        let version = self.resolve(fetcher, &api, policy).await?;
        self.verify(fetcher, &api, &version, policy).await?;
        let mut url = endpoint(&api, &["download"])?;
        url.query_pairs_mut()
            .append_pair("slug", self.slug)
            .append_pair("version", &version);
        let got = fetcher.http.get(&url, MAX_DOWNLOAD_BYTES, policy).await?;
        let got = got.ok_or_else(|| self.missing(Some(&version)))?;
        let owner = self.owner.map(|owner| format!("{owner}/"));
        let identifier = format!(
            "registry:clawhub/{}{}",
            owner.unwrap_or_default(),
            self.slug
        );
        let recorded = Upstream {
            reference: self.version.map(str::to_owned),
            ..upstream(&identifier, version)?
        };
        if got.content_type.contains("json") {
            let hand_off: HandOff = parse_json(&url, &got.body)?;
            let source = hand_off.source(&url, &fetcher.settings.parse)?;
            policy.check(&Source::Git(source.clone()))?;
            let repository = Repository::fetch(fetcher, &source, policy).await?;
            return repository.recorded_as(recorded).open_all().await;
        }
        let files = archive::unpack(url.as_str(), &got.body)?;
        open_all(files, recorded, &format!("clawhub:{}", self.slug))
    }

    async fn compare(&self, comparison: &Comparison<'_>) -> Result<DriftState, FetchError> {
        if self.version.is_some() {
            return Ok(DriftState::UpToDate);
        }
        let (fetcher, policy) = (comparison.fetcher, comparison.policy);
        let api = api_base(fetcher, policy).await?;
        let latest = self.resolve(fetcher, &api, policy).await?;
        Ok(comparison.with_revision(&latest))
    }
}

impl ClawHub<'_> {
    /// The version to fetch: the one that was asked for, else the latest. Fails where the registry blocks the skill or names another owner.
    async fn resolve(
        &self,
        fetcher: &Fetcher,
        api: &Url,
        policy: &SourcePolicy,
    ) -> Result<String, FetchError> {
        let url = endpoint(api, &["skills", self.slug])?;
        let got = fetcher.http.get(&url, MAX_JSON_BYTES, policy).await?;
        let got = got.ok_or_else(|| self.missing(None))?;
        let skill: Skill = parse_json(&url, &got.body)?;
        if skill.moderation.is_some_and(|state| state.blocked) {
            return Err(self.refused("the registry marks it as malware".to_owned()));
        }
        let handle = skill.owner.and_then(|owner| owner.handle);
        if let (Some(asked), Some(handle)) = (self.owner, &handle)
            && !asked.eq_ignore_ascii_case(handle)
        {
            return Err(FetchError::NotFound(format!(
                "clawhub:{} is published by {}, not by {asked}",
                self.slug,
                shown(handle)
            )));
        }
        if let Some(version) = self.version {
            return Ok(version.to_owned());
        }
        let version = skill.latest.map(|latest| latest.version).filter(|version| {
            (1..=100).contains(&version.len())
                && version.bytes().all(|byte| byte.is_ascii_graphic())
        });
        version.ok_or_else(|| FetchError::content(&url, "the skill has no published version"))
    }

    /// Fails where the registry's own check rejects the version. A registry without such a check passes.
    async fn verify(
        &self,
        fetcher: &Fetcher,
        api: &Url,
        version: &str,
        policy: &SourcePolicy,
    ) -> Result<(), FetchError> {
        let mut url = endpoint(api, &["skills", self.slug, "verify"])?;
        url.query_pairs_mut().append_pair("version", version);
        let Some(got) = fetcher.http.get(&url, MAX_JSON_BYTES, policy).await? else {
            return Ok(());
        };
        let verdict: Verdict = parse_json(&url, &got.body)?;
        if verdict.ok != Some(false) {
            return Ok(());
        }
        let reasons = verdict.reasons.iter().take(5);
        let reasons: Vec<String> = reasons
            .map(|reason| match reason.as_str() {
                Some(text) => shown(text),
                None => shown(&reason.to_string()),
            })
            .collect();
        let reasons = reasons.join("; ");
        Err(self.refused(format!("the registry's own check refuses it: {reasons}")))
    }

    fn refused(&self, reason: String) -> FetchError {
        FetchError::Policy {
            place: format!("clawhub:{}", self.slug),
            reason,
        }
    }

    fn missing(&self, version: Option<&str>) -> FetchError {
        let version = version.map(|version| format!(" in version {}", shown(version)));
        FetchError::NotFound(format!(
            "the registry has no skill {}{}",
            self.slug,
            version.unwrap_or_default()
        ))
    }
}

impl HandOff {
    fn source(&self, url: &Url, options: &ParseOptions) -> Result<GitSource, FetchError> {
        if !is_commit(&self.commit) {
            return Err(FetchError::content(
                url,
                "it hands over to a repository without a full commit id",
            ));
        }
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
            Ok(_) => Err(FetchError::content(url, "it hands over to no repository")),
            Err(bad) => Err(FetchError::content(url, bad.to_string())),
        }
    }
}

/// The base of the API: where the discovery document puts it, else the registry's own address.
async fn api_base(fetcher: &Fetcher, policy: &SourcePolicy) -> Result<Url, FetchError> {
    let base = &fetcher.settings.clawhub;
    let address = base
        .join("/.well-known/clawhub.json")
        .map_err(|error| FetchError::content(base, error.to_string()))?;
    let Some(got) = fetcher.http.get(&address, MAX_JSON_BYTES, policy).await? else {
        return Ok(base.clone());
    };
    let discovery: Discovery = parse_json(&address, &got.body)?;
    let Some(text) = discovery.api_base else {
        return Ok(base.clone());
    };
    let url: Url = text
        .parse()
        .map_err(|_| FetchError::content(&address, "its apiBase is no address"))?;
    policy.check_hop(base, &url)?;
    Ok(url)
}

fn endpoint(api: &Url, parts: &[&str]) -> Result<Url, FetchError> {
    let mut url = api.clone();
    url.set_query(None);
    let prefix: &[&str] = if url.path().contains("/api/") {
        &[]
    } else {
        &["api", "v1"]
    };
    url.path_segments_mut()
        .map_err(|()| FetchError::content(api, "it is no base address"))?
        .pop_if_empty()
        .extend(prefix)
        .extend(parts);
    Ok(url)
}

#[async_trait]
impl Kind for FileRegistry<'_> {
    async fn open(&self, fetcher: &Fetcher, policy: &SourcePolicy) -> Result<Opened, FetchError> {
        let base = fetcher.settings.registry.as_ref();
        let base = base.ok_or_else(|| FetchError::Unsupported {
            message: "no registry is set".to_owned(),
            hint: "set VAULT_REGISTRY_URL to its base address".to_owned(),
        })?;
        let host = base.host_str().unwrap_or_default();
        // A recorded identifier has the host before the slug.
        let slug = self.slug.strip_prefix(&format!("{host}/"));
        let slug = slug.unwrap_or(self.slug);
        let mut url = base.clone();
        url.path_segments_mut()
            .map_err(|()| FetchError::content(base, "it is no base address"))?
            .pop_if_empty()
            .push("skills")
            .extend(slug.split('/'))
            .extend(self.version)
            .push(SKILL_MD);
        let got = fetcher.http.fetch(&url, MAX_SKILL_MD_BYTES, policy).await?;
        let revision = match self.version {
            Some(version) => version.to_owned(),
            None => format!("sha256:{}", Digest::of(&got.body)),
        };
        let host = host.trim_matches(['[', ']']).replace(':', "-");
        let upstream = Upstream {
            reference: self.version.map(str::to_owned),
            ..upstream(&format!("registry:{host}/{slug}"), revision)?
        };
        let files = vec![plain_file(SKILL_MD, got.body)];
        open_all(files, upstream, &format!("registry:{}", self.slug))
    }

    async fn compare(&self, comparison: &Comparison<'_>) -> Result<DriftState, FetchError> {
        match self.version {
            Some(_) => Ok(DriftState::UpToDate),
            None => comparison.by_bytes().await,
        }
    }
}
