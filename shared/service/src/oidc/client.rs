//! HTTP requests to the identity provider that the operator configured.
//!
//! The operator chose the provider, so its address may be any, even a private one;
//! `Issuer::may_name` restricts the addresses to which its documents may send this service. The
//! client follows no redirect and accepts no compressed answer; the size, time and number of
//! requests are bounded. TLS proves the host.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Method;
use reqwest::header;
use tokio::sync::Semaphore;
use vault_http::{Client, HttpError, Limits, Options, Reach, Response};

use super::{ProviderHttp, Unreachable};
use crate::config::Issuer;

/// Time limits of a request. A sign-in makes up to three requests, which together must fit into the
/// time limit of its handler.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(3),
    whole: Duration::from_secs(5),
    window: Duration::from_secs(5),
    least: 0,
};
const MAX_RESPONSE_BYTES: u64 = 256 * 1024;
/// Maximum number of concurrent requests per process. Further requests wait, within the time limit
/// of their handlers.
const MAX_CONCURRENT: usize = 16;

/// HTTP client for one identity provider.
pub struct ProviderClient {
    client: Client,
    slots: Semaphore,
}

#[derive(Debug, thiserror::Error)]
#[error("it answers with status {0}")]
struct Status(u16);

impl ProviderClient {
    /// Creates a client for this provider. Opens no connection yet.
    pub fn new(issuer: &Issuer) -> Self {
        // A provider on this machine is meant for development: it may use plain HTTP, and then the
        // client reaches only this machine.
        let reach = match issuer.plain_http_host() {
            None => Reach::Any,
            Some(host) => Reach::Loopback {
                localhost: host.ends_with("localhost").then(|| host.to_owned()),
                plain: true,
            },
        };
        Self {
            client: Client::new(Options {
                limits: LIMITS,
                reach,
                https_only: issuer.plain_http_host().is_none(),
                reuse: true,
                roots: &[],
            }),
            slots: Semaphore::new(MAX_CONCURRENT),
        }
    }

    async fn send_request(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<Response, Unreachable> {
        let request = request.header(header::ACCEPT, "application/json");
        Ok(self.client.send_request(request).await?)
    }
}

#[async_trait]
impl ProviderHttp for ProviderClient {
    async fn get(&self, address: &str, bearer: Option<&str>) -> Result<Bytes, Unreachable> {
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| Unreachable(error.into()))?;
        let mut request = self.client.new_request(Method::GET, address)?;
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let answer = self.send_request(request).await?;
        if answer.status() != 200 {
            return Err(Unreachable(Status(answer.status()).into()));
        }
        Ok(answer.read_body(MAX_RESPONSE_BYTES).await?.into())
    }

    async fn post(
        &self,
        address: &str,
        form: String,
        authorization: Option<String>,
    ) -> Result<(u16, Bytes), Unreachable> {
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| Unreachable(error.into()))?;
        let request = self.client.new_request(Method::POST, address)?;
        let mut request = request
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let answer = self.send_request(request).await?;
        let status = answer.status();
        // This says nothing about the code: the provider is overloaded or down, and the person may
        // try again.
        if status == 429 || status >= 500 {
            return Err(Unreachable(Status(status).into()));
        }
        Ok((status, answer.read_body(MAX_RESPONSE_BYTES).await?.into()))
    }
}

impl From<HttpError> for Unreachable {
    fn from(error: HttpError) -> Self {
        Self(error.into())
    }
}
