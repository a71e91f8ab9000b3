//! Tests with malformed and unexpected answers.

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter};

use super::world::{Node, TestChain, World};
use crate::btc::bip157::{Event, MAX_FILTER_SIZE, Reason};
use crate::btc::peer::PeerId;

/// Connects a peer whose answers are changed by `twist`, and an honest peer. Returns the reason why
/// the first peer was disconnected.
#[track_caller]
fn reason(chain: &TestChain, twist: impl Fn(&mut Event) + 'static) -> Reason {
    let mut world = World::new(chain, World::config());
    world.connect(1, Node::twisted(chain, twist));
    world.connect(2, Node::honest(chain));
    world.settle();
    world.wait(31);
    world.assert_complete(chain);
    let mut reasons = world.reasons();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let (peer, reason) = reasons.remove(0);
    assert_eq!(peer, PeerId(1));
    assert_eq!(world.sync.peers().collect::<Vec<_>>(), [PeerId(2)]);
    reason
}

#[track_caller]
fn checkpoints(chain: &TestChain, twist: fn(&mut CFCheckpt)) -> Reason {
    reason(chain, move |event| {
        if let Event::CFCheckpt(_, message) = event {
            twist(message);
        }
    })
}

#[track_caller]
fn headers(chain: &TestChain, twist: fn(&mut CFHeaders)) -> Reason {
    reason(chain, move |event| {
        if let Event::CFHeaders(_, message) = event {
            twist(message);
        }
    })
}

#[track_caller]
fn filters(chain: &TestChain, twist: fn(&mut CFilter)) -> Reason {
    reason(chain, move |event| {
        if let Event::CFilter(_, message) = event {
            twist(message);
        }
    })
}

#[test]
fn checkpoints_that_were_not_asked_for() {
    let chain = TestChain::new(2_010);
    let zeros = BlockHash::all_zeros();
    let count = |sent| Reason::Count { sent, expected: 2 };
    assert_eq!(checkpoints(&chain, |m| m.filter_headers.truncate(1)), count(1));
    assert_eq!(checkpoints(&chain, |m| m.filter_headers.push(FilterHeader::all_zeros())), count(3));
    assert_eq!(checkpoints(&chain, |m| m.filter_headers.clear()), count(0));
    let wrong = Reason::WrongBlock(zeros);
    assert_eq!(checkpoints(&chain, |m| m.stop_hash = BlockHash::all_zeros()), wrong);
    let other = Reason::FilterType(1);
    assert_eq!(checkpoints(&chain, |m| m.filter_type = 1), other);
    // The claimed filter header does not follow from the peer's own hashes.
    let reason = checkpoints(&chain, |m| m.filter_headers[1] = FilterHeader::all_zeros());
    let Reason::OtherHeader { height, claimed, sent } = reason else { panic!("{reason:?}") };
    assert!(height == 2_000 && claimed == FilterHeader::all_zeros() && sent != claimed);
}

#[test]
fn hashes_that_were_not_asked_for() {
    let chain = TestChain::new(910);
    let zeros = BlockHash::all_zeros();
    let count = |sent| Reason::Count { sent, expected: 910 };
    assert_eq!(headers(&chain, |m| m.filter_hashes.truncate(909)), count(909));
    assert_eq!(headers(&chain, |m| m.filter_hashes.push(FilterHash::all_zeros())), count(911));
    assert_eq!(headers(&chain, |m| m.filter_hashes.clear()), count(0));
    let wrong = Reason::WrongBlock(zeros);
    assert_eq!(headers(&chain, |m| m.stop_hash = BlockHash::all_zeros()), wrong);
    let other = Reason::FilterType(255);
    assert_eq!(headers(&chain, |m| m.filter_type = 255), other);
    // The filter header of the genesis block is known in advance.
    let reason = headers(&chain, |m| m.previous_filter_header = FilterHeader::all_zeros());
    let Reason::ContradictsCheckpoint { height: 0, claimed, trusted } = reason else {
        panic!("{reason:?}")
    };
    assert_eq!(claimed, FilterHeader::all_zeros());
    assert_eq!(
        trusted,
        crate::btc::bip158::filter_header(
            &crate::btc::bip158::filter_hash(&chain.filters[0]),
            &FilterHeader::all_zeros()
        )
    );
}

