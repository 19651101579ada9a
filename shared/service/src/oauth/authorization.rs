//! The authorization flow in a browser: authorize, sign in, decide, and return to the client.
//!
//! `GET /oauth/authorize` shows the sign-in page or the consent page. `POST /oauth/login` and `POST
//! /oauth/consent` store their result and redirect the browser by 303 to the same GET. That GET
//! finds the decision and redirects to the client by 302. So form data never follows a redirect to
//! a client (RFC 9700 section 4.12).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::json;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};
use zeroize::Zeroizing;

use super::authorize::{
    AuthorizeRequest, Consent, RejectedRequest, UnredirectableError, client_name,
};
use super::clients;
use super::consent_page::{
    ConsentOffer, ConsentPage, ConsentParties, InvitedIntoPage, chosen_vault,
};
use crate::accounts::apps_and_sessions;
use crate::accounts::audit::{self, SIGN_IN};
use crate::accounts::guard::{FormTask, SignedInForm};
use crate::accounts::invitations;
use crate::accounts::memberships::{Member, load_all_members};
use crate::accounts::passkey;
use crate::accounts::provider;
use crate::accounts::second_factor::{self, Requirement};
use crate::accounts::session::{CompletedSignIn, SessionStart, new_half_session, redirect_to};
use crate::accounts::sign_in::{self, PasswordCheck, too_many_attempts};
use crate::accounts::sign_in_page::ShownApp;
use crate::accounts::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::documents::ClientName;
use crate::http::client_address;
use crate::model::audit::{Actor, Change};
use crate::model::redirect::RedirectUri;
use crate::model::session::{
    APPROVAL_SECONDS, Approval, Credentials, approval_key, session_key, spent_key,
};
use crate::model::user::Scopes;
use crate::transaction::Transaction;
use crate::web::browser::{
    Browser, MAX_QUERY_BYTES, PostedForm, ReturnTo, SignedIn, authorize_address, authorize_query,
    read_posted_form, removed_cookie,
};
use crate::web::csrf::{FORM_SECONDS, Purpose};
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::layout::{self, Frame, MessagePage, SignOut};

/// Parses an authorize query before the sign-in. Returns the request, or the address of a redirect
/// that reports an error to the client.
async fn read_authorize_request(
    app: &App,
    query: &str,
    source: Option<IpAddr>,
) -> Result<Result<AuthorizeRequest, String>, ErrorPage> {
    let form = Form::parse(query);
    let name = client_name(&form)?;
    let client = clients::find_client(app, &name, source)
        .await?
        .ok_or(match name {
            ClientName::Document(_) if app.documents.is_some() => UnredirectableError::Document,
            _ => UnredirectableError::Client,
        })?;
    let public = &app.config.public_url;
    match AuthorizeRequest::from_form(&form, client, public.base(), public.as_str()) {
        Ok(request) => Ok(Ok(request)),
        Err(RejectedRequest::Redirect(location)) => Ok(Err(location)),
        Err(RejectedRequest::Page(why)) => Err(why.into()),
    }
}

