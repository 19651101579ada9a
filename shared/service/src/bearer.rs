//! Access tokens on requests: who calls, with which rights, in which namespace. Everything is read live, nothing is remembered.
//!
//! Ask first, then look up what the path names: 401 without a good token, 403 with one that may not, and nothing learned from either.

use axum::http::header::{self, HeaderMap, HeaderValue};
use vault_format::hash::Digest;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use crate::app::App;
use crate::config::PublicUrl;
use crate::error::{Code, Refusal};
use crate::model::account::{Account, AccountId, Email, Epochs, ServiceEpoch, service_epoch_key};
use crate::model::client::{ClientId, Connection};
use crate::model::grant::Grant;
use crate::model::namespace::{self, Namespace, Status};
use crate::model::session::FRESH_SECONDS;
use crate::model::token::{Secret, SecretKind, Token, TokenKind, token_key};
use crate::model::user::{Role, Scope, Scopes, State, User};
use crate::model::{Seen, read_all};
use crate::route::Audience;

/// How stale `last_seen_at` may be before a request writes it, in seconds.
const SEEN_SECONDS: i64 = 60;

/// Who calls, as of this request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The account.
    pub account: AccountId,
    /// The account's address.
    pub email: Email,
    /// The account's user in the namespace: `usr_…`.
    pub user_id: String,
    /// Owner or member.
    pub role: Role,
    /// The restricted profile of the policy, when one is set.
    pub profile: Option<String>,
    /// What the token carries and the user still has.
    pub scopes: Scopes,
    /// The one namespace that the token acts on, as it is now.
    pub namespace: Namespace,
    /// The revision at which the namespace was read.
    pub namespace_revision: u64,
    /// The client that the token was given to.
    pub client_id: ClientId,
    /// Whether the account operates the service.
    pub operator: bool,
    /// Whether the token acts for an operator: its person entered credentials for just that, a short while ago.
    pub elevated: bool,
    /// When the person who consented entered credentials for just this token.
    pub auth_time: Option<Timestamp>,
    possible: Scopes,
}

impl Caller {
    /// Passes an owner of the namespace. No challenge for others: no consent can make anybody an owner.
    pub fn require_owner(&self) -> Result<(), Refusal> {
        if self.role == Role::Owner {
            Ok(())
        } else {
            Err(Code::OwnerRequired.into())
        }
    }

    /// Passes while the namespace is not suspended; operators pass always.
    pub fn require_in_service(&self) -> Result<(), Refusal> {
        if self.namespace.status == Status::Suspended && !self.operator {
            Err(Code::VaultSuspended.into())
        } else {
            Ok(())
        }
    }

    /// Passes a token with the scope `operator` of an account that operates the service. The refusal carries a challenge only for such an
    /// account, whose person can consent to it.
    pub fn require_operator(&self, public: &PublicUrl) -> Result<(), Refusal> {
        if !self.operator {
            return Err(Code::OperatorRequired.into());
        }
        if self.elevated {
            return Ok(());
        }
        let challenge = bearer_challenge(&[
            ("error", "insufficient_scope"),
            ("resource_metadata", &public.resource_metadata("")),
            ("scope", &format!("{} operator", Scopes::ALL)),
        ]);
        let refusal = Refusal::new(Code::OperatorElevationRequired);
        Err(refusal.header(header::WWW_AUTHENTICATE, challenge))
    }

    /// Passes a token with `scope`. The refusal carries a challenge only if the user could consent to it: else clients would ask in vain.
    pub fn require(
        &self,
        scope: Scope,
        audience: Audience,
        public: &PublicUrl,
    ) -> Result<(), Refusal> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        let refusal = Refusal::new(Code::InsufficientScope);
        if !self.possible.has(scope) {
            return Err(refusal);
        }
        Err(refusal.header(
            header::WWW_AUTHENTICATE,
            challenge(public, audience, Some("insufficient_scope")),
        ))
    }

    /// Whether the user has this scope, be it in the token or not: what consent could still give.
    pub fn could_have(&self, scope: Scope) -> bool {
        self.possible.has(scope)
    }

    /// Passes when `slug`, from the path, is the token's namespace; any other is not there.
    pub fn require_namespace(&self, slug: &str) -> Result<(), Refusal> {
        if self.namespace.slug.as_str() == slug {
            Ok(())
        } else {
            Err(Code::NotFound.into())
        }
    }

    /// Passes a token for which its person entered credentials less than five minutes before `now`. An older sign-in of the browser does not
    /// count: an app that was allowed in it acts for whoever left the browser open. The refusal carries the challenge of RFC 9470.
    pub fn require_fresh(&self, now: Timestamp, public: &PublicUrl) -> Result<(), Refusal> {
        let fresh = |auth_time: Timestamp| now < auth_time.plus_seconds(FRESH_SECONDS);
        if self.auth_time.is_some_and(fresh) {
            return Ok(());
        }
        let operator_word = if self.elevated { " operator" } else { "" };
        let challenge = bearer_challenge(&[
            ("error", "insufficient_user_authentication"),
            ("resource_metadata", &public.resource_metadata("")),
            ("scope", &format!("{}{operator_word}", Scopes::ALL)),
            ("max_age", &FRESH_SECONDS.to_string()),
        ]);
        let refusal = Refusal::new(Code::FreshSignInRequired);
        Err(refusal.header(header::WWW_AUTHENTICATE, challenge))
    }
}

