//! Whose claims count: a peer is counted and convicted only for hashes that it has claimed itself, and what it
//! claims is not lost.

use bitcoin::p2p::message::NetworkMessage;

use super::super::claims::Claims;
use super::super::interval::{HeightAnswer, MAX_VOUCHERS};
use super::world::{Known, Node, TestChain, World, refute, wallet_script};
use crate::btc::bip157::{Action, Event, FilterSync, Finding, ScanReason, VerifiedFilter};
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::peer::{Grade, PeerId};

fn is_block(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetData(_))
}

fn is_headers(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFHeaders(_))
}

/// A node that sends no blocks.
fn slow(node: Node) -> Node {
    Node { mute: is_block, ..node }
}

/// Lets time pass, so that every request is answered or overdue.
fn wait_long(world: &mut World) {
    for _ in 0..20 {
        world.settle();
        world.wait(31);
    }
}

fn kept(chain: &TestChain, height: u32, content: Vec<u8>) -> VerifiedFilter {
    let filter = BlockFilter { block_hash: chain.hash(height), content };
    VerifiedFilter { at: chain.at(height), filter, grade: Grade::OnePeer }
}

/// A proof convicts no peer that has claimed another hash, even if its claim was not kept: because
/// the block did not decide, because the block had been scanned before, or because the height is
/// below the first wanted one.
#[test]
fn a_proof_convicts_no_peer_with_another_claim() {
    let chain = TestChain::new(200);
    let lies = [(27, chain.without_prevouts(27))];
    let proof = refute(&chain, 27, &lies[0].1);
    for (first, lower) in [(0, None), (20, Some(10)), (100, None)] {
        for honest in [2, 3] {
            let mut config = World::config();
            config.first = first;
            let mut world = World::new(&chain, config);
            if let Some(lower) = lower {
                world.connect(1, Node::honest(&chain));
                world.settle();
                world.event(Event::Extend(lower));
                world.leave(1);
            }
            for id in [2, 3] {
                let lies = if id == honest { &[][..] } else { &lies };
                world.connect(id, Node::lying(&chain, lies));
                world.settle();
            }
            world.event(Event::Refuted(proof.clone()));
            world.settle();
            let convicted: Vec<_> = world.reasons().into_iter().map(|(peer, _)| peer).collect();
            assert!(!convicted.contains(&PeerId(honest)), "{first}: {convicted:?} of {honest}");
            // The refuted hash is remembered: a peer that claims it later is a liar.
            world.connect(4, Node::lying(&chain, &lies));
            world.settle();
            let is_liar = world.reasons().iter().any(|(peer, _)| *peer == PeerId(4));
            assert!(is_liar && world.sync.answered_to() == Some(200), "{first}, {honest}");
        }
    }
}

/// A false filter at hand convicts no peer whose claim was not compared with it.
#[test]
fn a_block_convicts_no_peer_with_another_claim() {
    let chain = TestChain::new(200);
    // The filter matches the wallet's script, and lacks that of the output.
    let mut other = chain.blocks[27].clone();
    other.txdata[1].output.clear();
    let content = BlockFilter::from_prevout_scripts(&other, &[wallet_script()]).unwrap().content;
    let liar = Node::lying(&chain, &[(27, content.clone())]);
    let mut config = World::config();
    config.first = 20;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.event(Event::Extend(10));
    world.leave(1);
    world.connect(2, slow(liar));
    world.settle();
    world.event(Event::Matched(Box::new(kept(&chain, 27, content))));
    world.connect(3, Node::honest(&chain));
    world.settle();
    world.wait(31);
    assert_eq!(world.scanned(ScanReason::Matched).iter().filter(|at| **at == 27).count(), 2);
    assert!(world.reasons().iter().all(|(peer, _)| *peer != PeerId(3)), "{:?}", world.reasons());
}

/// The block of a height below the first wanted one is fetched for a match. Claims about it were not
/// compared.
#[test]
fn a_match_below_the_first_wanted_height() {
    let chain = TestChain::new(200);
    let lie = chain.without_prevouts(27);
    let mut config = World::config();
    config.first = 100;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::lying(&chain, &[(27, lie.clone())]));
    world.settle();
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.event(Event::Matched(Box::new(kept(&chain, 27, chain.filters[27].clone()))));
    world.settle();
    assert_eq!(world.sync.filter_grade(27), None);
    world.event(Event::Refuted(refute(&chain, 27, &lie)));
    assert_eq!(world.reasons(), []);
}

