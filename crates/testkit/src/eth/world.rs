//! A simulated chain: branches, transactions, receipts, and the expected logs by a naive computation.

use std::collections::{HashMap, HashSet};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::{calculate_receipt_root, calculate_transaction_root};
use alloy_consensus::{Receipt, ReceiptEnvelope, SignableTransaction as _, TxEnvelope, TxLegacy};
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, Log, Signature};
use chainsieve::eth::follow::News;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::receipts::BlockReceipts;

use crate::eth::linked_headers;

/// A block with at least this many blocks after it may be final.
const FINAL_AFTER: usize = 9;
/// The contract whose logs are queried.
pub const ASKED: Address = Address::repeat_byte(0xaa);
/// An address without logs.
pub const NOBODY: Address = Address::repeat_byte(0xdd);
const OTHER: Address = Address::repeat_byte(0xbb);

/// Position of a log: block hash, and index in the block. Each log of the world has different data.
pub type Key = (B256, u64);

#[derive(Debug, Clone)]
pub struct WorldBlock {
    pub at: BlockRef,
    pub parent: B256,
    pub header: HeaderBuf,
    pub receipts: BlockReceipts,
    /// The transactions as encoded in the trie.
    pub transactions: Vec<Bytes>,
    /// Hashes of the transactions.
    pub hashes: Vec<B256>,
    /// For each log of [`ASKED`], its index in the block and its data.
    pub asked: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub struct World {
    pub blocks: HashMap<B256, WorldBlock>,
    /// The hashes of the canonical chain, from block 0 on.
    pub canonical: Vec<B256>,
    /// The canonical chain of another node, which may be on another branch.
    pub elsewhere: Vec<B256>,
    /// Blocks whose receipts are unavailable for now.
    pub withheld: HashSet<B256>,
    made: u64,
    /// A block that a node wrongly reports as final.
    pub called_final: Option<BlockRef>,
    /// `true` if the filters of new blocks lack the bits of the blocks' logs.
    pub unsound: bool,
}

impl World {
    pub fn new() -> Self {
        let mut world = Self::default();
        world.mine(0);
        world.elsewhere.clone_from(&world.canonical);
        world
    }

    pub fn head(&self) -> BlockRef {
        let hash = *self.canonical.last().expect("there is always block 0");
        BlockRef { number: self.canonical.len() as u64 - 1, hash }
    }

    pub fn at(&self, number: u64) -> Option<&WorldBlock> {
        self.blocks.get(self.canonical.get(usize::try_from(number).ok()?)?)
    }

    /// Mines a block on top; the seed determines the number of its transactions and logs.
    pub fn mine(&mut self, seed: u8) {
        let number = self.canonical.len() as u64;
        let parent = self.canonical.last().copied().unwrap_or_default();
        self.made += 1;
        let (mut receipts, mut asked, mut index) = (Vec::new(), Vec::new(), 0);
        let mut transactions = Vec::new();
        for transaction in 0..u64::from(seed % 4) {
            let mut logs = Vec::new();
            for log in 0..(seed >> 2) % 3 {
                let data: Vec<u8> = [self.made, transaction, u64::from(log)]
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect();
                let is_asked = (seed >> 4).wrapping_add(log) % 3 == 0;
                let address = if is_asked { ASKED } else { OTHER };
                if is_asked {
                    asked.push((index, data.clone()));
                }
                logs.push(Log::new_unchecked(address, Vec::new(), Bytes::from(data)));
                index += 1;
            }
            let cumulative_gas_used = 21_000 * (transaction + 1);
            let receipt = Receipt { status: true.into(), cumulative_gas_used, logs };
            receipts.push(ReceiptEnvelope::Legacy(receipt.into()));
            let nonce = self.made << 2 | transaction;
            let unsigned = TxLegacy { nonce, ..TxLegacy::default() };
            transactions.push(TxEnvelope::from(unsigned.into_signed(Signature::test_signature())));
        }
        let blooms = receipts.iter().map(ReceiptEnvelope::logs_bloom);
        let filter = blooms.fold(Bloom::ZERO, |all, one| all | *one);
        let filter = if self.unsound { Bloom::ZERO } else { filter };
        let mut header = linked_headers::header(parent, number, self.made, filter);
        header.receipts_root = calculate_receipt_root(&receipts);
        header.transactions_root = calculate_transaction_root(&transactions);
        let header = HeaderBuf::from_rlp(alloy_rlp::encode(&header)).expect("well-formed");
        let encodings: Vec<_> = receipts.iter().map(ReceiptEnvelope::encoded_2718).collect();
        let receipts = BlockReceipts::from_encodings(&encodings).expect("well-formed");
        let receipts = receipts.after_byzantium();
        let at = BlockRef { number, hash: header.hash() };
        let hashes = transactions.iter().map(|transaction| *transaction.tx_hash()).collect();
        let transactions = transactions.iter().map(|it| it.encoded_2718().into()).collect();
        let block = WorldBlock { at, parent, header, receipts, transactions, hashes, asked };
        self.blocks.insert(at.hash, block);
        self.canonical.push(at.hash);
    }

