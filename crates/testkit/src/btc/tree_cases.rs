//! A function that checks oracle cases of kind `tree`.

use std::str::FromStr as _;

use chainsieve::bitcoin::consensus::encode::deserialize_partial;
use chainsieve::bitcoin::{self, Txid};
use chainsieve::btc::bip37::{MerkleBlock, MerkleBlockError, Policy, Proof};

use crate::btc::oracle::Case;

/// Checks a `merkleblock` payload, intact or damaged, against the results of Core's deserialiser
/// and of its `ExtractMatches`.
pub fn tree(case: &Case) {
    let payload = case.bytes("merkleblock");
    let expected = Expected::of(case);
    let by_bitcoin = deserialize_partial::<bitcoin::MerkleBlock>(&payload).ok();
    assert_eq!(by_bitcoin.is_some(), expected.parses, "{case}: bitcoin's decoder");
    let ours = MerkleBlock::decode_prefix(&payload);
    assert_eq!(ours.is_ok(), expected.parses, "{case}: decode_prefix");
    let whole = MerkleBlock::decode(&payload).is_ok();
    assert_eq!(whole, expected.parses && !expected.trailing, "{case}: decode");
    let (Some((by_bitcoin, _)), Ok((ours, rest))) = (by_bitcoin, ours) else { return };

    assert_eq!(!rest.is_empty(), expected.trailing, "{case}: trailing bytes");
    let encoded = ours.encode();
    assert_eq!(hex::encode(&encoded), hex::encode(&payload[..encoded.len()]), "{case}: encode");
    let (mut txids, mut indices) = (Vec::new(), Vec::new());
    let valid = by_bitcoin.extract_matches(&mut txids, &mut indices).is_ok();
    let matches = valid.then(|| indices.into_iter().zip(txids).collect());
    assert_eq!(matches, expected.matches, "{case}: bitcoin's matches");

    let tree = ours.extract_matches();
    if let Err(MerkleBlockError::RootMismatch { .. }) = tree {
        assert!(expected.valid, "{case}: a root for an invalid tree");
    } else {
        assert_eq!(tree.is_ok(), expected.valid, "{case}: {tree:?}");
    }
    assert_eq!(tree.ok(), expected.matches, "{case}: matches");
    let proof = Proof::verify(&ours, Policy::Core, []).ok();
    let proven = proof.map(|proof| proof.inclusions.iter().map(|i| (i.index, i.txid)).collect());
    assert_eq!(proven, expected.matches, "{case}: proof by Core's policy");
}

struct Expected {
    parses: bool,
    trailing: bool,
    /// `true` if a root can be computed, whether or not it is the header's.
    valid: bool,
    /// Index and id of each match; `None` unless the tree's root is the header's.
    matches: Option<Vec<(u32, Txid)>>,
}

impl Expected {
    fn of(case: &Case) -> Self {
        let parses = case.bool("parses");
        let under_root = parses && case.bool("valid") && case.bool("root_is_headers");
        let matches = under_root.then(|| {
            let entry = |value: &serde_json::Value| {
                let index = value[0].as_u64().and_then(|n| u32::try_from(n).ok());
                let txid = value[1].as_str().map(Txid::from_str);
                (index.expect("an index"), txid.expect("an id").expect("hex"))
            };
            case.list("matches").iter().map(entry).collect()
        });
        let trailing = parses && case.bool("trailing");
        Self { parses, trailing, valid: parses && case.bool("valid"), matches }
    }
}
