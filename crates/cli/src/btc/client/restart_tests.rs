//! Watches that are called again with the same folder; what is expected follows from the blocks.

use std::fs;

use chainsieve::bitcoin::{Block, Network, OutPoint, Script, ScriptBuf, Txid};
use chainsieve::btc::descriptors::descriptor_scripts;
use clap::Parser as _;
use serde_json::Value;

use super::bloom::Bloom;
use super::bloom_findings::MAX_UNCONFIRMED;
use super::bloom_state::BloomState;
use super::compact::Compact;
use super::compact_state::CompactState;
use super::header_store::HeaderStore;
use super::ledger::Ledger;
use super::mined;
use super::node::Node;
use super::scratch::Scratch;
use super::wallet::Wallet;
use super::world::{Kept, World, item, of};
use crate::args::client::Protocol;
use crate::args::{BtcCommand, Cli, Command};

/// BIP84's test wallet, as testnets write its key.
const DESCRIPTOR: &str = "wpkh(tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M/0/*)";

fn script(byte: u8) -> ScriptBuf {
    [&[0, 20][..], &[byte; 20]].concat().into()
}

/// One more block: its coinbase pays to a script, and one transaction spends coins.
fn push(blocks: &mut Vec<Block>, coinbase: &Script, coins: &[OutPoint]) {
    let genesis = chainsieve::bitcoin::constants::genesis_block(Network::Regtest);
    let parent = blocks.last().unwrap_or(&genesis).header;
    let height = u32::try_from(blocks.len() + 1).unwrap();
    let spend = (!coins.is_empty()).then(|| mined::spend(coins, &[&script(9)]));
    blocks.push(mined::block(&parent, height, coinbase, &spend.into_iter().collect::<Vec<_>>()));
}

fn coin(block: &Block) -> OutPoint {
    OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 }
}

fn txids(lines: &[Value]) -> Vec<Txid> {
    let hits = of(lines, "hit").filter(|hit| !hit["height"].is_null());
    hits.map(|hit| hit["txid"].as_str().unwrap().parse().unwrap()).collect()
}

fn run<F: Kept>(
    scratch: &Scratch,
    items: &[String],
    heights: (u32, Option<u32>),
    blocks: &[Block],
) -> Vec<Value> {
    let mut world = World::<F>::new(scratch, items, heights, &[Node::new(blocks, None)]);
    world.run();
    world.core.save().unwrap();
    world.lines()
}

fn many_indices<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let scripts = descriptor_scripts(DESCRIPTOR, 0..=60).unwrap();
    let mut blocks = Vec::new();
    for derived in scripts.iter().take(41) {
        push(&mut blocks, &derived.script, &[]);
    }
    let items = [DESCRIPTOR.to_owned()];
    assert_eq!(txids(&run::<F>(&scratch, &items, (0, None), &blocks)).len(), 41);
    let mut expected = Vec::new();
    for index in 0..41 {
        let coin = coin(&blocks[index]);
        push(&mut blocks, &script(8), &[coin]);
        expected.push(blocks.last().unwrap().txdata[1].compute_txid());
    }
    push(&mut blocks, &scripts[42].script, &[]);
    expected.push(blocks.last().unwrap().txdata[0].compute_txid());
    assert_eq!(txids(&run::<F>(&scratch, &items, (0, None), &blocks)), expected);
}

/// Range and gap are a few, and the wallet has used many more.
#[test]
fn coins_of_indices_far_beyond_the_range_are_known_again_37() {
    many_indices::<Bloom>("restart-indices-37");
}

#[test]
fn coins_of_indices_far_beyond_the_range_are_known_again_157() {
    many_indices::<Compact>("restart-indices-157");
}

