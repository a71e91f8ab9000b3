//! A header as JSON-RPC: an accepted header has the hash that it claims, and alloy computes the
//! same hash.
#![no_main]

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::eth::header::HeaderBuf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(header) = HeaderBuf::from_json(text) else { return };
    assert_eq!(header.view().hash(), header.hash());
    if let Ok(alloy) = Header::decode(&mut header.rlp()) {
        assert_eq!(alloy.hash_slow(), header.hash());
    }
});
