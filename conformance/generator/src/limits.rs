//! Cases at limits that a specification names, for areas that other modules fill.

use bitcoin::blockdata::constants::genesis_block;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, MerkleBlock, Network};
use serde_json::json;

use crate::pack::{Area, Case, Level, invalid, value};
use crate::sources::{Sources, text};

/// Adds the cases to their areas.
pub(crate) fn add(areas: &mut [Area], sources: &Sources) {
    let mut put = |name: &str, cases: Vec<Case>| {
        let area = areas.iter_mut().find(|area| area.name == name).expect("an area");
        area.groups[0].cases.extend(cases);
    };
    put("bip37.merkleblock", most_transactions(sources));
    put("bip37.merkleblock_build", one_transaction());
    put("filter.parquet", bitset_lengths());
}

/// Merkle blocks without matches, whose only hash is the root: of as many transactions as a block can
/// have, and of one more.
fn most_transactions(sources: &Sources) -> Vec<Case> {
    let kept = sources.fixture("bitcoin/blocks/mainnet_170.json");
    let block: Block =
        deserialize(&hex::decode(text(&kept["block"])).expect("hex")).expect("a block");
    let payload = |transactions: u32| {
        let mut payload = serialize(&block.header);
        payload.extend(transactions.to_le_bytes());
        payload.push(1);
        payload.extend(block.header.merkle_root.to_byte_array());
        payload.extend([1, 0]);
        json!({ "merkleblock": hex::encode(payload) })
    };
    let cases = [
        Case::new(
            "16,666 transactions: as many as have room in a block",
            payload(16_666),
            value(json!({ "matches": [] })),
        )
        .named("most-transactions"),
        Case::new("16,667 transactions: one too many", payload(16_667), invalid("tree"))
            .named("a-transaction-too-many")
            .flag("Hostile"),
    ];
    let source = "Bitcoin Core 28.1, CPartialMerkleTree::ExtractMatches, as read";
    cases.map(|case| case.level(Level::Specification).source(source)).into()
}

/// Merkle blocks of a block with one transaction, whose id is the root.
fn one_transaction() -> Vec<Case> {
    let block = genesis_block(Network::Bitcoin);
    let cases = [vec![], vec![0]].map(|matched: Vec<u32>| {
        let built = MerkleBlock::from_block_with_predicate(&block, |_| !matched.is_empty());
        let input = json!({ "block": hex::encode(serialize(&block)), "matched": matched });
        let expect = value(json!({ "merkleblock": hex::encode(serialize(&built)) }));
        let comment = format!("the block of one transaction, {} of it matched", matched.len());
        Case::new(comment, input, expect)
            .level(Level::Specification)
            .source("the crate bitcoin 0.32")
    });
    cases.into()
}

/// Bitsets that are no whole number of blocks, or no block.
fn bitset_lengths() -> Vec<Case> {
    [("no-block", 0), ("half-a-block", 16), ("a-block-and-a-byte", 33)]
        .map(|(name, length)| {
            let input = json!({ "bitset": "00".repeat(length), "data": "6b6579" });
            Case::new(format!("a bitset of {length} bytes"), input, invalid("length"))
                .named(name)
                .flag("Hostile")
                .level(Level::Specification)
                .source("BloomFilter.md of parquet-format: one or more blocks of 32 bytes")
        })
        .into()
}