/// Forks below the birthday, while it runs and while it does not.
fn below_the_birthday<F: Kept>(name: &str) {
    let mut common = Vec::new();
    for _ in 0..6 {
        push(&mut common, &script(8), &[]);
    }
    let (mut one, mut other) = (common.clone(), common[..3].to_vec());
    for _ in 0..5 {
        push(&mut one, &script(1), &[]);
    }
    let spent = coin(&one[8]);
    push(&mut one, &script(8), &[spent]);
    push(&mut other, &script(7), &[]);
    for _ in 0..8 {
        push(&mut other, &script(1), &[]);
    }
    let spent = coin(&other[9]);
    push(&mut other, &script(7), &[spent]);
    for _ in 0..4 {
        push(&mut other, &script(7), &[]);
    }
    // What height 8 and above hold.
    let expected: Vec<_> = other[7..12]
        .iter()
        .map(|block| block.txdata[0].compute_txid())
        .chain([other[12].txdata[1].compute_txid()])
        .collect();
    for live in [true, false] {
        let scratch = Scratch::new(name);
        let items = [item(&script(1))];
        let node = Node::new(&one, None);
        let mut world = World::<F>::new(&scratch, &items, (8, None), &[node]);
        world.run();
        world.core.save().unwrap();
        assert_eq!(txids(&world.lines()).len(), 5);
        if !live {
            drop(world);
            world = World::new(&scratch, &items, (8, None), &[Node::new(&one, None)]);
            world.run();
            world.lines();
        }
        world.announce(0, Node::new(&other, None));
        world.run();
        let lines = world.lines();
        assert_eq!(txids(&lines), expected, "live: {live}");
        let withdrawn: usize =
            of(&lines, "reorg").map(|line| line["withdrawn"].as_array().unwrap().len()).sum();
        assert_eq!(withdrawn, 5, "live: {live}");
        drop(world);
        // The first branch again, with more work, while nothing ran.
        let mut longer = one.clone();
        for _ in 0..8 {
            push(&mut longer, &script(6), &[]);
        }
        let lines = run::<F>(&scratch, &items, (8, None), &longer);
        assert_eq!(txids(&lines).len(), 5, "live: {live}");
    }
}

#[test]
fn a_reorganization_below_the_birthday_37() {
    below_the_birthday::<Bloom>("restart-birthday-37");
}

#[test]
fn a_reorganization_below_the_birthday_157() {
    below_the_birthday::<Compact>("restart-birthday-157");
}