/// The value of `WWW-Authenticate` (RFC 6750, RFC 9728): a client that follows it gets a token of this audience. `error` is absent where no
/// token was sent.
pub fn challenge(public: &PublicUrl, audience: Audience, error: Option<&str>) -> HeaderValue {
    let metadata = public.resource_metadata(audience.path());
    let scopes = Scopes::ALL.to_string();
    let mut parameters = vec![("resource_metadata", &*metadata), ("scope", &*scopes)];
    if let Some(error) = error {
        parameters.insert(0, ("error", error));
    }
    bearer_challenge(&parameters)
}

fn bearer_challenge(parameters: &[(&str, &str)]) -> HeaderValue {
    let parameters = parameters.iter();
    let parameters = parameters.map(|(name, value)| format!("{name}=\"{value}\""));
    let text = format!("Bearer {}", parameters.collect::<Vec<_>>().join(", "));
    // A public URL is printable ASCII without quotes, so the fallback is never taken.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
}

/// Who sent a request with these headers to a route of this audience, whatever became of the namespace meanwhile. Fails with 401 and a
/// challenge when there is no token that is valid there, with 503 when the store is down.
pub async fn identify(
    app: &App,
    headers: &HeaderMap,
    audience: Audience,
) -> Result<Caller, Refusal> {
    let public = &app.config.public_url;
    let refused = |code: Code| {
        let error = (code == Code::TokenInvalid).then_some("invalid_token");
        Refusal::new(code).header(header::WWW_AUTHENTICATE, challenge(public, audience, error))
    };
    let sent = match bearer_token(headers) {
        Sent::None => return Err(refused(Code::TokenRequired)),
        Sent::Odd => return Err(refused(Code::TokenInvalid)),
        Sent::Token(hash) => hash,
    };
    let found = find(app, &sent, audience)
        .await?
        .ok_or_else(|| refused(Code::TokenInvalid))?;
    let (caller, user) = found;
    note_seen(app, user).await;
    Ok(caller)
}

/// What a request bears.
enum Sent {
    None,
    Odd,
    Token(Digest),
}

fn bearer_token(headers: &HeaderMap) -> Sent {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Sent::None,
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Sent::Odd,
    };
    let Some((scheme, token)) = value.to_str().ok().and_then(|text| text.split_once(' ')) else {
        return Sent::Odd;
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Sent::None; // credentials of another kind are not ours to judge
    }
    Secret::parse(SecretKind::Access, token.trim())
        .map_or(Sent::Odd, |secret| Sent::Token(secret.hash()))
}

/// The caller behind a token's hash: one reading of the token, one of all it names. `None` when any of it no longer holds, or the token
/// was issued for another audience.
async fn find(
    app: &App,
    hash: &Digest,
    audience: Audience,
) -> Result<Option<(Caller, Seen<User>)>, StoreError> {
    let now = app.clock.now();
    let Some(token) = Seen::<Token>::read(app.records.get(&token_key(hash)).await?)? else {
        return Ok(None);
    };
    let token = token.value;
    let family = &token.family;
    let [grant, user, connection, account] = family.keys();
    let home = namespace::key(&family.namespace.slug);
    let service = service_epoch_key();
    let keys = [grant, user, connection, account, home, service];
    let [grant, user, connection, account, home, service] = read_all(&*app.records, keys).await?;
    let service = Seen::<ServiceEpoch>::read(service)?.map(|service| service.value);
    let (Some(grant), Some(user), Some(connection), Some(account), Some(home)) = (
        Seen::<Grant>::read(grant)?,
        Seen::<User>::read(user)?,
        Seen::<Connection>::read(connection)?,
        Seen::<Account>::read(account)?,
        Seen::<Namespace>::read(home)?,
    ) else {
        return Ok(None);
    };
    let base = app.config.public_url.base();
    // A token for the service as a whole opens everything.
    let for_us = family
        .resource
        .strip_prefix(base)
        .is_some_and(|path| path.is_empty() || path == audience.path());
    let good = token.kind == TokenKind::Access
        && now < token.expires_at
        && for_us
        && grant.value.is_alive(now)
        && connection.value.revoked_at.is_none()
        && connection.value.id == family.connection
        && user.value.state() == State::Active
        && !account.value.disabled
        && family.epochs == Epochs::now(&account.value, &home.value, service)
        && home.value.id == family.namespace.id
        && home.value.status != Status::Deleted;
    if !good {
        return Ok(None);
    }
    let caller = Caller {
        account: account.value.id,
        email: account.value.email,
        user_id: user.value.id.clone(),
        role: user.value.role,
        profile: user.value.profile.clone(),
        scopes: token.scopes.and(user.value.scopes),
        namespace: home.value,
        namespace_revision: home.revision,
        client_id: family.client.clone(),
        operator: account.value.operator,
        elevated: family.operator && account.value.operator,
        auth_time: family.auth_time,
        possible: user.value.scopes,
    };
    Ok(Some((caller, user)))
}

/// Notes when a user was seen, at most once a minute. Losing it to another write is all right, and so is a store that is busy.
async fn note_seen(app: &App, user: Seen<User>) {
    let now = app.clock.now();
    if user
        .value
        .last_seen_at
        .is_some_and(|seen| now < seen.plus_seconds(SEEN_SECONDS))
    {
        return;
    }
    let seen = User {
        last_seen_at: Some(now),
        ..user.value
    };
    let Ok(document) = Document::of(&seen) else {
        return;
    };
    let write = Write::put(seen.key(), document, When::At(user.revision));
    if let Err(error) = app.records.commit(vec![write]).await {
        tracing::warn!(
            error = error_chain(&error),
            "the time a user was last seen could not be written"
        );
    }
}
