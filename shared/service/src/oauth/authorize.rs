//! An authorize request (OAuth 2.1 section 4.1.1), and what comes of it: an error page, a redirect
//! with an error, or a code.
//!
//! All functions here are pure; `authorization` leads the browser through sign-in and consent. An
//! unknown client or redirect URI never leads to a redirect (OAuth 2.1 section 4.1.2.1). Every
//! later error is reported to the client by a redirect, with `state` and `iss`.

use axum::http::StatusCode;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, When, Write};

use super::resource;
use crate::accounts::memberships::Member;
use crate::accounts::sign_in_page::{SignInPrompt, WaitingApp};
use crate::bearer::SECOND_FACTOR_ACR;
use crate::documents::ClientName;
use crate::model::account::{Account, Epochs};
use crate::model::client::Client;
use crate::model::fresh_id;
use crate::model::pkce::Challenge;
use crate::model::redirect::RedirectUri;
use crate::model::session::Session;
use crate::model::token::{
    AuthorizationCode, CODE_SECONDS, Family, Reach, Secret, SecretKind, code_key,
};
use crate::model::user::{OPERATOR, Role, Scope, Scopes};
use crate::web::error_page::{ErrorPage, Explanation};
use crate::web::form::{Form, with_query};

/// Maximum length of `state`, in bytes. Escapes make it up to three times as long in the redirect,
/// and a gateway accepts 10 KB of headers.
pub const MAX_STATE_BYTES: usize = 2048;

/// A valid request: its client and redirect URI are registered, and it asks for something that the
/// service can grant.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// The client as it registered, or as its document describes it.
    pub client: Client,
    /// Redirect URI, `state` and issuer, for the answer to the client.
    pub back: ClientReturn,
    /// Requested scopes; may be empty for a request of operator rights alone.
    pub scopes: Scopes,
    /// Whether the request asks for `write` by name, or names neither scope nor resource and so
    /// means everything.
    pub expects_write: bool,
    /// Whether the request asks for operator rights, which last 15 minutes. It then acts on no
    /// namespace.
    pub operator: bool,
    /// Credentials and second factor that the request demands of the sign-in.
    pub sign_in: SignInDemands,
    /// Slug of the only namespace that the request is for, if it names one. It is unchecked text,
    /// and only compared with the slugs of the account.
    pub namespace: Option<String>,
    challenge: Challenge,
    resource: String,
}

/// What a request demands of the sign-in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SignInDemands {
    /// Whether the person must enter credentials for exactly this request: it asks for that, or for
    /// operator rights.
    pub credentials: bool,
    /// Whether the sign-in must use a second factor, whatever the policy of the service
    /// (`acr_values`, RFC 9470).
    pub second_factor: bool,
}

/// The meaning of `prompt` (OpenID Connect Core 1.0, section 3.1.2.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Prompt {
    /// Whether the person must sign in for this request.
    credentials: bool,
}

impl Prompt {
    /// Supported values. `none` is known too, but is always an error.
    const SUPPORTED: [&str; 3] = ["consent", "login", "select_account"];

    /// Parses the words. Fails with an error code and description for the client.
    fn parse<'w>(
        words: impl Iterator<Item = &'w str>,
    ) -> Result<Self, (&'static str, &'static str)> {
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        match *words {
            // The person is asked at each authorization, so `none` cannot be met.
            ["none"] => Err((
                "interaction_required",
                "the person is asked at every authorization, so prompt must not be none",
            )),
            _ if words.contains(&"none") => Err((
                "invalid_request",
                "prompt must not combine none with other values",
            )),
            _ if words.iter().any(|word| !Self::SUPPORTED.contains(word)) => Err((
                "invalid_request",
                "prompt must be consent, login or select_account",
            )),
            // A person chooses the account on the sign-in page. `consent` changes nothing, because
            // the consent page is always shown.
            _ => Ok(Self {
                credentials: words.contains(&"login") || words.contains(&"select_account"),
            }),
        }
    }
}

/// Redirect URI of a client, with the parameters that every answer carries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientReturn {
    /// A redirect URI that the client registered.
    pub redirect: RedirectUri,
    state: Option<String>,
    issuer: String,
}

