//! A chain for tests: branches, receipts, and a naive answer to what its logs are.

use std::collections::{HashMap, HashSet};

use alloy_rlp::{BytesMut, Encodable as _, Header as RlpHeader};
use chainsieve::alloy_primitives::{Address, B256, Bytes, Log, U256};
use chainsieve::eth::bloom;
use chainsieve::eth::follow::Update;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::receipts::{BlockReceipts, VerifyError};

/// A block with so many blocks after it may be final.
const FINAL_AFTER: usize = 9;
/// The contract that is asked about.
pub(crate) const ASKED: Address = Address::repeat_byte(0xaa);
/// No log is of it.
pub(crate) const NOBODY: Address = Address::repeat_byte(0xdd);
const OTHER: Address = Address::repeat_byte(0xbb);

/// A log's place and its data, which is another for each log of the world.
pub(crate) type Key = (B256, u64);

#[derive(Debug, Clone)]
pub(crate) struct WorldBlock {
    pub(crate) at: BlockRef,
    pub(crate) parent: B256,
    pub(crate) header: HeaderBuf,
    pub(crate) receipts: BlockReceipts,
    /// Index in the block and data of each log of [`ASKED`].
    pub(crate) asked: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) blocks: HashMap<B256, WorldBlock>,
    /// From block 0 on.
    pub(crate) canonical: Vec<B256>,
    /// The same of another node, which may be on another branch.
    pub(crate) elsewhere: Vec<B256>,
    /// Receipts of these can't be had for now.
    pub(crate) withheld: HashSet<B256>,
    made: u64,
    /// What a node calls final that is not.
    pub(crate) called_final: Option<BlockRef>,
    /// Whether filters lack the bits of logs.
    pub(crate) unsound: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self::default();
        world.mine(0);
        world.elsewhere.clone_from(&world.canonical);
        world
    }

    pub(crate) fn head(&self) -> BlockRef {
        let hash = *self.canonical.last().expect("there is always block 0");
        BlockRef { number: self.canonical.len() as u64 - 1, hash }
    }

    pub(crate) fn at(&self, number: u64) -> Option<&WorldBlock> {
        self.blocks.get(self.canonical.get(usize::try_from(number).ok()?)?)
    }

    /// A block with so many transactions on top; the seed says which logs they have.
    pub(crate) fn mine(&mut self, seed: u8) {
        let number = self.canonical.len() as u64;
        let parent = self.canonical.last().copied().unwrap_or_default();
        self.made += 1;
        let mut block_bloom = [0; bloom::BYTES];
        let (mut encodings, mut asked, mut index) = (Vec::new(), Vec::new(), 0);
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
            encodings.push(receipt(transaction, &logs, &mut block_bloom));
        }
        if self.unsound {
            block_bloom = [0; bloom::BYTES];
        }
        let receipts = BlockReceipts::from_encodings(&encodings).expect("well-formed");
        let receipts = receipts.after_byzantium();
        let root = match receipts.verify(B256::ZERO, (&block_bloom).into()) {
            Err(VerifyError::RootMismatch { computed, .. }) => computed,
            other => panic!("no root: {other:?}"),
        };
        let header = header(parent, number, root, &block_bloom, self.made);
        let at = BlockRef { number, hash: header.hash() };
        self.blocks.insert(at.hash, WorldBlock { at, parent, header, receipts, asked });
        self.canonical.push(at.hash);
    }

    pub(crate) fn mine_all(&mut self, seeds: &[u8]) {
        for &seed in seeds {
            self.mine(seed);
        }
    }

    /// Takes off so many blocks, but never block 0.
    pub(crate) fn revert(&mut self, depth: usize) {
        let kept = self.canonical.len().saturating_sub(depth).max(1);
        self.canonical.truncate(kept);
    }

    /// The other node answers from now on.
    pub(crate) fn fail_over(&mut self) {
        std::mem::swap(&mut self.canonical, &mut self.elsewhere);
    }

    /// The other node has the same chain as this one, for now.
    pub(crate) fn synchronise(&mut self) {
        self.elsewhere.clone_from(&self.canonical);
    }

    /// Receipts of the newest blocks, so many, can't be had; those of all others can.
    pub(crate) fn withhold(&mut self, count: usize) {
        self.withheld = self.canonical.iter().rev().take(count).copied().collect();
    }

    /// Mines until this chain is the longest that there ever was, and goes beyond a block.
    pub(crate) fn outgrow(&mut self, number: u64) {
        let numbers = self.blocks.values().map(|block| block.at.number);
        let longest = numbers.chain([number]).max().unwrap_or(0);
        let mut seed = 0_u8;
        while self.head().number < longest + 3 {
            seed = seed.wrapping_add(29);
            self.mine(seed);
        }
    }

    /// The block that both nodes call final.
    pub(crate) fn finalized(&self) -> BlockRef {
        let both = self.canonical.iter().zip(&self.elsewhere).take_while(|(a, b)| a == b).count();
        let newest = self.canonical.len().min(self.elsewhere.len()).saturating_sub(FINAL_AFTER);
        self.at(both.min(newest).saturating_sub(1) as u64).expect("block 0 is common").at
    }

    /// The logs that are asked about in the blocks from `from` up to this one.
    pub(crate) fn logs_up_to(&self, mut at: BlockRef, from: u64) -> HashMap<Key, Vec<u8>> {
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
    pub(crate) fn common(&self, mut at: BlockRef) -> BlockRef {
        while self.at(at.number).is_none_or(|block| block.at != at) {
            at = BlockRef { number: at.number - 1, hash: self.blocks[&at.hash].parent };
        }
        at
    }
}

