//! From a source to skills: the place is opened and lists its skills, then one of them is taken.
//!
//! The policy is checked before the first request, for every hop, and once more for the exact skill that is taken. Files, revision and
//! recorded origin of a skill belong to one commit, one archive or one answer.

use std::sync::Arc;

use async_trait::async_trait;
use url::Url;
use vault_http::{Limits, LookupError};
use vault_skill::draft;
use vault_skill::name::SkillName;
use vault_skill::policy::Policy;
use vault_store::clock::Clock;
use vault_store::fetch::{Fetch, FetchFault, FetchedSkill, Upstream};
use vault_store::shelf::DriftState;

use crate::compare::source_of;
use crate::error::{FetchError, Result, shown};
use crate::git::{self, GitSettings};
use crate::http::{self, Got, Http};
use crate::kinds::{Content, kind_of, last_part};
use crate::policy::SourcePolicy;
use crate::source::{GitSource, ParseOptions, Source};
use crate::tokens::Tokens;

/// Where the registry with ClawHub's protocol is, unless a setting names another one.
pub const DEFAULT_CLAWHUB: &str = "https://clawhub.ai";
/// Where the npm registry is, unless a setting names another one.
pub const DEFAULT_NPM: &str = "https://registry.npmjs.org";

/// Settings of a fetcher.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How git is run.
    pub git: GitSettings,
    /// Bounds of requests in time.
    pub limits: Limits,
    /// Bearer tokens for HTTPS sources.
    pub tokens: Tokens,
    /// How texts of marketplaces and registries are parsed.
    pub parse: ParseOptions,
    /// The registry with ClawHub's protocol.
    pub clawhub: Url,
    /// The npm registry, for plugins that are packages.
    pub npm: Url,
    /// The registry of the older form, if there is one.
    pub registry: Option<Url>,
    /// Hosts of repositories must be public too, and SSH, which would use this machine's own keys, is refused: for callers that are not
    /// at this machine's command line.
    pub guarded: bool,
}

/// Fetches skills. Holds connections and no other state.
pub struct Fetcher {
    pub(crate) settings: Settings,
    pub(crate) http: Http,
    pub(crate) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A fetcher under a policy, as the kinds of sources use it.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) fetcher: &'a Fetcher,
    pub(crate) policy: &'a SourcePolicy,
}

impl Access<'_> {
    /// Gets what is at an address, or `None` where the server answers 404 or 410. At most `max` bytes.
    pub(crate) async fn get(self, url: &Url, max: u64) -> Result<Option<Got>> {
        self.fetcher.http.get(url, max, self.policy).await
    }

    /// Like [`Access::get`]; an answer of 404 or 410 is an error.
    pub(crate) async fn fetch(self, url: &Url, max: u64) -> Result<Got> {
        let got = self.get(url, max).await?;
        got.ok_or_else(|| FetchError::NotFound(format!("{url} is not there")))
    }
}

/// A skill of a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its own name where its SKILL.md can be parsed, else its folder's.
    pub name: String,
    /// Its folder in the source; empty for the root.
    pub folder: String,
    /// Its description, where that can be read.
    pub description: Option<String>,
}

/// A source that was reached, with its list of skills.
#[derive(Debug)]
pub struct Opened {
    /// Its skills, in an order that is the same each time.
    pub found: Vec<Found>,
    /// Notices for the user: unpinned sites, entries that were skipped.
    pub notices: Vec<String>,
    content: Box<dyn Content>,
}

