//! The blocks of a session: requested, being received, answered, and to be filtered again.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use bitcoin::{BlockHash, Transaction, Txid};

use super::Config;
use super::event::Finding;
use crate::btc::bip37::{MerkleBlockError, Proof};
use crate::btc::headers::BlockAt;
use crate::btc::protocol::MAX_INV_SIZE;
use crate::btc::wallet::Label;

/// Requests, from the queue until the block is closed.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    max_queued: usize,
    max_in_flight: usize,
    timeout: Duration,
    queue: VecDeque<BlockAt>,
    in_flight: VecDeque<Request>,
    /// The block whose transactions are being received.
    pub(super) open: Option<OpenBlock>,
    /// The lowest block from which transactions may have been missed.
    pub(super) refilter: Option<BlockAt>,
    is_stall_reported: bool,
}

impl Requests {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            max_queued: config.queued,
            max_in_flight: config.in_flight.min(MAX_INV_SIZE),
            timeout: config.timeout,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            open: None,
            refilter: None,
            is_stall_reported: false,
        }
    }

    /// Returns the number of requests that are not closed, sent or not.
    pub(super) fn num_pending(&self) -> usize {
        self.queue.len() + self.in_flight.len() + usize::from(self.open.is_some())
    }

    /// Queues blocks, in their order. Returns the number of blocks that exceeded the limit and were
    /// dropped.
    pub(super) fn enqueue(&mut self, blocks: Vec<BlockAt>) -> usize {
        let room = self.max_queued.saturating_sub(self.queue.len());
        let excess = blocks.len().saturating_sub(room);
        self.queue.extend(blocks.into_iter().take(room));
        excess
    }

    /// Handles a closed connection: blocks that were requested and are still valid are queued
    /// again, lowest first.
    pub(super) fn disconnect(&mut self) {
        let open = self.open.take().map(|open| open.request);
        let sent = self.in_flight.drain(..).chain(open);
        let mut again: Vec<_> = sent.filter(|it| it.counts).map(|it| it.block).collect();
        again.sort_by_key(|block| block.height);
        for block in again.into_iter().rev() {
            self.queue.push_front(block);
        }
        self.is_stall_reported = false;
    }

    /// Drops queued requests from `height` on, because these blocks have left the chain. Requests
    /// that were sent are marked, because the node still answers them.
    pub(super) fn reorganize(&mut self, height: u32) {
        self.queue.retain(|block| block.height < height);
        for request in self.sent_mut().filter(|request| request.block.height >= height) {
            (request.counts, request.is_in_chain) = (false, false);
        }
    }

    fn sent(&self) -> impl Iterator<Item = &Request> {
        self.in_flight.iter().chain(self.open.iter().map(|open| &open.request))
    }

    fn sent_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.in_flight.iter_mut().chain(self.open.iter_mut().map(|open| &mut open.request))
    }

    /// Records that transactions may have been missed from `block` on.
    pub(super) fn refilter_from(&mut self, block: BlockAt) {
        if self.refilter.is_none_or(|lowest| block.height < lowest.height) {
            self.refilter = Some(block);
        }
    }

    /// Records that blocks in flight are answered without the elements that the node's filter
    /// receives only now.
    pub(super) fn refilter_in_flight(&mut self) {
        let blocks = self.sent().filter(|request| request.counts).map(|request| request.block);
        if let Some(lowest) = blocks.min_by_key(|block| block.height) {
            self.refilter_from(lowest);
        }
    }

    /// Returns the block from which to filter again, if transactions may have been missed.
    ///
    /// Drops all requests that are not answered yet. The returned block is the lowest of the
    /// dropped blocks and the recorded block.
    pub(super) fn take_refilter(&mut self) -> Option<BlockAt> {
        let mut from = self.refilter.take()?;
        let sent = self.sent().filter(|request| request.counts).map(|request| request.block);
        for block in sent.chain(self.queue.iter().copied()) {
            if block.height < from.height {
                from = block;
            }
        }
        // Everything from the returned block on is requested again by the caller.
        self.queue.clear();
        self.sent_mut().for_each(|request| request.counts = false);
        Some(from)
    }

    /// Returns `true` if the answer to some request is outstanding and will be ignored because the
    /// request is superseded.
    pub(super) fn has_superseded(&self) -> bool {
        self.sent().any(|request| !request.counts)
    }

    /// Removes as many blocks from the queue as may be in flight, to be sent under filter
    /// `generation` and before this fence.
    ///
    /// Returns no block while less than half of the limit is free. Otherwise, the session would
    /// send one message for each block. Also returns no block while superseded answers are
    /// outstanding: such answers may show coins that the node has inserted into an earlier filter
    /// only.
    pub(super) fn send(&mut self, generation: u64, fence: u64, now: Duration) -> Vec<BlockHash> {
        let room = self.max_in_flight.saturating_sub(self.in_flight.len());
        let mut blocks = Vec::new();
        // Each message then requests several blocks. Otherwise, one message would be sent for each
        // answered block.
        if room * 2 < self.max_in_flight || self.has_superseded() {
            return blocks;
        }
        while blocks.len() < room {
            let Some(&block) = self.queue.front() else { break };
            // Two answers for the same block could not be told apart.
            if self.sent().any(|request| request.block.hash == block.hash) {
                break;
            }
            self.queue.pop_front();
            blocks.push(block.hash);
            self.in_flight.push_back(Request {
                block,
                generation,
                fence,
                counts: true,
                is_in_chain: true,
                sent: now,
            });
        }
        blocks
    }

    /// Removes and returns the request in flight for a block that is now answered.
    pub(super) fn take(&mut self, hash: &BlockHash) -> Option<Request> {
        let asked = self.in_flight.iter().position(|request| request.block.hash == *hash);
        asked.and_then(|index| self.in_flight.remove(index))
    }

    /// Removes and returns the requests before this fence that were not answered.
    pub(super) fn take_passed_over(&mut self, fence: u64) -> Vec<Request> {
        let passed_over = |request: &&Request| request.fence <= fence;
        let taken = self.in_flight.iter().filter(passed_over).copied().collect();
        self.in_flight.retain(|request| request.fence > fence);
        taken
    }

    /// Returns the oldest request and its waiting time if it is overdue. Each stall is reported
    /// once.
    pub(super) fn check_timeout(&mut self, now: Duration) -> Option<(BlockHash, Duration)> {
        let open = self.open.as_mut().map(|open| &mut open.request);
        let Some(oldest) = open.or(self.in_flight.front_mut()) else {
            self.is_stall_reported = false;
            return None;
        };
        let waited = now.saturating_sub(oldest.sent);
        let is_stalled = waited > self.timeout;
        let stalled = (is_stalled && !self.is_stall_reported).then_some(oldest.block.hash);
        self.is_stall_reported = is_stalled;
        stalled.map(|hash| (hash, waited))
    }
}

