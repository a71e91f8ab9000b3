//! Sequences of events that could lose a hit, or waste time or memory.

use core::time::Duration;

use bitcoin::Network;
use bitcoin::p2p::message::NetworkMessage;

use super::super::interval::MAX_VOUCHERS;
use super::world::{Node, TestChain, World, refute};
use crate::btc::bip157::{Config, Event, FilterSync, Finding, ScanReason, VerifiedFilter};
use crate::btc::bip158::BlockFilter;
use crate::btc::headers::{HeaderChain, TrustedStart};
use crate::btc::peer::{Grade, PeerId};

fn is_block(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetData(_))
}

fn is_filters(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFilters(_))
}

/// With a first height that no chain reaches, nothing is wanted and no arithmetic overflows.
#[test]
fn a_first_height_at_the_end_of_all() {
    let chain = TestChain::new(30);
    for first in [u32::MAX, u32::MAX - 1, 4_294_967_000, 4_294_966_999, 4_294_000_001] {
        let mut config = Config::new(Network::Regtest, first, [1; 16]);
        config.spot_audits = 0;
        let mut world = World::new(&chain, config.clone());
        world.connect(1, Node::honest(&chain));
        world.settle();
        world.event(Event::Rescan(u32::MAX..=u32::MAX));
        world.event(Event::Rescan(0..=u32::MAX));
        world.wait(1);
        assert_eq!(world.sync.answered_to(), None);
        assert_eq!(world.grade(u32::MAX), None);
        assert_eq!(world.sync.filter_hash(u32::MAX), None);
        assert!(world.known.is_empty());
        let bytes = world.sync.encode(&world.headers);
        assert!(FilterSync::restore(config, &world.headers, &bytes).is_ok());
    }
}

/// If the headers begin above the first height wanted, nothing is requested, and this is reported.
#[test]
fn headers_from_an_anchor() {
    let chain = TestChain::new(3_100);
    let headers = anchored(&chain);
    for first in [1, 900, 2_500, 2_989, 2_990, 3_001, 3_050] {
        let mut config = Config::new(Network::Regtest, first, [1; 16]);
        config.spot_audits = 0;
        let mut world = World::new(&chain, config);
        world.headers = headers.clone();
        world.connect(1, Node::honest(&chain));
        world.settle();
        assert_eq!(world.reasons(), [], "{first}");
        let is_known = first >= 2_990;
        let answered = is_known.then_some(3_100);
        assert_eq!(world.sync.answered_to(), answered, "{first}");
        let said = world.findings().contains(&Finding::FirstUnknown(first));
        assert_eq!(said, !is_known, "{first}");
    }
}

/// An extension below the first header is refused, because it would block the requests for all
/// heights above.
#[test]
fn extended_below_an_anchor() {
    let chain = TestChain::new(3_100);
    let mut config = Config::new(Network::Regtest, 3_050, [1; 16]);
    config.spot_audits = 0;
    let mut world = World::new(&chain, config);
    world.headers = anchored(&chain);
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.event(Event::Extend(2_900));
    assert_eq!(world.findings(), [Finding::FirstUnknown(2_900)]);
    assert_eq!((world.sync.settled_to(), world.sync.first()), (Some(3_100), 3_050));
    world.event(Event::Extend(2_995));
    world.settle();
    assert_eq!(world.sync.settled_to(), Some(3_100));
    assert!(world.known.keys().copied().eq(2_995..=3_100));
}

/// Returns a header chain that begins at height 2,990.
fn anchored(chain: &TestChain) -> HeaderChain {
    let header = |height: u32| chain.blocks[height as usize].header;
    let mut work = header(0).work();
    for height in 1..=3_000 {
        work = work + header(height).work();
    }
    let trusted_start = TrustedStart {
        height: 3_000,
        headers: (2_990..=3_000).map(header).collect(),
        period_first: header(2_016),
        work,
    };
    let mut headers = HeaderChain::from_trusted_start(Network::Regtest, trusted_start).unwrap();
    let new: Vec<_> = (3_001..=chain.tip()).map(header).collect();
    headers.accept(&new, Duration::MAX).unwrap();
    headers
}

