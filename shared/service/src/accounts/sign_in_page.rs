//! The page that asks for the credentials of a person.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;

use super::passkey::relying_party::signs_in_with_passkeys;
use crate::app::App;
use crate::model::client::Client;
use crate::model::redirect::RedirectUri;
use crate::web::browser::{Browser, ReturnTo};
use crate::web::csrf::Purpose;
use crate::web::layout::{self, Frame, format_day};

/// A client as pages show it: its own claims, and what the service knows about it.
pub struct ShownApp {
    /// Name that it gives itself, if any.
    pub name: Option<String>,
    /// Host or scheme that receives the answer.
    pub shown: String,
    /// Whether the answer goes to a program on this computer.
    pub loopback: bool,
    /// Whether the answer goes to whichever program opens the scheme.
    pub private_scheme: bool,
    /// Day of its registration.
    pub registered: String,
    /// Host of its document, if it is identified by one.
    pub document: Option<String>,
}

impl ShownApp {
    /// Describes a client that wants its answer at `redirect`.
    pub fn of_client(client: &Client, redirect: &RedirectUri) -> Self {
        Self {
            name: client.name.clone(),
            shown: redirect.display_name().to_owned(),
            loopback: redirect.is_loopback(),
            private_scheme: redirect.is_private_scheme(),
            registered: format_day(client.created_at),
            document: client
                .document
                .as_ref()
                .map(|document| document.host.clone()),
        }
    }
}

/// A client whose request goes on after the sign-in, and the address of its answer.
#[derive(Clone, Copy)]
pub struct WaitingApp<'a> {
    /// The client.
    pub client: &'a Client,
    /// The address that its answer goes to.
    pub redirect: &'a RedirectUri,
}

/// The variable parts of the page.
#[derive(Clone, Copy, Default)]
pub struct SignInPrompt<'a> {
    /// The app that waits, if there is one.
    pub app: Option<WaitingApp<'a>>,
    /// The address in the form.
    pub email: &'a str,
    /// The failure of the last attempt.
    pub problem: Option<&'static str>,
}

/// The sign-in page.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    /// Frame around the page.
    frame: Frame,
    /// App that waits for the sign-in, if any.
    app: Option<ShownApp>,
    /// Problem with the last attempt.
    problem: Option<&'static str>,
    /// Whether a confirmation follows.
    confirms: bool,
    /// Form token.
    csrf: String,
    /// Address to return to.
    return_to: String,
    /// Typed address.
    email: String,
    /// Whether a password signs in.
    passwords: bool,
    /// Whether a passkey signs in.
    passkeys: bool,
    /// Name of the identity provider, if there is one.
    provider: Option<String>,
}

/// Renders the page that asks for credentials and then leads to `onward`.
pub fn render_sign_in_page(
    app: &App,
    browser: &Browser,
    onward: ReturnTo<'_>,
    prompt: SignInPrompt<'_>,
) -> Response {
    let provider = app.provider.as_ref();
    let page = SignInPage {
        frame: Frame::for_service(&app.config.public_url),
        app: prompt
            .app
            .map(|waiting| ShownApp::of_client(waiting.client, waiting.redirect)),
        problem: prompt.problem,
        confirms: matches!(onward, ReturnTo::Confirm(_)),
        csrf: browser.form_token(app, Purpose::Login, onward.form_subject()),
        return_to: onward.address(app),
        email: prompt.email.to_owned(),
        passwords: app.config.sign_in.takes_passwords(),
        passkeys: signs_in_with_passkeys(app),
        provider: provider.map(|provider| provider.settings().name.clone()),
    };
    // The redirects after this form may end at the client, so the page's policy has to allow its
    // address.
    let answer_to = prompt.app.map(|waiting| waiting.redirect);
    let mut response = layout::render_page(StatusCode::OK, &page, answer_to);
    if let Some(cookie) = browser.set_cookie(app, false) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
