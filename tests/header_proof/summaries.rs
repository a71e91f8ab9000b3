//! Historical summaries: real answers of a beacon node, and every byte of them changed.

use std::collections::BTreeMap;

use alloy_primitives::{B256, b256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{HeaderProofError, HistoricalSummary, SummariesProof};

use crate::corpus::Anchors;
use crate::slow_ssz::{
    Node, concat_generalized_indices, gindex_valid, hash, merkleize, mix_in_length,
};

/// Root of the Deneb state that the sync committee signed, in `chains/deneb_summaries`.
pub(crate) const DENEB_STATE: B256 =
    b256!("8cac7a92267ead2852035327a3d8d7ffc36a66372a15711db93c45306af7165a");
/// Root of the Electra state of the list at epoch 364328, as the corpus names it.
const ELECTRA_STATE: B256 =
    b256!("2d86d7abf03ab5f41417c0babaa33ddb57e0428b339eca03a5002e96cd73a98d");

fn deneb(corpus: &Anchors) -> SummariesProof {
    let text = corpus.text("chains/deneb_summaries/historical_summaries.json");
    SummariesProof::from_json(&text).expect("an answer")
}

fn slow_root(list: &[HistoricalSummary]) -> Node {
    let chunks: Vec<_> = list
        .iter()
        .map(|one| hash(&[one.block_summary_root.0, one.state_summary_root.0].concat()))
        .collect();
    mix_in_length(merkleize(&chunks, 24), chunks.len())
}

#[test]
fn real_lists_are_in_their_states() {
    let Some(corpus) = Anchors::open() else { return };
    let deneb = deneb(&corpus);
    let ssz = corpus.read("history/accumulators/historical_summaries_with_proof_epoch_364328.ssz");
    let electra = SummariesProof::from_ssz(&ssz).expect("a container");
    for (proof, state, gindex, entries) in
        [(&deneb, DENEB_STATE, 32 + 27, 662), (&electra, ELECTRA_STATE, 64 + 27, 665)]
    {
        assert_eq!(proof.summaries.len(), entries);
        let branch: Vec<_> = proof.branch.iter().map(|node| node.0).collect();
        assert!(gindex_valid(slow_root(&proof.summaries), &branch, gindex, state.0));
        assert_eq!(proof.verify(state, Grade::Finalized), Ok(Grade::HistoryOfFinalized));
        assert_eq!(proof.verify(state, Grade::Optimistic), Ok(Grade::Optimistic));
        // With the envelope and without it.
        let json = serde_json::to_string(proof).expect("JSON");
        assert_eq!(SummariesProof::from_json(&json).as_ref(), Ok(proof));
        let enveloped = format!(r#"{{"version":"electra","data":{json}}}"#);
        assert_eq!(SummariesProof::from_json(&enveloped).as_ref(), Ok(proof));
    }
    // The later list extends the earlier one.
    assert_eq!(electra.summaries[..662], deneb.summaries[..]);
    let bare = corpus.read("history/accumulators/historical_summaries_epoch_364328.ssz");
    assert_eq!(HistoricalSummary::list_from_ssz(&bare), Ok(electra.summaries));
}

/// A state of Gloas, made of the list and random siblings.
#[test]
fn a_list_in_a_state_of_gloas() {
    let Some(corpus) = Anchors::open() else { return };
    let mut proof = deneb(&corpus);
    proof.branch = (0..11).map(|level| B256::repeat_byte(level + 1)).collect();
    // Field 27 of a progressive container: the subtree of 64 leaves is 5 + 1 levels down.
    let gindex = 2950;
    let mut node = slow_root(&proof.summaries);
    for (level, sibling) in proof.branch.iter().enumerate() {
        let right = gindex >> level & 1 == 1;
        node = hash(&if right { [sibling.0, node] } else { [node, sibling.0] }.concat());
    }
    assert!(proof.verify(node.into(), Grade::Finalized).is_ok());
    assert_eq!(concat_generalized_indices(&[2950]), 2950);
}

#[test]
fn changed_lists_are_refused() {
    let Some(corpus) = Anchors::open() else { return };
    let ssz = corpus.read("history/accumulators/historical_summaries_with_proof_epoch_364328.ssz");
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    // Every byte of what precedes the list, and every 37th byte of the list.
    let fixed = 12 + 6 * 32;
    for at in (0..fixed).chain((fixed..ssz.len()).step_by(37)) {
        let mut changed = ssz.clone();
        changed[at] ^= 0x04;
        let field = match at {
            0..8 => "epoch",
            8..12 => "offset",
            at if at < fixed => "branch",
            _ => "list",
        };
        let result = SummariesProof::from_ssz(&changed)
            .and_then(|proof| proof.verify(ELECTRA_STATE, Grade::Finalized));
        let outcome = match result {
            Ok(_) => "accepted",
            Err(HeaderProofError::SummariesOffset { .. }) => "offset",
            Err(HeaderProofError::OtherState { expected, .. }) if expected == ELECTRA_STATE => {
                "state"
            }
            Err(error) => panic!("{at}: {error}"),
        };
        *counts.entry((field, outcome)).or_default() += 1;
    }
    println!("summaries changed: {counts:?}");
    // No root covers the epoch, and it is not kept.
    let expected = [
        (("branch", "state"), 192),
        (("epoch", "accepted"), 8),
        (("list", "state"), 42_560_usize.div_ceil(37)),
        (("offset", "offset"), 4),
    ];
    assert_eq!(counts, expected.into_iter().collect());

    for end in 0..ssz.len() {
        let whole = end >= fixed && (end - fixed).is_multiple_of(64);
        let cut = SummariesProof::from_ssz(&ssz[..end]);
        assert_eq!(cut.is_ok(), whole, "{end}");
        if let Ok(cut) = cut
            && end % 4096 < 64
        {
            assert!(cut.verify(ELECTRA_STATE, Grade::Finalized).is_err(), "{end}");
        }
    }
    let proof = SummariesProof::from_ssz(&ssz).expect("a container");
    for found in (0..20).filter(|found| ![5, 6, 11].contains(found)) {
        let branch = vec![B256::ZERO; found];
        let refused =
            SummariesProof { branch, ..proof.clone() }.verify(ELECTRA_STATE, Grade::Finalized);
        assert_eq!(refused, Err(HeaderProofError::BranchLength { found }));
    }
    // The right list under the state of another list.
    let refused = proof.verify(DENEB_STATE, Grade::Finalized);
    assert!(matches!(refused, Err(HeaderProofError::OtherState { .. })), "{refused:?}");
}

#[test]
fn json_that_is_no_answer() {
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"data":{}}"#,
        r#"{"data":null}"#,
        r#"{"proof":[]}"#,
        r#"{"historical_summaries":[{}],"proof":[]}"#,
        r#"{"historical_summaries":[],"proof":["0x00"]}"#,
    ] {
        let refused = SummariesProof::from_json(text);
        assert!(matches!(refused, Err(HeaderProofError::SummariesJson(_))), "{text}: {refused:?}");
    }
    let refused = HistoricalSummary::list_from_ssz(&[0; 96]);
    assert_eq!(refused, Err(HeaderProofError::SummariesLength { found: 96 }));
}
