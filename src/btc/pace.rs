//! The pace of block requests: the number of blocks that one peer is asked for at a time, and the
//! time at which its answers are overdue. The same rules apply to the blocks of the filter sync and
//! to the blocks that a caller requests.

use core::time::Duration;
use std::collections::BTreeMap;

use bitcoin::BlockHash;

use crate::btc::headers::BlockAt;

/// Number of timeouts that an answer may take before its peer is disconnected. A peer that owes a
/// filter in a dispute is disconnected after one timeout.
pub const SILENT_TIMEOUTS: u32 = 4;
/// Number of blocks in flight that together may take one timeout. This limit gives more time to a
/// node with a slow disk, which reads many small blocks one after another: the last of these blocks
/// does not become overdue.
const BLOCKS_PER_TIMEOUT: usize = 8;
/// Bytes of blocks in flight that together may take one timeout: about 35 kB/s with the default of
/// 30 s.
const BYTES_PER_TIMEOUT: usize = 1_000_000;
/// Maximum bytes of blocks in flight from one peer: about the capacity of a 100 Mbit/s link with a
/// round trip of 300 ms.
const BYTES_PER_PEER: usize = 4_000_000;
/// Maximum number of blocks in flight from one peer, however small they are. Bitcoin Core accepts
/// 50,000 items in one `getdata`. As a client, Bitcoin Core has at most 16 blocks in flight from
/// one peer.
const MAX_BLOCKS_PER_PEER: usize = 64;
/// The estimated size of a block in bytes before any block has arrived. The estimate is the size of
/// a full block, so that a peer has only four blocks in flight at first.
const FIRST_BLOCK_SIZE: usize = 1_000_000;

/// The time that answers may take, and the number of blocks that are requested at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) timeout: Duration,
    /// The estimated size of a block in bytes.
    block_size: usize,
}

impl Pace {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, block_size: FIRST_BLOCK_SIZE }
    }

    /// Returns the time that a peer may take to send `blocks` blocks, which it must send before an
    /// answer.
    pub(super) fn of(self, blocks: usize) -> Duration {
        let bytes = blocks.saturating_mul(self.block_size);
        self.times((bytes / BYTES_PER_TIMEOUT).max(blocks / BLOCKS_PER_TIMEOUT))
    }

    pub(super) fn times(self, count: usize) -> Duration {
        self.timeout.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Updates the estimated block size with a block that has arrived. A larger block raises the
    /// estimate at once, and smaller blocks lower it gradually. With too few blocks in flight, the
    /// download is slow. With too many blocks in flight, the answers to later requests exceed their
    /// timeout.
    pub(super) fn saw_block(&mut self, bytes: usize) {
        let before = self.block_size;
        self.block_size = bytes.max(before - before / 8 + bytes / 8);
    }

    /// Returns the maximum number of blocks in flight from one peer.
    fn blocks_per_peer(self) -> usize {
        (BYTES_PER_PEER / self.block_size.max(1)).clamp(1, MAX_BLOCKS_PER_PEER)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRequest {
    height: u32,
    sent: Duration,
    /// The number of blocks in flight at the time of the request. A node sends blocks in the order
    /// of the requests.
    before: usize,
    /// The number of those blocks that another part of the client requested. The arrival of these
    /// blocks is not recorded here.
    others: usize,
    reported: bool,
}

impl BlockRequest {
    /// Returns the time at which the next block is expected at the latest, if none arrives before.
    fn next(&self, last_block: Duration, pace: Pace) -> Duration {
        let next = last_block.max(self.sent).saturating_add(pace.timeout);
        next.saturating_add(pace.of(self.others))
    }

    /// Returns the time at which the block is overdue. A block is overdue in two cases: no
    /// requested block has arrived for one timeout, or more time has passed since the request than
    /// one timeout plus the time that the blocks before it may take together.
    fn due(&self, last_block: Duration, pace: Pace) -> Duration {
        let all = self.sent.saturating_add(pace.timeout).saturating_add(pace.of(self.before));
        self.next(last_block, pace).min(all)
    }
}

/// Overdue answers of a peer.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// The delay of an answer that has become overdue since the last check.
    pub(super) slow: Option<Duration>,
    /// The delay of an answer for which the peer must be disconnected.
    pub(super) gone: Option<Duration>,
}

impl Overdue {
    pub(super) fn note(&mut self, overdue: Duration, is_gone: bool, reported: &mut bool) {
        if overdue == Duration::ZERO {
            return;
        }
        if is_gone {
            self.gone = Some(overdue);
        } else if !core::mem::replace(reported, true) {
            // Each request is reported as slow only once.
            self.slow = Some(overdue);
        }
    }
}

/// The blocks that one peer was asked for and has not sent yet.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockRequests {
    blocks: BTreeMap<BlockHash, BlockRequest>,
    /// The time at which the last block arrived.
    last_block: Duration,
    /// `true` if the maximum number of blocks was in flight. Further blocks are then requested only
    /// when at most half of the maximum is pending.
    drains: bool,
}

