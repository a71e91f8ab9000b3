//! Serialised form of proofs.
//!
//! ```text
//! version 1 · kind · block hash 32 · filter (var bytes) · by kind:
//!   0 malformed
//!   1 output    proven transaction · vout u32
//!   2 prevout   proven transaction · vin u32 · transaction
//!   3 wrapped   proven transaction · vin u32 · path
//!   4 unequal   block (var bytes) · count (CompactSize) · transactions
//! proven transaction = header 80 · 0 or 1 others · coinbase transaction · path · (other · path)
//! transaction        = its network serialisation (var bytes)
//! path               = index u32 · count (CompactSize) · siblings 32 each
//! ```
//! Hashes are in internal byte order and numbers are little-endian. "Var bytes" are a `CompactSize`
//! length and the bytes.

use alloc::vec::Vec;

use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, Transaction, TxMerkleNode};
use thiserror::Error;

use super::inclusion::ProvenTransaction;
use super::proof::{FilterEvidence, InvalidFilter};
use crate::btc::compact_size::{
    FieldError, put_length, put_var_bytes, take, take_chunks, take_length, take_var_bytes,
};
use crate::btc::merkle_tree::{MerklePath, TransactionInBlock};
use crate::btc::raw::{RawError, Reader};

const VERSION: u8 = 1;

impl InvalidFilter {
    /// Encodes the proof as bytes, in version 1 of the format.
    pub fn encode(&self) -> Vec<u8> {
        let Self { block_hash, filter, evidence } = self;
        let kind = match evidence {
            FilterEvidence::Malformed => 0,
            FilterEvidence::MissingOutput { .. } => 1,
            FilterEvidence::MissingPrevout { .. } => 2,
            FilterEvidence::MissingWrapped { .. } => 3,
            FilterEvidence::Unequal { .. } => 4,
        };
        let mut out = Vec::from([VERSION, kind]);
        out.extend(block_hash.as_byte_array());
        put_var_bytes(&mut out, filter);
        match evidence {
            FilterEvidence::Malformed => {}
            FilterEvidence::MissingOutput { transaction, vout } => {
                put_proven(&mut out, transaction);
                out.extend(vout.to_le_bytes());
            }
            FilterEvidence::MissingPrevout { spending, vin, previous } => {
                put_proven(&mut out, spending);
                out.extend(vin.to_le_bytes());
                put_var_bytes(&mut out, &serialize(previous));
            }
            FilterEvidence::MissingWrapped { spending, vin, witness_path } => {
                put_proven(&mut out, spending);
                out.extend(vin.to_le_bytes());
                put_path(&mut out, witness_path);
            }
            FilterEvidence::Unequal { block, previous } => {
                put_var_bytes(&mut out, &serialize(block));
                put_length(&mut out, previous.len());
                for tx in previous {
                    put_var_bytes(&mut out, &serialize(tx));
                }
            }
        }
        out
    }

    /// Decodes a proof. The evidence itself is checked by [`verify`](Self::verify).
    ///
    /// # Errors
    /// Returns an error for bytes that [`encode`](Self::encode) does not produce.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ProofDecodeError> {
        let rest = &mut bytes;
        let [version, kind] = take(rest)?;
        if version != VERSION {
            return Err(ProofDecodeError::Version(version));
        }
        let block_hash = BlockHash::from_byte_array(take(rest)?);
        let filter = take_var_bytes(rest)?.to_vec();
        let evidence = match kind {
            0 => FilterEvidence::Malformed,
            1 => FilterEvidence::MissingOutput {
                transaction: take_proven(rest)?,
                vout: take_u32(rest)?,
            },
            2 => FilterEvidence::MissingPrevout {
                spending: take_proven(rest)?,
                vin: take_u32(rest)?,
                previous: take_transaction(rest)?,
            },
            3 => FilterEvidence::MissingWrapped {
                spending: take_proven(rest)?,
                vin: take_u32(rest)?,
                witness_path: take_path(rest)?,
            },
            4 => FilterEvidence::Unequal {
                block: take_block(rest)?,
                previous: (0..take_length(rest)?)
                    .map(|_| take_transaction(rest))
                    .collect::<Result<_, _>>()?,
            },
            kind => return Err(ProofDecodeError::Kind(kind)),
        };
        if !rest.is_empty() {
            return Err(ProofDecodeError::TrailingBytes(rest.len()));
        }
        Ok(Self { block_hash, filter, evidence })
    }
}

