//! What all kinds of sources share: settings, HTTP and git access, and the source policy.

use std::sync::Arc;

use url::Url;
use vault_http::{Limits, LookupError};
use vault_store::clock::Clock;

use crate::error::{FetchError, Result};
use crate::git::{self, GitSettings};
use crate::http::{self, FetchedBody, Http, Scope};
use crate::policy::SourcePolicy;
use crate::proxy::Proxy;
use crate::source::{GitSource, ParseOptions, Source, is_loopback};
use crate::tokens::Tokens;

/// Default address of the registry that speaks ClawHub's protocol.
pub const DEFAULT_CLAWHUB: &str = "https://clawhub.ai";
/// Default address of the npm registry, from which plugins that are packages are fetched.
pub const DEFAULT_NPM: &str = "https://registry.npmjs.org";

/// Settings of a [`Fetcher`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The git program to run, and the limits for its commands.
    pub git: GitSettings,
    /// Time and speed limits of HTTP requests.
    pub limits: Limits,
    /// Bearer tokens for HTTPS sources, by host.
    pub tokens: Tokens,
    /// The proxy for sites, archives and registries. It resolves host names itself, so the
    /// addresses behind them cannot be checked. Only for the user at this machine's command line.
    pub proxy: Option<Proxy>,
    /// Parser options for source texts that come from marketplaces and registries.
    pub parse: ParseOptions,
    /// Address of the registry that speaks ClawHub's protocol.
    pub clawhub: Url,
    /// Address of the npm registry, which serves plugins published as packages.
    pub npm: Url,
    /// Base address of the registry that speaks the older protocol, if one is configured.
    pub registry: Option<Url>,
    /// Treat callers as remote: hosts of repositories must be public, and SSH is rejected because
    /// it would use this machine's keys. Off for the user at this machine's command line.
    pub guarded: bool,
    /// Fetch from sites and registries on this machine, over plain HTTP too, if the source or a
    /// setting names one. Only for the user at this machine's command line.
    pub local_sites: bool,
}

/// Fetches skills from sources. It keeps open connections and no other state.
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

/// A fetcher together with the policy that applies to its requests. Source kinds take it as a
/// parameter.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) fetcher: &'a Fetcher,
    pub(crate) policy: &'a SourcePolicy,
    pub(crate) scope: Scope,
    /// Whether links to files of the same skill are replaced by copies of those files.
    pub(crate) copy_links: bool,
}

impl Access<'_> {
    /// Returns this access with the scope for a source. Only a source on this machine may reach
    /// addresses of this machine.
    pub(crate) fn to_source(self, source: &Source) -> Self {
        let settings = &self.fetcher.settings;
        let base = match source {
            Source::Archive(url) | Source::SkillMd(url) => Some(url),
            Source::WellKnown { site, .. } => Some(site),
            Source::ClawHub { .. } => Some(&settings.clawhub),
            Source::Registry { .. } => settings.registry.as_ref(),
            Source::Local(_) | Source::Git(_) | Source::Vault { .. } => None,
        };
        self.to_base(base)
    }

    /// Returns this access with the scope for a site or registry at this address.
    pub(crate) fn to_base(self, base: Option<&Url>) -> Self {
        let settings = &self.fetcher.settings;
        // With `loopback`, which tests set, the public scope also allows addresses of this machine,
        // so the other scope is not used.
        let is_local = settings.local_sites && !settings.parse.loopback;
        let scope = match base {
            Some(base) if is_local && is_loopback(base) => Scope::ThisMachine,
            _ => Scope::Public,
        };
        Self { scope, ..self }
    }

    /// Fetches a URL. Returns `None` on HTTP 404 or 410. The body may have at most `max` bytes.
    pub(crate) async fn fetch_if_found(self, url: &Url, max: u64) -> Result<Option<FetchedBody>> {
        let http = &self.fetcher.http;
        http.get_url(url, max, self.policy, self.scope).await
    }

    /// Like [`Access::fetch_if_found`], but treats HTTP 404 and 410 as an error.
    pub(crate) async fn fetch_required(self, url: &Url, max: u64) -> Result<FetchedBody> {
        let got = self.fetch_if_found(url, max).await?;
        got.ok_or_else(|| FetchError::NotFound(format!("there is no {url}")))
    }
}

impl Fetcher {
    /// Returns this fetcher with the policy that decides which sources and redirects are allowed.
    pub(crate) fn with_policy<'a>(&'a self, policy: &'a SourcePolicy) -> Access<'a> {
        Access {
            fetcher: self,
            policy,
            scope: Scope::Public,
            copy_links: false,
        }
    }

    /// Returns the address of the registry that speaks ClawHub's protocol.
    pub fn registry_address(&self) -> String {
        self.settings.clawhub.to_string()
    }

    /// Returns the address of the registry that speaks the older protocol, which has no search; `None`
    /// if none is configured.
    pub fn older_registry_address(&self) -> Option<String> {
        self.settings.registry.as_ref().map(Url::to_string)
    }

    /// Creates a fetcher with these settings. It opens no connection yet.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let http = Http::new(
            settings.parse.loopback,
            settings.limits,
            settings.tokens.clone(),
            settings.proxy.clone(),
        );
        Self {
            settings,
            http,
            clock,
        }
    }

    /// Returns extra git arguments and the git settings for a source. For guarded callers, the host
    /// must be public, and the arguments pin git to the addresses that were checked.
    pub(crate) async fn git_access(
        &self,
        source: &GitSource,
    ) -> Result<(Vec<String>, GitSettings)> {
        let mut settings = self.settings.git.clone();
        // The checks below are for guarded callers only: the user at this machine may fetch from
        // private hosts.
        if !self.settings.guarded || settings.loopback {
            // Setting `GIT_SSH_COMMAND` overrides `core.sshCommand`, so read the user's own value
            // first.
            if source.is_ssh() && settings.ssh_command.is_none() {
                settings.ssh_command = git::configured_ssh(&settings).await;
            }
            return Ok((Vec::new(), settings));
        }
        if source.is_ssh() {
            return Err(FetchError::Unsupported {
                message: format!("{} would be fetched over SSH with this machine's keys", source.place),
                hint: "use its https address, or add it with vault add on the machine that holds the vault".to_owned(),
            });
        }
        let url: Url = source
            .address
            .parse()
            .map_err(|error| FetchError::content_error(&source.place, format!("{error}")))?;
        // A URL has brackets around an IPv6 address, but the resolver takes the bare address.
        let host = url.host_str().unwrap_or_default();
        let addresses = http::create_guard(false)
            .checked_addresses(host.trim_matches(['[', ']']))
            .await
            .map_err(|error| match error {
                LookupError::NotPublic(_) => FetchError::NotPublic(source.place.clone()),
                LookupError::Failed(error) => {
                    FetchError::unreachable_error(&source.place, error.to_string())
                }
            })?;
        let port = url.port_or_known_default().unwrap_or(443);
        // git ends the name of a setting on its command line at the first `=`.
        if source.address.contains('=') {
            return Err(FetchError::Unsupported {
                message: format!("the address of {} contains =", source.place),
                hint: "add it with vault add on the machine that holds the vault".to_owned(),
            });
        }
        let pinned = git::pin_arguments(&source.address, (host, port), &addresses);
        Ok((pinned, settings))
    }
}

/// Shortens a commit id to 12 characters for messages.
pub fn short_commit(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