    pub fn mine_all(&mut self, seeds: &[u8]) {
        for &seed in seeds {
            self.mine(seed);
        }
    }

    /// Removes `depth` blocks from the chain, but never block 0.
    pub fn revert(&mut self, depth: usize) {
        let kept = self.canonical.len().saturating_sub(depth).max(1);
        self.canonical.truncate(kept);
    }

    /// Swaps the two nodes: from now on the other node answers.
    pub fn fail_over(&mut self) {
        std::mem::swap(&mut self.canonical, &mut self.elsewhere);
    }

    /// Gives the other node the chain that this node has now.
    pub fn synchronise(&mut self) {
        self.elsewhere.clone_from(&self.canonical);
    }

    /// Makes the receipts of the `count` newest blocks unavailable, and the receipts of all other
    /// blocks available.
    pub fn withhold(&mut self, count: usize) {
        self.withheld = self.canonical.iter().rev().take(count).copied().collect();
    }

    /// Mines until this chain is longer than any chain so far and its head is after block `number`.
    pub fn outgrow(&mut self, number: u64) {
        let numbers = self.blocks.values().map(|block| block.at.number);
        let longest = numbers.chain([number]).max().unwrap_or(0);
        let mut seed = 0_u8;
        while self.head().number < longest + 3 {
            seed = seed.wrapping_add(29);
            self.mine(seed);
        }
    }

    /// Returns the block that both nodes report as final.
    pub fn finalized(&self) -> BlockRef {
        let both = self.canonical.iter().zip(&self.elsewhere).take_while(|(a, b)| a == b).count();
        let newest = self.canonical.len().min(self.elsewhere.len()).saturating_sub(FINAL_AFTER);
        self.at(both.min(newest).saturating_sub(1) as u64).expect("block 0 is common").at
    }

    /// Returns the queried logs in the blocks from `from` up to `at`.
    pub fn logs_up_to(&self, mut at: BlockRef, from: u64) -> HashMap<Key, Vec<u8>> {
        let mut logs = HashMap::new();
        while at.number >= from {
            let block = &self.blocks[&at.hash];
            assert_eq!(block.at, at);
            logs.extend(block.asked.iter().map(|(index, data)| ((at.hash, *index), data.clone())));
            let Some(number) = at.number.checked_sub(1) else { break };
            at = BlockRef { number, hash: block.parent };
        }
        logs
    }

    /// Returns the last ancestor of `at` that is on the canonical chain.
    pub fn common(&self, mut at: BlockRef) -> BlockRef {
        while self.at(at.number).is_none_or(|block| block.at != at) {
            at = BlockRef { number: at.number - 1, hash: self.blocks[&at.hash].parent };
        }
        at
    }
}

/// A reader of updates that keeps the current state of each log.
#[derive(Debug, Default)]
pub struct Reader {
    pub logs: HashMap<Key, Vec<u8>>,
    /// `true` if a log may be delivered twice, as after a kill.
    pub lenient: bool,
    pub last: Option<BlockRef>,
    pub reorgs: u64,
}

impl Reader {
    /// Applies an update, but only its first `most` logs, as if a kill had interrupted the reader
    /// there.
    pub fn read(&mut self, update: &News, most: usize) {
        let (logs, last) = match update {
            News::Removed(removed) => {
                self.reorgs += 1;
                (&removed.logs, removed.last)
            }
            News::Blocks(blocks) => (&blocks.logs, Some(blocks.last)),
            _ => return,
        };
        let is_removed = matches!(update, News::Removed(_));
        let mut before = None;
        for log in logs.iter().take(most) {
            assert_eq!(log.removed, is_removed);
            let place = (log.block_number, log.log_index);
            let in_order = before
                .is_none_or(|before| if is_removed { before > place } else { before < place });
            assert!(in_order, "{before:?}, {place:?}");
            before = Some(place);
            let key = (log.block_hash, log.log_index);
            let data = log.log.data.data.to_vec();
            if is_removed {
                let was = self.logs.remove(&key);
                assert!(self.lenient || was == Some(data), "a removed log was delivered before");
            } else {
                let was = self.logs.insert(key, data);
                assert!(self.lenient || was.is_none(), "a log is delivered only once");
            }
        }
        if most >= logs.len() {
            self.last = last;
        }
    }
}
