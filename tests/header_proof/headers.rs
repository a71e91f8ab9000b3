//! Header proofs as published and as mainnet has them: each proves its own header, and no other.

use alloy_primitives::B256;
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{
    ForkSlots, HeaderProof, HeaderProofError, HistoricalSummary, History, ProofKind, epoch_root,
};
use chainsieve::eth::header::HeaderView;

use crate::corpus::{Anchors, HeaderCase, gloas_history, nodes};
use crate::slow_ssz::{self, Lists, Node, branch, hash, merkleize, mix_in_length};

/// The lists of the corpus, for the slow checker.
pub(crate) struct SlowLists {
    epochs: Vec<Node>,
    historical_roots: Vec<Node>,
}

impl SlowLists {
    pub(crate) fn new(corpus: &Anchors) -> Self {
        let accumulator = corpus.read("history/accumulators/historical_hashes_accumulator.ssz");
        let roots = corpus.read("history/accumulators/historical_roots.ssz");
        Self { epochs: nodes(&accumulator[8..]), historical_roots: nodes(&roots) }
    }

    /// Checks a proof of the kind of `case` with these lists and the summaries of `case`.
    pub(crate) fn accept(&self, case: &HeaderCase, ssz: &[u8]) -> bool {
        let summaries = case.history.summaries();
        let summaries: Vec<_> = summaries.iter().map(|one| one.block_summary_root.0).collect();
        let lists = Lists {
            epochs: &self.epochs,
            historical_roots: &self.historical_roots,
            summaries: &summaries,
            capella: case.history.forks().capella,
        };
        slow_ssz::header_proof(case.kind.code().into(), ssz, case.hash.0, case.number, &lists)
    }
}

#[test]
fn each_proves_its_header() {
    let Some(corpus) = Anchors::open() else { return };
    let slow = SlowLists::new(&corpus);
    let (cases, counts) = corpus.header_cases();
    assert_eq!(counts, [11, 3, 3, 4, 1]);
    for case in &cases {
        let name = &case.name;
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(name);
        assert_eq!(proof.encode(), case.ssz, "{name}");
        assert_eq!(
            HeaderProof::decode_record(&proof.encode_record()).as_ref(),
            Ok(&proof),
            "{name}"
        );
        let json = serde_json::to_string(&proof).expect("JSON");
        assert_eq!(serde_json::from_str::<HeaderProof>(&json).expect(name), proof, "{name}");
        assert!(slow.accept(case, &case.ssz), "{name}");

        let embedded = matches!(case.kind, ProofKind::Accumulator | ProofKind::HistoricalRoots);
        let grade = if embedded { Grade::ReleaseCheckpoint } else { Grade::OwnWord };
        if let Some(rlp) = &case.header {
            let header = HeaderView::decode(rlp).expect(name);
            assert_eq!((header.number(), header.hash()), (case.number, case.hash), "{name}");
            assert_eq!(proof.verify(&header, &case.history), Ok(grade), "{name}");
        }
        if case.kind == ProofKind::Accumulator {
            let refused = proof.verify_hash(case.hash, &case.history);
            assert_eq!(refused, Err(HeaderProofError::NeedsHeader), "{name}");
        } else {
            assert_eq!(proof.verify_hash(case.hash, &case.history), Ok(grade), "{name}");
        }
    }
    // No proof is one of another header.
    let mut refused = 0;
    for case in &cases {
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(&case.name);
        for other in cases.iter().filter(|other| other.hash != case.hash) {
            let Some(rlp) = &other.header else { continue };
            let header = HeaderView::decode(rlp).expect(&other.name);
            assert!(proof.verify(&header, &case.history).is_err(), "{} {}", case.name, other.name);
            refused += 1;
        }
    }
    // 20 of the 22 cases have a header.
    assert_eq!(refused, 22 * 20 - 20);
}

