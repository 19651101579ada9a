//! Session cookies of browsers, and proof that a form was sent from a page of this service.

use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderValue};
use std::net::IpAddr;
use vault_format::hash::Digest;
use vault_store::StoreError;

use super::cookie;
use super::csrf::{self, Purpose};
use super::error_page::ErrorPage;
use super::form::Form;
use super::remembered_browser::RememberedBrowser;
use crate::app::App;
use crate::http::{client_address, require_media_type};
use crate::model::Versioned;
use crate::model::account::{Account, ServiceEpoch, account_key, service_epoch_key};
use crate::model::limits::Networks;
use crate::model::permit::is_permit_id;
use crate::model::session::{SESSION_SECONDS, Session, session_key};
use crate::model::token::{Secret, SecretKind};

/// Maximum length of an authorize query, in bytes: it must fit into a `Location` header.
pub const MAX_QUERY_BYTES: usize = 6 * 1024;
/// Maximum size of a form body, in bytes: an escape makes each byte of the query three, and the
/// other fields are small.
pub const MAX_FORM_BYTES: usize = 3 * MAX_QUERY_BYTES + 8 * 1024;

/// A browser, identified by the random value of its session cookie. A browser that only views pages
/// has no record in the store.
pub struct Browser {
    secret: Secret,
    was_sent: bool,
}

/// A browser with its session and account.
pub struct SignedIn {
    /// Session that has not expired. In the result of [`Browser::load_half_signed_in`], the code of
    /// the second factor is still due.
    pub session: Session,
    pub account: Account,
}

impl Browser {
    /// Reads the browser from the cookie of a request. Without a cookie, creates a new value, which
    /// [`Browser::set_cookie`] then sends.
    pub fn from_headers(app: &App, headers: &HeaderMap) -> Self {
        let sent_secret = cookie::find_cookie(headers, cookie_name(app))
            .and_then(|value| Secret::parse(SecretKind::Session, value));
        Self {
            was_sent: sent_secret.is_some(),
            secret: sent_secret.unwrap_or_else(|| Secret::fresh(SecretKind::Session, &app.random)),
        }
    }

    /// Creates the browser for a sign-in that has just succeeded. Its cookie value is new, so a
    /// value that an attacker planted or learned before the sign-in is worthless (session
    /// fixation).
    pub fn for_new_session(app: &App) -> Self {
        Self {
            secret: Secret::fresh(SecretKind::Session, &app.random),
            was_sent: false,
        }
    }

    /// Returns the SHA-256 of the cookie's value, under which the session is stored.
    pub fn hash(&self) -> Digest {
        self.secret.hash()
    }

    /// Derives a secret from the cookie and `salt`. It is stored nowhere: only a request with the
    /// same cookie can derive it again.
    pub fn derive_secret(&self, kind: SecretKind, salt: &str) -> Secret {
        Secret::derive_from(kind, &self.secret, salt)
    }

    /// Creates a token for a form about `subject`, valid in this browser for this purpose.
    pub fn form_token(&self, app: &App, purpose: Purpose, subject: &str) -> String {
        csrf::create_token(&self.secret, purpose, subject, app.clock.now(), &app.random)
    }

    /// Verifies the token of a form and returns its nonce. Fails if the browser sent no cookie, or
    /// if the token is for another browser, purpose or subject.
    pub fn check_form(
        &self,
        app: &App,
        form: &Form,
        purpose: Purpose,
        subject: &str,
    ) -> Result<String, ErrorPage> {
        // Without a cookie, the secret was created for this very request, and no form can be bound
        // to it.
        let token = form
            .value("csrf")
            .filter(|_| self.was_sent)
            .ok_or(ErrorPage::FormForged)?;
        csrf::verify_token(&self.secret, purpose, subject, token, app.clock.now())
            .ok_or(ErrorPage::FormForged)
    }

    /// Loads the session if its sign-in is complete; `None` if the browser has no valid session.
    pub async fn load_signed_in(&self, app: &App) -> Result<Option<SignedIn>, StoreError> {
        let found = self.load_session(app).await?;
        Ok(found.filter(|found| !found.session.code_due))
    }