/// `GET /oauth/authorize`: shows a page, or returns to the client.
pub async fn authorize(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    if query.is_empty() || query.len() > MAX_QUERY_BYTES {
        return Err(ErrorPage::RequestMalformed);
    }
    let source = client_address(&app.config, request.headers(), request.extensions());
    let is_head = request.method() == Method::HEAD;
    let authorize_request = match read_authorize_request(app, &query, source).await? {
        Ok(asked) => asked,
        Err(location) => return Ok(redirect_to(StatusCode::FOUND, &location)),
    };
    let browser = Browser::from_headers(app, request.headers());
    let now = app.clock.now();
    let signed_in = browser.load_signed_in(app).await?.filter(|signed_in| {
        // An earlier sign-in does not suffice if the request demands one of its own.
        !authorize_request.sign_in.credentials
            || signed_in.session.entered_at(&query, now).is_some()
    });
    let Some(signed_in) = signed_in else {
        let onward = ReturnTo::Authorize(&query);
        return Ok(render_sign_in_page(
            app,
            &browser,
            onward,
            authorize_request.sign_in_prompt(),
        ));
    };
    let authorize_request = match authorize_request.for_account(&signed_in.account) {
        Ok(asked) => asked,
        Err(location) => return Ok(redirect_to(StatusCode::FOUND, &location)),
    };
    // A request for operator rights acts on the service, whatever vaults the account has.
    let members = if authorize_request.operator {
        Vec::new()
    } else {
        let namespace = authorize_request.namespace.as_deref();
        let members = load_all_members(app, &signed_in.account, namespace).await?;
        authorize_request.filter_members(members)
    };
    let requirement = second_factor::check_requirement(
        app,
        &signed_in,
        authorize_request.sign_in.second_factor,
        &members,
    );
    match requirement {
        Requirement::Met => {}
        Requirement::NotSetUp => return Ok(second_factor::render_setup_due(app, true)),
        Requirement::Unconfirmed(from) => return Ok(second_factor::render_unconfirmed(app, from)),
        // The person signed in before the second factor was set up.
        Requirement::NotEntered => {
            let onward = ReturnTo::Authorize(&query);
            let prompt = SignInPrompt {
                problem: second_factor::passkey_needed(&signed_in.account),
                ..authorize_request.sign_in_prompt()
            };
            return Ok(render_sign_in_page(app, &browser, onward, prompt));
        }
    }
    if members.is_empty() && !authorize_request.operator {
        let namespace = authorize_request.namespace.as_deref();
        return answer_without_vault(app, &browser, &signed_in, &query, namespace).await;
    }
    let pending_consent = PendingConsent {
        app,
        is_head,
        browser: &browser,
        signed_in: &signed_in,
        request: &authorize_request,
        members: &members,
        query: &query,
        source,
        now,
    };
    pending_consent.apply_decision().await
}

/// Answers a person who has no vault that the request can be for. With an invitation the page lets
/// them accept it and then continue; without one, it says that they have no vault. `namespace` is
/// the slug that the request names.
async fn answer_without_vault(
    app: &App,
    browser: &Browser,
    signed_in: &SignedIn,
    query: &str,
    namespace: Option<&str>,
) -> Result<Response, ErrorPage> {
    let invitations = invitations::load_invitations(app, &signed_in.account, namespace).await?;
    let return_to = authorize_address(app, query);
    let sign_out = SignOut {
        csrf: browser.form_token(app, Purpose::Logout, &return_to),
        return_to: return_to.clone(),
    };
    if invitations.is_empty() {
        return Err(ErrorPage::NoNamespace {
            sign_out: (sign_out.csrf, return_to),
            fixed: namespace.is_some(),
        });
    }
    let page = InvitedIntoPage {
        frame: Frame::for_service(&app.config.public_url),
        email: signed_in.account.email.to_string(),
        csrf: browser.form_token(app, Purpose::Account, query),
        sign_out,
        return_to,
        invitations,
    };
    Ok(layout::render_page(StatusCode::OK, &page, None))
}

/// An authorize request of a signed-in person, decided or not.
struct PendingConsent<'a> {
    app: &'a App,
    is_head: bool,
    browser: &'a Browser,
    signed_in: &'a SignedIn,
    request: &'a AuthorizeRequest,
    members: &'a [Member],
    query: &'a str,
    source: Option<IpAddr>,
    now: Timestamp,
}