/// Where a filter is no evidence, a peer is convicted of what it has claimed, until a claim was lost.
#[test]
fn a_lost_claim_may_be_of_any_peer_that_vouches() {
    let hash = |chain: &TestChain| filter_hash(&chain.filters[1]);
    let (chain, other) = (TestChain::new(1), TestChain::new(1).fork(1, 0));
    let mut claims = Claims::new(1);
    claims.report(PeerId(1), 1, &[hash(&chain)]);
    claims.answer(1, HeightAnswer::Block);
    claims.set_ambiguous(1);
    assert_eq!(claims.claimants(1, hash(&chain)), [PeerId(1)]);
    claims.report(PeerId(2), 1, &[hash(&other)]);
    assert_eq!(claims.claimants(1, hash(&chain)), []);
}

#[test]
fn a_proof_about_the_genesis_block_has_no_effect() {
    let chain = TestChain::new(10);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.event(Event::Refuted(refute(&chain, 0, &[0])));
    world.assert_complete(&chain);
}

/// A proof leaves a height that waits for its spot audit without any claim: its block is needed.
#[test]
fn a_proof_during_a_spot_audit() {
    let chain = TestChain::new(40);
    let mut config = World::config();
    config.spot_audits = 1;
    let lie = chain.without_prevouts(27);
    let mut world = World::new(&chain, config);
    world.connect(1, slow(Node::lying(&chain, &[(27, lie.clone())])));
    world.settle();
    world.event(Event::Refuted(refute(&chain, 27, &lie)));
    assert_eq!(world.sync.peers().count(), 0);
    world.connect(2, Node::honest(&chain));
    wait_long(&mut world);
    assert_eq!(world.reasons().len(), 1);
    assert_eq!(world.sync.answered_to(), Some(40));
}

#[test]
fn too_many_claims_during_spot_audits() {
    let chain = TestChain::new(40);
    let mut config = World::config();
    config.spot_audits = 1;
    config.limits.peers = 2;
    let mut world = World::new(&chain, config);
    world.connect(1, slow(Node::honest(&chain)));
    world.settle();
    for id in 2..12u64 {
        let lies = [(27, [&chain.without_prevouts(27)[..], &id.to_le_bytes()].concat())];
        world.connect(id, slow(Node::lying(&chain, &lies)));
        world.settle();
        world.leave(id);
    }
    world.leave(1);
    world.connect(20, Node::honest(&chain));
    wait_long(&mut world);
    assert_eq!(world.sync.answered_to(), Some(40));
}

/// A claim that differs, and whose filter is at hand, is not dropped with a spot audit for which nobody has the
/// block.
#[test]
fn a_dispute_during_a_spot_audit() {
    let chain = TestChain::new(40);
    let lies = [(27, chain.without_prevouts(27))];
    let lacking = |mut node: Node| {
        node.twist = Some(std::rc::Rc::new(|events| {
            for event in events {
                if let Event::Block(Some(id), block) = event {
                    *event = Event::BlockUnavailable(*id, block.block_hash());
                }
            }
        }));
        node
    };
    for stays in [false, true] {
        let mut config = World::config();
        config.spot_audits = 1;
        let mut world = World::new(&chain, config);
        world.connect(1, lacking(Node::lying(&chain, &lies)));
        let blocks = world.deliver(|message| !is_block(message));
        world.connect(2, lacking(Node::honest(&chain)));
        let more = world.deliver(|message| !is_block(message));
        assert!(world.sync.is_disputed(40));
        if !stays {
            world.leave(2);
        }
        world.queue.extend(blocks.into_iter().chain(more));
        world.settle();
        assert_eq!(world.known.get(&27), None, "{stays}: a disputed filter is handed over");
        world.connect(3, Node::lying(&chain, &lies));
        wait_long(&mut world);
        assert!(world.hits.contains(&27), "{stays}: {:?}", world.grade(27));
    }
}

