//! Scripts that end inside a push, that claim impossible lengths, and that overflow counters.

use std::rc::Rc;

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::transaction::Version;
use chainsieve::bitcoin::{
    Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness, consensus,
};
use chainsieve::btc::bip37::{BloomFilter, MatchReason};
use chainsieve::btc::script::{ScriptType, is_well_formed, ops, pushes};

use crate::{matching_survives, survives};

/// Reads `script` in every way. Returns its pushes, and `true` if the script is well formed.
fn read(script: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let (count, well_formed) = survives("ops", script, 0, 0, || {
        let mut ops = ops(script);
        let count = ops.by_ref().count();
        // After its end, the iterator stays at the end.
        assert_eq!(ops.next(), None);
        (count, is_well_formed(script))
    });
    assert!(count <= script.len());
    survives("ScriptType::of", script, 0, 0, || ScriptType::of(script));
    let read = survives("pushes", script, 0, 0, || pushes(script).map(<[u8]>::len).sum::<usize>());
    assert!(read <= script.len());
    let pushes = pushes(script).map(<[u8]>::to_vec).collect();
    (pushes, well_formed)
}

/// Returns a transaction with the given scripts of an output and of an input.
fn transaction(output: &[u8], input: &[u8]) -> Rc<Transaction> {
    let input = TxIn {
        previous_output: OutPoint::null(),
        script_sig: ScriptBuf::from(input.to_vec()),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let output = TxOut { value: Amount::ZERO, script_pubkey: ScriptBuf::from(output.to_vec()) };
    let version = Version::ONE;
    Rc::new(Transaction {
        version,
        lock_time: LockTime::ZERO,
        input: vec![input],
        output: vec![output],
    })
}

/// Returns a filter of 4,000 bytes with one element. The filter's mode is `P2PUBKEY_ONLY`, for
/// which matching has to know the script's type.
fn filter_with(element: &[u8]) -> BloomFilter {
    let payload = [&[0xfd, 0xa0, 0x0f][..], &[0; 4_000], &[20, 0, 0, 0, 1, 2, 3, 4, 2]].concat();
    let mut filter = BloomFilter::decode(&payload).expect("a valid payload");
    filter.insert(element);
    filter
}

#[test]
fn scripts_that_end_inside_a_push() {
    let first = [0xc3; 20];
    let mut cut_scripts = 0;
    for (opcode, length) in [
        (vec![0x4b], 0x4b_usize),
        (vec![0x01], 1),
        (vec![0x4c, 80], 80),
        (vec![0x4c, 0xff], 0xff),
        (vec![0x4d, 0x00, 0x01], 0x100),
        (vec![0x4e, 0x00, 0x02, 0x00, 0x00], 0x200),
    ] {
        let whole = [&[20][..], &first, &opcode, &vec![0x77; length]].concat();
        let (found, well_formed) = read(&whole);
        assert_eq!((found.len(), well_formed), (2, true), "{opcode:02x?}");
        for end in 22..whole.len() {
            // The push before the malformed one is tested, and no other.
            let script = &whole[..end];
            assert_eq!(read(script), (vec![first.to_vec()], false), "{opcode:02x?} cut at {end}");
            let tx = transaction(script, script);
            let found = filter_with(&first).match_transaction(&tx).expect("a match");
            let reason = MatchReason::Output { vout: 0, push: 0, inserted: false };
            assert_eq!(found.reasons, [reason], "{opcode:02x?} cut at {end}");
            let input_only = transaction(&[], script);
            let found = filter_with(&first).match_transaction(&input_only).expect("a match");
            assert_eq!(found.reasons, [MatchReason::InputData { vin: 0, push: 0 }]);
            cut_scripts += 1;
        }
    }
    assert!(cut_scripts > 1_000);
}

#[test]
fn lengths_that_no_script_can_hold() {
    for opcode in [
        vec![0x4e, 0xff, 0xff, 0xff, 0xff],
        vec![0x4e, 0x00, 0x00, 0x00, 0x80],
        vec![0x4e, 0xff, 0xff, 0xff, 0x7f],
        vec![0x4d, 0xff, 0xff],
        vec![0x4c, 0xff],
    ] {
        for rest in [0, 1, 100] {
            let script = [opcode.clone(), vec![0x01; rest]].concat();
            assert_eq!(read(&script), (Vec::new(), false), "{}", hex::encode(&script));
        }
    }
}

/// More keys than an eight-bit counter can count, with every key count that a wrapped counter would
/// accept.
#[test]
fn multisig_of_300_keys() {
    let key = [&[33, 2][..], &[0x11; 32]].concat();
    for keys in [20, 21, 255, 256, 257, 276, 300] {
        let low_byte = u8::try_from(keys % 256).expect("a byte");
        let counts = [vec![0x51], vec![0x60], vec![1, 20], vec![1, low_byte], vec![2, low_byte, 1]];
        for total in counts {
            let script = [&[0x51][..], &key.repeat(keys), &total, &[0xae]].concat();
            let expected = if keys == 20 && total == [1, 20] {
                ScriptType::MultiSig
            } else {
                ScriptType::Other
            };
            assert_eq!(ScriptType::of(&script), expected, "{keys} keys, counted {total:02x?}");
            let (found, well_formed) = read(&script);
            assert!(well_formed);
            assert!(found.len() >= keys && found[..keys].iter().all(|push| push[..] == key[1..]));

            let tx = transaction(&script, &[]);
            let found = filter_with(&key[1..]).match_transaction(&tx).expect("a match");
            let inserted = expected == ScriptType::MultiSig;
            assert_eq!(found.reasons, [MatchReason::Output { vout: 0, push: 0, inserted }]);
        }
    }
}

#[test]
fn streams_of_one_byte() {
    for byte in 0..=u8::MAX {
        for length in [1, 2, 75, 76, 77, 255, 256, 300, 520, 10_000] {
            let script = vec![byte; length];
            let (found, well_formed) = read(&script);
            assert_eq!(ScriptType::of(&script), ScriptType::Other, "{length} times {byte:#x}");
            let tx = transaction(&script, &script);
            let mut filter = filter_with(&[0xee; 99]);
            let raw = consensus::serialize(&*tx);
            let found_in_tx = matching_survives("one byte repeated", &raw, &mut filter, &tx);
            assert_eq!(found_in_tx, None, "{length} times {byte:#x}");
            if byte == 0 || byte > 0x4e {
                assert_eq!((found.len(), well_formed), (0, true), "{length} times {byte:#x}");
            }
        }
    }
}
