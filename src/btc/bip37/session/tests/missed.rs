//! Tests of transactions that could be missed between a keychain's advance and its new scripts.

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, ScriptBuf, Transaction, Txid, WPubkeyHash};

use super::node::{World, block, chain, script, truth, tx, watched};
use crate::btc::bip37::UpdateMode;
use crate::btc::bip37::session::{Event, FilterPolicy, Finding, Message};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::{Label, WatchItem};
use testkit::Rng;

/// Returns a transaction that pays to the wallet's script number `index`.
fn pay(index: u32) -> Transaction {
    tx(&[OutPoint::new(Txid::hash(&index.to_le_bytes()), 0)], &[script(index)])
}

/// Returns a world whose session watches the scripts with numbers below `scripts`.
fn world(scripts: u32, blocks: Vec<bitcoin::Block>) -> World {
    let mut world = World::new(FilterPolicy::new(7), blocks);
    world.event(Event::Watch((0..scripts).map(watched).collect()));
    world.event(Event::Connected);
    world.settle();
    world
}

/// An unconfirmed transaction reveals an index, and blocks are answered before the following
/// scripts are watched.
#[test]
fn a_block_between_an_unconfirmed_advance_and_its_scripts() {
    let (five, twenty) = (pay(5), pay(20));
    let want = twenty.compute_txid();
    let blocks = vec![block(0, vec![]), block(1, vec![five.clone(), twenty]), block(2, vec![])];
    let mut world = world(6, blocks);
    world.event(Event::Tx(five));
    let advanced = |finding: &Finding| matches!(finding, Finding::KeychainAdvanced { .. });
    assert_eq!(world.count(advanced), 1);
    world.request_from(1);
    world.settle();
    world.event(Event::Watch((6..26).map(watched).collect()));
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(world.at(1))));
    world.request_from(1);
    world.settle();
    assert!(world.relevant().contains(&want));
}

/// Runs until nothing is in flight. Where the session asks to filter again, requests the blocks that `again`
/// returns.
fn run(world: &mut World, again: impl Fn(&World, BlockAt) -> Vec<BlockAt>) {
    while world.handled < world.findings.len() || world.node_step() || world.session_step() {
        let Some(finding) = world.findings.get(world.handled).cloned() else { continue };
        world.handled += 1;
        if let Finding::Refilter(from) | Finding::RefilterEarlier(from) = finding {
            let blocks = again(world, from);
            world.event(Event::Request(blocks));
        }
    }
}

/// Returns the blocks of the world from a height on.
fn from(world: &World, from: BlockAt) -> Vec<BlockAt> {
    (from.height as usize..world.blocks.len()).map(|number| world.at(number)).collect()
}

/// Returns a transaction that pays to script 3, and one that spends the coin.
fn coin_and_spend() -> [Transaction; 2] {
    let three = pay(3);
    let spend = tx(&[OutPoint::new(three.compute_txid(), 0)], &[script(1_000_000)]);
    [three, spend]
}

/// Returns a world with four blocks, of which block 1 has the coin of [`coin_and_spend`] and block 2 its spend.
/// All are requested, and the node has answered. Further scripts then came, so that these answers are superseded.
/// It passes over block 2 in them, and over block 1 from now on.
fn world_with_superseded_coin() -> World {
    let [three, spend] = coin_and_spend();
    let blocks = [vec![], vec![three], vec![spend], vec![]];
    let blocks = (0..).zip(blocks).map(|(height, own)| block(height, own)).collect();
    let mut world = world(6, blocks);
    world.withheld = Some(world.at(2).hash);
    world.request_from(0);
    while world.node_step() {}
    world.withheld = Some(world.at(1).hash);
    world.event(Event::Watch((6..9).map(watched).collect()));
    world
}

/// A superseded answer shows a coin, and the node passes over its block the second time, so that it does not
/// insert the coin into the new filter. The filter has the coin before the block that spends it is requested.
#[test]
fn a_coin_of_a_block_that_is_passed_over_the_second_time() {
    let mut world = world_with_superseded_coin();
    run(&mut world, from);
    let mut own = coin_and_spend().map(|tx| tx.compute_txid());
    own.sort_unstable();
    assert_eq!(world.relevant(), own);
}

