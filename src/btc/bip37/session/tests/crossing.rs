//! Random runs with an honest node, in which messages, filter changes and reconnections overlap.

use super::node::{World, chain, is_complaint, show, stranger, truth, watched};
use crate::btc::bip37::session::blocks::ping_nonce;
use crate::btc::bip37::session::{Event, FilterPolicy, Finding, HeightEvidence, OmissionEvidence};
use crate::btc::bip37::{MerkleBlockError, UpdateMode};
use crate::btc::merkle_tree::MerklePath;
use bitcoin::Network;
use testkit::Rng;

fn policy() -> FilterPolicy {
    FilterPolicy::new(0xdead_beef)
}

/// Filters are replaced and extended, connections break, and blocks are requested again. If the
/// wallet requests blocks again from the block that the session names, nothing is missed.
#[test]
fn nothing_is_missed_whatever_crosses() {
    for seed in 1..120 {
        let rng = &mut Rng::new(seed);
        let (blocks, own) = chain(rng, 12, 8);
        let update =
            [UpdateMode::All, UpdateMode::None, UpdateMode::P2PubkeyOnly][seed as usize % 3];
        let use_filteradd = rng.one_in(2);
        let mut world =
            World::new(FilterPolicy { update, use_filteradd, spare: 40, ..policy() }, blocks);
        world.event(Event::Watch((0..8).map(watched).collect()));
        world.event(Event::Connected);
        world.request_from(0);
        let mut seen = 0;
        for step in 0..300 {
            match rng.below(60) {
                0 => world.event(Event::Refresh),
                1 => world.event(Event::Watch(vec![watched(100 + step)])),
                2 if rng.one_in(3) => world.reconnect(),
                3..30 => drop(world.node_step()),
                _ => drop(world.session_step()),
            }
            while seen < world.findings.len() {
                if let Finding::Refilter(from) = world.findings[seen] {
                    world.request_from(from.height as usize);
                }
                seen += 1;
            }
        }
        while seen < world.findings.len() || world.node_step() || world.session_step() {
            for finding in world.findings.split_off(seen) {
                if let Finding::Refilter(from) = finding {
                    world.request_from(from.height as usize);
                }
                world.findings.insert(seen, finding);
                seen += 1;
            }
        }
        assert_eq!(world.session.pending_requests(), 0);
        assert_eq!(world.count(is_complaint), 0, "seed {seed}");
        assert_eq!(world.relevant(), own, "seed {seed}, {update:?}, filteradd {use_filteradd}");
    }
}

/// No transaction of any block is ever evidence against an honest node, if its answer is judged with
/// the filter that the node had, whatever the node is sent.
#[test]
fn no_evidence_against_an_honest_node() {
    let mut claims = 0;
    for seed in 1..60 {
        let rng = &mut Rng::new(seed);
        let (blocks, _) = chain(rng, 16, 12);
        let use_filteradd = rng.one_in(2);
        let update =
            [UpdateMode::All, UpdateMode::None, UpdateMode::P2PubkeyOnly][seed as usize % 3];
        // The filter has a high false-positive rate, so that the claims include false positives.
        let fpr = 0.02;
        let mut world =
            World::new(FilterPolicy { use_filteradd, update, fpr, spare: 3, ..policy() }, blocks);
        world.event(Event::Watch(vec![watched(0)]));
        world.event(Event::Connected);
        world.request_from(0);
        for step in 0..400 {
            match rng.below(40) {
                0 => world.event(Event::Watch(vec![watched(step % 12)])),
                1 => world.event(Event::Refresh),
                2 => world.event(Event::Other),
                3 => world.event(Event::Request(vec![world.at(rng.below(16))])),
                4 => world.event(Event::Reorganized(10 + rng.below(6) as u32)),
                5 if rng.one_in(4) => world.reconnect(),
                7 => world.slow = rng.one_in(8),
                6 => {
                    let tx = stranger(rng);
                    world.to_session.push_back(Event::Tx(tx));
                }
                8..20 => drop(world.node_step()),
                _ => drop(world.session_step()),
            }
        }
        world.slow = false;
        world.sync(2);
        claims += claim_everything(&world);
    }
    // Many claims were tested against an answer, so the test is not empty.
    assert!(claims > 20_000, "{claims}");
}

/// Presents, for every answer and every transaction of its block, the evidence that it was omitted,
/// also with paths that start at a wrong level. Returns the number of claims.
fn claim_everything(world: &World) -> usize {
    let mut claims = 0;
    for (filter, merkle_block) in &world.answers {
        let hash = merkle_block.header.block_hash();
        let block = world.blocks.iter().find(|block| block.block_hash() == hash).unwrap();
        for index in 0..block.txdata.len() as u32 {
            let shown = show(block, index);
            let mut shorter = shown.clone();
            shorter.path = MerklePath {
                index: index / 2,
                siblings: shown.path.siblings.get(1..).unwrap_or_default().to_vec(),
            };
            for shown in [shown, shorter] {
                let (filter, merkle_block) = (filter.clone(), merkle_block.clone());
                let height =
                    HeightEvidence { merkle_block: merkle_block.clone(), coinbase: shown.clone() };
                let omission = OmissionEvidence { filter, merkle_block, omitted: shown };
                let errors: [MerkleBlockError; 2] = [
                    omission.verify(Network::Regtest).unwrap_err(),
                    height.verify(Network::Regtest).unwrap_err(),
                ];
                claims += errors.len();
            }
        }
    }
    claims
}

/// Messages in any order and with any contents never cause a panic.
#[test]
fn garbage_in_any_order() {
    let rng = &mut Rng::new(4);
    let (blocks, _) = chain(rng, 8, 4);
    let mut world = World::new(policy(), blocks);
    for step in 0..20_000 {
        let block = world.blocks[rng.below(8)].clone();
        let count = block.txdata.len() as u32;
        let index = rng.below(count as usize) as u32;
        let event = match rng.below(16) {
            0 if rng.one_in(20) => Event::Connected,
            1 if rng.one_in(20) => Event::Disconnected,
            2 => Event::Watch(vec![watched(step % 50)]),
            3 => Event::Request(vec![world.at(rng.below(8))]),
            4 => Event::Pong(rng.u64() >> 24),
            5 => Event::Pong(ping_nonce(u64::from(policy().tweak) << 31 | rng.below(2_000) as u64)),
            6 => Event::Reorganized(rng.below(16) as u32),
            7..=9 => Event::Tx(block.txdata[index as usize].clone()),
            10 => Event::Tx(stranger(rng)),
            11 => Event::Tip(rng.below(20) as u32),
            12 => Event::Other,
            _ => {
                let mut merkle_block = truth(&block, &[index]).0;
                match rng.below(6) {
                    0 => merkle_block.num_transactions = rng.u32(),
                    1 => merkle_block.hashes.truncate(rng.below(4)),
                    2 => merkle_block.flags = vec![rng.below(256) as u8],
                    _ => {}
                }
                Event::MerkleBlock(merkle_block)
            }
        };
        world.event(event);
        world.to_node.clear();
    }
    assert!(world.count(|f| matches!(f, Finding::Block { .. })) > 100);
    assert!(world.count(|f| matches!(f, Finding::InvalidMerkleBlock(..))) > 100);
}