/// A liar makes its claims again after a reorganisation, and now they are true: an honest peer has claimed the
/// same before.
#[test]
fn a_liar_that_turns_honest_ends_the_dispute() {
    let chain = TestChain::new(60);
    let fork = chain.fork(50, 1);
    let lies: Vec<_> = (1..=40).map(|height| (height, vec![0, 1, 2])).collect();
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.connect(2, Node::honest(&chain));
    let held = world.deliver(|message| {
        is_headers(message) || matches!(message, NetworkMessage::GetCFCheckpt(_))
    });
    world.move_to(&fork);
    // The liar sends its false filters, which it was asked for before.
    let of_liar =
        |(peer, message): &&(PeerId, NetworkMessage)| *peer == PeerId(1) && !is_block(message);
    for (peer, message) in held.iter().filter(of_liar) {
        for event in world.nodes[peer].clone().answer(*peer, message) {
            world.event(event);
        }
    }
    for id in [1, 2] {
        world.nodes.insert(PeerId(id), Node::honest(&fork));
        world.event(Event::PeerTip(PeerId(id), fork.hash(fork.tip())));
        let later = world.deliver(is_headers);
        world.queue.extend(later);
    }
    world.queue.extend(held.into_iter().filter(|(peer, _)| *peer == PeerId(2)));
    wait_long(&mut world);
    let disputes = |world: &World| {
        let findings = world.findings().into_iter();
        findings.filter(|it| matches!(it, Finding::Disputed { .. })).count()
    };
    let before = disputes(&world);
    world.wait(1);
    assert_eq!(disputes(&world), before);
    assert_eq!(world.sync.answered_to(), Some(fork.tip()));
}

/// A peer that shows a lower block after a reorganisation still vouches for what it has claimed above that
/// block, so that an honest claim stays in dispute with its own.
#[test]
fn a_peer_with_a_lower_tip_withdraws_no_claim() {
    let chain = TestChain::new(60);
    let fork = chain.fork(50, 1);
    let lies = [(45, vec![0, 1, 2])];
    for order in [[1, 2], [2, 1]] {
        let mut world = World::new(&chain, World::config());
        world.connect(1, Node::lying(&chain, &lies));
        world.connect(2, Node::honest(&chain));
        let held = world.deliver(is_headers);
        world.move_to(&fork);
        for id in order {
            let (lies, tip) = if id == 1 { (&lies[..], 40) } else { (&[][..], fork.tip()) };
            world.nodes.insert(PeerId(id), Node::lying(&fork, lies));
            world.event(Event::PeerTip(PeerId(id), fork.hash(tip)));
            let later = world.deliver(is_headers);
            world.queue.extend(later);
        }
        for (peer, message) in &held {
            let lies = if *peer == PeerId(1) { &lies[..] } else { &[] };
            for event in Node::lying(&chain, lies).answer(*peer, message) {
                world.event(event);
            }
        }
        wait_long(&mut world);
        assert_eq!(world.sync.answered_to(), Some(fork.tip()), "{order:?}");
    }
}

/// The same with an honest peer that has left, and whose filter is at hand.
#[test]
fn a_departed_peer_vouches_for_no_other_hash() {
    let chain = TestChain::new(60);
    let fork = chain.fork(50, 1);
    let lies = [(47, chain.without_prevouts(47))];
    let mut world = World::new(&chain, World::config());
    world.connect(1, slow(Node::lying(&chain, &lies)));
    world.settle();
    assert_eq!(world.grade(47), Some(Grade::OnePeer));
    world.connect(2, slow(Node::honest(&chain)));
    world.settle();
    world.leave(2);
    world.move_to(&fork);
    let mut liar = slow(Node::lying(&fork, &lies));
    liar.chain.truncate(41);
    let tip = liar.chain.hash(40);
    world.nodes.insert(PeerId(1), liar);
    world.event(Event::PeerTip(PeerId(1), tip));
    world.settle();
    assert!(world.sync.is_disputed(60), "the dispute is lost: {:?}", world.grade(47));
}