/// The script of such a coin is no longer watched. No filter without its elements is sent, which would show them
/// by the difference.
#[test]
fn a_superseded_coin_of_a_removed_script() {
    let mut world = world_with_superseded_coin();
    let is_load = |message: &Message| matches!(message, Message::FilterLoad(_));
    world.event(Event::Unwatch { scripts: (6..9).collect(), outpoints: vec![] });
    while world.relevant().is_empty() {
        assert!(world.session_step());
    }
    world.event(Event::Unwatch { scripts: vec![3], outpoints: vec![] });
    while world.session_step() {}
    assert!(!world.to_node.iter().any(is_load));
    world.request_from(0);
    assert!(!world.to_node.is_empty());
    while world.node_step() || world.session_step() {
        assert!(!world.to_node.iter().any(is_load));
    }
}

/// A superseded answer of a block that left the chain shows a coin. In the new branch the coin is lower, in a
/// block that the node passes over, and the next block spends it.
#[test]
fn a_superseded_coin_that_is_lower_in_another_branch() {
    let [three, spend] = coin_and_spend();
    let want = spend.compute_txid();
    let contents = [vec![], vec![], vec![three.clone()], vec![three], vec![spend], vec![]];
    let heights = [0, 6, 7, 5, 6, 7];
    let blocks = (0..).zip(contents).map(|(number, own)| block(number, own)).collect();
    for leaves_first in [false, true] {
        let blocks: &Vec<_> = &blocks;
        let mut world = world(6, blocks.clone());
        let at =
            |world: &World, number: usize| BlockAt { height: heights[number], ..world.at(number) };
        let old = (0..3).map(|number| at(&world, number)).collect();
        world.event(Event::Request(old));
        while world.node_step() {}
        world.event(Event::Watch((6..9).map(watched).collect()));
        // The answers arrive before or after the branch is left.
        if leaves_first {
            world.event(Event::Reorganized(5));
        }
        while world.session_step() {}
        assert_eq!(world.relevant().len(), 1);
        if !leaves_first {
            world.event(Event::Reorganized(5));
        }
        world.withheld = Some(world.at(3).hash);
        let new = [at(&world, 3), at(&world, 4)];
        let from = |_: &World, from: BlockAt| {
            new.into_iter().filter(|block| block.height >= from.height).collect()
        };
        world.event(Event::Request(new.to_vec()));
        run(&mut world, from);
        // The caller requests again what the node has passed over.
        world.withheld = None;
        world.event(Event::Request(vec![new[0]]));
        run(&mut world, from);
        assert!(world.relevant().contains(&want), "{leaves_first}");
    }
}

/// A filter that lacks nothing replaces another one while answers are in flight, and all of these are then
/// superseded, without a new script. One of them shows a coin, which the node has inserted into the replaced filter
/// only. In the new branch the coin is in a block that the node passes over, and the next block spends it.
#[test]
fn a_coin_of_a_replaced_filter_that_is_lower_in_another_branch() {
    let three = tx(&[OutPoint::new(Txid::hash(&[3]), 0)], &[script(3)]);
    let spend = tx(&[OutPoint::new(three.compute_txid(), 0)], &[script(1_000_000)]);
    let want = spend.compute_txid();
    let contents = [vec![], vec![three.clone()], vec![three], vec![spend], vec![]];
    let heights = [0, 6, 5, 6, 7];
    for at_once in [false, true] {
        let blocks = (0..).zip(contents.clone()).map(|(number, own)| block(number, own)).collect();
        let mut world = World::new(FilterPolicy::new(7), blocks);
        let at =
            |world: &World, number: usize| BlockAt { height: heights[number], ..world.at(number) };
        // Without a label, no keychain advances, which would lead to another search.
        world.event(Event::Watch(vec![WatchItem::Script { script: script(3), label: None }]));
        world.event(Event::Connected);
        world.event(Event::Request((0..2).map(|number| at(&world, number)).collect()));
        while world.node_step() {}
        world.event(Event::Refresh);
        world.event(Event::Reorganized(0));
        world.withheld = Some(at(&world, 2).hash);
        let new: Vec<_> = (2..5).map(|number| at(&world, number)).collect();
        if at_once {
            world.event(Event::Request(new.clone()));
            let is_request = |message: &Message| matches!(message, Message::GetFilteredBlocks(_));
            assert!(!world.to_node.iter().any(is_request), "superseded answers are outstanding");
            while world.node_step() {}
        }
        while world.session_step() {}
        assert_eq!(world.relevant().len(), 1);
        if !at_once {
            world.event(Event::Request(new.clone()));
        }
        let from = |_: &World, from: BlockAt| {
            new.iter().copied().filter(|block| block.height >= from.height).collect()
        };
        run(&mut world, from);
        world.withheld = None;
        world.event(Event::Request(vec![new[0]]));
        run(&mut world, from);
        assert!(world.relevant().contains(&want), "{at_once}");
    }
}

