//! Identifies the caller of a request by its access token, with its rights and its namespace.
//! Everything is read from the store for each request, so that a revocation acts at once.
//!
//! The caller is identified before the path is looked up: 401 without a valid token and 403 without
//! the right reveal nothing about what exists.

use axum::http::header::{self, HeaderMap, HeaderValue};
use vault_format::hash::Digest;
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use crate::app::App;
use crate::config::{Config, PublicUrl, SecondFactorPolicy};
use crate::error::{ErrorCode, Refusal};
use crate::model::Versioned;
use crate::model::account::{AccountId, Email};
use crate::model::client::ClientId;
use crate::model::grant::Grant;
use crate::model::namespace::{Namespace, Status};
use crate::model::standing;
use crate::model::token::{Family, Reach, Secret, SecretKind, Token, TokenKind, token_key};
use crate::model::user::{Role, Scope, Scopes, User};
use crate::route::Audience;

/// The authentication context of a sign-in with a second factor, as `acr_values` names it (RFC
/// 9470).
pub const SECOND_FACTOR_ACR: &str = "second_factor";
/// Maximum age of `last_seen_at` before a request writes it again, in seconds: not every request
/// costs a write.
const SEEN_SECONDS: i64 = 60;

/// The caller behind a valid token, as read for this request.
#[derive(Clone, Debug)]
pub enum Bearer {
    /// The token is for one namespace, and its account has a user there.
    Caller(Box<Caller>),
    /// The token has operator rights and acts on no namespace.
    Operator(Operator),
}

/// A user of a namespace who sent a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Account with which the user signs in; it may have users in other vaults too.
    pub account: AccountId,
    /// Address of the account at this request; people can change it.
    pub email: Email,
    /// The account's user in the namespace: `usr_…`.
    pub user_id: String,
    /// Role in the namespace; the guard compares it with the one that the route needs.
    pub role: Role,
    /// Name of the profile in the vault's policy that limits the skills which this user sees;
    /// `None` shows all.
    pub profile: Option<String>,
    /// Scopes that the token carries and the user still has.
    pub scopes: Scopes,
    /// The only namespace that the token acts on, in its present state.
    pub namespace: Namespace,
    /// Revision of the namespace's record, for a conditional write.
    pub namespace_revision: u64,
    /// The consent that the token comes from; tokens of one consent are called a family.
    pub consent: Family,
    /// Whether the account operates the service. The token itself carries no operator rights: see
    /// [`Operator`].
    pub operator: bool,
    second_factor: bool,
    user_scopes: Scopes,
}

/// An operator of the service, with a short-lived token that was issued right after a sign-in. The
/// token acts on no namespace.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Account with operator rights, which were checked for this request.
    pub account: AccountId,
    /// Scopes of the token that are still permitted.
    pub scopes: Scopes,
    /// The OAuth client that holds the token.
    pub client_id: ClientId,
    second_factor: bool,
}

impl Bearer {
    /// Returns the account of the user or operator.
    pub const fn account(&self) -> &AccountId {
        match self {
            Self::Caller(caller) => &caller.account,
            Self::Operator(operator) => &operator.account,
        }
    }

    /// Returns the OAuth client that holds the token.
    pub const fn client_id(&self) -> &ClientId {
        match self {
            Self::Caller(caller) => &caller.consent.client,
            Self::Operator(operator) => &operator.client_id,
        }
    }

    /// Returns the namespace that the token acts on; `None` for an operator's token.
    pub const fn namespace(&self) -> Option<&Namespace> {
        match self {
            Self::Caller(caller) => Some(&caller.namespace),
            Self::Operator(_) => None,
        }
    }

    /// Returns the caller's name in the audit log: the user of the namespace, or the operator's
    /// account.
    pub fn audit_name(&self) -> &str {
        match self {
            Self::Caller(caller) => &caller.user_id,
            Self::Operator(operator) => operator.account.as_str(),
        }
    }
}

impl Caller {
    /// Fails unless the caller owns the namespace. The refusal carries no challenge, because no
    /// consent can grant that role.
    pub fn require_owner(&self) -> Result<(), Refusal> {
        if self.role == Role::Owner {
            Ok(())
        } else {
            Err(ErrorCode::OwnerRequired.into())
        }
    }

