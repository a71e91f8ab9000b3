//! The peer that is connected beyond the maximum, and the one that leaves.

use super::super::*;

#[test]
fn a_stale_tip_allows_one_more_peer_every_ten_minutes() {
    let mut extra = ExtraPeer::default();
    let mut allowed = |is_stale, minute: u64, is_done| {
        extra.check(is_stale, Duration::from_secs(60 * minute));
        let is_allowed = extra.is_allowed;
        if is_done {
            extra.is_allowed = false;
        }
        is_allowed
    };
    assert!(!allowed(false, 0, false));
    assert!(allowed(true, 1, false));
    // As long as no peer had to leave, the connection may still be opened.
    assert!(allowed(true, 5, true));
    assert!(!allowed(true, 6, false));
    assert!(!allowed(true, 10, false));
    assert!(allowed(true, 11, true));
    assert!(!allowed(true, 12, false));
    // A new block ends it. The next stale tip need not wait.
    assert!(!allowed(false, 13, false));
    assert!(allowed(true, 14, false));
    assert!(!allowed(false, 15, false));
}

#[test]
fn who_brings_blocks_stays_and_a_newcomer_without_any_leaves() {
    let peer = |id, is_named, last_block: Option<u64>| Candidate {
        id: PeerId(id),
        is_named,
        last_block: last_block.map(Duration::from_secs),
    };
    for (peers, leaves) in [
        (vec![], None),
        (vec![peer(1, false, None), peer(2, false, None)], Some(2)),
        (vec![peer(1, false, Some(9)), peer(2, false, None), peer(3, false, Some(8))], Some(2)),
        (vec![peer(1, false, Some(9)), peer(2, false, Some(8))], Some(2)),
        // The newcomer has brought a block.
        (vec![peer(1, false, Some(7)), peer(2, false, Some(8))], Some(1)),
        (vec![peer(1, true, None), peer(2, false, Some(8))], Some(2)),
        (vec![peer(1, true, None), peer(2, true, Some(8))], Some(1)),
    ] {
        assert_eq!(worst(peers.iter().copied()), leaves.map(PeerId), "{peers:?}");
    }
}
