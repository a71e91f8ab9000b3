//! Basic filters of blocks (BIP158).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::opcodes::all::OP_RETURN;
use bitcoin::{Block, BlockHash, OutPoint, Script, ScriptBuf, Transaction, Txid};
use chainsieve_lanes::hash::SipKey;
use thiserror::Error;

use super::gcs::{self, Acceptance, GcsError, GcsFilter, GcsParams};
use crate::btc::raw::{Part, RawError, Reader};

/// A basic filter and its block. The bytes are not checked before they are decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockFilter {
    /// The hash of the block. The first 16 bytes of this hash are the filter's key.
    pub block_hash: BlockHash,
    /// The encoded set, as in a `cfilter` message.
    pub content: Vec<u8>,
}

impl BlockFilter {
    /// Builds the filter of `block`, byte for byte as Bitcoin Core does.
    ///
    /// `prevout_script` returns the script of an output that the block spends. `prevout_script` is
    /// not called for outputs that earlier transactions of the same block created. The block itself
    /// is not validated.
    ///
    /// # Errors
    /// Returns an error if the block does not begin with a coinbase transaction, or if
    /// `prevout_script` returns `None`.
    ///
    /// # Cost
    /// Computes the ids of all transactions, and hashes and sorts the scripts.
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

    /// Builds the filter of `block` from the scripts of the outputs that the block spends. The
    /// scripts are in the order of the inputs, without the coinbase input.
    ///
    /// # Errors
    /// Returns an error if the block does not begin with a coinbase transaction, or if the number
    /// of scripts differs from the number of inputs.
    pub fn from_prevout_scripts<S: AsRef<Script>>(
        block: &Block,
        prevout_scripts: &[S],
    ) -> Result<Self, BuildError> {
        let elements = filter_elements(block, prevout_scripts)?;
        Self::encode(block.block_hash(), elements)
    }

    /// Like [`from_prevout_scripts`](Self::from_prevout_scripts), for a serialised block, which is
    /// not decoded.
    ///
    /// # Errors
    /// Returns the errors of [`from_prevout_scripts`](Self::from_prevout_scripts), and an error if
    /// the bytes are not a valid block.
    ///
    /// # Cost
    /// Walks over the bytes once, and hashes and sorts the scripts.
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
            // The coinbase spends nothing, so `prevout_scripts` has no script for its input.
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

    /// Encodes the filter of the given elements, which may contain duplicates.
    fn encode<'e>(
        block_hash: BlockHash,
        elements: impl IntoIterator<Item = &'e [u8]>,
    ) -> Result<Self, BuildError> {
        let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements)?;
        Ok(Self { block_hash, content })
    }

    /// Parses the encoded set for decoding.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::parse`].
    pub fn gcs(&self, acceptance: Acceptance) -> Result<GcsFilter<'_>, GcsError> {
        let key = filter_key(&self.block_hash);
        GcsFilter::parse(GcsParams::BASIC, key, &self.content, acceptance)
    }

    /// Returns the hash of the filter, as in `cfheaders` messages.
    pub fn filter_hash(&self) -> FilterHash {
        filter_hash(&self.content)
    }

    /// Returns the filter header, which commits to this filter and all filters before it.
    pub fn filter_header(&self, previous: &FilterHeader) -> FilterHeader {
        filter_header(&self.filter_hash(), previous)
    }
}

/// Returns the elements of the basic filter of `block`, with duplicates.
///
/// The elements are the scripts of the block's outputs, followed by the scripts that the block
/// spends, in the order of the inputs without the coinbase input. Empty scripts are left out, and
/// so are output scripts that begin with `OP_RETURN`.
///
/// Source: Bitcoin Core, `BasicFilterElements`.
///
/// # Errors
/// Returns an error if the block does not begin with a coinbase transaction, or if the number of
/// scripts differs from the number of inputs.
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

/// Returns `true` if the script of an output is an element of its block's filter.
pub(super) fn is_output_element(script: &[u8]) -> bool {
    script.first().is_some_and(|&first| first != OP_RETURN.to_u8())
}

/// Returns the spent scripts that are elements of the filter. There must be one spent script for
/// each of the `inputs` inputs.
fn spent_elements<S: AsRef<Script>>(
    scripts: &[S],
    inputs: usize,
) -> Result<impl Iterator<Item = &[u8]>, BuildError> {
    if scripts.len() != inputs {
        return Err(BuildError::PrevoutCount { given: scripts.len(), inputs });
    }
    // Of the spent scripts, Core skips only the empty ones; it skips scripts that begin with
    // `OP_RETURN` only among the outputs.
    let scripts = scripts.iter().map(|script| script.as_ref().as_bytes());
    Ok(scripts.filter(|script| !script.is_empty()))
}

/// Checks that the first transaction is a coinbase. If the first transaction were no coinbase, the
/// scripts that it spends would be missing from the filter.
fn check_coinbase(block: &Block) -> Result<(), BuildError> {
    let is_there = block.coinbase().is_some_and(Transaction::is_coinbase);
    is_there.then_some(()).ok_or(BuildError::CoinbaseMissing)
}

/// Returns `true` if a serialised outpoint is that of a coinbase input.
fn is_null(outpoint: &[u8; 36]) -> bool {
    let (txid, output) = outpoint.split_at(32);
    txid.iter().all(|byte| *byte == 0) && output == [0xff; 4]
}

/// Returns the key of a block's filter: the first 16 bytes of the block hash in internal byte order,
/// read as two little-endian numbers `k0` and `k1`.
///
/// Source: BIP158, "Block Filters".
pub fn filter_key(block_hash: &BlockHash) -> SipKey {
    let key = block_hash.as_byte_array().first_chunk().expect("32 bytes");
    SipKey::from_bytes(*key)
}

/// Returns the double SHA-256 of a filter's bytes, the count of elements included.
///
/// Source: BIP157, "Filter Headers".
pub fn filter_hash(content: &[u8]) -> FilterHash {
    FilterHash::from_raw_hash(sha256d::Hash::hash(content))
}

/// Returns the filter header for a filter hash and the previous filter header: the double SHA-256 of
/// the hash followed by the previous header. The header before block 0 is all zeros.
///
/// Source: BIP157, "Filter Headers".
pub fn filter_header(hash: &FilterHash, previous: &FilterHeader) -> FilterHeader {
    hash.filter_header(previous)
}

/// Reason why a filter cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The block has no transactions, or the first transaction is not a coinbase.
    #[error("the block does not begin with a coinbase transaction")]
    CoinbaseMissing,
    /// The bytes are not a valid block.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// The script of an output that the block spends is unknown.
    #[error("the script of {0}, which the block spends, is missing")]
    PrevoutMissing(OutPoint),
    /// The number of scripts differs from the number of inputs.
    #[error("{given} scripts of spent outputs, but the block has {inputs} inputs")]
    PrevoutCount {
        /// The number of scripts given.
        given: usize,
        /// The number of inputs of the block, without the coinbase input.
        inputs: usize,
    },
    /// The set cannot be encoded.
    #[error(transparent)]
    Encode(#[from] GcsError),
}