    /// Fails unless the caller owns the namespace or publishes in it; without a challenge, as for
    /// [`Self::require_owner`].
    pub fn require_publisher(&self) -> Result<(), Refusal> {
        if self.role.can_publish() {
            Ok(())
        } else {
            Err(ErrorCode::PublisherRequired.into())
        }
    }

    /// Fails while the namespace is suspended, unless the caller's account operates the service.
    pub fn require_in_service(&self) -> Result<(), Refusal> {
        if self.namespace.status == Status::Suspended && !self.operator {
            Err(ErrorCode::VaultSuspended.into())
        } else {
            Ok(())
        }
    }

    /// Returns the refusal of a caller whose token has no operator rights. It carries a challenge
    /// only if the account operates the service, because no other person can consent to those
    /// rights.
    pub fn elevation_refusal(&self, public: &PublicUrl) -> Refusal {
        if !self.operator {
            return ErrorCode::OperatorRequired.into();
        }
        Refusal::new(ErrorCode::OperatorElevationRequired)
            .header(header::WWW_AUTHENTICATE, operator_challenge(public))
    }

    /// Fails unless the token has `scope`. The refusal carries a challenge only if the user has
    /// that scope: otherwise clients would open a consent page that cannot grant it.
    pub fn require_scope(
        &self,
        scope: Scope,
        audience: Audience,
        public: &PublicUrl,
    ) -> Result<(), Refusal> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        let refusal = Refusal::new(ErrorCode::InsufficientScope);
        if !self.user_scopes.has(scope) {
            return Err(refusal);
        }
        Err(refusal.header(
            header::WWW_AUTHENTICATE,
            audience_challenge(public, audience, Some("insufficient_scope")),
        ))
    }

    /// Whether the user has this scope, even if the token lacks it: a new consent could then grant
    /// it.
    pub fn user_has_scope(&self, scope: Scope) -> bool {
        self.user_scopes.has(scope)
    }

    /// Fails with 404 unless `slug`, from the path, is the token's namespace: every other namespace
    /// must look absent.
    pub fn require_namespace(&self, slug: &str) -> Result<(), Refusal> {
        if self.namespace.slug.as_str() == slug {
            Ok(())
        } else {
            Err(ErrorCode::NotFound.into())
        }
    }

    /// Fails unless the sign-in behind the token used a second factor, where the service requires
    /// one: 403 with the challenge of RFC 9470.
    pub fn require_second_factor(&self, config: &Config) -> Result<(), Refusal> {
        require_second_factor(self.second_factor, &Scopes::ALL.to_string(), config)
    }
}

impl Operator {
    /// Fails unless the token has `scope`. The refusal always carries a challenge, because every
    /// operator can consent to it.
    pub fn require_scope(&self, scope: Scope, public: &PublicUrl) -> Result<(), Refusal> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::InsufficientScope)
            .header(header::WWW_AUTHENTICATE, operator_challenge(public)))
    }

    /// Fails unless the sign-in behind the token used a second factor, where the service requires
    /// one: 403 with the challenge of RFC 9470.
    pub fn require_second_factor(&self, config: &Config) -> Result<(), Refusal> {
        require_second_factor(self.second_factor, &operator_scopes(), config)
    }
}

/// Fails unless the sign-in behind the token used a second factor, or the service requires none of
/// owners and operators. The token decides, not the account: it may be older than the setting, the
/// person's promotion or the second factor. The refusal carries the challenge of RFC 9470.
fn require_second_factor(given: bool, scopes: &str, config: &Config) -> Result<(), Refusal> {
    if given || config.second_factor == SecondFactorPolicy::Optional {
        return Ok(());
    }
    let challenge = bearer_challenge(&[
        ("error", "insufficient_user_authentication"),
        (
            "resource_metadata",
            &config.public_url.resource_metadata(""),
        ),
        ("scope", scopes),
        ("acr_values", SECOND_FACTOR_ACR),
    ]);
    let refusal = Refusal::new(ErrorCode::SecondFactorRequired);
    Err(refusal.header(header::WWW_AUTHENTICATE, challenge))
}

