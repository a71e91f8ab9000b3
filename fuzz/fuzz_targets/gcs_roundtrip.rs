//! Bytes as elements of a set: written as the text and `bitcoin` do, and all of them found again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::elements_come_back(data);
});
