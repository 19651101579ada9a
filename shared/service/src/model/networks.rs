//! The sources of requests and the networks that contain them: every limit on callers counts by
//! these.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use vault_store::fair::Lane;

/// Factor between the allowance of a network and that of the next narrower one.
const WIDER: u32 = 4;

/// Source of a request, as people see it: an IPv4 address, or the /64 network of an IPv6 address,
/// since one subscriber has all of its 2^64 addresses. Limits count by [`Networks`].
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

    /// Returns the network that owners see instead of the source: the /24 of an IPv4 address, the
    /// /48 of an IPv6 one.
    pub fn network(&self) -> String {
        // The text was created by `of`, even if an earlier version stored it.
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

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The networks that contain the source of a request, the narrowest first: an IPv4 address and its
/// /24, or the /64, /56 and /48 of an IPv6 address. Each has four times the allowance of the one
/// before, so that a subscriber with many narrow networks can send little more than a subscriber
/// with one.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(from = "StoredNetworks")]
pub struct Networks(Vec<String>);

/// A network that contains a source, and its share of a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network<'n> {
    /// The network as text, for example `192.0.2.0/24`.
    pub name: &'n str,
    /// Factor by which the allowance of a single source is multiplied for this network.
    pub share: u32,
}

/// The form of networks in records.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredNetworks {
    /// A single source: earlier versions counted and stored only this.
    Source(String),
    All(Vec<String>),
}

impl From<StoredNetworks> for Networks {
    fn from(stored: StoredNetworks) -> Self {
        match stored {
            StoredNetworks::Source(source) => Self(vec![source]),
            StoredNetworks::All(networks) => Self(networks),
        }
    }
}

impl Networks {
    /// Returns the networks that contain `address`. Requests without an address share one network.
    pub fn of(address: Option<IpAddr>) -> Self {
        let source = Source::of(address).0;
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
        Self(std::iter::once(source).chain(wider).collect())
    }

    /// Returns the networks with their shares, the narrowest first.
    pub fn narrowest_first(
        &self,
    ) -> impl DoubleEndedIterator<Item = Network<'_>> + ExactSizeIterator {
        self.0.iter().enumerate().map(|(index, name)| Network {
            name,
            share: WIDER.saturating_pow(u32::try_from(index).unwrap_or(u32::MAX)),
        })
    }

    /// Returns the lane, the queue in which requests wait, of callers who are not known yet: by
    /// their /24 or /56, so that a caller with many addresses does not get many turns.
    pub fn lane(&self) -> Lane {
        let network = self.0.get(1).map_or_else(|| self.widest(), String::as_str);
        Lane::Network(network.into())
    }

    /// Returns the widest network, which contains the others.
    pub fn widest(&self) -> &str {
        self.0.last().map_or("unknown", String::as_str)
    }
}

fn network_24(address: Ipv4Addr) -> String {
    let [a, b, c, _] = address.octets();
    format!("{a}.{b}.{c}.0/24")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            assert_eq!(Networks::of(address.parse().ok()).widest(), network);
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
            let networks = Networks::of(address.parse().ok());
            let found: Vec<_> = networks
                .narrowest_first()
                .map(|network| network.name)
                .collect();
            assert_eq!(found, names);
            let shares: Vec<_> = networks
                .narrowest_first()
                .map(|network| network.share)
                .collect();
            assert_eq!(shares, [1, 4, 16][..names.len()], "{address}");
        }
    }

    /// A record of an earlier version holds one source instead of a list. Its count is released
    /// there and nowhere else.
    #[test]
    fn a_stored_source_is_one_network() {
        let stored: Networks = serde_json::from_value(json!("192.0.2.1")).unwrap();
        let names: Vec<_> = stored
            .narrowest_first()
            .map(|network| network.name)
            .collect();
        assert_eq!(names, ["192.0.2.1"]);
        let networks = Networks::of("192.0.2.1".parse().ok());
        let stored = serde_json::to_value(&networks).unwrap();
        assert_eq!(stored, json!(["192.0.2.1", "192.0.2.0/24"]));
        assert_eq!(
            serde_json::from_value::<Networks>(stored).unwrap(),
            networks
        );
    }
}