/// Returns the scopes of an operator's token with all rights.
fn operator_scopes() -> String {
    format!("{} operator", Scopes::ALL)
}

/// Returns the challenge that makes a client ask for an operator's token.
fn operator_challenge(public: &PublicUrl) -> HeaderValue {
    bearer_challenge(&[
        ("error", "insufficient_scope"),
        ("resource_metadata", &public.resource_metadata("")),
        ("scope", &operator_scopes()),
    ])
}

/// Returns the value of `WWW-Authenticate` (RFC 6750, RFC 9728) that leads a client to a token of
/// this audience. `error` is absent where no token was sent.
pub fn audience_challenge(
    public: &PublicUrl,
    audience: Audience,
    error: Option<&str>,
) -> HeaderValue {
    let metadata = public.resource_metadata(audience.resource_path());
    // Both scopes at once: some clients that hold a refresh token never return to the consent page
    // for more.
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

/// Identifies the sender of a request to a route of this audience, whatever the state of the
/// namespace. Fails with 401 and a challenge when no token is valid there, and with 503 when the
/// store is down.
pub async fn identify_bearer(
    app: &App,
    headers: &HeaderMap,
    audience: Audience,
) -> Result<Bearer, Refusal> {
    let public = &app.config.public_url;
    let refused = |code: ErrorCode| {
        // No `error` when no token was sent (RFC 6750 section 3.1): the client did nothing wrong
        // yet.
        let error = (code == ErrorCode::TokenInvalid).then_some("invalid_token");
        Refusal::new(code).header(
            header::WWW_AUTHENTICATE,
            audience_challenge(public, audience, error),
        )
    };
    let token_hash = match bearer_token(headers) {
        AuthorizationHeader::None => return Err(refused(ErrorCode::TokenRequired)),
        AuthorizationHeader::Malformed => return Err(refused(ErrorCode::TokenInvalid)),
        AuthorizationHeader::Token(hash) => hash,
    };
    let loaded_bearer = load_bearer(app, &token_hash, audience)
        .await?
        .ok_or_else(|| refused(ErrorCode::TokenInvalid))?;
    let (bearer, user) = loaded_bearer;
    if let Some(user) = user {
        record_last_seen(app, user).await;
    }
    Ok(bearer)
}

/// Returns the hash of the token in a request, whether or not it is valid; `None` if there is no
/// well-formed one.
pub(crate) fn sent_token(headers: &HeaderMap) -> Option<Digest> {
    match bearer_token(headers) {
        AuthorizationHeader::Token(hash) => Some(hash),
        AuthorizationHeader::None | AuthorizationHeader::Malformed => None,
    }
}

enum AuthorizationHeader {
    /// There is no header, or one for another kind of credentials.
    None,
    /// Something that cannot be a bearer token of this service.
    Malformed,
    /// The hash of a well-formed token.
    Token(Digest),
}

fn bearer_token(headers: &HeaderMap) -> AuthorizationHeader {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return AuthorizationHeader::None,
        (Some(value), None) => value,
        // Two headers are never a choice: a proxy in front might have judged the other one.
        (Some(_), Some(_)) => return AuthorizationHeader::Malformed,
    };
    let Some((scheme, token)) = value.to_str().ok().and_then(|text| text.split_once(' ')) else {
        return AuthorizationHeader::Malformed;
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return AuthorizationHeader::None; // credentials of another kind are not ours to judge
    }
    // The store knows tokens by their hash alone, so the text goes no further.
    Secret::parse(SecretKind::Access, token.trim())
        .map_or(AuthorizationHeader::Malformed, |secret| {
            AuthorizationHeader::Token(secret.hash())
        })
}

/// Whether tokens of the family, which is one consent, are valid for `audience`. A token for the
/// service as a whole is valid for `/mcp` too.
fn is_valid_for(family: &Family, audience: Audience, base: &str) -> bool {
    // A token for another deployment has another base, and so matches nothing below.
    let path = family.resource.strip_prefix(base);
    match (&family.reach, audience) {
        (_, Audience::Any) | (Reach::Namespace { .. }, Audience::Mcp) => {
            matches!(path, Some("" | "/mcp"))
        }
        (Reach::Namespace { .. }, Audience::Vault) | (_, Audience::Service) => path == Some(""),
        (Reach::Service, Audience::Mcp | Audience::Vault) => false,
    }
}

