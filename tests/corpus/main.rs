//! Tests over all files under `CHAINSIEVE_CORPUS`, which are found through `index.json`.
//!
//! Without the variable, these tests print a line and pass. If `CI` is set, they fail instead.

mod bip158;
mod bloom_index;
mod btc_headers;
mod eth_files;
mod eth_headers;
mod eth_index;
mod eth_queries;
mod eth_receipts;
mod eth_scans;
mod script_filters;

use std::collections::BTreeMap;

use chainsieve::bitcoin::{Block, consensus};
use chainsieve::btc::bip37::{BlockElements, MerkleBlock};
use chainsieve::btc::merkle_tree::merkle_root;

use testkit::btc::corpus::Corpus;

#[test]
fn every_file_of_the_index_is_there() {
    let Some(corpus) = Corpus::open() else { return };
    let mut formats = BTreeMap::new();
    for file in &corpus.files {
        assert_eq!(corpus.read(&file.name).len() as u64, file.size, "{}: size", file.name);
        *formats.entry(file.format_kind()).or_insert(0) += 1;
    }
    let expected = [("raw block", 30), ("framed blocks", 1), ("merkleblock", 1), ("other", 46)];
    assert_eq!(formats, expected.into_iter().collect());
}

#[test]
fn raw_blocks_are_what_the_index_says() {
    let Some(corpus) = Corpus::open() else { return };
    let (mut blocks, mut transactions) = (0, 0);
    for file in corpus.files.iter().filter(|file| file.format_kind() == "raw block") {
        let raw = corpus.read(&file.name);
        let block: Block =
            consensus::deserialize(&raw).unwrap_or_else(|e| panic!("{}: {e}", file.name));
        assert_eq!(Some(block.block_hash().to_string()), file.hash, "{}: hash", file.name);
        assert_eq!(Some(block.txdata.len() as u64), file.transactions, "{}: txs", file.name);
        assert_eq!(consensus::serialize(&block), raw, "{}: written back", file.name);
        assert!(block.check_merkle_root(), "{}: merkle root", file.name);
        blocks += 1;
        transactions += block.txdata.len();
    }
    assert_eq!((blocks, transactions), (30, 20_335));
}

#[test]
fn core_answers_every_case_the_same() {
    let Some(corpus) = Corpus::open() else { return };
    let text = String::from_utf8(corpus.read("core_oracle/cases.jsonl")).expect("UTF-8");
    let counts = testkit::btc::bip37_cases::check_all(&text, &|name| corpus.block(name));
    let expected =
        [("match", 440), ("script", 700), ("sizing", 1_500), ("tree", 990), ("update", 408)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    println!("oracle cases by kind: {counts:?}");
}

/// Reads a merkle block that another implementation made from a block of the corpus.
#[test]
fn merkle_blocks_of_others() {
    let Some(corpus) = Corpus::open() else { return };
    let mut read = 0;
    for file in corpus.files.iter().filter(|file| file.format_kind() == "merkleblock") {
        let payload = corpus.read(&file.name);
        let block = MerkleBlock::decode(&payload).unwrap_or_else(|e| panic!("{}: {e}", file.name));
        assert_eq!(Some(block.header.block_hash().to_string()), file.hash, "{}", file.name);
        assert_eq!(block.encode(), payload, "{}", file.name);

        let full = corpus.block("block_300025");
        let matches = block.extract_matches().unwrap_or_else(|e| panic!("{}: {e}", file.name));
        assert_eq!(block.num_transactions as usize, full.block.txdata.len(), "{}", file.name);
        assert!(!matches.is_empty(), "{}: no matches", file.name);
        for (index, txid) in &matches {
            let tx = &full.block.txdata[*index as usize];
            assert_eq!(*txid, tx.compute_txid(), "{}: transaction {index}", file.name);
        }
        let matched: Vec<_> = matches.iter().map(|(index, _)| *index as usize).collect();
        let built = testkit::btc::slow_bip37::tree::merkle_block(&full.block, &matched);
        assert_eq!(hex::encode(built), hex::encode(&payload), "{}: built again", file.name);
        read += 1;
    }
    assert_eq!(read, 1);
}

/// The first 256 blocks of mainnet are linked by their hashes.
#[test]
fn framed_blocks_are_a_chain() {
    let Some(corpus) = Corpus::open() else { return };
    let file = corpus.files.iter().find(|file| file.format_kind() == "framed blocks");
    let bytes = corpus.read(&file.expect("framed blocks").name);
    let mut rest = &bytes[..];
    let mut previous = None;
    let mut blocks = 0;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (raw, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        rest = behind;
        let elements = BlockElements::from_raw(raw).unwrap_or_else(|e| panic!("{blocks}: {e}"));
        let header = elements.header();
        assert_eq!(merkle_root(elements.txids()), Some(header.merkle_root), "block {blocks}");
        if let Some(previous) = previous.replace(header.block_hash()) {
            assert_eq!(header.prev_blockhash, previous, "block {blocks}");
        }
        blocks += 1;
    }
    assert_eq!((blocks, rest.len()), (256, 0));
    assert_eq!(previous.map(|hash| hash.to_string()), file.and_then(|file| file.hash.clone()));
}
