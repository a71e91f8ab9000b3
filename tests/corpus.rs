//! Everything under `CHAINSIEVE_CORPUS`, found through its `index.json`.
//!
//! Without the variable these tests say so and pass; with `CI` set they fail instead.

#[path = "support/checks.rs"]
mod checks;
#[path = "support/corpus_files.rs"]
mod corpus_files;
#[path = "support/entry_points.rs"]
mod entry_points;
#[path = "support/oracle.rs"]
mod oracle;
mod slow_bip37;
#[path = "support/tree_checks.rs"]
mod tree_checks;

use std::collections::BTreeMap;

use chainsieve::bitcoin::{Block, consensus};

use corpus_files::Corpus;

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
    let counts = checks::check_all(&text, &|name| corpus.block(name));
    let expected =
        [("match", 440), ("script", 700), ("sizing", 1_500), ("tree", 990), ("update", 408)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    println!("oracle cases by kind: {counts:?}");
}