/// A liar that comes back is one peer, whoever was connected with it.
#[test]
fn a_peer_that_differs_is_not_counted() {
    let chain = TestChain::new(60);
    let lie = chain.without_prevouts(27);
    let liar = Node::lying(&chain, &[(27, lie.clone())]);
    let mut world = World::new(&chain, World::config());
    world.connect(1, liar.clone());
    world.settle();
    // The honest peer claims, and its connection breaks before anything else arrives.
    world.connect(2, Node::honest(&chain));
    world.deliver(is_headers);
    world.leave(1);
    world.connect(3, liar);
    world.deliver(is_headers);
    let during = world.grade(27);
    world.leave(2);
    assert_eq!(world.sync.filter_hash(27), Some(filter_hash(&lie)));
    let (config, bytes) = (world.sync.config.clone(), world.sync.encode(&world.headers));
    let restored = FilterSync::restore(config, &world.headers, &bytes).unwrap();
    let grades = [during, world.grade(27), world.sync.filter_grade(27), restored.grade(27)];
    assert_eq!(grades, [Some(Grade::OnePeer); 4]);
}

/// Two peers were connected together. What one of them has claimed is dropped with it, so that it is no longer
/// one of two, and whoever connects then may be the other one.
#[test]
fn a_peer_whose_claims_were_dropped_is_not_counted() {
    let chain = TestChain::new(60);
    let mut world = World::new(&chain, World::config());
    for id in [1, 2] {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    assert_eq!(world.grade(51), Some(Grade::Peers(2)));
    world.leave(2);
    world.event(Event::Rescan(30..=60));
    world.queue.clear();
    world.leave(1);
    world.connect(3, Node::honest(&chain));
    world.settle();
    assert_eq!(world.grade(51), Some(Grade::OnePeer));
}

/// A filter that was audited says nothing about the blocks below.
#[test]
fn an_audited_filter_grades_no_other() {
    let chain = TestChain::new(45);
    let lies = [(41, vec![0])];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    assert_eq!(world.grade(45), Some(Grade::Scanned));
    let filter = kept(&chain, 45, chain.filters[45].clone());
    world.known.insert(45, Known::Filter(filter));
    world.event(Event::Unmatched(chain.at(45), filter_hash(&chain.filters[45])));
    assert_eq!(world.grade(45), Some(Grade::Audited));
    world.actions.clear();
    world.connect(2, Node::lying(&chain, &lies));
    world.settle();
    assert!(world.actions.iter().any(|action| matches!(action, Action::Graded(..))));
    for (height, grade) in [(41, Grade::Peers(2)), (45, Grade::Audited)] {
        let Known::Filter(filter) = &world.known[&height] else { panic!("{height}") };
        assert_eq!((filter.grade, world.grade(height)), (grade, Some(grade)), "{height}");
    }
}

/// Liars that send a filter which its block does not refute, and leave before the block arrives, are
/// remembered up to the limit.
#[test]
fn departed_liars_are_bounded() {
    let chain = TestChain::new(1_010);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    for (id, height) in (2..).zip((13..1_000).step_by(10)) {
        world.connect(id, Node::lying(&chain, &[(height, chain.without_prevouts(height))]));
        let blocks = world.deliver(|message| !is_block(message));
        assert!(!blocks.is_empty(), "{height} is not disputed");
        world.leave(id);
        world.queue.extend(blocks);
        world.settle();
    }
    assert_eq!(world.reasons(), []);
    assert!(!world.sync.is_disputed(1_010));
    let most = MAX_VOUCHERS + world.sync.config.limits.peers;
    for (number, interval) in world.sync.claims.intervals() {
        assert!(interval.vouchers.len() <= most, "{number}: {}", interval.vouchers.len());
    }
}

/// An honest node that answers requests from before a reorganisation is not blamed, even if there are
/// more of them than are remembered.
#[test]
fn many_stale_requests_blame_no_honest_peer() {
    let chain = TestChain::new(500);
    let fork = chain.fork(5, 1);
    let mut config = World::config();
    // Filters of hits are not kept, so they are requested again one by one.
    config.limits.kept_bytes = 0;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::honest(&chain));
    // All messages but requests for single filters.
    let single = |message: &NetworkMessage| match message {
        NetworkMessage::GetCFilters(message) => {
            chain.hash(message.start_height) == message.stop_hash
        }
        other => is_block(other),
    };
    let held = world.deliver(|message| !single(message));
    world.move_to(&fork);
    // The node answers what it was asked before.
    let old = Node::honest(&chain);
    for (peer, message) in held {
        for event in old.answer(peer, &message) {
            world.event(event);
        }
    }
    let blamed: Vec<_> =
        world.reasons().into_iter().filter(|(_, it)| it.is_misbehaviour()).collect();
    assert_eq!(blamed, []);
}