/// A block that was requested on the current connection and is not completely answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) block: BlockAt,
    /// Number of the filter under which the block was requested.
    pub(super) generation: u64,
    /// The fence whose `pong` follows the answer.
    fence: u64,
    /// `true` if the answer is valid. Otherwise the block will be requested again, and transactions
    /// missing from this answer do not matter.
    pub(super) counts: bool,
    /// `true` if the caller's chain still contains the block.
    pub(super) is_in_chain: bool,
    sent: Duration,
}

/// Largest total size of a block's transactions without witnesses, in bytes: a quarter of
/// `MAX_BLOCK_WEIGHT`.
const MAX_BLOCK_BASE_SIZE: usize = 1_000_000;

/// A merkle block whose transactions are being received.
#[derive(Debug, Clone)]
pub(super) struct OpenBlock {
    pub(super) request: Request,
    pub(super) proof: Proof,
    /// The delivered transactions and their txids, by position in the block.
    pub(super) delivered: BTreeMap<u32, (Txid, Transaction)>,
    /// Transactions that were delivered and ignored.
    refused: BTreeSet<Txid>,
    /// Total size of the delivered transactions in bytes.
    bytes: usize,
}

/// Relation of a transaction to the tree of an open block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The transaction is matched and was not delivered yet.
    Awaited,
    /// The transaction is matched and was delivered.
    Came,
    /// The tree does not contain the transaction.
    Absent,
}

