//! Guards of the pages and forms for signed-in browsers. A guard checks a request and makes the
//! value that the handler takes, so that no handler runs without the check.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::audit;
use super::session::redirect_to;
use super::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::ports::Ports;
use crate::web::browser::{Browser, PostedForm, ReturnTo, SignedIn, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::remembered_browser::RememberedBrowser;

/// Proof that a request came from a browser with a valid session. Handlers of pages for signed-in
/// people take it.
pub struct SignedInBrowser {
    /// The browser that sent the request, identified by its session cookie.
    pub browser: Browser,
    /// The valid session, and the account that is signed in.
    pub signed_in: SignedIn,
    _proof: (),
}

/// Admits a signed-in browser. Any other gets the sign-in page as the inner `Err`; after the
/// sign-in, that page leads to `onward`.
pub async fn require_signed_in(
    app: &App,
    headers: &HeaderMap,
    onward: ReturnTo<'_>,
) -> Result<Result<SignedInBrowser, Response>, ErrorPage> {
    let browser = Browser::from_headers(app, headers);
    Ok(match browser.load_signed_in(app).await? {
        None => Err(render_sign_in_page(
            app,
            &browser,
            onward,
            SignInPrompt::default(),
        )),
        Some(signed_in) => Ok(SignedInBrowser {
            browser,
            signed_in,
            _proof: (),
        }),
    })
}

/// A form that a signed-in browser sent, and that came from a page of this service.
pub struct SignedInForm {
    /// Decoded fields of the form; none is repeated, except for check boxes.
    pub form: Form,
    /// The browser that sent the request, identified by its session cookie.
    pub browser: Browser,
    /// The valid session, and the account that is signed in.
    pub signed_in: SignedIn,
    /// The cookie by which the browser proves that it signed in before.
    pub returning: RememberedBrowser,
    /// IP address of the client; `None` if it is unknown.
    pub source: Option<IpAddr>,
    /// Nonce of the form token, by which a form can be used only once.
    pub nonce: String,
    _proof: (),
}

impl SignedInForm {
    /// Reads the account of the session, for a change of the account. Fails if the session has ended
    /// since the form was admitted: a change that gives the browser a new session must not sign it
    /// in again.
    pub async fn read_account(&self, ports: &Ports) -> Result<Versioned<Account>, ErrorPage> {
        let SignedIn { session, account } = &self.signed_in;
        let stored = ports.get::<Account>(&account_key(&account.id)).await?;
        stored
            .filter(|stored| session.matches_present_account(&stored.value))
            .ok_or(ErrorPage::FormForged)
    }
}

/// Description of a form for signed-in browsers, as its guard needs it.
#[derive(Clone, Copy)]
pub struct FormTask {
    /// Purpose that the form token must have.
    pub purpose: Purpose,
    /// Returns the page that the form is part of; the form token is bound to it.
    pub onward: for<'f> fn(&App, &'f Form) -> Result<ReturnTo<'f>, ErrorPage>,
    /// Audit log action under which a forged form is recorded.
    pub action: &'static str,
}

/// Describes the form of a button on the account page.
pub const fn account_page_form(action: &'static str) -> FormTask {
    FormTask {
        purpose: Purpose::Account,
        onward: |_, _| Ok(ReturnTo::Account),
        action,
    }
}

/// Admits a form of a signed-in browser. Any other browser is redirected to the form's page, which
/// asks for credentials; the inner `Err` is that redirect.
pub async fn require_signed_in_form(
    app: &App,
    task: FormTask,
    request: Request,
) -> Result<Result<SignedInForm, Response>, ErrorPage> {
    let posted = read_posted_form(app, request).await?;
    let onward = (task.onward)(app, &posted.form)?;
    let proof = prove_form(app, &posted, task.purpose, onward, task.action).await?;
    Ok(proof.map(|(signed_in, nonce)| SignedInForm {
        form: posted.form,
        browser: posted.browser,
        signed_in,
        returning: posted.returning,
        source: posted.source,
        nonce,
        _proof: (),
    }))
}

/// Verifies that a form came from the page `onward` of this service and that its browser is signed
/// in. Returns the session with its account, and the nonce of the form. A browser that is not
/// signed in is redirected to that page (the inner `Err`). A forged form is recorded under
/// `action`.
pub async fn prove_form(
    app: &App,
    posted: &PostedForm,
    purpose: Purpose,
    onward: ReturnTo<'_>,
    action: &str,
) -> Result<Result<(SignedIn, String), Response>, ErrorPage> {
    let PostedForm { form, browser, .. } = posted;
    // The token comes first: without it, any site could learn from the answer whether the browser
    // is signed in.
    let nonce = match browser.check_form(app, form, purpose, onward.form_subject()) {
        Ok(nonce) => nonce,
        Err(forged) => {
            audit::record_refusal(app, browser, posted.source, action, "form_forged").await;
            return Err(forged);
        }
    };
    // 303 makes the browser open the page by GET: the form's data, such as a password, is not sent
    // again.
    let to_page = || redirect_to(StatusCode::SEE_OTHER, &onward.address(app));
    let signed_in = browser.load_signed_in(app).await?;
    Ok(signed_in
        .map(|signed_in| (signed_in, nonce))
        .ok_or_else(to_page))
}
