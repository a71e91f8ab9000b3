//! A chain for tests: branches, receipts, and a naive answer to what its logs are.

use std::collections::{HashMap, HashSet};

use alloy_rlp::{BytesMut, Encodable as _, Header as RlpHeader};
use chainsieve::alloy_primitives::{Address, B256, Bytes, Log, U256};
use chainsieve::eth::bloom;
use chainsieve::eth::header::HeaderBuf;
use chainsieve::eth::receipts::{BlockReceipts, VerifyError};
use serde_json::Value;

use super::blocks::Point;

/// A block with so many blocks after it may be final.
const FINAL_AFTER: usize = 4;
/// The contract that is asked about.
pub(super) const ASKED: Address = Address::repeat_byte(0xaa);
const OTHER: Address = Address::repeat_byte(0xbb);

/// A log's place and its data, which is another for each log of the world.
pub(super) type Key = (B256, u64);

#[derive(Debug, Clone)]
pub(super) struct WorldBlock {
    pub(super) at: Point,
    pub(super) parent: B256,
    pub(super) header: HeaderBuf,
    pub(super) receipts: BlockReceipts,
    /// Index in the block and data of each log of [`ASKED`].
    pub(super) asked: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) blocks: HashMap<B256, WorldBlock>,
    /// From block 0 on.
    pub(super) canonical: Vec<B256>,
    /// The same of another node, which may be on another branch.
    pub(super) elsewhere: Vec<B256>,
    /// Receipts of these can't be had for now.
    pub(super) withheld: HashSet<B256>,
    made: u64,
    /// Whether filters lack the bits of logs.
    pub(super) unsound: bool,
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self::default();
        world.mine(0);
        world.elsewhere.clone_from(&world.canonical);
        world
    }

    pub(super) fn head(&self) -> Point {
        let hash = *self.canonical.last().expect("there is always block 0");
        Point { number: self.canonical.len() as u64 - 1, hash }
    }

    pub(super) fn at(&self, number: u64) -> Option<&WorldBlock> {
        self.blocks.get(self.canonical.get(usize::try_from(number).ok()?)?)
    }

    /// A block with so many transactions on top; the seed says which logs they have.
    pub(super) fn mine(&mut self, seed: u8) {
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
        let root = match receipts.verify_after_byzantium(B256::ZERO, (&block_bloom).into()) {
            Err(VerifyError::RootMismatch { computed, .. }) => computed,
            other => panic!("no root: {other:?}"),
        };
        let header = header(parent, number, root, &block_bloom, self.made);
        let at = Point { number, hash: header.hash() };
        self.blocks.insert(at.hash, WorldBlock { at, parent, header, receipts, asked });
        self.canonical.push(at.hash);
    }

    pub(super) fn mine_all(&mut self, seeds: &[u8]) {
        for &seed in seeds {
            self.mine(seed);
        }
    }

    /// Takes off so many blocks, but never block 0.
    pub(super) fn revert(&mut self, depth: usize) {
        let kept = self.canonical.len().saturating_sub(depth).max(1);
        self.canonical.truncate(kept);
    }

    /// The other node answers from now on.
    pub(super) fn fail_over(&mut self) {
        std::mem::swap(&mut self.canonical, &mut self.elsewhere);
    }

    /// The other node has the same chain as this one, for now.
    pub(super) fn synchronise(&mut self) {
        self.elsewhere.clone_from(&self.canonical);
    }

    /// Receipts of the newest blocks, so many, can't be had; those of all others can.
    pub(super) fn withhold(&mut self, count: usize) {
        self.withheld = self.canonical.iter().rev().take(count).copied().collect();
    }

    /// Mines until this chain is the longest that there ever was, and goes beyond a block.
    pub(super) fn outgrow(&mut self, number: u64) {
        let numbers = self.blocks.values().map(|block| block.at.number);
        let longest = numbers.chain([number]).max().unwrap_or(0);
        let mut seed = 0_u8;
        while self.head().number < longest + 3 {
            seed = seed.wrapping_add(29);
            self.mine(seed);
        }
    }

    /// The block that both nodes call final.
    pub(super) fn finalized(&self) -> Point {
        let both = self.canonical.iter().zip(&self.elsewhere).take_while(|(a, b)| a == b).count();
        let newest = self.canonical.len().min(self.elsewhere.len()).saturating_sub(FINAL_AFTER);
        self.at(both.min(newest).saturating_sub(1) as u64).expect("block 0 is common").at
    }

    /// The logs that are asked about in the blocks from `from` up to this one.
    pub(super) fn logs_up_to(&self, mut at: Point, from: u64) -> HashMap<Key, Vec<u8>> {
        let mut logs = HashMap::new();
        while at.number >= from {
            let block = &self.blocks[&at.hash];
            assert_eq!(block.at, at);
            logs.extend(block.asked.iter().map(|(index, data)| ((at.hash, *index), data.clone())));
            let Some(number) = at.number.checked_sub(1) else { break };
            at = Point { number, hash: block.parent };
        }
        logs
    }

    /// The last block of both chains.
    pub(super) fn common(&self, mut at: Point) -> Point {
        while self.at(at.number).is_none_or(|block| block.at != at) {
            at = Point { number: at.number - 1, hash: self.blocks[&at.hash].parent };
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

/// Who reads the lines, and keeps the last word for each log.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    pub(super) logs: HashMap<Key, Vec<u8>>,
    /// Whether a line may come twice: after a kill.
    pub(super) lenient: bool,
    /// Block and log of the line before, if it was of the same kind.
    before: Option<(bool, u64, u64)>,
    pub(super) checkpoint: Option<Point>,
    pub(super) reorgs: u64,
}

impl Consumer {
    /// Takes lines; a batch that was cut off by a kill may end anywhere.
    pub(super) fn read(&mut self, text: &str) {
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            let number = |field: &str| {
                u64::from_str_radix(text(field).trim_start_matches("0x"), 16).expect("a number")
            };
            if let Some(checkpoint) = line["block"].as_u64() {
                let hash = text("hash").parse().expect("a hash");
                self.checkpoint = Some(Point { number: checkpoint, hash });
                self.before = None;
                continue;
            }
            if line["reorg"].is_object() {
                self.reorgs += 1;
                self.before = None;
                continue;
            }
            if line["anchored"].is_object() {
                continue;
            }
            assert_eq!(line["evidence"], "receipts");
            let removed = line["removed"].as_bool().expect("removed");
            let (block, index) = (number("blockNumber"), number("logIndex"));
            let key = (text("blockHash").parse().expect("a hash"), index);
            let data = hex::decode(&text("data")[2..]).expect("hex");
            if let Some((removed_before, block_before, index_before)) = self.before {
                let (before, now) = ((block_before, index_before), (block, index));
                match (removed_before, removed) {
                    (false, false) => assert!(before < now, "{before:?}, {now:?}"),
                    (true, true) => assert!(before > now, "{before:?}, {now:?}"),
                    (true, false) => {}
                    (false, true) => panic!("removed without a reorganisation: {now:?}"),
                }
            }
            self.before = Some((removed, block, index));
            if removed {
                let was = self.logs.remove(&key);
                assert!(self.lenient || was == Some(data), "what was printed is removed");
            } else {
                let was = self.logs.insert(key, data);
                assert!(self.lenient || was.is_none(), "a log comes once");
            }
        }
    }

    /// The process was killed: what comes next may come again.
    pub(super) fn killed(&mut self) {
        self.lenient = true;
        self.before = None;
    }
}
