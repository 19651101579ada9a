//! The one way out over HTTP: few redirects, no address inside a private network, no more bytes and seconds than said.
//!
//! Names are looked up here, every address that a name leads to must be a public one, and the connection goes to just those, so that a
//! second look-up cannot lead elsewhere. That holds for each hop. No proxy, no cookies, no encoding of bodies.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header;
use tokio::time::Instant;
use url::{Host, Url};
use vault_skill::address::is_public;

use crate::error::{FetchError, shown};
use crate::policy::SourcePolicy;
use crate::tokens::Tokens;

/// Most hops of one request.
const MAX_REDIRECTS: usize = 5;
/// Most addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 32;

/// How long a request may take, and how slow it may be.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimes {
    /// Until there is a connection.
    pub connect: Duration,
    /// The whole, from the look-up to the last byte.
    pub whole: Duration,
    /// Within this time at least [`HttpTimes::least`] bytes of a body come.
    pub window: Duration,
    /// Bytes that come within a window.
    pub least: u64,
}

impl Default for HttpTimes {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            whole: Duration::from_mins(1),
            window: Duration::from_secs(20),
            least: 20 * 1024,
        }
    }
}

/// A client for strangers' addresses.
pub(crate) struct Http {
    loopback: bool,
    times: HttpTimes,
    tokens: Tokens,
    /// Made when it is first wanted: reading the system's certificates takes longer than starting.
    client: OnceLock<reqwest::Client>,
}

/// What came.
#[derive(Debug)]
pub(crate) struct Got {
    /// Where it came from in the end.
    pub(crate) url: Url,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(loopback: bool, times: HttpTimes, tokens: Tokens) -> Self {
        Self {
            loopback,
            times,
            tokens,
            client: OnceLock::new(),
        }
    }

