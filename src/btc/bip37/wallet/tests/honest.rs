//! What an honest node's wallet finds, and that nothing is held against the node.

use bitcoin::{Block, OutPoint, PublicKey, ScriptBuf, Txid};

use super::node::{Random, World, block, script, show, stranger, tx, watched};
use crate::btc::bip37::wallet::{
    Event, EvidenceError, FilterPolicy, Finding, Label, PrivacyReport, RefreshReason, Watched,
};
use crate::btc::bip37::{Depth, HeaderLink, MerklePath, UpdateMode};

fn policy() -> FilterPolicy {
    FilterPolicy::new(0xdead_beef)
}

/// A chain that pays to and spends from scripts below `scripts`, in and across blocks; with the
/// ids of those transactions, sorted.
fn chain(random: &mut Random, length: u32, scripts: u32) -> (Vec<Block>, Vec<Txid>) {
    let (mut coins, mut own) = (Vec::<OutPoint>::new(), Vec::new());
    let mut blocks = Vec::new();
    for height in 0..length {
        let mut txdata = Vec::new();
        for _ in 0..random.below(12) {
            let pick = random.below(6);
            let tx = match pick {
                0 => {
                    let to = script(random.below(u64::from(scripts)) as u32);
                    tx(
                        &stranger(random)
                            .input
                            .iter()
                            .map(|i| i.previous_output)
                            .collect::<Vec<_>>(),
                        &[script(1_500_000), to],
                    )
                }
                1 if !coins.is_empty() => {
                    let coin = coins.swap_remove(random.below(coins.len() as u64) as usize);
                    tx(&[coin], &[script(1_600_000 + height)])
                }
                _ => stranger(random),
            };
            let txid = tx.compute_txid();
            match pick {
                0 => coins.push(OutPoint::new(txid, 1)),
                1 if tx.output.len() == 1 => {}
                _ => {
                    txdata.push(tx);
                    continue;
                }
            }
            own.push(txid);
            txdata.push(tx);
        }
        blocks.push(block(height, txdata));
    }
    own.sort_unstable();
    (blocks, own)
}

fn is_complaint(finding: &Finding) -> bool {
    !matches!(
        finding,
        Finding::Relevant(_)
            | Finding::FalsePositive(..)
            | Finding::Block(_)
            | Finding::KeychainAdvanced { .. }
            | Finding::Refilter(_)
            | Finding::Privacy(_)
            | Finding::RefreshAdvised(_)
            | Finding::NoEvidence(..)
    )
}

