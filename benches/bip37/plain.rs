//! The peer of the benches: BIP37 as a plain loop over crate `mur3`.

use std::ops::Range;

use bitcoin::consensus::serialize;
use bitcoin::hashes::Hash as _;
use bitcoin::script::Instruction;
use bitcoin::{Block, Script};

/// The seed of hash function `i` is `i * SEED_STEP + tweak`.
const SEED_STEP: u32 = 0xfba4_c795;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PlainFilter {
    pub(crate) data: Vec<u8>,
    pub(crate) hash_funcs: u32,
    pub(crate) tweak: u32,
}

impl PlainFilter {
    #[inline]
    fn bit(&self, i: u32, element: &[u8]) -> usize {
        let seed = i.wrapping_mul(SEED_STEP).wrapping_add(self.tweak);
        mur3::murmurhash3_x86_32(element, seed) as usize % (self.data.len() * 8)
    }

    #[inline]
    pub(crate) fn insert(&mut self, element: &[u8]) {
        for i in 0..self.hash_funcs {
            let bit = self.bit(i, element);
            self.data[bit >> 3] |= 1 << (bit & 7);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, element: &[u8]) -> bool {
        (0..self.hash_funcs).all(|i| {
            let bit = self.bit(i, element);
            self.data[bit >> 3] >> (bit & 7) & 1 != 0
        })
    }
}

/// A block's elements, concatenated in the order of Core's `IsRelevantAndUpdate`.
pub(crate) struct Extracted {
    bytes: Vec<u8>,
    transactions: Vec<ExtractedTransaction>,
}

struct ExtractedTransaction {
    txid: [u8; 32],
    /// Output number and byte range of each push.
    outputs: Vec<(u32, Range<usize>)>,
    inputs: Vec<Range<usize>>,
}

impl Extracted {
    pub(crate) fn new(block: &Block) -> Self {
        let mut bytes = Vec::new();
        let mut put = |data: &[u8]| {
            bytes.extend(data);
            bytes.len() - data.len()..bytes.len()
        };
        let mut transactions = Vec::new();
        for transaction in &block.txdata {
            let mut outputs = Vec::new();
            for (vout, output) in (0..).zip(&transaction.output) {
                for data in pushes(&output.script_pubkey) {
                    outputs.push((vout, put(data)));
                }
            }
            let mut inputs = Vec::new();
            for input in &transaction.input {
                inputs.push(put(&serialize(&input.previous_output)));
                inputs.extend(pushes(&input.script_sig).map(&mut put));
            }
            let txid = transaction.compute_txid().to_byte_array();
            transactions.push(ExtractedTransaction { txid, outputs, inputs });
        }
        Self { bytes, transactions }
    }

    pub(crate) fn num_elements(&self) -> usize {
        self.transactions.iter().map(|tx| 1 + tx.outputs.len() + tx.inputs.len()).sum()
    }

    /// Returns the transactions that match, in order. If `update_all` is true, inserts the
    /// outpoints of matched outputs.
    pub(crate) fn matches(&self, filter: &mut PlainFilter, update_all: bool) -> Vec<u32> {
        let mut matches = Vec::new();
        for (index, transaction) in (0..).zip(&self.transactions) {
            let mut found = filter.contains(&transaction.txid);
            let mut matched = None;
            for (vout, place) in &transaction.outputs {
                if matched != Some(vout) && filter.contains(&self.bytes[place.clone()]) {
                    found = true;
                    matched = Some(vout);
                    if update_all {
                        let mut outpoint = [0; 36];
                        outpoint[..32].copy_from_slice(&transaction.txid);
                        outpoint[32..].copy_from_slice(&vout.to_le_bytes());
                        filter.insert(&outpoint);
                    }
                }
            }
            let mut inputs = transaction.inputs.iter();
            if found || inputs.any(|place| filter.contains(&self.bytes[place.clone()])) {
                matches.push(index);
            }
        }
        matches
    }
}

/// Returns the non-empty pushes before the first malformed one.
fn pushes(script: &Script) -> impl Iterator<Item = &[u8]> {
    script.instructions().map_while(Result::ok).filter_map(|instruction| match instruction {
        Instruction::PushBytes(data) if !data.is_empty() => Some(data.as_bytes()),
        _ => None,
    })
}
