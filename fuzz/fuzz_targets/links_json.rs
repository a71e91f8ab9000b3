//! Links to a block: any JSON gives links or an error, and links survive a round trip. Without
//! a believed block, only a proof of a header shows one.
#![no_main]

use chainsieve::alloy_primitives::{B256, keccak256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::History;
use chainsieve::eth::anchor::links::{self, Link, LinkVerifier, Origin};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(links) = serde_json::from_str::<Vec<Link>>(text) else { return };
    let again = serde_json::to_string(&links).expect("JSON");
    assert_eq!(serde_json::from_str::<Vec<Link>>(&again).expect("the same"), links);
    let origin = |block_hash, beacon_state| Origin {
        grade: Grade::Finalized,
        block_hash,
        beacon_state,
        checkpoint: None,
    };
    // The hash of the first header is believed, so that the first link is read to its end.
    let first = match links.first() {
        Some(Link::Parents { headers }) => headers.first(),
        Some(Link::HistoryContract { header, .. } | Link::HeaderProof { header, .. }) => {
            Some(header)
        }
        _ => None,
    };
    let believed = origin(first.map(keccak256), Some(B256::repeat_byte(3)));
    let whole = links::verify(&links, &believed, History::mainnet());
    // Link by link is the same as at once.
    let mut verifier = LinkVerifier::new(believed, History::mainnet());
    let followed = links.iter().try_for_each(|link| verifier.follow(link));
    match (followed, whole) {
        (Ok(()), Ok(shown)) => assert_eq!(verifier.end(), Ok(shown)),
        (Ok(()), Err(_)) => assert!(verifier.end().is_err()),
        (Err(_), whole) => assert!(whole.is_err()),
    }
    if !links.iter().any(|link| matches!(link, Link::HeaderProof { .. })) {
        assert!(links::verify(&links, &origin(None, None), History::mainnet()).is_err());
    }
});
