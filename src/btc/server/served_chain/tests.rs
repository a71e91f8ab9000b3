use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Network, OutPoint, ScriptBuf, Transaction, Txid, Witness};

use super::super::mempool::{MAX_ACCEPTED, MAX_ACCEPTED_WEIGHT};
use super::super::tests::{NOW, add, chain_of};
use super::{ServedChain, TransactionError};
use crate::btc::tests::{extend, hashes, mine, next_block, reward, spend};

/// Blocks of mainnet, each with its filter header from the published list of neutrino.
fn mainnet() -> Vec<serde_json::Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/bitcoin/mainnet_0-255.json");
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
    let mut chain = ServedChain::new(Network::Bitcoin, true);
    let added = add(&mut chain, &blocks);
    // Genesis is known already, so 255 of 256 blocks are linked.
    assert_eq!(added.iter().map(|added| added.linked).sum::<usize>(), 255);
    assert!(added.iter().all(|added| added.errors.is_empty()));
    assert_eq!(chain.waiting(), None);
    assert_eq!(chain.tip().hash.to_string(), rows[255]["hash"].as_str().expect("hex"));
    let filters = chain.filters().expect("with filters");
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
    // If two branches have equal work, the branch that was added first stays active.
    let added = add(&mut chain, &theirs[3..6]);
    assert!(added.iter().all(|added| added.linked == 1 && added.disconnected == 0));
    assert_eq!(chain.tip().hash, ours[5].block_hash());
    // A block that was never in the active chain is not served.
    assert!(chain.block(&theirs[5].block_hash()).is_none());
    let added = add(&mut chain, &theirs[6..]);
    assert_eq!((added[0].linked, added[0].disconnected), (1, 3));
    assert_eq!(chain.tip().hash, theirs[6].block_hash());
    assert!(chain.has_all_filters());
    // A block that was in the active chain is served for some time.
    assert!(chain.block(&ours[5].block_hash()).is_some());
    assert_eq!(chain.fork_height(ours[5].block_hash()), Some(3));
    let old_tip = ours[5].block_hash();
    extend(&mut ours, 2, 0);
    let added = add(&mut chain, &ours[6..]);
    assert_eq!((added[0].disconnected, added[1].disconnected), (0, 4));
    assert_eq!((chain.tip().height, chain.tip().hash), (8, ours[7].block_hash()));
    assert_eq!(chain.fork_height(old_tip), Some(6));
    let store = chain.filters().expect("filters");
    let at_6 = store.filter_header(&old_tip);
    assert_eq!(at_6, Some(filter_header));
}

#[test]
fn a_month_later_a_block_that_left_is_forgotten() {
    let ours = mine(2);
    let mut theirs = Vec::new();
    extend(&mut theirs, 3, 1);
    let mut chain = chain_of(&[ours.clone(), theirs.clone()].concat());
    assert!(chain.block(&ours[1].block_hash()).is_some());
    // 30 days at 600 s per block.
    extend(&mut theirs, 30 * 24 * 6, 1);
    add(&mut chain, &theirs);
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
    assert_eq!(add(&mut chain, &blocks[..1])[0].linked, 3);
    assert_eq!(chain.waiting(), Some((1, blocks[3].block_hash())));
    assert_eq!((chain.tip().height, chain.len()), (3, 4));
}

#[test]
fn wrong_blocks_are_refused_in_words() {
    let mut chain = ServedChain::new(Network::Regtest, true);
    let mut block = mine(1).remove(0);
    let twice = block.txdata[0].clone();
    block.txdata.push(twice);
    let added = add(&mut chain, &[block]);
    assert_eq!(added[0].linked, 0);
    assert!(added[0].errors[0].to_string().contains("only the first can be"), "{added:?}");
    // A block whose header is too far ahead of the clock is refused.
    let block = mine(1).remove(0);
    let added = chain.add_block(block, None, Duration::from_secs(1_000_000_000));
    assert_eq!((added.linked, added.errors.len()), (0, 1), "{added:?}");
    assert_eq!(chain.tip().height, 0);
}

