//! Is this the password of this account: asked by the sign-in page, and by the page that changes
//! it.

use std::net::IpAddr;

use vault_store::StoreError;
use vault_store::records::Write;
use zeroize::Zeroizing;

use super::password::{self, HashingFailed};
use super::throttle::Attempt;
use crate::app::App;
use crate::error::Refusal;
use crate::model::account::{self, Account, Email};
use crate::web::error_page::ErrorPage;
use crate::web::remembered_browser::Returning;

/// What a page says to [`Checked::TooMany`].
pub const TOO_MANY_ATTEMPTS: &str = "Too many attempts. Try again later.";

/// What came of an attempt.
#[derive(Debug)]
pub enum Checked {
    /// It is.
    Good {
        /// The account.
        account: Box<Account>,
        /// Takes back what the attempt counted; belongs into the commit of what the password was
        /// asked for.
        taken_back: Vec<Write>,
    },
    /// It is not, or there is no such account: the same words, and the same time.
    Wrong,
    /// There were too many attempts, so the password was not checked.
    TooMany {
        /// After how many seconds to try again.
        retry_after: u64,
    },
}

/// Why the check itself failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckFailed {
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The password could not be hashed.
    #[error(transparent)]
    Hashing(#[from] HashingFailed),
}

impl From<CheckFailed> for Refusal {
    fn from(failed: CheckFailed) -> Self {
        match failed {
            CheckFailed::Store(error) => error.into(),
            CheckFailed::Hashing(error) => error.into(),
        }
    }
}

impl From<CheckFailed> for ErrorPage {
    fn from(failed: CheckFailed) -> Self {
        Self::Refused(failed.into())
    }
}

/// Checks what was typed as address and password. Attempts are counted by source and by account,
/// whether or not there is one.
pub async fn check(
    app: &App,
    typed: &str,
    password: Zeroizing<String>,
    source: Option<IpAddr>,
    browser: &Returning,
) -> Result<Checked, CheckFailed> {
    let mut attempt = Attempt::new(typed, source, &app.config.limits, app.clock.now());
    if let Some(retry_after) = attempt.admit(app, browser).await? {
        return Ok(Checked::TooMany { retry_after });
    }
    let account = match typed.parse::<Email>() {
        Ok(email) => account::find(app, &email).await?,
        Err(_) => None,
    };
    let hash = account
        .as_ref()
        .and_then(|account| account.value.password().map(str::to_owned));
    let good = match password::verify(password, hash).await {
        Ok(good) => good,
        Err(error) => {
            attempt.give_back(app).await;
            return Err(error.into());
        }
    };
    Ok(
        match account.filter(|account| good && !account.value.disabled) {
            Some(account) => Checked::Good {
                account: Box::new(account.value),
                taken_back: attempt.taken_back(),
            },
            None => Checked::Wrong,
        },
    )
}