/// A beacon block only promises its own payload from Gloas on, so this hash is not shown.
#[test]
fn a_promised_payload_is_not_proven() {
    let Some(corpus) = Anchors::open() else { return };
    let facts = corpus.json("history/synthetic/gloas.json");
    let (cases, _) = corpus.header_cases();
    let case = cases.iter().find(|case| case.kind == ProofKind::GloasSummaries).expect("one");
    let proof = HeaderProof::decode(case.kind, &case.ssz).expect("a proof");
    let promised: B256 = facts["block_hash"].as_str().expect("a hash").parse().expect("a hash");
    let refused = proof.verify_hash(promised, &case.history);
    assert!(matches!(refused, Err(HeaderProofError::Execution { .. })), "{refused:?}");
    // A verifier that knows no slot for Gloas cannot tell, and does not call the proof wrong.
    let error = proof.verify_hash(case.hash, &History::mainnet()).expect_err("no slot is known");
    assert_eq!(error, HeaderProofError::UnscheduledFork { kind: case.kind });
    assert!(error.is_undecidable());
}

/// The kind is not guessed: two kinds have the same length.
#[test]
fn of_another_kind_they_are_refused() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let (mut lengths, mut forks, mut others) = (0, 0, 0);
    for case in &cases {
        let kinds = (0..5).map(|code| ProofKind::from_code(code).expect("a kind"));
        for kind in kinds.filter(|kind| *kind != case.kind) {
            let Ok(proof) = HeaderProof::decode(kind, &case.ssz) else {
                lengths += 1;
                continue;
            };
            let header = case.header.as_deref().map(|rlp| HeaderView::decode(rlp).expect("one"));
            let header = header.filter(|_| kind != ProofKind::Accumulator);
            match header.map(|header| proof.verify(&header, &case.history)) {
                Some(Err(HeaderProofError::WrongFork { .. })) => forks += 1,
                Some(Err(_)) => others += 1,
                Some(Ok(_)) => panic!("{}: as {kind}", case.name),
                None => assert!(proof.verify_hash(case.hash, &case.history).is_err()),
            }
        }
    }
    println!("other kinds: {lengths} by length, {forks} by fork, {others} by time or branch");
    assert!(lengths >= 60, "{lengths}");
    assert!(forks + others >= 5, "{forks} {others}");
}

/// What is not known is not called wrong.
#[test]
fn without_the_list_they_are_undecided() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let whole = corpus.read("history/accumulators/historical_summaries_epoch_364328.ssz");
    for case in &cases {
        let Some(rlp) = &case.header else { continue };
        let header = HeaderView::decode(rlp).expect(&case.name);
        let proof = HeaderProof::decode(case.kind, &case.ssz).expect(&case.name);
        let without = proof.verify(&header, &History::mainnet());
        let elsewhere = proof.verify(&header, &History::of(ForkSlots::MAINNET));
        match case.kind {
            ProofKind::Accumulator => {
                let merge = 0;
                let number = case.number;
                assert!(without.is_ok(), "{}", case.name);
                let unknown = HeaderProofError::NotBeforeMerge { number, merge };
                assert!(unknown.is_undecidable());
                assert_eq!(elsewhere, Err(unknown));
                let merge = 15_537_394;
                assert!(!HeaderProofError::NotBeforeMerge { number, merge }.is_undecidable());
            }
            ProofKind::HistoricalRoots => {
                assert!(without.is_ok(), "{}", case.name);
                assert!(elsewhere.is_err_and(|error| error.is_undecidable()), "{}", case.name);
            }
            _ => {
                let slot = proof.slot().expect("a slot");
                let unknown = HeaderProofError::UnknownPeriod { slot, known: 0 };
                assert!(unknown.is_undecidable());
                assert_eq!(without, Err(unknown.clone()), "{}", case.name);
                assert_eq!(elsewhere, Err(unknown), "{}", case.name);
                // The list one summary too short, and just long enough.
                let index = usize::try_from((slot - 6_209_536) / 8192).expect("small");
                let with = |count: usize| {
                    let known = HistoricalSummary::list_from_ssz(&whole[..count * 64]);
                    History::mainnet().with_summaries(known.expect("whole"), Grade::OwnWord)
                };
                let short = proof.verify(&header, &with(index));
                assert_eq!(short, Err(HeaderProofError::UnknownPeriod { slot, known: index }));
                assert!(proof.verify(&header, &with(index + 1)).is_ok(), "{}", case.name);
            }
        }
    }
}

