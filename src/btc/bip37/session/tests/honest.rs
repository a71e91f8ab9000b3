//! Tests of a session with an honest node.

use core::time::Duration;

use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{Block, Network, OutPoint, PublicKey, ScriptBuf, Transaction, Txid};

use super::node::{World, block, chain, is_complaint, script, stranger, tx, watched};
use crate::btc::bip37::session::{
    Action, Config, Event, FilterPolicy, Finding, Message, PrivacyReport, RefreshReason, Session,
    is_watchable,
};
use crate::btc::bip37::{HeaderLink, UpdateMode};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::{Label, WatchItem};
use testkit::Rng;

fn policy() -> FilterPolicy {
    FilterPolicy::new(0xdead_beef)
}

#[test]
fn everything_of_the_wallet_is_found() {
    for seed in 1..30 {
        let (blocks, own) = chain(&mut Rng::new(seed), 30, 8);
        for update in [UpdateMode::All, UpdateMode::None] {
            let mut world = World::new(FilterPolicy { update, ..policy() }, blocks.clone());
            world.event(Event::Watch((0..8).map(watched).collect()));
            world.event(Event::Connected);
            world.request_from(0);
            world.sync(8);
            assert_eq!(world.relevant(), own, "seed {seed}, {update:?}");
            assert_eq!(world.count(is_complaint), 0);
            assert_eq!(world.session.pending_requests(), 0);
        }
    }
}

#[test]
fn a_keychain_is_followed_from_where_it_advanced() {
    // The first blocks use at most three new indices each. The last block uses five, which are more
    // than a look-ahead of 1 covers.
    let pay = |rng: &mut Rng, index| {
        let from = stranger(rng).input[0].previous_output;
        tx(&[from], &[script(index)])
    };
    let rng = &mut Rng::new(77);
    let mut blocks: Vec<_> = [&[0][..], &[1, 2], &[], &[3], &[4, 6, 5]]
        .iter()
        .zip(0..)
        .map(|(indices, height)| {
            block(height, indices.iter().map(|&index| pay(rng, index)).collect())
        })
        .collect();
    blocks.push(block(9, (7..12).map(|index| pay(rng, index)).collect()));
    let mut own: Vec<_> =
        blocks.iter().flat_map(|b| b.txdata[1..].iter().map(Transaction::compute_txid)).collect();
    own.sort_unstable();
    let mut world = World::new(policy(), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant().len(), 1);
    world.sync(1);
    assert_eq!(world.relevant(), own);
    assert!(world.count(|f| matches!(f, Finding::Refilter(_))) >= 5);
}

/// The node inserts an outpoint into a filter that is about to be replaced.
#[test]
fn an_outpoint_lost_with_the_filter_before_is_noticed() {
    let receive = tx(
        &stranger(&mut Rng::new(5)).input.iter().map(|i| i.previous_output).collect::<Vec<_>>(),
        &[script(0)],
    );
    let coin = OutPoint::new(receive.compute_txid(), 0);
    let spend = tx(&[coin], &[script(1_700_000)]);
    let own = [receive.compute_txid(), spend.compute_txid()];
    let mut world = World::new(policy(), vec![block(0, vec![receive]), block(1, vec![spend])]);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    let first = world.at(0);
    world.event(Event::Request(vec![first]));
    world.event(Event::Refresh); // after the request, before its answer
    world.settle();
    assert_eq!(world.relevant(), own[..1]);
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(first)));
    assert!(world.filter.as_ref().unwrap().contains_outpoint(&coin));
    world.request_from(0);
    world.settle();
    assert!(world.relevant().contains(&own[1]));
    assert_eq!(world.count(|f| matches!(f, Finding::Refilter(_))), 1);
}

