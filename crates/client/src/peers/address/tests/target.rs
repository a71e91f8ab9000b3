//! Parsing of peer addresses.

use super::super::*;

#[test]
fn hosts_and_ports() {
    let parse = |text| Target::parse(text, 8_333).map(|target| target.to_string());
    for (text, target) in [
        ("127.0.0.1", "127.0.0.1:8333"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("::1", "[::1]:8333"),
        ("[::1]", "[::1]:8333"),
        ("[::1]:1", "[::1]:1"),
        ("node.example", "node.example:8333"),
        (" node-1.example:65535 ", "node-1.example:65535"),
    ] {
        assert_eq!(parse(text).as_deref(), Ok(target), "{text}");
    }
    for text in ["", ":1", "node:65536", "node:", "node:x", "a b", "http://node", "a\u{1b}[m"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn onion_addresses_by_key_and_by_name() {
    // Core's test vector of BIP155 (net_tests.cpp, cnetaddr_basic), and the address of the Tor
    // Project's site.
    let key = "79bcc625184b05194975c28b66b66b0469f7f6556fb1ac3189a79b40dda32f1f";
    let core = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";
    let key: [u8; 32] = hex::decode(key).unwrap().try_into().unwrap();
    assert_eq!(onion_name(&key), core);
    let parsed = Target::parse(&format!("{}:1", core.to_uppercase()), 8_333).unwrap();
    assert_eq!(parsed, Target { host: Host::Onion(key), port: 1 });
    let tor = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion";
    assert_eq!(Target::parse(tor, 1).unwrap().to_string(), format!("{tor}:1"));
    // One letter changed, one letter missing, a version 2 address, an empty name: all of them
    // are rejected, so that no resolver is asked.
    let changed = format!("q{}", &core[1..]);
    for text in [changed.as_str(), &core[1..], "6hzph5hv6337r6p2.onion", ".onion"] {
        assert_eq!(Target::parse(text, 1), Err(TargetError::Onion), "{text}");
    }
}