/// No filter is large enough for such a coin. No block is requested until the wallet is smaller, and then the block
/// that spends the coin is filtered with it.
#[test]
fn no_filter_for_a_superseded_coin() {
    // The largest number of elements at the policy's rate.
    let limit = 144_000;
    // A filter this large has the coin by chance, more often than not.
    let is_told = (0..20).any(|salt| {
        let mut three = pay(3);
        three.version = bitcoin::transaction::Version(100 + salt);
        let spend = tx(&[OutPoint::new(three.compute_txid(), 0)], &[script(1_000_000)]);
        let (coin, want) = (three.compute_txid(), spend.compute_txid());
        let blocks = [vec![], vec![three], vec![spend], vec![]];
        let blocks = (0..).zip(blocks).map(|(height, own)| block(height, own)).collect();
        let mut world = World::new(FilterPolicy { spare: 0, ..FilterPolicy::new(7) }, blocks);
        world.event(Event::Watch((0..limit - 1).map(watched).collect()));
        world.event(Event::Connected);
        world.settle();
        world.withheld = Some(world.at(2).hash);
        world.request_from(0);
        while world.node_step() {}
        world.withheld = Some(world.at(1).hash);
        world.event(Event::Watch((limit - 1..limit).map(watched).collect()));
        run(&mut world, from);
        assert!(world.relevant().contains(&coin));
        let is_told = world.count(|finding| matches!(finding, Finding::NoFilter(_))) > 0;
        if is_told {
            assert!(!world.relevant().contains(&want));
            world.event(Event::Unwatch { scripts: (1_000..2_000).collect(), outpoints: vec![] });
            world.event(Event::Refresh);
            run(&mut world, from);
        }
        assert!(world.relevant().contains(&want));
        is_told
    });
    assert!(is_told);
}

/// A transaction of a block that left the chain is delivered late. It is not confirmed, and the session does not
/// ask for the block again.
#[test]
fn a_late_transaction_of_a_dropped_block() {
    let mut world = world(6, vec![block(7, vec![pay(5)])]);
    world.lie = |block, matched| Some((truth(block, matched).0, vec![]));
    world.request_from(0);
    world.event(Event::Reorganized(0));
    world.settle();
    world.event(Event::Tx(pay(5)));
    assert_eq!(unconfirmed(&world, &pay(5)), 1);
    let is_confirmed =
        |finding: &Finding| matches!(finding, Finding::Relevant(own) if own.place.is_some());
    assert_eq!(world.count(is_confirmed), 0);
    assert_eq!(world.count(|finding| matches!(finding, Finding::Refilter(_))), 0);
}

