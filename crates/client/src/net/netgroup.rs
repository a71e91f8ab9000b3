//! Netgroups: groups of addresses that one operator may own. An attacker with many addresses
//! usually has few netgroups.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::target::Host;

/// A netgroup: a set of addresses that may belong to one operator.
///
/// The rules are those of Core without a map of autonomous systems (`NetGroupManager::GetGroup`):
///
/// - IPv4 addresses are grouped by their /16 prefix.
/// - IPv6 addresses are grouped by their /32 prefix, or by /36 for Hurricane Electric's tunnels.
/// - An IPv6 address that contains an IPv4 address (mapped, 6to4, Teredo, NAT64) has the netgroup
///   of the IPv4 address.
/// - Onion addresses are grouped by the first four bits of their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group([u8; 6]);

const SEED: u8 = 0xff;

impl Group {
    /// Length of an encoded netgroup in bytes.
    pub const BYTES: usize = 6;
    /// The netgroup that represents a source of addresses without a netgroup of its own.
    pub const UNROUTED: Self = Self([0; 6]);

    /// Returns the netgroup of an address. Host names and addresses that are not routable on the
    /// Internet have no netgroup.
    ///
    /// Loopback and private addresses belong to the user, so the limits on netgroups do not apply
    /// to these addresses.
    pub fn of(host: &Host) -> Option<Self> {
        match host {
            Host::Ip(ip) if !is_routable(*ip) => None,
            Host::Ip(IpAddr::V4(ip)) => Some(Self::of_v4(*ip)),
            Host::Ip(IpAddr::V6(ip)) => {
                Some(linked_v4(*ip).map_or_else(|| Self::of_v6(*ip), Self::of_v4))
            }
            Host::Onion([first, ..]) => Some(Self([4, first >> 4, 0, 0, 0, 0])),
            Host::Name(_) => None,
        }
    }

    /// Returns the netgroup that identifies a DNS seed as a source of addresses.
    pub fn of_seed(name: &str) -> Self {
        // A hash without a key (FNV-1a) is sufficient: the program contains the names of the seeds,
        // so no attacker can choose colliding names.
        let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let [a, b, c, d] = name.bytes().fold(0x811c_9dc5, mix).to_le_bytes();
        Self([SEED, a, b, c, d, 0])
    }

    fn of_v4(ip: Ipv4Addr) -> Self {
        let [a, b, ..] = ip.octets();
        Self([1, a, b, 0, 0, 0])
    }

    fn of_v6(ip: Ipv6Addr) -> Self {
        let [a, b, c, d, e, ..] = ip.octets();
        // Hurricane Electric gives anybody a /48 of 2001:470::/32. So Core groups these addresses
        // by 36 bits instead of 32.
        let more = if [a, b, c, d] == [0x20, 0x01, 0x04, 0x70] { e & 0xf0 } else { 0 };
        Self([2, a, b, c, d, more])
    }

    /// Encodes the netgroup, as in the file of the address book.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Decodes a netgroup from the file of the address book. All byte values are valid.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// Returns `true` if an address is routable on the Internet (Core's `IsRoutable`).
pub fn is_routable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_routable_v4(ip),
        IpAddr::V6(ip) => {
            let [s0, s1, ..] = ip.segments();
            // If the IPv6 address contains an IPv4 address, both addresses must be routable.
            linked_v4(ip).is_none_or(is_routable_v4)
                && !ip.is_unspecified()
                && !ip.is_loopback()
                && !ip.is_multicast()
                && s0 & 0xffc0 != 0xfe80 // link-local, RFC 4862
                && s0 & 0xfe00 != 0xfc00 // unique local, RFC 4193; includes CJDNS
                && (s0, s1) != (0x2001, 0x0db8) // documentation, RFC 3849
                && !(s0 == 0x2001 && matches!(s1 & 0xfff0, 0x10 | 0x20)) // ORCHID, RFC 4843 and 7343
        }
    }
}

fn is_routable_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(matches!(a, 0 | 10 | 127 | 224..)
        || (a, b) == (169, 254) // RFC 3927
        || (a, b) == (192, 168)
        || (a == 172 && b & 0xf0 == 16)
        || (a == 100 && b & 0xc0 == 64) // carrier-grade NAT, RFC 6598
        || (a == 198 && b & 0xfe == 18) // benchmarks, RFC 2544
        || matches!((a, b, c), (192, 0, 2) | (198, 51, 100) | (203, 0, 113))) // RFC 5737
}

/// Returns the IPv4 address that an IPv6 address contains (6to4, Teredo, NAT64, mapped), if any.
fn linked_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = ip.segments();
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (s0, s1) {
        (0x2002, _) => v4(s1, s2),
        // Teredo (RFC 4380) stores the IPv4 address with all bits inverted.
        (0x2001, 0) => v4(!s6, !s7),
        (0x64, 0xff9b) if (s2, s3, s4, s5) == (0, 0, 0, 0) => v4(s6, s7),
        (0, 0) if (s2, s3, s4, s5) == (0, 0, 0, 0xffff) => v4(s6, s7),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> Option<Group> {
        Group::of(&Host::Ip(text.parse().unwrap()))
    }

    /// The cases of Core's `netbase_tests.cpp`, `netbase_getgroup`.
    #[test]
    fn groups_as_core_makes_them() {
        for local in ["127.0.0.1", "10.0.0.1", "169.254.1.1", "::1", "fc00::1", "0.0.0.0"] {
            assert_eq!(group(local), None, "{local}");
        }
        assert_eq!(group("1.2.3.4"), Some(Group([1, 1, 2, 0, 0, 0])));
        for linked in [
            "::ffff:1.2.3.4",
            "64:ff9b::102:304",
            "2002:102:304:9999:9999:9999:9999:9999",
            "2001:0:9999:9999:9999:9999:fefd:fcfb",
        ] {
            assert_eq!(group(linked), group("1.2.3.4"), "{linked}");
        }
        assert_eq!(
            group("2001:470:abcd:9999:9999:9999:9999:9999"),
            Some(Group([2, 0x20, 0x01, 0x04, 0x70, 0xa0]))
        );
        assert_eq!(
            group("2001:2001:9999:9999:9999:9999:9999:9999"),
            Some(Group([2, 0x20, 0x01, 0x20, 0x01, 0]))
        );
        assert_eq!(Group::of(&Host::Onion([0xef; 32])), Group::of(&Host::Onion([0xe1; 32])));
        assert_ne!(Group::of(&Host::Onion([0xef; 32])), Group::of(&Host::Onion([0xdf; 32])));
    }

    #[test]
    fn what_is_not_on_the_internet() {
        for local in [
            "100.64.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "198.19.0.1",
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "fd87:d87e:eb43::1",
            "2001:db8::1",
            "2001:10::1",
            "2001:20::1",
            "2002:7f00:1::1",
            "::ffff:10.0.0.1",
            "ff02::1",
            "::",
        ] {
            assert!(!is_routable(local.parse().unwrap()), "{local}");
        }
        for global in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1", "2a01::1"] {
            assert!(is_routable(global.parse().unwrap()), "{global}");
        }
    }
}