impl PendingConsent<'_> {
    /// Carries out the person's decision, or shows the consent page if there is none yet.
    async fn apply_decision(&self) -> Result<Response, ErrorPage> {
        let app = self.app;
        // HEAD is a safe method (RFC 9110 section 9.2.1): a program that checks a link must not use
        // up the decision.
        if self.is_head {
            return self.render_consent_page(None).await;
        }
        match app.change(async |tx| self.use_decision(&tx).await).await? {
            Some(Ok(location)) => Ok(redirect_to(StatusCode::FOUND, &location)),
            Some(Err(problem)) => self.render_consent_page(Some(problem)).await,
            None => self.render_consent_page(None).await,
        }
    }

    /// Uses up the person's decision in the commit of `tx`. Returns the address at which the client
    /// gets its answer, or the problem with an approval; `None` if there is no decision, or another
    /// request used it first.
    async fn use_decision(
        &self,
        tx: &Transaction<'_>,
    ) -> Result<Option<Result<String, &'static str>>, StoreError> {
        let key = approval_key(&self.browser.hash(), self.query);
        let Some(decision) = tx.get::<Approval>(&key).await? else {
            return Ok(None);
        };
        // Deleted in the same commit: of two requests with the same decision, only one gets a code.
        tx.write(Write::delete(key, When::At(decision.revision)));
        let Approval::Approved { namespace, scopes } = &decision.value else {
            let denied = "the person did not allow it";
            let location = self.request.back.error_address("access_denied", denied);
            return Ok(Some(Ok(location)));
        };
        let consent = Consent {
            session: &self.signed_in.session,
            query: self.query,
            namespace: namespace.as_ref(),
            approved: *scopes,
        };
        let (request, members) = (self.request, self.members);
        let code = request.create_authorization_code(consent, members, self.now, &tx.random)?;
        let Some((location, code)) = code else {
            return Ok(Some(Err(self.explain_unusable(&decision.value))));
        };
        tx.write(code);
        tx.write(self.consent_entry(namespace.as_ref(), *scopes)?);
        Ok(Some(Ok(location)))
    }

    /// Returns the message about what an approval lacked to give access.
    fn explain_unusable(&self, decision: &Approval) -> &'static str {
        let mut users = self.members.iter().map(|member| &member.user);
        match decision {
            Approval::Approved {
                namespace: None, ..
            } => "Choose a vault, or choose “Don’t allow”.",
            Approval::Approved {
                namespace: Some(slug),
                ..
            } if !users.any(|user| user.namespace.slug == *slug) => {
                "You have no vault of this name that the app could use."
            }
            _ => "Tick at least one thing that the app may do, or choose “Don’t allow”.",
        }
    }

    /// Returns the write of the audit entry of a consent: in the log of the chosen namespace, or in
    /// that of the service.
    fn consent_entry(&self, namespace: Option<&Slug>, scopes: Scopes) -> Result<Write, StoreError> {
        let asked = self.request;
        let chosen = namespace.filter(|_| !asked.operator);
        let mut users = self.members.iter().map(|member| &member.user);
        let user = chosen.and_then(|slug| users.find(|user| user.namespace.slug == *slug));
        let account = || self.signed_in.account.id.to_string();
        let client = asked.client.id.to_string();
        let actor = Actor {
            user: user.map_or_else(account, |user| user.id.clone()),
            client: Some(client.clone()),
            source: self.source,
        };
        // The tokens get only the scopes that the user has, perhaps fewer than were ticked.
        let rights = user.map_or(Scopes::ALL, |user| user.scopes);
        let document = asked.client.document.as_ref();
        let after = json!({
            "name": asked.client.name,
            "document": document.map(|document| &document.url),
            "answer_to": asked.back.redirect.display_name(),
            "scopes": asked.scopes.and(rights).and(scopes),
            "operator": asked.operator.then_some(true),
        });
        let change = Change::about(&client).with_after(after);
        let namespace = user.map(|user| &user.namespace.id);
        self.app
            .audit_entry(namespace, &actor, CONSENT.action, change, "done")
    }

    /// Whether “Write” is ticked from the start: the app expects it, and either runs on the
    /// person's own computer or has been allowed to write before.
    async fn ticks_write(&self) -> Result<bool, StoreError> {
        if !self.request.expects_write {
            return Ok(false);
        }
        if self.request.back.redirect.is_loopback() {
            return Ok(true);
        }
        let account = &self.signed_in.account.id;
        apps_and_sessions::may_app_write(self.app, account, &self.request.client.id).await
    }

    async fn render_consent_page(
        &self,
        problem: Option<&'static str>,
    ) -> Result<Response, ErrorPage> {
        let return_to = authorize_address(self.app, self.query);
        let parties = ConsentParties {
            app: ShownApp::of_client(&self.request.client, &self.request.back.redirect),
            account: self.signed_in.account.email.to_string(),
            notices: self.signed_in.session.notices.clone(),
            csrf: self
                .browser
                .form_token(self.app, Purpose::Consent, self.query),
            logout_csrf: self
                .browser
                .form_token(self.app, Purpose::Logout, &return_to),
            return_to,
        };
        let offer = ConsentOffer {
            members: self.members,
            scopes: self.request.scopes,
            administration: self.request.administration(self.members),
            write_ticked: self.ticks_write().await?,
        };
        let frame = Frame::for_service(&self.app.config.public_url);
        let page = ConsentPage::new(frame, parties, &offer, problem);
        let onward = Some(&self.request.back.redirect);
        Ok(layout::render_page(StatusCode::OK, &page, onward))
    }
}