    /// Loads the session if its first proof (such as the password) was accepted and the code of the
    /// second factor is still due.
    pub async fn load_half_signed_in(&self, app: &App) -> Result<Option<SignedIn>, StoreError> {
        let found = self.load_session(app).await?;
        Ok(found.filter(|found| found.session.code_due))
    }

    /// Loads the session of the cookie, whether or not a code is still due.
    async fn load_session(&self, app: &App) -> Result<Option<SignedIn>, StoreError> {
        // A value that was created for this request cannot have a session.
        if !self.was_sent {
            return Ok(None);
        }
        let Some(session) = app.get::<Session>(&session_key(&self.hash())).await? else {
            return Ok(None);
        };
        // Read on each request, so that the reset of an account or a global sign-out ends its
        // sessions at once.
        let keys = [account_key(&session.value.account), service_epoch_key()];
        let [account, service] = app.get_all(keys).await?;
        let account = Versioned::<Account>::read(account)?;
        let service = Versioned::<ServiceEpoch>::read(service)?.map(|service| service.value);
        let now = app.clock.now();
        Ok(account
            .filter(|account| session.value.is_valid(&account.value, service, now))
            .map(|account| SignedIn {
                session: session.value,
                account: account.value,
            }))
    }

    /// Returns the `Set-Cookie` header; `None` if the browser sent this value itself. With
    /// `signed_in` the cookie lives as long as a session, otherwise until the browser is closed.
    pub fn set_cookie(&self, app: &App, signed_in: bool) -> Option<HeaderValue> {
        let age = if signed_in {
            format!("; Max-Age={SESSION_SECONDS}")
        } else {
            String::new()
        };
        (!self.was_sent)
            .then(|| set_cookie(app, self.secret.text(), &age))
            .flatten()
    }
}

/// Returns the `Set-Cookie` header that removes the cookie.
pub fn removed_cookie(app: &App) -> Option<HeaderValue> {
    set_cookie(app, "", "; Max-Age=0")
}

fn set_cookie(app: &App, value: &str, age: &str) -> Option<HeaderValue> {
    // Lax and not Strict: the first request is a navigation from the client's site, and it must
    // carry the cookie.
    let secure = if app.config.public_url.is_loopback_http() {
        ""
    } else {
        "; Secure"
    };
    let text = format!(
        "{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}",
        cookie_name(app)
    );
    HeaderValue::from_str(&text).ok()
}

/// Returns the name of the session cookie. The prefix `__Host-` keeps other hosts of the same site
/// from setting it; it is not possible over plain HTTP.
fn cookie_name(app: &App) -> &'static str {
    if app.config.public_url.is_loopback_http() {
        "vault_session"
    } else {
        "__Host-vault_session"
    }
}

/// A form that no page of another site sent. Its token is not checked yet: see
/// [`Browser::check_form`].
pub struct PostedForm {
    /// Decoded fields of the form; none is repeated, except for check boxes.
    pub form: Form,
    /// The sender, by the session cookie; an unknown browser has a new value.
    pub browser: Browser,
    /// The cookie by which the browser proves that it signed in before.
    pub returning: RememberedBrowser,
    /// IP address of the client; `None` if it is unknown.
    pub source: Option<IpAddr>,
}

/// Fields that may be repeated, because each is a group of check boxes with one name.
const BOXES: &[&str] = &["scope", "made"];

/// Reads a form. Fails if another site sent it, if it is too large or malformed, or if a field is
/// repeated that is no group of check boxes.
pub async fn read_posted_form(app: &App, request: Request) -> Result<PostedForm, ErrorPage> {
    let (parts, body) = request.into_parts();
    // Checked before the body, so that forms of other sites are not even read.
    if !from_our_page(app, &parts.headers) {
        return Err(ErrorPage::FormForged);
    }
    let source = client_address(&app.config, &parts.headers, &parts.extensions);
    let lane = Networks::of(source).lane();
    let body = app.bodies.read(lane, body, MAX_FORM_BYTES).await?;
    require_media_type(&parts.headers, "application/x-www-form-urlencoded")?;
    let form = Form::parse(std::str::from_utf8(&body).map_err(|_| ErrorPage::FormMalformed)?);
    form.check_except(BOXES)
        .map_err(|_| ErrorPage::FormMalformed)?;
    Ok(PostedForm {
        form,
        browser: Browser::from_headers(app, &parts.headers),
        returning: RememberedBrowser::from_headers(app, &parts.headers),
        source,
    })
}

