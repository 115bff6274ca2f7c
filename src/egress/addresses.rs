//! Addresses that are never reached, whatever a name says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to this machine, to a private network, to a cloud's metadata service or to no single host.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_forbidden_v4(address),
        IpAddr::V6(address) => is_forbidden_v6(address),
    }
}

/// Blocks of IPv4: the first address and the length of the prefix. From IANA's registry of special-purpose addresses.
const V4: &[(Ipv4Addr, u32)] = &[
    // "This network": Linux connects 0.0.0.0 to this machine.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared by a provider's customers; also a cloud's metadata service.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata services of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // Protocol assignments, with those for metadata of one cloud.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // For documentation, in use in no network.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // Relays of 6to4.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Benchmarks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // The metadata service of one cloud, an address that looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Multicast, reserved and broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    V4.iter().any(|(first, length)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == first.to_bits()
    })
}

fn is_forbidden_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // An address of IPv4 in the two parts from here on.
    let v4 = |at: usize| {
        let [high, low] = [parts[at], parts[at + 1]].map(u16::to_be_bytes);
        is_forbidden_v4(Ipv4Addr::new(high[0], high[1], low[0], low[1]))
    };
    match parts {
        // Unspecified, loopback, compatible with IPv4 (deprecated): none is a host elsewhere.
        [0, 0, 0, 0, 0, 0, ..] => true,
        // Mapped and translated forms of IPv4.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => v4(6),
        // NAT64: the well-known prefix, and local ones whose form isn't known.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => v4(6),
        [0x64, 0xff9b, ..] => true,
        // Discarded.
        [0x100, 0, 0, 0, ..] => true,
        // Teredo, with the address of IPv4 in two places, one of them inverted; benchmarks; identifiers; documentation.
        [0x2001, 0, ..] => true,
        [0x2001, 2, 0, ..] => true,
        [0x2001, second, ..] if second & 0xfff0 == 0x10 || second & 0xfff0 == 0x20 => true,
        [0x2001, 0xdb8, ..] => true,
        // 6to4.
        [0x2002, ..] => v4(1),
        [0x3fff, second, ..] if second & 0xf000 == 0 => true,
        // Segment routing.
        [0x5f00, ..] => true,
        // Unique local, link-local, site-local (deprecated), multicast.
        [first, ..] => first & 0xfe00 == 0xfc00 || first & 0xff80 == 0xfe80 || first & 0xff00 == 0xff00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_private_address_is_forbidden() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.13.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::",
            "2001:0:1::1",
            "2001:db8::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
        ] {
            assert!(is_forbidden(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "140.82.121.3",
            "169.253.255.255",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.255.255",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:140.82.121.3",
            "64:ff9b::140.82.121.3",
            "2002:8c52:7903::1",
            "2001:4860:4860::8888",
        ] {
            assert!(!is_forbidden(text.parse().unwrap()), "{text}");
        }
    }
}
