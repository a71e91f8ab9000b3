//! Merkle blocks from known txids, compared with `bitcoin`'s.

use bitcoin::consensus::serialize;
use bitcoin::{MerkleBlock as BitcoinMerkleBlock, Txid};
use chainsieve::btc::bip37::{BlockElements, MerkleBlock};

use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let (_, raw) = &crate::blocks(&[702_861])[0];
    let block = BlockElements::from_raw(raw).expect("a block of the corpus");
    let (header, txids) = (block.header(), block.txids());
    let count = u32::try_from(txids.len()).expect("transactions of a block");
    for (name, step) in [("1", count), ("1/64", 64), ("1/2", 2), ("all", 1)] {
        let matched: Vec<u32> = (0..count).step_by(step as usize).collect();
        // `bitcoin` calls a predicate for each txid. This predicate costs almost nothing.
        let flags: Vec<bool> = (0..count).map(|index| index % step == 0).collect();
        let theirs = || {
            let next = std::cell::Cell::new(0);
            let is_matched = |_: &Txid| flags[next.replace(next.get() + 1)];
            BitcoinMerkleBlock::from_header_txids_with_predicate(header, txids, is_matched)
        };
        let ours = || MerkleBlock::new(header, txids, &matched).expect("positions in order");
        assert_eq!(ours().encode(), serialize(&theirs()));
        report.ratio(
            &format!("merkleblock from {count} txids, {name} matched, best vs bitcoin"),
            1,
            ours,
            theirs,
        );
        let (ours, theirs) = (ours(), theirs());
        let ours = || ours.extract_matches().expect("built above");
        let theirs = || {
            let (mut matches, mut indexes) = (Vec::new(), Vec::new());
            theirs.extract_matches(&mut matches, &mut indexes).expect("built above");
            (matches, indexes)
        };
        let (matches, indexes) = theirs();
        assert!(ours().into_iter().eq(indexes.into_iter().zip(matches)));
        report.ratio(
            &format!("extract matches of {count}, {name} matched, vs bitcoin"),
            1,
            ours,
            theirs,
        );
    }
}
