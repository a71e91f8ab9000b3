//! The proof that given bytes are not the filter of a block, and its serialised form:
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
use core::fmt;

use bitcoin::bip158::FilterHash;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, Network, OutPoint, Transaction, TxIn, TxMerkleNode, Txid};
use thiserror::Error;

use super::inclusion::{ProvenTransaction, has_witness};
use super::known::{Sources, is_consistent, known_inputs};
use super::{Prevouts, read};
use crate::btc::bip158::block_filter::is_output_element;
use crate::btc::bip158::revealed::wrapped_script;
use crate::btc::bip158::{BindError, BoundBlock, GcsError, filter_hash};
use crate::btc::merkle_tree::{MerklePath, PathError, TransactionInBlock};
use crate::btc::proof_of_work::ProofOfWorkError;
use crate::btc::raw::{
    FieldError, RawError, Reader, put_length, put_var_bytes, take, take_chunks, take_length,
    take_var_bytes,
};

/// Proof that the bytes `filter` are not the filter of a block, for anyone who knows the block's
/// hash.
///
/// The proof does not show who claimed the filter. Peer-to-peer messages are not signed, so only
/// the receiver can say which node sent the filter, or a filter header that commits to its hash.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::hashes::Hash as _;
/// use chainsieve::bitcoin::{BlockHash, Network};
/// use chainsieve::btc::bip158::audit::{FilterEvidence, InvalidFilter};
/// // A count of two elements and no codes: no block has this filter.
/// let block_hash = BlockHash::from_byte_array([7; 32]);
/// let filter = vec![2];
/// let proof = InvalidFilter { block_hash, filter, evidence: FilterEvidence::Malformed };
/// assert_eq!(proof.verify(block_hash, Network::Bitcoin), Ok(()));
/// assert_eq!(InvalidFilter::decode(&proof.encode()), Ok(proof));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFilter {
    /// The hash of the block.
    pub block_hash: BlockHash,
    /// The bytes that are not the block's filter.
    pub filter: Vec<u8>,
    /// The evidence that the bytes are not the block's filter.
    pub evidence: FilterEvidence,
}

/// Evidence that a filter is not the filter of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterEvidence {
    /// The bytes are not the strict encoding of any set.
    Malformed,
    /// The filter lacks the script of an output of the block.
    MissingOutput {
        /// The transaction that contains the output.
        transaction: ProvenTransaction,
        /// The index of the output in its transaction.
        vout: u32,
    },
    /// The filter lacks the script of a spent output.
    MissingPrevout {
        /// The transaction that spends the output.
        spending: ProvenTransaction,
        /// The index of the input in its transaction.
        vin: u32,
        /// The transaction that created the output, in any block. The input contains the id of this
        /// transaction.
        previous: Transaction,
    },
    /// The filter lacks the script of a spent output. The input has a witness and a witness program
    /// in its scriptSig, so the spent script is the P2SH script of this program.
    MissingWrapped {
        /// The spending transaction and the coinbase, with their witnesses.
        spending: ProvenTransaction,
        /// The index of the input in its transaction.
        vin: u32,
        /// The path of the spending transaction in the merkle tree of the witness hashes.
        witness_path: MerklePath,
    },
    /// The filter has more or fewer elements than the block can have; or all spent scripts are
    /// known, and the filter built from the block differs from the claimed filter. This evidence is
    /// large: a whole block.
    Unequal {
        /// The whole block.
        block: Block,
        /// The transactions that created the spent outputs, if the evidence needs them, in
        /// ascending order of their ids.
        previous: Vec<Transaction>,
    },
}

impl InvalidFilter {
    /// Returns the hash of the refuted bytes, to be compared with the hash in a peer's `cfheaders`.
    pub fn filter_hash(&self) -> FilterHash {
        filter_hash(&self.filter)
    }