/// A person's approval, and the session in which it was given.
#[derive(Clone, Copy, Debug)]
pub struct Consent<'a> {
    /// The session in which the person approved the request.
    pub session: &'a Session,
    /// Query of the authorize request that was decided about.
    pub query: &'a str,
    /// Namespace that the person chose; `None` for operator rights.
    pub namespace: Option<&'a Slug>,
    /// Scopes whose boxes the person ticked.
    pub approved: Scopes,
}

/// Rights of administration that a consent gives besides the scopes. The consent page describes
/// them in a sentence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Administration {
    /// None: the token is for `/mcp`, or the account neither owns a vault nor publishes in one.
    None,
    /// Publishing releases in the chosen vault, if its user is a publisher there.
    Releases,
    /// Administering the chosen vault, if its user is an owner there.
    Vault,
    /// Administering the whole service, for 15 minutes.
    Service,
}

/// Error of an authorization request that is answered with a page, without a redirect to the
/// client.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnredirectableError {
    /// `client_id` is absent, repeated, or not registered.
    #[error("This app is not registered here.")]
    Client,
    /// `client_id` is an address that serves no valid document of the client.
    #[error("The address by which this app calls itself does not describe it.")]
    Document,
    /// `redirect_uri` is absent, repeated, or not one that the client registered.
    #[error("The address that this app wants to be called back at is not one it registered.")]
    Redirect,
}

impl From<UnredirectableError> for ErrorPage {
    fn from(why: UnredirectableError) -> Self {
        let (status, title, lines): (_, _, &[_]) = match why {
            UnredirectableError::Client => (
                StatusCode::BAD_REQUEST,
                "This app is not registered here",
                &[
                    "Its registration is missing or has expired. Start again from the app; it will register again.",
                    "The app received nothing.",
                ],
            ),
            UnredirectableError::Document => (
                StatusCode::BAD_REQUEST,
                "This app cannot be recognised",
                &[
                    "The app identifies itself by the address of a page that describes it, and that page could not be read.",
                    "The app received nothing. Try again later, or tell the maker of the app.",
                ],
            ),
            UnredirectableError::Redirect => (
                StatusCode::BAD_REQUEST,
                "This request is not safe",
                &[
                    "The app asked to redirect to an address that it did not register, so it received nothing.",
                    "If you did not start this yourself, close this page.",
                ],
            ),
        };
        Explanation {
            status,
            title,
            lines,
            detail: None,
            sign_out: None,
        }
        .into()
    }
}

/// How a request that gets no code is answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RejectedRequest {
    /// An error page, without a redirect to the client.
    Page(UnredirectableError),
    /// A redirect to this address of the client, which reports the error to it.
    Redirect(String),
}

impl From<UnredirectableError> for RejectedRequest {
    fn from(why: UnredirectableError) -> Self {
        Self::Page(why)
    }
}

/// Parses `client_id`. Fails if it is absent, repeated or malformed.
pub fn client_name(form: &Form) -> Result<ClientName, UnredirectableError> {
    let id = form
        .value("client_id")
        .filter(|_| form.is_sound("client_id"));
    id.and_then(|id| id.parse().ok())
        .ok_or(UnredirectableError::Client)
}

/// Returns the words of a parameter that lists words; one empty word if it is absent.
fn words<'f>(form: &'f Form, name: &str) -> std::str::Split<'f, char> {
    form.value(name).unwrap_or_default().split(' ')
}

/// Returns the scopes that a request asks for, and whether it expects to write: it names `write`,
/// or names neither scope nor resource and so means everything.
fn requested_scopes(form: &Form) -> (Scopes, bool) {
    match form.value("scope") {
        // A client that names neither scope nor resource gets everything that it registered for.
        None if form.value("resource").is_none() => (Scopes::ALL, true),
        None => (Scopes::READ, false),
        Some(text) => {
            let expects_write = words(form, "scope").any(|word| word == Scope::Write.as_str());
            (Scopes::parse_known(text), expects_write)
        }
    }
}

impl ClientReturn {
    /// Parses the redirect URI, which `client` must have registered, and `state`. A `state` that is
    /// too long is left out.
    fn from_form(form: &Form, client: &Client, issuer: &str) -> Result<Self, UnredirectableError> {
        let redirect = form
            .value("redirect_uri")
            .filter(|_| form.is_sound("redirect_uri"))
            .and_then(|text| RedirectUri::parse(text).ok())
            // Earlier versions of vault registered redirect URIs with parameters such as `code`,
            // which would be taken for this service's answer.
            .filter(|uri| client.allows_redirect(uri) && uri.reserved_parameter().is_none())
            .ok_or(UnredirectableError::Redirect)?;
        let state = form
            .value("state")
            .filter(|state| form.is_sound("state") && state.len() <= MAX_STATE_BYTES);
        Ok(Self {
            redirect,
            state: state.map(str::to_owned),
            issuer: issuer.to_owned(),
        })
    }
}

