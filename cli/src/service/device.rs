//! The client of a *device*: a machine that is enrolled at a service to read one linked vault. It
//! signs every request with the machine's key for that vault.

use reqwest::Method;
use vault_api::{CurrentDevice, Enrolment};
use vault_format::{hash::Digest, keys::SecretKey, name::Slug, request};
use vault_store::clock::{Clock, SystemClock};

use super::{Answer, Base, Http, ceiling, patience::Patience};
use vault_service::error::ErrorCode as ServiceCode;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
};

/// A client that sends signed requests only below `/v/<slug>/` of one service.
pub struct DeviceClient {
    http: Http,
    base: Base,
    slug: Slug,
    key: SecretKey,
}

impl DeviceClient {
    /// Creates the client with this machine's key for the vault.
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

    /// Enrols this machine. With a code from the owner, it is admitted at once; otherwise it waits
    /// for the owner's approval. Succeeds if the machine is already enrolled.
    pub async fn enrol(
        &self,
        hostname: &str,
        code: Option<&str>,
    ) -> Result<CurrentDevice, Failure> {
        let path = format!("/v/{}/devices", self.slug);
        let body = Enrolment {
            public_key: self.key.public().to_string(),
            hostname: Some(hostname.to_owned()),
            code: code.map(str::to_owned),
        };
        let request = self.signed_request(Method::POST, &path).json(&body);
        self.http.send(request, ceiling::DEVICE).await?.json()
    }

    /// Fetches the state of this machine's enrolment and the digest of the current catalog.
    pub async fn fetch_current(&self) -> Result<CurrentDevice, Failure> {
        let path = format!("/v/{}/devices/current", self.slug);
        self.read_path(&path, ceiling::DEVICE).await?.json()
    }

    /// Fetches the bytes of the current catalog (the signed list of a release's content),
    /// unverified. Returns `None` before the first release.
    pub async fn fetch_catalog(&self) -> Result<Option<Vec<u8>>, Failure> {
        let path = format!("/v/{}/catalog.json", self.slug);
        let answer = self.read_path(&path, ceiling::OBJECT).await?;
        if answer.is_refusal(ServiceCode::CatalogNotPublished) {
            return Ok(None);
        }
        Ok(Some(answer.require_good()?.body))
    }

    /// Fetches a bundle's exact bytes, unverified. `size` is the size in the signed catalog, and
    /// longer responses are rejected.
    pub async fn fetch_bundle(&self, hash: &Digest, size: u64) -> Result<Vec<u8>, Failure> {
        let path = format!("/v/{}/bundles/{hash}.json", self.slug);
        let mut patience = Patience::default();
        loop {
            // The signed size limits the response. The ceiling applies if the catalog names an
            // absurd size.
            let answer = self.read_path(&path, size.min(ceiling::OBJECT)).await;
            let answer = answer.map_err(|failure| longer_than_signed(hash, size, failure))?;
            // Fetching many bundles may hit the rate limit, which is not a failure.
            match patience.pause_before_repeat(&answer) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(answer.require_good()?.body),
            }
        }
    }

    async fn read_path(&self, path: &str, ceiling: u64) -> Result<Answer, Failure> {
        self.http
            .send(self.signed_request(Method::GET, path), ceiling)
            .await
    }

    fn signed_request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        // The signature covers the complete path, including the prefix of the public address.
        let full = format!("{}{path}", self.base.prefix());
        let signed = request::sign_request(&self.key, method.as_str(), &full, SystemClock.now());
        self.http
            .request(method, &self.base.address_of(path))
            .header("X-Vault-Device", signed.device)
            .header("X-Vault-Timestamp", signed.timestamp)
            .header("X-Vault-Signature", signed.signature)
    }
}

/// Converts a response longer than the signed size into an integrity failure: the owner did not
/// sign these bytes. Other failures are unchanged.
fn longer_than_signed(hash: &Digest, size: u64, failure: Failure) -> Failure {
    if failure.code != ErrorCode::TooLarge {
        return failure;
    }
    fail!(
        BundleRefused,
        "the bundle {hash} is longer than the {size} bytes that were signed for"
    )
    .hint("nothing was changed; the service sent content that the owner did not sign")
}
