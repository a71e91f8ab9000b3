//! Every byte of every header proof, of its header and of its record is changed. The reason for
//! the refusal is counted by the field that was changed, and the slow checker agrees.

use std::collections::BTreeMap;

use chainsieve::eth::anchor::header_proof::{HeaderProof, HeaderProofError, ProofKind};
use chainsieve::eth::header::HeaderView;

use crate::corpus::{Anchors, HeaderCase};
use crate::headers::SlowLists;

/// Values that a byte is combined with: its lowest bit, its highest bit, all bits.
const CHANGES: [u8; 3] = [0x01, 0x80, 0xff];

fn changed(bytes: &[u8], at: usize, by: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= by;
    bytes
}

const fn reason(error: &HeaderProofError) -> &'static str {
    match error {
        HeaderProofError::NotBeforeMerge { .. } => "not before the Merge",
        HeaderProofError::WrongFork { .. } => "fork",
        HeaderProofError::Time { .. } => "time",
        HeaderProofError::Epoch { .. } => "epoch",
        HeaderProofError::Execution { .. } => "execution",
        HeaderProofError::Beacon { .. } => "beacon",
        HeaderProofError::UnknownPeriod { .. } => "unknown period",
        _ => "other",
    }
}

/// Returns the field that a byte of a proof belongs to.
fn field(kind: ProofKind, at: usize) -> &'static str {
    let beacon = if kind == ProofKind::HistoricalRoots { 14 * 32 } else { 13 * 32 };
    let slot = kind.ssz_length() - 8;
    match at {
        _ if kind == ProofKind::Accumulator => "branch",
        at if at < beacon => "beacon branch",
        at if at < beacon + 32 => "beacon block",
        at if at < slot => "execution branch",
        _ => "slot",
    }
}

fn verified(case: &HeaderCase, ssz: &[u8]) -> Result<(), HeaderProofError> {
    let proof = HeaderProof::decode(case.kind, ssz).expect("the length");
    match &case.header {
        Some(rlp) => {
            let header = HeaderView::decode(rlp).expect(&case.name);
            proof.verify(&header, &case.history).map(|_| ())
        }
        None => proof.verify_hash(case.hash, &case.history).map(|_| ()),
    }
}

#[test]
fn of_proofs() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let slow = SlowLists::new(&corpus);
    let mut counts = BTreeMap::new();
    for case in &cases {
        assert_eq!(verified(case, &case.ssz), Ok(()), "{}", case.name);
        for at in 0..case.ssz.len() {
            for by in CHANGES {
                let ssz = changed(&case.ssz, at, by);
                let error = verified(case, &ssz).expect_err(&case.name);
                *counts.entry((case.kind, field(case.kind, at), reason(&error))).or_insert(0) += 1;
            }
            // The slow checker needs more time: one change a byte.
            let ssz = changed(&case.ssz, at, 0x10);
            assert!(!slow.accept(case, &ssz), "{}: {at}", case.name);
            assert!(verified(case, &ssz).is_err(), "{}: {at}", case.name);
        }
    }
    for ((kind, field, reason), count) in &counts {
        println!("{kind}: {field} changed: {count} refused for the {reason}");
    }
    let of = |kind, field, reason| counts.get(&(kind, field, reason)).copied().unwrap_or(0);
    assert_eq!(of(ProofKind::Accumulator, "branch", "epoch"), 11 * 480 * 3);
    for (kind, cases, beacon, execution) in [
        (ProofKind::HistoricalRoots, 3, 14, 11),
        (ProofKind::CapellaSummaries, 3, 13, 11),
        (ProofKind::DenebSummaries, 4, 13, 12),
        (ProofKind::GloasSummaries, 1, 13, 14),
    ] {
        assert_eq!(of(kind, "beacon branch", "beacon"), cases * beacon * 32 * 3, "{kind}");
        assert_eq!(of(kind, "beacon block", "execution"), cases * 32 * 3, "{kind}");
        assert_eq!(of(kind, "execution branch", "execution"), cases * execution * 32 * 3, "{kind}");
    }
    // With a header, the time of a changed slot is wrong. The two cases without a header are
    // refused for their branch, fork or period.
    for (kind, cases) in [
        (ProofKind::HistoricalRoots, 3),
        (ProofKind::CapellaSummaries, 3),
        (ProofKind::DenebSummaries, 3),
    ] {
        assert_eq!(of(kind, "slot", "time"), cases * 8 * 3, "{kind}");
    }
    let total: usize = counts.values().sum();
    assert_eq!(total, cases.iter().map(|case| case.ssz.len() * 3).sum::<usize>());
}