/// A later answer that does not continue the earlier answer convicts the peer.
#[test]
fn hashes_that_do_not_link() {
    let chain = TestChain::new(1_010);
    let reason = headers(&chain, |m| {
        if m.filter_hashes.len() < 1_000 {
            m.previous_filter_header = FilterHeader::all_zeros();
        }
    });
    let Reason::OtherHeader { height, sent, .. } = reason else { panic!("{reason:?}") };
    assert_eq!((height, sent), (1_000, FilterHeader::all_zeros()));
}

#[test]
fn filters_that_were_not_asked_for() {
    let chain = TestChain::new(120);
    let zeros = BlockHash::all_zeros();
    let wrong = Reason::WrongBlock(zeros);
    assert_eq!(filters(&chain, |m| m.block_hash = BlockHash::all_zeros()), wrong);
    let other = Reason::FilterType(7);
    assert_eq!(filters(&chain, |m| m.filter_type = 7), other);
    let over = Reason::OversizedFilter { bytes: MAX_FILTER_SIZE + 1, limit: MAX_FILTER_SIZE };
    assert_eq!(filters(&chain, |m| m.filter = vec![0; MAX_FILTER_SIZE + 1]), over);
    for twist in [|m: &mut CFilter| m.filter.push(0), |m: &mut CFilter| m.filter.clear()] {
        let reason = filters(&chain, twist);
        let Reason::OtherFilter { at, claimed, .. } = reason else { panic!("{reason:?}") };
        assert_eq!(at, chain.at(1));
        assert_eq!(claimed, crate::btc::bip158::filter_hash(&chain.filters[1]));
    }
}

#[test]
fn filters_out_of_order() {
    let chain = TestChain::new(120);
    let mut world = World::new(&chain, World::config());
    let mut node = Node::honest(&chain);
    node.twist = Some(std::rc::Rc::new(|events| events.reverse()));
    world.connect(1, node);
    world.settle();
    let wrong = Reason::WrongBlock(chain.hash(120));
    assert_eq!(world.reasons(), [(PeerId(1), wrong)]);
    assert_eq!(world.known.len(), 1);
}

#[test]
fn what_nobody_asked_for() {
    let chain = TestChain::new(20);
    let (filter_type, stop_hash) = (0, chain.hash(20));
    let messages = [
        Event::CFCheckpt(PeerId(1), CFCheckpt { filter_type, stop_hash, filter_headers: vec![] }),
        Event::CFHeaders(
            PeerId(1),
            CFHeaders {
                filter_type,
                stop_hash,
                previous_filter_header: FilterHeader::all_zeros(),
                filter_hashes: vec![],
            },
        ),
        Event::CFilter(
            PeerId(1),
            CFilter { filter_type, block_hash: stop_hash, filter: chain.filters[20].clone() },
        ),
    ];
    for message in messages {
        let mut world = World::new(&chain, World::config());
        // Messages from unknown peers are ignored.
        world.event(message.clone());
        assert_eq!(world.reasons(), []);
        world.event(Event::PeerConnected(PeerId(1)));
        world.event(message);
        let unsolicited = Reason::Unsolicited;
        assert_eq!(world.reasons(), [(PeerId(1), unsolicited)]);
    }
    // A block that was not requested is no violation: the caller may have requested it.
    let mut world = World::new(&chain, World::config());
    world.event(Event::PeerConnected(PeerId(1)));
    world.event(Event::Block(Some(PeerId(1)), Box::new(chain.blocks[3].clone())));
    world.event(Event::BlockUnavailable(PeerId(1), chain.hash(3)));
    assert_eq!(world.reasons(), []);
}

#[test]
fn more_peers_than_the_limit() {
    let chain = TestChain::new(20);
    let mut config = World::config();
    config.limits.peers = 2;
    let mut world = World::new(&chain, config);
    for id in 1..=3 {
        world.connect(id, Node::honest(&chain));
    }
    world.event(Event::PeerConnected(PeerId(1)));
    assert_eq!(world.reasons(), [(PeerId(3), Reason::TooManyPeers(2))]);
    world.settle();
    world.assert_complete(&chain);
}