#[test]
fn blocks_close_with_what_came_before_them() {
    let (blocks, own) = chain(&mut Rng::new(3), 12, 4);
    let mut world = World::new(FilterPolicy { insert_null_outpoint: true, ..policy() }, blocks);
    world.event(Event::Watch((0..4).map(watched).collect()));
    world.event(Event::Connected);
    // Each of the wallet's transactions was relayed before, so the answers for blocks omit these
    // transactions.
    for tx in world.blocks.iter().flat_map(|b| b.txdata.clone()).collect::<Vec<_>>() {
        if own.binary_search(&tx.compute_txid()).is_ok() {
            world.event(Event::Tx(tx));
        }
    }
    assert!(world.relevant().is_empty());
    world.lie = |block, matched| {
        let (merkle_block, mut transactions) = super::node::truth(block, matched);
        transactions.truncate(1); // the coinbase
        Some((merkle_block, transactions))
    };
    world.event(Event::Tip(20));
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant(), own);
    assert_eq!(world.count(is_complaint), 0);
    let mut proven = 0;
    for finding in &world.findings {
        if let Finding::Block { proof, .. } = finding {
            assert!(proof.coinbase.is_some());
            let height = proof.header.time;
            let confirmations = 21 - height;
            assert_eq!(proof.link, HeaderLink::InChain { height, confirmations });
            proven += 1;
        }
    }
    assert_eq!(proven, 12);
    assert_eq!(world.session.match_stats().false_positives, 0);
}

#[test]
fn capacity_grows_by_steps_and_never_shrinks() {
    let mut world = World::new(FilterPolicy { spare: 10, ..policy() }, vec![]);
    world.event(Event::Connected);
    assert_eq!(world.to_node.len(), 0, "nothing watched, no filter");
    world.event(Event::Watch((0..5).map(watched).collect()));
    assert_eq!(world.session.filter_policy().capacity, 15);
    world.event(Event::Watch((0..15).map(watched).collect()));
    world.settle();
    assert_eq!(world.session.filter_policy().capacity, 15);
    let sizes = world.filter.clone().unwrap().data().len();
    world.event(Event::Watch(vec![watched(15)]));
    assert_eq!(world.session.filter_policy().capacity, 26);
    world.settle();
    assert!(world.filter.as_ref().unwrap().data().len() > sizes);
    let reports: Vec<PrivacyReport> = world
        .findings
        .iter()
        .filter_map(|f| if let Finding::Privacy(report) = f { Some(*report) } else { None })
        .collect();
    // The report was given once at first and once when the size changed, but not when a filter of
    // the same size was sent again.
    assert_eq!(reports.iter().map(|r| r.parameters_changed).collect::<Vec<_>>(), [false, true]);
    assert!(reports[1].to_string().contains("changed"), "{}", reports[1]);
    assert!(reports[0].to_string().contains("fewer than 15"), "{}", reports[0]);
    // A session with the restored tweak and capacity builds the same filter.
    let mut again = World::new(*world.session.filter_policy(), vec![]);
    again.event(Event::Watch((0..16).map(watched).collect()));
    again.event(Event::Connected);
    again.settle();
    assert_eq!(again.filter, world.filter);
}

#[test]
fn keys_give_hashes_and_what_pushes_nothing_cannot_be_watched() {
    let key: PublicKey =
        "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798".parse().unwrap();
    let nothing = ScriptBuf::from(vec![0x51]);
    for insert_keys in [false, true] {
        let mut world = World::new(FilterPolicy { insert_keys, ..policy() }, vec![]);
        let label = Some(Label { keychain: 1, index: 0 });
        let items = vec![
            WatchItem::Key { key, label },
            WatchItem::Script { script: nothing.clone(), label: None },
        ];
        assert_eq!([is_watchable(&items[0]), is_watchable(&items[1])], [true, false]);
        world.event(Event::Watch(items));
        assert_eq!(world.findings, [Finding::Unwatchable(nothing.clone())]);
        world.event(Event::Connected);
        world.settle();
        let filter = world.filter.as_ref().unwrap();
        assert!(filter.contains_script(&ScriptBuf::new_p2pkh(&key.pubkey_hash())));
        assert!(filter.contains_script(&ScriptBuf::new_p2wpkh(&key.wpubkey_hash().unwrap())));
        assert_eq!(filter.contains_script(&ScriptBuf::new_p2pk(&key)), insert_keys);
    }
}