/// The root of an epoch from its records, and a proof of each of some of its blocks.
#[test]
fn an_epoch_from_its_records() {
    let Some(corpus) = Anchors::open() else { return };
    let records = corpus.read("history/epoch_records/epoch_122.ssz");
    let (mut chunks, mut hashes) = (Vec::new(), Vec::new());
    let number = alloy_primitives::U256::from_le_bytes::<32>;
    let root = |hashes: &[(Node, Node)]| {
        epoch_root(hashes.iter().map(|(hash, difficulty)| (hash.into(), number(*difficulty))))
    };
    for (at, record) in records.chunks_exact(64).enumerate() {
        let hash: Node = record[..32].try_into().expect("32 bytes");
        let difficulty: Node = record[32..].try_into().expect("32 bytes");
        // The root of any number of blocks, also one that fills no subtree.
        if [0, 1, 2, 3, 5, 4096, 5362].contains(&at) {
            let slow = mix_in_length(merkleize(&chunks, 13), at);
            assert_eq!(root(&hashes), Some(slow.into()), "{at} blocks");
        }
        chunks.push(slow_ssz::hash(record));
        hashes.push((hash, difficulty));
    }
    assert_eq!(hashes.len(), 8192);
    assert_eq!(root(&hashes), History::mainnet().epoch_root(122));
    assert_eq!(root(&[&hashes[..], &[([0; 32], [0; 32])]].concat()), None, "an epoch is full");

    let length = {
        let mut chunk = [0; 32];
        chunk[..8].copy_from_slice(&8192_u64.to_le_bytes());
        chunk
    };
    let (cases, _) = corpus.header_cases();
    let mut same = 0;
    for case in cases.iter().filter(|case| case.number / 8192 == 122) {
        let at = usize::try_from(case.number % 8192).expect("small");
        assert_eq!(hashes[at].0, case.hash.0, "{}", case.name);
        let nodes = [&[hashes[at].1][..], &branch(&chunks, 13, at), &[length]].concat();
        assert_eq!(nodes.concat(), case.ssz, "{}", case.name);
        same += 1;
    }
    assert_eq!(same, 7);
}

/// A period in which a slot has no block: the vector repeats the root of the block before. The
/// proof at the empty slot is made of true branches, and is refused for a header whose time is not
/// that of the slot.
#[test]
fn a_slot_without_a_block_does_not_stand_for_the_block() {
    let Some(corpus) = Anchors::open() else { return };
    let roots = nodes(&corpus.read("history/build/17034870.block_roots.ssz"));
    assert_eq!(roots.len(), 8192);
    let (cases, _) = corpus.header_cases();
    let case = cases.iter().find(|case| case.number == 17_034_870).expect("one");
    let header = HeaderView::decode(case.header.as_ref().expect("a header")).expect("a header");
    // Slot 6209538 is the third of its period. Its block root is in the proof.
    let (block, rest) = (&case.ssz[13 * 32..14 * 32], &case.ssz[14 * 32..25 * 32]);
    assert_eq!(roots[2], block);
    let made = |slots: &[Node], at: usize| {
        let ssz =
            [&branch(slots, 13, at).concat(), block, rest, &(6_209_536 + at as u64).to_le_bytes()];
        HeaderProof::decode(ProofKind::CapellaSummaries, &ssz.concat()).expect("a proof")
    };
    assert_eq!(made(&roots, 2).encode(), case.ssz);
    assert_eq!(header.hash(), case.hash);
    assert!(made(&roots, 2).verify(&header, &case.history).is_ok());

    let mut repeated = roots;
    repeated[3] = repeated[2];
    let period = HistoricalSummary::list_from_ssz(&[merkleize(&repeated, 13), [0; 32]].concat());
    let history = History::mainnet().with_summaries(period.expect("one summary"), Grade::OwnWord);
    let (own, empty) = (made(&repeated, 2), made(&repeated, 3));
    assert!(own.verify(&header, &history).is_ok());
    assert_eq!(empty.verify_hash(case.hash, &history), Ok(Grade::OwnWord));
    let (slot, timestamp) = (6_209_539, header.timestamp());
    assert_eq!(empty.verify(&header, &history), Err(HeaderProofError::Time { slot, timestamp }));
    assert_eq!(timestamp, 1_606_824_023 + 6_209_538 * 12);
}

