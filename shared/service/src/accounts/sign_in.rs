//! Check of an e-mail address and password, for the sign-in page and for pages that ask for the
//! password again.

use std::net::IpAddr;

use vault_store::records::Write;
use zeroize::Zeroizing;

use super::password;
use super::throttle::SignInAttempt;
use crate::app::App;
use crate::error::Refusal;
use crate::model::account::{self, Account, Email};
use crate::model::limits::Networks;
use crate::web::remembered_browser::RememberedBrowser;

macro_rules! too_many {
    ($when:literal) => {
        concat!(
            "Too many attempts. Try again in ",
            $when,
            ". A browser that you used for this account before may be let in sooner, and an operator of this service can send you a link that resets the password."
        )
    };
}

/// Returns the message for [`PasswordCheck::TooMany`], which names the time to wait.
pub const fn too_many_attempts(retry_after: u64) -> &'static str {
    match retry_after {
        0..=60 => too_many!("a minute"),
        61..=900 => too_many!("15 minutes at the latest"),
        _ => too_many!("an hour at the latest"),
    }
}

/// Outcome of [`check_password`] when the check itself did not fail.
#[derive(Debug)]
pub enum PasswordCheck {
    /// The password is that of the account with the typed address, and the account is enabled.
    Good {
        /// The enabled account with the typed address.
        account: Box<Account>,
        /// Writes that take back what the attempt counted. The caller must commit them with the
        /// action that needed the password.
        taken_back: Vec<Write>,
    },
    /// The password is wrong, or no enabled account has the address. The caller must not tell these
    /// apart.
    Wrong,
    /// There were too many attempts, so the password was not checked.
    TooMany {
        /// Seconds to wait before the next attempt.
        retry_after: u64,
    },
}

/// Checks a typed e-mail address and password. Attempts are counted by network and by account,
/// whether or not the account exists. Fails, without an answer about the password, if the store
/// fails or the password cannot be hashed.
pub async fn check_password(
    app: &App,
    typed: &str,
    password: Zeroizing<String>,
    source: Option<IpAddr>,
    browser: &RememberedBrowser,
) -> Result<PasswordCheck, Refusal> {
    // Counted before the check, so that parallel guesses cannot exceed the limit together.
    let mut attempt = SignInAttempt::new(typed, source, &app.config.limits, app.clock.now());
    if let Some(retry_after) = attempt.count_attempt(app, browser).await? {
        return Ok(PasswordCheck::TooMany { retry_after });
    }
    let account = match typed.parse::<Email>() {
        Ok(email) => account::find_account(app, &email).await?,
        Err(_) => None,
    };
    let hash = account
        .as_ref()
        .and_then(|account| account.value.password_hash().map(str::to_owned));
    let good = match password::verify_password(password, hash, &Networks::of(source)).await {
        Ok(good) => good,
        Err(error) => {
            // The attempt revealed nothing, so it does not count: an overloaded service must not
            // use up attempts.
            attempt.release_counts(app).await;
            return Err(error.into());
        }
    };
    Ok(
        // Checked after the hash, so that a disabled account gets the same answer as a wrong
        // password, after the same time.
        match account.filter(|account| good && !account.value.disabled) {
            Some(account) => PasswordCheck::Good {
                account: Box::new(account.value),
                taken_back: attempt.give_back_writes(),
            },
            None => PasswordCheck::Wrong,
        },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_testing::TestClock;

    use super::super::password::FullQueue;
    use super::*;
    use crate::config::Config;
    use crate::error::ErrorCode;
    use crate::ports::Ports;

    /// Otherwise whoever fills the queue would use up the attempts of everybody else.
    #[tokio::test]
    async fn an_attempt_that_finds_no_place_is_not_counted() {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        config.limits.sign_in_failures = 1;
        let app = App::new(Ports::in_memory(Arc::new(TestClock::default())), config);
        let browser = RememberedBrowser::default();
        let check = async || {
            let wrong = Zeroizing::new("wrong".to_owned());
            check_password(&app, "ada@example.org", wrong, None, &browser).await
        };
        let full = FullQueue::fill().await;
        for _ in 0..3 {
            let failed = check().await.unwrap_err();
            assert_eq!(failed.code(), ErrorCode::Unavailable);
        }
        full.empty().await;
        assert!(matches!(check().await.unwrap(), PasswordCheck::Wrong));
        let second = check().await.unwrap();
        assert!(matches!(second, PasswordCheck::TooMany { .. }));
    }
}
