//! Sign-in through an OpenID Connect provider, on the side of the relying party: the provider's
//! discovery document, its keys, and the verification of a person who returns from it with a code.
//!
//! All functions are pure except those of [`Provider`], which makes requests through the port
//! [`ProviderHttp`] and caches documents; no result depends on the cache being filled. `accounts`
//! has the pages and cookies of a sign-in. This module knows no account and never decides who may
//! sign in.

mod client;
mod discovery;
mod id_token;
mod keys;

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use url::form_urlencoded::{Serializer, byte_serialize};
use vault_format::time::Timestamp;

use crate::config::ProviderSettings;
pub use client::ProviderClient;
pub use discovery::{BadDiscovery, ClientAuth, Discovery};
pub use id_token::{Address, BadIdToken, ExpectedClaims, IdToken, Person, SKEW_SECONDS};
pub use keys::{BadKeys, Key, KeySet};

/// Time for which a document of the provider is used without a new request, in seconds: an hour.
pub const FRESH_SECONDS: i64 = 3600;
/// Time for which a document is used while the provider does not answer, in seconds: a day.
const STALE_SECONDS: i64 = 24 * 3600;
/// Time after a failure in which the same document is not requested again, in seconds.
pub const RETRY_SECONDS: i64 = 10;
/// Minimum time between two fetches of the keys because a token names an unknown key, in seconds.
pub const ROTATION_SECONDS: i64 = 60;

/// Port for HTTP requests to the identity provider.
#[async_trait]
pub trait ProviderHttp: Send + Sync {
    /// Makes one request to `address`, without following a redirect, and returns the body of the
    /// answer. `bearer` is an access token to send. Fails for any status but 200.
    async fn get(&self, address: &str, bearer: Option<&str>) -> Result<Bytes, Unreachable>;

    /// Posts a form, and returns the status and the body of the answer. Fails for 429 and 5xx.
    async fn post(
        &self,
        address: &str,
        form: String,
        authorization: Option<String>,
    ) -> Result<(u16, Bytes), Unreachable>;
}

