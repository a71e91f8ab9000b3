//! Honest filters pass: they are valid if all spent scripts are known, and never invalid otherwise.

use chainsieve::bitcoin::consensus::deserialize;
use chainsieve::bitcoin::{Block, Network, OutPoint, Script, ScriptBuf};
use chainsieve::btc::bip158::audit::{
    Basis, Prevouts, Refutation, Verdict, audit, unknown_prevouts,
};
use chainsieve::btc::bip158::{BlockFilter, BoundBlock, Witnesses};

use crate::built::{block, every_kind, look_alikes};
use crate::cases::{Case, corpus, fixtures, spends};
use testkit::Rng;
use testkit::corpus;

/// Checks that the filter is valid with trusted scripts. Without them, exactly the inputs whose
/// scripts nothing proves are left open.
fn assert_passes(case: &Case) {
    let name = &case.name;
    let spends_from_others = {
        let txids = case.bind().txids().to_vec();
        spends(&case.block)
            .filter(|(.., input)| !txids.contains(&input.previous_output.txid))
            .filter(|(.., input)| input.script_sig.is_empty() || input.witness.is_empty())
            .count()
    };
    let basis = if spends_from_others == 0 { Basis::Transactions } else { Basis::Trusted };
    assert_eq!(case.trusting(&case.filter), Verdict::Valid(basis), "{name}");
    match case.blind(&case.filter) {
        Verdict::Valid(Basis::Transactions) => assert_eq!(spends_from_others, 0, "{name}"),
        Verdict::Undecidable(unknown) => {
            assert_eq!(unknown.inputs, spends_from_others, "{name}");
            let outpoints = unknown_prevouts(&case.bind(), Prevouts::None);
            assert_eq!(outpoints.len(), unknown.inputs, "{name}");
            assert!(outpoints.iter().all(|outpoint| case.prevouts.contains_key(outpoint)));
            assert!(unknown.elements <= unknown.inputs, "{name}");
            assert!(unknown.guessed <= unknown.inputs, "{name}");
        }
        other => panic!("{name}: {other}"),
    }
}

#[test]
fn blocks_of_the_fixtures() {
    for case in fixtures() {
        assert_passes(&case);
    }
}

#[test]
fn blocks_of_the_corpus() {
    let Some(cases) = corpus() else { return };
    let mut decided = 0;
    for case in &cases {
        assert_passes(case);
        decided += usize::from(matches!(case.blind(&case.filter), Verdict::Valid(_)));
    }
    // 249 of the first 256 blocks and 5 of the others contain only a coinbase transaction.
    assert_eq!((cases.len(), decided), (274, 249 + 5));
}

/// Binds every block of the corpus, and builds its filter with random scripts for the unknown
/// prevouts. The audit never convicts the filter.
#[test]
fn scripts_of_unknown_prevouts_may_be_any() {
    let Some((root, files)) = corpus::index("bitcoin") else { return };
    let names = files.iter().filter_map(|file| file["file"].as_str());
    let blocks = names.filter_map(|name| name.strip_suffix(".raw"));
    let blocks = blocks.filter(|name| name.contains("/blocks/"));
    let mut counts = [0; 3];
    for (seed, name) in (0..).zip(blocks) {
        let network = if name.starts_with("mainnet") { Network::Bitcoin } else { Network::Testnet };
        let raw = std::fs::read(root.join(format!("{name}.raw")));
        let raw = raw.unwrap_or_else(|e| panic!("{name}: {e}"));
        let block: Block = deserialize(&raw).expect("a block");
        let bound = BoundBlock::bind(&block, block.block_hash(), network);
        let bound = bound.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_ne!(bound.witnesses(), Witnesses::Stripped, "{name}");
        let mut rng = Rng::new(seed);
        let filter = BlockFilter::new(&block, |outpoint| {
            let mut inputs = block.txdata.iter().flat_map(|tx| &tx.input);
            let input = inputs.find(|input| input.previous_output == *outpoint).expect("an input");
            let length = 1 + rng.below(40);
            Some(match (&input.script_sig.as_bytes(), input.witness.is_empty()) {
                ([_, program @ ..], false) => Script::from_bytes(program).to_p2sh(),
                _ => ScriptBuf::from_bytes(rng.bytes(length)),
            })
        });
        match audit(&bound, &filter.expect("all scripts").content, Prevouts::None) {
            Verdict::Valid(_) => counts[0] += 1,
            Verdict::Suspicious { .. } => counts[1] += 1,
            Verdict::Undecidable(_) => counts[2] += 1,
            Verdict::Invalid(refutation) => panic!("{name}: {refutation:?}"),
        }
    }
    println!("valid, suspicious, undecidable: {counts:?}");
    assert_eq!(counts.iter().sum::<u32>(), 30);
    assert!(counts[0] > 3 && counts[1] > 15, "{counts:?}");
}

