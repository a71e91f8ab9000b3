//! The basic filter of a block.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::opcodes::all::OP_RETURN;
use bitcoin::{Block, BlockHash, OutPoint, Script, ScriptBuf, Transaction, Txid};
use chainsieve_lanes::hash::SipKey;
use thiserror::Error;

use super::gcs::{self, Acceptance, EncodeError, GcsError, GcsFilter, GcsParams};
use crate::btc::raw::{Part, RawError, Reader};

/// A basic filter and the block that it is of. Whether the bytes are a filter is found out when
/// they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockFilter {
    /// The block, whose hash is the key.
    pub block_hash: BlockHash,
    /// The encoded set, as a `cfilter` message carries it.
    pub content: Vec<u8>,
}

impl BlockFilter {
    /// Builds the filter of `block`, byte for byte as Bitcoin Core does.
    ///
    /// `prevout_script` gives the script of an output that the block spends; outputs of earlier
    /// transactions of the block are not asked for. Whether the block is valid is not looked at.
    ///
    /// # Errors
    /// No coinbase, or an output whose script is not given.
    ///
    /// # Cost
    /// The ids of all transactions, and a hash and a sort of the scripts.
    pub fn new(
        block: &Block,
        mut prevout_script: impl FnMut(&OutPoint) -> Option<ScriptBuf>,
    ) -> Result<Self, BuildError> {
        check_coinbase(block)?;
        let mut created: BTreeMap<Txid, &Transaction> = BTreeMap::new();
        let mut scripts = Vec::new();
        for (index, tx) in block.txdata.iter().enumerate() {
            for input in tx.input.iter().filter(|_| index > 0) {
                let outpoint = &input.previous_output;
                let output = |tx: &&Transaction| tx.output.get(outpoint.vout as usize).cloned();
                let script = match created.get(&outpoint.txid).and_then(output) {
                    Some(output) => output.script_pubkey,
                    None => {
                        prevout_script(outpoint).ok_or(BuildError::PrevoutMissing(*outpoint))?
                    }
                };
                scripts.push(script);
            }
            created.insert(tx.compute_txid(), tx);
        }
        Self::from_prevout_scripts(block, &scripts)
    }

    /// Builds the filter of `block` from the scripts of the outputs that it spends, in the order
    /// of its inputs without the coinbase's.
    ///
    /// # Errors
    /// No coinbase, or more or fewer scripts than inputs.
    pub fn from_prevout_scripts<S: AsRef<Script>>(
        block: &Block,
        prevout_scripts: &[S],
    ) -> Result<Self, BuildError> {
        let elements = filter_elements(block, prevout_scripts)?;
        Self::encode(block.block_hash(), elements)
    }

    /// As [`from_prevout_scripts`](Self::from_prevout_scripts), from a serialized block that is
    /// not decoded.
    ///
    /// # Errors
    /// Those, and bytes that are no block.
    ///
    /// # Cost
    /// One walk over the bytes, and a hash and a sort of the scripts.
    pub fn from_raw_block<S: AsRef<Script>>(
        block: &[u8],
        prevout_scripts: &[S],
    ) -> Result<Self, BuildError> {
        let mut reader = Reader::new(block)?;
        let header: &[u8; 80] = reader.take()?;
        let mut elements = Vec::new();
        let mut inputs = 0;
        let mut has_coinbase = false;
        for index in 0..reader.compact_size()? {
            let (mut own_inputs, mut spends_none) = (0, false);
            reader.transaction(|part| match part {
                Part::Input { outpoint, .. } => {
                    own_inputs += 1;
                    spends_none |= is_null(outpoint);
                }
                Part::Output { script_pubkey } if is_output_element(script_pubkey) => {
                    elements.push(script_pubkey);
                }
                Part::Output { .. } => {}
            })?;
            if index == 0 {
                has_coinbase = spends_none && own_inputs == 1;
            } else {
                inputs += own_inputs;
            }
        }
        reader.finish()?;
        if !has_coinbase {
            return Err(BuildError::CoinbaseMissing);
        }
        elements.extend(spent_elements(prevout_scripts, inputs)?);
        Self::encode(BlockHash::hash(header), elements)
    }