impl Fetcher {
    /// A fetcher with these settings; it opens no connection yet.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let http = Http::new(
            settings.parse.loopback,
            settings.limits,
            settings.tokens.clone(),
        );
        Self {
            settings,
            http,
            clock,
        }
    }

    /// Reaches a source and lists its skills. `plugin` picks one of a marketplace.
    pub async fn open(
        &self,
        source: &Source,
        plugin: Option<&str>,
        policy: &SourcePolicy,
    ) -> Result<Opened> {
        policy.check(source)?;
        let access = Access {
            fetcher: self,
            policy,
        };
        kind_of(source, plugin)?.open(access).await
    }

    /// Downloads one of the skills of a source. Fails for links, for too large files, and where the policy does not allow it.
    pub async fn take(
        &self,
        opened: &Opened,
        found: &Found,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill> {
        let access = Access {
            fetcher: self,
            policy,
        };
        opened.content.take(access, found).await
    }

    /// Fetches a skill again from its recorded origin, at the reference that was asked for then. Fails without the pinned signature.
    pub async fn fetch_recorded(
        &self,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill> {
        let source = source_of(self, upstream).map_err(|bad| FetchError::Unsupported {
            message: bad.to_string(),
            hint: "add it again from where it is now".to_owned(),
        })?;
        let opened = self.open(&source, None, policy).await?;
        let folder = upstream.path.as_deref();
        let same = |found: &&Found| folder == Some(found.folder.as_str());
        let found = opened.found.iter().find(same).or_else(|| opened.only());
        let found = found.ok_or_else(|| {
            FetchError::NotFound(format!(
                "{} has no folder {} any more",
                source.shown(),
                folder.unwrap_or_default()
            ))
        })?;
        let skill = self.take(&opened, found, policy).await?;
        let pin = upstream.check_pin(&skill.upstream);
        pin.map_err(|error| FetchError::Signer {
            place: source.shown(),
            reason: error.to_string(),
        })?;
        Ok(skill)
    }

    /// Whether a repository has this branch, tag or commit. For a hint only: any failure is a no.
    pub async fn has_reference(&self, source: &GitSource, reference: &str) -> bool {
        let asked = GitSource {
            reference: Some(reference.to_owned()),
            tail: Vec::new(),
            ..source.clone()
        };
        match self.git_access(source).await {
            Ok((pinned, settings)) => git::resolve(&settings, &asked, &pinned).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Arguments and settings of git for a source. For guarded callers the host must be public, and git is pinned to its addresses.
    pub(crate) async fn git_access(
        &self,
        source: &GitSource,
    ) -> Result<(Vec<String>, GitSettings)> {
        let mut settings = self.settings.git.clone();
        if !self.settings.guarded || settings.loopback {
            // The user's own SSH command is used, wherever it is set.
            if source.is_ssh() && settings.ssh_command.is_none() {
                settings.ssh_command = git::configured_ssh(&settings).await;
            }
            return Ok((Vec::new(), settings));
        }
        if source.is_ssh() {
            return Err(FetchError::Unsupported {
                message: format!("{} would be asked over SSH with this machine's keys", source.place),
                hint: "use its https address, or add it with vault add on the machine that holds the vault".to_owned(),
            });
        }
        let url: Url = source
            .address
            .parse()
            .map_err(|error| FetchError::content(&source.place, format!("{error}")))?;
        let host = url.host_str().unwrap_or_default();
        let addresses = http::guard(false)
            .addresses(host.trim_matches(['[', ']']))
            .await
            .map_err(|error| match error {
                LookupError::NotPublic(_) => FetchError::NotPublic(source.place.clone()),
                LookupError::Failed(error) => {
                    FetchError::unreachable(&source.place, error.to_string())
                }
            })?;
        let port = url.port_or_known_default().unwrap_or(443);
        Ok((git::pin(host, port, &addresses), settings))
    }
}

impl Opened {
    pub(crate) fn new(found: Vec<Found>, content: impl Content + 'static) -> Self {
        Self {
            found,
            notices: Vec::new(),
            content: Box::new(content),
        }
    }

    /// The skill of this name, by its own name or its folder's.
    pub fn by_name(&self, name: &str) -> Option<&Found> {
        by_name(&self.found, name)
    }

    /// The skill that is meant without a name: the only one, that of the root, or that of the folder in the source.
    pub fn only(&self) -> Option<&Found> {
        match &self.found[..] {
            [only] => Some(only),
            [first, ..] => (self.content.base() == Some(&first.folder)).then_some(first),
            [] => None,
        }
    }
}

/// The skill of this name among several, by its own name or its folder's.
pub fn by_name<'f>(found: &'f [Found], name: &str) -> Option<&'f Found> {
    let in_folder = |found: &&Found| last_part(&found.folder).as_deref() == Some(name);
    found
        .iter()
        .find(|found| found.name == name)
        .or_else(|| found.iter().find(in_folder))
}

/// The beginning of a commit id, for people.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

impl From<FetchError> for FetchFault {
    fn from(error: FetchError) -> Self {
        let text = error.to_string();
        match error {
            FetchError::Policy { .. }
            | FetchError::NotPublic(_)
            | FetchError::Unsupported { .. } => Self::Refused(text),
            FetchError::NotFound(_)
            | FetchError::Content { .. }
            | FetchError::TooLarge { .. }
            | FetchError::Digest { .. }
            | FetchError::Signer { .. } => Self::NotFound(text),
            FetchError::NotAllowed { .. }
            | FetchError::Unreachable { .. }
            | FetchError::Local { .. } => Self::Unreachable(text),
        }
    }
}

impl Fetcher {
    /// Fetches the named skill of a source, or its only one.
    async fn fetch_one(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let policy = SourcePolicy::new(policy);
        let opened = self.open(source, None, &policy).await?;
        let found = match skill {
            Some(name) => opened.by_name(name.as_str()),
            None => opened.only(),
        };
        let found = found.ok_or_else(|| {
            let names = opened.found.iter().take(50).map(|found| shown(&found.name));
            let names: Vec<String> = names.collect();
            let what = match skill {
                Some(name) => format!("{} has no skill {name}", source.shown()),
                None => format!(
                    "{} has several skills; name one with `skill`",
                    source.shown()
                ),
            };
            FetchFault::NotFound(format!("{what}: {}", names.join(", ")))
        })?;
        Ok(self.take(&opened, found, &policy).await?)
    }
}

#[async_trait]
impl Fetch for Fetcher {
    async fn fetch(
        &self,
        asked: &draft::Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let reference = asked.reference.as_deref();
        let source = Source::of_identifier(&asked.identifier, reference, &self.settings.parse)
            .map_err(|bad| FetchFault::Refused(bad.to_string()))?;
        self.fetch_one(&source, skill, policy).await
    }

    async fn fetch_text(
        &self,
        source: &str,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let exists = |path: &str| std::path::Path::new(path).symlink_metadata().is_ok();
        let source = Source::parse(source, &self.settings.parse, &exists)
            .map_err(|bad| FetchFault::Refused(bad.to_string()))?;
        self.fetch_one(&source, skill, policy).await
    }

    async fn fetch_again(
        &self,
        upstream: &Upstream,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let policy = SourcePolicy::new(policy);
        Ok(self.fetch_recorded(upstream, &policy).await?)
    }

    async fn compare(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: Option<&Policy>,
        answer: &mut (dyn FnMut(usize, DriftState) + Send),
    ) {
        let policy = SourcePolicy::new(policy);
        self.compare_all(upstreams, &policy, answer).await;
    }
}
