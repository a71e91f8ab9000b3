//! Scans of blocks for a watch, compared with a plain walk over the chain.

use std::collections::{BTreeSet, HashMap};

use chainsieve::bitcoin::{Amount, OutPoint, ScriptBuf};
use chainsieve::btc::wallet::{
    BlockScan, History, Outcome, Received, Relevance, Spent, WatchedItems,
};

use crate::built::{block, every_kind, key_path, p2pkh, p2wpkh};
use crate::cases::{Case, corpus, fixtures, spends};
use testkit::Rng;

/// Returns the transactions of a block that pay to `scripts` or spend from `owned`, found by a
/// plain walk.
fn expected(
    case: &Case,
    scripts: &[ScriptBuf],
    owned: &mut HashMap<OutPoint, usize>,
) -> Vec<(usize, Relevance)> {
    let index_of = |script: &ScriptBuf| scripts.iter().position(|watched| watched == script);
    let mut found = vec![Relevance::default(); case.block.txdata.len()];
    for (at, tx) in case.block.txdata.iter().enumerate() {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            if let Some(script) = index_of(&output.script_pubkey) {
                let value = output.value;
                found[at].received.push(Received { vout, value, script, label: None });
                owned.insert(OutPoint { txid, vout }, script);
            }
        }
    }
    for (at, vin, input) in spends(&case.block) {
        let outpoint = input.previous_output;
        if let Some(&script) = owned.get(&outpoint) {
            let vin = u32::try_from(vin).expect("few");
            found[at].spent.push(Spent { vin, outpoint, script: Some(script), certain: true });
        }
    }
    found.into_iter().enumerate().filter(|(_, relevance)| !relevance.is_empty()).collect()
}

fn found(case: &Case, scan: &BlockScan) -> Vec<(usize, Relevance)> {
    let bound = case.bind();
    let transactions = scan.transactions.iter().map(|tx| {
        let place = tx.place.expect("in a block");
        let index = place.index as usize;
        assert_eq!(place.block.hash, bound.block_hash());
        assert_eq!((tx.txid, &tx.transaction), (bound.txids()[index], &case.block.txdata[index]));
        (index, tx.relevance.clone())
    });
    transactions.collect()
}

/// Watches the key of block 9, which pays ten coins to another key in block 170 and keeps the
/// change.
#[test]
fn the_first_payments_of_mainnet() {
    let Some(cases) = corpus() else { return };
    let chain: Vec<_> = cases.iter().filter(|case| case.name.contains("chain")).collect();
    let script = chain[9].block.txdata[0].output[0].script_pubkey.clone();
    let mut watch = WatchedItems::new();
    assert_eq!(watch.add_script(script.clone(), None, History::Complete), 0);
    let mut owned = HashMap::new();
    let mut relevant = Vec::new();
    for (height, case) in (0..).zip(&chain) {
        let scan = watch.scan(height, &case.bind());
        assert_eq!(
            found(case, &scan),
            expected(case, std::slice::from_ref(&script), &mut owned),
            "{height}"
        );
        if scan.outcome() == Outcome::Relevant {
            relevant.push(height);
        } else {
            assert_eq!(scan.outcome(), Outcome::FalsePositive, "{height}");
        }
    }
    assert_eq!(relevant, [9, 170, 181, 182, 183, 248]);
    let unspent = |watch: &WatchedItems| {
        let unspent = watch.outputs().filter(|(_, output)| output.spent.is_none());
        unspent.map(|(_, output)| output.value.expect("seen").to_btc()).collect::<Vec<_>>()
    };
    assert_eq!(unspent(&watch), [18.0]);

    // Rewind to the height where 40 coins were left, then further, and scan forward again.
    watch.rewind(170);
    assert_eq!(unspent(&watch), [40.0]);
    assert!(watch.outputs().all(|(_, output)| output.created <= Some(170)));
    watch.rewind(169);
    assert_eq!(unspent(&watch), [50.0]);
    watch.rewind(8);
    assert_eq!(watch.outputs().len(), 0);
    for (height, case) in (0..).zip(&chain) {
        let _first = watch.scan(height, &case.bind());
        // Scanning a block twice finds the same.
        let again = watch.scan(height, &case.bind());
        assert_eq!(again.outcome() == Outcome::Relevant, relevant.contains(&height), "{height}");
    }
    assert_eq!(unspent(&watch), [18.0]);
    let all = watch.outputs().len();
    watch.forget_spent(181);
    assert_eq!(watch.outputs().len(), all - 2, "the outputs of block 9 and of block 170");
    assert_eq!(unspent(&watch), [18.0]);
}

