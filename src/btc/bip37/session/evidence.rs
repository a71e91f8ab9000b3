//! Evidence that a node left a transaction out, or lied about the shape of a block.
//!
//! A node's answer to one filter is the merkle block of what matched. Its filter only ever grows
//! while it is loaded, so whatever matches the filter *as loaded* must be in the answer. Anyone
//! who has the block can show such a transaction, with its path to the merkle root.
//!
//! What it proves: that *this answer to this filter* is false. That a certain node was sent the
//! filter and gave the answer is the word of whoever received it, since messages are not signed.
//!
//! Implementations differ in corners, and no honest node may be met by them. So a match counts
//! only if every implementation sees it: by txid, by an outpoint, or by a push of at most 520
//! bytes in a script without a malformed push (some skip the whole script); and only of a filter
//! that all read alike, with data, hash functions, and no reserved flags.

use core::fmt;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network, Transaction, TxMerkleNode, Txid};
use thiserror::Error;

use crate::btc::bip37::{BloomFilter, MAX_FILTERADD_SIZE, MerkleBlock, Policy, Proof, ProofError};
pub use crate::btc::merkle_tree::TransactionInBlock;
use crate::btc::merkle_tree::{self, MerklePath, PathError};
use crate::btc::script::ops;

/// A merkle block that leaves out a transaction which matches the filter it answers.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::bip37::session::{EvidenceError, OmissionEvidence};
/// /// Checks what someone sent, from nothing but the evidence itself.
/// fn judge(evidence: &OmissionEvidence) -> Result<String, EvidenceError> {
///     let omission = evidence.verify(Network::Bitcoin)?;
///     Ok(omission.to_string())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmissionEvidence {
    /// The filter as loaded: the payload of `filterload`, before any insertion by the node.
    pub filter: BloomFilter,
    /// The answer.
    pub merkle_block: MerkleBlock,
    /// What the answer leaves out.
    pub omitted: TransactionInBlock,
}

/// What verified evidence shows: a transaction of a block that an answer leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Omission {
    /// The block.
    pub block_hash: BlockHash,
    /// The transaction.
    pub txid: Txid,
    /// Its position in the block.
    pub index: u32,
    /// What of it matches the filter.
    pub ground: Ground,
}

/// What of a transaction matches a filter, seen alike by every implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ground {
    /// Its id.
    Txid,
    /// A push of this output's well-formed script.
    Output(u32),
    /// The outpoint that this input spends.
    Spent(u32),
    /// A push of this input's well-formed script.
    InputData(u32),
}

impl OmissionEvidence {
    /// Checks everything from the evidence alone; the header by its own proof of work.
    ///
    /// The path must be as long as the answer's own tree is high: a longer or shorter one starts
    /// at something that is no transaction (CVE-2017-12842). For an answer that lies about the
    /// height there is [`HeightEvidence`]. Nothing else of the answer's number of transactions
    /// counts: one that says fewer than the block has, at the same height, is met all the same.
    ///
    /// # Errors
    /// Whatever an honest answer could be met by. No honest node's answer, to the filter that it
    /// was sent, verifies with anything.
    pub fn verify(&self, network: Network) -> Result<Omission, EvidenceError> {
        let Self { filter, merkle_block, omitted } = self;
        if !is_read_alike(filter) {
            return Err(EvidenceError::FilterNotReadAlike);
        }
        let proof = Proof::verify(merkle_block, Policy::Strict(network), [])?;
        if omitted.transaction.base_size() == 64 {
            return Err(EvidenceError::TransactionOf64Bytes);
        }
        let txid = omitted.transaction.compute_txid();
        let height = merkle_tree::height(merkle_block.num_transactions);
        check_path(&omitted.path, txid, height, merkle_block)?;
        let index = omitted.path.index;
        if proof.inclusions.iter().any(|leaf| leaf.index == index || leaf.txid == txid) {
            return Err(EvidenceError::NotOmitted(index));
        }
        let ground = ground(filter, &omitted.transaction, txid).ok_or(EvidenceError::NoMatch)?;
        Ok(Omission { block_hash: proof.block_hash, txid, index, ground })
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {} of block {} was left out, though ", self.index, self.block_hash)?;
        match self.ground {
            Ground::Txid => write!(f, "its id {} matches", self.txid),
            Ground::Output(vout) => write!(f, "output {vout} of {} matches", self.txid),
            Ground::Spent(vin) => write!(f, "what input {vin} of {} spends matches", self.txid),
            Ground::InputData(vin) => write!(f, "input {vin} of {} matches", self.txid),
        }
    }
}

