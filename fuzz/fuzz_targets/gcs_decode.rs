//! Bytes as a set of any parameters: read strictly, as Core does, and by `bitcoin` with each of its
//! flaws named.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/bitcoin_sets.rs"]
mod bitcoin_sets;
#[path = "../../tests/support/fuzzed_sets.rs"]
#[expect(dead_code, reason = "each target asserts one of them")]
mod fuzzed_sets;
#[path = "../../tests/support/gcs_reading.rs"]
mod gcs_reading;
#[path = "../../tests/naive_gcs/mod.rs"]
mod naive_gcs;

fuzz_target!(|data: &[u8]| {
    let _ = fuzzed_sets::set_is_read_alike(data);
});
