//! Tests with peers that tell the truth.

use bitcoin::bip158::{self, FilterHeader};
use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{Block, Network, ScriptBuf};

use super::world::{Known, Node, TestChain, World};
use crate::btc::bip157::{Action, Config, Event, Reason, ScanReason};
use crate::btc::bip158::filter_header;
use crate::btc::peer::{Grade, PeerId};

fn is_filters(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFilters(_))
}

fn is_headers(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFHeaders(_))
}

fn is_checkpoints(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFCheckpt(_))
}

#[test]
fn one_peer_syncs_everything() {
    let chain = TestChain::new(2_345);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.grade(1_234), Some(Grade::OnePeer));
    assert_eq!(world.grade(1_235), Some(Grade::Scanned));
    assert_eq!(world.grade(0), Some(Grade::Audited));
    assert_eq!(world.grade(2_346), None);
    assert_eq!(world.scanned(ScanReason::Matched).len(), chain.truth().len());
    assert_eq!(world.sent(is_filters) - world.sent_for_one_filter(), 3);
    assert_eq!(world.sent(is_headers), 3);
    assert_eq!(world.sent(is_checkpoints), 1);
    assert_eq!(world.reasons(), []);
}

/// Real blocks, with filters built by the `bitcoin` crate, give the published filter headers.
#[test]
fn mainnet_0_to_255() {
    let rows: serde_json::Value =
        serde_json::from_str(include_str!("../../../../fixtures/bitcoin/mainnet_0-255.json"))
            .unwrap();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 256);
    let blocks: Vec<Block> =
        rows.iter().map(|row| deserialize_hex(&text(row, "block")).unwrap()).collect();
    let published: Vec<FilterHeader> =
        rows.iter().map(|row| text(row, "filter_header").parse().unwrap()).collect();
    let prevout = |outpoint: &bitcoin::OutPoint| {
        let txs = blocks.iter().flat_map(|block| &block.txdata);
        let mut from = txs.filter(|tx| tx.compute_txid() == outpoint.txid);
        let tx = from.next().ok_or(bip158::Error::UtxoMissing(*outpoint))?;
        Ok::<ScriptBuf, _>(tx.output[outpoint.vout as usize].script_pubkey.clone())
    };
    let filter = |block| bip158::BlockFilter::new_script_filter(block, prevout).unwrap().content;
    let filters = blocks.iter().map(filter).collect();
    let chain = TestChain::of(blocks, filters);
    let mut config = Config::new(Network::Bitcoin, 0, [2; 16]);
    config.spot_audits = 10;
    let mut world = World::new(&chain, config);
    for id in 1..=3 {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(255));
    assert_eq!(world.grade(170), Some(Grade::Peers(3)));
    let spots = world.scanned(ScanReason::SpotAudit).len();
    assert!((10..50).contains(&spots), "{spots}");
    assert_eq!(world.findings(), []);
    assert_eq!(world.reasons(), []);
    let mut header = FilterHeader::all_zeros();
    for (height, published) in (0..).zip(published) {
        header = filter_header(&world.sync.filter_hash(height).unwrap(), &header);
        assert_eq!(header, published, "{height}");
    }
}

/// Each peer is asked for checkpoints. Only one peer is asked for the hashes of each complete
/// interval, but every peer is asked for the hashes after the last checkpoint.
#[test]
fn peers_that_agree_share_the_work() {
    let chain = TestChain::new(2_100);
    let mut world = World::new(&chain, World::config());
    for id in 1..=3 {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.grade(2_100), Some(Grade::Peers(3)));
    assert_eq!(world.grade(11), Some(Grade::Peers(3)));
    assert_eq!(world.sent(is_checkpoints), 3);
    assert_eq!(world.sent(is_headers), 2 + 3);
    let mut asked = world.actions.iter().filter_map(|action| match action {
        Action::Send(peer, message) if is_filters(message) => Some(*peer),
        _ => None,
    });
    let first = asked.next().unwrap();
    assert!(asked.any(|peer| peer != first));
}

#[test]
fn nothing_before_the_birthday() {
    let chain = TestChain::new(2_345);
    let mut config = World::config();
    config.first = 1_200;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::honest(&chain));
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(2_345));
    assert!(world.known.keys().copied().eq(1_200..=2_345));
    let truth: Vec<_> = chain.truth().range(1_200..).copied().collect();
    assert!(world.hits.iter().eq(&truth));
    assert_eq!(world.sent(is_headers), 2);
    assert_eq!(world.grade(1_199), None);
}

#[test]
fn blocks_come_one_by_one() {
    let mut chain = TestChain::new(998);
    let mut world = World::new(&chain, World::config());
    for id in 1..=2 {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    for _ in 0..5 {
        chain.grow(1, 1);
        world.move_to(&chain);
        for id in 1..=2 {
            world.nodes.get_mut(&PeerId(id)).unwrap().chain = chain.clone();
            world.event(Event::PeerTip(PeerId(id), chain.hash(chain.tip())));
        }
        world.settle();
        world.assert_complete(&chain);
        assert!(world.grade(chain.tip()).is_some());
    }
    assert_eq!(world.grade(1_001), Some(Grade::Peers(2)));
    assert_eq!(world.sent(is_headers), 2 * 6);
}

/// A peer is asked only for blocks that it has shown, because a node disconnects peers that ask for
/// an unknown block.
#[test]
fn a_peer_is_asked_for_what_it_has_shown() {
    let chain = TestChain::new(1_500);
    let mut short = chain.clone();
    short.truncate(1_200);
    let mut world = World::new(&chain, World::config());
    world.event(Event::PeerConnected(PeerId(9)));
    world.connect(1, Node::honest(&short));
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(1_199));
    world.event(Event::PeerTip(PeerId(1), chain.hash(3)));
    world.event(Event::PeerTip(PeerId(1), bitcoin::BlockHash::all_zeros()));
    assert!(world.queue.is_empty());
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.grade(1_400), Some(Grade::OnePeer));
    assert_eq!(world.grade(1_191), Some(Grade::Peers(2)));
}

