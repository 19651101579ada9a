//! Browsers that signed in to an account before. Each of them has a limit of its own on failed
//! attempts, so that other people's guesses at the account do not lock its owner out.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `browser/<sha256 of the cookie>` | `<sha256 of the account>` | [`SignInMark`], 180 days after the last sign-in |
//!
//! The cookie is not a session: with it alone, a browser is signed in to nothing.

use axum::http::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::cookie;
use crate::app::App;
use crate::model::Versioned;
use crate::model::token::{Secret, SecretKind};
use crate::ports::Ports;

/// Time for which a browser is remembered after a sign-in, in seconds: 180 days.
const REMEMBERED_SECONDS: i64 = 180 * 24 * 3600;

/// Record that a browser signed in to an account.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct SignInMark {
    /// Whether the code of a second factor was entered.
    #[serde(default)]
    second_factor: bool,
}

/// A browser, identified by a long-lived cookie that outlasts its sessions.
#[derive(Debug, Default)]
pub struct RememberedBrowser {
    sent_secret: Option<Secret>,
    signed_in: bool,
}

impl RememberedBrowser {
    /// Reads the browser from the long-lived cookie; without one, it is a browser that never signed
    /// in.
    pub fn from_headers(app: &App, headers: &HeaderMap) -> Self {
        let value = cookie::find_cookie(headers, cookie_name(app));
        Self {
            sent_secret: value.and_then(|value| Secret::parse(SecretKind::Browser, value)),
            signed_in: false,
        }
    }

    /// Returns a browser in which the account is signed in now; it counts as one that signed in
    /// before.
    pub fn already_signed_in() -> Self {
        Self {
            sent_secret: None,
            signed_in: true,
        }
    }

    /// Returns the SHA-256 of the cookie, by which limits count the browser.
    pub fn digest(&self) -> Digest {
        let secret = self.sent_secret.as_ref();
        secret.map_or_else(|| Digest::of(b""), Secret::hash)
    }

    /// Whether the browser signed in to the account before.
    pub async fn signed_in_before(
        &self,
        ports: &Ports,
        account: &Digest,
    ) -> Result<bool, StoreError> {
        if self.sent_secret.is_none() {
            return Ok(self.signed_in);
        }
        Ok(self.load_mark(ports, account).await?.is_some())
    }

    /// Whether the browser signed in to the account before with the code of a second factor.
    pub async fn passed_second_factor(
        &self,
        ports: &Ports,
        typed: &str,
    ) -> Result<bool, StoreError> {
        let mark = self.load_mark(ports, &account_digest(typed)).await?;
        Ok(mark.is_some_and(|mark| mark.second_factor))
    }

    async fn load_mark(
        &self,
        ports: &Ports,
        account: &Digest,
    ) -> Result<Option<SignInMark>, StoreError> {
        let Some(secret) = &self.sent_secret else {
            return Ok(None);
        };
        let record = ports
            .records
            .get_one(&mark_key(&secret.hash(), account))
            .await?;
        Ok(Versioned::<SignInMark>::read(record)?.map(|mark| mark.value))
    }

    /// Returns the write that records the browser's sign-in to an account, and the `Set-Cookie`
    /// header that identifies the browser from then on.
    pub fn remember_sign_in(
        &self,
        app: &App,
        typed: &str,
        second_factor: bool,
    ) -> Result<(Write, Option<HeaderValue>), StoreError> {
        // One cookie serves all accounts of a browser, so a value that was sent is kept.
        let fresh;
        let secret = if let Some(brought) = &self.sent_secret {
            brought
        } else {
            fresh = Secret::fresh(SecretKind::Browser, &app.random);
            &fresh
        };
        let write = Write::put_until(
            mark_key(&secret.hash(), &account_digest(typed)),
            Document::from_value(&SignInMark { second_factor })?,
            When::Any,
            app.clock.now().plus_seconds(REMEMBERED_SECONDS),
        );
        let secure = if app.config.public_url.is_loopback_http() {
            ""
        } else {
            "; Secure"
        };
        let text = format!(
            "{}={}; Path=/; HttpOnly; SameSite=Lax{secure}; Max-Age={REMEMBERED_SECONDS}",
            cookie_name(app),
            secret.text()
        );
        Ok((write, HeaderValue::from_str(&text).ok()))
    }
}

/// Returns the hash under which limits count an account, whether or not it exists: SHA-256 of the
/// typed address.
pub fn account_digest(typed: &str) -> Digest {
    // A different case or added blanks must not give a guesser a fresh count.
    Digest::of(typed.trim().to_ascii_lowercase().as_bytes())
}

fn mark_key(browser: &Digest, account: &Digest) -> RecordKey {
    RecordKey::new(format!("browser/{browser}"), account.to_string())
}

/// Returns the name of the cookie. The prefix `__Host-` keeps other hosts of the same site from
/// setting it; it is not possible over plain HTTP.
fn cookie_name(app: &App) -> &'static str {
    if app.config.public_url.is_loopback_http() {
        "vault_browser"
    } else {
        "__Host-vault_browser"
    }
}
