//! A chain for tests: branches, receipts, and a naive answer to what its logs are.

use std::collections::{HashMap, HashSet};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_consensus::{Receipt, ReceiptEnvelope};
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, Log};
use chainsieve::eth::follow::Update;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::receipts::BlockReceipts;

use crate::eth::linked_headers;

/// A block with so many blocks after it may be final.
const FINAL_AFTER: usize = 9;
/// The contract that is asked about.
pub const ASKED: Address = Address::repeat_byte(0xaa);
/// No log is of it.
pub const NOBODY: Address = Address::repeat_byte(0xdd);
const OTHER: Address = Address::repeat_byte(0xbb);

/// A log's place and its data, which is another for each log of the world.
pub type Key = (B256, u64);

#[derive(Debug, Clone)]
pub struct WorldBlock {
    pub at: BlockRef,
    pub parent: B256,
    pub header: HeaderBuf,
    pub receipts: BlockReceipts,
    /// Index in the block and data of each log of [`ASKED`].
    pub asked: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub struct World {
    pub blocks: HashMap<B256, WorldBlock>,
    /// From block 0 on.
    pub canonical: Vec<B256>,
    /// The same of another node, which may be on another branch.
    pub elsewhere: Vec<B256>,
    /// Receipts of these can't be had for now.
    pub withheld: HashSet<B256>,
    made: u64,
    /// What a node calls final that is not.
    pub called_final: Option<BlockRef>,
    /// Whether filters lack the bits of logs.
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

    /// A block with so many transactions on top; the seed says which logs they have.
    pub fn mine(&mut self, seed: u8) {
        let number = self.canonical.len() as u64;
        let parent = self.canonical.last().copied().unwrap_or_default();
        self.made += 1;
        let (mut receipts, mut asked, mut index) = (Vec::new(), Vec::new(), 0);
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
        }
        let blooms = receipts.iter().map(ReceiptEnvelope::logs_bloom);
        let filter = blooms.fold(Bloom::ZERO, |all, one| all | *one);
        let filter = if self.unsound { Bloom::ZERO } else { filter };
        let mut header = linked_headers::header(parent, number, self.made, filter);
        header.receipts_root = calculate_receipt_root(&receipts);
        let header = HeaderBuf::from_rlp(alloy_rlp::encode(&header)).expect("well-formed");
        let encodings: Vec<_> = receipts.iter().map(ReceiptEnvelope::encoded_2718).collect();
        let receipts = BlockReceipts::from_encodings(&encodings).expect("well-formed");
        let receipts = receipts.after_byzantium();
        let at = BlockRef { number, hash: header.hash() };
        self.blocks.insert(at.hash, WorldBlock { at, parent, header, receipts, asked });
        self.canonical.push(at.hash);
    }

    pub fn mine_all(&mut self, seeds: &[u8]) {
        for &seed in seeds {
            self.mine(seed);
        }
    }

    /// Takes off so many blocks, but never block 0.
    pub fn revert(&mut self, depth: usize) {
        let kept = self.canonical.len().saturating_sub(depth).max(1);
        self.canonical.truncate(kept);
    }

    /// The other node answers from now on.
    pub fn fail_over(&mut self) {
        std::mem::swap(&mut self.canonical, &mut self.elsewhere);
    }

    /// The other node has the same chain as this one, for now.
    pub fn synchronise(&mut self) {
        self.elsewhere.clone_from(&self.canonical);
    }

    /// Receipts of the newest blocks, so many, can't be had; those of all others can.
    pub fn withhold(&mut self, count: usize) {
        self.withheld = self.canonical.iter().rev().take(count).copied().collect();
    }

    /// Mines until this chain is the longest that there ever was, and goes beyond a block.
    pub fn outgrow(&mut self, number: u64) {
        let numbers = self.blocks.values().map(|block| block.at.number);
        let longest = numbers.chain([number]).max().unwrap_or(0);
        let mut seed = 0_u8;
        while self.head().number < longest + 3 {
            seed = seed.wrapping_add(29);
            self.mine(seed);
        }
    }

    /// The block that both nodes call final.
    pub fn finalized(&self) -> BlockRef {
        let both = self.canonical.iter().zip(&self.elsewhere).take_while(|(a, b)| a == b).count();
        let newest = self.canonical.len().min(self.elsewhere.len()).saturating_sub(FINAL_AFTER);
        self.at(both.min(newest).saturating_sub(1) as u64).expect("block 0 is common").at
    }

    /// The logs that are asked about in the blocks from `from` up to this one.
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

    /// The last block of both chains.
    pub fn common(&self, mut at: BlockRef) -> BlockRef {
        while self.at(at.number).is_none_or(|block| block.at != at) {
            at = BlockRef { number: at.number - 1, hash: self.blocks[&at.hash].parent };
        }
        at
    }
}

/// A reader who keeps the last word for each log.
#[derive(Debug, Default)]
pub struct Reader {
    pub logs: HashMap<Key, Vec<u8>>,
    /// Whether a log may come twice: after a kill.
    pub lenient: bool,
    pub last: Option<BlockRef>,
    pub reorgs: u64,
}

impl Reader {
    /// Takes an update; of its logs only so many, if a kill comes then.
    pub fn read(&mut self, update: &Update, most: usize) {
        let (logs, last) = match update {
            Update::Removed(removed) => {
                self.reorgs += 1;
                (&removed.logs, removed.last)
            }
            Update::Blocks(blocks) => (&blocks.logs, Some(blocks.last)),
            _ => return,
        };
        let is_removed = matches!(update, Update::Removed(_));
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
                assert!(self.lenient || was == Some(data), "what was given out is taken back");
            } else {
                let was = self.logs.insert(key, data);
                assert!(self.lenient || was.is_none(), "a log comes once");
            }
        }
        if most >= logs.len() {
            self.last = last;
        }
    }
}