/// Finds the outputs and spends of up to 60 scripts of a block. The watch knows the outputs that
/// the block spends.
#[test]
fn every_script_of_a_block() {
    let mut cases = fixtures();
    cases.extend((0..4).map(|seed| every_kind(seed, seed % 2 == 0)));
    for case in &cases {
        let mut rng = Rng::new(2);
        let all: Vec<_> = case.elements().into_iter().map(ScriptBuf::from_bytes).collect();
        let scripts: Vec<_> = (0..all.len().min(60)).map(|_| rng.pick(&all).clone()).collect();
        let scripts: Vec<_> = BTreeSet::from_iter(scripts).into_iter().collect();
        let mut watch = WatchedItems::new();
        let mut owned = HashMap::new();
        for (at, script) in scripts.iter().enumerate() {
            assert_eq!(watch.add_script(script.clone(), None, History::Complete), at);
        }
        for (outpoint, script) in &case.prevouts {
            if let Some(at) = scripts.iter().position(|watched| watched == script) {
                assert_eq!(watch.add_outpoint(*outpoint, Some(script.clone())), Some(at));
                owned.insert(*outpoint, at);
            }
        }
        let scan = watch.scan(7, &case.bind());
        assert_eq!(found(case, &scan), expected(case, &scripts, &mut owned), "{}", case.name);
        assert_eq!(scan.open_inputs, 0);
        // Outputs that the caller added remain after the rewind, and are unspent again.
        watch.rewind(6);
        assert!(watch.outputs().all(|(_, output)| output.is_given && output.spent.is_none()));
        let scan = watch.scan(7, &case.bind());
        assert_eq!(found(case, &scan), expected(case, &scripts, &mut owned), "{}", case.name);
    }
}

/// A script that a block spends from is never a false positive, whatever its kind, unless its
/// history was given as complete.
#[test]
fn spends_of_unknown_outputs_are_never_false_positives() {
    let mut cases = fixtures();
    cases.extend((0..4).map(|seed| every_kind(seed, seed % 2 == 0)));
    cases.extend(corpus().unwrap_or_default());
    let (mut looks_spent, mut none_seen, mut excluded) = (0, 0, 0);
    for case in &cases {
        let mut rng = Rng::new(4);
        let bound = case.bind();
        let spent: Vec<_> = spends(&case.block).collect();
        let most = if spent.len() > 400 { 12 } else { 60 };
        for _ in 0..spent.len().min(most) {
            let (.., input) = rng.pick(&spent);
            let script = &case.prevouts[&input.previous_output];
            let mut watch = WatchedItems::new();
            watch.add_script(script.clone(), None, History::Unknown);
            match watch.scan(1, &bound).outcome() {
                Outcome::Relevant => looks_spent += 1,
                Outcome::NoneSeen => none_seen += 1,
                Outcome::FalsePositive => panic!("{}: {script}", case.name),
            }
        }
        // A spend of P2PKH reveals its key, so a scan can exclude a P2PKH script that no input
        // spends.
        let mut watch = WatchedItems::new();
        watch.add_script(p2pkh(&mut rng).script, None, History::Unknown);
        if case.block.txdata.len() > 1 {
            let outcome = watch.scan(1, &bound).outcome();
            excluded += usize::from(outcome == Outcome::FalsePositive);
            let mut watch = WatchedItems::new();
            watch.add_script(key_path(&mut rng).script, None, History::Complete);
            watch.add_script(vec![0x51, 0x53].into(), None, History::Complete);
            assert_eq!(watch.scan(1, &bound).outcome(), Outcome::FalsePositive);
        }
    }
    println!("looks spent {looks_spent}, none seen {none_seen}, excluded {excluded}");
    assert!(looks_spent > 100 && none_seen > 10 && excluded > 5);
}

/// Spends of unknown outputs are reported as uncertain.
#[test]
fn guesses_are_named_as_such() {
    let rng = &mut Rng::new(3);
    let (hash, witness, hidden) = (p2pkh(rng), p2wpkh(rng), key_path(rng));
    let scripts = [&hash, &witness, &hidden].map(|spend| spend.script.clone());
    let case = block(rng, vec![vec![hash, witness], vec![hidden]], false);
    let mut watch = WatchedItems::new();
    for script in &scripts {
        watch.add_script(script.clone(), None, History::Unknown);
    }
    let scan = watch.scan(1, &case.bind());
    let outpoint = |vin: usize| case.block.txdata[1].input[vin].previous_output;
    let looks_spent = |vin: usize| Spent {
        vin: u32::try_from(vin).expect("small"),
        outpoint: outpoint(vin),
        script: Some(vin),
        certain: false,
    };
    let spent = vec![looks_spent(0), looks_spent(1)];
    assert_eq!(found(&case, &scan), [(1, Relevance { received: vec![], spent })]);
    assert_eq!(scan.open_inputs, 1);
    assert_eq!(watch.outputs().len(), 0);

    // A watched outpoint, such as a Lightning channel's, also finds a key path spend, which reveals
    // no script.
    let mut watch = WatchedItems::new();
    let channel = case.block.txdata[2].input[0].previous_output;
    watch.add_outpoint(channel, Some(scripts[2].clone()));
    let scan = watch.scan(9, &case.bind());
    let spent = vec![Spent { vin: 0, outpoint: channel, script: Some(0), certain: true }];
    assert_eq!(found(&case, &scan), [(2, Relevance { received: vec![], spent })]);
    assert_eq!(watch.output(&channel).map(|output| output.spent), Some(Some(9)));
    assert_eq!(watch.output(&channel).map(|output| output.value), Some(None::<Amount>));
}
