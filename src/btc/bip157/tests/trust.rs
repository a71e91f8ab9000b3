//! Tests of trust, and of answers that are withdrawn.

use bitcoin::Network;
use bitcoin::bip158::FilterHeader;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;

use super::world::{Known, Node, TestChain, World, refute};
use crate::btc::bip157::{Action, Config, Event, Finding, Reason, ScanReason};
use crate::btc::bip158::BlockFilter;
use crate::btc::peer::{Grade, PeerId};

fn is_filters(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFilters(_))
}

/// Returns the filter of a block as if the block paid one more script. The filter matches every
/// script that the true filter matches, and the block refutes it.
fn with_another(chain: &TestChain, height: u32) -> Vec<u8> {
    let mut block = chain.blocks[height as usize].clone();
    let mut more = block.txdata[0].output[0].clone();
    more.script_pubkey = bitcoin::ScriptBuf::from(vec![1, 2, 3]);
    block.txdata[0].output.push(more);
    let scripts = Vec::<bitcoin::ScriptBuf>::new();
    BlockFilter::from_prevout_scripts(&block, &scripts).unwrap().content
}

/// A height with a match stays unsettled until its block arrives, whatever happens to its answer.
#[test]
fn a_match_is_settled_by_its_block() {
    let chain = TestChain::new(60);
    let mut world = World::new(&chain, World::config());
    let mute = |message: &NetworkMessage| matches!(message, NetworkMessage::GetData(_));
    // The false filter matches, and its block refutes it.
    world.connect(1, Node { mute, ..Node::lying(&chain, &[(5, with_another(&chain, 5))]) });
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(60));
    assert_eq!((world.sync.first_awaited(), world.sync.settled_to()), (Some(5), Some(4)));
    world.event(Event::Block(None, Box::new(chain.blocks[5].clone())));
    assert!(matches!(world.reasons()[..], [(PeerId(1), Reason::FalseFilter(_))]));
    assert!(world.sync.answered_to().is_none_or(|to| to < 6));
    // An honest peer confirms all claims of the liar except the lie.
    world.connect(2, Node { mute, ..Node::honest(&chain) });
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(60));
    for &height in chain.truth().range(6..) {
        let awaited = world.sync.first_awaited();
        assert_eq!((awaited, world.sync.settled_to()), (Some(height), Some(height - 1)));
        world.event(Event::Block(None, Box::new(chain.blocks[height as usize].clone())));
    }
    assert_eq!((world.sync.first_awaited(), world.sync.settled_to()), (None, Some(60)));
    world.assert_complete(&chain);
}

/// A liar is believed while it is the only peer. Peers that connect later are asked about every
/// height.
#[test]
fn an_honest_peer_that_comes_late_reopens_what_it_denies() {
    let chain = TestChain::new(2_050);
    let lies = [(27, chain.without_prevouts(27)), (1_507, chain.without_prevouts(1_507))];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(2_050));
    assert!(!world.hits.contains(&27) && !world.hits.contains(&1_507));
    let filters = world.sent(is_filters);
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.scanned(ScanReason::Disputed), [27, 1_507]);
    assert_eq!(world.sent(is_filters) - filters, 4, "two requests for each disputed height");
    for height in [1, 999, 1_401, 2_049] {
        assert_eq!(world.grade(height), Some(Grade::Peers(2)), "{height}");
        let Known::Filter(filter) = &world.known[&height] else { panic!() };
        assert_eq!(filter.grade, Grade::Peers(2));
    }
}

