//! HTTP requests to sources. The number of redirects is limited, every hop is checked by the policy
//! and the SSRF guard, and a token is sent only to its own host.
//!
//! A source is either on the public internet or on this machine ([`Scope`]). No redirect, index or
//! other answer leads from one to the other.

use std::net::IpAddr;

use reqwest::{Method, header};
use url::Url;
use vault_format::address::is_public;
use vault_http::{Client, Guard, HttpError, Limits, Options, Reach, Response};

use crate::error::{FetchError, Result, escape_untrusted};
use crate::policy::SourcePolicy;
use crate::proxy::Proxy;
use crate::source::is_loopback;
use crate::tokens::Tokens;

/// Maximum number of redirects per request.
const MAX_REDIRECTS: usize = 5;

/// The addresses that requests for a source may reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// Public addresses, over HTTPS.
    Public,
    /// Only this machine, where plain HTTP is allowed. For a site on this machine that its user
    /// named.
    ThisMachine,
}

/// The HTTP client for addresses that an untrusted party chose.
pub(crate) struct Http {
    client: Client,
    /// The client for [`Scope::ThisMachine`].
    local: Client,
    /// The client for [`Scope::Public`] behind a proxy, or the reason why the proxy's setting is
    /// unusable.
    proxied: Option<(Proxy, Result<Client>)>,
    loopback: bool,
    limits: Limits,
    tokens: Tokens,
}

/// A response with status 200.
#[derive(Debug)]
pub(crate) struct FetchedBody {
    /// The URL after all redirects.
    pub(crate) url: Url,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// Creates a guard that accepts public addresses. Tests set `loopback`, which accepts loopback
/// addresses too.
pub(crate) fn create_guard(loopback: bool) -> Guard {
    let may_reach: fn(IpAddr) -> bool = if loopback {
        |ip| is_public(ip) || ip.is_loopback()
    } else {
        is_public
    };
    Guard::new(may_reach)
}

impl Http {
    pub(crate) fn new(
        loopback: bool,
        limits: Limits,
        tokens: Tokens,
        proxy: Option<Proxy>,
    ) -> Self {
        let client = |reach, https_only| {
            Client::new(Options {
                limits,
                reach,
                https_only,
                reuse: true,
                roots: &[],
            })
        };
        Self {
            client: client(Reach::Guarded(create_guard(loopback)), !loopback),
            local: client(Reach::Guarded(Guard::new(|ip| ip.is_loopback())), false),
            proxied: proxy.map(|proxy| {
                let reach = proxy.address().map(|address| Reach::Proxied {
                    proxy: address.clone(),
                    guard: create_guard(loopback),
                });
                (proxy, reach.map(|reach| client(reach, !loopback)))
            }),
            loopback,
            limits,
            tokens,
        }
    }

    /// Fetches a URL. Returns `None` on HTTP 404 or 410. The body may have at most `max` bytes.
    pub(crate) async fn get_url(
        &self,
        url: &Url,
        max: u64,
        policy: &SourcePolicy,
        scope: Scope,
    ) -> Result<Option<FetchedBody>> {
        // The client limits each request. This timeout limits the whole chain of redirects.
        let whole = self.limits.whole;
        match tokio::time::timeout(whole, self.follow_redirects(url, max, policy, scope)).await {
            Ok(done) => done,
            Err(_) => Err(FetchError::unreachable_error(
                url,
                format!("no complete answer within {} s", whole.as_secs_f32()),
            )),
        }
    }

    async fn follow_redirects(
        &self,
        asked: &Url,
        max: u64,
        policy: &SourcePolicy,
        scope: Scope,
    ) -> Result<Option<FetchedBody>> {
        let mut url = asked.clone();
        for _ in 0..=MAX_REDIRECTS {
            // Check every hop, because a redirect may lead anywhere.
            check_url(&url, scope, self.loopback)?;
            policy.check_redirect(asked, &url)?;
            let answer = self.send_get(&url, scope).await?;
            match answer.status() {
                200 => {
                    let content_type = header_of(&answer, header::CONTENT_TYPE)
                        .unwrap_or_default()
                        .to_ascii_lowercase();
                    let body = answer.read_body(max).await;
                    return Ok(Some(FetchedBody {
                        body: body.map_err(|error| request_error(&url, error))?,
                        url,
                        content_type,
                    }));
                }
                301 | 302 | 303 | 307 | 308 => {
                    let to = header_of(&answer, header::LOCATION).and_then(|to| url.join(to).ok());
                    url = to.ok_or_else(|| {
                        FetchError::unreachable_error(&url, "it redirects without an address")
                    })?;
                }
                404 | 410 => return Ok(None),
                status => return Err(status_error(&url, status, &answer)),
            }
        }
        Err(FetchError::unreachable_error(
            asked,
            format!("it redirects more than {MAX_REDIRECTS} times"),
        ))
    }

