//! Rate limits shared by all processes: counters in the store, one per window.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/<name>/<who>` | first second of the window | `{n}`, gone a window later |
//!
//! A window is a period of fixed length in which requests are counted. Windows do not slide, so
//! around the end of one twice the limit may pass. That is acceptable: the limits only have to stop
//! floods and guessing.

use serde::Deserialize;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_COUNT, RecordKey, Write};

use crate::error::{ErrorCode, Refusal};
use crate::ports::Ports;

pub use super::networks::{Network, Networks, Source};

/// A limit on requests, with the subject for which it counts.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    name: &'a str,
    who: String,
    limit: u32,
    seconds: i64,
}

/// A limit on the requests of callers by their network: how much one source, an address, may
/// request. Each wider network around the source has a larger allowance of its own.
#[derive(Clone, Debug)]
pub struct NetworkLimit<'a> {
    /// Name of the limit, which is part of the counters' keys.
    pub name: &'a str,
    /// Subject that the requests of a network are about, for example an account; `None` if all its
    /// requests count together.
    pub about: Option<String>,
    /// Maximum number of requests of one source in one window; with 0 nothing is counted.
    pub limit: u32,
    /// The length of a window, in seconds.
    pub seconds: i64,
}

impl<'a> NetworkLimit<'a> {
    /// Returns a window for each of the networks, the narrowest first. A request counts in all of
    /// them.
    pub fn windows(&self, networks: &Networks) -> Vec<Window<'a>> {
        let window = |network: Network<'_>| Window {
            name: self.name,
            who: match &self.about {
                Some(about) => format!("{about}/{}", network.name),
                None => network.name.to_owned(),
            },
            limit: self.limit.saturating_mul(network.share),
            seconds: self.seconds,
        };
        networks.narrowest_first().map(window).collect()
    }
}

impl<'a> Window<'a> {
    /// Creates the window in which up to `limit` requests about one subject are permitted, for
    /// example about an account or a grant; with 0 nothing is counted. For limits by source, use
    /// [`NetworkLimit`].
    pub fn about_subject(name: &'a str, who: String, limit: u32, seconds: i64) -> Self {
        Self {
            name,
            who,
            limit,
            seconds,
        }
    }

    /// Returns the maximum number of requests in a window; with 0 nothing is counted.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    fn window_start(&self, now: Timestamp) -> i64 {
        // `rem_euclid` rounds down for a clock before 1970 as well.
        now.unix() - now.unix().rem_euclid(self.seconds)
    }

    /// Returns the seconds until the next window begins.
    pub fn seconds_left(&self, now: Timestamp) -> u64 {
        u64::try_from(self.window_start(now) + self.seconds - now.unix()).unwrap_or(1)
    }

    fn key(&self, now: Timestamp) -> RecordKey {
        let partition = format!("limit/{}/{}", self.name, self.who);
        RecordKey::new(partition, self.window_start(now).to_string())
    }

    fn count_write(&self, now: Timestamp, by: i64) -> Write {
        let start = self.window_start(now);
        // A count can be taken back even if the limit was lowered after it was made.
        let max = if by > 0 {
            i64::from(self.limit)
        } else {
            MAX_COUNT
        };
        Write::Count {
            key: self.key(now),
            field: "n".to_owned(),
            by,
            min: 0,
            max,
            expires_at: Some(Timestamp::from_unix(start + 2 * self.seconds)),
        }
    }

    /// Returns the write that counts one request, for the commit of the counted action; `None` if
    /// the window has no limit. The commit fails at this write if the window is full.
    pub fn counting_write(&self, now: Timestamp) -> Option<Write> {
        (self.limit > 0).then(|| self.count_write(now, 1))
    }

    /// Returns the write that takes back a count made at `now`, for the commit that shows that the
    /// request need not count.
    pub fn releasing_write(&self, now: Timestamp) -> Option<Write> {
        (self.limit > 0).then(|| self.count_write(now, -1))
    }

    /// Whether the window is full. Used before something is stored that only
    /// [`Window::counting_write`] counts later.
    pub async fn is_full(&self, ports: &Ports, now: Timestamp) -> Result<bool, StoreError> {
        let counted = self.read_count(ports, now).await?;
        Ok(self.limit > 0 && counted >= i64::from(self.limit))
    }

    /// Returns how many requests were counted in the window so far.
    pub async fn read_count(&self, ports: &Ports, now: Timestamp) -> Result<i64, StoreError> {
        #[derive(Deserialize)]
        struct Counted {
            n: i64,
        }
        let record = ports.records.get_one(&self.key(now)).await?;
        let counted = record.map(|record| record.read::<Counted>()).transpose()?;
        Ok(counted.map_or(0, |counted| counted.n))
    }

    /// Returns the refusal of a request that found the window full.
    pub fn refusal(&self, now: Timestamp) -> Refusal {
        Refusal::new(ErrorCode::RateLimited).retry_after(self.seconds_left(now))
    }
}