/// A node passes over transactions at random. Once the wallet and the chain stay the same, it gets at most one
/// filter for each coin, and the session comes to an end.
#[test]
fn a_liar_causes_no_endless_filters() {
    for seed in 1..200 {
        let rng = &mut Rng::new(seed);
        let (blocks, _) = chain(rng, 12, 8);
        let own: Vec<_> = (0..8).map(script).collect();
        let outputs = blocks.iter().flat_map(|block| &block.txdata).flat_map(|tx| &tx.output);
        let coins = outputs.filter(|output| own.contains(&output.script_pubkey)).count();
        let update = *rng.pick(&[UpdateMode::All, UpdateMode::None]);
        let use_filteradd = rng.one_in(2);
        let policy = FilterPolicy { update, use_filteradd, spare: 40, ..FilterPolicy::new(7) };
        let mut world = World::new(policy, blocks);
        world.lie = |block, matched| {
            let mut rng = Rng::new(u64::from(block.header.nonce) + matched.len() as u64);
            let shown: Vec<u32> = matched.iter().copied().filter(|_| !rng.one_in(3)).collect();
            (!rng.one_in(3)).then(|| truth(block, &shown))
        };
        world.event(Event::Watch((0..8).map(watched).collect()));
        world.event(Event::Connected);
        world.request_from(0);
        for step in 0..200 {
            match rng.below(40) {
                0 => world.event(Event::Watch(vec![watched(100 + step)])),
                1 => {
                    let height = rng.below(12);
                    world.event(Event::Reorganized(height as u32));
                    world.request_from(height);
                }
                2 => world.event(Event::Refresh),
                _ if rng.one_in(2) => drop(world.node_step()),
                _ => drop(world.session_step()),
            }
        }
        let before = world.sent_filters;
        run(&mut world, from);
        assert_eq!(world.session.pending_requests(), 0, "seed {seed}");
        assert!(world.sent_filters - before <= coins + 1, "seed {seed}: {coins} coins");
    }
}

/// A block pays to index 7 before the block that pays to index 4. With a look-ahead of 3, index 7 is
/// watched only once index 4 is known to be used. A third block spends the coin of index 7.
#[test]
fn a_key_that_is_used_below_the_block_that_advances_its_keychain() {
    let (seven, four) = (pay(7), pay(4));
    let spend = tx(&[OutPoint::new(seven.compute_txid(), 0)], &[script(1_000_000)]);
    let mut own = [&seven, &four, &spend].map(Transaction::compute_txid);
    own.sort_unstable();
    let blocks = [vec![seven], vec![four], vec![], vec![spend], vec![]];
    let blocks = (0..).zip(blocks).map(|(height, own)| block(height, own)).collect();
    let mut world = world(5, blocks);
    world.request_from(0);
    world.sync(3);
    assert_eq!(world.relevant(), own);
    // Index 4 advances the keychain, so that the first block is filtered again. It advances the
    // keychain to index 7, and is filtered once more.
    let count = |wanted: Finding| world.findings.iter().filter(|it| **it == wanted).count();
    assert_eq!(count(Finding::RefilterEarlier(world.at(0))), 1);
    assert_eq!(count(Finding::Refilter(world.at(0))), 1);
}

/// Each block uses the next key of the wallet, so that the keychain advances in each block. Earlier
/// blocks are filtered again once at the end, not at each step.
#[test]
fn earlier_blocks_are_filtered_again_only_after_all_pending_ones() {
    let blocks: Vec<_> = (0..40).map(|index| block(index, vec![pay(index)])).collect();
    let mut own: Vec<_> = (0..40).map(|index| pay(index).compute_txid()).collect();
    own.sort_unstable();
    let mut world = world(5, blocks);
    world.request_from(0);
    let mut seen = 0;
    while seen < world.findings.len() || world.node_step() || world.session_step() {
        let Some(finding) = world.findings.get(seen).cloned() else { continue };
        seen += 1;
        match finding {
            Finding::KeychainAdvanced { label, .. } => {
                world.event(Event::Watch((0..=label.index + 3).map(watched).collect()));
            }
            Finding::Refilter(from) | Finding::RefilterEarlier(from) => {
                world.request_from(from.height as usize);
            }
            _ => {}
        }
    }
    assert_eq!(world.relevant(), own);
    // Once because the lowest block itself advanced the keychain, and once at the end.
    let count = |wanted: Finding| world.findings.iter().filter(|it| **it == wanted).count();
    assert_eq!(count(Finding::Refilter(world.at(0))), 1);
    assert_eq!(count(Finding::RefilterEarlier(world.at(0))), 1);
    let closed = world.count(|finding| matches!(finding, Finding::Block { counts: true, .. }));
    assert!(closed < 4 * 40, "{closed} answers for 40 blocks");
}

