//! Tests of a session's limits, counts and timeouts.

use core::time::Duration;

use bitcoin::{Network, PublicKey, ScriptBuf};

use super::node::{World, block, stranger, watched};
use crate::btc::bip37::session::blocks::{fence_of, ping_nonce};
use crate::btc::bip37::session::{
    Action, Config, Event, FilterPolicy, Finding, Message, PrivacyReport, Session,
};
use crate::btc::wallet::WatchItem;
use testkit::Rng;

fn world(length: u32) -> World {
    let rng = &mut Rng::new(8);
    let blocks = (0..length).map(|height| block(height, (0..60).map(|_| stranger(rng)).collect()));
    let mut world = World::new(FilterPolicy::new(7), blocks.collect());
    let config = Config::new(Network::Regtest, FilterPolicy::new(7));
    world.session = Session::new(Config { in_flight: 4, ..config });
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world
}

/// One key and its scripts give the same number of addresses in whatever order they are added.
#[test]
fn addresses_are_counted_in_any_order() {
    let key: PublicKey =
        "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798".parse().unwrap();
    let pay_to_key = ScriptBuf::new_p2pk(&key);
    let witness = ScriptBuf::new_p2wpkh(&key.wpubkey_hash().unwrap());
    let script = |script: &ScriptBuf| WatchItem::Script { script: script.clone(), label: None };
    let watched = [WatchItem::Key { key, label: None }, script(&witness), script(&pay_to_key)];
    for insert_keys in [false, true] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let policy = FilterPolicy { insert_keys, ..FilterPolicy::new(1) };
            let mut session = Session::new(Config::new(Network::Regtest, policy));
            let all = order.map(|place: usize| watched[place].clone()).to_vec();
            let _actions = session.handle(Event::Watch(all), Duration::ZERO);
            let actions = session.handle(Event::Connected, Duration::ZERO);
            let own = actions.iter().find_map(|action| match action {
                Action::Report(Finding::Privacy(report)) => Some(report.own),
                _ => None,
            });
            assert_eq!(own, Some(2), "{order:?}");
        }
    }
}

#[test]
fn one_address_reads_as_one() {
    let report =
        PrivacyReport { own: 1, others: 0.0, parameters_changed: false, keys_inserted: false };
    assert!(report.to_string().starts_with("1 address of the wallet matches this filter,"));
    let two = PrivacyReport { own: 2, ..report };
    assert!(two.to_string().starts_with("2 addresses of the wallet match this filter,"));
}

/// The clock was ahead and is set back: a request still becomes overdue.
#[test]
fn a_clock_set_back_hides_no_stall() {
    let mut world = world(1);
    let first = world.at(0);
    let _actions =
        world.session.handle(Event::Request(vec![first]), Duration::from_secs(1_000_000));
    let mut tick = |seconds| world.session.handle(Event::Tick, Duration::from_secs(seconds));
    assert_eq!(tick(10), []);
    assert_eq!(tick(70), []);
    assert!(matches!(tick(71)[..], [Action::Report(Finding::Stalled(..))]));
}

/// The session uses no small numbers as nonces, because the caller may number its own pings with
/// them.
#[test]
fn nonces_are_not_small_numbers() {
    for fence in (0..1_000).chain([u64::MAX, 0xdead_beef << 31]) {
        assert_eq!(fence_of(ping_nonce(fence)), fence);
        assert!(ping_nonce(fence) > 1 << 32);
    }
    let mut world = world(3);
    world.session = Session::new(Config::new(Network::Regtest, FilterPolicy::new(0)));
    world.to_node.clear();
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.request_from(0);
    for nonce in 0..100 {
        world.event(Event::Pong(nonce));
    }
    assert_eq!(world.count(|f| matches!(f, Finding::Unanswered(_))), 0);
    assert_eq!(world.to_node.back(), Some(&Message::Ping(ping_nonce(0))));
}
