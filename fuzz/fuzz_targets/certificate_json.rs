//! A certificate that can be read survives a round trip.
#![no_main]

use chainsieve::eth::certificate::Certificate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(certificate) = Certificate::from_json(text) else { return };
    assert_eq!(Certificate::from_json(&certificate.to_json()), Ok(certificate));
});