    /// Verifies, from the proof alone, that `filter` is not the filter of the block `expected`,
    /// provided that this block is in the chain.
    ///
    /// # Errors
    /// Returns an error if the same evidence could exist against an honest node's filter, or if the
    /// proof contains unnecessary data.
    ///
    /// # Cost
    /// Decodes the filter, and hashes the data of the evidence.
    pub fn verify(&self, expected: BlockHash, network: Network) -> Result<(), ProofError> {
        let Self { block_hash, filter, evidence } = self;
        if *block_hash != expected {
            return Err(ProofError::OtherBlock { expected, found: *block_hash });
        }
        let read = read(block_hash, filter);
        // Every other kind of evidence needs a decoded filter.
        if *evidence == FilterEvidence::Malformed {
            return if read.is_err() { Ok(()) } else { Err(ProofError::WellFormed) };
        }
        let (set, decoded) = read?;
        let missing = |script: &[u8]| {
            if decoded.may_contain(script) { Err(ProofError::NotMissing) } else { Ok(()) }
        };
        match evidence {
            FilterEvidence::Malformed => Err(ProofError::WellFormed),
            FilterEvidence::MissingOutput { transaction, vout } => {
                let tx = transaction.check(expected, network)?;
                // Txids do not commit to witnesses, so a witness here would be unproven data.
                transaction.check_without_witness()?;
                let output = tx.output.get(*vout as usize).ok_or(ProofError::NoOutput(*vout))?;
                let script = Some(output.script_pubkey.as_bytes())
                    .filter(|script| is_output_element(script));
                missing(script.ok_or(ProofError::NotAnElement)?)
            }
            FilterEvidence::MissingPrevout { spending, vin, previous } => {
                let outpoint = input(spending, *vin, expected, network)?.previous_output;
                spending.check_without_witness()?;
                check_without_witness(previous)?;
                let txid = previous.compute_txid();
                // The id in the input proves the previous transaction, whatever block contains it.
                if txid != outpoint.txid {
                    return Err(ProofError::OtherPrevious { outpoint, txid });
                }
                let output = previous.output.get(outpoint.vout as usize);
                let script = output.ok_or(ProofError::NoOutput(outpoint.vout))?;
                let script = Some(script.script_pubkey.as_bytes()).filter(|s| !s.is_empty());
                missing(script.ok_or(ProofError::NotAnElement)?)
            }
            FilterEvidence::MissingWrapped { spending, vin, witness_path } => {
                let input = input(spending, *vin, expected, network)?;
                spending.check_witness(witness_path, network)?;
                let script = wrapped_script(input).ok_or(ProofError::NotWrapped(*vin))?;
                missing(script.as_bytes())
            }
            FilterEvidence::Unequal { block, previous } => {
                let block = BoundBlock::bind(block, expected, network)?;
                previous.iter().try_for_each(check_without_witness)?;
                let sources = Sources::new(&block, Prevouts::ByTransactions(previous));
                let inputs = known_inputs(&block, &sources);
                // Each proof has one form: it contains only transactions that the block spends
                // from, and none of them twice.
                if sources.shown_and_spent(&inputs) != *previous {
                    return Err(ProofError::PreviousNotNeeded);
                }
                if is_consistent(&block, &set, filter, &inputs, false) {
                    return Err(ProofError::Consistent);
                }
                Ok(())
            }
        }
    }
}

/// Returns an input of a transaction that is proven to be in the block and is not the coinbase.
fn input(
    spending: &ProvenTransaction,
    vin: u32,
    expected: BlockHash,
    network: Network,
) -> Result<&TxIn, ProofError> {
    let tx = spending.check(expected, network)?;
    if spending.other.is_none() {
        return Err(ProofError::SpendsNothing);
    }
    tx.input.get(vin as usize).ok_or(ProofError::NoInput(vin))
}

fn check_without_witness(tx: &Transaction) -> Result<(), ProofError> {
    if has_witness(tx) { Err(ProofError::UnprovenWitness(tx.compute_txid())) } else { Ok(()) }
}

