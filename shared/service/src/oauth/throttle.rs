//! How often somebody may guess a password: five failures in a quarter of an hour, per account and source.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/sign-in/<sha256 of account and source>` | `failures` | `{n}`, gone 15 minutes after the first failure |
//!
//! An attempt is counted before the password is looked at, and a success removes the count: a hundred guesses at once get five tries.

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, RecordKey, Records, When, Write};

use crate::model::limits::source_name;

/// How long failures count, in seconds.
pub const WINDOW_SECONDS: i64 = 15 * 60;

/// The counter of one account, known or not, and one source.
#[derive(Clone, Debug)]
pub struct Attempts {
    key: RecordKey,
    limit: u32,
}

impl Attempts {
    /// `account` is what was typed as e-mail address; `limit` 0 counts nothing.
    pub fn new(account: &str, source: Option<IpAddr>, limit: u32) -> Self {
        let who = format!(
            "{}\n{}",
            account.trim().to_ascii_lowercase(),
            source_name(source)
        );
        Self {
            key: RecordKey::new(
                format!("limit/sign-in/{}", Digest::of(who.as_bytes())),
                "failures",
            ),
            limit,
        }
    }

    /// Counts one attempt; false when there were too many.
    pub async fn admit(&self, records: &dyn Records, now: Timestamp) -> Result<bool, StoreError> {
        if self.limit == 0 {
            return Ok(true);
        }
        let count = Write::Count {
            key: self.key.clone(),
            field: "n".to_owned(),
            by: 1,
            min: 0,
            max: i64::from(self.limit),
            expires_at: Some(now.plus_seconds(WINDOW_SECONDS)),
        };
        Ok(matches!(
            records.commit(vec![count]).await?,
            Commit::Done(_)
        ))
    }

    /// The write that forgets the attempts, for the commit of a success.
    pub fn forgotten(&self) -> Write {
        Write::delete(self.key.clone(), When::Any)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_store::clock::Clock as _;
    use vault_testing::TestClock;
    use vault_testing::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn requirement_28_five_failures_in_a_quarter_of_an_hour() {
        let clock = Arc::new(TestClock::default());
        let records = Memory::new(clock.clone());
        let here = "192.0.2.1".parse().ok();
        let attempts = Attempts::new("ada@example.org", here, 5);
        for _ in 0..5 {
            assert!(attempts.admit(&records, clock.now()).await.unwrap());
            clock.advance(60);
        }
        assert!(!attempts.admit(&records, clock.now()).await.unwrap());
        assert!(
            !Attempts::new(" ADA@example.org", here, 5)
                .admit(&records, clock.now())
                .await
                .unwrap()
        );
        let elsewhere = Attempts::new("ada@example.org", "192.0.2.2".parse().ok(), 5);
        assert!(elsewhere.admit(&records, clock.now()).await.unwrap());
        assert!(
            Attempts::new("bob@example.org", here, 5)
                .admit(&records, clock.now())
                .await
                .unwrap()
        );
        assert!(
            Attempts::new("ada@example.org", here, 0)
                .admit(&records, clock.now())
                .await
                .unwrap()
        );
        clock.advance(WINDOW_SECONDS - 300);
        assert!(
            attempts.admit(&records, clock.now()).await.unwrap(),
            "the window is over"
        );
        assert!(
            records
                .commit(vec![attempts.forgotten()])
                .await
                .unwrap()
                .is_done()
        );
    }

    #[tokio::test]
    async fn a_hundred_guesses_at_once_get_five_tries() {
        let clock = Arc::new(TestClock::default());
        let records = Arc::new(Memory::new(clock.clone()));
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (records, now) = (Arc::clone(&records), clock.now());
            tries.spawn(async move {
                Attempts::new("ada@example.org", None, 5)
                    .admit(&*records, now)
                    .await
                    .unwrap()
            });
        }
        assert_eq!(
            tries
                .join_all()
                .await
                .into_iter()
                .filter(|admitted| *admitted)
                .count(),
            5
        );
    }

    #[test]
    fn an_ipv6_source_is_its_network() {
        for (address, name) in [
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(source_name(address.parse().ok()), name);
        }
    }
}
