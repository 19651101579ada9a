//! An OpenID Connect provider on loopback, of whose answers each test decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use vault_service::model::pkce::Challenge;
use vault_store::clock::Clock as _;
use vault_testing::TestClock;

/// What the service is called at the provider, and its secret. Both need escapes.
pub const CLIENT_ID: &str = "vault service";
pub const CLIENT_SECRET: &str = "a:secret/of the+service";
/// The provider's name for Ada.
pub const SUBJECT: &str = "248289761001";

/// A signing key with its name.
pub struct Key {
    id: String,
    pair: EcdsaKeyPair,
}

impl Key {
    pub fn new(id: &str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self {
            id: id.to_owned(),
            pair,
        }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": part(1), "y": part(33) })
    }

    /// A token under this key.
    pub fn signed(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": self.id, "typ": "JWT" });
        let signed = [header, claims.clone()]
            .map(|part| encoded(&part))
            .join(".");
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.unwrap()))
    }
}

/// A part of a token.
pub fn encoded(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// A code that the provider gave out.
struct Code {
    id_token: String,
    challenge: String,
    redirect_uri: String,
}

struct Inner {
    clock: OnceLock<Arc<TestClock>>,
    issuer: String,
    /// What the discovery document says.
    discovery: Mutex<Value>,
    keys: Mutex<Vec<Key>>,
    codes: Mutex<HashMap<String, Code>>,
    userinfo: Mutex<Value>,
    failing: Mutex<Vec<&'static str>>,
    refusal: Mutex<Option<&'static str>>,
    fetched_keys: AtomicUsize,
    tokens_given: AtomicUsize,
}

/// The provider.
#[derive(Clone)]
pub struct Double(Arc<Inner>);

impl Double {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let discovery = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/auth?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "authorization_response_iss_parameter_supported": true,
        });
        let double = Self(Arc::new(Inner {
            clock: OnceLock::new(),
            issuer,
            discovery: Mutex::new(discovery),
            keys: Mutex::new(vec![Key::new("first")]),
            codes: Mutex::default(),
            userinfo: Mutex::default(),
            failing: Mutex::default(),
            refusal: Mutex::default(),
            fetched_keys: AtomicUsize::new(0),
            tokens_given: AtomicUsize::new(0),
        }));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discover))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/userinfo", get(userinfo))
            .with_state(double.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        double
    }

    /// Has the provider read this clock.
    pub fn follows(&self, clock: &Arc<TestClock>) {
        assert!(
            self.0.clock.set(Arc::clone(clock)).is_ok(),
            "it follows one already"
        );
    }

    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// Changes what the discovery document says.
    pub fn says(&self, name: &str, value: Value) {
        self.0.discovery.lock().unwrap()[name] = value;
    }

    /// The addresses with these paths answer 503; no path: all answer again.
    pub fn fails_at(&self, paths: &[&'static str]) {
        *self.0.failing.lock().unwrap() = paths.to_vec();
    }

    /// The token endpoint refuses everything with this error.
    pub fn refuses(&self, error: &'static str) {
        *self.0.refusal.lock().unwrap() = Some(error);
    }

    /// What the address of the person says, for tokens that name no address.
    pub fn knows(&self, person: Value) {
        *self.0.userinfo.lock().unwrap() = person;
        self.says(
            "userinfo_endpoint",
            json!(format!("{}/userinfo", self.0.issuer)),
        );
    }

    /// Replaces all keys.
    pub fn rotates_to(&self, key: Key) {
        *self.0.keys.lock().unwrap() = vec![key];
    }

    pub fn fetched_keys(&self) -> usize {
        self.0.fetched_keys.load(Ordering::Relaxed)
    }

    pub fn tokens_given(&self) -> usize {
        self.0.tokens_given.load(Ordering::Relaxed)
    }

    /// What a token says that answers the request at `address`, of Ada.
    pub fn claims(&self, address: &str) -> Value {
        let now = self.0.clock.get().unwrap().now().unix();
        json!({
            "iss": self.0.issuer,
            "sub": SUBJECT,
            "aud": parameter(address, "client_id"),
            "exp": now + 600,
            "iat": now,
            "nonce": parameter(address, "nonce"),
            "email": "ada@example.org",
            "email_verified": true,
            // Who is asked with `max_age` states when credentials were entered.
            "auth_time": address.contains("max_age=").then_some(now),
        })
    }

    /// The way back for the browser at `address`, with a code for a token with these claims.
    pub fn answer(&self, address: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.claims(address);
        change(&mut claims);
        let id_token = self.0.keys.lock().unwrap()[0].signed(&claims);
        self.answer_with(address, id_token)
    }

    /// The same for exactly this token.
    pub fn answer_with(&self, address: &str, id_token: String) -> String {
        let mut codes = self.0.codes.lock().unwrap();
        let name = format!("code-{}", codes.len());
        let code = Code {
            id_token,
            challenge: parameter(address, "code_challenge"),
            redirect_uri: parameter(address, "redirect_uri"),
        };
        codes.insert(name.clone(), code);
        let state = parameter(address, "state");
        format!(
            "{}&iss={}",
            callback(&state, &[("code", &name)]),
            self.0.issuer
        )
    }

    fn fails(&self, path: &'static str) -> bool {
        self.0.failing.lock().unwrap().contains(&path)
    }
}