/// Whether the request comes from a page of this service, by the headers in which browsers name the
/// sending site. A client without these headers is not a browser, so no site can have tricked it.
fn from_our_page(app: &App, headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    // `none` is a navigation by the person, such as a bookmark.
    let same_site = matches!(site, None | Some(b"same-origin" | b"none"));
    // Pages of this service send no referrer, so browsers send `Origin: null` with their forms.
    // Then `Sec-Fetch-Site` must prove the origin.
    let same_origin = match headers.get(header::ORIGIN).map(HeaderValue::as_bytes) {
        None => true,
        Some(b"null") => site == Some(b"same-origin"),
        Some(origin) => origin == app.config.public_url.origin().as_bytes(),
    };
    same_site && same_origin
}

/// Page to which a form leads in the end. It is always a page of this service, so that `return_to`
/// is no open redirect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReturnTo<'f> {
    /// The authorize page with this query.
    Authorize(&'f str),
    /// The page where a password is changed.
    Password,
    /// The account page.
    Account,
    /// The page where the second factor is set up.
    SecondFactor,
    /// The page where passkeys are added and removed.
    Passkeys,
    /// The page on which a person signs up for a vault.
    NewVault,
    /// The page at this path, on which a person confirms dangerous acts.
    Confirm(&'f str),
    /// The page of the console at this path below the prefix, with its query.
    Console(&'f str),
}

/// The path of the page where a password is changed, below the prefix.
pub const PASSWORD_PATH: &str = "/oauth/password";
/// The path of the account page, below the prefix.
pub const ACCOUNT_PATH: &str = "/account";
/// The path of the page where the second factor is set up, below the prefix.
pub const SECOND_FACTOR_PATH: &str = "/account/second-factor";
/// The path of the page where passkeys are added and removed, below the prefix.
pub const PASSKEYS_PATH: &str = "/account/passkeys";
/// The path of the page where a person signs up for a vault, below the prefix.
pub const NEW_VAULT_PATH: &str = "/account/new-vault";
/// The path of the page on which a person confirms dangerous acts, below the prefix; the id of a
/// permit follows.
pub const CONFIRM_PATH: &str = "/account/confirm/";
/// The path of the console, below the prefix.
pub const CONSOLE_PATH: &str = "/console";
/// Maximum length of the address of a console page, in bytes.
const MAX_CONSOLE_BYTES: usize = 1024;

impl<'f> ReturnTo<'f> {
    /// Parses the field `return_to`. Fails unless it is the address of a page of this service.
    pub fn from_form(app: &App, form: &'f Form) -> Result<Self, ErrorPage> {
        Self::parse_address(app, form.value("return_to").unwrap_or_default())
    }

    /// Parses an address that [`ReturnTo::address`] returned.
    pub fn parse_address(app: &App, address: &'f str) -> Result<Self, ErrorPage> {
        let path = address
            .strip_prefix(app.config.public_url.prefix())
            .ok_or(ErrorPage::FormMalformed)?;
        match path {
            PASSWORD_PATH => return Ok(Self::Password),
            ACCOUNT_PATH => return Ok(Self::Account),
            SECOND_FACTOR_PATH => return Ok(Self::SecondFactor),
            PASSKEYS_PATH => return Ok(Self::Passkeys),
            NEW_VAULT_PATH => return Ok(Self::NewVault),
            _ => {}
        }
        if let Some(page) =
            Self::parse_console_address(path).or_else(|| Self::parse_confirm_path(path))
        {
            return Ok(page);
        }
        // Only printable ASCII is accepted: the query goes into a `Location` header, where a line
        // feed would begin another header.
        path.strip_prefix("/oauth/authorize?")
            .filter(|query| {
                query.len() <= MAX_QUERY_BYTES && query.bytes().all(|byte| byte.is_ascii_graphic())
            })
            .map(Self::Authorize)
            .ok_or(ErrorPage::FormMalformed)
    }

    /// Parses the path of the page that confirms dangerous acts; `None` for any other.
    pub fn parse_confirm_path(path: &'f str) -> Option<Self> {
        // The path goes into a `Location` header and into a form, so only an id may follow the
        // prefix.
        let id = path.strip_prefix(CONFIRM_PATH)?;
        is_permit_id(id).then_some(Self::Confirm(path))
    }

    /// Parses the address of a console page: its path below the prefix, and its query. `None` for
    /// an address that no page of the console can have.
    pub fn parse_console_address(address: &'f str) -> Option<Self> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let below = path.strip_prefix(CONSOLE_PATH)?;
        let segment = |text: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            // Segments of dots alone are refused because browsers resolve them:
            // `/console/../oauth/logout` is not a page of the console.
            !text.is_empty() && text.bytes().all(plain) && !text.bytes().all(|b| b == b'.')
        };
        let is_page = match below.strip_prefix('/') {
            Some(segments) => segments.split('/').all(segment),
            None => below.is_empty(),
        };
        // The characters that a query may contain unescaped, and those of escapes.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$'()*+,;:@/?=&%".contains(&b);
        let is_good = is_page && query.bytes().all(plain) && address.len() <= MAX_CONSOLE_BYTES;
        is_good.then_some(Self::Console(address))
    }

    /// Returns the subject to which the form tokens of this page are bound.
    pub const fn form_subject(self) -> &'f str {
        match self {
            Self::Authorize(query) => query,
            Self::Password => PASSWORD_PATH,
            Self::Account => ACCOUNT_PATH,
            Self::SecondFactor => SECOND_FACTOR_PATH,
            Self::Passkeys => PASSKEYS_PATH,
            Self::NewVault => NEW_VAULT_PATH,
            Self::Console(address) | Self::Confirm(address) => address,
        }
    }

    /// Returns the address for a form or a redirect.
    pub fn address(self, app: &App) -> String {
        match self {
            Self::Authorize(query) => authorize_address(app, query),
            Self::Password
            | Self::Account
            | Self::SecondFactor
            | Self::Passkeys
            | Self::NewVault
            | Self::Confirm(_)
            | Self::Console(_) => {
                format!("{}{}", app.config.public_url.prefix(), self.form_subject())
            }
        }
    }
}

