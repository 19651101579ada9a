//! HTTP requests to sources. Redirects are limited, every hop is checked against the policy and the
//! SSRF guard, and a token is sent only to its own host.

use std::net::IpAddr;

use reqwest::{Method, header};
use url::{Host, Url};
use vault_http::{Client, Guard, HttpError, Limits, Options, Reach, Response};
use vault_skill::address::is_public;

use crate::error::{FetchError, Result, shown};
use crate::policy::SourcePolicy;
use crate::tokens::Tokens;

/// Maximum number of redirects per request.
const MAX_REDIRECTS: usize = 5;

/// An HTTP client for addresses that an untrusted party chooses.
pub(crate) struct Http {
    client: Client,
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

/// Creates a guard that accepts public addresses. In tests it accepts loopback addresses too.
pub(crate) fn guard(loopback: bool) -> Guard {
    let may_reach: fn(IpAddr) -> bool = if loopback {
        |ip| is_public(ip) || ip.is_loopback()
    } else {
        is_public
    };
    Guard::new(may_reach)
}

impl Http {
    pub(crate) fn new(loopback: bool, limits: Limits, tokens: Tokens) -> Self {
        let client = Client::new(Options {
            limits,
            reach: Reach::Guarded(guard(loopback)),
            https_only: !loopback,
            reuse: true,
            roots: &[],
        });
        Self {
            client,
            loopback,
            limits,
            tokens,
        }
    }

    /// Fetches a URL. Returns `None` on HTTP 404 or 410. The body may have at most `max` bytes.
    pub(crate) async fn get(
        &self,
        url: &Url,
        max: u64,
        policy: &SourcePolicy,
    ) -> Result<Option<FetchedBody>> {
        // The client limits each request. This timeout limits the whole chain of redirects.
        let whole = self.limits.whole;
        match tokio::time::timeout(whole, self.follow(url, max, policy)).await {
            Ok(done) => done,
            Err(_) => Err(FetchError::unreachable(
                url,
                format!("no complete answer within {} s", whole.as_secs_f32()),
            )),
        }
    }

    async fn follow(
        &self,
        asked: &Url,
        max: u64,
        policy: &SourcePolicy,
    ) -> Result<Option<FetchedBody>> {
        let mut url = asked.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.check(&url)?;
            policy.check_hop(asked, &url)?;
            let answer = self.send(&url).await.map_err(|error| failed(&url, error))?;
            match answer.status() {
                200 => {
                    let content_type = header_of(&answer, header::CONTENT_TYPE)
                        .unwrap_or_default()
                        .to_ascii_lowercase();
                    let body = answer.body(max).await;
                    return Ok(Some(FetchedBody {
                        body: body.map_err(|error| failed(&url, error))?,
                        url,
                        content_type,
                    }));
                }
                301 | 302 | 303 | 307 | 308 => {
                    let to = header_of(&answer, header::LOCATION).and_then(|to| url.join(to).ok());
                    url = to.ok_or_else(|| {
                        FetchError::unreachable(&url, "it redirects without an address")
                    })?;
                }
                404 | 410 => return Ok(None),
                status => return Err(refused(&url, status, &answer)),
            }
        }
        Err(FetchError::unreachable(
            asked,
            format!("it redirects more than {MAX_REDIRECTS} times"),
        ))
    }

    async fn send(&self, url: &Url) -> Result<Response, HttpError> {
        let mut request = self.client.request(Method::GET, url.as_str())?;
        // Select the token for each hop, so that a redirect cannot carry it to another host.
        if let Some(token) = self.tokens.for_url(url) {
            request = request.bearer_auth(token);
        }
        self.client.send(request).await
    }

    /// Checks that apply to every hop in addition to the guard: HTTPS only, and no credentials in
    /// the URL.
    fn check(&self, url: &Url) -> Result<()> {
        let plain = url.scheme() == "http" && self.loopback && is_loopback(url);
        if !plain && url.scheme() != "https" {
            return Err(FetchError::unreachable(
                url,
                "it is not encrypted: only https is used",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::unreachable(
                url.host_str().unwrap_or_default(),
                "its address contains a user name or password",
            ));
        }
        Ok(())
    }
}

fn header_of(answer: &Response, name: header::HeaderName) -> Option<&str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Creates the error for a status that is neither success, redirect nor "not found".
fn refused(url: &Url, status: u16, answer: &Response) -> FetchError {
    if matches!(status, 401 | 403) {
        return FetchError::NotAllowed {
            place: shown(url.as_str()),
            said: format!("HTTP {status}"),
        };
    }
    let wait = match header_of(answer, header::RETRY_AFTER) {
        Some(wait) if matches!(status, 429 | 503) => {
            format!(", and asks to wait {} s", shown(wait))
        }
        _ => String::new(),
    };
    FetchError::unreachable(url, format!("it answers HTTP {status}{wait}"))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn failed(url: &Url, error: HttpError) -> FetchError {
    match error {
        HttpError::Setup(error) => FetchError::local("making an HTTP client", &error),
        HttpError::NotPublic => FetchError::NotPublic(shown(url.as_str())),
        HttpError::TooLarge(limit) => FetchError::too_large(url.as_str(), limit, "bytes"),
        HttpError::Encoded => FetchError::content(url, error.to_string()),
        error => FetchError::unreachable(url, shown(&error.reason())),
    }
}