impl OpenBlock {
    pub(super) fn new(request: Request, proof: Proof) -> Self {
        Self { request, proof, delivered: BTreeMap::new(), refused: BTreeSet::new(), bytes: 0 }
    }

    pub(super) fn leaf(&self, txid: Txid) -> Leaf {
        match self.proof.inclusion(txid) {
            None => Leaf::Absent,
            Some(leaf) if leaf.delivered || self.refused.contains(&txid) => Leaf::Came,
            Some(_) => Leaf::Awaited,
        }
    }

    /// Adds a transaction of the tree. Returns a finding if the transaction is ignored; the block then
    /// stays open.
    ///
    /// # Errors
    /// Returns a finding if the answer is invalid. The block must then be dropped.
    pub(super) fn deliver(
        &mut self,
        txid: Txid,
        tx: Transaction,
    ) -> Result<Option<Finding>, Finding> {
        let block = self.proof.block_hash;
        match self.proof.deliver(&tx) {
            Ok(Some(index)) => {
                self.bytes += tx.base_size();
                self.delivered.insert(index, (txid, tx));
            }
            Ok(None) => {}
            // The txid may be an inner node of the tree. An honest node sends such a transaction if
            // a miner has put it into a block, so the other transactions are still accepted.
            Err(MerkleBlockError::TransactionOf64Bytes { index, txid }) => {
                self.refused.insert(txid);
                return Ok(Some(Finding::Refused { block, index, txid }));
            }
            Err(error) => {
                return Err(Finding::InvalidMerkleBlock(block, error));
            }
        }
        // Without this limit, a lying node could fill the memory with transactions.
        if self.bytes > MAX_BLOCK_BASE_SIZE {
            return Err(Finding::OversizedBlock(block));
        }
        Ok(None)
    }

    /// Returns `true` if all transactions of the tree have been delivered.
    pub(super) fn is_complete(&self) -> bool {
        self.delivered.len() + self.refused.len() == self.proof.inclusions.len()
    }

    /// Returns the transactions of the tree that were not delivered: position and txid.
    pub(super) fn outstanding(&self) -> Vec<(u32, Txid)> {
        let leaves = self.proof.inclusions.iter();
        let outstanding =
            leaves.filter(|leaf| !leaf.delivered && !self.refused.contains(&leaf.txid));
        outstanding.map(|leaf| (leaf.index, leaf.txid)).collect()
    }

    /// Returns the delivered transactions, in block order.
    pub(super) fn transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.delivered.values().map(|(_, tx)| tx)
    }
}

/// Transactions of answered blocks that were not delivered and may arrive late.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    limit: usize,
    /// The block of each transaction, and the transaction's position in it.
    pub(super) positions: BTreeMap<Txid, (BlockAt, u32)>,
}

impl Missing {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, positions: BTreeMap::new() }
    }

    /// Records a transaction that was not delivered, unless the limit is reached.
    pub(super) fn insert(&mut self, txid: Txid, block: BlockAt, index: u32) {
        // The node chooses how many transactions it withholds, so memory must be bounded.
        if self.positions.len() < self.limit {
            self.positions.insert(txid, (block, index));
        }
    }
}

/// State of a cached transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The transaction was received outside of a block, and was not known to be the wallet's.
    Foreign,
    /// The transaction was reported as unconfirmed.
    Reported,
    /// The transaction was received with a block.
    InBlock {
        /// Height of the block.
        height: u32,
        /// `true` if the transaction was the wallet's and was reported.
        reported: bool,
    },
    /// The block that contained the transaction has left the chain.
    Dropped,
}

