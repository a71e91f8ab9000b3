//! Addresses in messages, and the limits on them.

use chainsieve::bitcoin::consensus::encode::deserialize;
use chainsieve::bitcoin::p2p::address::{AddrV2Message, Address};

use super::super::*;

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
