//! Steps of four peers, one of them honest. The honest peer is never blamed, only blocks of the
//! chain are scanned, and no request breaks the rules of a node.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: &[u8]| {
    let _ = testkit::btc::fuzzed_sync::sync_keeps_its_word(steps);
});
