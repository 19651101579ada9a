//! An OpenID Connect provider, as a service that relies on it sees it: what it says about itself,
//! its keys, and what it says about a person who comes back from it with a code.
//!
//! Pure but for [`Provider`], which asks over the port [`ProviderHttp`] and keeps the answers for a
//! while. Nothing that is right or wrong depends on what it keeps. `oauth::provider` is the walk of
//! the person.

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
pub use id_token::{Address, BadIdToken, Expected, IdToken, Person, SKEW_SECONDS};
pub use keys::{BadKeys, Key, KeySet};

/// How long a document of the provider is used without asking again, in seconds: an hour.
pub const FRESH_SECONDS: i64 = 3600;
/// How long it is used while the provider does not answer, in seconds: a day.
const STALE_SECONDS: i64 = 24 * 3600;
/// After a failure the provider is not asked for the same document again for this many seconds.
pub const RETRY_SECONDS: i64 = 10;
/// A token under an unknown key has the keys fetched again at most once in this many seconds.
pub const ROTATION_SECONDS: i64 = 60;

/// The port by which the provider is asked.
#[async_trait]
pub trait ProviderHttp: Send + Sync {
    /// The body of a 200 at this address, by one request that follows no redirect, with `bearer` as
    /// access token. Fails for any other status.
    async fn get(&self, address: &str, bearer: Option<&str>) -> Result<Bytes, Unreachable>;

    /// Status and body of the answer to a form. A 429 or 5xx is a failure.
    async fn post(
        &self,
        address: &str,
        form: String,
        authorization: Option<String>,
    ) -> Result<(u16, Bytes), Unreachable>;
}

