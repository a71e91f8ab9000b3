//! Raw transactions: taken apart exactly if `bitcoin` decodes them, into the same elements.
#![no_main]

use bitcoin::hashes::Hash as _;
use bitcoin::{Transaction, consensus};
use chainsieve::btc::bip37::Elements;
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/slow_bip37/mod.rs"]
#[expect(dead_code, reason = "only the script reader is needed")]
mod slow_bip37;

use slow_bip37::outpoint_bytes;
use slow_bip37::script::non_empty_pushes;

fuzz_target!(|raw: &[u8]| {
    match (Elements::from_raw_transaction(raw), consensus::deserialize::<Transaction>(raw)) {
        (Ok(ours), Ok(tx)) => {
            let mut expected = vec![tx.compute_txid().to_byte_array().to_vec()];
            let pushes = |script: &[u8]| -> Vec<Vec<u8>> {
                non_empty_pushes(script).into_iter().map(<[u8]>::to_vec).collect()
            };
            for output in &tx.output {
                expected.extend(pushes(output.script_pubkey.as_bytes()));
            }
            for input in &tx.input {
                expected.push(outpoint_bytes(&input.previous_output));
                expected.extend(pushes(input.script_sig.as_bytes()));
            }
            let got: Vec<_> = ours.iter().flatten().map(<[u8]>::to_vec).collect();
            assert_eq!(got, expected);
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{:?}, {:?}", ours.map(drop), theirs.map(drop)),
    }
});
