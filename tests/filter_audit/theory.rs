//! Removes, adds and alters elements of filters. An audit must catch each change that the data of
//! the block can show, and must leave the other changes open.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chainsieve::bitcoin::bip158::BlockFilter;
use chainsieve::bitcoin::{Script, ScriptBuf, Transaction, TxIn};
use chainsieve::btc::bip158::audit::{FilterEvidence, Refutation, Verdict};

use crate::built::every_kind;
use crate::cases::{Case, corpus, fixtures, spends};
use testkit::Rng;

/// The ways in which an audit can know an element without the scripts of spent outputs, best first.
/// The script of an output that the block both creates and spends counts as an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Output,
    Wrapped,
    Guessed,
    Unknowable,
}

/// Returns `true` if `input`, which spends `script`, is of a usual kind that reveals the script.
fn gives_away(script: &Script, input: &TxIn) -> bool {
    let checks_signatures = |bytes: &[u8]| {
        let mut instructions = Script::from_bytes(bytes).instructions();
        instructions.clone().all(|instruction| instruction.is_ok())
            && instructions.any(|instruction| {
                let opcode = instruction.ok().and_then(|i| i.opcode());
                opcode.is_some_and(|opcode| (0xac..=0xaf).contains(&opcode.to_u8()))
            })
    };
    let push = |nth_last: usize| {
        let pushes: Vec<_> = input.script_sig.instructions().filter_map(Result::ok).collect();
        let at = pushes.len().checked_sub(nth_last)?;
        pushes[at].push_bytes().map(|bytes| bytes.as_bytes().to_vec())
    };
    let count = input.script_sig.instructions().count();
    if script.is_p2pkh() {
        let signature = push(2).is_some_and(|push| push.first() == Some(&0x30));
        return count == 2 && signature;
    }
    if script.is_p2sh() {
        let script = push(1).unwrap_or_default();
        return Script::from_bytes(&script).is_witness_program() || checks_signatures(&script);
    }
    let last = input.witness.last().unwrap_or_default();
    if script.is_p2tr() {
        return input.witness.taproot_control_block().is_some_and(|control| control[0] >= 0xc0);
    }
    script.is_p2wpkh() || script.is_p2wsh() && checks_signatures(last)
}

fn classes(case: &Case) -> BTreeMap<Vec<u8>, Class> {
    let mut classes = BTreeMap::new();
    let mut put = |script: &ScriptBuf, class: Class| {
        let entry = classes.entry(script.to_bytes()).or_insert(class);
        *entry = class.min(*entry);
    };
    let txids: HashSet<_> = case.block.txdata.iter().map(Transaction::compute_txid).collect();
    for (.., input) in spends(&case.block) {
        let script = &case.prevouts[&input.previous_output];
        let class = if txids.contains(&input.previous_output.txid) {
            Class::Output
        } else if !input.script_sig.is_empty() && !input.witness.is_empty() {
            Class::Wrapped
        } else if gives_away(script, input) {
            Class::Guessed
        } else {
            Class::Unknowable
        };
        put(script, class);
    }
    for output in case.block.txdata.iter().flat_map(|tx| &tx.output) {
        if !output.script_pubkey.is_op_return() {
            put(&output.script_pubkey, Class::Output);
        }
    }
    classes.remove(&vec![]);
    classes
}

/// Returns `true` if `bitcoin`'s reader finds `element` in a filter that does not contain it.
fn collides(case: &Case, filter: &[u8], element: &[u8]) -> bool {
    let filter = BlockFilter { content: filter.to_vec() };
    let mut query = std::iter::once(element);
    filter.match_any(&case.block.block_hash(), &mut query).expect("a filter")
}

/// Checks the verdict of an audit without scripts of spent outputs. The filter lacks one element of
/// this class, and has no more elements than the block may have.
fn assert_lacking(case: &Case, class: Class, verdict: &Verdict) {
    let evidence = match verdict {
        Verdict::Invalid(Refutation::Proof(proof)) => {
            assert_eq!(proof.verify(case.block.block_hash(), case.network), Ok(()));
            Some(&proof.evidence)
        }
        _ => None,
    };
    let as_theory_says = match class {
        Class::Output => matches!(evidence, Some(FilterEvidence::MissingOutput { .. })),
        Class::Wrapped => matches!(evidence, Some(FilterEvidence::MissingWrapped { .. })),
        Class::Guessed => matches!(verdict, Verdict::Suspicious { .. }),
        Class::Unknowable => matches!(verdict, Verdict::Undecidable(_)),
    };
    assert!(as_theory_says, "{}: {class:?} lacking, and {verdict}", case.name);
}

