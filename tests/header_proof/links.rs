//! Chains of links, from an origin to a block: real ones, and with each link spoilt.

use core::time::Duration;

use alloy_primitives::{B256, Bytes};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::account_proof::StateProofError;
use chainsieve::eth::anchor::header_proof::{
    HeaderProof, HeaderProofError, History, ProofKind, SummariesProof,
};
use chainsieve::eth::anchor::links::{
    self, Link, LinkKind, LinkProblem, LinkVerifier, Origin, verify,
};
use chainsieve::eth::anchor::sync_committee::Checkpoint;
use chainsieve::eth::header::HeaderView;
use serde_json::Value;

use crate::accounts::cases;
use crate::corpus::{Anchors, text};
use crate::summaries::DENEB_STATE;

fn bytes(corpus: &Anchors, name: &str) -> Bytes {
    corpus.read(name).into()
}

fn checkpoint(root: B256, slot: u64) -> Checkpoint {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    Checkpoint { root, slot, age: DAY, limit: 14 * DAY }
}

/// The chain `deneb_summaries`: from a signed state to a block 49 periods older.
fn by_summaries(corpus: &Anchors) -> (Origin, Vec<Link>) {
    let chain = corpus.json("chains/deneb_summaries/chain.json");
    let root: B256 = text(&chain["trusted_block_root"]).parse().expect("a root");
    let steps = chain["steps"].as_array().expect("steps");
    let signed: &Value = &steps[2]["expect"]["state_root"];
    assert_eq!(text(signed).parse(), Ok(DENEB_STATE));
    let origin = Origin {
        grade: Grade::Optimistic,
        block_hash: None,
        beacon_state: Some(DENEB_STATE),
        checkpoint: Some(checkpoint(root, 11_624_480)),
    };
    let list = corpus.text("chains/deneb_summaries/historical_summaries.json");
    let ssz = corpus.read("chains/deneb_summaries/22017691.proof.ssz");
    let links = vec![
        Link::Summaries(SummariesProof::from_json(&list).expect("an answer")),
        Link::HeaderProof {
            header: bytes(corpus, "chains/deneb_summaries/22017691.header.rlp"),
            proof: HeaderProof::decode(ProofKind::DenebSummaries, &ssz).expect("a proof"),
        },
    ];
    (origin, links)
}

/// The chain `fulu_2935`: from a finalised execution header to a block 18 blocks older.
fn by_contract(corpus: &Anchors) -> (Origin, Vec<Link>) {
    let update = corpus.json("chains/fulu_2935/finality_update.json");
    let finalized = &update["data"]["finalized_header"];
    let origin = Origin {
        grade: Grade::Finalized,
        block_hash: Some(text(&finalized["execution"]["block_hash"]).parse().expect("a hash")),
        beacon_state: None,
        checkpoint: None,
    };
    let case = cases(corpus);
    let case = case.iter().find(|case| case.name == "eip2935/26069545_slot_5765.json");
    let case = case.expect("the case");
    let links = vec![
        Link::HistoryContract {
            header: bytes(corpus, "proofs/eip2935/26069545.header.rlp"),
            number: 26_069_527,
            nodes: case.proof.nodes(),
        },
        Link::Parents { headers: vec![bytes(corpus, "proofs/eip2935/26069527.header.rlp")] },
    ];
    (origin, links)
}

#[test]
fn by_the_summaries_of_a_signed_state() {
    let Some(corpus) = Anchors::open() else { return };
    let (origin, links) = by_summaries(&corpus);
    let expected = &corpus.json("chains/deneb_summaries/chain.json")["expect"];
    let anchored = verify(&links, &origin, History::mainnet()).expect("a chain");
    assert_eq!(anchored.number, expected["execution_number"].as_u64());
    assert_eq!(anchored.hash.to_string(), text(&expected["execution_hash"]));
    assert!(text(&expected["grade"]).starts_with(anchored.grade.name()));
    assert_eq!(anchored.checkpoint, origin.checkpoint);
    let by = [LinkKind::Summaries, LinkKind::HeaderProof(ProofKind::DenebSummaries)];
    assert_eq!(anchored.by, by);
    assert_eq!(by[1].to_string(), "header proof (deneb_summaries)");
    assert!(!anchored.grade.is_final());

    // The proof for another block of the same period is refused.
    let mut other = links.clone();
    let ssz = corpus.read("chains/deneb_summaries/22017690.proof.ssz");
    if let Link::HeaderProof { proof, .. } = &mut other[1] {
        *proof = HeaderProof::decode(ProofKind::DenebSummaries, &ssz).expect("a proof");
    }
    let refused = verify(&other, &origin, History::mainnet()).expect_err("another block");
    assert_eq!(refused.link, 1);
    assert!(matches!(refused.problem, LinkProblem::HeaderProof(HeaderProofError::Time { .. })));

    // Without the summaries, or without a state to find them in.
    let only = links[1..].to_vec();
    let refused = verify(&only, &origin, History::mainnet()).expect_err("no summaries");
    let unknown = HeaderProofError::UnknownPeriod { slot: 11_233_368, known: 0 };
    assert_eq!((refused.link, refused.problem), (0, LinkProblem::HeaderProof(unknown)));
    let blind = Origin { beacon_state: None, ..origin };
    let refused = verify(&links, &blind, History::mainnet()).expect_err("no state");
    assert_eq!((refused.link, refused.problem), (0, LinkProblem::NoBeaconState));
    let elsewhere = Origin { beacon_state: Some(B256::ZERO), ..origin };
    let refused = verify(&links, &elsewhere, History::mainnet()).expect_err("another state");
    let other = LinkProblem::HeaderProof(HeaderProofError::OtherState {
        computed: origin.beacon_state.expect("a state"),
        expected: B256::ZERO,
    });
    assert_eq!((refused.link, refused.problem), (0, other));
}