/// Each file cut at the end of each line and at many other lengths, or gone: refused, or what comes then is seen.
fn cut<F: Kept>(name: &str, opens: impl Fn(&Scratch) -> bool) {
    let scratch = Scratch::new(name);
    let items = [item(&script(1))];
    let mut blocks = Vec::new();
    for paid in [8, 1, 8, 1, 9] {
        push(&mut blocks, &script(paid), &[]);
    }
    assert_eq!(txids(&run::<F>(&scratch, &items, (0, None), &blocks)).len(), 2);
    let spent = [coin(&blocks[1]), coin(&blocks[3])];
    push(&mut blocks, &script(8), &spent[..1]);
    push(&mut blocks, &script(8), &spent[1..]);
    let files = ["headers", "state", "hits"].map(|file| scratch.path().join(file));
    let whole: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (file, bytes) in files.iter().zip(&whole) {
        let mut refused = 0;
        let ends = bytes.iter().zip(1..).filter_map(|(byte, end)| (*byte == b'\n').then_some(end));
        let lengths = ends.chain((0..bytes.len()).step_by(23)).filter(|end| *end < bytes.len());
        for length in lengths.map(Some).chain([None]) {
            for (file, bytes) in files.iter().zip(&whole) {
                fs::write(file, bytes).unwrap();
            }
            match length {
                Some(length) => fs::write(file, &bytes[..length]).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            if !opens(&scratch) {
                refused += 1;
                continue;
            }
            let found = txids(&run::<F>(&scratch, &items, (0, None), &blocks));
            for block in &blocks[5..] {
                let txid = block.txdata[1].compute_txid();
                assert!(found.contains(&txid), "{}: {length:?}", file.display());
            }
        }
        assert!(refused < bytes.len(), "{}", file.display());
    }
}

fn opens(scratch: &Scratch) -> bool {
    Ledger::open(&scratch.path().join("hits")).is_ok()
        && HeaderStore::open(&scratch.path().join("headers"), Network::Regtest).is_ok()
}

#[test]
fn files_that_are_cut_37() {
    cut::<Bloom>("restart-cut-37", |scratch| {
        opens(scratch) && BloomState::open(scratch.path().join("state")).is_ok()
    });
}

#[test]
fn files_that_are_cut_157() {
    cut::<Compact>("restart-cut-157", |scratch| {
        opens(scratch) && CompactState::open(&scratch.path().join("state")).is_ok()
    });
}

fn unprinted<F: Kept>(name: &str) {
    let scratch = Scratch::new(name);
    let scripts = descriptor_scripts(DESCRIPTOR, 0..=20).unwrap();
    let mut blocks = Vec::new();
    // The 7th is watched only since the 4th is used.
    for index in [20, 4, 20, 7, 20, 4] {
        let script = if index == 20 { script(8) } else { scripts[index].script.clone() };
        push(&mut blocks, &script, &[]);
    }
    let items = [DESCRIPTOR.to_owned()];
    let node = Node::new(&blocks, None);
    let mut world = World::<F>::new(&scratch, &items, (0, None), &[node]);
    world.run_until_print_fails("\"hit\"");
    world.core.save().unwrap();
    drop(world);
    let found = txids(&run::<F>(&scratch, &items, (0, None), &blocks));
    let expected = [1, 3, 5].map(|place: usize| blocks[place].txdata[0].compute_txid());
    assert_eq!(found, expected);
}

/// A full disk behind standard output: what the block led to is not lost.
#[test]
fn what_cannot_be_printed_comes_again_and_what_it_leads_to() {
    unprinted::<Bloom>("restart-unprinted-37");
    unprinted::<Compact>("restart-unprinted-157");
}

/// A payment to index 4 leads to index 7, of range 0-4 with a gap of 3, and leaves the chain; the block
/// in its place pays to index 7. Nothing in the chain or in the hits leads to that index any more.
fn index_of_a_block_that_is_gone<F: Kept>(name: &str, saved: bool) {
    let scratch = Scratch::new(&format!("{name}-{saved}"));
    let scripts = descriptor_scripts(DESCRIPTOR, 0..=40).unwrap();
    let own = |index: usize| scripts[index].script.clone();
    let mut blocks = Vec::new();
    for byte in 50..54 {
        push(&mut blocks, &script(byte), &[]);
    }
    let (mut gone, mut stays) = (blocks.clone(), blocks);
    push(&mut gone, &own(4), &[]);
    push(&mut stays, &own(7), &[]);
    push(&mut stays, &script(60), &[]);
    let items = [DESCRIPTOR.to_owned()];
    let nodes = [Node::new(&gone, None)];
    let mut world = World::<F>::new(&scratch, &items, (0, None), &nodes);
    world.run();
    world.announce(0, Node::new(&stays, None));
    world.run();
    let found = txids(&world.lines());
    let paid = coin(&stays[4]);
    assert_eq!(found, [gone[4].txdata[0].compute_txid(), paid.txid]);
    if saved {
        world.core.save().unwrap();
    }
    drop(world);
    push(&mut stays, &script(61), &[paid]);
    push(&mut stays, &own(7), &[]);
    let nodes = [Node::new(&stays, None)];
    let mut world = World::<F>::new(&scratch, &items, (0, None), &nodes);
    world.run();
    let found: Vec<_> =
        txids(&world.lines()).into_iter().filter(|txid| *txid != paid.txid).collect();
    let expected = [stays[6].txdata[1].compute_txid(), stays[7].txdata[0].compute_txid()];
    assert_eq!(found, expected, "saved: {saved}");
}

#[test]
fn indices_that_blocks_now_gone_led_to_stay_watched() {
    for saved in [true, false] {
        index_of_a_block_that_is_gone::<Bloom>("restart-gone-37", saved);
        index_of_a_block_that_is_gone::<Compact>("restart-gone-157", saved);
    }
}

fn digest(items: &[&str], gap: u32) -> String {
    let fixed = ["chainsieve", "btc", "watch", "--network", "regtest", "--data", "x"];
    let args = fixed.iter().chain(items);
    let Command::Btc(BtcCommand::Watch(args)) = Cli::try_parse_from(args).unwrap().command else {
        panic!("another command")
    };
    Wallet::read(&args.look.watch, gap, Protocol::Bip157).unwrap().digest().to_owned()
}

#[test]
fn what_was_asked_with_less_is_not_gone_on_with() {
    let first = item(&script(1));
    let second = item(&script(2));
    assert_eq!(digest(&[&first, &second], 3), digest(&[&second, &first], 4));
    assert_ne!(digest(&[&first], 3), digest(&[&first, &second], 3));
    // A larger gap finds what a smaller one has passed over.
    assert_ne!(digest(&[DESCRIPTOR], 3), digest(&[DESCRIPTOR], 4));
    // A coin with another script was not looked for.
    let coin = |byte| format!("outpoint:{}:0={}", "ab".repeat(32), hex::encode(script(byte)));
    assert_ne!(digest(&[&coin(1)], 3), digest(&[&coin(2)], 3));
}

/// A peer that is behind still has the transaction in its mempool.
#[test]
fn a_confirmed_transaction_is_not_unconfirmed_again() {
    let scratch = Scratch::new("restart-relayed");
    let items = [item(&script(1))];
    let mut blocks = Vec::new();
    for _ in 0..4 {
        push(&mut blocks, &script(8), &[]);
    }
    let genesis = blocks[3].header;
    let paid = mined::spend(&[coin(&blocks[0])], &[&script(1)]);
    blocks.push(mined::block(&genesis, 5, &script(8), std::slice::from_ref(&paid)));
    assert_eq!(txids(&run::<Bloom>(&scratch, &items, (0, None), &blocks)), [paid.compute_txid()]);
    let mut behind = Node::new(&blocks[..4], None);
    behind.mempool = vec![paid];
    let mut world = World::<Bloom>::new(&scratch, &items, (0, None), &[behind]);
    world.run();
    for _ in 0..20 {
        world.step();
    }
    let lines = world.lines();
    assert_eq!(of(&lines, "hit").count(), 0, "{lines:?}");
}

/// Payments that cost nothing to make up, without end.
#[test]
fn unconfirmed_transactions_are_bounded() {
    let scratch = Scratch::new("restart-unconfirmed");
    let mut blocks = Vec::new();
    push(&mut blocks, &script(8), &[]);
    let mut node = Node::new(&blocks, None);
    let coin = coin(&blocks[0]);
    let fake = |number: u32| {
        let other = ScriptBuf::from(number.to_be_bytes().to_vec());
        mined::spend(&[coin], &[&script(1), &other])
    };
    let most = u32::try_from(MAX_UNCONFIRMED).unwrap();
    node.mempool = (0..most + 5).map(fake).collect();
    let items = [item(&script(1))];
    for _ in 0..2 {
        let mut world = World::<Bloom>::new(&scratch, &items, (0, None), &[node.clone()]);
        world.run();
        for _ in 0..2 * most {
            world.step();
        }
        let follower = world.core.follower.as_mut().unwrap();
        assert_eq!(follower.announcer().ledger().unconfirmed(), MAX_UNCONFIRMED);
        node.mempool.reverse();
    }
    // One that is in a block is told all the same.
    let parent = blocks[0].header;
    let last = fake(most + 4);
    blocks.push(mined::block(&parent, 2, &script(8), std::slice::from_ref(&last)));
    let lines = run::<Bloom>(&scratch, &items, (0, None), &blocks);
    assert_eq!(txids(&lines), [last.compute_txid()]);
}