impl fmt::Display for FilterEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let txid = |tx: &ProvenTransaction| {
            tx.other.as_ref().unwrap_or(&tx.coinbase).transaction.compute_txid()
        };
        match self {
            Self::Malformed => f.write_str("the bytes are not a strictly encoded set"),
            Self::MissingOutput { transaction, vout } => {
                write!(f, "the script of output {vout} of {} is missing", txid(transaction))
            }
            Self::MissingPrevout { spending, vin, .. }
            | Self::MissingWrapped { spending, vin, .. } => {
                write!(f, "the script that input {vin} of {} spends is missing", txid(spending))
            }
            Self::Unequal { .. } => f.write_str("the elements differ from those of the block"),
        }
    }
}

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
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ProofError> {
        let rest = &mut bytes;
        let [version, kind] = take(rest)?;
        if version != VERSION {
            return Err(ProofError::Version(version));
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
            kind => return Err(ProofError::Kind(kind)),
        };
        if !rest.is_empty() {
            return Err(ProofError::TrailingBytes(rest.len()));
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

fn take_proven(bytes: &mut &[u8]) -> Result<ProvenTransaction, ProofError> {
    let header: [u8; 80] = take(bytes)?;
    let [others] = take(bytes)?;
    let mut shown = || -> Result<_, ProofError> {
        let transaction = take_transaction(bytes)?;
        Ok(TransactionInBlock { transaction, path: take_path(bytes)? })
    };
    Ok(ProvenTransaction {
        header: deserialize(&header).map_err(|_| ProofError::Refused)?,
        coinbase: shown()?,
        other: match others {
            0 => None,
            1 => Some(shown()?),
            others => return Err(ProofError::Others(others)),
        },
    })
}

fn put_path(out: &mut Vec<u8>, path: &MerklePath) {
    out.extend(path.index.to_le_bytes());
    put_length(out, path.siblings.len());
    out.extend(path.siblings.iter().flat_map(|sibling| sibling.to_byte_array()));
}

fn take_path(bytes: &mut &[u8]) -> Result<MerklePath, ProofError> {
    let index = take_u32(bytes)?;
    let count = take_length(bytes)?;
    let siblings = take_chunks::<32>(bytes, count)?;
    let siblings = siblings.iter().map(|sibling| TxMerkleNode::from_byte_array(*sibling));
    Ok(MerklePath { index, siblings: siblings.collect() })
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, ProofError> {
    Ok(u32::from_le_bytes(take(bytes)?))
}

/// Decodes a transaction. The bytes are parsed first, because the decoder of `bitcoin` allocates by
/// the counts that it reads.
fn take_transaction(bytes: &mut &[u8]) -> Result<Transaction, ProofError> {
    let raw = take_var_bytes(bytes)?;
    let mut reader = Reader::new(raw)?;
    reader.transaction(|_| {})?;
    reader.finish()?;
    deserialize(raw).map_err(|_| ProofError::Refused)
}

fn take_block(bytes: &mut &[u8]) -> Result<Block, ProofError> {
    let raw = take_var_bytes(bytes)?;
    let mut reader = Reader::new(raw)?;
    reader.take::<80>()?;
    for _ in 0..reader.compact_size()? {
        reader.transaction(|_| {})?;
    }
    reader.finish()?;
    deserialize(raw).map_err(|_| ProofError::Refused)
}

/// Reason why a proof is invalid, or why bytes are not an encoded proof.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The proof is for another block.
    #[error("the proof is for block {found}, expected {expected}")]
    OtherBlock {
        /// The block hash that the caller expects.
        expected: BlockHash,
        /// The block hash of the proof.
        found: BlockHash,
    },
    /// The header's proof of work is invalid.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// The filter is malformed, although the evidence is of another kind than `Malformed`.
    #[error("the filter is malformed: {0}")]
    Filter(#[from] GcsError),
    /// The filter is well-formed, although the evidence is `Malformed`.
    #[error("the filter is well-formed")]
    WellFormed,
    /// The first transaction is not the coinbase at position 0, or the other transaction claims
    /// that position.
    #[error("position 0 must belong to the coinbase transaction, and to no other")]
    NotTheCoinbase,
    /// A merkle path is impossible in the block's tree.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A merkle path does not lead to the header's merkle root.
    #[error("the path's root is {path}, but the header's root is {header}")]
    OtherRoot {
        /// The merkle root to which the path leads.
        path: TxMerkleNode,
        /// The merkle root in the block's header.
        header: TxMerkleNode,
    },
    /// A transaction contains a witness to which nothing commits.
    #[error("transaction {0} has a witness that the proof does not cover")]
    UnprovenWitness(Txid),
    /// The transaction has no output at this index.
    #[error("the transaction has no output {0}")]
    NoOutput(u32),
    /// The transaction has no input at this index.
    #[error("the transaction has no input {0}")]
    NoInput(u32),
    /// The transaction is the coinbase, which spends nothing.
    #[error("the coinbase transaction spends nothing")]
    SpendsNothing,
    /// The script is not an element of any filter.
    #[error("no filter has this script: it is empty, or an output that begins with OP_RETURN")]
    NotAnElement,
    /// The given previous transaction is not the transaction that the input spends from.
    #[error("the input spends {outpoint}, but the given transaction is {txid}")]
    OtherPrevious {
        /// The outpoint that the input spends.
        outpoint: OutPoint,
        /// The id of the given transaction.
        txid: Txid,
    },
    /// The input lacks a witness, or its scriptSig is not exactly the push of a witness program.
    #[error("input {0} does not reveal a witness program in P2SH")]
    NotWrapped(u32),
    /// The witness path is for another position than the transaction's path.
    #[error("the witness path is for position {witness}, the transaction path for {transaction}")]
    WitnessPosition {
        /// The position in the witness path.
        witness: u32,
        /// The position in the transaction path.
        transaction: u32,
    },
    /// The witness is not the witness that the coinbase commits to.
    #[error("the witness is not the witness to which the coinbase transaction commits")]
    WitnessCommitment,
    /// The filter may contain the script that the evidence claims to be missing.
    #[error("the filter may contain the script")]
    NotMissing,
    /// The block does not belong to its header, or the block is from before segwit.
    #[error(transparent)]
    Block(#[from] BindError),
    /// A previous transaction is not spent by the block, is out of order, or occurs twice.
    #[error("the previous transactions must be those that the block spends from, each once")]
    PreviousNotNeeded,
    /// The filter can be the block's filter.
    #[error("the filter is consistent with the block, as far as the scripts are known")]
    Consistent,
    /// The version is unknown.
    #[error("version {0}, but only {VERSION} is known")]
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
    #[error("length {0}, the limit is {max}", max = crate::btc::raw::MAX_SIZE)]
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

impl From<FieldError> for ProofError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated { needed, left } => Self::Truncated { needed, left },
            FieldError::NonMinimalLength(length) => Self::NonMinimalLength(length),
            FieldError::LengthTooLarge(length) => Self::LengthTooLarge(length),
        }
    }
}