/// A Gloas proof of a real header under made-up beacon blocks: the beacon block must be later than
/// the header.
#[test]
fn a_beacon_block_of_gloas_is_later_than_its_payload() {
    let Some(corpus) = Anchors::open() else { return };
    let (cases, _) = corpus.header_cases();
    let case = cases.iter().find(|case| case.number == 22_431_084).expect("one");
    let header = HeaderView::decode(case.header.as_ref().expect("a header")).expect("a header");
    let own = (header.timestamp() - 1_606_824_023) / 12;
    let first = own / 8192 * 8192;
    let execution_branch: Vec<Node> = (0..14).map(|at| [at; 32]).collect();
    let gindex = slow_ssz::concat_generalized_indices(&[12, 2856]);
    assert_eq!(gindex, 25384);
    let mut block = case.hash.0;
    for (level, sibling) in execution_branch.iter().enumerate() {
        let right = gindex >> level & 1 == 1;
        block = hash(&if right { [*sibling, block] } else { [block, *sibling] }.concat());
    }
    for (after, accepted) in [(0, false), (1, true), (2, true), (40, true)] {
        let slot = own + after;
        let at = usize::try_from(slot % 8192).expect("small");
        let mut roots = vec![[9; 32]; 8192];
        roots[at] = block;
        let history = gloas_history(first, merkleize(&roots, 13).into());
        let ssz = [
            &branch(&roots, 13, at).concat(),
            &block[..],
            &execution_branch.concat(),
            &slot.to_le_bytes(),
        ];
        let proof = HeaderProof::decode(ProofKind::GloasSummaries, &ssz.concat()).expect("a proof");
        assert_eq!(proof.verify_hash(case.hash, &history), Ok(Grade::OwnWord), "{after}");
        assert_eq!(proof.verify(&header, &history).is_ok(), accepted, "{after}");
    }
}

/// On a network whose Capella began within a period, the first summary is that of this period.
#[test]
fn a_fork_within_a_period() {
    let execution: Vec<Node> = (0..11).map(|level| [level; 32]).collect();
    let header = [7; 32];
    let gindex = slow_ssz::concat_generalized_indices(&[8 + 4, 16 + 9, 16 + 12]);
    assert_eq!(gindex, 3228);
    let mut block = header;
    for (level, sibling) in execution.iter().enumerate() {
        let right = gindex >> level & 1 == 1;
        block = hash(&if right { [*sibling, block] } else { [block, *sibling] }.concat());
    }
    let mut roots = vec![[9; 32]; 8192];
    roots[70] = block;
    let forks = ForkSlots { capella: 5 * 8192 + 64, deneb: u64::MAX, ..ForkSlots::MAINNET };
    let list = [[0; 64], [0; 64]].concat();
    for (period, summary) in [(5_u64, 0), (6, 1)] {
        let mut list = list.clone();
        list[summary * 64..][..32].copy_from_slice(&merkleize(&roots, 13));
        let known = HistoricalSummary::list_from_ssz(&list).expect("two summaries");
        let history = History::of(forks).with_summaries(known, Grade::Finalized);
        let slot = period * 8192 + 70;
        let ssz = [
            &branch(&roots, 13, 70).concat(),
            &block[..],
            &execution.concat(),
            &slot.to_le_bytes(),
        ];
        let proof = HeaderProof::decode(ProofKind::CapellaSummaries, &ssz.concat()).expect("one");
        assert_eq!(proof.verify_hash(header.into(), &history), Ok(Grade::Finalized), "{period}");
    }
}