impl Standing {
    /// Returns `true` if the transaction was already reported as the wallet's.
    pub(super) fn is_reported(self) -> bool {
        matches!(self, Self::Reported | Self::InBlock { reported: true, .. })
    }
}

/// Cache of received transactions, which can replace a transaction that a block's answer lacks. The
/// oldest is dropped first.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    max_bytes: usize,
    by_txid: BTreeMap<Txid, (Transaction, Standing)>,
    order: VecDeque<(Txid, usize)>,
    bytes: usize,
}

impl Recent {
    /// Returns an empty cache for at most `max_bytes` of transactions.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, by_txid: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn get(&self, txid: &Txid) -> Option<&Transaction> {
        self.by_txid.get(txid).map(|(tx, _)| tx)
    }

    pub(super) fn standing(&self, txid: &Txid) -> Option<Standing> {
        self.by_txid.get(txid).map(|&(_, standing)| standing)
    }

    /// Stores `tx`, or changes its state if it is stored already.
    pub(super) fn insert(&mut self, txid: Txid, tx: &Transaction, standing: Standing) {
        if let Some((_, known)) = self.by_txid.get_mut(&txid) {
            *known = standing;
            return;
        }
        // In memory, a transaction needs at most a few times its size. Because 200 bytes are added
        // to each size, the number of small transactions is bounded too.
        let size = tx.base_size() + 200;
        // A transaction larger than the cache would only evict all other transactions.
        if size > self.max_bytes {
            return;
        }
        self.by_txid.insert(txid, (tx.clone(), standing));
        self.order.push_back((txid, size));
        self.bytes += size;
        // Without this limit, a node could fill the memory: it may send any number of transactions.
        while self.bytes > self.max_bytes {
            let Some((oldest, size)) = self.order.pop_front() else { break };
            self.by_txid.remove(&oldest);
            self.bytes -= size;
        }
    }

    /// Returns the transactions that may turn out to be the wallet's, oldest first.
    pub(super) fn foreign(&self) -> impl Iterator<Item = (Txid, &Transaction)> {
        self.order.iter().filter_map(|(txid, _)| match self.by_txid.get(txid) {
            Some((tx, Standing::Foreign)) => Some((*txid, tx)),
            _ => None,
        })
    }

    /// Marks transactions of blocks from `from` on, because these blocks have left the chain.
    pub(super) fn reorganize(&mut self, from: u32) {
        for (_, standing) in self.by_txid.values_mut() {
            if matches!(standing, Standing::InBlock { height, .. } if *height >= from) {
                *standing = Standing::Dropped;
            }
        }
    }
}

/// The highest used indices of keychains, and the keychains whose new scripts are awaited.
#[derive(Debug, Clone, Default)]
pub(super) struct Advance {
    /// The highest used index of each keychain.
    used: BTreeMap<u32, u32>,
    /// Keychains that have advanced and whose new scripts have not been added yet. The value is the
    /// lowest block that was answered without these scripts, which may be the block that advanced
    /// the keychain.
    awaiting: BTreeMap<u32, Option<BlockAt>>,
    /// The lowest block that was answered.
    first: Option<BlockAt>,
    /// `true` if scripts were added after blocks were answered, and [`scripts_came`] has not
    /// returned these blocks yet. By the gap limit, these blocks may pay to the scripts too.
    ///
    /// [`scripts_came`]: Self::scripts_came
    pub(super) is_behind: bool,
}

impl Advance {
    /// Records that this index and all indices before it are used.
    pub(super) fn set_used(&mut self, label: Label) {
        let used = self.used.entry(label.keychain).or_insert(label.index);
        *used = label.index.max(*used);
    }