#[test]
fn by_the_history_contract_of_a_finalised_block() {
    let Some(corpus) = Anchors::open() else { return };
    let (origin, links) = by_contract(&corpus);
    let expected = &corpus.json("chains/fulu_2935/chain.json")["expect"];
    let anchored = verify(&links, &origin, History::mainnet()).expect("a chain");
    assert_eq!(anchored.number, expected["execution_number"].as_u64());
    assert_eq!(anchored.hash.to_string(), text(&expected["execution_hash"]));
    assert_eq!(anchored.grade, Grade::HistoryOfFinalized);
    assert_eq!(anchored.by, [LinkKind::HistoryContract, LinkKind::Parents { blocks: 0 }]);
    assert!(anchored.grade.is_final() && anchored.grade > Grade::Finalized);

    // The same links are worth what the verifier's own origin is worth.
    for grade in [Grade::OwnWord, Grade::OneProvider, Grade::Forced, Grade::ReleaseCheckpoint] {
        let weak = Origin { grade, ..origin };
        let anchored = verify(&links, &weak, History::mainnet()).expect("a chain");
        assert_eq!(anchored.grade, grade);
    }
    let elsewhere = Origin { block_hash: Some(anchored.hash), ..origin };
    let refused = verify(&links, &elsewhere, History::mainnet()).expect_err("another block");
    assert!(matches!(refused.problem, LinkProblem::OtherHeader { index: 0, .. }), "{refused}");
    let nothing = Origin { block_hash: None, ..origin };
    let refused = verify(&links, &nothing, History::mainnet()).expect_err("no block");
    assert_eq!((refused.link, refused.problem), (0, LinkProblem::NoBlock));

    // A number out of range, although its slot is in the proof.
    let mut outside = links;
    if let Link::HistoryContract { number, .. } = &mut outside[0] {
        *number -= 8191;
    }
    let refused = verify(&outside, &origin, History::mainnet()).expect_err("out of range");
    let out =
        matches!(refused.problem, LinkProblem::HistoryContract(StateProofError::OutOfRange { .. }));
    assert!(out, "{refused}");
    assert_eq!(
        refused.to_string(),
        "link 0: block 26061336 is not among the 8191 blocks before block 26069545"
    );
}

/// A proof under an embedded list depends on no origin.
#[test]
fn by_an_embedded_list() {
    let Some(corpus) = Anchors::open() else { return };
    let origin = Origin {
        grade: Grade::OneProvider,
        block_hash: Some(B256::repeat_byte(7)),
        beacon_state: None,
        checkpoint: Some(checkpoint(B256::ZERO, 1)),
    };
    for (number, kind) in [(1, ProofKind::Accumulator), (15_537_394, ProofKind::HistoricalRoots)] {
        let ssz = corpus.read(&format!("history/headers/{number}.proof.ssz"));
        let header = bytes(&corpus, &format!("history/headers/{number}.header.rlp"));
        let proof = HeaderProof::decode(kind, &ssz).expect("a proof");
        let links = vec![Link::HeaderProof { header, proof }];
        let anchored = verify(&links, &origin, History::mainnet()).expect("a chain");
        assert_eq!(anchored.number, Some(number));
        assert_eq!(anchored.grade, Grade::ReleaseCheckpoint);
        assert_eq!(anchored.by, [LinkKind::HeaderProof(kind)]);
        assert_eq!(anchored.checkpoint, None);
    }
}