#[test]
fn everything_of_the_wallet_is_found() {
    for seed in 1..30 {
        let (blocks, own) = chain(&mut Random(seed), 30, 8);
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
    // One index a block, two in some, and all in one at the end: past any look-ahead of 1.
    let pay = |random: &mut Random, index| {
        let from = stranger(random).input[0].previous_output;
        tx(&[from], &[script(index)])
    };
    let random = &mut Random(77);
    let mut blocks: Vec<_> = [&[0][..], &[1, 2], &[], &[3], &[4, 6, 5]]
        .iter()
        .zip(0..)
        .map(|(indices, height)| {
            block(height, indices.iter().map(|&index| pay(random, index)).collect())
        })
        .collect();
    blocks.push(block(9, (7..12).map(|index| pay(random, index)).collect()));
    let mut own: Vec<_> = blocks
        .iter()
        .flat_map(|b| b.txdata[1..].iter().map(bitcoin::Transaction::compute_txid))
        .collect();
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

/// The node inserted an outpoint into a filter that was on its way out.
#[test]
fn an_outpoint_lost_with_the_filter_before_is_noticed() {
    let receive = tx(
        &stranger(&mut Random(5)).input.iter().map(|i| i.previous_output).collect::<Vec<_>>(),
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
    world.event(Event::Refresh); // behind the request, before its answer
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
    let (blocks, own) = chain(&mut Random(3), 12, 4);
    let mut world = World::new(FilterPolicy { insert_null_outpoint: true, ..policy() }, blocks);
    world.event(Event::Watch((0..4).map(watched).collect()));
    world.event(Event::Connected);
    // Each of the wallet's transactions was relayed before; blocks then leave them out.
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
        if let Finding::Block(proof) = finding {
            assert!(matches!(proof.depth, Depth::Coinbase(_)));
            let height = proof.header.time;
            let confirmations = 21 - height;
            assert_eq!(proof.link, HeaderLink::InChain { height, confirmations });
            proven += 1;
        }
    }
    assert_eq!(proven, 12);
    assert_eq!(world.session.match_stats().false_positives, 0);
}

/// Whatever an honest node is sent, and in whatever order things cross: no transaction of any
/// block is ever evidence against it.
#[test]
fn no_evidence_against_an_honest_node() {
    let mut claims = 0;
    for seed in 1..60 {
        let random = &mut Random(seed);
        let (blocks, _) = chain(random, 16, 12);
        let use_filteradd = random.one_in(2);
        let update =
            [UpdateMode::All, UpdateMode::None, UpdateMode::P2PubkeyOnly][seed as usize % 3];
        // A coarse filter, so that false positives are among the claims.
        let fpr = 0.02;
        let mut world =
            World::new(FilterPolicy { use_filteradd, update, fpr, spare: 3, ..policy() }, blocks);
        world.event(Event::Watch(vec![watched(0)]));
        world.event(Event::Connected);
        world.request_from(0);
        for step in 0..400 {
            match random.below(40) {
                0 => world.event(Event::Watch(vec![watched(step % 12)])),
                1 => world.event(Event::Refresh),
                2 => world.event(Event::Other),
                3 => world.event(Event::Request(vec![world.at(random.below(16) as usize)])),
                4 => world.event(Event::Reorganized(10 + random.below(6) as u32)),
                5 if random.one_in(4) => world.reconnect(),
                7 => world.slow = random.one_in(8),
                6 => {
                    let tx = stranger(random);
                    world.to_session.push_back(Event::Tx(tx));
                }
                8..20 => drop(world.node_step()),
                _ => drop(world.session_step()),
            }
            if random.one_in(20) {
                claims += claim_everything(&mut world);
            }
        }
        world.slow = false;
        world.sync(2);
        claims += claim_everything(&mut world);
    }
    // Many were held against an answer: the test is not empty.
    assert!(claims > 20_000, "{claims}");
}

/// Claims every transaction of every block, and paths that start elsewhere. Returns how many
/// claims met an answer.
fn claim_everything(world: &mut World) -> usize {
    let before = world.findings.len();
    for block in world.blocks.clone() {
        let hash = block.block_hash();
        for index in 0..block.txdata.len() as u32 {
            let shown = show(&block, index);
            let mut shorter = shown.clone();
            shorter.path = MerklePath {
                index: index / 2,
                siblings: shown.path.siblings.get(1..).unwrap_or_default().to_vec(),
            };
            world.event(Event::OmissionClaim(hash, shown.clone()));
            world.event(Event::OmissionClaim(hash, shorter.clone()));
            world.event(Event::HeightClaim(hash, shown));
            world.event(Event::HeightClaim(hash, shorter));
        }
    }
    let claims = &world.findings[before..];
    for finding in claims {
        assert!(matches!(finding, Finding::NoEvidence(..)), "{finding:?}");
    }
    let met = claims
        .iter()
        .filter(|finding| !matches!(finding, Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
    met.count()
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
    // Once at first, once when the size changed; not when a filter of one size was sent again.
    assert_eq!(reports.iter().map(|r| r.parameters_changed).collect::<Vec<_>>(), [false, true]);
    assert!(reports[1].to_string().contains("changed"), "{}", reports[1]);
    assert!(reports[0].to_string().contains("fewer than 15"), "{}", reports[0]);
    // Restored with tweak and capacity, the filter is the same.
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
        world.event(Event::Watch(vec![
            Watched::Key { key, label },
            Watched::Script { script: nothing.clone(), label: None },
        ]));
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
    let random = &mut Random(9);
    let blocks: Vec<_> =
        (0..20).map(|height| block(height, (0..40).map(|_| stranger(random)).collect())).collect();
    let mut world = World::new(policy(), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world.settle();
    // The node inserts a lot for transactions that it relays to others.
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