#[test]
fn without_a_spent_script_there_are_no_filters_from_there_on() {
    let mut blocks = mine(2);
    let elsewhere = OutPoint { txid: Txid::all_zeros(), vout: 7 };
    let unknown = next_block(&blocks, 0, vec![spend(elsewhere, ScriptBuf::new(), 1)]);
    blocks.push(unknown);
    extend(&mut blocks, 2, 0);
    let mut chain = ServedChain::new(Network::Regtest, true);
    let added = add(&mut chain, &blocks);
    let errors: Vec<_> = added.iter().flat_map(|added| &added.errors).collect();
    assert_eq!(errors.len(), 1);
    let text = errors[0].to_string();
    assert!(text.contains("height 3: no filters from here on"), "{text}");
    assert!(!chain.has_all_filters());
    let filters = chain.filters().expect("those before");
    assert_eq!(filters.tip(), Some(blocks[1].block_hash()));
    // On a branch without the block whose script is unknown, every block has its filter.
    let mut theirs = blocks[..2].to_vec();
    extend(&mut theirs, 4, 1);
    add(&mut chain, &theirs[2..]);
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
    let mut chain = ServedChain::new(Network::Regtest, true);
    chain.add_outputs(&parent);
    add(&mut chain, &blocks);
    assert!(chain.has_all_filters());
    // The scripts may also be given with the block.
    let mut chain = ServedChain::new(Network::Regtest, true);
    add(&mut chain, &blocks[..1]);
    let prevouts = Some(vec![parent.output[0].script_pubkey.clone()]);
    let added = chain.add_block(blocks[1].clone(), prevouts, NOW);
    assert_eq!((added.linked, added.errors.len()), (1, 0));
    assert!(chain.has_all_filters());
}

#[test]
fn the_pool_loses_what_blocks_have_and_what_conflicts_with_them() {
    let blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let script = |byte| ScriptBuf::from_bytes(vec![byte]);
    let parent = spend(reward(&blocks[0]), script(0x51), 3);
    let coin = |tx: &Transaction| OutPoint { txid: tx.compute_txid(), vout: 0 };
    let child = spend(coin(&parent), script(0x52), 2);
    let grandchild = spend(coin(&child), script(0x53), 1);
    let other = spend(reward(&blocks[1]), script(0x54), 1);
    let all = [&grandchild, &other, &child, &parent].map(|tx| Arc::new(tx.clone()));
    chain.set_transactions(all);
    let open = |chain: &ServedChain| -> Vec<Txid> {
        chain.mempool().iter().map(|(txid, _)| txid).collect()
    };
    let order = open(&chain);
    let place = |tx: &Transaction| {
        order.iter().position(|txid| *txid == tx.compute_txid()).expect("it is open")
    };
    assert_eq!(order.len(), 4);
    assert!(place(&parent) < place(&child) && place(&child) < place(&grandchild));
    let version = chain.version();
    // A new block contains the parent and another transaction, which spends the coin of `other`.
    let conflict = spend(reward(&blocks[1]), script(0x55), 1);
    let mut branch = blocks.clone();
    branch.push(next_block(&blocks, 0, vec![parent.clone(), conflict]));
    add(&mut chain, &branch[3..]);
    assert_ne!(chain.version(), version);
    assert_eq!(open(&chain), [child.compute_txid(), grandchild.compute_txid()]);
    assert!(chain.mempool().get(&parent.compute_txid()).is_none());
    assert!(chain.mempool().get_by_wtxid(&child.compute_wtxid()).is_some());
    // A block spends the coin of the parent, so the child and the grandchild conflict with it.
    branch.push(next_block(&branch, 0, vec![spend(coin(&parent), script(0x56), 1)]));
    add(&mut chain, &branch[4..]);
    assert_eq!(open(&chain), []);
    // All four transactions are open again when the two new blocks leave the chain.
    let mut theirs = blocks;
    extend(&mut theirs, 3, 1);
    add(&mut chain, &theirs[3..]);
    assert_eq!(chain.tip().hash, hashes(&theirs)[5]);
    assert_eq!(chain.mempool().len(), 4);
}

fn script(byte: u8) -> ScriptBuf {
    ScriptBuf::from_bytes(vec![byte])
}

fn first_output(tx: &Transaction) -> OutPoint {
    OutPoint { txid: tx.compute_txid(), vout: 0 }
}