/// Keys are used in any order of the blocks, and their coins are spent later. The wallet finds what
/// a search for all keys finds, up to the first distance between used keys that exceeds the
/// look-ahead.
#[test]
fn the_look_ahead_reaches_the_same_keys_whatever_the_order_of_the_blocks() {
    let mut missed = 0;
    for seed in 0..40 {
        let rng = &mut Rng::new(seed);
        let mut blocks: Vec<(Vec<Transaction>, Vec<Transaction>)> = vec![Default::default(); 16];
        let mut used = Vec::new();
        let mut index = rng.below(4) as u32;
        while index < 60 {
            let (at, paid) = (rng.below(16), pay(index));
            let coin = OutPoint::new(paid.compute_txid(), 0);
            let mut own = vec![paid.compute_txid()];
            blocks[at].0.push(paid);
            if rng.one_in(2) {
                let spend = tx(&[coin], &[script(1_000_000 + index)]);
                own.push(spend.compute_txid());
                blocks[at + rng.below(16 - at)].1.push(spend);
            }
            used.push((index, own));
            let most = if rng.one_in(20) { 6 } else { 4 };
            index += 1 + rng.below(most) as u32;
        }
        let mut end = 5;
        let mut own = Vec::new();
        for (index, txids) in used {
            if index < end {
                own.extend(txids);
                end = end.max(index + 4);
            } else {
                missed += 1;
            }
        }
        own.sort_unstable();
        let blocks = (0..).zip(blocks);
        let blocks = blocks.map(|(at, (pays, spends))| block(at, [pays, spends].concat()));
        let mut world = world(5, blocks.collect());
        world.request_from(0);
        world.sync(3);
        assert_eq!(world.session.pending_requests(), 0);
        assert_eq!(world.relevant(), own, "seed {seed}");
    }
    assert!(missed > 20, "{missed}");
}

/// The block that advanced a keychain is replaced by another block, which is answered before the
/// following scripts are watched.
#[test]
fn a_reorganization_between_an_advance_and_its_scripts() {
    let (five, twenty) = (pay(5), pay(20));
    let want = twenty.compute_txid();
    let blocks = vec![block(7, vec![five.clone()]), block(7, vec![five, twenty])];
    let mut world = world(6, blocks);
    let at = |world: &World, i| BlockAt { height: 7, ..world.at(i) };
    let (old, new) = (at(&world, 0), at(&world, 1));
    world.event(Event::Request(vec![old]));
    world.settle();
    world.event(Event::Reorganized(7));
    world.event(Event::Request(vec![new]));
    world.settle();
    world.event(Event::Watch((6..26).map(watched).collect()));
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(new)));
    world.event(Event::Request(vec![new]));
    world.settle();
    assert!(world.relevant().contains(&want));
}

/// A block that has left the chain advances a keychain. The session does not ask for that block
/// again.
#[test]
fn no_one_is_sent_back_to_a_dropped_block() {
    let mut world = world(6, vec![block(7, vec![pay(5)])]);
    world.request_from(0);
    world.event(Event::Reorganized(0));
    world.settle();
    assert_eq!(world.count(|f| matches!(f, Finding::KeychainAdvanced { .. })), 1);
    world.event(Event::Watch((6..26).map(watched).collect()));
    assert_eq!(world.count(|f| matches!(f, Finding::Refilter(_))), 0);
}

/// The next script of a keychain has the same filter element as another watched script. Until the
/// keychain derives the new script, a payment to this script is a false positive.
#[test]
fn a_new_script_whose_element_is_not_new() {
    let hash = WPubkeyHash::hash(&[7]);
    let (witness, legacy) =
        (ScriptBuf::new_p2wpkh(&hash), ScriptBuf::new_p2pkh(&hash.to_raw_hash().into()));
    let pays = tx(&[OutPoint::new(Txid::hash(&[8]), 0)], std::slice::from_ref(&witness));
    let want = pays.compute_txid();
    let mut world = world(1, vec![block(0, vec![pay(0), pays])]);
    world.event(Event::Watch(vec![WatchItem::Script { script: legacy, label: None }]));
    world.request_from(0);
    world.settle();
    let first = world.at(0);
    assert!(world.findings.contains(&Finding::FalsePositive(want, Some(first.hash))));
    let label = Some(Label { keychain: 0, index: 1 });
    let follows = Event::Watch(vec![WatchItem::Script { script: witness, label }]);
    world.event(follows.clone());
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(first)));
    assert!(world.to_node.is_empty(), "the filter has it");
    world.request_from(0);
    world.settle();
    assert!(world.relevant().contains(&want));
    let before = world.findings.len();
    world.event(follows);
    assert_eq!(world.findings.len(), before);
}

