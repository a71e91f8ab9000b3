//! Addresses that peers send in `addr` and `addrv2` (BIP155), and limits on their number.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::address::AddrV2;
use chainsieve::bitcoin::p2p::message::NetworkMessage;

use super::target::{Host, Target};

/// Maximum number of addresses in a message (Core's `MAX_ADDR_TO_SEND`).
pub const MAX_HEARD: usize = 1_000;
/// Time in which a peer may send one address that was not requested (Core's
/// `MAX_ADDR_RATE_PER_SECOND` is 0.1).
const UNASKED_EVERY: Duration = Duration::from_secs(10);

/// An address, and the claims of its source about the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The address.
    pub target: Target,
    /// The services that the source claims for the address; [`ServiceFlags::NONE`] if unknown.
    pub services: ServiceFlags,
    /// Unix time in seconds at which the node was last seen, as the source claims.
    pub seen: u64,
}

/// A message contains more addresses than nodes send: the limit is [`MAX_HEARD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {count} addresses, the limit is {MAX_HEARD}")]
pub struct TooMany {
    /// Number of addresses in the message.
    pub count: usize,
}

/// Returns the addresses in a message; `None` if the message is neither `addr` nor `addrv2`.
///
/// Addresses of networks that the client cannot reach are left out: I2P, CJDNS, Tor version 2, and
/// unknown networks.
///
/// # Errors
/// Returns [`TooMany`] if the message contains more than [`MAX_HEARD`] addresses.
pub fn heard(message: &NetworkMessage) -> Option<Result<Vec<Heard>, TooMany>> {
    let count = match message {
        NetworkMessage::Addr(list) => list.len(),
        NetworkMessage::AddrV2(list) => list.len(),
        _ => return None,
    };
    if count > MAX_HEARD {
        return Some(Err(TooMany { count }));
    }
    let heard = |host, port, services, time: u32| {
        let target = Target { host, port };
        Heard { target, services, seen: time.into() }
    };
    Some(Ok(match message {
        NetworkMessage::Addr(list) => {
            let parts = list.iter().map(|(time, address)| {
                // OnionCat addresses (Tor version 2) need no test here: they are not routable, and
                // the book rejects them.
                let host = ip(Ipv6Addr::from(address.address));
                heard(host, address.port, address.services, *time)
            });
            parts.collect()
        }
        NetworkMessage::AddrV2(list) => {
            let parts = list.iter().filter_map(|message| {
                let host = match &message.addr {
                    AddrV2::Ipv4(v4) => Host::Ip((*v4).into()),
                    AddrV2::Ipv6(v6) => ip(*v6),
                    AddrV2::TorV3(key) => Host::Onion(*key),
                    _ => return None,
                };
                Some(heard(host, message.port, message.services, message.time))
            });
            parts.collect()
        }
        _ => Vec::new(),
    }))
}

/// Returns the IPv4 address if `v6` is an IPv4-mapped address, and otherwise `v6`.
fn ip(v6: Ipv6Addr) -> Host {
    Host::Ip(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4))
}

/// Limits the number of addresses that are accepted from a peer.
///
/// A peer may send 1,000 addresses for each `getaddr`, and one address every ten seconds without a
/// request. So a peer that sends addresses without end cannot crowd out the addresses of other
/// peers.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    left: usize,
    since: Duration,
}

impl Allowance {
    /// Creates the limit of a connection that begins now. The limit allows one address at first,
    /// the peer's own.
    pub fn new(now: Duration) -> Self {
        Self { left: 1, since: now }
    }

    /// Allows [`MAX_HEARD`] more addresses, because the peer is sent a `getaddr`.
    pub fn asked(&mut self) {
        self.left = (self.left + MAX_HEARD).min(2 * MAX_HEARD);
    }

