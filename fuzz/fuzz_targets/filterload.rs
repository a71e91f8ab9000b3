//! `filterload`: accepted exactly within Core's limits. An accepted payload is encoded to the same
//! bytes, and agrees with `bitcoin`'s message where that type can represent the flags.
#![no_main]

use bitcoin::consensus::deserialize;
use bitcoin::p2p::message_bloom::FilterLoad;
use chainsieve::btc::bip37::BloomFilter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let ours = BloomFilter::decode(payload);
    let theirs = deserialize::<FilterLoad>(payload);
    match (&ours, &theirs) {
        (Ok(filter), Ok(message)) => {
            assert_eq!(BloomFilter::try_from(message.clone()).as_ref(), Ok(filter));
        }
        (Ok(filter), Err(_)) => assert!(filter.flags() > 2),
        (Err(_), Ok(message)) => assert!(message.filter.len() > 36_000 || message.hash_funcs > 50),
        (Err(_), Err(_)) => {}
    }
    if let Ok(mut filter) = ours {
        assert_eq!(filter.encode(), payload);
        let element = &payload[payload.len() / 2..];
        filter.insert(element);
        assert!(filter.contains(element));
        assert!(filter.fill() <= 1.0 && filter.false_positive_rate() <= 1.0);
        assert!(filter.estimated_elements() >= 0.0);
    }
    if let Ok((filter, rest)) = BloomFilter::decode_any_size(payload) {
        assert_eq!([filter.encode(), rest.to_vec()].concat(), payload);
    }
});