fn put_proven(out: &mut Vec<u8>, proven: &ProvenTransaction) {
    out.extend(serialize(&proven.header));
    out.push(u8::from(proven.other.is_some()));
    for shown in [&proven.coinbase].into_iter().chain(&proven.other) {
        put_var_bytes(out, &serialize(&shown.transaction));
        put_path(out, &shown.path);
    }
}

fn take_proven(bytes: &mut &[u8]) -> Result<ProvenTransaction, ProofDecodeError> {
    let header: [u8; 80] = take(bytes)?;
    let [others] = take(bytes)?;
    let mut shown = || -> Result<_, ProofDecodeError> {
        let transaction = take_transaction(bytes)?;
        Ok(TransactionInBlock { transaction, path: take_path(bytes)? })
    };
    Ok(ProvenTransaction {
        header: deserialize(&header).map_err(|_| ProofDecodeError::Refused)?,
        coinbase: shown()?,
        other: match others {
            0 => None,
            1 => Some(shown()?),
            others => return Err(ProofDecodeError::Others(others)),
        },
    })
}

fn put_path(out: &mut Vec<u8>, path: &MerklePath) {
    out.extend(path.index.to_le_bytes());
    put_length(out, path.siblings.len());
    out.extend(path.siblings.iter().flat_map(|sibling| sibling.to_byte_array()));
}

fn take_path(bytes: &mut &[u8]) -> Result<MerklePath, ProofDecodeError> {
    let index = take_u32(bytes)?;
    let count = take_length(bytes)?;
    let siblings = take_chunks::<32>(bytes, count)?;
    let siblings = siblings.iter().map(|sibling| TxMerkleNode::from_byte_array(*sibling));
    Ok(MerklePath { index, siblings: siblings.collect() })
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, ProofDecodeError> {
    Ok(u32::from_le_bytes(take(bytes)?))
}

/// Decodes a transaction. The bytes are parsed first, because the decoder of `bitcoin` allocates by
/// the counts that it reads.
fn take_transaction(bytes: &mut &[u8]) -> Result<Transaction, ProofDecodeError> {
    let raw = take_var_bytes(bytes)?;
    let mut reader = Reader::new(raw)?;
    reader.transaction(|_| {})?;
    reader.finish()?;
    deserialize(raw).map_err(|_| ProofDecodeError::Refused)
}

fn take_block(bytes: &mut &[u8]) -> Result<Block, ProofDecodeError> {
    let raw = take_var_bytes(bytes)?;
    let mut reader = Reader::new(raw)?;
    reader.take::<80>()?;
    for _ in 0..reader.compact_size()? {
        reader.transaction(|_| {})?;
    }
    reader.finish()?;
    deserialize(raw).map_err(|_| ProofDecodeError::Refused)
}

/// Reason why bytes are not a valid proof.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofDecodeError {
    /// The version is unknown.
    #[error("version {0}, only {VERSION} is known")]
    Version(u8),
    /// The kind of evidence is unknown.
    #[error("evidence kind {0}, the highest known is 4")]
    Kind(u8),
    /// The bytes end inside a field.
    #[error("ends early: a field has only {left} of its {needed} bytes")]
    Truncated {
        /// The number of bytes that the field needs.
        needed: u64,
        /// The number of bytes that are left.
        left: usize,
    },
    /// A length is encoded in more bytes than needed.
    #[error("length {0} is not encoded in the fewest bytes")]
    NonMinimalLength(u64),
    /// A length exceeds the limit of Bitcoin Core.
    #[error("length {0}, the limit is {max}", max = crate::btc::compact_size::MAX_SIZE)]
    LengthTooLarge(u64),
    /// The number of transactions besides the coinbase is neither 0 nor 1.
    #[error("{0} transactions besides the coinbase transaction, the limit is 1")]
    Others(u8),
    /// A transaction or block is malformed.
    #[error("malformed transaction or block: {0}")]
    Raw(#[from] RawError),
    /// A transaction or block has a field that no block can have.
    #[error("transaction or block with a field over the limits")]
    Refused,
    /// Trailing bytes follow the proof.
    #[error("{0} trailing bytes after the proof")]
    TrailingBytes(usize),
}

impl From<FieldError> for ProofDecodeError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated { needed, left } => Self::Truncated { needed, left },
            FieldError::NonMinimalLength(length) => Self::NonMinimalLength(length),
            FieldError::LengthTooLarge(length) => Self::LengthTooLarge(length),
        }
    }
}
