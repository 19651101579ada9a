//! The IP addresses that are reachable from the open internet. Everything that fetches from a given
//! address asks this one list, so that no request reaches an internal host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the open internet. False for this machine, private networks, the
/// provider's own network, multicast, tunnels and ranges kept for documentation.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        // this network, private, loopback, groups and what is kept back
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _) // behind a provider's translation
            | (169, 254, _) // this link: where clouds keep credentials
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Only what is given out as unicast is open at all: loopback, mapped and translated IPv4, ULA,
    // link-local and groups lie outside.
    let given_out = a & 0xe000 == 0x2000;
    let special = match a {
        0x2001 => b < 0x200 || b == 0xdb8, // protocols, Teredo among them; documents
        0x2002 => true,                    // 6to4 carries any IPv4 address
        0x3fff => b < 0x1000,              // documents
        _ => false,
    };
    given_out && !special
}