/// `POST /oauth/oidc/start`: sends the browser to the identity provider.
pub async fn start_at_provider(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let wants_credentials = async |query: &str, source| {
        let asked = read_authorize_request(app, query, source).await?;
        Ok(asked.is_ok_and(|asked| asked.sign_in.credentials))
    };
    provider::start_sign_in(app, request, wants_credentials).await
}

/// Returns the redirect URI of the authorize request with this query, for the content security
/// policy of a page. `None` if it is invalid; the authorize page will then say why.
async fn find_answer_address(
    app: &App,
    query: &str,
    source: Option<IpAddr>,
) -> Option<RedirectUri> {
    let asked = read_authorize_request(app, query, source).await;
    Some(asked.ok()?.ok()?.back.redirect)
}

/// `POST /oauth/passkey`: shows the page that asks the browser for a passkey.
pub async fn ask_for_passkey(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let answer_to = async |query: &str, source| find_answer_address(app, query, source).await;
    passkey::sign_in::ask_for_passkey(app, request, answer_to).await
}

/// `POST /oauth/passkey/answer`: checks the answer of an authenticator and begins a session.
pub async fn sign_in_with_passkey(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let answer_to = async |query: &str, source| find_answer_address(app, query, source).await;
    passkey::sign_in::sign_in_with_passkey(app, request, answer_to).await
}

/// `POST /oauth/login`: checks a password and begins a session.
pub async fn sign_in_with_password(app: &App, request: Request) -> Result<Response, ErrorPage> {
    if !app.config.sign_in.takes_passwords() {
        return Err(ErrorPage::PasswordsOff);
    }
    let posted = read_posted_form(app, request).await?;
    let PostedForm {
        form,
        browser,
        returning,
        source,
    } = &posted;
    let source = *source;
    let onward = ReturnTo::from_form(app, form)?;
    browser.check_form(app, form, Purpose::Login, onward.form_subject())?;
    let typed = form.value("email").unwrap_or_default();
    let password = Zeroizing::new(form.value("password").unwrap_or_default().to_owned());
    let checked = sign_in::check_password(app, typed, password, source, returning).await?;
    let (account, taken_back) = match checked {
        PasswordCheck::Good {
            account,
            taken_back,
        } => (*account, taken_back),
        refused => {
            let outcome = match refused {
                PasswordCheck::TooMany { .. } => "rate_limited",
                _ => "wrong_password",
            };
            audit::record_refused_sign_in(app, typed, source, outcome).await;
            return Ok(render_refused_sign_in(app, &posted, onward, &refused).await);
        }
    };
    let credentials = Credentials::Entered {
        at: app.clock.now(),
    };
    let completed = CompletedSignIn {
        browser,
        returning,
        source,
        onward,
        action: SIGN_IN,
        second_factor: false,
        credentials,
        notice: None,
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write_all(taken_back.clone());
        if account.second_factor.is_none() {
            return completed.begin_session(&tx, app, &account).await;
        }
        let start = SessionStart::from_credentials(credentials);
        let (half, session) = new_half_session(app, browser, &account, start).await?;
        tx.write_all(session);
        Ok(second_factor::render_code_page(
            app, &half, &account, onward, None,
        ))
    };
    Ok(app.change(begin).await?)
}

