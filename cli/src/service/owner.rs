//! The client of a person who is signed in: an owner or publisher of a vault, or an operator of the
//! service. It uses bearer tokens and refreshes them when they expire.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::{Method, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;
use vault_api::Items;
use vault_store::clock::{Clock, SystemClock};

use super::{
    Answer, AskedBy, Base, Http, ceiling,
    patience::Patience,
    tokens::{TokenFile, Tokens},
};
use crate::{context::Context, errors::Failure};

/// Maximum size of a pack of objects, in bytes. The service accepts 4 MiB; smaller packs stay
/// within the time limit on slow connections.
pub const PACK_BYTES: usize = 1024 * 1024;

#[derive(Clone, Debug)]
pub enum Body {
    Empty,
    Json(Value),
    /// Raw bytes, after their media type.
    Bytes(&'static str, Bytes),
}

/// A client that is signed in at one service, for one vault or as operator. Clones share the
/// tokens.
#[derive(Clone, Debug)]
pub struct OwnerClient {
    http: Http,
    base: Base,
    file: TokenFile,
    tokens: Arc<Mutex<Tokens>>,
}

impl OwnerClient {
    /// Creates a client with the stored tokens. `name` is the slug of the vault or `@operator`.
    /// Fails with exit 4 if no tokens are stored.
    pub fn open(context: &Context, base: &Base, name: &str) -> Result<Self, Failure> {
        let file = TokenFile::for_service(context, base, name)?;
        let tokens = file.read()?.ok_or_else(|| signed_out(base, &file))?;
        Self::with_tokens(context, base, file, tokens)
    }

    /// Creates a client with the given tokens, such as those of a new sign-in.
    pub fn with_tokens(
        context: &Context,
        base: &Base,
        file: TokenFile,
        tokens: Tokens,
    ) -> Result<Self, Failure> {
        Ok(Self {
            http: Http::new(context, base)?,
            base: base.clone(),
            file,
            tokens: Arc::new(Mutex::new(tokens)),
        })
    }

    pub const fn base(&self) -> &Base {
        &self.base
    }

    /// Returns the id under which this client is registered.
    pub async fn client_id(&self) -> String {
        self.tokens.lock().await.client_id.clone()
    }

    /// Sends one request to `path` and reads at most `ceiling` bytes of the response. If the access
    /// token is rejected, refreshes it and retries once. Other error statuses are returned as
    /// responses.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, String)],
        body: Body,
        ceiling: u64,
    ) -> Result<Answer, Failure> {
        let mut rejected_token: Option<String> = None;
        for _ in 0..2 {
            let access = self.access_token(rejected_token.as_deref()).await?;
            let request = self
                .http
                .request(method.clone(), &self.base.address_of(path))
                .bearer_auth(&access);
            let request = headers.iter().fold(request, |request, (name, value)| {
                request.header(name, value)
            });
            let request = match &body {
                Body::Empty => request,
                Body::Json(value) => request.json(value),
                Body::Bytes(kind, bytes) => request
                    .header(header::CONTENT_TYPE, *kind)
                    .body(bytes.clone()),
            };
            let mut answer = self.http.send(request, ceiling).await?;
            if answer.status != 401 {
                answer.asked_by = Some(AskedBy {
                    base: self.base.clone(),
                    sign_in: self.file.name().to_owned(),
                    command: self.file.sign_in_command(&self.base),
                });
                return Ok(answer);
            }
            rejected_token = Some(access);
        }
        Err(signed_out(&self.base, &self.file))
    }

