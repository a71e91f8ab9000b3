//! Verification of merkle blocks: what a merkle block proves, and what remains unproven.
//!
//! Bitcoin Core verifies the tree and its root, and Core's callers know the header from their own
//! chain. A light client may lack some of these facts, and each missing fact has been used for an
//! attack on light clients:
//!
//! | known | proves | still unproven |
//! |---|---|---|
//! | a tree under the header's root | each matched hash is at the bottom of *a* tree with this root | the height of the tree: a 64-byte transaction and an inner node look alike (CVE-2017-12842) |
//! | also the tree's height | each matched hash is the txid of a transaction in this block | that the block is in the chain |
//! | also the header's position in the chain | the transaction has that many confirmations | that no transaction was left out |
//!
//! No policy proves that a block contains no *other* transaction of a wallet. A merkle block proves
//! inclusion, never completeness.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::block::Header;
use bitcoin::{Amount, BlockHash, Network, Transaction, Txid};

use super::merkle_block::{InnerNode, MerkleBlock, MerkleBlockError};
use crate::btc::proof_of_work::check_proof_of_work;

/// The checks that a merkle block must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The checks of Bitcoin Core: a well-formed tree under the header's root. These checks suffice
    /// for a caller who has the header from a chain and knows the number of transactions from the
    /// block.
    Core,
    /// The checks of Bitcoin Core, and the header's proof of work against its own bits and the
    /// network's limit. Unless the coinbase proves the tree's height, no delivered transaction may
    /// have 64 bytes, and no inner node may have the bytes of a transaction.
    ///
    /// An inner node of an honest block has the bytes of a transaction by chance once in about
    /// 10^13. An attacker who searches for fitting txids of two neighbouring transactions can
    /// create such a node with about 2^35 hashes. A block with such a node can still be proven with
    /// its coinbase, and so can a genuine transaction of 64 bytes.
    Strict(Network),
}

/// Verified merkle block: the proof that transactions are in a block, with the facts that remain
/// unproven.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::bip37::{MerkleBlock, Policy, Proof};
/// # let payload = hex::decode("0100000055bd840a78798ad0da853f68974f3d183e2bd1db6a842c1feecf222a00000000ff104ccb05421ab93e63f8c3ce5c2c2e9dbb37de2764b3a3175c8166562cac7d51b96a49ffff001d283e9e70020000000282501c1178fa0b222c1f3d474ec726b832013f0a532b44bb620cce8624a5feb1169e1e83e930853391bc6f35f605c6754cfead57cf8387639d3b4096c54f18f40107").unwrap();
/// let block = MerkleBlock::decode(&payload).unwrap();
/// let proof = Proof::verify(&block, Policy::Strict(Network::Bitcoin), [])?;
/// assert_eq!(proof.inclusions.len(), 2);
/// // Without the coinbase transaction, the height of the tree is unproven.
/// assert_eq!(proof.coinbase, None);
/// # Ok::<(), chainsieve::btc::bip37::MerkleBlockError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Hash of the header.
    pub block_hash: BlockHash,
    /// The header.
    pub header: Header,
    /// Number of transactions in the block, as the peer claims. The claimed number is not proven; a
    /// proven depth proves only its order of magnitude.
    pub num_transactions: u32,
    /// The matched leaves of the tree, in the order of the block.
    pub inclusions: Vec<Inclusion>,
    /// Txid of the coinbase transaction, if it was delivered and is the leaf at position 0: the
    /// evidence for the depth of the tree, which shows that its leaves are transactions. With `None`,
    /// the depth is derived only from the number of transactions that the peer claims.
    ///
    /// A wallet gets this evidence for each block whose coinbase matches its filter. If the filter
    /// contains the null outpoint, every coinbase matches. To present an inner node as a coinbase
    /// transaction, an attacker would have to find a hash with more than 200 given bits.
    pub coinbase: Option<Txid>,
    /// The policy with which the merkle block was verified.
    pub policy: Policy,
    /// The header's position in the caller's chain, if the caller has given it.
    pub link: HeaderLink,
    /// Positions in `inclusions`, sorted by txid.
    by_txid: Vec<usize>,
}