/// The address that browsers come back to.
pub fn callback(state: &str, more: &[(&str, &str)]) -> String {
    let pairs = [&[("state", state)], more].concat();
    format!("/oauth/oidc/callback?{}", crate::common::encoded(&pairs))
}

/// A parameter in the query of an address.
pub fn parameter(address: &str, name: &str) -> String {
    let url = url::Url::parse(address).unwrap();
    let mut pairs = url.query_pairs();
    let found = pairs.find(|(found, _)| found == name);
    found
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

fn down() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

async fn discover(State(double): State<Double>) -> Response {
    if double.fails("discovery") {
        return down();
    }
    Json(double.0.discovery.lock().unwrap().clone()).into_response()
}

async fn keys(State(double): State<Double>) -> Response {
    if double.fails("keys") {
        return down();
    }
    double.0.fetched_keys.fetch_add(1, Ordering::Relaxed);
    let keys = double.0.keys.lock().unwrap();
    let keys: Vec<_> = keys.iter().map(Key::public).collect();
    Json(json!({ "keys": keys })).into_response()
}

async fn userinfo(State(double): State<Double>, headers: HeaderMap) -> Response {
    if headers[header::AUTHORIZATION] != "Bearer an access token" {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    Json(double.0.userinfo.lock().unwrap().clone()).into_response()
}

async fn token(State(double): State<Double>, headers: HeaderMap, body: String) -> Response {
    if double.fails("token") {
        return down();
    }
    let refused = |error: &str| {
        let body = Json(json!({ "error": error }));
        (StatusCode::BAD_REQUEST, body).into_response()
    };
    if let Some(error) = *double.0.refusal.lock().unwrap() {
        return refused(error);
    }
    let form: HashMap<_, _> = url::form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    let escaped = |text: &str| {
        let escaped = url::form_urlencoded::byte_serialize(text.as_bytes());
        escaped.collect::<String>()
    };
    let pair = format!("{}:{}", escaped(CLIENT_ID), escaped(CLIENT_SECRET));
    let basic = format!("Basic {}", STANDARD.encode(pair));
    let by_header = headers
        .get(header::AUTHORIZATION)
        .is_some_and(|held| held.as_bytes() == basic.as_bytes());
    let by_body = form.get("client_id").is_some_and(|id| id == CLIENT_ID)
        && form
            .get("client_secret")
            .is_some_and(|secret| secret == CLIENT_SECRET);
    if by_header == by_body {
        return refused("invalid_client");
    }
    let code = double.0.codes.lock().unwrap().remove(&form["code"]);
    let verified = |code: &Code| {
        form["grant_type"] == "authorization_code"
            && form["redirect_uri"] == code.redirect_uri
            && Challenge::of_verifier(&form["code_verifier"]).as_str() == code.challenge
    };
    let Some(code) = code.filter(verified) else {
        return refused("invalid_grant");
    };
    double.0.tokens_given.fetch_add(1, Ordering::Relaxed);
    let answer = json!({
        "access_token": "an access token",
        "token_type": "Bearer",
        "id_token": code.id_token,
    });
    Json(answer).into_response()
}
