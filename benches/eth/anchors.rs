//! Proofs that a header is part of the chain, and the lists that they start from.

use alloy_primitives::{B256, U256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{
    ForkSlots, HeaderProof, HistoricalSummary, History, ProofKind, SummariesProof, epoch_root,
};
use chainsieve::eth::anchor::merkle_branch;
use chainsieve::eth::header::HeaderView;

use crate::keccak::headers;
use testkit::timer::Report;

/// Number of summaries of mainnet in May 2025.
const SUMMARIES: usize = 665;

pub(crate) fn run(report: &mut Report) {
    let (_, headers) = headers().remove(0);
    let rlp = &headers[0];
    let header = HeaderView::decode(rlp).expect("a header");
    // A proof under made-up siblings, and a network whose first period is that of the header.
    let forks = ForkSlots { genesis_time: header.timestamp() % 12, ..ForkSlots::MAINNET };
    let slot = header.timestamp() / 12;
    let first = slot / 8192 * 8192;
    let forks = ForkSlots { capella: first, deneb: first, ..forks };
    let execution: Vec<[u8; 32]> = (0..12).map(|level| [level; 32]).collect();
    let beacon: Vec<[u8; 32]> = (50..63).map(|level| [level; 32]).collect();
    let block = merkle_branch::root(header.hash().0, &execution, 6444).expect("the depth");
    let period = merkle_branch::root(block, &beacon, 8192 + slot % 8192).expect("the depth");
    let ssz = [beacon.concat(), block.to_vec(), execution.concat(), slot.to_le_bytes().to_vec()];
    let ssz = ssz.concat();
    let known = HistoricalSummary::list_from_ssz(&[period, [0; 32]].concat());
    let history = History::of(forks).with_summaries(known.expect("one summary"), Grade::Finalized);
    report.figure("decode and verify a header proof of Deneb (25 hashes)", 1, || {
        let header = HeaderView::decode(rlp).expect("a header");
        let proof = HeaderProof::decode(ProofKind::DenebSummaries, &ssz).expect("a proof");
        proof.verify(&header, &history).expect("part of the chain")
    });

    let summary = HistoricalSummary {
        block_summary_root: B256::repeat_byte(1),
        state_summary_root: B256::repeat_byte(2),
    };
    let list = SummariesProof { summaries: vec![summary; SUMMARIES], branch: vec![B256::ZERO; 6] };
    report.figure(&format!("root of {SUMMARIES} historical summaries"), 1, || {
        list.clone().verify(B256::ZERO, Grade::Finalized).expect_err("another root")
    });
    report.figure("root of an epoch, a block", 8192, || {
        epoch_root((0..8192_u64).map(U256::from).map(|block| (B256::from(block), block)))
    });
}
