//! Is this the password of this account: asked by the sign-in page, and by routes that want it again.

use std::net::IpAddr;

use vault_store::StoreError;
use vault_store::records::Write;
use zeroize::Zeroizing;

use super::password::{self, HashingFailed};
use super::throttle::{Attempts, WINDOW_SECONDS};
use crate::app::App;
use crate::error::{Code, Refusal};
use crate::model::account::{self, Account, Email};

/// What came of an attempt.
#[derive(Debug)]
pub enum Checked {
    /// It is.
    Good {
        /// The account.
        account: Box<Account>,
        /// Forgets the failures before it; belongs into the commit of what the password was asked for.
        forgotten: Write,
    },
    /// It is not, or there is no such account: the same words, and the same time.
    Wrong,
    /// There were too many attempts, so nobody looked.
    TooMany,
}

/// Why nobody could say.
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
            CheckFailed::Hashing(error) => Self::new(Code::Internal).cause(error),
        }
    }
}

/// Checks what was typed as address and password. Attempts from one source at one account are counted, known or not.
pub async fn check(
    app: &App,
    typed: &str,
    password: Zeroizing<String>,
    source: Option<IpAddr>,
) -> Result<Checked, CheckFailed> {
    let attempts = Attempts::new(typed, source, app.config.limits.sign_in_failures);
    if !attempts.admit(&*app.records, app.clock.now()).await? {
        return Ok(Checked::TooMany);
    }
    let account = match typed.parse::<Email>() {
        Ok(email) => account::find(&*app.records, &email).await?,
        Err(_) => None,
    };
    let hash = account
        .as_ref()
        .and_then(|account| account.value.password().map(str::to_owned));
    let good = password::verify(password, hash).await?;
    Ok(
        match account.filter(|account| good && !account.value.disabled) {
            Some(account) => Checked::Good {
                account: Box::new(account.value),
                forgotten: attempts.forgotten(),
            },
            None => Checked::Wrong,
        },
    )
}

/// Whether `password` is that of the account; 429 after too many attempts. For routes that ask a signed-in person again.
pub async fn confirm(
    app: &App,
    email: &Email,
    password: Zeroizing<String>,
    source: Option<IpAddr>,
) -> Result<bool, Refusal> {
    match check(app, email.as_str(), password, source).await? {
        Checked::Good { forgotten, .. } => {
            let written = app.records.commit(vec![forgotten]).await?;
            Ok(written.is_done())
        }
        Checked::Wrong => Ok(false),
        Checked::TooMany => Err(Refusal::new(Code::RateLimited)
            .retry_after(u64::try_from(WINDOW_SECONDS).unwrap_or(900))),
    }
}