#[test]
fn a_filter_that_lets_too_much_through_is_noticed() {
    let rng = &mut Rng::new(9);
    let blocks: Vec<_> =
        (0..20).map(|height| block(height, (0..40).map(|_| stranger(rng)).collect())).collect();
    let mut world = World::new(policy(), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.settle();
    // The node inserts many elements for transactions that it relays to others.
    let filter = world.filter.as_mut().unwrap();
    for i in 0..300_u32 {
        filter.insert(&i.to_le_bytes());
    }
    world.request_from(0);
    world.settle();
    let stats = *world.session.match_stats();
    assert_eq!(stats.transactions, 20 * 41);
    assert_eq!(
        stats.false_positives as usize,
        world.count(|f| matches!(f, Finding::FalsePositive(..)))
    );
    assert!(stats.false_positives >= 10, "{stats:?}");
    let advice = world.findings.iter().filter_map(|f| match f {
        Finding::RefreshAdvised(reason) => Some(*reason),
        _ => None,
    });
    let advice: Vec<_> = advice.collect();
    assert!(matches!(advice[..], [RefreshReason::Observed { .. } | RefreshReason::Filled { .. }]));
    world.event(Event::Refresh);
    assert_eq!(world.session.match_stats().transactions, 0);
}

#[test]
fn what_is_under_way_without_a_new_script_is_asked_for_again() {
    let blocks: Vec<_> = (0..4).map(|height| block(height, vec![])).collect();
    let mut world = World::new(policy(), blocks);
    world.limit_in_flight(1);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.event(Event::Request(vec![world.at(3), world.at(1), world.at(2)]));
    world.event(Event::Watch(vec![watched(1)]));
    // The third block is in flight, and the queued blocks after it are dropped. The session
    // restarts from the lowest of these blocks.
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(world.at(1))));
    assert_eq!(world.session.pending_requests(), 1);
    // Adding the same script again changes nothing.
    let before = world.findings.len();
    world.event(Event::Watch(vec![watched(1)]));
    assert_eq!(world.findings.len(), before);
}

#[test]
fn one_block_is_not_under_way_twice() {
    let mut world = World::new(policy(), vec![block(0, vec![]), block(1, vec![])]);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.event(Event::Request(vec![world.at(0), world.at(0), world.at(1)]));
    let asked = |world: &World| {
        let sent = world.to_node.iter();
        sent.filter_map(|message| match message {
            Message::GetFilteredBlocks(blocks) => Some(blocks.len()),
            _ => None,
        })
        .sum::<usize>()
    };
    assert_eq!(asked(&world), 1);
    world.settle();
    assert_eq!(world.count(|f| matches!(f, Finding::Block { .. })), 3);
    assert_eq!(world.count(is_complaint), 0);
}