/// Changes at most `most` elements of each class, checks the verdicts, and counts the changes by
/// class.
fn check(case: &Case, most: usize, counts: &mut BTreeMap<(&'static str, Class), usize>) {
    let mut rng = Rng::new(3);
    let classes = classes(case);
    let elements: BTreeSet<_> = classes.keys().cloned().collect();
    assert_eq!(elements, case.elements(), "{}", case.name);
    assert_eq!(case.filter_of(&elements), case.filter, "{}", case.name);
    let known = classes.values().filter(|class| **class <= Class::Wrapped).count();
    let txids: HashSet<_> = case.block.txdata.iter().map(Transaction::compute_txid).collect();
    let unknown_inputs = spends(&case.block)
        .filter(|(.., input)| !txids.contains(&input.previous_output.txid))
        .filter(|(.., input)| input.script_sig.is_empty() || input.witness.is_empty())
        .count();
    for class in [Class::Output, Class::Wrapped, Class::Guessed, Class::Unknowable] {
        let mut of_class: Vec<_> =
            classes.iter().filter(|(_, c)| **c == class).map(|(script, _)| script).collect();
        while of_class.len() > most {
            of_class.swap_remove(rng.below(of_class.len()));
        }
        for element in of_class {
            let mut changed = elements.clone();
            changed.remove(element);
            let filter = case.filter_of(&changed);
            if collides(case, &filter, element) {
                continue;
            }
            // The evidence is the missing element, even if all scripts of the block are known.
            assert_lacking(case, class, &case.blind(&filter));
            assert!(matches!(case.trusting(&filter), Verdict::Invalid(_)), "{}", case.name);
            *counts.entry(("removed", class)).or_default() += 1;

            changed.insert(rng.bytes(25));
            let filter = case.filter_of(&changed);
            if collides(case, &filter, element) {
                continue;
            }
            assert_lacking(case, class, &case.blind(&filter));
            assert!(matches!(case.trusting(&filter), Verdict::Invalid(_)), "{}", case.name);
            *counts.entry(("altered", class)).or_default() += 1;
        }
    }
    // Extra elements are undecidable as long as inputs with unknown scripts could account for them.
    let room = known + unknown_inputs - elements.len();
    for extra in [1, 2, room, room + 1, room + 2, room + 100] {
        let added: BTreeSet<_> = (0..extra).map(|_| rng.bytes(25)).collect();
        let filter = case.filter_of(&elements.union(&added).cloned().collect());
        let blind = case.blind(&filter);
        if extra <= room {
            let expected = if extra == 0 && unknown_inputs == 0 {
                matches!(blind, Verdict::Valid(_))
            } else {
                matches!(blind, Verdict::Undecidable(_))
            };
            assert!(expected, "{}: {extra} of {room} too many, and {blind}", case.name);
        } else {
            let Verdict::Invalid(Refutation::Proof(proof)) = blind else { panic!("{blind}") };
            assert!(matches!(proof.evidence, FilterEvidence::Unequal { .. }), "{}", case.name);
            assert_eq!(proof.verify(case.block.block_hash(), case.network), Ok(()));
        }
        if extra > 0 {
            assert!(matches!(case.trusting(&filter), Verdict::Invalid(_)), "{}", case.name);
        }
        let class = if extra <= room { Class::Unknowable } else { Class::Output };
        *counts.entry(("added", class)).or_default() += 1;
    }
}

#[test]
fn changes_of_the_fixtures() {
    let mut counts = BTreeMap::new();
    for case in fixtures() {
        check(&case, 400, &mut counts);
    }
    println!("{counts:?}");
    for class in [Class::Output, Class::Wrapped, Class::Guessed] {
        assert!(counts[&("removed", class)] > 15, "{class:?}");
    }
}

#[test]
fn changes_of_the_corpus() {
    let Some(cases) = corpus() else { return };
    let mut counts = BTreeMap::new();
    for case in &cases {
        check(case, if case.block.txdata.len() > 1_000 { 12 } else { 40 }, &mut counts);
    }
    println!("{counts:?}");
    for class in [Class::Output, Class::Wrapped, Class::Guessed] {
        assert!(counts[&("removed", class)] > 25, "{class:?}");
    }
    assert!(counts[&("removed", Class::Unknowable)] > 10);
}

#[test]
fn changes_of_built_blocks() {
    let mut counts = BTreeMap::new();
    for (seed, chained) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        check(&every_kind(seed, chained), usize::MAX, &mut counts);
    }
    println!("{counts:?}");
    for class in [Class::Output, Class::Wrapped, Class::Guessed, Class::Unknowable] {
        assert!(counts[&("removed", class)] >= 16, "{class:?}");
    }
}