/// Parent hashes over real consecutive headers, in the right order and in others.
#[test]
fn by_parent_hashes() {
    let headers = testkit::eth::fixtures::headers();
    let run: Vec<Bytes> = (18_090_205..=18_090_213)
        .rev()
        .map(|number| {
            let header = headers.iter().find(|header| header.number == number).expect("a run");
            header.rlp.clone().into()
        })
        .collect();
    let hash = |rlp: &Bytes| HeaderView::decode(rlp).expect("a header").hash();
    let origin = Origin {
        grade: Grade::Finalized,
        block_hash: Some(hash(&run[0])),
        beacon_state: None,
        checkpoint: None,
    };
    let verify = |headers: &[Bytes]| {
        let links = vec![Link::Parents { headers: headers.to_vec() }];
        verify(&links, &origin, History::mainnet())
    };
    for count in 1..=run.len() {
        let anchored = verify(&run[..count]).expect("a chain");
        assert_eq!(anchored.hash, hash(&run[count - 1]));
        assert_eq!(anchored.number, Some(18_090_214 - count as u64));
        let grade = if count == 1 { Grade::Finalized } else { Grade::HistoryOfFinalized };
        assert_eq!(
            (anchored.grade, anchored.by),
            (grade, vec![LinkKind::Parents { blocks: count - 1 }])
        );
    }
    assert_eq!(verify(&[]).expect_err("none").problem, LinkProblem::NoHeader);
    for left_out in 0..run.len() - 1 {
        let mut headers = run.clone();
        headers.remove(left_out);
        let refused = verify(&headers).expect_err("a gap").problem;
        let at = matches!(refused, LinkProblem::OtherHeader { index, .. } if index == left_out);
        assert!(at, "{left_out}: {refused}");
    }
    let mut refused = 0;
    for header in 0..3 {
        for at in 0..run[header].len() {
            let mut headers = run.clone();
            let mut changed = headers[header].to_vec();
            changed[at] ^= 0x40;
            headers[header] = changed.into();
            let problem = verify(&headers).expect_err("changed").problem;
            assert!(matches!(
                problem,
                LinkProblem::Header { index, .. } | LinkProblem::OtherHeader { index, .. }
                    if index == header
            ));
            refused += 1;
        }
    }
    println!("parents changed: {refused} refused");
    // Without links, the origin's block is as good as the origin.
    let anchored = links::verify(&[], &origin, History::mainnet()).expect("the origin");
    assert_eq!((anchored.grade, anchored.number), (Grade::Finalized, None));
    let nothing = Origin { block_hash: None, ..origin };
    let refused = links::verify(&[], &nothing, History::mainnet()).expect_err("nothing");
    assert_eq!((refused.link, refused.problem), (0, LinkProblem::NoBlock));
}

/// A stranger reads the chain from JSON. Every character that is changed breaks the chain, or the
/// JSON, or nothing that was claimed.
#[test]
fn a_stranger_checks_them_from_their_bytes() {
    let Some(corpus) = Anchors::open() else { return };
    for (origin, links) in [by_summaries(&corpus), by_contract(&corpus)] {
        let json = serde_json::to_string(&links).expect("JSON");
        let read: Vec<Link> = serde_json::from_str(&json).expect("links");
        assert_eq!(read, links);
        let whole = verify(&links, &origin, History::mainnet()).expect("a chain");
        assert_eq!(verify(&read, &origin, History::mainnet()).as_ref(), Ok(&whole));
        let (mut malformed, mut refused) = (0, 0);
        let step = if json.len() > 50_000 { 41 } else { 1 };
        for at in (0..json.len()).step_by(step) {
            let mut changed = json.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).expect("ASCII");
            match serde_json::from_str::<Vec<Link>>(&changed) {
                Err(_) => malformed += 1,
                Ok(other) if other == links => panic!("{at}: nothing changed"),
                Ok(other) => match verify(&other, &origin, History::mainnet()) {
                    Err(_) => refused += 1,
                    Ok(found) => panic!("{at}: accepted {found:?}"),
                },
            }
        }
        println!("links changed: {malformed} malformed, {refused} refused");
        assert!(refused > 1_000, "{refused}");
    }
}

/// A verifier that refused a link goes on with another one as if nothing had happened.
#[test]
fn a_refused_link_changes_nothing() {
    let Some(corpus) = Anchors::open() else { return };
    for (origin, links) in [by_summaries(&corpus), by_contract(&corpus)] {
        let whole = verify(&links, &origin, History::mainnet()).expect("a chain");
        let mut verifier = LinkVerifier::new(origin, History::mainnet());
        let block = |verifier: &LinkVerifier| verifier.block().cloned();
        for (index, link) in links.iter().enumerate() {
            let before = block(&verifier);
            // The first header is the right one, the second is not its parent.
            let own = match link {
                Link::HistoryContract { header, .. } => Some(header.clone()),
                Link::Parents { headers } => headers.first().cloned(),
                _ => None,
            };
            if let Some(own) = own {
                let spoilt = Link::Parents { headers: vec![own.clone(), own] };
                let refused = verifier.follow(&spoilt).expect_err("no parent");
                assert_eq!(refused.link, index);
                assert!(matches!(refused.problem, LinkProblem::OtherHeader { index: 1, .. }));
                assert_eq!(block(&verifier), before);
            }
            let refused = verifier.follow(&Link::Parents { headers: Vec::new() });
            let refused = refused.expect_err("no header").problem;
            assert_eq!(
                refused,
                if before.is_some() { LinkProblem::NoHeader } else { LinkProblem::NoBlock }
            );
            assert_eq!(block(&verifier), before);
            assert_eq!(verifier.follow(link), Ok(()));
        }
        assert_eq!(verifier.end(), Ok(whole));
    }
}
