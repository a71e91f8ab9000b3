//! Watches among honest and lying nodes, by either protocol; what is expected follows from the blocks.

use std::collections::BTreeSet;

use chainsieve::bitcoin::{Block, Network, OutPoint, Script, ScriptBuf, Txid};
use chainsieve::btc::descriptors::descriptor_scripts;
use serde_json::Value;

use super::bloom::Bloom;
use super::compact::Compact;
use super::mined;
use super::node::{Fault, Node};
use super::scratch::Scratch;
use super::world::{Kept, World, item, of};

/// BIP84's test wallet, as testnets write its key.
const DESCRIPTOR: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/0/*)";

fn script(byte: u8) -> ScriptBuf {
    let mut bytes = vec![0, 20];
    bytes.extend([byte; 20]);
    bytes.into()
}

/// What happens in a block.
#[derive(Clone)]
struct Plan {
    coinbase: ScriptBuf,
    /// Coins spent and scripts paid.
    txs: Vec<(Vec<OutPoint>, Vec<ScriptBuf>)>,
}

fn plan(coinbase: u8) -> Plan {
    Plan { coinbase: script(coinbase), txs: Vec::new() }
}

fn extend(blocks: &[Block], plans: &[Plan]) -> Vec<Block> {
    let genesis = chainsieve::bitcoin::constants::genesis_block(Network::Regtest);
    let mut blocks = blocks.to_vec();
    for plan in plans {
        let parent = blocks.last().unwrap_or(&genesis).header;
        let txs: Vec<_> = plan
            .txs
            .iter()
            .map(|(coins, scripts)| {
                let scripts: Vec<&Script> = scripts.iter().map(|script| &**script).collect();
                mined::spend(coins, &scripts)
            })
            .collect();
        let height = u32::try_from(blocks.len() + 1).unwrap();
        blocks.push(mined::block(&parent, height, &plan.coinbase, &txs));
    }
    blocks
}

fn coinbase_of(block: &Block) -> OutPoint {
    OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 }
}

/// The transactions that pay to the scripts or spend what did: read off the blocks.
fn truth(blocks: &[Block], scripts: &[ScriptBuf], heights: (u32, u32)) -> BTreeSet<(u64, Txid)> {
    let mut coins = BTreeSet::new();
    let mut found = BTreeSet::new();
    for (height, block) in (1_u32..).zip(blocks) {
        for tx in &block.txdata {
            let txid = tx.compute_txid();
            let mut concerns = tx.input.iter().any(|input| coins.contains(&input.previous_output));
            for (vout, output) in (0..).zip(&tx.output) {
                if scripts.contains(&output.script_pubkey) && height >= heights.0 {
                    coins.insert(OutPoint { txid, vout });
                    concerns = true;
                }
            }
            if concerns && (heights.0..=heights.1).contains(&height) {
                found.insert((u64::from(height), txid));
            }
        }
    }
    found
}

fn hits(lines: &[Value]) -> Vec<(u64, Txid)> {
    let hits = of(lines, "hit").filter(|hit| !hit["height"].is_null());
    hits.map(|hit| {
        (hit["height"].as_u64().unwrap(), hit["txid"].as_str().unwrap().parse().unwrap())
    })
    .collect()
}

fn set(lines: &[Value]) -> BTreeSet<(u64, Txid)> {
    hits(lines).into_iter().collect()
}

/// Twelve blocks: script 1 is paid in the third and seventh, and spent in the fifth and ninth.
fn blocks() -> Vec<Block> {
    let mut blocks = extend(&[], &[plan(8), plan(9), plan(1), plan(9)]);
    let coin = coinbase_of(&blocks[2]);
    let spend = Plan { txs: vec![(vec![coin], vec![script(8), script(9)])], ..plan(9) };
    blocks = extend(&blocks, &[spend, plan(8)]);
    let paid =
        Plan { txs: vec![(vec![coinbase_of(&blocks[0])], vec![script(9), script(1)])], ..plan(8) };
    blocks = extend(&blocks, &[paid, plan(8)]);
    let coin = OutPoint { txid: blocks[6].txdata[1].compute_txid(), vout: 1 };
    let spend = Plan { txs: vec![(vec![coin], vec![script(8)])], ..plan(9) };
    extend(&blocks, &[spend, plan(8), plan(9), plan(8)])
}

fn received_and_spent<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let blocks = blocks();
    let node = Node::new(&blocks, None);
    let mut world = World::<F>::new(&scratch, &[item(&script(1))], (0, None), &[node]);
    world.run();
    let lines = world.lines();
    let expected = truth(&blocks, &[script(1)], (0, 12));
    assert_eq!(expected.len(), 4);
    assert_eq!(hits(&lines), expected.iter().copied().collect::<Vec<_>>());
    let found: Vec<_> = of(&lines, "hit").collect();
    assert_eq!(found[0]["received"][0]["satoshis"], 50);
    assert_eq!(found[1]["spent"][0]["outpoint"], coinbase_of(&blocks[2]).to_string());
    assert_eq!(found[1]["spent"][0]["certain"], true);
    assert_eq!(found[2]["received"][0]["vout"], 1);
    assert_eq!(found[3]["confirmations"], 4);
    let caught_up: Vec<_> = of(&lines, "caught_up").collect();
    assert_eq!((caught_up.len(), &caught_up[0]["answered_to"]), (1, &Value::from(12)));
    assert_eq!((world.dropped.len(), world.banned.len()), (0, 0));
}

#[test]
fn received_and_spent_is_found() {
    received_and_spent::<Bloom>("world-found-37");
    received_and_spent::<Compact>("world-found-157");
}

/// Every 5th index, and each in the block behind the one before: far beyond the range 0-4.
fn descriptor_goes_on<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let scripts = descriptor_scripts(DESCRIPTOR, 0..=40).unwrap();
    let scripts: Vec<_> = scripts.into_iter().map(|derived| derived.script).collect();
    let used = [2, 4, 7, 10, 13, 15, 18];
    let plans: Vec<_> = used
        .iter()
        .map(|index| Plan { coinbase: scripts[*index].clone(), txs: Vec::new() })
        .collect();
    let blocks = extend(&[], &plans);
    let node = Node::new(&blocks, None);
    let mut world = World::<F>::new(&scratch, &[DESCRIPTOR.into()], (0, None), &[node]);
    world.run();
    let lines = world.lines();
    assert_eq!(set(&lines), truth(&blocks, &scripts, (0, 7)));
    let indices: Vec<_> =
        of(&lines, "hit").map(|hit| hit["received"][0]["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, used.map(|index| index as u64));
}

#[test]
fn descriptors_go_on_past_their_range() {
    descriptor_goes_on::<Bloom>("world-descriptor-37");
    descriptor_goes_on::<Compact>("world-descriptor-157");
}

fn reorganization<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let blocks = blocks();
    let node = Node::new(&blocks, None);
    let mut world = World::<F>::new(&scratch, &[item(&script(1))], (0, None), &[node]);
    world.run();
    world.lines();
    // From the sixth block on another branch, where script 1 is paid in the eighth.
    let other = extend(&blocks[..5], &vec![plan(7); 2]);
    let other = extend(&other, &[plan(1)]);
    let other = extend(&other, &vec![plan(7); 6]);
    world.announce(0, Node::new(&other, None));
    world.run();
    let lines = world.lines();
    let reorgs: Vec<_> = of(&lines, "reorg").collect();
    assert_eq!((reorgs.len(), &reorgs[0]["fork"]["height"]), (1, &Value::from(5)));
    assert_eq!(reorgs[0]["disconnected"].as_array().unwrap().len(), 7);
    let gone = reorgs[0]["withdrawn"].as_array().unwrap();
    let gone: BTreeSet<_> = gone.iter().map(|hit| hit["height"].as_u64().unwrap()).collect();
    assert_eq!(gone, BTreeSet::from([7, 9]));
    assert_eq!(hits(&lines), [(8, other[7].txdata[0].compute_txid())]);
    let hits_now = world.core.follower.as_mut().unwrap().announcer().ledger().hits().count();
    assert_eq!(hits_now, truth(&other, &[script(1)], (0, 14)).len());
}

#[test]
fn a_reorganization_takes_hits_back() {
    reorganization::<Bloom>("world-reorg-37");
    reorganization::<Compact>("world-reorg-157");
}

/// Killed after each message, and called again: all is found, and nothing twice as new.
fn killed<F: Kept>(name: &str, items: &[String], scripts: &[ScriptBuf], blocks: &[Block]) {
    let nodes = [Node::new(blocks, None), Node::new(blocks, None)];
    let expected = truth(blocks, scripts, (0, 100));
    let total = {
        let scratch = Scratch::new(name);
        let mut world = World::<F>::new(&scratch, items, (0, None), &nodes);
        world.run();
        assert_eq!(set(&world.lines()), expected);
        world.taken
    };
    assert!(total > 10, "{total}");
    // Each is a run of its own: some of them, and all in the end.
    for kill in (1..=total).step_by(2) {
        // With the state kept as of any moment before, or never.
        let saved = [0, kill / 2, kill][kill % 3];
        let scratch = Scratch::new(name);
        let mut world = World::<F>::new(&scratch, items, (0, None), &nodes);
        for taken in 1..=kill {
            world.step();
            if taken == saved {
                world.core.save().unwrap();
            }
        }
        let mut lines = world.lines();
        drop(world);
        let mut world = World::<F>::new(&scratch, items, (0, None), &nodes);
        world.run();
        lines.extend(world.lines());
        assert_eq!(set(&lines), expected, "killed after {kill}, saved at {saved}");
        let new = of(&lines, "hit").filter(|hit| hit["again"] == false).count();
        assert_eq!(new, expected.len(), "killed after {kill}, saved at {saved}");
    }
}

#[test]
fn a_kill_at_any_time_loses_nothing_and_repeats_nothing() {
    let items = [item(&script(1))];
    killed::<Bloom>("world-killed-37", &items, &[script(1)], &blocks());
    killed::<Compact>("world-killed-157", &items, &[script(1)], &blocks());
}

#[test]
fn a_kill_while_a_descriptor_goes_on_loses_nothing() {
    let scripts = descriptor_scripts(DESCRIPTOR, 0..=40).unwrap();
    let scripts: Vec<_> = scripts.into_iter().map(|derived| derived.script).collect();
    let used = [2, 7, 4, 10, 13, 12];
    let plans: Vec<_> = used
        .iter()
        .map(|index| Plan { coinbase: scripts[*index].clone(), txs: Vec::new() })
        .collect();
    let blocks = extend(&[], &plans);
    let items = [DESCRIPTOR.to_owned()];
    // The 7th is found only after the second block has led to it.
    killed::<Bloom>("world-killed-descriptor-37", &items, &scripts, &blocks);
    killed::<Compact>("world-killed-descriptor-157", &items, &scripts, &blocks);
}

#[test]
fn another_peer_takes_the_place_of_one_that_fails() {
    let blocks = blocks();
    let expected = truth(&blocks, &[script(1)], (0, 12));
    for (fault, banned) in [
        (Fault::Silent, false),
        (Fault::PassesOver, false),
        (Fault::NoTransactions, false),
        (Fault::BadTree, true),
    ] {
        let scratch = Scratch::new("world-fails-37");
        let nodes = [Node::new(&blocks, Some(fault)), Node::new(&blocks, None)];
        let mut world = World::<Bloom>::new(&scratch, &[item(&script(1))], (0, None), &nodes);
        world.run();
        assert_eq!(set(&world.lines()), expected, "{fault:?}");
        let (dropped, given_up) = (&world.dropped, &world.banned);
        let (some, none) = if banned { (given_up, dropped) } else { (dropped, given_up) };
        assert!(some.iter().all(|(place, _)| *place == 0) && !some.is_empty(), "{fault:?}");
        assert_eq!(none.len(), 0, "{fault:?}");
    }
}

#[test]
fn what_nobody_delivers_is_told() {
    let scratch = Scratch::new("world-undelivered-37");
    let node = Node::new(&blocks(), Some(Fault::NoTransactions));
    let mut world = World::<Bloom>::new(&scratch, &[item(&script(1))], (0, None), &[node]);
    for _ in 0..2_000 {
        world.step();
    }
    assert!(!world.is_done());
    let lines = world.lines();
    assert_eq!(of(&lines, "caught_up").count(), 0);
    let findings: BTreeSet<_> =
        of(&lines, "finding").map(|finding| finding["height"].as_u64().unwrap()).collect();
    assert!(findings.contains(&3), "{lines:?}");
}

#[test]
fn unconfirmed_transactions_are_found_and_then_confirmed() {
    let scratch = Scratch::new("world-mempool-37");
    let blocks = blocks();
    let mut node = Node::new(&blocks, None);
    let payment = (vec![coinbase_of(&blocks[11])], vec![script(1)]);
    let paid = extend(&blocks, &[Plan { txs: vec![payment], ..plan(8) }]);
    node.mempool = vec![paid[12].txdata[1].clone()];
    let mut world = World::<Bloom>::new(&scratch, &[item(&script(1))], (0, None), &[node]);
    world.run();
    for _ in 0..20 {
        world.step();
    }
    let lines = world.lines();
    let unconfirmed: Vec<_> = of(&lines, "hit").filter(|hit| hit["block"].is_null()).collect();
    assert_eq!(unconfirmed.len(), 1);
    assert_eq!(unconfirmed[0]["evidence"], "unconfirmed");
    world.announce(0, Node::new(&paid, None));
    world.run();
    let lines = world.lines();
    assert_eq!(hits(&lines), [(13, paid[12].txdata[1].compute_txid())]);
    let caught_up: Vec<_> = of(&lines, "caught_up").collect();
    assert_eq!(caught_up[0]["unconfirmed"], 0);
}

#[test]
fn a_liar_about_filters_is_found_out_and_hides_nothing() {
    let blocks = blocks();
    let expected = truth(&blocks, &[script(1)], (0, 12));
    for lying_first in [true, false] {
        let scratch = Scratch::new("world-liar-157");
        let mut nodes =
            vec![Node::new(&blocks, Some(Fault::EmptyFilters)), Node::new(&blocks, None)];
        if !lying_first {
            nodes.reverse();
        }
        let mut world = World::<Compact>::new(&scratch, &[item(&script(1))], (0, None), &nodes);
        world.run();
        let lines = world.lines();
        assert_eq!(set(&lines), expected);
        let liar = usize::from(!lying_first);
        assert!(matches!(world.banned.as_slice(), [(place, _)] if *place == liar));
        let disputed = of(&lines, "finding").filter(|finding| finding["kind"] == "disputed");
        assert!(disputed.count() > 0);
    }
}

/// More hits than blocks are fetched at a time, and a liar whose claims they rest on is convicted
/// while most of them wait: an honest peer then confirms the filters. Whenever "caught up" could be
/// said, each block that the wallet needs has been scanned.
#[test]
fn caught_up_waits_for_blocks_of_hits_whose_filters_were_withdrawn_and_confirmed() {
    for lie in [2, 20, 39] {
        let scratch = Scratch::new("world-settled-157");
        let mut blocks = extend(&[], &vec![plan(1); lie - 1]);
        // The liar's filter lacks the second transaction's output, which the block proves.
        let coin = coinbase_of(&blocks[0]);
        let twice = Plan { txs: vec![(vec![coin], vec![script(8)])], ..plan(1) };
        blocks = extend(&blocks, &[twice]);
        blocks = extend(&blocks, &vec![plan(1); 200]);
        let end = u32::try_from(blocks.len()).unwrap();
        let expected = truth(&blocks, &[script(1)], (0, end));
        let liar = Node::new(&blocks, Some(Fault::CoinbaseFilters));
        let mut world = World::<Compact>::new(&scratch, &[item(&script(1))], (0, None), &[liar]);
        // It connects once the liar has been banned, and nothing else happens.
        world.nodes.push(Node::new(&blocks, None));
        let mut found = BTreeSet::new();
        let mut times = 0;
        for _ in 0..3_000 {
            world.step();
            found.extend(set(&world.lines()));
            if world.core.look_for_end(world.now).unwrap() {
                let missing = expected.difference(&found).count();
                assert_eq!((missing, found.len()), (0, expected.len()), "lie at {lie}");
                times += 1;
            }
        }
        assert!(times > 0);
        assert!(matches!(world.banned.as_slice(), [(0, _)]), "{:?}", world.banned);
    }
}

#[test]
fn what_peers_agree_on_is_graded() {
    let scratch = Scratch::new("world-graded-157");
    let blocks = blocks();
    let nodes = [Node::new(&blocks, None), Node::new(&blocks, None)];
    let mut world = World::<Compact>::new(&scratch, &[item(&script(1))], (1, None), &nodes);
    world.run();
    let grades = world.core.follower.as_ref().unwrap().grades(&world.core.chain);
    let scanned: Vec<_> = truth(&blocks, &[script(1)], (0, 12)).iter().map(|hit| hit.0).collect();
    for graded in grades {
        let words = graded.json();
        for height in graded.from..=graded.to {
            let is_hit = scanned.contains(&u64::from(height));
            let expected = if is_hit { "scanned" } else { "peers" };
            assert_eq!(words["grade"], expected, "{height}");
        }
    }
}

fn rescan_of_a_range<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let blocks = blocks();
    let nodes = [Node::new(&blocks, None)];
    let mut world = World::<F>::new(&scratch, &[item(&script(1))], (4, Some(8)), &nodes);
    world.run();
    // The coin that the fifth block spends was paid before: nothing in the blocks tells it.
    assert_eq!(set(&world.lines()), truth(&blocks, &[script(1)], (4, 8)));
    // What comes behind the range does not matter.
    let more = extend(&blocks, &vec![plan(1); 3]);
    world.announce(0, Node::new(&more, None));
    world.run();
    assert_eq!(set(&world.lines()), BTreeSet::new());
}

#[test]
fn a_range_is_looked_through_and_no_more() {
    rescan_of_a_range::<Bloom>("world-range-37");
    rescan_of_a_range::<Compact>("world-range-157");
}

/// The last height wanted is the tip, or above it: blocks that come later are not looked at beyond it.
fn range_up_to_the_tip<F: Kept>(name: &str) {
    for above in [0, 1, 3] {
        let scratch = Scratch::new(&format!("{name}-{above}"));
        let blocks = extend(&[], &vec![plan(1); 5]);
        let items = [item(&script(1))];
        let nodes = [Node::new(&blocks, None)];
        let mut world = World::<F>::new(&scratch, &items, (0, Some(5 + above)), &nodes);
        for _ in 0..3 {
            world.step();
        }
        let more = extend(&blocks, &vec![plan(1); 6]);
        world.announce(0, Node::new(&more, None));
        for _ in 0..8 {
            world.step();
        }
        world.run();
        let expected = truth(&more, &[script(1)], (0, 5 + above));
        assert_eq!(set(&world.lines()), expected, "{above} above the tip");
        // A reorganization that crosses the last height.
        let other = extend(&more[..3], &[plan(8), plan(1)]);
        let other = extend(&other, &vec![plan(1); 8]);
        world.announce(0, Node::new(&other, None));
        world.run();
        let expected: BTreeSet<_> = truth(&other, &[script(1)], (4, 5 + above));
        assert_eq!(set(&world.lines()), expected, "{above} above the tip");
    }
}

#[test]
fn a_range_up_to_the_tip_ends_there_whatever_comes() {
    range_up_to_the_tip::<Bloom>("world-to-37");
    range_up_to_the_tip::<Compact>("world-to-157");
}

#[test]
fn a_coin_is_seen_spent() {
    let blocks = blocks();
    let coin = coinbase_of(&blocks[2]);
    let with_script = format!("outpoint:{coin}={}", hex::encode(script(1)));
    let scratch = Scratch::new("world-coin-157");
    let nodes = [Node::new(&blocks, None)];
    let mut world = World::<Compact>::new(&scratch, &[with_script], (4, None), &nodes);
    world.run();
    let lines = world.lines();
    let spent: Vec<_> = of(&lines, "hit").filter(|hit| hit["height"] == 5).collect();
    assert_eq!(spent[0]["spent"][0]["outpoint"], coin.to_string());
    let scratch = Scratch::new("world-coin-37");
    let alone = format!("outpoint:{coin}");
    let mut world = World::<Bloom>::new(&scratch, &[alone], (4, None), &nodes);
    world.run();
    assert_eq!(hits(&world.lines()), [(5, blocks[4].txdata[1].compute_txid())]);
}
