//! Checks the files of the corpus, and the receipts of its chains against the roots in their
//! headers.

use std::collections::BTreeMap;

use bitcoin::hashes::{Hash as _, sha256};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, Outcome, ReceiptsError};

use testkit::eth::header_files::era::slim;
use testkit::eth::log_chains::Corpus;

/// Compares every file with the index, and counts the files in each folder: a new file also needs a
/// test that uses it.
#[test]
fn every_file_is_what_the_index_says() {
    let Some(corpus) = Corpus::open() else { return };
    let mut folders = BTreeMap::new();
    for file in &corpus.files {
        let name = file["file"].as_str().expect("a name");
        let bytes = corpus.read(name);
        assert_eq!(file["bytes"], bytes.len(), "{name}");
        assert_eq!(file["sha256"], sha256::Hash::hash(&bytes).to_string(), "{name}");
        let (folder, _) = name.rsplit_once('/').expect("a folder");
        *folders.entry(folder).or_insert(0) += 1;
    }
    let expected = [
        ("chains/ea2025b", 5),
        ("chains/ea2026", 5),
        ("chains/ethtest", 5),
        ("facts", 3),
        ("io/ea2025b/eth_getBlockReceipts", 8),
        ("io/ea2025b/eth_getLogs", 4),
        ("io/ea2026/eth_getBlockReceipts", 8),
        ("io/ea2026/eth_getLogs", 11),
        ("queries", 1),
    ];
    assert_eq!(folders, BTreeMap::from(expected));
}

/// Verifies all receipts, and counts the blocks, receipts, receipts with a post-state, and logs of
/// each chain.
#[test]
fn receipts_are_under_the_roots_of_their_headers() {
    let Some(corpus) = Corpus::open() else { return };
    let mut counts = BTreeMap::new();
    for (name, chain) in &corpus.chains {
        let count = counts.entry(*name).or_insert([0; 4]);
        for (block, body) in chain.blocks() {
            let at = format!("{name}, block {}", block.number);
            let view = block.view();
            let slim = BlockReceipts::from_slim_list(&slim(&body.envelopes)).expect("receipts");
            assert!(slim.iter().eq(block.receipts.iter()), "{at}");
            for receipts in [&block.receipts, &slim] {
                let verified = receipts.verify(view.receipts_root(), view.logs_bloom());
                let verified = verified.unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(verified.header_bloom(), BloomAgreement::Exact, "{at}");
                assert_eq!(verified.unsound_receipt(), None, "{at}");
                let places =
                    block.logs.iter().map(|log| (log.transaction_index, log.log_index, &log.log));
                let found =
                    verified.logs().map(|log| (log.transaction_index, log.log_index, log.log));
                assert!(found.eq(places), "{at}");
            }
            if !body.envelopes.is_empty() {
                let mut rest = body.envelopes.clone();
                rest.pop();
                let rest = BlockReceipts::from_slim_list(&self::slim(&rest)).expect("receipts");
                let rest = rest.after_byzantium();
                let error = rest.verify(view.receipts_root(), view.logs_bloom());
                let is_mismatch = matches!(error, Err(ReceiptsError::RootMismatch { .. }));
                assert!(is_mismatch, "{at}: without the last receipt");
            }
            let old = block.receipts.iter().filter(|r| matches!(r.outcome, Outcome::PostState(_)));
            let of_block = [1, block.receipts.len(), old.count(), block.logs.len()];
            for (sum, number) in count.iter_mut().zip(of_block) {
                *sum += number;
            }
        }
    }
    let expected = [
        ("ea2025b", [21, 76, 0, 99]),
        ("ea2026", [55, 249, 83, 383]),
        ("ethtest", [601, 603, 0, 813]),
        ("mainnet", [16, 2_933, 0, 6_669]),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}