#[test]
fn of_headers() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let mut counts = BTreeMap::new();
    for case in &cases {
        let Some(rlp) = &case.header else { continue };
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(&case.name);
        for at in 0..rlp.len() {
            for by in CHANGES {
                let rlp = changed(rlp, at, by);
                let reason = match HeaderView::decode(&rlp) {
                    Err(_) => "malformed",
                    Ok(header) => {
                        reason(&proof.verify(&header, &case.history).expect_err(&case.name))
                    }
                };
                *counts.entry(reason).or_insert(0) += 1;
            }
        }
    }
    println!("headers changed, refused for: {counts:?}");
    assert_eq!(counts.get("other"), None);
    for reason in ["malformed", "epoch", "execution", "time", "not before the Merge"] {
        assert!(counts.contains_key(reason), "{reason}");
    }
    assert!(counts.values().sum::<usize>() > 30_000, "{counts:?}");
}

/// A root of a list is changed: the proofs under it no longer hold.
#[test]
fn of_the_summaries() {
    use chainsieve::eth::anchor::Grade;
    use chainsieve::eth::anchor::header_proof::{HistoricalSummary, History};

    let Some(corpus) = Anchors::open() else { return };
    let list = corpus.read("history/accumulators/historical_summaries_epoch_364328.ssz");
    let (cases, _) = corpus.header_cases();
    let mut refused = 0;
    for case in &cases {
        if !case.kind.uses_summaries() || case.kind == ProofKind::GloasSummaries {
            continue;
        }
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(&case.name);
        let index = (proof.slot().expect("a slot") - 6_209_536) / 8192;
        let start = usize::try_from(index).expect("small") * 64;
        for at in start..start + 64 {
            let known = HistoricalSummary::list_from_ssz(&changed(&list, at, 1));
            let history =
                History::mainnet().with_summaries(known.expect("whole"), Grade::Finalized);
            let result = proof.verify_hash(case.hash, &history);
            if at < start + 32 {
                let beacon = matches!(result, Err(HeaderProofError::Beacon { .. }));
                assert!(beacon, "{}: {at}: {result:?}", case.name);
                refused += 1;
            } else {
                // The second root of a summary is that of the states.
                assert_eq!(result, Ok(Grade::Finalized), "{}: {at}", case.name);
            }
        }
    }
    assert_eq!(refused, 7 * 32);
}

/// Records of an archive: truncated, extended, and with each byte changed.
#[test]
fn of_records() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let mut counts = BTreeMap::new();
    for case in &cases {
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(&case.name);
        let record = proof.encode_record();
        for end in 0..record.len() {
            let cut = HeaderProof::decode_record(&record[..end]);
            assert!(matches!(cut, Err(HeaderProofError::Record(_))), "{}: {end}", case.name);
        }
        let longer = HeaderProof::decode_record(&[&record[..], &[0x80]].concat());
        assert!(matches!(longer, Err(HeaderProofError::Record(_))), "{longer:?}");
        for at in 0..record.len() {
            for by in 1..=255 {
                let result = HeaderProof::decode_record(&changed(&record, at, by));
                let outcome = match &result {
                    // Bytes of the SSZ: the test above verifies such proofs.
                    Ok(other) if other.kind() == case.kind => "another proof",
                    Ok(_) => "another kind",
                    Err(HeaderProofError::Record(_)) => "malformed",
                    Err(HeaderProofError::Length { .. }) => "length",
                    Err(HeaderProofError::UnknownKind(_)) => "unknown kind",
                    Err(error) => panic!("{error}"),
                };
                assert_ne!(result.as_ref(), Ok(&proof), "{}: {at}", case.name);
                *counts.entry(outcome).or_insert(0) += 1;
            }
        }
        for length in (0..=2 * case.ssz.len()).filter(|length| *length != case.ssz.len()) {
            let mut ssz = case.ssz.clone();
            ssz.resize(length, 0);
            let refused = HeaderProof::decode(case.kind, &ssz);
            let (kind, expected) = (case.kind, case.ssz.len());
            assert_eq!(refused, Err(HeaderProofError::Length { kind, expected, found: length }));
        }
    }
    println!("records changed: {counts:?}");
    // Kinds 1 and 3 have the same length.
    assert_eq!(counts["another kind"], 3 + 4);
    assert_eq!(
        counts["another proof"],
        cases.iter().map(|case| case.ssz.len() * 255).sum::<usize>()
    );
}
