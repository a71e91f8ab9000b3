//! Netgroups and routable addresses, with the cases of Core.

use super::super::*;

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
