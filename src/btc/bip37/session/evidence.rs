//! Evidence that a node omitted a transaction, or claimed a false number of levels for a block's
//! tree.
//!
//! A node's answer for one filter is the merkle block of the matched transactions. The node's
//! filter only grows while it is loaded, so every transaction that matches the filter *as loaded*
//! must be in the answer. Anyone who has the block can present an omitted transaction, with its
//! merkle path.
//!
//! The evidence proves that *this answer to this filter* is false. The evidence does not prove that
//! a certain node was sent the filter and gave the answer: messages are not signed, so only the
//! receiver claims this.
//!
//! Node implementations differ in rare cases, and an honest node must never be accused. A match is
//! therefore accepted only if every implementation finds it: by txid, by outpoint, or by a push of
//! at most 520 bytes in a script without a malformed push (some implementations skip the whole
//! script). A filter is accepted only if all implementations treat it alike: it has data and hash
//! functions, no reserved flags, and is within the limits.

use core::fmt;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network, Transaction, Txid};

use crate::btc::bip37::{
    BloomFilter, MAX_FILTERADD_SIZE, MerkleBlock, MerkleBlockError, Policy, Proof,
};
pub use crate::btc::merkle_tree::TransactionInBlock;
use crate::btc::merkle_tree::{self, MerklePath};
use crate::btc::script::{is_well_formed, pushes};

/// A merkle block that answers a filter but omits a transaction that matches this filter.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::bip37::session::OmissionEvidence;
/// use chainsieve::btc::bip37::MerkleBlockError;
/// /// Verifies evidence that someone sent, without any other data.
/// fn judge(evidence: &OmissionEvidence) -> Result<String, MerkleBlockError> {
///     let omission = evidence.verify(Network::Bitcoin)?;
///     Ok(omission.to_string())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OmissionEvidence {
    /// The filter as loaded: the payload of `filterload`, before the node inserted anything.
    pub filter: BloomFilter,
    /// The node's answer, which omits the transaction.
    pub merkle_block: MerkleBlock,
    /// The transaction that the answer omits.
    pub omitted: TransactionInBlock,
}

/// A transaction that is in a block and not in the answer for this block, as evidence has proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Omission {
    /// Hash of the block.
    pub block_hash: BlockHash,
    /// Txid of the omitted transaction.
    pub txid: Txid,
    /// Position of the transaction in the block.
    pub index: u32,
    /// The part of the transaction that matches the filter.
    pub ground: Ground,
}

/// The part of a transaction that matches a filter in every implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "ground", rename_all = "snake_case")
)]
pub enum Ground {
    /// The txid matches.
    Txid,
    /// A push of this output's well-formed script matches.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::index"))]
    Output(u32),
    /// The outpoint that this input spends matches.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::index"))]
    Spent(u32),
    /// A push of this input's well-formed script matches.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::index"))]
    InputData(u32),
}

impl OmissionEvidence {
    /// Verifies the evidence without any other data. The header is verified by its own proof of
    /// work.
    ///
    /// The path must have as many siblings as the answer's own tree has levels. A longer or shorter
    /// path starts at a hash that is not a txid (CVE-2017-12842). For an answer that claims a false
    /// height of the tree, use [`HeightEvidence`].
    ///
    /// The answer's number of transactions is used only to compute the height of the tree. An
    /// answer that claims too few transactions, but a tree of the true height, is therefore also
    /// refuted.
    ///
    /// # Errors
    /// Returns an error for anything that could also be presented against an honest answer. So an
    /// honest answer to the filter that was sent to the node can never be refuted.
    pub fn verify(&self, network: Network) -> Result<Omission, MerkleBlockError> {
        let Self { filter, merkle_block, omitted } = self;
        if !is_read_alike(filter) {
            return Err(MerkleBlockError::FilterNotReadAlike);
        }
        let proof = Proof::verify(merkle_block, Policy::Strict(network), [])?;
        // An attacker could present two neighbouring nodes of the tree as such a transaction
        // (CVE-2017-12842).
        let (index, txid) = (omitted.path.index, omitted.transaction.compute_txid());
        if omitted.transaction.base_size() == 64 {
            return Err(MerkleBlockError::TransactionOf64Bytes { index, txid });
        }
        let height = merkle_tree::height(merkle_block.num_transactions);
        check_path(&omitted.path, txid, height, merkle_block)?;
        // A matched leaf at the position, or with the txid, means that nothing was omitted.
        if proof.inclusions.iter().any(|leaf| leaf.index == index || leaf.txid == txid) {
            return Err(MerkleBlockError::NotOmitted(index));
        }
        let ground = ground(filter, &omitted.transaction, txid).ok_or(MerkleBlockError::NoMatch)?;
        Ok(Omission { block_hash: proof.block_hash, txid, index, ground })
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "transaction {} of block {} was omitted, although ",
            self.index, self.block_hash
        )?;
        match self.ground {
            Ground::Txid => write!(f, "its txid {} matches the filter", self.txid),
            Ground::Output(vout) => write!(f, "output {vout} of {} matches the filter", self.txid),
            Ground::Spent(vin) => {
                write!(f, "the outpoint spent by input {vin} of {} matches the filter", self.txid)
            }
            Ground::InputData(vin) => write!(f, "input {vin} of {} matches the filter", self.txid),
        }
    }
}