    /// Accepts as many of `count` received addresses as are allowed, and returns their number.
    pub fn take(&mut self, count: usize, now: Duration) -> usize {
        let passed = now.saturating_sub(self.since).as_secs() / UNASKED_EVERY.as_secs();
        if passed > 0 {
            self.since += UNASKED_EVERY.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
            let gained = usize::try_from(passed).unwrap_or(usize::MAX);
            // The allowance grows with time up to `MAX_HEARD` addresses. If requests have made the
            // allowance larger than this, it is not reduced.
            self.left = self.left.max(MAX_HEARD.min(self.left.saturating_add(gained)));
        }
        let taken = count.min(self.left);
        self.left -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin::consensus::encode::deserialize;
    use chainsieve::bitcoin::p2p::address::{AddrV2Message, Address};

    use super::*;

    #[test]
    fn addresses_of_the_developer_reference() {
        // The `addr` message of <https://developer.bitcoin.org/reference/p2p_networking.html>, cut
        // to the one entry that the page shows in full.
        let bytes = "d91f4854010000000000000000000000000000000000ffffc0000233208d";
        let entry: (u32, Address) = deserialize(&hex::decode(bytes).unwrap()).unwrap();
        let heard = heard(&NetworkMessage::Addr(vec![entry])).unwrap().unwrap();
        let target = Target::parse("192.0.2.51:8333", 1).unwrap();
        let services = ServiceFlags::NETWORK;
        assert_eq!(heard, [Heard { target, services, seen: 1_414_012_889 }]);
    }

    /// One address of each network of BIP155: IPv4, IPv6 and Tor version 3 are kept; Tor version 2,
    /// I2P, CJDNS and unknown networks are left out.
    #[test]
    fn addresses_of_several_networks() {
        let message = |addr| AddrV2Message {
            time: 1_700_000_000,
            services: ServiceFlags::COMPACT_FILTERS,
            addr,
            port: 18_444,
        };
        let list = vec![
            message(AddrV2::Ipv4([1, 2, 3, 4].into())),
            message(AddrV2::Ipv6("2a01::1".parse().unwrap())),
            message(AddrV2::TorV2([1; 10])),
            message(AddrV2::TorV3([7; 32])),
            message(AddrV2::I2p([1; 32])),
            message(AddrV2::Cjdns("fc00::1".parse().unwrap())),
            message(AddrV2::Unknown(99, vec![0; 512])),
        ];
        let heard = heard(&NetworkMessage::AddrV2(list)).unwrap().unwrap();
        let hosts: Vec<_> = heard.into_iter().map(|heard| heard.target.host).collect();
        let ip = |text: &str| Host::Ip(text.parse().unwrap());
        assert_eq!(hosts, [ip("1.2.3.4"), ip("2a01::1"), Host::Onion([7; 32])]);
    }

    #[test]
    fn too_many_in_a_message() {
        let address = Address::new(&([1, 2, 3, 4], 1).into(), ServiceFlags::NONE);
        let list = |count| NetworkMessage::Addr(vec![(0, address.clone()); count]);
        assert_eq!(heard(&list(1_000)).unwrap().unwrap().len(), 1_000);
        assert_eq!(heard(&list(1_001)), Some(Err(TooMany { count: 1_001 })));
        assert_eq!(heard(&NetworkMessage::Verack), None);
    }

    #[test]
    fn what_is_asked_for_and_little_more() {
        let mut allowance = Allowance::new(Duration::ZERO);
        assert_eq!(allowance.take(1_000, Duration::ZERO), 1);
        assert_eq!(allowance.take(1_000, Duration::from_secs(9)), 0);
        assert_eq!(allowance.take(1_000, Duration::from_secs(35)), 3);
        assert_eq!(allowance.take(1_000, Duration::from_secs(40)), 1);
        allowance.asked();
        assert_eq!(allowance.take(990, Duration::from_secs(41)), 990);
        assert_eq!(allowance.take(990, Duration::from_secs(41)), 10);
        // The allowance does not grow beyond 1,000 with time.
        assert_eq!(allowance.take(5_000, Duration::from_secs(1 << 40)), 1_000);
    }
}
