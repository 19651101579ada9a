//! Limits on guesses of passwords, by network and by account. A *source* is the client's network,
//! with the wider networks around it.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/sign-in/<network>` | first second of the window | `{n}`, failures of 15 minutes from one network, whatever the account |
//! | `limit/sign-in-account/<sha256 of the account>` | first second of the window | `{n}`, failures of an hour at one account, from anywhere |
//! | `limit/sign-in-browser/<sha256 of the account>/<sha256 of the cookie>` | first second of the window | `{n}`, failures of 15 minutes in one browser that signed in before, where the wider networks have too many |
//! | `limit/sign-in-network/<sha256 of the account>/<network>` | the same | `{n}`, see below |
//!
//! The last one counts the failures of an hour at one account from one network, once the account
//! has too many.
//!
//! Once a network has too many failures, every attempt from it is refused. Once an account has too
//! many, a browser that signed in to it before may continue, and each network has a few more tries
//! an hour. So guesses from many sources are bounded, and failures in other networks do not lock a
//! person out. Failures of neighbours do not either: a browser that signed in before is bound by
//! its own address (or /64) and not by the wider networks, which it shares with others. In place of
//! those limits it has one of its own. An account is counted by the typed text, whether or not it
//! exists.
//!
//! An attempt is counted before the password is checked, and a success takes back its own count
//! only: a hundred parallel guesses get no more tries than a hundred in a row, and a success does
//! not erase failures.

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::Write;

use crate::config::Limits;
use crate::model::limits::{NetworkLimit, Networks, Window, release_counts, try_count};
use crate::ports::Ports;
use crate::web::remembered_browser::{RememberedBrowser, account_digest};

/// Window in which failures of a source are counted, in seconds: 15 minutes.
pub const SOURCE_SECONDS: i64 = 15 * 60;
/// Window in which failures at an account are counted, in seconds: an hour.
pub const ACCOUNT_SECONDS: i64 = 3600;
/// Tries an hour that each network still has at an account with too many failures.
pub const NETWORK_TRIES: u32 = 3;

/// One attempt to sign in, with the limits that it counts against.
#[derive(Clone, Debug)]
pub struct SignInAttempt {
    /// SHA-256 of the typed e-mail address.
    account: Digest,
    /// Limits on the failures of each network, at any account; the narrowest network first.
    by_source: Vec<Window<'static>>,
    /// Limit on the failures at this account, from anywhere.
    by_account: Window<'static>,
    /// Limits for each network once `by_account` is reached; the narrowest network first.
    by_network: Vec<Window<'static>>,
    /// Windows in which the attempt was counted, to take the count back.
    counted: Vec<Window<'static>>,
    at: Timestamp,
}

impl SignInAttempt {
    /// Creates an attempt at `now`. `typed` is the text that was typed as e-mail address.
    pub fn new(typed: &str, source: Option<IpAddr>, limits: &Limits, now: Timestamp) -> Self {
        let account = account_digest(typed);
        let networks = Networks::of(source);
        let by_source = NetworkLimit {
            name: "sign-in",
            about: None,
            limit: limits.sign_in_failures,
            seconds: SOURCE_SECONDS,
        };
        let by_network = NetworkLimit {
            name: "sign-in-network",
            about: Some(account.to_string()),
            limit: NETWORK_TRIES,
            seconds: ACCOUNT_SECONDS,
        };
        let by_account = Window::about_subject(
            "sign-in-account",
            account.to_string(),
            limits.sign_in_per_account,
            ACCOUNT_SECONDS,
        );
        Self {
            account,
            by_network: by_network.windows(&networks),
            by_source: by_source.windows(&networks),
            by_account,
            counted: Vec::new(),
            at: now,
        }
    }

    /// Counts the attempt. Returns the seconds to wait if there were too many.
    pub async fn count_attempt(
        &mut self,
        ports: &Ports,
        browser: &RememberedBrowser,
    ) -> Result<Option<u64>, StoreError> {
        let mut first = self.by_source.clone();
        first.push(self.by_account.clone());
        let full = self.count_in(ports, first).await?;
        let Some(full) = full else {
            return Ok(None);
        };
        // The first window is that of the client's own address, whose limit holds for every
        // browser.
        let source_waits = |at: usize| self.by_source.get(at).map(|it| it.seconds_left(self.at));
        if full == 0 && !self.by_source.is_empty() {
            return Ok(source_waits(0));
        }
        let windows = if browser.signed_in_before(ports, &self.account).await? {
            // The address and the browser count in any case, so that a stolen cookie gives few
            // guesses.
            let source = self.by_source.iter().take(1).cloned();
            source.chain([self.browser_window(browser)]).collect()
        } else if full < self.by_source.len() {
            return Ok(source_waits(full));
        } else {
            // The full window is the last one, the limit of the account.
            let sources = self.by_source.iter().cloned();
            sources.chain(self.by_network.iter().cloned()).collect()
        };
        self.count_in_other_windows(ports, windows).await
    }

