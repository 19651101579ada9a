//! The requests to the provider that the operator named.
//!
//! The operator chose the provider, so any address may be its own, a private one too; it chooses
//! which addresses of its own are asked (`Issuer::may_name`). No redirect, no encoding, few bytes,
//! few seconds, few requests at once. TLS proves the host.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Method;
use reqwest::header;
use tokio::sync::Semaphore;
use vault_http::{Client, HttpError, Limits, Options, Reach, Response};

use super::{ProviderHttp, Unreachable};
use crate::config::Issuer;

/// Three requests of one sign-in have to fit into the time of its handler.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(3),
    whole: Duration::from_secs(5),
    window: Duration::from_secs(5),
    least: 0,
};
/// Most bytes of an answer.
const MOST_BYTES: u64 = 256 * 1024;
/// Requests that one process has under way at once. More wait, within the time of their handlers.
const MAX_CONCURRENT: usize = 16;

/// Asks a provider over HTTP.
pub struct ProviderClient {
    client: Client,
    slots: Semaphore,
}

#[derive(Debug, thiserror::Error)]
#[error("it answers with status {0}")]
struct Status(u16);

impl ProviderClient {
    /// A client for this provider. It opens no connection yet.
    pub fn new(issuer: &Issuer) -> Self {
        let reach = match issuer.loopback() {
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
                https_only: issuer.loopback().is_none(),
                reuse: true,
                roots: &[],
            }),
            slots: Semaphore::new(MAX_CONCURRENT),
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Unreachable> {
        let request = request.header(header::ACCEPT, "application/json");
        Ok(self.client.send(request).await?)
    }
}

#[async_trait]
impl ProviderHttp for ProviderClient {
    async fn get(&self, address: &str, bearer: Option<&str>) -> Result<Bytes, Unreachable> {
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| Unreachable(error.into()))?;
        let mut request = self.client.request(Method::GET, address)?;
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let answer = self.send(request).await?;
        if answer.status() != 200 {
            return Err(Unreachable(Status(answer.status()).into()));
        }
        Ok(answer.body(MOST_BYTES).await?.into())
    }

    async fn post(
        &self,
        address: &str,
        form: String,
        authorization: Option<String>,
    ) -> Result<(u16, Bytes), Unreachable> {
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| Unreachable(error.into()))?;
        let request = self.client.request(Method::POST, address)?;
        let mut request = request
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let answer = self.send(request).await?;
        let status = answer.status();
        if status == 429 || status >= 500 {
            return Err(Unreachable(Status(status).into()));
        }
        Ok((status, answer.body(MOST_BYTES).await?.into()))
    }
}

impl From<HttpError> for Unreachable {
    fn from(error: HttpError) -> Self {
        Self(error.into())
    }
}