/// The provider does not answer, or says that it cannot.
#[derive(Debug, thiserror::Error)]
#[error("the identity provider does not answer")]
pub struct Unreachable(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Where the secret of this service at the provider comes from; asked when it is first needed.
pub type SecretSource = Box<
    dyn Fn() -> Pin<
            Box<
                dyn Future<Output = Result<SecretString, Box<dyn std::error::Error + Send + Sync>>>
                    + Send,
            >,
        > + Send
        + Sync,
>;

/// A secret that is there from the start.
pub fn given_secret(secret: SecretString) -> SecretSource {
    Box::new(move || {
        let secret = secret.clone();
        Box::pin(async move { Ok(secret) })
    })
}

/// Why it is unknown who came back.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It does not answer.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// It did not answer a moment ago.
    #[error("the identity provider did not answer a moment ago")]
    Failing,
    /// It is not what the settings say.
    #[error(transparent)]
    Discovery(#[from] BadDiscovery),
    /// Its keys cannot be read.
    #[error(transparent)]
    Keys(#[from] BadKeys),
    /// The secret of this service cannot be had.
    #[error("the secret of this service at the identity provider cannot be read")]
    Secret(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It does not take the code.
    #[error("the identity provider refused the code")]
    Code,
    /// It refuses this service.
    #[error("the identity provider refused this service: {0}")]
    Client(String),
    /// Its answer is not that of a token endpoint.
    #[error("the answer of the identity provider is not valid")]
    Answer,
    /// The ID token is not good.
    #[error(transparent)]
    IdToken(#[from] BadIdToken),
}

impl ProviderError {
    /// Whether the provider cannot serve anybody at the moment, rather than this one sign-in.
    pub const fn is_outage(&self) -> bool {
        !matches!(self, Self::Code | Self::Answer | Self::IdToken(_))
    }
}

/// What one sign-in is known by, on its way to the provider and back.
#[derive(Clone, Copy, Debug)]
pub struct SignInRequest<'r> {
    /// Where the browser comes back to.
    pub redirect_uri: &'r str,
    /// Comes back unchanged.
    pub state: &'r str,
    /// Comes back in the ID token.
    pub nonce: &'r str,
    /// Whether the provider is to ask for credentials, whoever is signed in there.
    pub fresh: bool,
}

/// The answer of the provider to a browser, and what the request was.
#[derive(Clone, Copy, Debug)]
pub struct CodeExchange<'e> {
    /// The code.
    pub code: &'e str,
    /// The secret behind the code challenge (RFC 7636).
    pub verifier: &'e str,
    /// The request.
    pub request: SignInRequest<'e>,
    /// When it was made.
    pub asked_at: Timestamp,
}

/// A document of the provider, and when it was fetched.
struct Held<T> {
    document: Option<(Arc<T>, Timestamp)>,
    failed_at: Option<Timestamp>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self {
            document: None,
            failed_at: None,
        }
    }
}

impl<T> Held<T> {
    fn younger_than(&self, seconds: i64, now: Timestamp) -> Option<Arc<T>> {
        let (document, at) = self.document.as_ref()?;
        (now < at.plus_seconds(seconds)).then(|| Arc::clone(document))
    }

    /// The document, from memory or by `fetch`. A failure is remembered for a moment, so that
    /// people who come in the meantime do not wait for it, and a good copy serves on for a day.
    async fn get(
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
        self.failed_at = Some(failed_at);
        self.younger_than(STALE_SECONDS, now).ok_or(failure)
    }
}

/// The provider of a service.
pub struct Provider {
    settings: ProviderSettings,
    http: Arc<dyn ProviderHttp>,
    secret: Option<SecretSource>,
    // A lock that is held while a document is fetched: of many who need it, one asks.
    discovery: Mutex<Held<Discovery>>,
    keys: Mutex<Held<KeySet>>,
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
    /// The provider of `settings`; `secret` proves this service to it, where it has one.
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

    /// The settings.
    pub const fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// What the provider says about itself.
    pub async fn discovery(&self, now: Timestamp) -> Result<Arc<Discovery>, ProviderError> {
        let issuer = &self.settings.issuer;
        let fetch = async {
            let document = self.http.get(&issuer.discovery_address(), None).await?;
            Ok(Discovery::read(issuer, &document)?)
        };
        self.discovery
            .lock()
            .await
            .get(FRESH_SECONDS, now, fetch)
            .await
    }

    async fn keys(&self, fresh: i64, now: Timestamp) -> Result<Arc<KeySet>, ProviderError> {
        let address = self.discovery(now).await?.jwks_uri.clone();
        let fetch = async {
            let document = self.http.get(&address, None).await?;
            Ok(KeySet::read(&document)?)
        };
        self.keys.lock().await.get(fresh, now, fetch).await
    }

    /// The keys that verify `token`: those at hand, or fresh ones when none of these does.
    async fn keys_for(
        &self,
        token: &IdToken<'_>,
        now: Timestamp,
    ) -> Result<Arc<KeySet>, ProviderError> {
        let keys = self.keys(FRESH_SECONDS, now).await?;
        if token.has_key(&keys) {
            return Ok(keys);
        }
        self.keys(ROTATION_SECONDS, now).await
    }

    /// The address that a browser goes to (OpenID Connect Core, section 3.1.2.1). `challenge` is
    /// the S256 code challenge.
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
        if request.fresh {
            query.extend_pairs([("prompt", "login"), ("max_age", "0")]);
        }
        Ok(address + &query.finish())
    }

    /// Who came back with a code.
    pub async fn person(
        &self,
        exchange: CodeExchange<'_>,
        now: Timestamp,
    ) -> Result<Person, ProviderError> {
        let discovery = self.discovery(now).await?;
        let answer = self.exchange(&discovery, exchange).await?;
        let token = IdToken::parse(&answer.id_token)?;
        let keys = self.keys_for(&token, now).await?;
        let expected = Expected {
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
            let found = self.http.get(address, Some(access)).await?;
            let found: UserInfo =
                serde_json::from_slice(&found).map_err(|_| ProviderError::Answer)?;
            // Of another subject it says nothing here (OpenID Connect Core, section 5.3.2).
            if found.sub != person.subject {
                return Err(ProviderError::Answer);
            }
            person.address = Address::of(found.email, found.email_verified.as_ref());
        }
        Ok(person)
    }

    /// The answer of the token endpoint to a code.
    async fn exchange(
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
            (Some(secret), ClientAuth::Basic) => authorization = Some(basic(client_id, secret)),
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
        match serde_json::from_slice::<Refused>(&body) {
            Ok(refused) if refused.error == "invalid_grant" => Err(ProviderError::Code),
            Ok(refused) => Err(ProviderError::Client(error_code(&refused.error))),
            Err(_) => Err(ProviderError::Answer),
        }
    }
}

/// An error code of the provider, as pages and logs may show it.
pub fn error_code(text: &str) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "_-".contains(*letter);
    text.chars().filter(plain).take(40).collect()
}

/// `client_secret_basic`: both parts are escaped first (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &SecretString) -> String {
    let escaped = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", escaped(client_id), escaped(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair))
}