/// A hit is scanned even if the sender of the filter has left and the accepted claim is now that of
/// another peer.
#[test]
fn a_hit_that_is_found_late() {
    let chain = TestChain::new(60);
    let lies = [(27, chain.without_prevouts(27))];
    let mut liar = Node::lying(&chain, &lies);
    liar.mute = is_filters;
    let mut world = World::new(&chain, World::config());
    world.connect(2, liar);
    world.settle();
    let filter = BlockFilter { block_hash: chain.hash(27), content: chain.filters[27].clone() };
    let hit = VerifiedFilter { at: chain.at(27), filter, grade: Grade::OnePeer };
    world.event(Event::Matched(Box::new(hit)));
    world.event(Event::Block(None, Box::new(chain.blocks[27].clone())));
    assert_eq!(world.scanned(ScanReason::Matched), [27]);
    assert!(world.hits.contains(&27));
}

/// A height that is rescanned while its block is in flight is answered only once.
#[test]
fn a_block_that_is_wanted_twice_comes_once() {
    let chain = TestChain::new(40);
    let lies = [(27, chain.without_prevouts(27))];
    let mut config = World::config();
    config.limits.inspections = 1;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::honest(&chain));
    world.connect(2, Node::lying(&chain, &lies));
    world.settle();
    world.actions.clear();
    world.event(Event::Rescan(20..=u32::MAX));
    world.event(Event::Rescan(20..=u32::MAX));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.scanned(ScanReason::Disputed), [27]);
}

/// Liars that connect one after another, each with another claim and without its filter, cannot
/// delay the block forever.
#[test]
fn a_dispute_ends_however_many_join() {
    let chain = TestChain::new(40);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    let liar = |salt: u64| {
        let mut liar = Node::lying(&chain, &[(27, salt.to_le_bytes().to_vec())]);
        liar.mute = is_filters;
        liar
    };
    for id in 2..30 {
        world.connect(id, liar(id));
        world.settle();
        world.wait(20);
    }
    assert_eq!(world.scanned(ScanReason::Disputed), [27]);
}

/// Liars that connect one after another and send their filters, while no peer has the block, cannot
/// fill the memory.
#[test]
fn what_departed_peers_claimed_is_bounded() {
    let chain = TestChain::new(40);
    let mut world = World::new(&chain, World::config());
    let no_block = |node: Node| Node { mute: is_block, ..node };
    world.connect(1, no_block(Node::honest(&chain)));
    for id in 2..300u64 {
        let lies = [(27, [&chain.without_prevouts(27)[..], &id.to_le_bytes()].concat())];
        world.connect(id, no_block(Node::lying(&chain, &lies)));
        world.settle();
        world.leave(id);
    }
    let kept = world.sync.inspections.num_filters();
    assert!(kept <= 100, "{kept}");
    assert!(world.sync.claims.disputed().count() <= 100);
    world.connect(400, Node::honest(&chain));
    world.settle();
    world.wait(31);
    world.assert_complete(&chain);
}

/// The only peer is asked for a block again later, if it did not have the block at first.
#[test]
fn the_only_peer_is_asked_again_for_a_block_that_it_lacked() {
    lacks_a_block(0);
}

/// A peer that did not have a block is asked for it again later, even if the clock is set back in
/// between.
#[test]
fn waiting_goes_on_from_where_the_clock_is_set_back() {
    lacks_a_block(1_000_000);
}

