//! Tests of what a session reports about closed blocks and about watched items, so that no caller
//! needs a copy of this data.

use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, OutPoint, ScriptBuf, Transaction, Txid};

use super::node::{World, block, script, truth, tx, watched};
use crate::btc::bip37::session::{Event, FilterPolicy, Finding};
use crate::btc::wallet::{Spent, TxPosition, WatchItem};

/// Returns a transaction that pays to the wallet's script number `index`.
fn pay(index: u32) -> Transaction {
    tx(&[OutPoint::new(Txid::hash(&index.to_le_bytes()), 0)], &[script(index)])
}

fn world(blocks: Vec<bitcoin::Block>) -> World {
    let mut world = World::new(FilterPolicy::new(7), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.settle();
    world
}

/// For each closed block: its height, whether the answer counts, and what was not delivered.
fn closed(world: &World) -> Vec<(u32, bool, Option<Txid>)> {
    let closed = world.findings.iter().filter_map(|finding| match finding {
        Finding::Block { proof, block, counts, undelivered } => {
            assert_eq!(proof.block_hash, block.hash);
            Some((block.height, *counts, *undelivered))
        }
        _ => None,
    });
    closed.collect()
}

/// Blocks that are in flight while the filter changes are answered and then requested again.
#[test]
fn a_superseded_answer_does_not_count() {
    let mut world = world((0..2).map(|height| block(height, vec![])).collect());
    world.request_from(0);
    world.event(Event::Watch(vec![watched(1)]));
    world.request_from(0);
    world.settle();
    let told = [(0, false), (1, false), (0, true), (1, true)];
    assert_eq!(closed(&world), told.map(|(height, counts)| (height, counts, None)));
}

/// An answer for a block that has left the chain is invalid, and a missing answer for it is not
/// reported.
#[test]
fn a_block_that_left_the_chain_does_not_count() {
    let blocks: Vec<_> = (0..3).map(|height| block(height, vec![])).collect();
    let mut world = world(blocks);
    world.lie = |block, matched| (block.header.time != 2).then(|| truth(block, matched));
    world.request_from(0);
    world.event(Event::Reorganized(1));
    world.settle();
    let told: Vec<_> = closed(&world).iter().map(|it| it.1).collect();
    assert_eq!(told, [true, false]);
    assert_eq!(world.count(|f| matches!(f, Finding::Unanswered(_))), 0);
}

/// A closed block names a transaction only if this transaction was not delivered.
#[test]
fn a_block_tells_what_did_not_come() {
    let (first, second) = (pay(0), tx(&[OutPoint::new(Txid::hash(b"two"), 0)], &[script(0)]));
    let missing = second.compute_txid();
    let mut world = world(vec![block(0, vec![first, second]), block(1, vec![])]);
    world.lie = |block, matched| {
        let (merkle_block, mut transactions) = truth(block, matched);
        transactions.truncate(1);
        Some((merkle_block, transactions))
    };
    world.request_from(0);
    world.settle();
    let told: Vec<_> = closed(&world).iter().map(|it| it.2).collect();
    assert_eq!(told, [Some(missing), None]);
}

/// The session's watch contains the coins with their scripts and heights. After a reorganisation
/// the coins stay, without the heights that left the chain.
#[test]
fn the_watch_knows_the_coins() {
    let receive = pay(0);
    let coin = OutPoint::new(receive.compute_txid(), 0);
    let spend = tx(&[coin], &[script(1_000_000)]);
    let mut world = world(vec![block(0, vec![receive]), block(1, vec![spend.clone()])]);
    world.request_from(0);
    world.settle();
    let known = *world.session.watch().output(&coin).expect("found");
    assert_eq!((known.script, known.value), (Some(0), Some(Amount::from_sat(1_000))));
    assert_eq!((known.created, known.spent), (Some(0), Some(1)));
    let relevant = world.findings.iter().filter_map(|finding| match finding {
        Finding::Relevant(relevant) => Some(relevant),
        _ => None,
    });
    let relevant: Vec<_> = relevant.collect();
    let received = relevant[0].relevance.received[0];
    assert_eq!((received.script, received.value), (0, Amount::from_sat(1_000)));
    assert_eq!(received.label.map(|label| label.index), Some(0));
    let spent = Spent { vin: 0, outpoint: coin, script: Some(0), certain: true };
    assert_eq!(relevant[1].relevance.spent, [spent]);
    assert_eq!(relevant[1].place, Some(TxPosition { block: world.at(1), index: 1 }));

    world.event(Event::Reorganized(1));
    let known = *world.session.watch().output(&coin).expect("kept");
    assert_eq!((known.created, known.spent), (Some(0), None));
    world.event(Event::Reorganized(0));
    assert_eq!(world.session.watch().output(&coin).expect("kept").created, None);
    // An unconfirmed transaction that spends the coin is known to be the wallet's.
    world.event(Event::Tx(spend));
    let Some(Finding::Relevant(relevant)) = world.findings.last() else { panic!("not found") };
    assert_eq!((relevant.place, relevant.relevance.spent[0]), (None, spent));
}

/// A coin that is added with its script is found when it is spent, and further payments to the
/// script are found too.
#[test]
fn a_coin_with_its_script() {
    let coin = OutPoint::new(Txid::hash(b"coin"), 0);
    let spend = tx(&[coin], &[script(1_000_000)]);
    let (again, own) = (pay(5), [spend.compute_txid(), pay(5).compute_txid()]);
    let mut world = world(vec![block(0, vec![spend, again])]);
    world
        .event(Event::Watch(vec![WatchItem::OutPoint { outpoint: coin, script: Some(script(5)) }]));
    world.request_from(0);
    world.settle();
    let mut expected = own.to_vec();
    expected.sort_unstable();
    assert_eq!(world.relevant(), expected);
    // A coin whose script pushes no data is watched only by its outpoint.
    let coin = OutPoint::new(Txid::hash(b"bare"), 0);
    let spend = tx(&[coin], &[script(1_000_000)]);
    let bare = Some(ScriptBuf::from(vec![0x51]));
    let txid = spend.compute_txid();
    let mut world = self::world(vec![block(0, vec![spend])]);
    world.event(Event::Watch(vec![WatchItem::OutPoint { outpoint: coin, script: bare }]));
    assert_eq!(world.count(|f| matches!(f, Finding::Unwatchable(_))), 0);
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant(), [txid]);
}

/// Removed items are not found and are not in the next filter. The other scripts keep their
/// indices.
#[test]
fn what_is_no_longer_watched() {
    let coin = OutPoint::new(Txid::hash(b"coin"), 0);
    let spend = tx(&[coin], &[script(1_000_000)]);
    let second = pay(1);
    let want = second.compute_txid();
    let mut world = world(vec![block(0, vec![pay(0), second]), block(1, vec![spend])]);
    world.event(Event::Watch(vec![
        watched(1),
        WatchItem::OutPoint { outpoint: coin, script: None },
    ]));
    world.event(Event::Unwatch { scripts: vec![0, 7], outpoints: vec![coin] });
    world.event(Event::Refresh);
    world.settle();
    let filter = world.filter.as_ref().unwrap();
    assert!(!filter.contains_script(&script(0)) && filter.contains_script(&script(1)));
    assert!(!filter.contains_outpoint(&coin));
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant(), [want]);
    assert_eq!(world.session.watch().index_of(&script(1)), Some(1));
}
