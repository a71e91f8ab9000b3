use std::sync::Arc;

use chainsieve::bitcoin::consensus::encode::deserialize_hex;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, Network, OutPoint, ScriptBuf, Txid};

use super::super::test_chain::{
    NOW, chain_of, extend, hashes, mine, next_block, reward, spend, take,
};
use super::{Chain, Incoming};

/// Blocks of mainnet and the filter headers that neutrino's list has for them.
fn mainnet() -> Vec<serde_json::Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bitcoin/mainnet_0-255.json");
    let text = std::fs::read_to_string(path).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn blocks_in_any_order_link_and_filters_are_those_of_the_chain() {
    let rows = mainnet();
    let mut blocks: Vec<Block> = rows
        .iter()
        .map(|row| deserialize_hex(row["block"].as_str().expect("hex")).expect("a block"))
        .collect();
    blocks.rotate_left(100);
    blocks.reverse();
    let mut chain = Chain::new(Network::Bitcoin, true);
    let taken = take(&mut chain, &blocks);
    // Genesis is known already.
    assert_eq!(taken.iter().map(|taken| taken.linked).sum::<usize>(), 255);
    assert!(taken.iter().all(|taken| taken.complaints.is_empty()));
    assert_eq!(chain.waiting(), None);
    assert_eq!(chain.tip().hash.to_string(), rows[255]["hash"].as_str().expect("hex"));
    let filters = chain.filters().expect("they are wanted");
    assert_eq!(filters.tip_header().to_string(), rows[255]["filter_header"].as_str().expect("hex"));
    assert!(chain.has_all_filters());
}

#[test]
fn a_branch_with_more_work_takes_over_and_back() {
    let mut ours = mine(6);
    let mut theirs = ours[..3].to_vec();
    extend(&mut theirs, 4, 1);
    let mut chain = chain_of(&ours);
    let filter_header = chain.filters().expect("filters").tip_header();
    // As many blocks: the first that came stays.
    let taken = take(&mut chain, &theirs[3..6]);
    assert!(taken.iter().all(|taken| taken.linked == 1 && taken.disconnected == 0));
    assert_eq!(chain.tip().hash, ours[5].block_hash());
    // A block that was never in the chain is nobody's business.
    assert!(chain.block(&theirs[5].block_hash()).is_none());
    let taken = take(&mut chain, &theirs[6..]);
    assert_eq!((taken[0].linked, taken[0].disconnected), (1, 3));
    assert_eq!(chain.tip().hash, theirs[6].block_hash());
    assert!(chain.has_all_filters());
    // One that was is answered for some time.
    assert!(chain.block(&ours[5].block_hash()).is_some());
    assert_eq!(chain.fork_height(ours[5].block_hash()), Some(3));
    let old_tip = ours[5].block_hash();
    extend(&mut ours, 2, 0);
    let taken = take(&mut chain, &ours[6..]);
    assert_eq!((taken[0].disconnected, taken[1].disconnected), (0, 4));
    assert_eq!((chain.tip().height, chain.tip().hash), (8, ours[7].block_hash()));
    assert_eq!(chain.fork_height(old_tip), Some(6));
    let store = chain.filters().expect("filters");
    let at_6 = chainsieve::btc::bip157::server::FilterStore::filter_header(store, &old_tip);
    assert_eq!(at_6, Some(filter_header));
}

#[test]
fn a_month_later_a_block_that_left_is_forgotten() {
    let ours = mine(2);
    let mut theirs = Vec::new();
    extend(&mut theirs, 3, 1);
    let mut chain = chain_of(&[ours.clone(), theirs.clone()].concat());
    assert!(chain.block(&ours[1].block_hash()).is_some());
    // 600 s a block.
    extend(&mut theirs, 30 * 24 * 6, 1);
    take(&mut chain, &theirs);
    assert!(chain.block(&ours[1].block_hash()).is_none());
    assert!(chain.block(&theirs[1].block_hash()).is_some());
}

#[test]
fn what_waits_is_said() {
    let blocks = mine(5);
    let mut chain = chain_of(&[blocks[1].clone(), blocks[2].clone(), blocks[4].clone()]);
    let (waiting, missing) = chain.waiting().expect("three wait");
    assert_eq!(waiting, 3);
    assert!([blocks[0].block_hash(), blocks[3].block_hash()].contains(&missing));
    assert_eq!(chain.tip().height, 0);
    assert_eq!(take(&mut chain, &blocks[..1])[0].linked, 3);
    assert_eq!(chain.waiting(), Some((1, blocks[3].block_hash())));
    assert_eq!((chain.tip().height, chain.len()), (3, 4));
}

