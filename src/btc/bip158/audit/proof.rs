//! The proof that certain bytes are not the filter of a block.

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

/// The proof that certain bytes are not the filter of a block, for anyone who knows the block's
/// hash.
///
/// It says nothing of who claimed that they are. Messages are not signed: that a certain node sent
/// the filter, or a filter header over its hash, is the word of whoever received it.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::hashes::Hash as _;
/// use chainsieve::bitcoin::{BlockHash, Network};
/// use chainsieve::btc::bip158::audit::{Evidence, InvalidFilter};
/// // A count of two elements and nothing behind it is the filter of no block.
/// let block_hash = BlockHash::from_byte_array([7; 32]);
/// let filter = vec![2];
/// let proof = InvalidFilter { block_hash, filter, evidence: Evidence::Malformed };
/// assert_eq!(proof.verify(block_hash, Network::Bitcoin), Ok(()));
/// assert_eq!(InvalidFilter::decode(&proof.encode()), Ok(proof));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFilter {
    /// The block.
    pub block_hash: BlockHash,
    /// The bytes that are not its filter.
    pub filter: Vec<u8>,
    /// What shows it.
    pub evidence: Evidence,
}

/// What shows that a filter is not its block's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The bytes are no filter in the one form that an encoder produces.
    Malformed,
    /// The script of an output is missing.
    MissingOutput {
        /// The transaction with the output.
        transaction: ProvenTransaction,
        /// The position of the output.
        vout: u32,
    },
    /// The script of a spent output is missing.
    MissingPrevout {
        /// The transaction that spends it.
        spending: ProvenTransaction,
        /// The position of the input.
        vin: u32,
        /// The transaction that created it, whose id the input names; in any block.
        previous: Transaction,
    },
    /// The script of a spent output is missing, which is P2SH of the witness program in the
    /// scriptSig, since the input has a witness too.
    MissingWrapped {
        /// The transaction that spends it, and the coinbase transaction, with their witnesses.
        spending: ProvenTransaction,
        /// The position of the input.
        vin: u32,
        /// The path of the transaction in the tree over the hashes with witness.
        witness_path: MerklePath,
    },
    /// The filter has more or fewer elements than the block can have, or, with all scripts of
    /// spent outputs shown, other bytes. Not small: a whole block.
    Unequal {
        /// The block.
        block: Block,
        /// Transactions that created what the block spends, ascending by id, as far as they are
        /// needed.
        previous: Vec<Transaction>,
    },
}

impl InvalidFilter {
    /// The hash of the bytes, to be held against the one that a peer's `cfheaders` gave.
    pub fn filter_hash(&self) -> FilterHash {
        filter_hash(&self.filter)
    }