/// Liars that agree are convicted by a hit, and all their claims are withdrawn. The true claims of
/// these liars are then confirmed by hash, and those filters are not sent again.
#[test]
fn a_hit_convicts_those_who_never_disagree() {
    let chain = TestChain::new(1_530);
    // One false filter matches the wallet; the two remaining false filters hide hits.
    let lies =
        [(1_025, chain.filters[1_027].clone()), (1_015, vec![0]), (27, chain.without_prevouts(27))];
    // The filter's key is the hash of its block, so this filter is built for block 1,025 and
    // matches there.
    let loud = {
        let block = &chain.blocks[1_025];
        let mut loud = block.clone();
        let mut more = loud.txdata[0].output[0].clone();
        more.script_pubkey = bitcoin::ScriptBuf::from(vec![1, 2, 3]);
        loud.txdata[0].output.push(more);
        let scripts = Vec::<bitcoin::ScriptBuf>::new();
        BlockFilter::from_prevout_scripts(&loud, &scripts).unwrap().content
    };
    let mut lies = lies.to_vec();
    lies[0].1 = loud;
    let mut config = World::config();
    config.limits.kept_bytes = usize::MAX;
    let mut world = World::new(&chain, config);
    for id in 1..=2 {
        world.connect(id, Node::lying(&chain, &lies));
    }
    world.settle();
    let reasons = world.reasons();
    assert_eq!(reasons.len(), 2);
    for (_, reason) in &reasons {
        let Reason::FalseFilter(found) = reason else { panic!("{reason:?}") };
        assert_eq!(found.at, chain.at(1_025));
        assert!(found.proof.is_some());
    }
    // Only the answers at blocks that were scanned stay valid: the block that convicted the liars,
    // and the blocks scanned before it.
    assert_eq!(world.sync.answered_to(), Some(0));
    assert!(world.reopened.contains(&1) && world.reopened.contains(&27));
    assert_eq!(world.grade(1), None);
    assert_eq!(world.grade(5), Some(Grade::Scanned));
    let filters = world.sent(is_filters);
    world.connect(3, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    // Filters are requested for the heights 27 and 1,015, and for the heights that had no answer
    // when the liars were disconnected.
    assert!(world.sent(is_filters) - filters <= 10, "{}", world.sent(is_filters) - filters);
    assert_eq!(world.grade(28), Some(Grade::OnePeer));
}

/// Spot audits find liars that agree, at the configured rate.
#[test]
fn spot_audits() {
    let chain = TestChain::new(1_200);
    let mut found = 0;
    for seed in 0..40 {
        let mut config = Config::new(Network::Regtest, 0, [seed; 16]);
        config.spot_audits = 4;
        let mut world = World::new(&chain, config);
        let lies = [(611, vec![0])];
        for id in 1..=2 {
            world.connect(id, Node::lying(&chain, &lies));
        }
        world.settle();
        let spots = world.scanned(ScanReason::SpotAudit).len();
        if world.reasons().is_empty() {
            assert!((240..360).contains(&spots), "{spots}");
            assert_eq!(world.sync.answered_to(), Some(1_200));
        } else {
            found += 1;
            assert!(world.scanned(ScanReason::SpotAudit).contains(&611));
        }
    }
    assert!((4..20).contains(&found), "one in four: {found} of 40");
}

/// Without spot audits, only the blocks of hits are fetched.
#[test]
fn no_spot_audits() {
    let chain = TestChain::new(300);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    assert!(world.scanned(ScanReason::SpotAudit).is_empty());
}

#[test]
fn a_trusted_header() {
    let chain = TestChain::new(2_500);
    let mut config = World::config();
    assert!(!config.trust(0, FilterHeader::all_zeros()));
    assert!(!config.trust(1_500, FilterHeader::all_zeros()));
    assert!(config.trust(2_000, chain.headers()[2_000]));
    let mut world = World::new(&chain, config);
    let lies = [(1_507, chain.without_prevouts(1_507))];
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    let reasons = world.reasons();
    let [(PeerId(1), Reason::ContradictsCheckpoint { height: 2_000, claimed, trusted })] =
        reasons[..]
    else {
        panic!("{reasons:?}")
    };
    assert!(trusted == chain.headers()[2_000] && claimed != trusted);
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    // The trusted header at 2,000 commits to all filters up to that height, and to none above.
    assert_eq!(world.grade(1), Some(Grade::Checkpoint));
    assert_eq!(world.grade(2_000), Some(Grade::Checkpoint));
    assert_eq!(world.grade(2_001), Some(Grade::OnePeer));
    let Known::Filter(filter) = &world.known[&11] else { panic!() };
    assert_eq!(filter.grade, Grade::Checkpoint);
}

/// A world whose answers up to height 1,000 rest on a trusted header alone: the only peer was convicted of a
/// lie above it.
fn trusted(chain: &TestChain, first: u32) -> World {
    let mut config = World::config();
    config.first = first;
    assert!(config.trust(1_000, chain.headers()[1_000]));
    let mut world = World::new(chain, config);
    world.connect(1, Node::lying(chain, &[(1_005, with_another(chain, 1_005))]));
    world.settle();
    assert!(matches!(world.reasons()[..], [(PeerId(1), Reason::FalseFilter(_))]));
    assert!(world.reopened.contains(&1_001));
    assert_no_answer_is_withdrawn(&world, first.max(1));
    world
}

#[track_caller]
fn assert_no_answer_is_withdrawn(world: &World, first: u32) {
    assert_eq!(world.reopened.range(..=1_000).next(), None);
    for height in first..=1_000 {
        let grade = world.grade(height);
        assert!(matches!(grade, Some(Grade::Checkpoint | Grade::Scanned)), "{height}: {grade:?}");
    }
}

/// A trusted header vouches for the filters that it commits to, whoever is connected and whatever they claim.
#[test]
fn no_liar_withdraws_what_a_trusted_header_commits_to() {
    let chain = TestChain::new(1_050);
    let mut world = trusted(&chain, 0);
    // Its claims end below the trusted header, so that they do not contradict it.
    let mut lower = chain.clone();
    lower.truncate(501);
    let mute = |message: &NetworkMessage| matches!(message, NetworkMessage::GetData(_));
    world.connect(2, Node { mute, ..Node::lying(&lower, &[(11, vec![0])]) });
    world.settle();
    assert_no_answer_is_withdrawn(&world, 1);
    assert!(world.sync.is_disputed(11));
    world.event(Event::Block(None, Box::new(chain.blocks[11].clone())));
    assert!(matches!(world.reasons()[1..], [(PeerId(2), Reason::FalseFilter(_))]));
    assert_no_answer_is_withdrawn(&world, 1);
    world.connect(3, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.scanned(ScanReason::Disputed), [11]);
}

/// Earlier heights of the same interval become wanted.
#[test]
fn an_earlier_birthday_withdraws_nothing_that_a_trusted_header_commits_to() {
    let chain = TestChain::new(1_050);
    let mut world = trusted(&chain, 500);
    world.event(Event::Extend(400));
    assert_no_answer_is_withdrawn(&world, 500);
    let filters = world.sent(is_filters);
    world.connect(2, Node::honest(&chain));
    world.settle();
    assert_eq!(world.sync.answered_to(), Some(1_050));
    assert_eq!(world.grade(401), Some(Grade::Checkpoint));
    assert_eq!(world.sent(is_filters) - filters, 1, "the filters from 400 on");
}

/// After a reorganisation below the trusted header, it is about other blocks. Nobody vouches for the blocks
/// that stay.
#[test]
fn a_reorganisation_below_a_trusted_header_withdraws_visibly() {
    let chain = TestChain::new(1_050);
    let mut world = trusted(&chain, 0);
    world.move_to(&chain.fork(900, 1));
    for height in (1..900).filter(|height| !matches!(height % 10, 5 | 7)) {
        assert_eq!((world.grade(height), world.reopened.contains(&height)), (None, true));
    }
}

/// A trusted header commits to a filter that its block refutes, so that it is false.
#[test]
fn a_false_trusted_header_withdraws_visibly() {
    let chain = TestChain::new(1_050);
    let mut lies = chain.clone();
    lies.filters[11] = vec![0];
    let mut world = trusted(&lies, 0);
    world.event(Event::Refuted(refute(&chain, 11, &[0])));
    for height in (1..=1_000).filter(|height| !matches!(height % 10, 5 | 7)) {
        assert_eq!((world.grade(height), world.reopened.contains(&height)), (None, true));
    }
}

/// The block of a height at which no filter is evidence shows another filter than the one that a trusted header
/// commits to.
#[test]
fn an_audit_against_a_trusted_header_withdraws_visibly() {
    let chain = TestChain::new(1_050);
    let mut lies = chain.clone();
    lies.filters[21] = vec![0];
    let mut world = trusted(&lies, 0);
    // An honest peer, whose chain ends below the header.
    let mut lower = chain.clone();
    lower.truncate(501);
    let mute = |message: &NetworkMessage| matches!(message, NetworkMessage::GetData(_));
    world.connect(2, Node { mute, ..Node::honest(&lower) });
    world.settle();
    assert!(world.sync.is_disputed(21));
    // More proofs than are remembered.
    for salt in 0..20_u32 {
        let mut other = chain.blocks[21].clone();
        other.txdata[0].output[0].script_pubkey = salt.to_le_bytes().to_vec().into();
        let other = BlockFilter::from_prevout_scripts::<bitcoin::ScriptBuf>(&other, &[]).unwrap();
        world.event(Event::Refuted(refute(&chain, 21, &other.content)));
    }
    world.event(Event::Block(None, Box::new(chain.blocks[21].clone())));
    assert_eq!(world.grade(21), Some(Grade::Scanned));
    for height in 1..=1_000 {
        assert!(world.grade(height).is_some() || world.reopened.contains(&height), "{height}");
    }
}

/// A refuted hash that another peer claims convicts that peer, and no block is fetched for it.
#[test]
fn what_is_refuted_stays_so() {
    let chain = TestChain::new(1_050);
    let lies = [(21, vec![0])];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.connect(2, Node::lying(&chain, &lies));
    world.settle();
    let blocks = world.sent(|message| matches!(message, NetworkMessage::GetData(_)));
    world.connect(3, Node::lying(&chain, &lies));
    world.settle();
    let reasons = world.reasons();
    assert!(matches!(reasons[1], (PeerId(3), Reason::FalseFilter(_))), "{reasons:?}");
    assert_eq!(world.sent(|message| matches!(message, NetworkMessage::GetData(_))), blocks);
}

/// A valid proof from the caller convicts the liar; an invalid proof has no effect.
#[test]
fn a_proof_is_shown() {
    let chain = TestChain::new(200);
    let lies = [(27, chain.without_prevouts(27))];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    assert!(!world.hits.contains(&27));
    let proof = refute(&chain, 27, &lies[0].1);
    let mut forged = proof.clone();
    forged.filter.clone_from(&chain.filters[27]);
    world.event(Event::Refuted(forged));
    assert_eq!(world.reasons(), []);
    world.event(Event::Refuted(proof.clone()));
    let reasons = world.reasons();
    let [(PeerId(1), Reason::FalseFilter(found))] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(found.proof.as_ref(), Some(&*proof));
    assert!(world.reopened.contains(&27));
    assert_eq!(world.sync.answered_to(), Some(0));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
}

/// The claims of a departed peer are dropped if their filters were not received.
#[test]
fn what_nobody_stands_by_is_asked_of_the_next() {
    let chain = TestChain::new(500);
    let lies: Vec<_> =
        (1..=500).map(|height: u32| (height, vec![height.to_le_bytes()[0]; 9])).collect();
    let mut node = Node::lying(&chain, &lies);
    node.mute = is_filters;
    let mut world = World::new(&chain, World::config());
    world.connect(1, node);
    world.settle();
    world.leave(1);
    assert_eq!(world.sync.answered_to(), Some(0));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert!(world.scanned(ScanReason::Disputed).is_empty());
    assert_eq!(world.grade(21), Some(Grade::OnePeer));
}

/// The claims of a departed peer stay valid if their filters were received. Peers count as distinct if
/// they were connected at the same time, and this count outlives them.
#[test]
fn what_was_answered_stands() {
    let chain = TestChain::new(1_100);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.leave(1);
    assert_eq!(world.sync.answered_to(), Some(1_100));
    assert_eq!(world.grade(11), Some(Grade::OnePeer));
    // The second connection may be the same peer as the first.
    world.connect(2, Node::honest(&chain));
    world.settle();
    assert_eq!(world.grade(11), Some(Grade::OnePeer));
    world.connect(3, Node::honest(&chain));
    world.settle();
    assert_eq!(world.grade(11), Some(Grade::Peers(2)));
    assert_eq!(world.findings(), Vec::<Finding>::new());
    let graded = |action: &&Action| matches!(action, Action::Graded(1_001, _, Grade::Peers(2)));
    assert_eq!(world.actions.iter().filter(graded).count(), 1);
    world.leave(2);
    world.leave(3);
    assert_eq!(world.grade(11), Some(Grade::Peers(2)));
}
