//! Oracle cases of kind `tree`.

use std::str::FromStr as _;

use chainsieve::bitcoin::consensus::encode::deserialize_partial;
use chainsieve::bitcoin::{MerkleBlock, Txid};

use crate::oracle::Case;

/// A `merkleblock` payload, whole or damaged: what Core's deserialiser and its
/// `ExtractMatches` say.
pub(crate) fn tree(case: &Case) {
    let payload = case.bytes("merkleblock");
    let expected = Expected::of(case);
    let by_bitcoin = deserialize_partial::<MerkleBlock>(&payload).ok();
    assert_eq!(by_bitcoin.is_some(), expected.parses, "{case}: bitcoin's decoder");
    if let Some((block, read)) = by_bitcoin {
        assert_eq!(read != payload.len(), expected.trailing, "{case}: trailing bytes");
        let (mut txids, mut indices) = (Vec::new(), Vec::new());
        let valid = block.extract_matches(&mut txids, &mut indices).is_ok();
        let matches = valid.then(|| indices.into_iter().zip(txids).collect());
        assert_eq!(matches, expected.matches, "{case}: bitcoin's matches");
    }
}

struct Expected {
    parses: bool,
    trailing: bool,
    /// Index and id of each match, where the tree's root is the header's.
    matches: Option<Vec<(u32, Txid)>>,
}

impl Expected {
    fn of(case: &Case) -> Self {
        let parses = case.bool("parses");
        let valid = parses && case.bool("valid") && case.bool("root_is_headers");
        let matches = valid.then(|| {
            let entry = |value: &serde_json::Value| {
                let index = value[0].as_u64().and_then(|n| u32::try_from(n).ok());
                let txid = value[1].as_str().map(Txid::from_str);
                (index.expect("an index"), txid.expect("an id").expect("hex"))
            };
            case.list("matches").iter().map(entry).collect()
        });
        Self { parses, trailing: parses && case.bool("trailing"), matches }
    }
}
