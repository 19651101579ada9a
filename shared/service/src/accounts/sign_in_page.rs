//! The sign-in page, which asks for the credentials of a person.

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

/// An OAuth client as pages show it: what it claims, and what the service knows about it.
pub struct ShownApp {
    /// Name that the client registered for itself; nobody has verified it.
    pub name: Option<String>,
    /// Host or URL scheme that receives the authorization code.
    pub shown: String,
    /// Whether the code goes to a program on the person's computer (a loopback address).
    pub loopback: bool,
    /// Whether the code goes to whichever program the person's computer opens for the scheme.
    pub private_scheme: bool,
    /// Day on which the client was registered.
    pub registered: String,
    /// Host of the client's metadata document, if its id is the URL of one.
    pub document: Option<String>,
}

impl ShownApp {
    /// Describes a client that receives its code at `redirect`.
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

/// A client whose authorize request continues after the sign-in.
#[derive(Clone, Copy)]
pub struct WaitingApp<'a> {
    pub client: &'a Client,
    /// The redirect URI that receives its code.
    pub redirect: &'a RedirectUri,
}

/// The parts of the page that its caller chooses.
#[derive(Clone, Copy, Default)]
pub struct SignInPrompt<'a> {
    /// The app that waits for the sign-in, if there is one.
    pub app: Option<WaitingApp<'a>>,
    /// The e-mail address to fill into the form; may be empty.
    pub email: &'a str,
    /// Message about the last attempt or the reason for the page.
    pub problem: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    /// Host and path prefix of the service, for the header of the page.
    frame: Frame,
    app: Option<ShownApp>,
    /// Message about the last attempt or the reason for the page.
    problem: Option<&'static str>,
    /// Whether the next page asks to confirm a dangerous act.
    confirms: bool,
    /// Form token, bound to the page that follows the sign-in.
    csrf: String,
    /// Address of the page that follows the sign-in.
    return_to: String,
    /// E-mail address to fill into the form.
    email: String,
    /// Whether to offer sign-in by password.
    passwords: bool,
    /// Whether to offer sign-in by passkey.
    passkeys: bool,
    /// Name of the identity provider, if the service has one.
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
    // The redirects after this form may end at the client, so the page's content security policy
    // must allow its address.
    let answer_to = prompt.app.map(|waiting| waiting.redirect);
    let mut response = layout::render_page(StatusCode::OK, &page, answer_to);
    if let Some(cookie) = browser.set_cookie(app, false) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