/// Counts one request in all windows at once. If one of them is full, changes none and returns its
/// position. Lost races with other requests are retried, and fail with 503 in the end, never with a
/// refusal.
pub async fn try_count(
    ports: &Ports,
    windows: &[Window<'_>],
    now: Timestamp,
) -> Result<Option<usize>, StoreError> {
    let counted: Vec<_> = limited_windows(windows).collect();
    if counted.is_empty() {
        return Ok(None);
    }
    ports
        .change(async |tx| {
            tx.write_all(counted.iter().map(|(_, window)| window.count_write(now, 1)));
            let full = tx.commit_with_limits(counted.len()).await?;
            Ok(full.and_then(|index| counted.get(index)).map(|(at, _)| *at))
        })
        .await
}

/// Counts one request in all windows at once; fails with 429 and `Retry-After` if one of them is
/// full.
pub async fn count_or_refuse(
    ports: &Ports,
    windows: &[Window<'_>],
    now: Timestamp,
) -> Result<(), Refusal> {
    let full = try_count(ports, windows, now).await?;
    match full.and_then(|at| windows.get(at)) {
        None => Ok(()),
        Some(window) => Err(window.refusal(now)),
    }
}

/// Takes back the counts of a request made at `now` that turned out not to count. If the store is
/// busy, the counts stay and only lower the limit for the rest of their window.
pub async fn release_counts(ports: &Ports, windows: &[Window<'_>], now: Timestamp) {
    let writes: Vec<_> = limited_windows(windows)
        .map(|(_, window)| window.count_write(now, -1))
        .collect();
    if writes.is_empty() {
        return;
    }
    let given = ports.change(async |tx| {
        tx.write_all(writes.clone());
        tx.commit_with_limits(writes.len()).await
    });
    // Not an error of the request: a count that stays is on the strict side.
    if let Err(error) = given.await {
        tracing::warn!(error = error_chain(&error), "a count was not given back");
    }
}

fn limited_windows<'w, 'n>(
    windows: &'w [Window<'n>],
) -> impl Iterator<Item = (usize, &'w Window<'n>)> + use<'w, 'n> {
    let windows = windows.iter().enumerate();
    windows.filter(|(_, window)| window.limit > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_store::clock::Clock as _;
    use vault_testing::TestClock;

    use super::*;

    #[tokio::test]
    async fn a_full_window_refuses_until_the_next_begins() {
        let clock = Arc::new(TestClock::default());
        let ports = Ports::in_memory(clock.clone());
        clock.advance(10);
        let window = |limit| Window::about_subject("test", "192.0.2.1".into(), limit, 60);
        for _ in 0..3 {
            assert!(
                count_or_refuse(&ports, &[window(3)], clock.now())
                    .await
                    .is_ok()
            );
        }
        assert!(window(3).is_full(&ports, clock.now()).await.unwrap());
        assert!(!window(4).is_full(&ports, clock.now()).await.unwrap());
        assert!(!window(0).is_full(&ports, clock.now()).await.unwrap());
        let refused = count_or_refuse(&ports, &[window(3)], clock.now())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert_eq!(window(3).seconds_left(clock.now()), 50);
        assert!(
            count_or_refuse(&ports, &[window(0)], clock.now())
                .await
                .is_ok(),
            "0 switches a limit off"
        );
        clock.advance(50);
        assert!(!window(3).is_full(&ports, clock.now()).await.unwrap());
        assert!(
            count_or_refuse(&ports, &[window(3)], clock.now())
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_count_that_is_given_back_leaves_room() {
        let clock = Arc::new(TestClock::default());
        let ports = Ports::in_memory(clock.clone());
        let now = clock.now();
        let windows = [("a", 0), ("b", 2), ("c", 1)]
            .map(|(name, limit)| Window::about_subject(name, "x".into(), limit, 60));
        let admit = || try_count(&ports, &windows, now);
        assert_eq!(admit().await.unwrap(), None);
        assert_eq!(admit().await.unwrap(), Some(2), "the position among all");
        release_counts(&ports, &windows, now).await;
        assert_eq!(admit().await.unwrap(), None);
        // A request that was never counted cannot be taken back.
        clock.advance(60);
        release_counts(&ports, &windows, clock.now()).await;
        let now = clock.now();
        for full in [None, Some(2)] {
            let admitted = super::try_count(&ports, &windows, now).await;
            assert_eq!(admitted.unwrap(), full);
        }
    }

    /// Makes one request from each of these addresses, and returns how many were counted.
    async fn counted(ports: &Ports, limit: u32, addresses: &[String]) -> usize {
        let limit = NetworkLimit {
            name: "test",
            about: None,
            limit,
            seconds: 60,
        };
        let mut counted = 0;
        for address in addresses {
            let windows = limit.windows(&Networks::of(address.parse().ok()));
            let full = try_count(ports, &windows, ports.now()).await.unwrap();
            counted += usize::from(full.is_none());
        }
        counted
    }

    #[tokio::test]
    async fn many_sources_of_one_network_share_its_allowance() {
        let ports = Ports::in_memory(Arc::new(TestClock::default()));
        for (addresses, allowed) in [
            ((0..200).map(|_| "192.0.2.7".to_owned()).collect(), 2),
            ((0..200).map(|n| format!("198.51.100.{n}")).collect(), 8),
            (
                (0..200).map(|n| format!("2001:db8:1:2:{n:x}::1")).collect(),
                2,
            ),
            (
                (0..200).map(|n| format!("2001:db8:2:{n:x}::1")).collect(),
                8,
            ),
            (
                (0..200).map(|n| format!("2001:db8:3:{n:x}00::1")).collect(),
                32,
            ),
        ] {
            let addresses: Vec<String> = addresses;
            let found = counted(&ports, 2, &addresses).await;
            assert_eq!(found, allowed, "{}", addresses[0]);
        }
        assert_eq!(counted(&ports, 2, &["203.0.113.1".to_owned()]).await, 1);
    }
}
