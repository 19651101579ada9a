//! Requests of the walk: bounded in time, and what came told without secrets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, RequestBuilder, StatusCode, redirect};
use serde_json::Value;
use url::Url;
use vault_tests::browser::no_answer;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// Maximum number of characters of a body that are told.
const MOST_TOLD: usize = 300;

/// What was expected at a step, and what came instead.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What should have come.
    pub expected: String,
    /// What came.
    pub came: String,
}

impl Failure {
    /// A failure in words.
    pub fn new(expected: impl Into<String>, came: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            came: came.into(),
        }
    }
}

/// An answer that was read to its end.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Vec<u8>,
}

/// A client for this service: it follows nothing. Names below `localhost` are this machine (RFC
/// 6761), whatever its resolver says.
pub fn client(base: &Url) -> Result<Client, Failure> {
    // Fails only when a provider was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder()
        .redirect(redirect::Policy::none())
        .timeout(REQUEST)
        .user_agent(concat!("vault-smoke/", env!("CARGO_PKG_VERSION")));
    if let (Some(host), Some(port)) = (base.host_str(), base.port_or_known_default())
        && (host == "localhost" || host.ends_with(".localhost"))
    {
        client = client.no_proxy();
        client = client.resolve(host, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    } else if base.host_str() == Some("127.0.0.1") {
        client = client.no_proxy();
    }
    client
        .build()
        .map_err(|error| Failure::new("an HTTP client", error.to_string()))
}

/// Sends a request and reads all of its answer.
pub async fn send(request: RequestBuilder, expected: &str) -> Result<Answer, Failure> {
    let failed = |error: reqwest::Error| Failure::new(expected, no_answer(&error));
    let response = request.send().await.map_err(failed)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.bytes().await.map_err(failed)?.to_vec();
    Ok(Answer {
        status,
        headers,
        body,
    })
}

impl Answer {
    /// The answer, if it has this status.
    pub fn with_status(self, status: u16, expected: &str) -> Result<Self, Failure> {
        if self.status.as_u16() == status {
            Ok(self)
        } else {
            Err(self.instead_of(&format!("{status}: {expected}")))
        }
    }

    /// The body as JSON.
    pub fn json(&self, expected: &str) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|_| self.instead_of(expected))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The failure that this answer came instead of what was expected.
    pub fn instead_of(&self, expected: &str) -> Failure {
        Failure::new(expected, self.told())
    }

    /// The answer without what may be secret: a body is told only where the service refused.
    fn told(&self) -> String {
        let mut told = self.status.to_string();
        if let Some(target) = self.headers.get(LOCATION) {
            let target = target.to_str().unwrap_or_default();
            let address = target.split(['?', '#']).next().unwrap_or_default();
            told.push_str(&format!(" to {address}"));
        }
        if self.status.is_client_error() || self.status.is_server_error() {
            let body: String = self.text().chars().take(MOST_TOLD).collect();
            return format!("{told} {}", body.trim());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(members)) => {
                let names: Vec<&str> = members.keys().map(String::as_str).collect();
                format!("{told} with {}", names.join(", "))
            }
            Ok(_) => format!("{told} with JSON that is no object"),
            Err(_) => format!("{told} with {} bytes, not JSON", self.body.len()),
        }
    }
}

/// The text member of this name.
pub fn text<'v>(value: &'v Value, name: &str) -> Result<&'v str, Failure> {
    value.get(name).and_then(Value::as_str).ok_or_else(|| {
        Failure::new(
            format!("`{name}`, a text"),
            format!("an answer {}", members(value)),
        )
    })
}

/// The names of an object's members, as a person reads them.
pub fn members(value: &Value) -> String {
    value.as_object().map_or_else(
        || "that is no object".to_owned(),
        |members| {
            let names: Vec<&str> = members.keys().map(String::as_str).collect();
            format!("with {}", names.join(", "))
        },
    )
}
