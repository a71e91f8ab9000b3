//! Proofs of headers and historical summaries: any bytes give a proof or an error. A proof that was
//! decoded encodes to the same bytes, and no made-up proof holds.
#![no_main]

use chainsieve::alloy_primitives::{B256, keccak256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{
    HeaderProof, HeaderProofError, HistoricalSummary, History, ProofKind, SummariesProof,
};
use libfuzzer_sys::fuzz_target;

/// A proof that holds would lead from the hash of its own bytes to a known root.
fn examine(proof: &HeaderProof) {
    let hash = keccak256(proof.encode());
    let known = HistoricalSummary::list_from_ssz(&[7; 64]).expect("one summary");
    let with_one = History::mainnet().with_summaries(known, Grade::Finalized);
    for history in [History::mainnet(), with_one] {
        assert!(proof.verify_hash(hash, &history).is_err());
    }
    let _ = (proof.slot(), proof.beacon_block());
}

fn examine_list(read: Result<SummariesProof, HeaderProofError>) {
    if let Ok(list) = read {
        assert!(list.verify(B256::repeat_byte(1), Grade::Finalized).is_err());
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(proof) = HeaderProof::decode_record(data) {
        assert_eq!(proof.encode_record(), data);
        examine(&proof);
    }
    examine_list(SummariesProof::from_ssz(data));
    if let Ok(text) = std::str::from_utf8(data) {
        examine_list(SummariesProof::from_json(text));
        if let Ok(proof) = serde_json::from_str::<HeaderProof>(text) {
            let again = serde_json::to_string(&proof).expect("JSON");
            assert_eq!(serde_json::from_str::<HeaderProof>(&again).expect("the same"), proof);
        }
    }
    let Some((&code, ssz)) = data.split_first() else { return };
    let Ok(kind) = ProofKind::from_code(u64::from(code % 8)) else { return };
    // The first bytes, repeated to the length of the kind.
    let ssz: Vec<u8> = ssz.iter().copied().cycle().take(kind.ssz_length()).collect();
    if let Ok(proof) = HeaderProof::decode(kind, &ssz) {
        assert_eq!(proof.encode(), ssz);
        examine(&proof);
    }
});
