//! Rate limits shared by all processes: counters in the store, one per window.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/<name>/<who>` | first second of the window | `{n}`, gone a window later |
//!
//! A window is fixed, not sliding: at its edge twice the limit may pass, which is all right for
//! what these limits keep out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{RecordKey, Write};

use crate::error::{ErrorCode, Refusal};
use crate::ports::Ports;

/// One limit that a request counts against.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    /// Name of the counter.
    pub name: &'a str,
    /// Subject of the count, for example a source.
    pub who: String,
    /// Most requests in one window; 0: not counted.
    pub limit: u32,
    /// The length of the window.
    pub seconds: i64,
}

impl Window<'_> {
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
        Write::Count {
            key: self.key(now),
            field: "n".to_owned(),
            by,
            min: 0,
            max: i64::from(self.limit),
            expires_at: Some(Timestamp::from_unix(start + 2 * self.seconds)),
        }
    }

    /// Returns the write that counts one request, for the commit of the counted action; `None` if
    /// the window has no limit. The commit fails at this write if the window is full.
    pub fn counting_write(&self, now: Timestamp) -> Option<Write> {
        (self.limit > 0).then(|| self.count_write(now, 1))
    }

    /// Returns the write that takes back a count made at `now`, for the commit that shows that it
    /// does not count.
    pub fn given_back(&self, now: Timestamp) -> Option<Write> {
        (self.limit > 0).then(|| self.count_write(now, -1))
    }

    /// Whether the window is full; asked before something is stored that [`Window::counting_write`]
    /// counts later.
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

/// Counts one request against all windows together. Returns the position of the first full window,
/// and then changes none. Requests that collide while counting are retried, and end in 503, never
/// in a refusal.
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
            let full = tx.commit_within(counted.len()).await?;
            Ok(full.and_then(|index| counted.get(index)).map(|(at, _)| *at))
        })
        .await
}

/// Counts one request against all windows together; fails with 429 and `Retry-After` if one of them
/// is full.
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

/// Takes back the counts of a request made at `now` that the windows are not meant for. A count
/// that stays because the store is busy only lowers the limit for the rest of its window.
pub async fn give_back(ports: &Ports, windows: &[Window<'_>], now: Timestamp) {
    let writes: Vec<_> = limited_windows(windows)
        .map(|(_, window)| window.count_write(now, -1))
        .collect();
    if writes.is_empty() {
        return;
    }
    let given = ports.change(async |tx| {
        tx.write_all(writes.clone());
        tx.commit_within(writes.len()).await
    });
    // Not an error of the request: the count that stays is on the strict side.
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

/// Source of requests, as limits count it: an IPv4 address, or the /64 network of an IPv6 address,
/// since one subscriber has all of its 2^64 addresses. Every limit by source uses this type.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Source(String);

impl Source {
    /// Returns the source of requests from `address`. An IPv4 address that is written as an IPv6
    /// one is still the IPv4 address.
    pub fn of(address: Option<IpAddr>) -> Self {
        Self(match address.map(|address| address.to_canonical()) {
            // Requests without an address share one source, so hiding the address avoids no limit.
            None => "unknown".to_owned(),
            Some(IpAddr::V4(address)) => address.to_string(),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
            }
        })
    }

    /// Returns the network by which owners see the source: the /24 of an IPv4 address, the /48 of
    /// an IPv6 one.
    pub fn network(&self) -> String {
        // The text is that of `of`, also where it was stored by an earlier version.
        if let Ok(address) = self.0.parse::<Ipv4Addr>() {
            return network_24(address);
        }
        match self
            .0
            .strip_suffix("::/64")
            .and_then(|groups| groups.rsplit_once(':'))
        {
            Some((site, _)) => format!("{site}::/48"),
            None => self.0.clone(),
        }
    }
}

/// A network that contains a source, and its share of a limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Network {
    /// The network as text, for example `192.0.2.0/24`.
    pub name: String,
    /// Number by which the allowance of a single source is multiplied here.
    pub share: u32,
}

/// Returns the networks that contain `address`, the narrowest first: an IPv4 address and its /24,
/// or the /64, /56 and /48 of an IPv6 address. Each has four times the share of the one before, so
/// that a subscriber with many networks gets little more than a subscriber with one.
pub fn networks_of(address: Option<IpAddr>) -> Vec<Network> {
    let source = Source::of(address).to_string();
    let wider = match address.map(|address| address.to_canonical()) {
        None => Vec::new(),
        Some(IpAddr::V4(address)) => vec![network_24(address)],
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            vec![
                format!("{a:x}:{b:x}:{c:x}:{:x}::/56", d & 0xff00),
                format!("{a:x}:{b:x}:{c:x}::/48"),
            ]
        }
    };
    let names = std::iter::once(source).chain(wider);
    let shares = std::iter::successors(Some(1), |share| Some(share * 4));
    names
        .zip(shares)
        .map(|(name, share)| Network { name, share })
        .collect()
}

fn network_24(address: Ipv4Addr) -> String {
    let [a, b, c, _] = address.octets();
    format!("{a}.{b}.{c}.0/24")
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
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
        let window = |limit| Window {
            name: "test",
            who: "192.0.2.1".into(),
            limit,
            seconds: 60,
        };
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
        let windows = [("a", 0), ("b", 2), ("c", 1)].map(|(name, limit)| Window {
            name,
            who: "x".into(),
            limit,
            seconds: 60,
        });
        let admit = || try_count(&ports, &windows, now);
        assert_eq!(admit().await.unwrap(), None);
        assert_eq!(admit().await.unwrap(), Some(2), "the position among all");
        give_back(&ports, &windows, now).await;
        assert_eq!(admit().await.unwrap(), None);
        // What was never counted cannot be given back.
        clock.advance(60);
        give_back(&ports, &windows, clock.now()).await;
        let now = clock.now();
        for full in [None, Some(2)] {
            let admitted = super::try_count(&ports, &windows, now).await;
            assert_eq!(admitted.unwrap(), full);
        }
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        for (address, name) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ] {
            assert_eq!(Source::of(address.parse().ok()).to_string(), name);
        }
        assert_eq!(Source::of(None).to_string(), "unknown");
    }

    #[test]
    fn owners_see_the_network_of_a_site() {
        for (address, network) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:abcd::1", "2001:db8:1::/48"),
            ("2001:db8::1", "2001:db8:0::/48"),
            ("none", "unknown"),
        ] {
            let found = Source::of(address.parse().ok()).network();
            assert_eq!(found, network);
            if let Some(widest) = networks_of(address.parse().ok()).pop() {
                assert_eq!(widest.name, network);
            }
        }
    }

    #[test]
    fn wider_networks_have_four_times_the_share() {
        for (address, names) in [
            ("192.0.2.1", &["192.0.2.1", "192.0.2.0/24"][..]),
            ("::ffff:192.0.2.1", &["192.0.2.1", "192.0.2.0/24"]),
            (
                "2001:db8:1:abcd::1",
                &[
                    "2001:db8:1:abcd::/64",
                    "2001:db8:1:ab00::/56",
                    "2001:db8:1::/48",
                ],
            ),
            ("none", &["unknown"]),
        ] {
            let networks = networks_of(address.parse().ok());
            let found: Vec<_> = networks.iter().map(|network| &*network.name).collect();
            assert_eq!(found, names);
            let shares: Vec<_> = networks.iter().map(|network| network.share).collect();
            assert_eq!(shares, [1, 4, 16][..names.len()], "{address}");
        }
    }
}