/// The first 256 blocks of mainnet, whose filter headers are published, are valid with the
/// transactions that they spend from.
#[test]
fn previous_transactions_decide() {
    let Some(cases) = corpus() else { return };
    let mut spending = 0;
    for case in cases.iter().filter(|case| case.name.contains("chain")) {
        let prevouts = Prevouts::ByTransactions(&case.previous);
        let verdict = audit(&case.bind(), &case.filter, prevouts);
        assert_eq!(verdict, Verdict::Valid(Basis::Transactions), "{}", case.name);
        spending += usize::from(!case.previous.is_empty());
    }
    assert_eq!(spending, 7);
}

/// A key path spend of taproot reveals nothing about the spent script. Block 866342 has more than
/// 500 of them.
#[test]
fn key_paths_are_left_open() {
    let Some(cases) = corpus() else { return };
    let case = cases.iter().find(|case| case.name.ends_with("866342")).expect("the block");
    assert_eq!(case.bind().witnesses(), Witnesses::Committed);
    let txids = case.bind().txids().to_vec();
    let key_paths = spends(&case.block)
        .filter(|(.., input)| !txids.contains(&input.previous_output.txid))
        .filter(|(.., input)| case.prevouts[&input.previous_output].is_p2tr())
        .filter(|(.., input)| input.witness.len() == 1)
        .count();
    assert!(key_paths > 500, "{key_paths}");
    let Verdict::Undecidable(unknown) = case.blind(&case.filter) else { panic!("decided") };
    assert!(unknown.inputs - unknown.guessed >= key_paths, "{unknown}");
    println!("866342: {unknown}; {key_paths} key path spends");
}

#[test]
fn built_blocks_with_every_kind_of_input() {
    for (seed, chained) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let case = every_kind(seed, chained);
        assert_passes(&case);
        let shown = Prevouts::ByTransactions(&case.previous);
        let verdict = audit(&case.bind(), &case.filter, shown);
        assert_eq!(verdict, Verdict::Valid(Basis::Transactions));
        // Without the last previous transaction, the audit may leave the filter open, but never
        // convicts it.
        let (_, known) = case.previous.split_last().expect("some");
        let verdict = audit(&case.bind(), &case.filter, Prevouts::ByTransactions(known));
        assert!(matches!(verdict, Verdict::Undecidable(_) | Verdict::Valid(_)), "{verdict}");
    }
}

/// A P2WSH script of 33 bytes that looks like a key, a witness program of version 2, and a bare
/// `2DROP 1`.
#[test]
fn look_alikes_are_never_convicted() {
    for at in 0..3 {
        let rng = &mut Rng::new(at);
        let spend = look_alikes(rng).into_iter().nth(usize::try_from(at).expect("small"));
        let case = block(rng, vec![vec![spend.expect("one of three")]], false);
        let verdict = case.blind(&case.filter);
        // The first is guessed as P2WPKH and as P2WSH, of which one is right. For the others, every
        // guess is missing from the filter.
        match at {
            0 => assert!(matches!(verdict, Verdict::Undecidable(_)), "{verdict}"),
            _ => assert!(matches!(verdict, Verdict::Suspicious { .. }), "{verdict}"),
        }
        assert_eq!(case.trusting(&case.filter), Verdict::Valid(Basis::Trusted));
        let shown = Prevouts::ByTransactions(&case.previous);
        let verdict = audit(&case.bind(), &case.filter, shown);
        assert_eq!(verdict, Verdict::Valid(Basis::Transactions));
    }
}

/// A wrong script from a trusted source convicts an honest filter, but gives no proof for others.
#[test]
fn trust_makes_no_proof() {
    for case in fixtures().into_iter().filter(|case| case.block.txdata.len() > 1) {
        let txids = case.bind().txids().to_vec();
        let input = spends(&case.block).find(|(.., input)| {
            !txids.contains(&input.previous_output.txid)
                && (input.script_sig.is_empty() || input.witness.is_empty())
        });
        let Some((.., input)) = input else { continue };
        let lied_about = input.previous_output;
        let wrong = ScriptBuf::from_bytes(vec![0x51, 0x52, 0x53]);
        let scripts = |outpoint: &OutPoint| {
            let script = case.prevouts.get(outpoint).cloned();
            if *outpoint == lied_about { Some(wrong.clone()) } else { script }
        };
        let verdict = audit(&case.bind(), &case.filter, Prevouts::Trusted(&scripts));
        let missing = Refutation::TrustedMissing(lied_about);
        assert_eq!(missing.proof(), None);
        assert_eq!(verdict, Verdict::Invalid(missing), "{}", case.name);
    }
}