    /// Checks everything from the proof alone: `filter` is not the filter of the block `expected`,
    /// if that block is in the chain.
    ///
    /// # Errors
    /// Whatever the filter of an honest node could be met by, and what a proof has no need of.
    ///
    /// # Cost
    /// The filter is decoded; hashes of what is shown.
    pub fn verify(&self, expected: BlockHash, network: Network) -> Result<(), ProofError> {
        let Self { block_hash, filter, evidence } = self;
        if *block_hash != expected {
            return Err(ProofError::OtherBlock { expected, found: *block_hash });
        }
        let read = read(block_hash, filter);
        if *evidence == Evidence::Malformed {
            return if read.is_err() { Ok(()) } else { Err(ProofError::WellFormed) };
        }
        let (set, decoded) = read?;
        let missing = |script: &[u8]| {
            if decoded.may_contain(script) { Err(ProofError::NotMissing) } else { Ok(()) }
        };
        match evidence {
            Evidence::Malformed => Err(ProofError::WellFormed),
            Evidence::MissingOutput { transaction, vout } => {
                let tx = transaction.check(expected, network)?;
                transaction.check_without_witness()?;
                let output = tx.output.get(*vout as usize).ok_or(ProofError::NoOutput(*vout))?;
                let script = Some(output.script_pubkey.as_bytes())
                    .filter(|script| is_output_element(script));
                missing(script.ok_or(ProofError::NotAnElement)?)
            }
            Evidence::MissingPrevout { spending, vin, previous } => {
                let outpoint = input(spending, *vin, expected, network)?.previous_output;
                spending.check_without_witness()?;
                check_without_witness(previous)?;
                let txid = previous.compute_txid();
                if txid != outpoint.txid {
                    return Err(ProofError::OtherPrevious { outpoint, txid });
                }
                let output = previous.output.get(outpoint.vout as usize);
                let script = output.ok_or(ProofError::NoOutput(outpoint.vout))?;
                let script = Some(script.script_pubkey.as_bytes()).filter(|s| !s.is_empty());
                missing(script.ok_or(ProofError::NotAnElement)?)
            }
            Evidence::MissingWrapped { spending, vin, witness_path } => {
                let input = input(spending, *vin, expected, network)?;
                spending.check_witness(witness_path, network)?;
                let script = wrapped_script(input).ok_or(ProofError::NotWrapped(*vin))?;
                missing(script.as_bytes())
            }
            Evidence::Unequal { block, previous } => {
                let block = BoundBlock::bind(block, expected, network)?;
                previous.iter().try_for_each(check_without_witness)?;
                let sources = Sources::new(&block, Prevouts::ByTransactions(previous));
                let inputs = known_inputs(&block, &sources);
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

/// The input of a transaction that is shown to be in the block and spends something.
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

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let txid = |tx: &ProvenTransaction| {
            tx.other.as_ref().unwrap_or(&tx.coinbase).transaction.compute_txid()
        };
        match self {
            Self::Malformed => f.write_str("no encoder produces these bytes"),
            Self::MissingOutput { transaction, vout } => {
                write!(f, "the script of output {vout} of {} is missing", txid(transaction))
            }
            Self::MissingPrevout { spending, vin, .. }
            | Self::MissingWrapped { spending, vin, .. } => {
                write!(f, "the script that input {vin} of {} spends is missing", txid(spending))
            }
            Self::Unequal { .. } => f.write_str("the block has other elements"),
        }
    }
}

/// Why a proof shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofError {
    /// It is of another block.
    #[error("the proof is of block {found}, asked for {expected}")]
    OtherBlock {
        /// The block asked for.
        expected: BlockHash,
        /// The block that the proof is of.
        found: BlockHash,
    },
    /// The header's proof of work.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// The filter is malformed, which is a proof of its own.
    #[error("the filter is malformed: {0}")]
    Filter(#[from] GcsError),
    /// The filter is not malformed.
    #[error("the filter is well-formed")]
    WellFormed,
    /// Not a coinbase transaction at position 0, or another transaction there.
    #[error("not the coinbase transaction at position 0 and only there")]
    NotTheCoinbase,
    /// A path that the tree does not have.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path to another root.
    #[error("the path's root is {path}, the header's {header}")]
    OtherRoot {
        /// The path's root.
        path: TxMerkleNode,
        /// The root in the header.
        header: TxMerkleNode,
    },
    /// A witness that nothing shows to be the transaction's.
    #[error("nothing shows the witness of {0} to be its own")]
    UnprovenWitness(Txid),
    /// No output at this position.
    #[error("no output {0}")]
    NoOutput(u32),
    /// No input at this position.
    #[error("no input {0}")]
    NoInput(u32),
    /// The coinbase transaction, which spends nothing.
    #[error("the coinbase transaction spends nothing")]
    SpendsNothing,
    /// A script that filters leave out.
    #[error("filters leave the script out")]
    NotAnElement,
    /// Not the transaction that the input names.
    #[error("the input spends {outpoint}, and {txid} is shown")]
    OtherPrevious {
        /// What the input spends.
        outpoint: OutPoint,
        /// The id of the transaction shown.
        txid: Txid,
    },
    /// An input that is not both scriptSig and witness, the one the push of a witness program.
    #[error("input {0} does not show a witness program in P2SH")]
    NotWrapped(u32),
    /// Another position in the tree over the hashes with witness.
    #[error("position {witness} among the witnesses, {transaction} among the transactions")]
    WitnessPosition {
        /// The position of the path with witness.
        witness: u32,
        /// The position of the transaction.
        transaction: u32,
    },
    /// Not the witness that the coinbase transaction commits to.
    #[error("the witness is not the one that the coinbase transaction commits to")]
    WitnessCommitment,
    /// The filter may contain what is said to be missing.
    #[error("the script is not missing")]
    NotMissing,
    /// The block is not the one of its header, or from before segwit.
    #[error(transparent)]
    Block(#[from] BindError),
    /// Previous transactions that the block does not spend from, or not in order, or twice.
    #[error("the previous transactions are not those that the block spends from, each once")]
    PreviousNotNeeded,
    /// The filter may be the block's.
    #[error("the filter has the elements of the block, as far as they are shown")]
    Consistent,
}
