//! Tells public IP addresses from internal ones. All code that fetches from an address which
//! another party chose (SSRF guard) uses this one list, so that no such request reaches an internal
//! host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the open internet. False for this machine, private networks,
/// networks behind a provider's address translation, multicast, tunnels, and ranges reserved for
/// documentation.
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
        // this network, private networks, loopback, multicast and reserved addresses (RFC 6890)
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _) // carrier-grade NAT
            | (169, 254, _) // link-local: clouds serve credentials here
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
    // Only 2000::/3 is assigned for public unicast. Loopback, mapped and translated IPv4 addresses,
    // unique local addresses, link-local addresses and multicast lie outside of it.
    let given_out = a & 0xe000 == 0x2000;
    let special = match a {
        0x2001 => b < 0x200 || b == 0xdb8, // IETF protocols such as Teredo; documentation
        0x2002 => true,                    // 6to4 carries any IPv4 address
        0x3fff => b < 0x1000,              // documentation
        _ => false,
    };
    given_out && !special
}