/// A matched leaf of a merkle tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inclusion {
    /// Position of the leaf in the block.
    pub index: u32,
    /// The leaf's hash. The hash is known to be a txid if the depth is proven or the transaction
    /// was delivered.
    pub txid: Txid,
    /// `true` if the transaction was delivered, so that its size was checked.
    pub delivered: bool,
}

/// Position of a header in the caller's chain. The caller provides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "link", rename_all = "snake_case")
)]
pub enum HeaderLink {
    /// The header is not known to be in any chain. If its proof of work was checked, a forged
    /// header costs the work of one block.
    #[default]
    Unlinked,
    /// The header is in the caller's chain of headers.
    InChain {
        /// The height of the block.
        height: u32,
        /// Number of confirmations: the number of headers above this header, plus 1, so that the
        /// chain tip has 1 confirmation.
        confirmations: u32,
    },
}

impl Proof {
    /// Verifies `block` with the checks of `policy`.
    ///
    /// `delivered` contains the transactions that came with the block, in any order. Transactions
    /// that match no leaf are ignored. The transactions are needed to reject those of 64 bytes and
    /// to prove the depth.
    ///
    /// # Errors
    /// Returns an error for the first check that fails, in this order: tree, proof of work,
    /// delivered transactions, inner nodes.
    ///
    /// # Cost
    /// One double hash for each inner node in the message, and the txids of the delivered
    /// transactions.
    pub fn verify<'a>(
        block: &MerkleBlock,
        policy: Policy,
        delivered: impl IntoIterator<Item = &'a Transaction>,
    ) -> Result<Self, MerkleBlockError> {
        let mut suspicious = None;
        let matches = block.extract_matches_and_nodes(|node| {
            if suspicious.is_none() && reads_as_transaction(&node.preimage) {
                suspicious = Some(*node);
            }
        })?;
        let block_hash = match policy {
            Policy::Core => block.header.block_hash(),
            Policy::Strict(network) => check_proof_of_work(&block.header, network)?,
        };
        let leaf = |(index, txid)| Inclusion { index, txid, delivered: false };
        let inclusions: Vec<_> = matches.into_iter().map(leaf).collect();
        let mut by_txid: Vec<_> = (0..inclusions.len()).collect();
        by_txid.sort_unstable_by_key(|&i| inclusions[i].txid);
        let mut proof = Self {
            block_hash,
            header: block.header,
            num_transactions: block.num_transactions,
            inclusions,
            coinbase: None,
            policy,
            link: HeaderLink::Unlinked,
            by_txid,
        };
        let delivered: Vec<_> = delivered.into_iter().collect();
        // The coinbase is delivered first, because it proves the height of the tree. With a proven
        // height, transactions of 64 bytes are harmless, and so are inner nodes that look like
        // transactions.
        if let Some(coinbase) = delivered.iter().find(|tx| tx.is_coinbase()) {
            proof.deliver(coinbase)?;
        }
        for tx in delivered {
            proof.deliver(tx)?;
        }
        if let Some(InnerNode { level, position, .. }) = suspicious
            && policy != Policy::Core
            && proof.coinbase.is_none()
        {
            return Err(MerkleBlockError::InnerNodeIsTransaction { level, position });
        }
        Ok(proof)
    }

    /// Adds another delivered transaction to the proof. Returns its position in the block, or
    /// `None` if no matched leaf has its txid.
    ///
    /// # Errors
    /// With the strict policy, returns an error for a transaction of 64 bytes while the depth is
    /// unproven. The transaction is then not added. Once the coinbase has been delivered, a
    /// transaction of 64 bytes is accepted.
    pub fn deliver(&mut self, tx: &Transaction) -> Result<Option<u32>, MerkleBlockError> {
        let txid = tx.compute_txid();
        let Some(leaf) = self.find(txid) else { return Ok(None) };
        let Inclusion { index, .. } = self.inclusions[leaf];
        // A transaction of 64 bytes may be an inner node of the block's tree (CVE-2017-12842), so
        // it cannot prove the depth either.
        if tx.base_size() != 64 {
            if index == 0 && tx.is_coinbase() {
                self.coinbase = Some(txid);
            }
        } else if self.policy != Policy::Core && self.coinbase.is_none() {
            return Err(MerkleBlockError::TransactionOf64Bytes { index, txid });
        }
        self.inclusions[leaf].delivered = true;
        Ok(Some(index))
    }

    /// Returns the matched leaf with the hash `txid`.
    pub fn inclusion(&self, txid: Txid) -> Option<&Inclusion> {
        self.find(txid).map(|leaf| &self.inclusions[leaf])
    }

    fn find(&self, txid: Txid) -> Option<usize> {
        let leaf = |&i: &usize| self.inclusions.get(i).map(|leaf| leaf.txid);
        let found = self.by_txid.binary_search_by_key(&Some(txid), leaf).ok()?;
        self.by_txid.get(found).copied()
    }

    /// Returns the same proof with the header's position in the caller's chain.
    #[must_use]
    pub fn linked(self, link: HeaderLink) -> Self {
        Self { link, ..self }
    }

    /// Returns `true` if the header's proof of work was checked.
    pub fn has_proof_of_work(&self) -> bool {
        matches!(self.policy, Policy::Strict(_))
    }

    /// Returns `true` if the depth is proven and the header is in the caller's chain. Only omitted
    /// transactions are then possible.
    pub fn is_inclusion_in_chain(&self) -> bool {
        self.coinbase.is_some() && self.link != HeaderLink::Unlinked
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.inclusions.len() == 1 { "" } else { "s" };
        write!(f, "{} transaction{plural}", self.inclusions.len())?;
        match self.coinbase {
            Some(_) => write!(f, " proven to be in block {}", self.block_hash)?,
            None => write!(
                f,
                " under the merkle root of block {}, height of the tree not proven",
                self.block_hash
            )?,
        }
        match (self.link, self.policy) {
            (HeaderLink::InChain { height, confirmations: 1 }, _) => {
                write!(f, "; height {height}, 1 confirmation")?;
            }
            (HeaderLink::InChain { height, confirmations }, _) => {
                write!(f, "; height {height}, {confirmations} confirmations")?;
            }
            (HeaderLink::Unlinked, Policy::Core) => {
                f.write_str("; header not known to be in any chain, proof of work not checked")?;
            }
            (HeaderLink::Unlinked, Policy::Strict(network)) => write!(
                f,
                "; header not known to be in any chain, but with proof of work ({network})"
            )?,
        }
        f.write_str("; not proven: that no other transaction was left out, ")?;
        write!(f, "and that the number of transactions is {} as claimed", self.num_transactions)
    }
}

/// Returns `true` if the two children of an inner node are, byte for byte, a transaction without
/// witness that consensus rules allow in a block.
///
/// A transaction of 64 bytes has one input and one output, whose scripts have 4 bytes together:
/// version 4, count 1, outpoint 36, length 1, script, sequence 4, count 1, value 8, length 1,
/// script, lock time 4.
fn reads_as_transaction(bytes: &[u8; 64]) -> bool {
    let input_script = usize::from(bytes[41]);
    if bytes[4] != 1 || input_script > 4 {
        return false;
    }
    let outputs = 46 + input_script;
    let output_script = usize::from(bytes[outputs + 9]);
    let value = bytes[outputs + 1..].first_chunk().map_or(u64::MAX, |&v| u64::from_le_bytes(v));
    let null_outpoint = bytes[5..37] == [0; 32] && bytes[37..41] == [0xff; 4];
    bytes[outputs] == 1
        && input_script + output_script == 4
        // Consensus rules: no value above 21 million bitcoin, and at least 2 bytes of script in a
        // coinbase input.
        && value <= Amount::MAX_MONEY.to_sat()
        && !(null_outpoint && input_script < 2)
}
