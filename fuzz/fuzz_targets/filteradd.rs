//! `filteradd`: decoded as by `bitcoin`, up to 520 bytes.
#![no_main]

use bitcoin::consensus::deserialize;
use bitcoin::p2p::message_bloom::FilterAdd;
use chainsieve::btc::bip37::AddedData;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    match (AddedData::decode(payload), deserialize::<FilterAdd>(payload)) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours.encode(), payload);
            assert_eq!(FilterAdd::from(ours), theirs);
        }
        (Err(_), Ok(theirs)) => assert!(theirs.data.len() > 520),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => panic!("only bitcoin refuses it: {error}"),
    }
    if let Ok((data, rest)) = AddedData::decode_prefix(payload) {
        assert_eq!([data.encode(), rest.to_vec()].concat(), payload);
    }
});
