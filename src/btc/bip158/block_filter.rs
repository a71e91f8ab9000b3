//! The basic filter of a block.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::opcodes::all::OP_RETURN;
use bitcoin::{Block, BlockHash, OutPoint, Script, ScriptBuf, Transaction, Txid};
use thiserror::Error;

use super::gcs::{self, Acceptance, EncodeError, GcsError, GcsFilter, GcsParams};
use crate::hash::SipKey;

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
    /// `prevout_script` gives the script of an output that the block spends; outputs of the block
    /// itself are not asked for.
    ///
    /// # Errors
    /// An output whose script is not given.
    ///
    /// # Cost
    /// The ids of all transactions, and a hash and a sort of the scripts.
    pub fn new(
        block: &Block,
        mut prevout_script: impl FnMut(&OutPoint) -> Option<ScriptBuf>,
    ) -> Result<Self, BuildError> {
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
    /// More or fewer scripts than inputs.
    pub fn from_prevout_scripts<S: AsRef<Script>>(
        block: &Block,
        prevout_scripts: &[S],
    ) -> Result<Self, BuildError> {
        let inputs = block.txdata.iter().skip(1).map(|tx| tx.input.len()).sum();
        if prevout_scripts.len() != inputs {
            return Err(BuildError::PrevoutCount { given: prevout_scripts.len(), inputs });
        }
        let block_hash = block.block_hash();
        let outputs = block.txdata.iter().flat_map(|tx| &tx.output);
        let created = outputs
            .map(|output| output.script_pubkey.as_bytes())
            .filter(|script| script.first().is_some_and(|&first| first != OP_RETURN.to_u8()));
        let spent = prevout_scripts.iter().map(|script| script.as_ref().as_bytes());
        let elements = created.chain(spent.filter(|script| !script.is_empty()));
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