fn lacks_a_block(set_back: u64) {
    let chain = TestChain::new(10);
    let mut world = World::new(&chain, World::config());
    world.now = Duration::from_secs(2_000_000);
    let lacks = Node::twisted(&chain, |event| {
        if let Event::Block(Some(id), block) = event {
            *event = Event::BlockUnavailable(*id, block.block_hash());
        }
    });
    world.connect(1, lacks);
    world.settle();
    let asked = world.sent(is_block);
    world.now -= Duration::from_secs(set_back);
    world.wait(0);
    world.wait(29);
    assert_eq!(world.sent(is_block), asked, "the block is not requested again at once");
    assert_ne!(world.sync.settled_to(), Some(10));
    world.nodes.insert(PeerId(1), Node::honest(&chain));
    world.wait(2);
    world.assert_complete(&chain);
    assert_eq!(world.sync.settled_to(), Some(10));
    assert_eq!(world.reasons(), []);
}

/// The list of peers without a block drops peers that disconnect.
#[test]
fn who_lacks_a_block_is_forgotten() {
    let chain = TestChain::new(10);
    let mut world = World::new(&chain, World::config());
    let no_block = |node: Node| Node { mute: is_block, ..node };
    for id in 1..=100 {
        world.connect(id, no_block(Node::honest(&chain)));
        world.settle();
        world.event(Event::BlockUnavailable(PeerId(id), chain.hash(5)));
        world.leave(id);
    }
    world.connect(101, no_block(Node::honest(&chain)));
    world.settle();
    assert!(world.sync.inspections.open(5).unwrap().without_block.len() <= 1);
    world.connect(102, Node::honest(&chain));
    world.settle();
    world.wait(31);
    world.assert_complete(&chain);
}

/// Of the peers that connect and leave, only a limited number is remembered. One peer may have
/// connected again and again, so that they count as one.
#[test]
fn vouchers_are_bounded() {
    let chain = TestChain::new(1_010);
    let mut world = World::new(&chain, World::config());
    for id in 1..=200 {
        world.connect(id, Node::honest(&chain));
        world.settle();
        world.leave(id);
    }
    for (_, interval) in world.sync.claims.intervals() {
        assert_eq!(interval.vouchers.len(), MAX_VOUCHERS);
    }
    assert_eq!(world.grade(11), Some(Grade::OnePeer));
    assert_eq!(world.sync.answered_to(), Some(1_010));
    world.assert_complete(&chain);
}

/// Proofs about filters that no peer claims are stored up to a limit, and cause no second download.
#[test]
fn proofs_are_bounded() {
    let chain = TestChain::new(40);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    for salt in 0..100u32 {
        let scripts = [bitcoin::ScriptBuf::from(salt.to_le_bytes().to_vec())];
        let mut other = chain.blocks[21].clone();
        other.txdata[0].output[0].script_pubkey = scripts[0].clone();
        let other = BlockFilter::from_prevout_scripts::<bitcoin::ScriptBuf>(&other, &[]).unwrap();
        let proof = refute(&chain, 21, &other.content);
        world.event(Event::Refuted(proof.clone()));
        world.event(Event::Refuted(proof));
        world.settle();
    }
    assert!(world.sync.claims.refuted.len() <= 32);
    assert!(world.scanned(ScanReason::Disputed).len() <= 1);
    world.assert_complete(&chain);
}

/// After a restart, `unanswered` lists the heights that were reopened before.
#[test]
fn what_is_unanswered_is_listed() {
    let chain = TestChain::new(1_100);
    let lies = [(27, chain.without_prevouts(27))];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    assert_eq!(world.sync.unanswered(), [1_101..=u32::MAX]);
    world.event(Event::Refuted(refute(&chain, 27, &lies[0].1)));
    let reopened = world.reopened.clone();
    let bytes = world.sync.encode(&world.headers);
    let sync = FilterSync::restore(World::config(), &world.headers, &bytes).unwrap();
    let listed = sync.unanswered();
    assert!(reopened.iter().all(|height| listed.iter().any(|run| run.contains(height))));
    for height in 0..1_200 {
        let is_listed = listed.iter().any(|run| run.contains(&height));
        assert_eq!(is_listed, sync.grade(height).is_none(), "{height}");
    }
}
