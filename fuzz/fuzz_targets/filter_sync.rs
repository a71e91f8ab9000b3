//! Steps of four peers, one of them honest: it is never blamed, no block is scanned that is not the
//! chain's, and no request breaks the rules of the node's side.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/fuzzed_protocol.rs"]
mod fuzzed_protocol;
#[path = "../../tests/support/rng.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod rng;
#[path = "../../tests/filter_sync/scripts.rs"]
mod scripts;
#[path = "../../tests/filter_sync/world.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod world;

fuzz_target!(|steps: &[u8]| {
    let _ = fuzzed_protocol::sync_keeps_its_word(steps);
});