/// Error: the provider does not answer, or reports that it cannot serve the request.
#[derive(Debug, thiserror::Error)]
#[error("the identity provider does not answer")]
pub struct Unreachable(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Function that returns the client secret of this service at the provider. It is called only when
/// the secret is needed.
pub type SecretSource = Box<
    dyn Fn() -> Pin<
            Box<
                dyn Future<Output = Result<SecretString, Box<dyn std::error::Error + Send + Sync>>>
                    + Send,
            >,
        > + Send
        + Sync,
>;

/// Returns a source for a secret that is already known.
pub fn given_secret(secret: SecretString) -> SecretSource {
    Box::new(move || {
        let secret = secret.clone();
        Box::pin(async move { Ok(secret) })
    })
}

/// Reason why a sign-in through the provider failed.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// A request to the provider failed; [`ProviderHttp`] says which statuses count as failures.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// A request failed within the last [`RETRY_SECONDS`], so none is made.
    #[error("the identity provider did not answer a moment ago")]
    Failing,
    /// The provider's discovery document does not fit the settings.
    #[error(transparent)]
    Discovery(#[from] BadDiscovery),
    /// The document at the provider's `jwks_uri` is not a key set.
    #[error(transparent)]
    Keys(#[from] BadKeys),
    /// The client secret of this service cannot be read.
    #[error("the secret of this service at the identity provider cannot be read")]
    Secret(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The provider refused the code of this sign-in.
    #[error("the identity provider refused the code")]
    Code,
    /// The provider refused this service as client, with this error code.
    #[error("the identity provider refused this service: {0}")]
    Client(String),
    /// The token or userinfo endpoint answered in another form, or about another person.
    #[error("the answer of the identity provider is not valid")]
    Answer,
    /// The ID token is not valid for this sign-in; [`BadIdToken`] says why.
    #[error(transparent)]
    IdToken(#[from] BadIdToken),
}

impl ProviderError {
    /// Whether nobody can sign in at present; otherwise only this sign-in failed.
    pub const fn is_outage(&self) -> bool {
        !matches!(self, Self::Code | Self::Answer | Self::IdToken(_))
    }
}

/// The parameters of one sign-in at the provider.
#[derive(Clone, Copy, Debug)]
pub struct SignInRequest<'r> {
    /// Address of this service to which the provider sends the browser back.
    pub redirect_uri: &'r str,
    /// Value that the browser must bring back unchanged.
    pub state: &'r str,
    /// Value that the ID token must contain.
    pub nonce: &'r str,
    /// Whether the provider must ask for credentials even if the person is signed in there.
    pub fresh: bool,
}

/// The code that the provider gave to a browser, with the request that it answers.
#[derive(Clone, Copy, Debug)]
pub struct CodeExchange<'e> {
    /// Authorization code from the provider's redirect.
    pub code: &'e str,
    /// Code verifier: the secret of the code challenge (PKCE, RFC 7636).
    pub verifier: &'e str,
    /// The parameters with which the browser was sent to the provider.
    pub request: SignInRequest<'e>,
    /// Time at which the browser was sent to the provider.
    pub asked_at: Timestamp,
}

/// A cached document of the provider, with the times of the last successful and failed fetch.
struct CachedDocument<T> {
    document: Option<(Arc<T>, Timestamp)>,
    failed_at: Option<Timestamp>,
}

impl<T> Default for CachedDocument<T> {
    fn default() -> Self {
        Self {
            document: None,
            failed_at: None,
        }
    }
}

impl<T> CachedDocument<T> {
    fn younger_than(&self, seconds: i64, now: Timestamp) -> Option<Arc<T>> {
        let (document, at) = self.document.as_ref()?;
        (now < at.plus_seconds(seconds)).then(|| Arc::clone(document))
    }

    /// Returns the document from the cache, or by `fetch` if the cached one is older than `fresh`
    /// seconds. A failure is remembered for [`RETRY_SECONDS`], so that people who sign in meanwhile
    /// do not wait for it. While fetches fail, the cached document is used for up to a day.
    async fn get_or_fetch(
        &mut self,
        fresh: i64,
        now: Timestamp,
        fetch: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<Arc<T>, ProviderError> {
        if let Some(document) = self.younger_than(fresh, now) {
            return Ok(document);
        }
        let failed_at = self.failed_at.take();
        let failed_at = failed_at.filter(|at| now < at.plus_seconds(RETRY_SECONDS));
        let (failure, failed_at) = match failed_at {
            Some(at) => (ProviderError::Failing, at),
            None => match fetch.await {
                Ok(fetched) => {
                    let fetched = Arc::new(fetched);
                    self.document = Some((Arc::clone(&fetched), now));
                    return Ok(fetched);
                }
                Err(failure) => (failure, now),
            },
        };
        // Also set if the old copy is used, so that not every sign-in tries the provider again.
        self.failed_at = Some(failed_at);
        self.younger_than(STALE_SECONDS, now).ok_or(failure)
    }
}

/// The identity provider that signs people in to a service.
pub struct Provider {
    settings: ProviderSettings,
    http: Arc<dyn ProviderHttp>,
    secret: Option<SecretSource>,
    // Each lock is held while its document is fetched, so that only one of several concurrent
    // sign-ins fetches it.
    discovery: Mutex<CachedDocument<Discovery>>,
    keys: Mutex<CachedDocument<KeySet>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    email_verified: Option<Value>,
}

impl Provider {
    /// Creates the provider of `settings`. `secret` authenticates this service as client; `None` if
    /// it is a public client.
    pub fn new(
        settings: ProviderSettings,
        http: Arc<dyn ProviderHttp>,
        secret: Option<SecretSource>,
    ) -> Self {
        Self {
            settings,
            http,
            secret,
            discovery: Mutex::default(),
            keys: Mutex::default(),
        }
    }

    /// Returns the settings: issuer, client id, name on pages, and who may sign up.
    pub const fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Returns the discovery document, from the cache if it is fresh.
    pub async fn discovery(&self, now: Timestamp) -> Result<Arc<Discovery>, ProviderError> {
        let issuer = &self.settings.issuer;
        let fetch = async {
            let document = self.http.get(&issuer.discovery_address(), None).await?;
            Ok(Discovery::parse_document(issuer, &document)?)
        };
        self.discovery
            .lock()
            .await
            .get_or_fetch(FRESH_SECONDS, now, fetch)
            .await
    }

    async fn signing_keys(&self, fresh: i64, now: Timestamp) -> Result<Arc<KeySet>, ProviderError> {
        let address = self.discovery(now).await?.jwks_uri.clone();
        let fetch = async {
            let document = self.http.get(&address, None).await?;
            Ok(KeySet::parse_set(&document)?)
        };
        self.keys.lock().await.get_or_fetch(fresh, now, fetch).await
    }

    /// Returns the key set for verifying `token`: the cached one, or a newly fetched one if the
    /// cached one has no fitting key.
    async fn keys_for(
        &self,
        token: &IdToken<'_>,
        now: Timestamp,
    ) -> Result<Arc<KeySet>, ProviderError> {
        let keys = self.signing_keys(FRESH_SECONDS, now).await?;
        if token.has_key(&keys) {
            return Ok(keys);
        }
        // The provider may have rotated its keys. The time limit bounds the requests that forged
        // tokens with invented key ids can cause.
        self.signing_keys(ROTATION_SECONDS, now).await
    }

    /// Returns the address at the provider to which a browser is sent for the sign-in (OpenID
    /// Connect Core, section 3.1.2.1). `challenge` is the S256 code challenge.
    pub async fn sign_in_address(
        &self,
        request: SignInRequest<'_>,
        challenge: &str,
        now: Timestamp,
    ) -> Result<String, ProviderError> {
        let discovery = self.discovery(now).await?;
        let mut address = discovery.authorization_endpoint.clone();
        address.push(if address.contains('?') { '&' } else { '?' });
        let mut query = Serializer::new(String::new());
        query.extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", request.redirect_uri),
            ("scope", "openid email"),
            ("state", request.state),
            ("nonce", request.nonce),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
        ]);
        // `prompt` demands credentials. With `max_age` the provider also states in `auth_time` when
        // they were entered, which can be checked.
        if request.fresh {
            query.extend_pairs([("prompt", "login"), ("max_age", "0")]);
        }
        Ok(address + &query.finish())
    }

    /// Exchanges the code, verifies the ID token, and returns the person whom it is about. Asks the
    /// userinfo endpoint for the e-mail address if the token does not contain it.
    pub async fn identify_person(
        &self,
        exchange: CodeExchange<'_>,
        now: Timestamp,
    ) -> Result<Person, ProviderError> {
        let discovery = self.discovery(now).await?;
        let answer = self.exchange_code(&discovery, exchange).await?;
        let token = IdToken::parse(&answer.id_token)?;
        let keys = self.keys_for(&token, now).await?;
        let expected = ExpectedClaims {
            issuer: self.settings.issuer.as_str(),
            client_id: &self.settings.client_id,
            nonce: exchange.request.nonce,
            asked_at: exchange.asked_at,
            now,
            fresh: exchange.request.fresh,
        };
        let mut person = token.verify(&keys, expected)?;
        if let (Address::Missing, Some(address), Some(access)) = (
            &person.address,
            &discovery.userinfo_endpoint,
            &answer.access_token,
        ) {
            let info_body = self.http.get(address, Some(access)).await?;
            let found: UserInfo =
                serde_json::from_slice(&info_body).map_err(|_| ProviderError::Answer)?;
            // Claims about another subject must not be used (OpenID Connect Core, section 5.3.2).
            if found.sub != person.subject {
                return Err(ProviderError::Answer);
            }
            person.address = Address::from_claims(found.email, found.email_verified.as_ref());
        }
        Ok(person)
    }

    async fn exchange_code(
        &self,
        discovery: &Discovery,
        exchange: CodeExchange<'_>,
    ) -> Result<TokenAnswer, ProviderError> {
        #[derive(Deserialize)]
        struct Refused {
            error: String,
        }
        let client_id = &self.settings.client_id;
        let secret = match &self.secret {
            Some(source) => Some(source().await.map_err(ProviderError::Secret)?),
            None => None,
        };
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", exchange.code),
            ("redirect_uri", exchange.request.redirect_uri),
            ("code_verifier", exchange.verifier),
        ];
        let mut authorization = None;
        match (&secret, discovery.client_auth()) {
            (Some(secret), ClientAuth::Basic) => {
                authorization = Some(basic_authorization(client_id, secret));
            }
            (Some(secret), ClientAuth::Post) => fields.extend([
                ("client_id", client_id.as_str()),
                ("client_secret", secret.expose_secret()),
            ]),
            (None, _) => fields.push(("client_id", client_id)),
        }
        let form = Serializer::new(String::new()).extend_pairs(fields).finish();
        let address = &discovery.token_endpoint;
        let (status, body) = self.http.post(address, form, authorization).await?;
        if status == 200 {
            return serde_json::from_slice(&body).map_err(|_| ProviderError::Answer);
        }
        // Only `invalid_grant` is about this sign-in; any other code means that the service is set
        // up wrongly at the provider.
        match serde_json::from_slice::<Refused>(&body) {
            Ok(refused) if refused.error == "invalid_grant" => Err(ProviderError::Code),
            Ok(refused) => Err(ProviderError::Client(error_code(&refused.error))),
            Err(_) => Err(ProviderError::Answer),
        }
    }
}

/// Reduces an error code of the provider to at most 40 characters that pages and logs can show.
pub fn error_code(text: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "_-".contains(*letter);
    text.chars().filter(plain).take(40).collect()
}

/// Returns the header value for `client_secret_basic`. Both parts are form-encoded first (RFC 6749,
/// section 2.3.1).
fn basic_authorization(client_id: &str, secret: &SecretString) -> String {
    let escaped = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", escaped(client_id), escaped(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair))
}
