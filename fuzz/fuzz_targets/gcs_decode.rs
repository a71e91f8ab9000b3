//! Bytes as a set of any parameters: read strictly, as Core does, and by `bitcoin` with each of its
//! flaws named.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::set_is_read_alike(data);
});
