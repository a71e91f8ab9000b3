//! The connection that a pool has beyond its maximum while no new block arrives.
//!
//! If every peer belongs to an attacker who withholds blocks, the pool would stay with these peers
//! for ever. As in Core, one more peer is therefore connected while the tip is stale. When this peer
//! has had time to send headers, one of all peers is disconnected again: the one whose last new
//! block is the oldest. An honest newcomer stays, and one that brings nothing leaves.

use std::cmp::Reverse;
use std::time::Duration;

use chainsieve::btc::peer::PeerId;

/// Interval at which one more peer is connected while the tip is stale (Core's
/// `STALE_CHECK_INTERVAL`).
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// Time that the newest peer has to bring a block, before a peer too many is disconnected (Core's
/// `EXTRA_PEER_CHECK_INTERVAL`).
pub(crate) const TIME_TO_SHOW: Duration = Duration::from_secs(45);

/// Decides when one peer more than the maximum may be connected.
#[derive(Debug, Default)]
pub(crate) struct ExtraPeer {
    is_allowed: bool,
    /// Time before which no further peer is allowed.
    next: Duration,
}

impl ExtraPeer {
    /// Updates the decision. `is_stale` is `true` while no new block arrives.
    pub(crate) fn check(&mut self, is_stale: bool, now: Duration) {
        if !is_stale {
            *self = Self::default();
        } else if now >= self.next {
            *self = Self { is_allowed: true, next: now + AGAIN };
        }
    }

    /// Returns `true` if one peer more than the maximum may be connected.
    pub(crate) fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Notes that a peer too many was disconnected. The next one is allowed after a while.
    pub(crate) fn done(&mut self) {
        self.is_allowed = false;
    }
}

/// The facts about a connected peer that decide whether it must leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) id: PeerId,
    /// `true` if the user named the peer.
    pub(crate) is_named: bool,
    /// Time of the last new block that the peer was the first to show; `None` if there is none.
    pub(crate) last_block: Option<Duration>,
}

/// Returns the peer that leaves if one too many is connected: the one whose last new block is the
/// oldest, and the newest of several without a block. Peers that the user named leave last.
pub(crate) fn worst(peers: impl Iterator<Item = Candidate>) -> Option<PeerId> {
    // Ids ascend, so the newest peer has the highest id.
    peers.min_by_key(|peer| (peer.is_named, peer.last_block, Reverse(peer.id))).map(|peer| peer.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_tip_allows_one_more_peer_every_ten_minutes() {
        let mut extra = ExtraPeer::default();
        let mut allowed = |is_stale, minute: u64, is_done| {
            extra.check(is_stale, Duration::from_secs(60 * minute));
            let is_allowed = extra.is_allowed();
            if is_done {
                extra.done();
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
}