    /// Returns the limit of a browser that signed in to the account before.
    fn browser_window(&self, browser: &RememberedBrowser) -> Window<'static> {
        let who = format!("{}/{}", self.account, browser.digest());
        // The same limit as for one address, from wherever the browser signs in.
        let limit = self.by_source.first().map_or(0, Window::limit);
        Window::about_subject("sign-in-browser", who, limit, SOURCE_SECONDS)
    }

    /// Counts the attempt in the windows that hold in place of a full one. Returns the seconds to
    /// wait if one of `windows` is full too.
    async fn count_in_other_windows(
        &mut self,
        ports: &Ports,
        windows: Vec<Window<'static>>,
    ) -> Result<Option<u64>, StoreError> {
        let waits: Vec<_> = windows
            .iter()
            .map(|window| window.seconds_left(self.at))
            .collect();
        let full = self.count_in(ports, windows).await?;
        Ok(full.and_then(|at| waits.get(at).copied()))
    }

    /// Counts the attempt in all of `windows`. Returns the position of the first full one.
    async fn count_in(
        &mut self,
        ports: &Ports,
        windows: Vec<Window<'static>>,
    ) -> Result<Option<usize>, StoreError> {
        let full = try_count(ports, &windows, self.at).await?;
        if full.is_none() {
            self.counted = windows;
        }
        Ok(full)
    }

    /// Returns the writes that take the count back, for the commit of a success.
    pub fn give_back_writes(&self) -> Vec<Write> {
        let windows = self.counted.iter();
        windows
            .filter_map(|window| window.releasing_write(self.at))
            .collect()
    }

    /// Takes the count back if the password could not be checked.
    pub async fn release_counts(&self, ports: &Ports) {
        release_counts(ports, &self.counted, self.at).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_store::clock::Clock as _;
    use vault_testing::TestClock;

    use super::*;

    const LIMITS: Limits = Limits {
        sign_in_failures: 5,
        sign_in_per_account: 8,
        ..Limits::disabled()
    };

    struct Place {
        clock: Arc<TestClock>,
        ports: Ports,
    }

    impl Place {
        fn new() -> Self {
            let clock = Arc::new(TestClock::default());
            Self {
                ports: Ports::in_memory(clock.clone()),
                clock,
            }
        }

        async fn attempt(
            &self,
            typed: &str,
            source: &str,
            browser: &RememberedBrowser,
        ) -> Option<u64> {
            let now = self.clock.now();
            let mut attempt = SignInAttempt::new(typed, source.parse().ok(), &LIMITS, now);
            let admitted = attempt.count_attempt(&self.ports, browser).await;
            admitted.unwrap()
        }
    }

    #[tokio::test]
    async fn requirement_28_failures_count_by_source_whatever_the_account() {
        let place = Place::new();
        let stranger = RememberedBrowser::default();
        for n in 0..5 {
            let typed = format!("user-{n}@example.org");
            assert_eq!(place.attempt(&typed, "192.0.2.1", &stranger).await, None);
        }
        place.clock.advance(60);
        for (source, wait) in [
            ("192.0.2.1", Some(840)),
            ("192.0.2.2", None),
            ("2001:db8::1", None),
        ] {
            let found = place.attempt("ada@example.org", source, &stranger).await;
            assert_eq!(found, wait, "{source}");
        }
        place.clock.advance(840);
        let next = place.attempt("ada@example.org", "192.0.2.1", &stranger);
        assert_eq!(next.await, None, "the window is over");
    }

    #[tokio::test]
    async fn requirement_28_failures_count_by_account_wherever_they_come_from() {
        let place = Place::new();
        let stranger = RememberedBrowser::default();
        for n in 0..8 {
            let source = format!("192.0.2.{n}");
            assert_eq!(
                place.attempt("ada@example.org", &source, &stranger).await,
                None
            );
        }
        // Each network has three more tries of its own.
        for source in ["192.0.2.99", "198.51.100.7", "2001:db8::1"] {
            for wait in [None, None, None, Some(3600)] {
                let found = place.attempt(" ADA@example.org", source, &stranger);
                assert_eq!(found.await, wait, "{source}");
            }
        }
        let other = place.attempt("bob@example.org", "192.0.2.99", &stranger);
        assert_eq!(other.await, None, "another account");
        let known = RememberedBrowser::already_signed_in();
        for n in 0..5 {
            let found = place.attempt("ada@example.org", "198.51.100.1", &known);
            assert_eq!(found.await, None, "{n}");
        }
        let found = place.attempt("ada@example.org", "198.51.100.1", &known);
        assert_eq!(found.await, Some(900), "its source counts all the same");
    }

    /// Failures of other people in the same /24 or /48 do not lock out a person whose browser
    /// signed in before.
    #[tokio::test]
    async fn neighbours_lock_out_no_browser_that_signed_in_before() {
        for (neighbour, own) in [
            (
                (|n| format!("192.0.2.{n}")) as fn(usize) -> String,
                "192.0.2.200",
            ),
            (|n| format!("2001:db8:0:{n:02}00::1"), "2001:db8:0:ff00::1"),
        ] {
            let place = Place::new();
            let stranger = RememberedBrowser::default();
            for n in 0..150 {
                let typed = format!("user-{n}@example.org");
                place.attempt(&typed, &neighbour(n % 99), &stranger).await;
            }
            let found = place.attempt("ada@example.org", own, &stranger).await;
            assert_eq!(found, Some(900), "a browser that nobody knows");
            let known = RememberedBrowser::already_signed_in();
            for wait in [None, None, None, None, None, Some(900)] {
                let found = place.attempt("ada@example.org", own, &known).await;
                assert_eq!(found, wait, "{own}");
            }
            // With a stolen cookie, many addresses give no more tries than one.
            let elsewhere = neighbour(99);
            let found = place.attempt("ada@example.org", &elsewhere, &known);
            assert_eq!(found.await, Some(900));
        }
    }

    #[tokio::test]
    async fn many_addresses_of_one_network_share_its_tries() {
        for (network, addresses) in [
            (12, (0..40).map(|n| format!("203.0.113.{n}")).collect()),
            (
                12,
                (0..40).map(|n| format!("2001:db8:0:12{n:02}::1")).collect(),
            ),
            (
                48,
                (0..90).map(|n| format!("2001:db8:0:{n:02}00::1")).collect(),
            ),
        ] {
            let addresses: Vec<String> = addresses;
            let place = Place::new();
            let stranger = RememberedBrowser::default();
            for n in 0..8 {
                let source = format!("192.0.2.{n}");
                let found = place.attempt("ada@example.org", &source, &stranger);
                assert_eq!(found.await, None);
            }
            let mut admitted = 0;
            for source in &addresses {
                let found = place.attempt("ada@example.org", source, &stranger).await;
                admitted += usize::from(found.is_none());
            }
            assert_eq!(admitted, network, "{}", addresses[0]);
            let elsewhere = place.attempt("ada@example.org", "2001:db8:1::1", &stranger);
            assert_eq!(elsewhere.await, None);
        }
    }

    #[tokio::test]
    async fn a_hundred_guesses_at_once_get_five_tries() {
        let clock = Arc::new(TestClock::default());
        let ports = Ports::in_memory(clock.clone());
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (ports, now) = (ports.clone(), clock.now());
            tries.spawn(async move {
                let mut attempt = SignInAttempt::new("ada@example.org", None, &LIMITS, now);
                let stranger = RememberedBrowser::default();
                attempt.count_attempt(&ports, &stranger).await.unwrap()
            });
        }
        let admitted = tries.join_all().await.into_iter();
        assert_eq!(admitted.filter(Option::is_none).count(), 5);
    }

    #[tokio::test]
    async fn a_success_takes_back_its_own_count_alone() {
        let place = Place::new();
        let stranger = RememberedBrowser::default();
        for _ in 0..4 {
            let found = place.attempt("ada@example.org", "192.0.2.1", &stranger);
            assert_eq!(found.await, None);
        }
        for n in 0..3 {
            let now = place.clock.now();
            let mut good =
                SignInAttempt::new("bob@example.org", "192.0.2.1".parse().ok(), &LIMITS, now);
            let admitted = good.count_attempt(&place.ports, &stranger).await;
            assert_eq!(admitted.unwrap(), None, "{n}");
            let done = place
                .ports
                .records
                .commit_writes(good.give_back_writes())
                .await
                .unwrap();
            assert!(done.is_done());
        }
        for wait in [None, Some(900)] {
            let found = place.attempt("ada@example.org", "192.0.2.1", &stranger);
            assert_eq!(found.await, wait);
        }
    }
}