/// The next script of a keychain was known only from its coin. A payment to the script therefore
/// did not advance the keychain, so that no further script was watched.
#[test]
fn a_new_label_of_a_script_known_by_its_coin() {
    let (zero, one) = (pay(0), pay(1));
    let coin = OutPoint::new(Txid::hash(&[9]), 0);
    let mut world = world(1, vec![block(0, vec![zero, one])]);
    world
        .event(Event::Watch(vec![WatchItem::OutPoint { outpoint: coin, script: Some(script(1)) }]));
    world.request_from(0);
    world.settle();
    let advanced = |finding: &Finding| matches!(finding, Finding::KeychainAdvanced { .. });
    assert_eq!(world.count(advanced), 1);
    let first = world.at(0);
    world.event(Event::Watch(vec![watched(1)]));
    assert_eq!(world.findings.last(), Some(&Finding::Refilter(first)));
    world.request_from(0);
    world.settle();
    assert_eq!(world.count(advanced), 2);
    let before = world.findings.len();
    world.event(Event::Watch(vec![watched(1)]));
    assert_eq!(world.findings.len(), before);
}

/// Returns how many times a transaction was reported as the wallet's and unconfirmed.
fn unconfirmed(world: &World, tx: &Transaction) -> usize {
    let txid = tx.compute_txid();
    let is_it = |finding: &&Finding| matches!(finding, Finding::Relevant(own) if own.txid == txid && own.place.is_none());
    world.findings.iter().filter(is_it).count()
}

/// An unconfirmed transaction that was received before its script was watched is reported once the
/// script is watched.
#[test]
fn an_unconfirmed_transaction_before_its_script() {
    let coin = tx(&[OutPoint::new(Txid::hash(&[1]), 0)], &[script(0), script(1)]);
    let child = tx(&[OutPoint::new(coin.compute_txid(), 0)], &[script(1)]);
    let mut world = world(1, vec![]);
    for index in [3, 2] {
        world.event(Event::Tx(pay(index)));
        world.event(Event::Tx(pay(index)));
        let foreign = Finding::FalsePositive(pay(index).compute_txid(), None);
        assert_eq!(world.findings.iter().filter(|&f| *f == foreign).count(), 1);
    }
    world.event(Event::Watch((1..3).map(watched).collect()));
    assert_eq!([unconfirmed(&world, &pay(2)), unconfirmed(&world, &pay(3))], [1, 0]);
    // The spend is foreign at first, because the coin that it spends arrives later. When the spend
    // is received again, it is the wallet's.
    let spend = tx(&[OutPoint::new(child.compute_txid(), 0)], &[script(1_000_000)]);
    world.event(Event::Tx(spend.clone()));
    world.event(Event::Tx(child.clone()));
    world.event(Event::Tx(coin));
    assert_eq!(unconfirmed(&world, &spend), 0);
    for _ in 0..2 {
        world.event(Event::Tx(spend.clone()));
        world.event(Event::Tx(child.clone()));
        assert_eq!([unconfirmed(&world, &spend), unconfirmed(&world, &child)], [1, 1]);
    }
}

/// A confirmed transaction that becomes unconfirmed by a reorganisation is reported again, but not
/// before the reorganisation.
#[test]
fn unconfirmed_again_after_a_reorganization() {
    let own = pay(0);
    let mut world = world(1, vec![block(0, vec![]), block(1, vec![own.clone()])]);
    world.request_from(0);
    world.settle();
    for (height, times) in [(2, 0), (1, 1), (1, 1)] {
        world.event(Event::Reorganized(height));
        world.event(Event::Watch(vec![watched(height + 10)]));
        world.event(Event::Tx(own.clone()));
        assert_eq!(unconfirmed(&world, &own), times);
    }
    // The block leaves the chain while its request is in flight.
    let mut world = self::world(1, world.blocks);
    world.request_from(0);
    world.event(Event::Reorganized(1));
    world.settle();
    assert_eq!(world.relevant(), [own.compute_txid()]);
    world.event(Event::Tx(own.clone()));
    assert_eq!(unconfirmed(&world, &own), 1);
}