    /// Sends a request that may safely be repeated: one that only reads, or an upload of objects
    /// under their hashes. While the service is busy, repeats it a few times (see [`Patience`]).
    pub async fn call_patiently(
        &self,
        method: Method,
        path: &str,
        body: Body,
        ceiling: u64,
    ) -> Result<Answer, Failure> {
        let mut patience = Patience::default();
        loop {
            let body = body.clone();
            let answer = self.call(method.clone(), path, &[], body, ceiling).await?;
            match patience.pause_before_repeat(&answer) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(answer),
            }
        }
    }

    /// Sends `GET` for a catalog or an object. Error statuses are returned as responses.
    pub async fn read(&self, path: &str) -> Result<Answer, Failure> {
        self.call_patiently(Method::GET, path, Body::Empty, ceiling::OBJECT)
            .await
    }

    /// Sends `GET` and parses the JSON response.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.send(Method::GET, path, None).await
    }

    /// Sends `POST` with JSON and parses the JSON response.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T, Failure> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Sends any method with JSON or without a body, and parses the JSON response.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let body = body.map_or(Body::Empty, Body::Json);
        self.call(method, path, &[], body, ceiling::LIST)
            .await?
            .json()
    }

    /// Fetches all pages of a list: at most 1,000 pages of 100 entries. `path` may contain a query.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        let mut items = Vec::new();
        let mut after = String::new();
        let join = if path.contains('?') { '&' } else { '?' };
        // A service must not be able to keep this loop going forever.
        for _ in 0..1000 {
            let page: Items<T> = self.get(&format!("{path}{join}limit=100{after}")).await?;
            items.extend(page.items);
            let Some(next) = page.next else {
                return Ok(items);
            };
            after = String::from("&after=");
            after.extend(url::form_urlencoded::byte_serialize(next.as_bytes()));
        }
        Err(fail!(AnswerUnreadable, "the service's list has no end"))
    }

    /// Returns a valid access token, refreshed if necessary. `refused` is a token that the service
    /// has just rejected and that must not be returned.
    async fn access_token(&self, refused: Option<&str>) -> Result<String, Failure> {
        let mut tokens = self.tokens.lock().await;
        let fresh = |tokens: &Tokens| {
            // Leave 5 s, so that the token does not expire in transit.
            tokens.expires_at > SystemClock.now().unix() + 5
                && refused != Some(tokens.access_token.as_str())
        };
        if fresh(&tokens) {
            return Ok(tokens.access_token.clone());
        }
        // Another process may have refreshed the tokens in the meantime. Use its pair, because a
        // refresh token works only once.
        let lock = self.file.lock()?;
        if let Some(stored) = self.file.read()? {
            *tokens = stored;
            if fresh(&tokens) {
                return Ok(tokens.access_token.clone());
            }
        }
        let next = self.refresh_tokens(&tokens).await?;
        // Store the new pair before it is used: the old refresh token no longer works.
        self.file.write(&next, &lock)?;
        *tokens = next;
        // Released only after the new pair is stored, so that a waiting process reads that pair.
        drop(lock);
        Ok(tokens.access_token.clone())
    }

    async fn refresh_tokens(&self, tokens: &Tokens) -> Result<Tokens, Failure> {
        // Never send the refresh token to another origin, even if the token file was changed.
        if tokens.refresh_token.is_empty() || !self.base.is_origin_of(&tokens.token_endpoint) {
            return Err(signed_out(&self.base, &self.file));
        }
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", &tokens.refresh_token),
            ("client_id", &tokens.client_id),
        ];
        let answer = self.http.post_form(&tokens.token_endpoint, &fields).await?;
        // The refresh token was used, revoked or has expired, and only a new sign-in helps.
        if matches!(answer.status, 400 | 401) {
            return Err(signed_out(&self.base, &self.file));
        }
        let grant: vault_api::Tokens = answer.json()?;
        Ok(Tokens::from_grant(
            grant,
            tokens.client_id.clone(),
            tokens.token_endpoint.clone(),
            tokens.revocation_endpoint.clone(),
        ))
    }
}

fn signed_out(base: &Base, file: &TokenFile) -> Failure {
    fail!(SignedOut, "you are not signed in at {base}").hint(file.sign_in_command(base))
}