impl AuthorizeRequest {
    /// Returns the client and its redirect URI, for the pages that name the waiting app.
    pub fn waiting_app(&self) -> WaitingApp<'_> {
        WaitingApp {
            client: &self.client,
            redirect: &self.back.redirect,
        }
    }

    /// Returns the prompt of the sign-in page when it is first shown for this request.
    pub fn sign_in_prompt(&self) -> SignInPrompt<'_> {
        SignInPrompt {
            app: Some(self.waiting_app()),
            ..SignInPrompt::default()
        }
    }

    /// Parses and checks a query of the registered `client`. `base` is the public URL without a
    /// slash at its end, `issuer` the public URL as it is.
    pub fn from_form(
        form: &Form,
        client: Client,
        base: &str,
        issuer: &str,
    ) -> Result<Self, RejectedRequest> {
        let back = ClientReturn::from_form(form, &client, issuer)?;
        let invalid = |description: &str| {
            RejectedRequest::Redirect(back.error_address("invalid_request", description))
        };

        form.check().map_err(|bad| invalid(&bad.to_string()))?;
        if form.value("state").is_some() && back.state.is_none() {
            return Err(invalid("state is too long"));
        }
        match form.value("response_type") {
            Some("code") => {}
            None => return Err(invalid("response_type is required")),
            Some(_) => {
                let location =
                    back.error_address("unsupported_response_type", "response_type must be code");
                return Err(RejectedRequest::Redirect(location));
            }
        }
        if form
            .value("response_mode")
            .is_some_and(|mode| mode != "query")
        {
            return Err(invalid("response_mode must be query"));
        }
        let challenge = Challenge::parse(
            form.value("code_challenge"),
            form.value("code_challenge_method"),
        )
        .map_err(|bad| invalid(&bad.to_string()))?;
        let resource = match form.value("resource") {
            None => base.to_owned(),
            Some(named) => resource::canonical_resource(named, base).ok_or_else(|| {
                RejectedRequest::Redirect(
                    back.error_address("invalid_target", "resource is not this service"),
                )
            })?,
        };
        let prompt = Prompt::parse(words(form, "prompt")).map_err(|(code, description)| {
            RejectedRequest::Redirect(back.error_address(code, description))
        })?;
        // A client that registered for fewer than all scopes gets no operator rights.
        let operator = words(form, "scope").any(|word| word == OPERATOR)
            && resource == base
            && client.scopes == Scopes::ALL;
        let (requested_scopes, expects_write) = requested_scopes(form);
        let request = Self {
            expects_write,
            operator,
            sign_in: SignInDemands {
                // `max_age` (RFC 9470) is met, whatever its value, by credentials entered now.
                credentials: operator || form.value("max_age").is_some() || prompt.credentials,
                second_factor: words(form, "acr_values").any(|word| word == SECOND_FACTOR_ACR),
            },
            scopes: requested_scopes.and(client.scopes),
            namespace: form.value("vault_namespace").map(str::to_owned),
            client,
            back,
            challenge,
            resource,
        };
        request
            .require_any_right()
            .map_err(RejectedRequest::Redirect)
    }

    /// Removes operator rights from the request if the account does not operate the service. Fails
    /// with the address of an error redirect if the request asks for nothing else.
    pub fn for_account(self, account: &Account) -> Result<Self, String> {
        let operator = self.operator && account.operator;
        Self { operator, ..self }.require_any_right()
    }

    fn require_any_right(self) -> Result<Self, String> {
        if self.operator || !self.scopes.is_empty() {
            return Ok(self);
        }
        Err(self.back.error_address(
            "invalid_scope",
            "scope must name read, write or both, as the client registered",
        ))
    }

    /// Returns the rights of administration that the tokens of this request would have.
    pub fn administration(&self, members: &[Member]) -> Administration {
        if self.operator {
            Administration::Service
        } else if self.resource.ends_with("/mcp") {
            // The routes of the administration do not accept tokens for `/mcp`.
            Administration::None
        } else if members.iter().any(|member| member.user.role == Role::Owner) {
            Administration::Vault
        } else if members.iter().any(|member| member.user.role.can_publish()) {
            Administration::Releases
        } else {
            Administration::None
        }
    }

    /// Filters an account's memberships for those that this request can be for.
    pub fn filter_members(&self, members: Vec<Member>) -> Vec<Member> {
        let fits = |Member { user, .. }: &Member| {
            let fixed = self
                .namespace
                .as_deref()
                .is_none_or(|slug| slug == user.namespace.slug.as_str());
            fixed && !self.scopes.and(user.scopes).is_empty()
        };
        members.into_iter().filter(fits).collect()
    }

    /// Creates the code for an approval. Returns the address of the redirect that delivers it, and
    /// the write that makes it valid. Returns `None` if no scope is left, no namespace was chosen,
    /// or an operator's credentials were entered too long ago.
    ///
    /// `members` are the memberships that [`Self::filter_members`] returned.
    pub fn create_authorization_code(
        &self,
        consent: Consent<'_>,
        members: &[Member],
        now: Timestamp,
        random: &dyn Random,
    ) -> Result<Option<(String, Write)>, StoreError> {
        let Consent { session, query, .. } = consent;
        let auth_time = session.entered_at(query, now);
        // Operator rights need credentials that were entered for this very request.
        let reached = if self.operator {
            auth_time.map(|_| (Reach::Service, Scopes::ALL, 0))
        } else {
            chosen_namespace(&consent, members)
        };
        let Some((reach, rights, epoch)) = reached else {
            return Ok(None);
        };
        let scopes = self.scopes.and(rights).and(consent.approved);
        if scopes.is_empty() && !self.operator {
            return Ok(None);
        }
        let secret = Secret::fresh(SecretKind::Code, random);
        let code = AuthorizationCode {
            family: Family {
                grant: fresh_id("gra_", now, random),
                reach,
                client: self.client.id.clone(),
                account: session.account.clone(),
                // The epochs of the session and not the present ones: a global sign-out between
                // sign-in and consent must end these tokens too.
                epochs: Epochs {
                    account: session.account_epoch,
                    namespace: epoch,
                    service: session.service_epoch,
                },
                resource: self.resource.clone(),
                auth_time,
                second_factor: session.second_factor,
            },
            scopes,
            redirect_uri: self.back.redirect.as_str().to_owned(),
            challenge: self.challenge.clone(),
            expires_at: now.plus_seconds(CODE_SECONDS),
            used: false,
        };
        // Only the hash of the code is stored. The code itself appears in nothing but the redirect.
        let write = Write::put_until(
            code_key(&secret.hash()),
            Document::from_value(&code)?,
            When::Absent,
            code.expires_at,
        );
        Ok(Some((
            self.back.answer_address(&[("code", secret.text())]),
            write,
        )))
    }
}