#[test]
fn reorganizations_roll_back() {
    for (height, tip) in [(1_990, 2_010), (1_001, 1_100), (1_000, 1_002), (2_003, 2_005), (1, 9)] {
        let chain = TestChain::new(tip);
        let mut world = World::new(&chain, World::config());
        for id in 1..=2 {
            world.connect(id, Node::honest(&chain));
        }
        world.settle();
        let fork = chain.fork(height, 3);
        world.move_to(&fork);
        assert!(world.actions.contains(&Action::Rollback(height - 1)));
        assert_eq!(world.sync.answered_to(), Some(height - 1));
        for id in 1..=2 {
            world.nodes.get_mut(&PeerId(id)).unwrap().chain = fork.clone();
            world.event(Event::PeerTip(PeerId(id), fork.hash(fork.tip())));
        }
        world.settle();
        world.assert_complete(&fork);
        assert_eq!(world.reasons(), [], "{height}");
        assert!(world.known.values().all(|known| match known {
            Known::Filter(filter) => filter.at.height == 0 || filter.grade == Grade::Peers(2),
            Known::Block(_) => true,
        }));
    }
}

/// Answers in flight during a reorganisation are ignored, and no peer is blamed for them.
#[test]
fn answers_to_a_chain_that_is_gone() {
    let chain = TestChain::new(1_300);
    let fork = chain.fork(1_250, 3);
    for delivered in 0..8 {
        let mut world = World::new(&chain, World::config());
        for id in 1..=2 {
            world.connect(id, Node::honest(&chain));
        }
        for _ in 0..delivered {
            let (peer, message) = world.queue.pop_front().unwrap();
            for event in world.nodes[&peer].clone().answer(peer, &message) {
                world.event(event);
            }
        }
        world.move_to(&fork);
        // The requests from before the reorganisation are answered with data of the old chain.
        let old: Vec<_> = world.queue.drain(..).collect();
        for (peer, message) in old {
            for event in world.nodes[&peer].clone().answer(peer, &message) {
                world.event(event);
            }
        }
        for id in 1..=2 {
            world.nodes.get_mut(&PeerId(id)).unwrap().chain = fork.clone();
            world.event(Event::PeerTip(PeerId(id), fork.hash(fork.tip())));
        }
        world.settle();
        assert_eq!(world.reasons(), [], "{delivered}");
        world.assert_complete(&fork);
    }
}

/// If the blocks of a request for filters leave the chain, a node may still send the filters of
/// those blocks, or no answer at all. The peer is convicted neither for these filters, nor for
/// their absence, nor for its answers to a later overlapping request.
#[test]
fn a_stale_request_for_filters_convicts_nobody() {
    let chain = TestChain::new(1_300);
    let forks = [chain.fork(1_250, 3), chain.fork(1_002, 3), chain.fork(1_300, 1)];
    let cases = forks.iter().flat_map(|fork| [0, 1, 100, 249, 280].map(|count| (fork, count)));
    for ((fork, delivered), is_answered) in cases.flat_map(|case| [(case, true), (case, false)]) {
        let mut world = World::new(&chain, World::config());
        world.connect(1, Node::honest(&chain));
        let mut stale = Vec::new();
        while let Some((peer, message)) = world.queue.pop_front() {
            let answer = world.nodes[&peer].answer(peer, &message);
            // The answer about the last interval, which does not end at a checkpoint, is kept for
            // later.
            if is_filters(&message) && answer.len() == 300 {
                stale = answer;
            } else {
                for event in answer {
                    world.event(event);
                }
            }
        }
        let rest = stale.split_off(delivered);
        assert_eq!(rest.len(), 300 - delivered);
        for event in stale {
            world.event(event);
        }
        world.settle();
        world.move_to(fork);
        world.nodes.get_mut(&PeerId(1)).unwrap().chain = fork.clone();
        world.event(Event::PeerTip(PeerId(1), fork.hash(fork.tip())));
        if is_answered {
            for event in rest {
                world.event(event);
            }
        }
        world.settle();
        world.wait(31);
        assert_eq!(world.reasons(), [], "{delivered}, {is_answered}");
        world.assert_complete(fork);
    }
}

/// A filter that fits neither a stale nor a current request is still a contradiction.
#[test]
fn a_stale_request_shields_no_liar() {
    let chain = TestChain::new(300);
    let fork = chain.fork(250, 3);
    let mut world = World::new(&chain, World::config());
    let silent = |message: &NetworkMessage| is_filters(message);
    world.connect(1, Node { mute: silent, ..Node::honest(&chain) });
    world.settle();
    world.move_to(&fork);
    let liar = Node::twisted(&fork, |event| {
        if let Event::CFilter(_, filter) = event {
            filter.filter.push(0);
        }
    });
    world.nodes.insert(PeerId(1), liar);
    world.event(Event::PeerTip(PeerId(1), fork.hash(fork.tip())));
    world.settle();
    let [(PeerId(1), Reason::OtherFilter { at, .. })] = world.reasons()[..] else {
        panic!("{:?}", world.reasons())
    };
    assert_eq!(at, fork.at(1));
}

#[test]
fn filters_are_handed_over_again() {
    let chain = TestChain::new(1_050);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.known.retain(|&height, _| height < 700);
    world.hits.retain(|&height| height < 700);
    world.event(Event::Rescan(700..=u32::MAX));
    assert_eq!(world.sync.answered_to(), Some(699));
    world.settle();
    world.assert_complete(&chain);
}