/// Returns the authorize query of the field `return_to`. Fails unless the field is the address of
/// an authorize request.
pub fn authorize_query<'f>(app: &App, form: &'f Form) -> Result<&'f str, ErrorPage> {
    match ReturnTo::from_form(app, form)? {
        ReturnTo::Authorize(query) => Ok(query),
        _ => Err(ErrorPage::FormMalformed),
    }
}

/// Returns the address of an authorize request, for a form or a redirect.
pub fn authorize_address(app: &App, query: &str) -> String {
    format!("{}/oauth/authorize?{query}", app.config.public_url.prefix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_console_lead_onward_to_it() {
        for (address, good) in [
            ("/console", true),
            ("/console?done=x", true),
            ("/console/acme", true),
            ("/console/acme/machines?status=pending&search=a%20b", true),
            ("/console/acme/skills/code-review", true),
            ("", false),
            ("/", false),
            ("/account", false),
            ("/console/", false),
            ("/console//evil.example", false),
            ("/consolex", false),
            ("/console/../oauth/logout", false),
            ("/console/acme/.", false),
            ("/console/acme/%2e%2e", false),
            ("/console/acme#x", false),
            ("/console/acme?a#x", false),
            ("/console/acme?a\"x", false),
            ("/console/acme?a\\x", false),
            ("/console/acme?a x", false),
            ("//console/acme", false),
            ("https://evil.example/console", false),
            ("/console/a\u{e9}", false),
        ] {
            let page = ReturnTo::parse_console_address(address);
            assert_eq!(
                page,
                good.then_some(ReturnTo::Console(address)),
                "{address}"
            );
        }
        let long = format!("/console?{}", "a".repeat(MAX_CONSOLE_BYTES - 9));
        assert!(ReturnTo::parse_console_address(&long).is_some());
        assert_eq!(ReturnTo::parse_console_address(&format!("{long}a")), None);
    }
}
