//! Raw blocks, and the scripts that they spend: their filters are what the text and `bitcoin` make.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::block_has_its_filter(data);
});