    fn client(&self) -> Result<&reqwest::Client, FetchError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // A second one of the same process finds the provider there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("vault/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Guard {
                loopback: self.loopback,
            }))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .https_only(!self.loopback)
            .connect_timeout(self.times.connect)
            .timeout(self.times.whole)
            .build()
            .map_err(|error| FetchError::local("making an HTTP client", &error))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Gets what is there, or `None` where the server says 404 or 410. At most `max` bytes.
    pub(crate) async fn get(
        &self,
        url: &Url,
        max: u64,
        policy: &SourcePolicy,
    ) -> Result<Option<Got>, FetchError> {
        let whole = self.times.whole;
        match tokio::time::timeout(whole, self.hops(url, max, policy)).await {
            Ok(done) => done,
            Err(_) => Err(FetchError::unreachable(
                url,
                format!("no whole answer within {} s", whole.as_secs_f32()),
            )),
        }
    }

    async fn hops(
        &self,
        asked: &Url,
        max: u64,
        policy: &SourcePolicy,
    ) -> Result<Option<Got>, FetchError> {
        let mut url = asked.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.check(&url)?;
            policy.check_hop(asked, &url)?;
            let mut question = self
                .client()?
                .get(url.clone())
                .header(header::ACCEPT_ENCODING, "identity");
            if let Some(token) = self.tokens.of(&url) {
                question = question.bearer_auth(token);
            }
            let answer = question.send().await.map_err(|error| failed(&url, error))?;
            let status = answer.status().as_u16();
            match status {
                200 => return self.body(url, answer, max).await.map(Some),
                301 | 302 | 303 | 307 | 308 => {
                    let to = answer
                        .headers()
                        .get(header::LOCATION)
                        .and_then(|to| to.to_str().ok())
                        .and_then(|to| url.join(to).ok())
                        .ok_or_else(|| {
                            FetchError::unreachable(&url, "it redirects to no address")
                        })?;
                    url = to;
                }
                404 | 410 => return Ok(None),
                401 | 403 => {
                    return Err(FetchError::NotAllowed {
                        place: shown(url.as_str()),
                        said: format!("HTTP {status}"),
                    });
                }
                429 | 503 => {
                    let wait = answer
                        .headers()
                        .get(header::RETRY_AFTER)
                        .and_then(|wait| wait.to_str().ok())
                        .map(|wait| format!(", and asks to wait {} s", shown(wait)))
                        .unwrap_or_default();
                    let reason = format!("it answers HTTP {status}{wait}");
                    return Err(FetchError::unreachable(&url, reason));
                }
                _ => {
                    let reason = format!("it answers HTTP {status}");
                    return Err(FetchError::unreachable(&url, reason));
                }
            }
        }
        Err(FetchError::unreachable(
            asked,
            format!("it redirects more than {MAX_REDIRECTS} times"),
        ))
    }

    /// What holds for the first address holds for each one that it leads to.
    fn check(&self, url: &Url) -> Result<(), FetchError> {
        let plain = url.scheme() == "http" && self.loopback && is_loopback(url);
        if !plain && url.scheme() != "https" {
            return Err(FetchError::unreachable(
                url,
                "it is not encrypted: only https is asked",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::unreachable(
                url.host_str().unwrap_or_default(),
                "its address carries a user or a password",
            ));
        }
        // An address that is written out is never looked up, so the guard does not see it.
        let written = match url.host() {
            Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
            _ => None,
        };
        match written {
            Some(ip) if !may_reach(ip, self.loopback) => {
                Err(FetchError::NotPublic(shown(url.as_str())))
            }
            _ => Ok(()),
        }
    }

    async fn body(
        &self,
        url: Url,
        mut answer: reqwest::Response,
        max: u64,
    ) -> Result<Got, FetchError> {
        let header = |name| {
            answer
                .headers()
                .get(name)
                .and_then(|value: &header::HeaderValue| value.to_str().ok())
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        let encoding = header(header::CONTENT_ENCODING);
        if !matches!(encoding.as_str(), "" | "identity") {
            return Err(FetchError::content(
                &url,
                "its body is encoded, though that was not asked for",
            ));
        }
        let content_type = header(header::CONTENT_TYPE);
        let too_large = || FetchError::TooLarge {
            what: shown(url.as_str()),
            limit: max,
            unit: "bytes",
        };
        // Only for an early end: what is announced is not believed.
        if answer.content_length().is_some_and(|length| length > max) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        let (mut since, mut before) = (Instant::now(), 0_u64);
        loop {
            let slow = || {
                let reason = format!(
                    "it sends less than {} bytes in {} s",
                    self.times.least,
                    self.times.window.as_secs_f32()
                );
                FetchError::unreachable(&url, reason)
            };
            let piece = tokio::time::timeout_at(since + self.times.window, answer.chunk()).await;
            match piece {
                Err(_) if (body.len() as u64) - before < self.times.least => return Err(slow()),
                Err(_) => {
                    since += self.times.window;
                    before = body.len() as u64;
                }
                Ok(piece) => match piece.map_err(|error| failed(&url, error))? {
                    None => break,
                    Some(piece) if (body.len() + piece.len()) as u64 > max => {
                        return Err(too_large());
                    }
                    Some(piece) => body.extend_from_slice(&piece),
                },
            }
        }
        Ok(Got {
            url,
            content_type,
            body,
        })
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn may_reach(ip: IpAddr, loopback: bool) -> bool {
    is_public(ip) || (loopback && ip.is_loopback())
}

/// What went wrong on the way; the guard's refusal is told apart, wherever the layers in between have put it.
fn failed(url: &Url, error: reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut last = String::new();
    while let Some(error) = cause {
        if error.is::<NotPublic>() {
            return FetchError::NotPublic(shown(url.as_str()));
        }
        last = error.to_string();
        cause = error.source();
    }
    let error = error.without_url();
    let reason = if last.is_empty() {
        error.to_string()
    } else {
        last
    };
    FetchError::unreachable(url, shown(&reason))
}

/// All addresses of a name, each of them public. Fails when one of them is not: which one a program tries first is not ours to say.
pub(crate) async fn public_addresses(host: &str, loopback: bool) -> io::Result<Vec<IpAddr>> {
    let found: Vec<IpAddr> = tokio::net::lookup_host((host, 0))
        .await?
        .map(|address| address.ip())
        .collect();
    let fine = !found.is_empty()
        && found.len() <= MOST_ADDRESSES
        && found.iter().all(|ip| may_reach(*ip, loopback));
    if fine {
        Ok(found)
    } else {
        Err(io::Error::other(NotPublic))
    }
}

/// The look-up that the connection is made by.
struct Guard {
    loopback: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
pub(crate) struct NotPublic;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let loopback = self.loopback;
        Box::pin(async move {
            let found = match public_addresses(name.as_str(), loopback).await {
                Ok(found) => found,
                Err(error)
                    if error
                        .get_ref()
                        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<NotPublic>) =>
                {
                    return Err(NotPublic.into());
                }
                Err(error) => return Err(error.into()),
            };
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