/// A merkle block whose number of transactions gives a tree of another height than the block has,
/// which the block's coinbase transaction shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeightEvidence {
    /// The answer.
    pub merkle_block: MerkleBlock,
    /// The coinbase transaction, at position 0.
    pub coinbase: TransactionInBlock,
}

impl HeightEvidence {
    /// Checks everything from the evidence alone. Returns the true height.
    ///
    /// # Errors
    /// Whatever an honest answer could be met by.
    pub fn verify(&self, network: Network) -> Result<u32, EvidenceError> {
        let Self { merkle_block, coinbase } = self;
        Proof::verify(merkle_block, Policy::Strict(network), [])?;
        if coinbase.transaction.base_size() == 64 {
            return Err(EvidenceError::TransactionOf64Bytes);
        }
        if !coinbase.transaction.is_coinbase() || coinbase.path.index != 0 {
            return Err(EvidenceError::NotTheCoinbase);
        }
        let height = u32::try_from(coinbase.path.siblings.len()).unwrap_or(u32::MAX);
        let txid = coinbase.transaction.compute_txid();
        check_path(&coinbase.path, txid, height, merkle_block)?;
        let claimed = merkle_tree::height(merkle_block.num_transactions);
        if claimed == height {
            return Err(EvidenceError::SameHeight(height));
        }
        Ok(height)
    }
}

/// Checks that the path leads up to the root from a leaf of the block's tree, if the tree has
/// this height.
fn check_path(
    path: &MerklePath,
    txid: Txid,
    height: u32,
    block: &MerkleBlock,
) -> Result<(), EvidenceError> {
    let root = path.root_at_height(txid, height)?;
    if root == block.header.merkle_root {
        Ok(())
    } else {
        Err(EvidenceError::OtherRoot { path: root, header: block.header.merkle_root })
    }
}

/// Whether all implementations read the filter alike.
fn is_read_alike(filter: &BloomFilter) -> bool {
    !filter.data().is_empty()
        && filter.hash_funcs() > 0
        && filter.flags() <= 2
        && filter.is_within_size_constraints()
}

/// The first ground on which `tx` matches the filter, which is not changed.
pub(super) fn ground(filter: &BloomFilter, tx: &Transaction, txid: Txid) -> Option<Ground> {
    if filter.contains(txid.as_byte_array()) {
        return Some(Ground::Txid);
    }
    let contains = |script: &[u8]| {
        let mut ops = ops(script);
        let mut found = false;
        for op in ops.by_ref() {
            found |= (1..=MAX_FILTERADD_SIZE).contains(&op.data.len()) && filter.contains(op.data);
        }
        found && ops.is_well_formed()
    };
    let outputs = (0..).zip(&tx.output);
    let mut outputs = outputs.filter(|(_, output)| contains(output.script_pubkey.as_bytes()));
    if let Some((vout, _)) = outputs.next() {
        return Some(Ground::Output(vout));
    }
    (0..).zip(&tx.input).find_map(|(vin, input)| {
        if filter.contains_outpoint(&input.previous_output) {
            Some(Ground::Spent(vin))
        } else {
            contains(input.script_sig.as_bytes()).then_some(Ground::InputData(vin))
        }
    })
}

/// Why evidence shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// A filter that implementations read in different ways: no data, no hash functions, reserved
    /// flags, or over the limits.
    #[error(
        "implementations differ on a filter without data or hash functions, with flags above 2, \
        or over the limits"
    )]
    FilterNotReadAlike,
    /// The merkle block is invalid, which it shows itself.
    #[error(transparent)]
    Answer(#[from] ProofError),
    /// A transaction of 64 bytes, which may be an inner node.
    #[error("a transaction of 64 bytes may be an inner node")]
    TransactionOf64Bytes,
    /// A path that the tree does not have.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path to another root.
    #[error("the path's root is {path}, the header's {header}")]
    OtherRoot {
        /// The path's root.
        path: TxMerkleNode,
        /// The root in the answer's header.
        header: TxMerkleNode,
    },
    /// The answer has the transaction at this position.
    #[error("the answer has transaction {0}")]
    NotOmitted(u32),
    /// The transaction does not match the filter as loaded, or not for every implementation.
    #[error("the transaction does not match the filter as loaded")]
    NoMatch,
    /// Not a coinbase transaction at position 0.
    #[error("not a coinbase transaction at position 0")]
    NotTheCoinbase,
    /// The tree has the height that the answer says.
    #[error("the tree has the height claimed, {0}")]
    SameHeight(u32),
    /// No answer for the block is kept that evidence can be held against: none was received, or
    /// too long ago, or the filter was replaced between request and answer, or the node did not
    /// answer each request once.
    #[error("no answer for block {0} that evidence can be held against")]
    NoAnswer(BlockHash),
}