/// Renders the sign-in page after a refused attempt.
async fn render_refused_sign_in(
    app: &App,
    posted: &PostedForm,
    onward: ReturnTo<'_>,
    why: &PasswordCheck,
) -> Response {
    let (status, problem, wait) = match why {
        PasswordCheck::TooMany { retry_after } => (
            StatusCode::TOO_MANY_REQUESTS,
            too_many_attempts(*retry_after),
            Some(*retry_after),
        ),
        _ => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "Wrong email or password.",
            None,
        ),
    };
    // The page also names the app. If the query is invalid, the authorize page will say why.
    let asked = match onward {
        ReturnTo::Authorize(query) => read_authorize_request(app, query, posted.source)
            .await
            .ok()
            .and_then(Result::ok),
        _ => None,
    };
    let prompt = SignInPrompt {
        app: asked.as_ref().map(AuthorizeRequest::waiting_app),
        email: posted.form.value("email").unwrap_or_default(),
        problem: Some(problem),
    };
    let mut response = render_sign_in_page(app, &posted.browser, onward, prompt);
    *response.status_mut() = status;
    layout::set_retry_after(&mut response, wait);
    response
}

/// The form with which a person allows or denies an authorize request.
pub const CONSENT: FormTask = FormTask {
    purpose: Purpose::Consent,
    onward: |app, form| authorize_query(app, form).map(ReturnTo::Authorize),
    action: "oauth.consent",
};

/// `POST /oauth/consent`: records the person's decision about one request.
pub async fn record_consent(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let (form, browser) = (&request.form, &request.browser);
    let query = authorize_query(app, form)?;
    let approval = match form.value("decision") {
        Some("deny") => Approval::Denied {},
        Some("approve") => Approval::Approved {
            namespace: chosen_vault(form)?,
            scopes: form.all("scope").fold(Scopes::NONE, |all, boxes| {
                all.or(Scopes::parse_known(boxes))
            }),
        },
        _ => return Err(ErrorPage::FormMalformed),
    };
    let back = redirect_to(StatusCode::SEE_OTHER, &authorize_address(app, query));
    let now = app.clock.now();
    let writes = approval_writes(browser, query, &request.nonce, &approval, now)?;
    // The commit fails if the form was sent before. The redirect is right even then: a second click
    // finds the first decision, and a replay asks the person again.
    let _ = app.records.commit_writes(writes).await?;
    Ok(back)
}

/// Returns the writes that store a decision and use up the token of its form.
fn approval_writes(
    browser: &Browser,
    query: &str,
    nonce: &str,
    approval: &Approval,
    now: Timestamp,
) -> Result<Vec<Write>, StoreError> {
    let session = browser.hash();
    let (spent_until, until) = (
        now.plus_seconds(FORM_SECONDS),
        now.plus_seconds(APPROVAL_SECONDS),
    );
    let empty = Document::from_value(&serde_json::Map::new())?;
    Ok(vec![
        // `Absent` makes the token of the form valid only once.
        Write::put_until(spent_key(&session, nonce), empty, When::Absent, spent_until),
        Write::put_until(
            approval_key(&session, query),
            Document::from_value(approval)?,
            When::Any,
            until,
        ),
    ])
}

/// `POST /oauth/logout`: ends the session of the browser.
pub async fn sign_out_browser(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let PostedForm { form, browser, .. } = read_posted_form(app, request).await?;
    browser.check_form(
        app,
        &form,
        Purpose::Logout,
        form.value("return_to").unwrap_or_default(),
    )?;
    let written = app
        .records
        .commit_writes(vec![Write::delete(session_key(&browser.hash()), When::Any)])
        .await?;
    debug_assert!(written.is_done(), "a write without a condition");
    let mut response = if form.value("return_to").is_some() {
        redirect_to(
            StatusCode::SEE_OTHER,
            &ReturnTo::from_form(app, &form)?.address(app),
        )
    } else {
        let lines = vec!["You can close this page.".to_owned()];
        let frame = Frame::for_service(&app.config.public_url);
        layout::render_page(
            StatusCode::OK,
            &MessagePage {
                frame,
                title: "You are signed out",
                lines,
                sign_out: None,
            },
            None,
        )
    };
    if let Some(cookie) = removed_cookie(app) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
