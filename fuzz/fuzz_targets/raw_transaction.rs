//! Raw transactions: decoded exactly if `bitcoin` decodes them, and matched as by the slow matcher.
#![no_main]

use bitcoin::{Transaction, consensus};
use chainsieve::btc::bip37::{BloomFilter, Elements};
use libfuzzer_sys::fuzz_target;

use testkit::btc::slow_bip37::SlowFilter;

fuzz_target!(|raw: &[u8]| {
    match (Elements::from_raw_transaction(raw), consensus::deserialize::<Transaction>(raw)) {
        (Ok(ours), Ok(tx)) => {
            assert_eq!(ours.txids(), [tx.compute_txid()]);
            // A small filter, which random elements match now and then.
            let mut slow = SlowFilter { data: vec![0x96; 5], hash_funcs: 2, tweak: 0, flags: 1 };
            let mut filter = BloomFilter::decode(&slow.payload()).expect("within the limits");
            let found = filter.match_elements(&ours).pop();
            assert_eq!(found.is_some(), !slow.match_and_update(&tx).is_empty());
            assert_eq!(filter.encode(), slow.payload());
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{:?}, {:?}", ours.map(drop), theirs.map(drop)),
    }
});
