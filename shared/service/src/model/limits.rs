//! Rate limits that hold for all processes together: counters in the store, one per window.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/<name>/<who>` | first second of the window | `{n}`, gone a window later |
//!
//! A window is fixed, not sliding: at its edge twice the limit may pass, which is all right for what these limits keep out.

use std::net::IpAddr;

use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Commit, RecordKey, Records, Write};

use crate::error::{Code, Refusal};
use crate::retry::retry;

/// One limit that a request counts against.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    /// What is counted.
    pub name: &'a str,
    /// Whose count it is.
    pub who: String,
    /// Most requests in one window; 0: not counted.
    pub limit: u32,
    /// The length of the window.
    pub seconds: i64,
}

impl Window<'_> {
    fn start(&self, now: Timestamp) -> i64 {
        now.unix() - now.unix().rem_euclid(self.seconds)
    }

    /// After how many seconds the next window begins.
    pub fn left(&self, now: Timestamp) -> u64 {
        u64::try_from(self.start(now) + self.seconds - now.unix()).unwrap_or(1)
    }

    fn write(&self, now: Timestamp) -> Write {
        let start = self.start(now);
        Write::Count {
            key: RecordKey::new(
                format!("limit/{}/{}", self.name, self.who),
                start.to_string(),
            ),
            field: "n".to_owned(),
            by: 1,
            min: 0,
            max: i64::from(self.limit),
            expires_at: Some(Timestamp::from_unix(start + 2 * self.seconds)),
        }
    }
}

/// Counts one request against all windows together; 429 with `Retry-After` when one of them is full, and then none is changed.
/// Many who count at once get in each other's way: that is tried again, and is 503 in the end, never a refusal.
pub async fn count(
    records: &dyn Records,
    windows: &[Window<'_>],
    now: Timestamp,
    random: &dyn Random,
) -> Result<(), Refusal> {
    let counted: Vec<_> = windows.iter().filter(|window| window.limit > 0).collect();
    if counted.is_empty() {
        return Ok(());
    }
    retry(random, async || {
        let writes = counted.iter().map(|window| window.write(now)).collect();
        match records.commit(writes).await {
            Ok(Commit::Done(_)) => Ok(Some(())),
            Ok(Commit::Failed { index, .. }) => {
                let left = counted.get(index).map_or(1, |window| window.left(now));
                Err(Refusal::new(Code::RateLimited).retry_after(left))
            }
            Err(StoreError::Conflict) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// A source as it is counted: an IPv4 address, or the network of an IPv6 address, of which one person has 2^64.
pub fn source_name(source: Option<IpAddr>) -> String {
    match source {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_store::clock::Clock as _;
    use vault_testing::SeededRandom;
    use vault_testing::TestClock;
    use vault_testing::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn a_full_window_refuses_until_the_next_begins() {
        let clock = Arc::new(TestClock::default());
        let records = Memory::new(clock.clone());
        let random = SeededRandom::new(1);
        clock.advance(10);
        let window = |limit| Window {
            name: "test",
            who: "192.0.2.1".into(),
            limit,
            seconds: 60,
        };
        for _ in 0..3 {
            assert!(
                count(&records, &[window(3)], clock.now(), &random)
                    .await
                    .is_ok()
            );
        }
        let refused = count(&records, &[window(3)], clock.now(), &random)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::RateLimited);
        assert_eq!(window(3).left(clock.now()), 50);
        assert!(
            count(&records, &[window(0)], clock.now(), &random)
                .await
                .is_ok(),
            "0 switches a limit off"
        );
        clock.advance(50);
        assert!(
            count(&records, &[window(3)], clock.now(), &random)
                .await
                .is_ok()
        );
    }
}
