//! Bytes as a set with any parameters: read strictly, as by Core, and by `bitcoin`, whose flaws are
//! named one by one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::set_is_read_alike(data);
});