    /// The filter of elements, which may come more than once.
    fn encode<'e>(
        block_hash: BlockHash,
        elements: impl IntoIterator<Item = &'e [u8]>,
    ) -> Result<Self, BuildError> {
        let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements)?;
        Ok(Self { block_hash, content })
    }

    /// The encoded set, ready to be read.
    ///
    /// # Errors
    /// As [`GcsFilter::parse`].
    pub fn gcs(&self, acceptance: Acceptance) -> Result<GcsFilter<'_>, GcsError> {
        let key = filter_key(&self.block_hash);
        GcsFilter::parse(GcsParams::BASIC, key, &self.content, acceptance)
    }

    /// The hash that `cfheaders` messages carry.
    pub fn filter_hash(&self) -> FilterHash {
        filter_hash(&self.content)
    }

    /// The header that commits to this filter and all before it.
    pub fn filter_header(&self, previous: &FilterHeader) -> FilterHeader {
        filter_header(&self.filter_hash(), previous)
    }
}

/// The elements of the basic filter of `block`, as often as they come: the scripts of its outputs,
/// and those that it spends, in the order of its inputs without the coinbase's. Neither are empty,
/// and outputs that begin with `OP_RETURN` are left out.
///
/// Source: Bitcoin Core, `BasicFilterElements`.
///
/// # Errors
/// No coinbase, or more or fewer scripts than inputs.
pub fn filter_elements<'b, S: AsRef<Script>>(
    block: &'b Block,
    prevout_scripts: &'b [S],
) -> Result<impl Iterator<Item = &'b [u8]>, BuildError> {
    check_coinbase(block)?;
    let inputs = block.txdata.iter().skip(1).map(|tx| tx.input.len()).sum();
    let spent = spent_elements(prevout_scripts, inputs)?;
    let outputs = block.txdata.iter().flat_map(|tx| &tx.output);
    let created = outputs.map(|output| output.script_pubkey.as_bytes());
    Ok(created.filter(|script| is_output_element(script)).chain(spent))
}

/// Whether the script of an output is an element of the filter of its block.
pub(super) fn is_output_element(script: &[u8]) -> bool {
    script.first().is_some_and(|&first| first != OP_RETURN.to_u8())
}

/// The elements among the scripts of the outputs that `inputs` inputs spend.
fn spent_elements<S: AsRef<Script>>(
    scripts: &[S],
    inputs: usize,
) -> Result<impl Iterator<Item = &[u8]>, BuildError> {
    if scripts.len() != inputs {
        return Err(BuildError::PrevoutCount { given: scripts.len(), inputs });
    }
    let scripts = scripts.iter().map(|script| script.as_ref().as_bytes());
    Ok(scripts.filter(|script| !script.is_empty()))
}

/// Without it, the outputs that the first transaction spends would be missing from the filter.
fn check_coinbase(block: &Block) -> Result<(), BuildError> {
    let is_there = block.coinbase().is_some_and(Transaction::is_coinbase);
    is_there.then_some(()).ok_or(BuildError::CoinbaseMissing)
}

/// Whether a serialized outpoint is that of a coinbase's input.
fn is_null(outpoint: &[u8; 36]) -> bool {
    let (txid, output) = outpoint.split_at(32);
    txid.iter().all(|byte| *byte == 0) && output == [0xff; 4]
}

/// The key of a block's filter: the first 16 bytes of the block's hash.
pub fn filter_key(block_hash: &BlockHash) -> SipKey {
    let key = block_hash.as_byte_array().first_chunk().expect("32 bytes");
    SipKey::from_bytes(*key)
}

/// The double SHA-256 of a filter's bytes.
pub fn filter_hash(content: &[u8]) -> FilterHash {
    FilterHash::from_raw_hash(sha256d::Hash::hash(content))
}

/// The filter header over a filter's hash and the header before it; that before block 0 is all
/// zeros.
pub fn filter_header(hash: &FilterHash, previous: &FilterHeader) -> FilterHeader {
    hash.filter_header(previous)
}

/// Why a filter cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No transactions, or a first one that is no coinbase.
    #[error("the block does not begin with a coinbase transaction")]
    CoinbaseMissing,
    /// The bytes are no block.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// The script of an output that the block spends is not known.
    #[error("the script of {0}, which the block spends, is not given")]
    PrevoutMissing(OutPoint),
    /// Not one script for each input.
    #[error("{given} scripts of spent outputs, the block has {inputs} inputs")]
    PrevoutCount {
        /// The scripts given.
        given: usize,
        /// The inputs of the block, the coinbase's left out.
        inputs: usize,
    },
    /// The set cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