#[test]
fn transactions_of_peers_spend_what_is_there_and_nobody_has_spent() {
    let blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let parent = spend(reward(&blocks[0]), script(0x51), 3);
    let child = spend(first_output(&parent), script(0x52), 2);
    let rival = spend(reward(&blocks[0]), script(0x53), 3);
    let missing = TransactionError::MissingInput(first_output(&parent));
    assert_eq!(chain.add_transaction(child.clone()), Err(missing));
    let version = chain.version();
    assert_eq!(chain.add_transaction(parent.clone()), Ok(()));
    assert_eq!(chain.add_transaction(child.clone()), Ok(()));
    assert_eq!(chain.version(), version + 2);
    let order: Vec<_> = chain.mempool().iter().map(|(txid, _)| txid).collect();
    assert_eq!(order, [parent.compute_txid(), child.compute_txid()]);
    let (txid, outpoint) = (parent.compute_txid(), reward(&blocks[0]));
    assert_eq!(chain.add_transaction(parent.clone()), Err(TransactionError::AlreadyThere(txid)));
    let spent = TransactionError::Spent { outpoint, by: txid };
    assert_eq!(chain.add_transaction(rival.clone()), Err(spent.clone()));
    let beyond = OutPoint { txid, vout: 1 };
    assert_eq!(
        chain.add_transaction(spend(beyond, script(0x51), 1)),
        Err(TransactionError::MissingInput(beyond))
    );
    assert_eq!(chain.add_transaction(blocks[1].txdata[0].clone()), Err(TransactionError::Coinbase));
    let mut empty = rival.clone();
    empty.output.clear();
    assert_eq!(chain.add_transaction(empty), Err(TransactionError::Empty));
    // The parent is in a block, and becomes open again when that block leaves the chain.
    let mut branch = blocks.clone();
    branch.push(next_block(&blocks, 0, vec![parent.clone()]));
    add(&mut chain, &branch[3..]);
    assert_eq!(chain.add_transaction(parent), Err(TransactionError::InBlock(txid)));
    assert_eq!(chain.add_transaction(rival), Err(spent));
    assert_eq!(chain.mempool().len(), 1);
    let mut theirs = blocks;
    extend(&mut theirs, 2, 1);
    add(&mut chain, &theirs[3..]);
    assert_eq!(chain.mempool().len(), 2);
    // The operator replaces only the transactions of the operator.
    let own = spend(reward(&theirs[1]), script(0x54), 1);
    chain.set_transactions([Arc::new(own.clone())]);
    assert_eq!(chain.mempool().len(), 3);
    chain.set_transactions([]);
    assert_eq!(chain.mempool().len(), 2);
    assert!(!chain.mempool().contains(&own.compute_txid()));
}

#[test]
fn transactions_of_peers_are_bounded_and_what_is_settled_makes_room() {
    let blocks = mine(1);
    let mut chain = chain_of(&blocks);
    let heavy = |bytes: usize| {
        let mut tx = spend(reward(&blocks[0]), script(0x51), 1);
        tx.output[0].script_pubkey = ScriptBuf::from_bytes(vec![0x51; bytes]);
        tx
    };
    // Each byte of the script costs 4 weight units. `fits` is the largest script within the limit.
    let spare = MAX_ACCEPTED_WEIGHT - heavy(70_000).weight().to_wu();
    let fits = 70_000 + usize::try_from(spare / 4).unwrap();
    let too_heavy = heavy(fits + 1).weight().to_wu();
    assert_eq!(chain.add_transaction(heavy(fits + 1)), Err(TransactionError::TooHeavy(too_heavy)));
    assert!(too_heavy - MAX_ACCEPTED_WEIGHT <= 4);
    // There is one coin for each transaction that the mempool can hold, and there are two further
    // coins.
    let mut fan = spend(reward(&blocks[0]), script(0x51), 1);
    fan.output = vec![fan.output[0].clone(); MAX_ACCEPTED + 2];
    let branch = [blocks.clone(), vec![next_block(&blocks, 0, vec![fan.clone()])]].concat();
    add(&mut chain, &branch[1..]);
    let txid = fan.compute_txid();
    let small = |vout: usize| {
        let vout = u32::try_from(vout).unwrap();
        spend(OutPoint { txid, vout }, script(0x51), 1)
    };
    for vout in 0..MAX_ACCEPTED {
        assert_eq!(chain.add_transaction(small(vout)), Ok(()));
    }
    let full = TransactionError::Full(MAX_ACCEPTED);
    assert_eq!(chain.add_transaction(small(MAX_ACCEPTED)), Err(full.clone()));
    let mined = next_block(&branch, 0, vec![small(0)]);
    add(&mut chain, &[mined]);
    assert_eq!(chain.add_transaction(small(MAX_ACCEPTED)), Ok(()));
    assert_eq!(chain.add_transaction(small(MAX_ACCEPTED + 1)), Err(full));
    assert_eq!(chain.mempool().len(), MAX_ACCEPTED);
}

#[test]
fn another_witness_of_a_transaction_takes_the_place_of_the_first() {
    let blocks = mine(1);
    let mut chain = chain_of(&blocks);
    let tx = |byte| {
        let mut tx = spend(reward(&blocks[0]), script(0x51), 1);
        tx.input[0].witness = Witness::from_slice(&[[byte; 64]]);
        tx
    };
    assert_eq!(chain.add_transaction(tx(1)), Ok(()));
    // A transaction of the operator replaces the transaction of the peer.
    chain.set_transactions([Arc::new(tx(2))]);
    assert!(chain.mempool().get_by_wtxid(&tx(1).compute_wtxid()).is_none());
    let kept = chain.mempool().get_by_wtxid(&tx(2).compute_wtxid()).expect("it is there");
    assert_eq!(**kept, tx(2));
    assert_eq!(chain.mempool().len(), 1);
}