fn receipt(transaction: u64, logs: &[Log], block_bloom: &mut [u8; bloom::BYTES]) -> Vec<u8> {
    let mut filter = [0; bloom::BYTES];
    for log in logs {
        bloom::accrue_log(&mut filter, log);
        bloom::accrue_log(block_bloom, log);
    }
    let mut list = BytesMut::new();
    for log in logs {
        log.encode(&mut list);
    }
    let mut fields = BytesMut::new();
    true.encode(&mut fields);
    (21_000 * (transaction + 1)).encode(&mut fields);
    filter.encode(&mut fields);
    RlpHeader { list: true, payload_length: list.len() }.encode(&mut fields);
    fields.extend_from_slice(&list);
    let mut out = Vec::new();
    RlpHeader { list: true, payload_length: fields.len() }.encode(&mut out);
    out.extend_from_slice(&fields);
    out
}

fn header(
    parent: B256,
    number: u64,
    receipts_root: B256,
    block_bloom: &[u8; bloom::BYTES],
    nonce: u64,
) -> HeaderBuf {
    let mut fields = BytesMut::new();
    parent.encode(&mut fields);
    B256::ZERO.encode(&mut fields);
    Address::ZERO.encode(&mut fields);
    B256::ZERO.encode(&mut fields);
    B256::ZERO.encode(&mut fields);
    receipts_root.encode(&mut fields);
    block_bloom.encode(&mut fields);
    U256::ZERO.encode(&mut fields);
    number.encode(&mut fields);
    30_000_000_u64.encode(&mut fields);
    21_000_u64.encode(&mut fields);
    (1_600_000_000 + number * 12).encode(&mut fields);
    [0_u8; 0].encode(&mut fields);
    B256::ZERO.encode(&mut fields);
    nonce.to_be_bytes().encode(&mut fields);
    let mut rlp = Vec::new();
    RlpHeader { list: true, payload_length: fields.len() }.encode(&mut rlp);
    rlp.extend_from_slice(&fields);
    HeaderBuf::from_rlp(rlp).expect("well-formed")
}

/// A reader who keeps the last word for each log.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) logs: HashMap<Key, Vec<u8>>,
    /// Whether a log may come twice: after a kill.
    pub(crate) lenient: bool,
    pub(crate) last: Option<BlockRef>,
    pub(crate) reorgs: u64,
}

impl Reader {
    /// Takes an update; of its logs only so many, if a kill comes then.
    pub(crate) fn read(&mut self, update: &Update, most: usize) {
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
