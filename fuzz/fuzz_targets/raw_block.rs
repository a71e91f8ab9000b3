//! Raw blocks: decoded exactly if `bitcoin` decodes them, and with the same ids.
#![no_main]

use bitcoin::{Block, Transaction, consensus};
use chainsieve::btc::bip37::BlockElements;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &[u8]| {
    match (BlockElements::from_raw(raw), consensus::deserialize::<Block>(raw)) {
        (Ok(ours), Ok(block)) => {
            let txids: Vec<_> = block.txdata.iter().map(Transaction::compute_txid).collect();
            assert_eq!(ours.txids(), txids);
            assert_eq!(*ours.header(), block.header);
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{:?}, {:?}", ours.map(drop), theirs.map(drop)),
    }
});