#[test]
fn wrong_blocks_are_refused_in_words() {
    let mut chain = Chain::new(Network::Regtest, true);
    let mut block = mine(1).remove(0);
    let twice = block.txdata[0].clone();
    block.txdata.push(twice);
    let taken = take(&mut chain, &[block]);
    assert_eq!(taken[0].linked, 0);
    assert!(taken[0].complaints[0].contains("only the first can be"), "{taken:?}");
    // From the future.
    let block = mine(1).remove(0);
    let incoming = Incoming { block, prevouts: None };
    let taken = chain.take(incoming, 1_000_000_000);
    assert_eq!((taken.linked, taken.complaints.len()), (0, 1), "{taken:?}");
    assert_eq!(chain.tip().height, 0);
}

#[test]
fn without_a_spent_script_there_are_no_filters_from_there_on() {
    let mut blocks = mine(2);
    let elsewhere = OutPoint { txid: Txid::all_zeros(), vout: 7 };
    let unknown = next_block(&blocks, 0, vec![spend(elsewhere, ScriptBuf::new(), 1)]);
    blocks.push(unknown);
    extend(&mut blocks, 2, 0);
    let mut chain = Chain::new(Network::Regtest, true);
    let taken = take(&mut chain, &blocks);
    let complaints: Vec<_> = taken.iter().flat_map(|taken| &taken.complaints).collect();
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].contains("height 3: no filters from here on"), "{complaints:?}");
    assert!(!chain.has_all_filters());
    let filters = chain.filters().expect("those before");
    assert_eq!(filters.tip(), Some(blocks[1].block_hash()));
    // A branch without that block has all of its filters.
    let mut theirs = blocks[..2].to_vec();
    extend(&mut theirs, 4, 1);
    take(&mut chain, &theirs[2..]);
    assert_eq!(chain.tip().hash, theirs[5].block_hash());
    assert!(chain.has_all_filters());
}

#[test]
fn spent_scripts_may_come_from_elsewhere() {
    let mut blocks = mine(1);
    let parent = spend(OutPoint::null(), ScriptBuf::from_bytes(vec![0x52]), 1);
    let outpoint = OutPoint { txid: parent.compute_txid(), vout: 0 };
    let spender = next_block(&blocks, 0, vec![spend(outpoint, ScriptBuf::new(), 1)]);
    blocks.push(spender);
    let mut chain = Chain::new(Network::Regtest, true);
    chain.learn(&parent);
    take(&mut chain, &blocks);
    assert!(chain.has_all_filters());
    // Or with the block.
    let mut chain = Chain::new(Network::Regtest, true);
    take(&mut chain, &blocks[..1]);
    let prevouts = Some(vec![parent.output[0].script_pubkey.clone()]);
    let taken = chain.take(Incoming { block: blocks[1].clone(), prevouts }, NOW);
    assert_eq!((taken.linked, taken.complaints.len()), (1, 0));
    assert!(chain.has_all_filters());
}

#[test]
fn the_pool_loses_what_blocks_have_and_what_conflicts_with_them() {
    let blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let script = |byte| ScriptBuf::from_bytes(vec![byte]);
    let parent = spend(reward(&blocks[0]), script(0x51), 3);
    let coin =
        |tx: &chainsieve::bitcoin::Transaction| OutPoint { txid: tx.compute_txid(), vout: 0 };
    let child = spend(coin(&parent), script(0x52), 2);
    let grandchild = spend(coin(&child), script(0x53), 1);
    let other = spend(reward(&blocks[1]), script(0x54), 1);
    let all = [&grandchild, &other, &child, &parent].map(|tx| Arc::new(tx.clone()));
    chain.set_pool(all);
    let open = |chain: &Chain| -> Vec<Txid> { chain.pool().open().map(|(txid, _)| txid).collect() };
    let order = open(&chain);
    let place = |tx: &chainsieve::bitcoin::Transaction| {
        order.iter().position(|txid| *txid == tx.compute_txid()).expect("it is open")
    };
    assert_eq!(order.len(), 4);
    assert!(place(&parent) < place(&child) && place(&child) < place(&grandchild));
    let version = chain.version();
    // The parent gets into a block, and the other's coin is spent elsewhere.
    let conflict = spend(reward(&blocks[1]), script(0x55), 1);
    let mut branch = blocks.clone();
    branch.push(next_block(&blocks, 0, vec![parent.clone(), conflict]));
    take(&mut chain, &branch[3..]);
    assert_ne!(chain.version(), version);
    assert_eq!(open(&chain), [child.compute_txid(), grandchild.compute_txid()]);
    assert!(chain.transaction(&parent.compute_txid()).is_none());
    assert!(chain.witness_transaction(&child.compute_wtxid()).is_some());
    // Another spends the parent's coin: its descendants are lost too.
    branch.push(next_block(&branch, 0, vec![spend(coin(&parent), script(0x56), 1)]));
    take(&mut chain, &branch[4..]);
    assert_eq!(open(&chain), []);
    // All are back when those blocks leave the chain.
    let mut theirs = blocks;
    extend(&mut theirs, 3, 1);
    take(&mut chain, &theirs[3..]);
    assert_eq!(chain.tip().hash, hashes(&theirs)[5]);
    assert_eq!(chain.pool().len(), 4);
}
