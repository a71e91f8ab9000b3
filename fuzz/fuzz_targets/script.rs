//! Scripts: the pushes, the end and the type are those that the slow reader finds.
#![no_main]

use chainsieve::btc::script::{ScriptType, ops, pushes};
use libfuzzer_sys::fuzz_target;

use testkit::btc::slow_bip37::script::{Template, is_well_formed, non_empty_pushes, template};

fuzz_target!(|script: &[u8]| {
    assert_eq!(pushes(script).collect::<Vec<_>>(), non_empty_pushes(script));
    let mut read = ops(script);
    read.by_ref().for_each(drop);
    assert_eq!(read.is_well_formed(), is_well_formed(script));
    let expected = match template(script) {
        Template::PublicKey => ScriptType::PubKey,
        Template::Multisig => ScriptType::MultiSig,
        Template::Other => ScriptType::Other,
    };
    assert_eq!(ScriptType::of(script), expected);
});