/// Finds the chosen namespace among `members`. Returns the target of the tokens, the user's scopes
/// there, and the epoch of the namespace.
fn chosen_namespace(consent: &Consent<'_>, members: &[Member]) -> Option<(Reach, Scopes, u32)> {
    let (slug, account) = (consent.namespace?, Some(&consent.session.account));
    let mut members = members.iter();
    // Looked up among the person's own memberships, because the form may name any slug.
    let Member { user, home } = members.find(|Member { user, .. }| {
        user.namespace.slug == *slug && user.account().as_ref() == account
    })?;
    let reach = Reach::Namespace {
        namespace: user.namespace.clone(),
        user: user.id.clone(),
        // The app's connection is known only when it exchanges the code, which sets this id.
        connection: String::new(),
    };
    Some((reach, user.scopes, home.epoch))
}

impl ClientReturn {
    /// Returns the address that reports an error to the client (RFC 6749 section 4.1.2.1).
    pub fn error_address(&self, code: &str, description: &str) -> String {
        self.answer_address(&[("error", code), ("error_description", description)])
    }

    fn answer_address(&self, pairs: &[(&str, &str)]) -> String {
        let mut pairs = pairs.to_vec();
        if let Some(state) = &self.state {
            pairs.push(("state", state));
        }
        // By `iss`, a client of several servers detects an answer of the wrong one (RFC 9207).
        pairs.push(("iss", &self.issuer));
        with_query(self.redirect.as_str(), &pairs)
    }
}

#[cfg(test)]
mod tests;
