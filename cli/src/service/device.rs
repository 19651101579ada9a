//! The client of an enrolled machine: every request signed with the key that belongs to this one vault.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use vault_skill::{hash::Digest, keys::SecretKey, name::Slug, request};
use vault_store::clock::{Clock, SystemClock};

use super::{Answer, Base, Http, ceiling};
use vault_service::error::Code;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
};

/// Talks to `/v/<slug>/` of one service and to no other path.
pub struct DeviceClient {
    http: Http,
    base: Base,
    slug: Slug,
    key: SecretKey,
}

/// What the service holds of this machine.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceState {
    /// The machine's name in the service's records.
    pub device_id: String,
    /// `pending`, `active` or `revoked`.
    pub status: String,
    /// The current catalog, for machines that may read it.
    #[serde(default)]
    pub catalog: Option<CatalogNow>,
}

/// The current catalog as `devices/current` tells it; unsigned, a hint for whether to fetch.
#[derive(Clone, Debug, Deserialize)]
pub struct CatalogNow {
    /// SHA-256 of the file.
    pub sha256: Digest,
    /// Its release.
    pub release: u64,
}

impl DeviceClient {
    /// With the key that was made for this vault.
    pub fn new(
        context: &Context,
        base: &Base,
        slug: &Slug,
        key: SecretKey,
    ) -> Result<Self, Failure> {
        Ok(Self {
            http: Http::new(context, base)?,
            base: base.clone(),
            slug: slug.clone(),
            key,
        })
    }

    /// Enrols this machine, or finds that it is enrolled.
    pub async fn enrol(&self, hostname: &str) -> Result<DeviceState, Failure> {
        let path = format!("/v/{}/devices", self.slug);
        let body = json!({ "public_key": self.key.public().to_string(), "hostname": hostname });
        let request = self.signed(Method::POST, &path).json(&body);
        self.http.send(request, ceiling::DEVICE).await?.json()
    }

    /// This machine's state and the current catalog's hash.
    pub async fn current(&self) -> Result<DeviceState, Failure> {
        self.read(
            &format!("/v/{}/devices/current", self.slug),
            ceiling::DEVICE,
        )
        .await?
        .json()
    }

    /// The catalog's exact bytes, unverified; `None` before the first release.
    pub async fn catalog(&self) -> Result<Option<Vec<u8>>, Failure> {
        let answer = self
            .read(&format!("/v/{}/catalog.json", self.slug), ceiling::OBJECT)
            .await?;
        if answer.is_refusal(Code::CatalogNotPublished) {
            return Ok(None);
        }
        Ok(Some(answer.good()?.body))
    }

    /// A bundle's exact bytes, unverified. `size` is what the signed catalog says: more is never read.
    pub async fn bundle(&self, hash: &Digest, size: u64) -> Result<Vec<u8>, Failure> {
        let path = format!("/v/{}/bundles/{hash}.json", self.slug);
        let mut tries = 0;
        loop {
            let answer = self.read(&path, size.min(ceiling::OBJECT)).await;
            let answer = answer.map_err(|failure| longer_than_signed(hash, size, failure))?;
            match answer.retry_after() {
                Some(seconds) if tries < 3 => {
                    tries += 1;
                    tokio::time::sleep(std::time::Duration::from_secs(seconds.clamp(1, 20))).await;
                }
                _ => return Ok(answer.good()?.body),
            }
        }
    }

    async fn read(&self, path: &str, ceiling: u64) -> Result<Answer, Failure> {
        self.http
            .send(self.signed(Method::GET, path), ceiling)
            .await
    }

    fn signed(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        // What is signed is the whole path as sent, the prefix of the public address included.
        let full = format!("{}{path}", self.base.prefix());
        let signed = request::sign(&self.key, method.as_str(), &full, SystemClock.now());
        self.http
            .request(method, &self.base.at(path))
            .header("X-Vault-Device", signed.device)
            .header("X-Vault-Timestamp", signed.timestamp)
            .header("X-Vault-Signature", signed.signature)
    }
}

/// A bundle that goes on after its signed size is not the owner's, whatever follows: not a matter of the network.
fn longer_than_signed(hash: &Digest, size: u64, failure: Failure) -> Failure {
    if failure.code != ErrorCode::TooLarge {
        return failure;
    }
    Failure::new(
        ErrorCode::BundleRefused,
        format!("the bundle {hash} is longer than the {size} bytes that were signed for"),
    )
    .hint("nothing was changed; the service sent something that the owner did not sign")
}
