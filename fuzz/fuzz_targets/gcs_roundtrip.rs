//! Bytes as elements of a set: encoded as by `bitcoin` and by a coder written from the BIP, and all
//! found again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::elements_come_back(data);
});