/// A merkle block whose number of transactions implies a false height of the block's tree, and the
/// coinbase transaction that proves the true height.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeightEvidence {
    /// The node's answer, which claims the false height.
    pub merkle_block: MerkleBlock,
    /// The block's coinbase transaction, with its path from position 0.
    pub coinbase: TransactionInBlock,
}

impl HeightEvidence {
    /// Verifies the evidence without any other data, and returns the true height.
    ///
    /// # Errors
    /// Returns an error for anything that could also be presented against an honest answer.
    pub fn verify(&self, network: Network) -> Result<u32, MerkleBlockError> {
        let Self { merkle_block, coinbase } = self;
        Proof::verify(merkle_block, Policy::Strict(network), [])?;
        // Such a transaction may be an inner node of the tree (CVE-2017-12842).
        let (index, txid) = (coinbase.path.index, coinbase.transaction.compute_txid());
        if coinbase.transaction.base_size() == 64 {
            return Err(MerkleBlockError::TransactionOf64Bytes { index, txid });
        }
        // Only a coinbase at position 0 proves a height: an inner node cannot be presented as a
        // coinbase transaction there.
        if !coinbase.transaction.is_coinbase() || index != 0 {
            return Err(MerkleBlockError::NotTheCoinbase);
        }
        let height = u32::try_from(coinbase.path.siblings.len()).unwrap_or(u32::MAX);
        check_path(&coinbase.path, txid, height, merkle_block)?;
        let claimed = merkle_tree::height(merkle_block.num_transactions);
        if claimed == height {
            return Err(MerkleBlockError::SameHeight(height));
        }
        Ok(height)
    }
}

/// Checks that the path leads from a leaf to the header's merkle root, in a tree of this height.
fn check_path(
    path: &MerklePath,
    txid: Txid,
    height: u32,
    block: &MerkleBlock,
) -> Result<(), MerkleBlockError> {
    let root = path.root_at_height(txid, height)?;
    if root == block.header.merkle_root {
        Ok(())
    } else {
        Err(MerkleBlockError::OtherRoot { path: root, header: block.header.merkle_root })
    }
}

/// Returns `true` if all implementations treat the filter alike.
fn is_read_alike(filter: &BloomFilter) -> bool {
    !filter.data().is_empty()
        && filter.hash_funcs() > 0
        && filter.flags() <= 2
        && filter.is_within_size_constraints()
}

/// Returns the first ground on which `tx` matches the filter. The filter is not changed.
pub(super) fn ground(filter: &BloomFilter, tx: &Transaction, txid: Txid) -> Option<Ground> {
    if filter.contains(txid.as_byte_array()) {
        return Some(Ground::Txid);
    }
    let contains = |script: &[u8]| {
        // Implementations differ on larger pushes, and on scripts with a malformed push.
        let mut elements = pushes(script).filter(|data| data.len() <= MAX_FILTERADD_SIZE);
        elements.any(|data| filter.contains(data)) && is_well_formed(script)
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
