//! Parameters of custom signets.

use chainsieve::bitcoin::ScriptBuf;

use super::super::*;

#[test]
fn the_magic_of_a_signet_is_that_of_its_challenge() {
    // The challenge of Core's default signet (kernel/chainparams.cpp). BIP325 states the magic
    // of this signet.
    let challenge = "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be430210359\
                     ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae";
    let default = NetworkParams::signet(&ScriptBuf::from_hex(challenge).unwrap());
    assert_eq!(default.magic.to_bytes(), [0x0a, 0x03, 0xcf, 0x40]);
    assert_eq!(default, NetworkParams::new(Network::Signet));
    // The challenge of Mutinynet, and the magic that its nodes log.
    let challenge = "512102f7561d208dd9ae99bf497273e16f389bdbd6c4742ddb8e6b216e64fa2928ad8f51ae";
    let mutinynet = NetworkParams::signet(&ScriptBuf::from_hex(challenge).unwrap());
    assert_eq!(mutinynet.magic.to_bytes(), [0xa5, 0xdf, 0x2d, 0xcb]);
    assert_eq!((mutinynet.port, mutinynet.seeds.len()), (38_333, 0));
    assert_eq!(mutinynet.block_time, 600);
}
