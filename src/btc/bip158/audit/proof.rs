//! The proof that given bytes are not the filter of a block.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::bip158::FilterHash;
use bitcoin::{Block, BlockHash, Network, OutPoint, Transaction, TxIn, TxMerkleNode, Txid};
use thiserror::Error;

use super::inclusion::{ProvenTransaction, has_witness};
use super::known::{Sources, is_consistent, known_inputs};
use super::{Prevouts, read};
use crate::btc::bip158::block_filter::is_output_element;
use crate::btc::bip158::revealed::wrapped_script;
use crate::btc::bip158::{BindError, BoundBlock, GcsError, filter_hash};
use crate::btc::merkle_tree::{MerklePath, PathError};
use crate::btc::proof_of_work::ProofOfWorkError;

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

/// Reason why a proof is invalid.
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
        /// The merkle root that the path leads to.
        path: TxMerkleNode,
        /// The merkle root in the block's header.
        header: TxMerkleNode,
    },
    /// A transaction contains a witness that nothing commits to.
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
    #[error("filters leave out this script")]
    NotAnElement,
    /// The given previous transaction is not the transaction that the input spends from.
    #[error("the input spends {outpoint}, the given transaction is {txid}")]
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
    #[error("the witness is not the one that the coinbase transaction commits to")]
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
}
