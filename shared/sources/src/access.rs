//! What every kind of source works with: settings, connections, and the policy.

use std::sync::Arc;

use url::Url;
use vault_http::{Limits, LookupError};
use vault_store::clock::Clock;

use crate::error::{FetchError, Result};
use crate::git::{self, GitSettings};
use crate::http::{self, Got, Http};
use crate::policy::SourcePolicy;
use crate::source::{GitSource, ParseOptions};
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

impl Fetcher {
    /// This fetcher under a policy.
    pub(crate) fn under<'a>(&'a self, policy: &'a SourcePolicy) -> Access<'a> {
        Access {
            fetcher: self,
            policy,
        }
    }

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

/// The beginning of a commit id, for people.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