    /// Records that a transaction uses this index. Returns `true` if the keychain has advanced.
    pub(super) fn note(&mut self, label: Label) -> bool {
        // The caller has already derived scripts after this index.
        if self.used.get(&label.keychain).is_some_and(|&used| used >= label.index) {
            return false;
        }
        self.used.insert(label.keychain, label.index);
        self.awaiting.entry(label.keychain).or_insert(None);
        true
    }

    /// Records that `block` was answered. Scripts of advanced keychains may not be watched yet.
    pub(super) fn answered(&mut self, block: BlockAt) {
        for lowest in self.awaiting.values_mut().chain([&mut self.first]) {
            // Filtering again from the lowest block covers all later blocks.
            if lowest.is_none_or(|lowest| block.height < lowest.height) {
                *lowest = Some(block);
            }
        }
    }

    /// Drops recorded blocks from `height` on, because they have left the chain. The blocks that
    /// replace them are recorded when they are answered.
    pub(super) fn reorganize(&mut self, height: u32) {
        for block in self.awaiting.values_mut().chain([&mut self.first]) {
            block.take_if(|block| block.height >= height);
        }
    }

    /// Records that the keychain has received its scripts. Returns the lowest block that was
    /// answered without these scripts since the keychain advanced.
    pub(super) fn scripts_came(&mut self, keychain: u32) -> Option<BlockAt> {
        let since = self.awaiting.remove(&keychain)?;
        // Blocks that were answered before the keychain advanced may pay to the scripts as well.
        let is_lower = |first: BlockAt| since.is_none_or(|block| first.height < block.height);
        self.is_behind |= self.first.is_some_and(is_lower);
        since
    }

    /// Returns the lowest block that was answered, if scripts came after it since the last call.
    pub(super) fn take_behind(&mut self) -> Option<BlockAt> {
        core::mem::take(&mut self.is_behind).then_some(self.first).flatten()
    }
}

/// Fences: pings after requests. A pong shows that the node has finished all answers to the
/// requests before the ping.
///
/// Range of the fences sent on this connection; its end is the next fence.
#[derive(Debug, Clone)]
pub(super) struct Fences(Range<u64>);

/// An odd number (2^64 divided by the golden ratio), and its inverse modulo 2^64. The odd number
/// spreads consecutive fences over all nonces, and the inverse turns a nonce back into its fence.
/// The inverse is also the mask of all nonces, so that fence 0 does not have nonce 0.
const NONCE_FACTOR: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xf1de_83e1_9937_733d];

/// Returns the nonce of a fence's ping.
///
/// Fences are consecutive and often start at 0, and the nonces of the caller's own pings may also
/// be such numbers. The multiplication spreads the nonces over all 64-bit numbers and can be
/// inverted.
pub(super) fn ping_nonce(fence: u64) -> u64 {
    fence.wrapping_mul(NONCE_FACTOR[0]) ^ NONCE_FACTOR[1]
}

/// Returns the fence whose ping has this nonce.
pub(super) fn fence_of(nonce: u64) -> u64 {
    (nonce ^ NONCE_FACTOR[1]).wrapping_mul(NONCE_FACTOR[1])
}

impl Fences {
    /// Returns fences whose numbers differ from those of a wallet with another tweak.
    pub(super) fn new(tweak: u32) -> Self {
        let first = u64::from(tweak) << 31;
        Self(first..first)
    }

    /// Starts a new connection: pongs for earlier fences are ignored.
    pub(super) fn connect(&mut self) {
        self.0.start = self.0.end;
    }

    /// Returns the next fence.
    pub(super) fn next(&self) -> u64 {
        self.0.end
    }

    /// Advances to the next fence, and returns the nonce of the ping to send.
    pub(super) fn send(&mut self) -> u64 {
        let nonce = ping_nonce(self.0.end);
        self.0.end += 1;
        nonce
    }

    /// Returns the fence of this connection that a pong with this nonce answers.
    pub(super) fn passed(&self, nonce: u64) -> Option<u64> {
        Some(fence_of(nonce)).filter(|fence| self.0.contains(fence))
    }
}