/// A withdrawn answer is reported, even if a proof is one too many to be remembered.
#[test]
fn a_proof_that_is_not_remembered_withdraws_visibly() {
    let chain = TestChain::new(40);
    let mut world = World::new(&chain, World::config());
    world.connect(1, slow(Node::honest(&chain)));
    world.settle();
    for salt in 0..20u32 {
        let scripts = [bitcoin::ScriptBuf::from(salt.to_le_bytes().to_vec())];
        let mut other = chain.blocks[21].clone();
        other.txdata[0].output[0].script_pubkey = scripts[0].clone();
        let other = BlockFilter::from_prevout_scripts::<bitcoin::ScriptBuf>(&other, &[]).unwrap();
        world.event(Event::Refuted(refute(&chain, 21, &other.content)));
    }
    let is_known = matches!(world.known.get(&21), Some(Known::Filter(_)));
    let grade = world.grade(21);
    assert!(is_known);
    assert_eq!(grade.is_none(), world.reopened.contains(&21), "{grade:?}");
}

/// A peer that now claims another hash does not count for the hash of before.
#[test]
fn a_claim_that_was_taken_back_is_not_counted() {
    let chain = TestChain::new(60);
    let fork = chain.fork(50, 1);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.leave(2);
    world.move_to(&fork);
    let lie = fork.without_prevouts(23);
    world.nodes.insert(PeerId(1), slow(Node::lying(&fork, &[(23, lie)])));
    world.event(Event::PeerTip(PeerId(1), fork.hash(fork.tip())));
    world.deliver(is_headers);
    // The second party is back.
    world.connect(3, slow(Node::honest(&fork)));
    world.deliver(is_headers);
    assert!(world.sync.is_disputed(60));
    assert_eq!(world.grade(23), Some(Grade::OnePeer));
}

/// An audit confirms an answer, whoever is convicted.
#[test]
fn an_audited_answer_is_not_withdrawn() {
    let chain = TestChain::new(60);
    let mut world = World::new(&chain, World::config());
    let lie = chain.without_prevouts(23);
    world.connect(1, Node::lying(&chain, &[(23, lie.clone())]));
    world.settle();
    let filter = kept(&chain, 45, chain.filters[45].clone());
    world.known.insert(45, Known::Filter(filter));
    world.event(Event::Unmatched(chain.at(45), filter_hash(&chain.filters[45])));
    assert_eq!(world.grade(45), Some(Grade::Audited));
    world.event(Event::Refuted(refute(&chain, 23, &lie)));
    assert_eq!((world.grade(45), world.reopened.contains(&45)), (Some(Grade::Audited), false));
}

/// Those who were counted together are convicted without being known individually: their number does not
/// count for the hash that replaces theirs.
#[test]
fn convicted_strangers_are_not_counted() {
    let chain = TestChain::new(60);
    let mut low = chain.clone();
    low.truncate(21);
    let lie = chain.without_prevouts(23);
    let liar = Node::lying(&chain, &[(23, lie.clone())]);
    let mut world = World::new(&chain, World::config());
    // One honest party comes and goes.
    for id in 1..=32 {
        world.connect(id, Node::honest(&low));
        world.settle();
        world.leave(id);
    }
    // Two liars, connected together.
    for id in [101, 102] {
        world.connect(id, liar.clone());
        world.settle();
    }
    assert_eq!(world.grade(23), Some(Grade::Peers(2)));
    world.leave(102);
    world.connect(33, Node::honest(&low));
    world.settle();
    world.leave(101);
    // The honest party shows the whole chain, and claims another filter.
    world.nodes.insert(PeerId(33), Node { mute: is_block, ..Node::honest(&chain) });
    world.event(Event::PeerTip(PeerId(33), chain.hash(60)));
    world.deliver(|message| !is_block(message));
    assert!(world.sync.is_disputed(60));
    world.event(Event::Refuted(refute(&chain, 23, &lie)));
    world.deliver(|message| !is_block(message));
    assert_eq!(world.reasons(), []);
    assert_eq!(world.grade(23), Some(Grade::OnePeer));
    // The honest party connects again.
    world.leave(33);
    world.connect(34, Node::honest(&chain));
    world.settle();
    assert_eq!(world.grade(23), Some(Grade::OnePeer), "one party has claimed this filter");
}
