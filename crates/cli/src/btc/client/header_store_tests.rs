//! Files of headers that end at any byte.

use std::fs;

use chainsieve::bitcoin::BlockHash;

use super::super::mined::{self, UNIX};
use super::super::scratch::Scratch;
use super::*;

fn reopened(path: &Path) -> Stored {
    HeaderStore::open(path, Network::Regtest).unwrap()
}

fn hashes(chain: &HeaderChain) -> Vec<BlockHash> {
    (0..=chain.tip().height).filter_map(|height| chain.hash_at(height)).collect()
}

#[test]
fn headers_stay_and_a_reorganization_replaces_them() {
    let scratch = Scratch::new("headers-stay");
    let path = scratch.path().join("headers");
    let Stored { mut store, mut chain, cut } = reopened(&path);
    assert_eq!((chain.tip().height, cut), (0, 0));
    let genesis = *chain.header_at(0).unwrap();
    for headers in [mined::headers(&genesis, 5, 1), mined::headers(&genesis, 9, 2)] {
        let events = chain.accept(&headers, UNIX).unwrap();
        store.apply(&chain, &events).unwrap();
        assert_eq!(fs::read(&path).unwrap(), chain.encode());
        assert_eq!(hashes(&reopened(&path).chain), hashes(&chain));
    }
    assert_eq!(chain.tip().height, 9);
}

#[test]
fn a_file_cut_at_each_byte_is_a_shorter_chain() {
    let scratch = Scratch::new("headers-cut");
    let path = scratch.path().join("headers");
    let Stored { chain, .. } = reopened(&path);
    let mut chain = chain;
    let genesis = *chain.header_at(0).unwrap();
    chain.accept(&mined::headers(&genesis, 4, 1), UNIX).unwrap();
    let whole = chain.encode();
    let preamble = usize::try_from(chain.record_offset(1)).unwrap();
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let stored = reopened(&path);
        let left = length.saturating_sub(preamble);
        assert_eq!(stored.chain.tip().height as usize, left / 80, "{length}");
        assert_eq!(hashes(&stored.chain), hashes(&chain)[..=left / 80], "{length}");
        assert_eq!(stored.cut, left as u64 % 80, "{length}");
        // And it goes on from there.
        let (mut store, mut chain) = (stored.store, stored.chain);
        let tip = *chain.header_at(chain.tip().height).unwrap();
        let events = chain.accept(&mined::headers(&tip, 1, 3), UNIX).unwrap();
        store.apply(&chain, &events).unwrap();
        assert_eq!(fs::read(&path).unwrap(), chain.encode(), "{length}");
    }
}

#[test]
fn what_is_no_header_is_cut_off() {
    let scratch = Scratch::new("headers-zeros");
    let path = scratch.path().join("headers");
    let Stored { chain, .. } = reopened(&path);
    let mut chain = chain;
    let genesis = *chain.header_at(0).unwrap();
    chain.accept(&mined::headers(&genesis, 3, 1), UNIX).unwrap();
    // Some file systems leave zeros where a write did not come to an end.
    fs::write(&path, [chain.encode(), vec![0; 200]].concat()).unwrap();
    let stored = reopened(&path);
    assert_eq!((stored.chain.tip(), stored.cut), (chain.tip(), 200));
    assert_eq!(fs::read(&path).unwrap(), chain.encode());
}

#[test]
fn files_that_are_not_overwritten() {
    let scratch = Scratch::new("headers-other");
    let path = scratch.path().join("headers");
    HeaderStore::open(&path, Network::Signet).unwrap();
    let error = HeaderStore::open(&path, Network::Regtest).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.ends_with("headers of signet, not of regtest: see --network"), "{text}");
    fs::write(&path, b"my shopping list").unwrap();
    assert!(HeaderStore::open(&path, Network::Regtest).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"my shopping list");
}
