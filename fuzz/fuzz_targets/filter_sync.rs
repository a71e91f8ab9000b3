//! Steps of four peers, one of them honest: it is never blamed, no block is scanned that is not the
//! chain's, and no request breaks the rules of the node's side.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|steps: &[u8]| {
    let _ = testkit::btc::fuzzed_sync::sync_keeps_its_word(steps);
});