#[test]
fn requests_survive_a_connection_but_not_a_reorganization() {
    let blocks: Vec<_> = (0..6).map(|height| block(height, vec![])).collect();
    let mut world = World::new(policy(), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.request_from(0);
    world.event(Event::Connected);
    world.reconnect();
    assert_eq!(world.session.pending_requests(), 6);
    world.event(Event::Tip(5));
    world.event(Event::Reorganized(3));
    world.settle();
    let links = world.findings.iter().filter_map(|finding| match finding {
        Finding::Block { proof, .. } => Some(proof.link != HeaderLink::Unlinked),
        _ => None,
    });
    // Four requests were in flight. The block of the last request is no longer in the chain.
    assert_eq!(links.collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn a_request_that_waits_too_long_is_said_once() {
    let mut world = World::new(policy(), vec![block(0, vec![])]);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.request_from(0);
    let mut tick = |seconds| world.session.handle(Event::Tick, Duration::from_secs(seconds));
    assert_eq!(tick(60), []);
    assert!(matches!(tick(61)[..], [Action::Report(Finding::Stalled(..))]));
    assert_eq!(tick(70), []);
}

#[test]
fn messages_as_bitcoin_has_them() {
    let mut world = World::new(policy(), vec![block(0, vec![])]);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.request_from(0);
    let sent: Vec<NetworkMessage> =
        world.to_node.iter().map(|message| message.clone().try_into().unwrap()).collect();
    assert_eq!(
        sent.iter().map(NetworkMessage::cmd).collect::<Vec<_>>(),
        ["filterload", "getdata", "ping"]
    );
    // An item of `getdata` contains the type of BIP37's filtered blocks, then the hash.
    let payload = bitcoin::consensus::serialize(&match &sent[1] {
        NetworkMessage::GetData(inventory) => inventory.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(payload[..5], [1, 3, 0, 0, 0]);
    assert_eq!(payload[5..], bitcoin::consensus::serialize(&world.blocks[0].block_hash())[..]);
    assert_eq!(Event::from(NetworkMessage::Pong(7)), Event::Pong(7));
    assert_eq!(Event::from(NetworkMessage::Verack), Event::Other);
}

/// A block of mainnet, filtered for a wallet with one of its scripts.
#[test]
fn a_real_block() {
    let file = include_str!("../../../../../fixtures/bitcoin/blocks/mainnet_150013.json");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    let block: Block = deserialize_hex(file["block"].as_str().unwrap()).unwrap();
    let script = block.txdata[4].output[0].script_pubkey.clone();
    let pays = |tx: &&Transaction| tx.output.iter().any(|out| out.script_pubkey == script);
    let paying: Vec<_> = block.txdata.iter().filter(pays).map(Transaction::compute_txid).collect();
    let spends = |tx: &&Transaction| {
        tx.input.iter().any(|input| paying.contains(&input.previous_output.txid))
    };
    let mut own: Vec<_> =
        block.txdata.iter().filter(spends).map(Transaction::compute_txid).collect();
    own.extend(&paying);
    own.sort_unstable();
    own.dedup();
    let mut world = World::new(policy(), vec![block]);
    world.session = Session::new(Config::new(Network::Bitcoin, policy()));
    world.event(Event::Watch(vec![WatchItem::Script { script, label: None }]));
    world.event(Event::Connected);
    world.event(Event::Tip(150_020));
    world.event(Event::Request(vec![BlockAt { hash: world.at(0).hash, height: 150_013 }]));
    world.settle();
    assert_eq!(world.relevant(), own);
    assert_eq!(world.count(is_complaint), 0);
    let Some(Finding::Block { proof, .. }) = world.findings.last() else {
        panic!("{:?}", world.findings.last());
    };
    assert_eq!(proof.link, HeaderLink::InChain { height: 150_013, confirmations: 8 });
    assert_eq!(proof.block_hash.to_string(), file["hash"].as_str().unwrap());
}

/// A miner has put a transaction of 64 bytes into a block. That transaction is ignored, and the
/// other transactions of the block are accepted.
#[test]
fn a_transaction_of_64_bytes_costs_the_block_nothing() {
    let from = OutPoint::new(Txid::hash(b"small"), 0);
    let small = tx(&[from], &[ScriptBuf::from(vec![3, 1, 2, 3])]);
    assert_eq!(small.base_size(), 64);
    let receive = tx(&[OutPoint::new(Txid::hash(b"coin"), 0)], &[script(0)]);
    let (small_id, txid) = (small.compute_txid(), receive.compute_txid());
    let mut world = World::new(policy(), vec![block(0, vec![small, receive])]);
    world.event(Event::Watch(vec![
        watched(0),
        WatchItem::OutPoint { outpoint: from, script: None },
    ]));
    world.event(Event::Connected);
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant(), [txid]);
    let block = world.at(0).hash;
    let complaints: Vec<_> = world.findings.iter().filter(|f| is_complaint(f)).collect();
    assert_eq!(complaints, [&Finding::Refused { block, index: 1, txid: small_id }]);
}