/// Loads the bearer of the token with this hash, and its user, whose last use may have to be
/// recorded. Makes two reads: one of the token, and one of all records that it depends on. `None`
/// if the token or any of these records is no longer valid, or if the token is for another
/// audience.
async fn load_bearer(
    app: &App,
    hash: &Digest,
    audience: Audience,
) -> Result<Option<(Bearer, Option<Versioned<User>>)>, StoreError> {
    let now = app.clock.now();
    let Some(token) = app.get::<Token>(&token_key(hash)).await? else {
        return Ok(None);
    };
    let (token, base) = (token.value, app.config.public_url.base());
    let family = &token.family;
    let standing = standing::load_standing(app, family).await?;
    let Some(possible) = standing.present_rights(family) else {
        return Ok(None);
    };
    let grant = standing.grant.as_ref();
    // The kind is checked because refresh tokens are stored under the same keys, and must not open
    // a route.
    let is_valid = token.kind == TokenKind::Access
        && now < token.expires_at
        && is_valid_for(family, audience, base)
        && grant.is_some_and(|grant| grant.value.is_alive(now))
        && standing.is_connected(family);
    let (Some(account), true) = (standing.account, is_valid) else {
        return Ok(None);
    };
    if let Some(grant) = standing.grant
        && grant.value.with_used_access(hash, now).is_some()
    {
        record_first_use(app, &grant.value, hash).await?;
    }
    let account = account.value;
    // Limited to the present rights, so that a demotion also acts on tokens that were issued
    // before.
    let scopes = token.scopes.and(possible);
    if family.is_operator() {
        let operator = Operator {
            account: account.id,
            scopes,
            client_id: token.family.client,
            second_factor: token.family.second_factor,
        };
        return Ok(Some((Bearer::Operator(operator), None)));
    }
    let (Some(user), Some(current_namespace)) = (standing.user, standing.home) else {
        return Ok(None);
    };
    let caller = Caller {
        account: account.id,
        email: account.email,
        user_id: user.value.id.clone(),
        role: user.value.role,
        profile: user.value.profile.clone(),
        scopes,
        namespace: current_namespace.value,
        namespace_revision: current_namespace.revision,
        operator: account.operator,
        second_factor: token.family.second_factor,
        consent: token.family,
        user_scopes: possible,
    };
    Ok(Some((Bearer::Caller(Box::new(caller)), Some(user))))
}

/// Records that the newest access token of a grant is used for the first time: from then on, the
/// refresh token before it is no longer accepted. Fails with the store, because without the record
/// a stolen refresh token would still give the same tokens.
async fn record_first_use(app: &App, grant: &Grant, access: &Digest) -> Result<(), StoreError> {
    let key = grant.key();
    app.change(async |tx| {
        let stored = tx.get::<Grant>(&key).await?;
        // Another request may have recorded the use, or replaced the token, since the grant was
        // read.
        let used = stored.as_ref().and_then(|stored| {
            let used = stored.value.with_used_access(access, tx.now());
            used.map(|used| (used, When::At(stored.revision)))
        });
        if let Some((used, when)) = used {
            let document = Document::from_value(&used)?;
            tx.write(Write::put_until(key.clone(), document, when, used.ends_at));
        }
        Ok(())
    })
    .await
}

/// Records that a user was seen, at most once a minute. The request goes on if the write fails or
/// another one is faster, because the time is only shown to people.
async fn record_last_seen(app: &App, user: Versioned<User>) {
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
    let Ok(document) = Document::from_value(&seen) else {
        return;
    };
    // Conditional: this copy of the user must not undo a change of role that was made meanwhile.
    let write = Write::put(seen.key(), document, When::At(user.revision));
    if let Err(error) = app.records.commit_writes(vec![write]).await {
        tracing::warn!(
            error = error_chain(&error),
            "the time a user was last seen could not be written"
        );
    }
}