impl BlockRequests {
    /// Records a request. `others` is the number of blocks that other parts of the client have in
    /// flight from the peer.
    pub(super) fn ask(&mut self, at: BlockAt, others: usize, now: Duration, pace: Pace) {
        let (before, most) = (self.blocks.len() + others, pace.blocks_per_peer());
        self.drains = before + 1 >= most || self.drains && before > most / 2;
        let height = at.height;
        let request = BlockRequest { height, sent: now, before, others, reported: false };
        self.blocks.insert(at.hash, request);
    }

    /// Removes a request for a block that has arrived or that the peer does not have. Returns the
    /// height of the block.
    pub(super) fn take(&mut self, hash: BlockHash, now: Duration) -> Option<u32> {
        let request = self.blocks.remove(&hash)?;
        self.last_block = now;
        Some(request.height)
    }

    /// Returns the number of open requests.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn has(&self, hash: BlockHash) -> bool {
        self.blocks.contains_key(&hash)
    }

    /// Returns the block that was requested first, and the time of the request. Only the light
    /// client names the block in its reason to disconnect.
    #[cfg(feature = "descriptors")]
    pub(super) fn oldest(&self) -> Option<(BlockHash, Duration)> {
        let requests = self.blocks.iter().map(|(hash, request)| (*hash, request));
        let oldest = requests.min_by_key(|(_, request)| (request.sent, request.before));
        oldest.map(|(hash, request)| (hash, request.sent))
    }

    /// Returns `true` if a block was requested and is not overdue.
    pub(super) fn brings(&self, hash: BlockHash, now: Duration, pace: Pace) -> bool {
        self.blocks.get(&hash).is_some_and(|block| block.due(self.last_block, pace) >= now)
    }

    /// Returns `true` if the peer may be asked for another block.
    ///
    /// Once the peer has had the maximum in flight, half of the blocks must arrive first. The peer
    /// then gets few messages, each for several blocks, so a delay for each message hardly slows
    /// the download.
    pub(super) fn has_room(&self, others: usize, pace: Pace) -> bool {
        let (blocks, most) = (self.blocks.len() + others, pace.blocks_per_peer());
        blocks < most && (!self.drains || blocks <= most / 2)
    }

    /// Returns `true` if a block is overdue.
    pub(super) fn is_slow(&self, now: Duration, pace: Pace) -> bool {
        self.blocks.values().any(|block| block.due(self.last_block, pace) < now)
    }

    /// Checks all requests against the clock, and adds the overdue answers to `found`.
    pub(super) fn check(&mut self, now: Duration, pace: Pace, found: &mut Overdue) {
        let last = pace.timeout.saturating_mul(SILENT_TIMEOUTS - 1);
        // The clock may have been set back. A block whose stored time is in the future would not
        // become overdue.
        self.last_block = self.last_block.min(now);
        for block in self.blocks.values_mut() {
            block.sent = block.sent.min(now);
            let overdue = now.saturating_sub(block.due(self.last_block, pace));
            let next = block.next(self.last_block, pace);
            found.note(overdue, now.saturating_sub(next) > last, &mut block.reported);
        }
    }
}
