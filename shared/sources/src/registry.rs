//! Registries: ClawHub's protocol, with its hand-off to a repository, and the older form `<base>/skills/<slug>[/<version>]/SKILL.md`.

use serde::Deserialize;
use url::Url;
use vault_skill::gate::RawFile;
use vault_skill::hash::Digest;
use vault_skill::manifest::SKILL_MD;

use crate::archive::{self, MAX_DOWNLOAD_BYTES};
use crate::error::{FetchError, shown};
use crate::fetcher::{Fetcher, plain};
use crate::git::is_commit;
use crate::policy::SourcePolicy;
use crate::source::{GitSource, Source};

/// Largest answer in JSON, in bytes.
pub(crate) const MAX_JSON_BYTES: u64 = 1 << 20;

/// A skill of a registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) owner: Option<&'a str>,
    pub(crate) slug: &'a str,
    pub(crate) version: Option<&'a str>,
}

/// What is recorded of a skill that came by way of a registry.
#[derive(Clone, Debug)]
pub(crate) struct HandOff {
    pub(crate) identifier: String,
    pub(crate) reference: Option<String>,
    pub(crate) version: String,
}

/// What a registry gives.
pub(crate) enum Answer {
    Archive {
        files: Vec<RawFile>,
        hand_off: HandOff,
    },
    Repository {
        source: GitSource,
        hand_off: HandOff,
    },
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
struct Verify {
    ok: Option<bool>,
    #[serde(default)]
    reasons: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Repository {
    repo: String,
    commit: String,
    path: Option<String>,
}

/// Asks the registry for a skill.
pub(crate) async fn clawhub(
    fetcher: &Fetcher,
    wanted: &Wanted<'_>,
    policy: &SourcePolicy,
) -> Result<Answer, FetchError> {
    let api = api(fetcher, policy).await?;
    let version = version(fetcher, &api, wanted, policy).await?;
    verify(fetcher, &api, wanted, &version, policy).await?;
    let mut url = at(&api, &["download"])?;
    url.query_pairs_mut()
        .append_pair("slug", wanted.slug)
        .append_pair("version", &version);
    let got = fetcher.http.get(&url, MAX_DOWNLOAD_BYTES, policy).await?;
    let got = got.ok_or_else(|| missing(wanted, Some(&version)))?;
    let owner = wanted
        .owner
        .map(|owner| format!("{owner}/"))
        .unwrap_or_default();
    let hand_off = HandOff {
        identifier: format!("registry:clawhub/{owner}{}", wanted.slug),
        reference: wanted.version.map(str::to_owned),
        version,
    };
    if !got.content_type.contains("json") {
        let files = archive::unpack(url.as_str(), &got.body)?;
        return Ok(Answer::Archive { files, hand_off });
    }
    let place: Repository = json(&url, &got.body)?;
    if !is_commit(&place.commit) {
        return Err(FetchError::content(
            &url,
            "it hands over to a repository without a full commit id",
        ));
    }
    let repository = place
        .repo
        .trim_start_matches("https://github.com/")
        .trim_end_matches(".git");
    let options = &fetcher.settings.parse;
    let source = Source::parse(
        &format!("github:{repository}#{}", place.commit),
        options,
        &|_| false,
    );
    let source =
        source.and_then(
            |source| match place.path.as_deref().map(|path| path.trim_matches('/')) {
                None | Some("" | ".") => Ok(source),
                Some(path) => source.with_path(path.strip_suffix("/SKILL.md").unwrap_or(path)),
            },
        );
    match source {
        Ok(Source::Git(source)) => Ok(Answer::Repository { source, hand_off }),
        Ok(_) => Err(FetchError::content(&url, "it hands over to no repository")),
        Err(bad) => Err(FetchError::content(&url, bad.to_string())),
    }
}

/// The version that a registry would give out now.
pub(crate) async fn latest(
    fetcher: &Fetcher,
    wanted: &Wanted<'_>,
    policy: &SourcePolicy,
) -> Result<String, FetchError> {
    let api = api(fetcher, policy).await?;
    version(fetcher, &api, wanted, policy).await
}

/// The base of the interface: as the site says, else below the site itself.
async fn api(fetcher: &Fetcher, policy: &SourcePolicy) -> Result<Url, FetchError> {
    let base = &fetcher.settings.clawhub;
    let discovery = base
        .join("/.well-known/clawhub.json")
        .map_err(|error| FetchError::content(base, error.to_string()))?;
    let Some(got) = fetcher.http.get(&discovery, MAX_JSON_BYTES, policy).await? else {
        return Ok(base.clone());
    };
    let said: Discovery = json(&discovery, &got.body)?;
    match said.api_base {
        None => Ok(base.clone()),
        Some(text) => {
            let url: Url = text
                .parse()
                .map_err(|_| FetchError::content(&discovery, "its apiBase is no address"))?;
            policy.check_hop(base, &url)?;
            Ok(url)
        }
    }
}

fn at(api: &Url, parts: &[&str]) -> Result<Url, FetchError> {
    let mut url = api.clone();
    url.set_query(None);
    let whole = url.path().contains("/api/");
    url.path_segments_mut()
        .map_err(|()| FetchError::content(api, "it is no base address"))?
        .pop_if_empty()
        .extend(if whole { &[][..] } else { &["api", "v1"][..] })
        .extend(parts);
    Ok(url)
}

async fn version(
    fetcher: &Fetcher,
    api: &Url,
    wanted: &Wanted<'_>,
    policy: &SourcePolicy,
) -> Result<String, FetchError> {
    let url = at(api, &["skills", wanted.slug])?;
    let got = fetcher.http.get(&url, MAX_JSON_BYTES, policy).await?;
    let got = got.ok_or_else(|| missing(wanted, None))?;
    let skill: Skill = json(&url, &got.body)?;
    if skill
        .moderation
        .is_some_and(|moderation| moderation.blocked)
    {
        return Err(FetchError::Policy {
            place: format!("clawhub:{}", wanted.slug),
            reason: "the registry marks it as malware".to_owned(),
        });
    }
    let handle = skill.owner.and_then(|owner| owner.handle);
    if let (Some(asked), Some(handle)) = (wanted.owner, &handle)
        && !asked.eq_ignore_ascii_case(handle)
    {
        return Err(FetchError::NotFound(format!(
            "clawhub:{} is published by {}, not by {asked}",
            wanted.slug,
            shown(handle)
        )));
    }
    if let Some(version) = wanted.version {
        return Ok(version.to_owned());
    }
    let version = skill.latest.map(|latest| latest.version).filter(|version| {
        (1..=100).contains(&version.len()) && version.bytes().all(|byte| byte.is_ascii_graphic())
    });
    version.ok_or_else(|| FetchError::content(&url, "the skill has no published version"))
}

/// What the registry's own check says; a registry without one says nothing.
async fn verify(
    fetcher: &Fetcher,
    api: &Url,
    wanted: &Wanted<'_>,
    version: &str,
    policy: &SourcePolicy,
) -> Result<(), FetchError> {
    let mut url = at(api, &["skills", wanted.slug, "verify"])?;
    url.query_pairs_mut().append_pair("version", version);
    let Some(got) = fetcher.http.get(&url, MAX_JSON_BYTES, policy).await? else {
        return Ok(());
    };
    let said: Verify = json(&url, &got.body)?;
    if said.ok == Some(false) {
        let reasons: Vec<String> = said
            .reasons
            .iter()
            .take(5)
            .map(|reason| match reason.as_str() {
                Some(text) => shown(text),
                None => shown(&reason.to_string()),
            })
            .collect();
        return Err(FetchError::Policy {
            place: format!("clawhub:{}", wanted.slug),
            reason: format!(
                "the registry's own check refuses it: {}",
                reasons.join("; ")
            ),
        });
    }
    Ok(())
}

fn missing(wanted: &Wanted<'_>, version: Option<&str>) -> FetchError {
    let version = version
        .map(|version| format!(" in version {}", shown(version)))
        .unwrap_or_default();
    FetchError::NotFound(format!(
        "the registry has no skill {}{version}, and nothing of that name is on this machine",
        wanted.slug
    ))
}

/// An answer in JSON; fails with the address where it is none.
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    url: &Url,
    body: &[u8],
) -> Result<T, FetchError> {
    serde_json::from_slice(body).map_err(|error| {
        FetchError::content(
            url,
            format!("its answer cannot be read: {}", shown(&error.to_string())),
        )
    })
}

/// What is recorded of a skill of the older registry.
pub(crate) fn identifier(base: Option<&Url>, slug: &str) -> String {
    let host = base.and_then(Url::host_str).unwrap_or("registry");
    let host = host.trim_matches(['[', ']']).replace(':', "-");
    format!("registry:{host}/{slug}")
}

/// Gets the one file of a skill of the older form.
pub(crate) async fn older(
    fetcher: &Fetcher,
    slug: &str,
    version: Option<&str>,
    policy: &SourcePolicy,
) -> Result<(Vec<RawFile>, String), FetchError> {
    let base = fetcher
        .settings
        .registry
        .as_ref()
        .ok_or_else(|| FetchError::Unsupported {
            message: "no registry is set".to_owned(),
            hint: "set VAULT_REGISTRY_URL to its base address".to_owned(),
        })?;
    // An identifier names the host before the slug.
    let host = base.host_str().unwrap_or_default().to_owned();
    let slug = slug.strip_prefix(&format!("{host}/")).unwrap_or(slug);
    let mut url = base.clone();
    url.path_segments_mut()
        .map_err(|()| FetchError::content(base, "it is no base address"))?
        .pop_if_empty()
        .push("skills")
        .extend(slug.split('/'))
        .extend(version)
        .push(SKILL_MD);
    let got = fetcher.http.get(&url, 256 << 10, policy).await?;
    let body = got
        .ok_or_else(|| FetchError::NotFound(format!("{url} is not there")))?
        .body;
    let revision = match version {
        Some(version) => version.to_owned(),
        None => format!("sha256:{}", Digest::of(&body)),
    };
    Ok((vec![plain(SKILL_MD, body)], revision))
}