    async fn send_get(&self, url: &Url, scope: Scope) -> Result<Response> {
        let proxied = self.proxied.as_ref();
        let proxied = proxied.filter(|(proxy, _)| scope == Scope::Public && proxy.serves(url));
        let client = match (scope, proxied) {
            (Scope::ThisMachine, _) => &self.local,
            (Scope::Public, None) => &self.client,
            (Scope::Public, Some((_, proxied))) => proxied.as_ref().map_err(Clone::clone)?,
        };
        let failed = |error| match (request_error(url, error), proxied) {
            (FetchError::Unreachable { place, reason }, Some((proxy, _))) => {
                let reason = format!("through the proxy {}: {reason}", proxy.place());
                FetchError::Unreachable { place, reason }
            }
            // The untrusted certificate may be that of the proxy itself.
            (FetchError::Certificate { place, reason }, Some((proxy, _))) => {
                let reason = format!("{reason}, through the proxy {}", proxy.place());
                FetchError::Certificate { place, reason }
            }
            (error, _) => error,
        };
        let mut request = client
            .new_request(Method::GET, url.as_str())
            .map_err(failed)?;
        // Select the token for each hop, so that a redirect cannot carry it to another host.
        if let Some(token) = self.tokens.for_url(url) {
            request = request.bearer_auth(token);
        }
        client.send_request(request).await.map_err(failed)
    }
}

/// Makes the checks of each hop that the guard does not make: the hop stays in the scope, uses
/// HTTPS unless it is on this machine, and has no credentials in its URL. Tests set `loopback`.
fn check_url(url: &Url, scope: Scope, loopback: bool) -> Result<()> {
    if scope == Scope::ThisMachine && !is_loopback(url) {
        return Err(FetchError::unreachable_error(
            url,
            "it is not on this machine, as the source is",
        ));
    }
    let may_be_plain = scope == Scope::ThisMachine || loopback && is_loopback(url);
    if url.scheme() != "https" && !(may_be_plain && url.scheme() == "http") {
        return Err(FetchError::unreachable_error(url, "it does not use https"));
    }
    // Credentials in a URL would be sent to its host, and would be shown in messages.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::unreachable_error(
            url.host_str().unwrap_or_default(),
            "its address contains a user name or password",
        ));
    }
    Ok(())
}

fn header_of(answer: &Response, name: header::HeaderName) -> Option<&str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Creates the error for a status that is neither success, redirect nor "not found".
fn status_error(url: &Url, status: u16, answer: &Response) -> FetchError {
    if matches!(status, 401 | 403) {
        return FetchError::NotAllowed {
            place: escape_untrusted(url.as_str()),
            status,
        };
    }
    let wait = match header_of(answer, header::RETRY_AFTER) {
        Some(wait) if matches!(status, 429 | 503) => {
            format!(", and asks to wait {} s", escape_untrusted(wait))
        }
        _ => String::new(),
    };
    FetchError::unreachable_error(url, format!("it answers HTTP {status}{wait}"))
}

fn request_error(url: &Url, error: HttpError) -> FetchError {
    match error {
        HttpError::Setup(error) => FetchError::local_error("making an HTTP client", &error),
        HttpError::NotPublic => FetchError::NotPublic(escape_untrusted(url.as_str())),
        HttpError::TooLarge(limit) => FetchError::too_large(url.as_str(), limit, "bytes"),
        HttpError::Encoded => FetchError::content_error(url, error.to_string()),
        error @ HttpError::Certificate(_) => FetchError::Certificate {
            place: escape_untrusted(url.as_str()),
            reason: escape_untrusted(&error.system_message()),
        },
        error => FetchError::unreachable_error(url, escape_untrusted(&error.system_message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_reached_only_for_a_source_on_it() {
        for (url, public, this_machine) in [
            ("http://127.0.0.1:8000/a", false, true),
            ("http://127.8.9.10/a", false, true),
            ("http://[::1]:8000/a", false, true),
            ("http://localhost/a", false, true),
            ("http://localhost.example/a", false, false),
            ("http://127.0.0.1.example/a", false, false),
            ("http://10.0.0.1/a", false, false),
            ("http://[::ffff:127.0.0.1]/a", false, false),
            ("http://site.example/a", false, false),
            ("https://site.example/a", true, false),
            ("https://me@site.example/a", false, false),
            ("http://me@127.0.0.1/a", false, false),
            ("ftp://127.0.0.1/a", false, false),
        ] {
            let at: Url = url.parse().unwrap();
            let public_scope = check_url(&at, Scope::Public, false);
            assert_eq!(public_scope.is_ok(), public, "{url}");
            let local_scope = check_url(&at, Scope::ThisMachine, false);
            assert_eq!(local_scope.is_ok(), this_machine, "{url}");
        }
    }
}
