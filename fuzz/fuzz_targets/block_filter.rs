//! Raw blocks and the scripts that they spend: the filters equal those of `bitcoin` and of a coder
//! written from the BIP.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = testkit::btc::fuzzed_sets::block_has_its_filter(data);
});
