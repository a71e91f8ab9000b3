//! Scripts: the pushes, the end and the type are those that the slow reader finds.
#![no_main]

use chainsieve::btc::script::{self, ScriptType, pushes};
use libfuzzer_sys::fuzz_target;

use testkit::btc::slow_bip37::script::{Template, is_well_formed, non_empty_pushes, template};

fuzz_target!(|script: &[u8]| {
    assert_eq!(pushes(script).collect::<Vec<_>>(), non_empty_pushes(script));
    assert_eq!(script::is_well_formed(script), is_well_formed(script));
    let expected = match template(script) {
        Template::PublicKey => ScriptType::PubKey,
        Template::Multisig => ScriptType::MultiSig,
        Template::Other => ScriptType::Other,
    };
    assert_eq!(ScriptType::of(script), expected);
});
