//! What a merkle block proves.
//!
//! Bitcoin Core checks the tree and its root; its caller knows the header from its chain. A light
//! client may know less, and each thing that it does not know has been used against one:
//!
//! | known | proves | still open |
//! |---|---|---|
//! | tree under the header's root | each matched hash is at the bottom of *a* tree with this root | the height of the tree: a 64-byte transaction and an inner node look alike (CVE-2017-12842) |
//! | and the tree's height | each matched hash is the txid of a transaction in this block | whether the block is in the chain |
//! | and the header's place in the chain | the transaction is that deep in the chain | what was left out |
//!
//! Nothing here shows that a block holds no *other* transaction of a wallet: a merkle block
//! proves inclusion, never that it is complete.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::block::Header;
use bitcoin::{Amount, BlockHash, Network, Transaction, Txid};
use thiserror::Error;

use super::{InnerNode, MerkleBlock, TreeError};
use crate::btc::proof_of_work::{ProofOfWorkError, check_proof_of_work};

/// What is asked of a merkle block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// What Bitcoin Core asks: a well-formed tree under the header's root. Enough for who has
    /// the header from a chain and the number of transactions from the block.
    Core,
    /// Also the header's proof of work, against its own bits and the network's limit. Unless the
    /// coinbase shows the tree's height: no delivered transaction of 64 bytes, and no inner node
    /// that reads as a transaction.
    ///
    /// An inner node of an honest block reads as a transaction by chance once in about 10^13;
    /// who grinds the ids of two neighbours can bring it about with some 2^35 hashes. Such a block
    /// is proven with its coinbase, and so is a genuine transaction of 64 bytes.
    Strict(Network),
}

/// What a merkle block proves: that transactions are in a block, and how far that goes.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::bip37::{Depth, MerkleBlock, Policy, Proof};
/// # let payload = hex::decode("0100000055bd840a78798ad0da853f68974f3d183e2bd1db6a842c1feecf222a00000000ff104ccb05421ab93e63f8c3ce5c2c2e9dbb37de2764b3a3175c8166562cac7d51b96a49ffff001d283e9e70020000000282501c1178fa0b222c1f3d474ec726b832013f0a532b44bb620cce8624a5feb1169e1e83e930853391bc6f35f605c6754cfead57cf8387639d3b4096c54f18f40107").unwrap();
/// let block = MerkleBlock::decode(&payload).unwrap();
/// let proof = Proof::verify(&block, Policy::Strict(Network::Bitcoin), [])?;
/// assert_eq!(proof.inclusions.len(), 2);
/// // Without the coinbase transaction nothing shows how high the tree is.
/// assert_eq!(proof.depth, Depth::Unproven);
/// # Ok::<(), chainsieve::btc::bip37::ProofError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The hash of the header.
    pub block_hash: BlockHash,
    /// The header.
    pub header: Header,
    /// The number of transactions as claimed. Not proven: with the depth, its order of magnitude.
    pub num_transactions: u32,
    /// The matched leaves of the tree, in the order of the block.
    pub inclusions: Vec<Inclusion>,
    /// Whether the height of the tree is proven.
    pub depth: Depth,
    /// What was asked of the merkle block.
    pub policy: Policy,
    /// Where the header stands, as far as the caller said.
    pub link: HeaderLink,
    /// Places in `inclusions`, by txid.
    by_txid: Vec<usize>,
}

/// A matched leaf of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    /// The position in the block.
    pub index: u32,
    /// The leaf's hash: the id of a transaction, if the depth is proven or the transaction seen.
    pub txid: Txid,
    /// Whether the transaction was at hand, so that its size could be checked.
    pub delivered: bool,
}

/// Whether the height of a tree is proven, so that its leaves are transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the peer says how many transactions there are.
    Unproven,
    /// The leaf at position 0 is in the tree and was delivered, and is a coinbase transaction.
    ///
    /// A wallet has that of every block whose coinbase matches its filter: all of them, if it
    /// inserts the null outpoint. To pass an inner node off as a coinbase transaction takes
    /// finding a hash with more than 200 given bits.
    Coinbase(Txid),
}

/// Where a header stands. Only the caller can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderLink {
    /// Not known to be in any chain. With proof of work it costs the work of one block to forge.
    #[default]
    Unlinked,
    /// In the caller's chain of headers.
    InChain {
        /// The height of the block.
        height: u32,
        /// The headers on top of it, and itself: 1 for the tip.
        confirmations: u32,
    },
}

impl Proof {
    /// Checks `block` as `policy` asks.
    ///
    /// `delivered` are the transactions that came with it, in any order; those that match no leaf
    /// are passed over. They are needed to refuse transactions of 64 bytes and to prove the depth.
    ///
    /// # Errors
    /// The first check that fails: tree, proof of work, delivered transactions, inner nodes.
    ///
    /// # Cost
    /// One double hash per inner node shown, and the ids of the transactions delivered.
    pub fn verify<'a>(
        block: &MerkleBlock,
        policy: Policy,
        delivered: impl IntoIterator<Item = &'a Transaction>,
    ) -> Result<Self, ProofError> {
        let mut suspicious = None;
        let tree = block.extract_matches_and_nodes(|node| {
            if suspicious.is_none() && reads_as_transaction(&node.preimage) {
                suspicious = Some(*node);
            }
        })?;
        let block_hash = match policy {
            Policy::Core => block.header.block_hash(),
            Policy::Strict(network) => check_proof_of_work(&block.header, network)?,
        };
        let inclusions: Vec<_> = tree
            .matches
            .iter()
            .map(|&(index, txid)| Inclusion { index, txid, delivered: false })
            .collect();
        let mut by_txid: Vec<_> = (0..inclusions.len()).collect();
        by_txid.sort_unstable_by_key(|&i| inclusions[i].txid);
        let mut proof = Self {
            block_hash,
            header: block.header,
            num_transactions: block.num_transactions,
            inclusions,
            depth: Depth::Unproven,
            policy,
            link: HeaderLink::Unlinked,
            by_txid,
        };
        let delivered: Vec<_> = delivered.into_iter().collect();
        // What shows the height of the tree decides what the others may look like.
        if let Some(coinbase) = delivered.iter().find(|tx| tx.is_coinbase()) {
            proof.deliver(coinbase)?;
        }
        for tx in delivered {
            proof.deliver(tx)?;
        }
        if let Some(InnerNode { level, position, .. }) = suspicious
            && policy != Policy::Core
            && proof.depth == Depth::Unproven
        {
            return Err(ProofError::InnerNodeIsTransaction { level, position });
        }
        Ok(proof)
    }

    /// Takes another delivered transaction into account. Returns its position in the block, or
    /// `None` if no matched leaf has its id.
    ///
    /// # Errors
    /// One of 64 bytes while the depth is unproven, by the strict policy. It is then not taken
    /// into account; with the coinbase delivered first, it is.
    pub fn deliver(&mut self, tx: &Transaction) -> Result<Option<u32>, ProofError> {
        let txid = tx.compute_txid();
        let Some(leaf) = self.find(txid) else { return Ok(None) };
        let Inclusion { index, .. } = self.inclusions[leaf];
        if tx.base_size() != 64 {
            if index == 0 && tx.is_coinbase() {
                self.depth = Depth::Coinbase(txid);
            }
        } else if self.policy != Policy::Core && self.depth == Depth::Unproven {
            return Err(ProofError::TransactionOf64Bytes { index, txid });
        }
        self.inclusions[leaf].delivered = true;
        Ok(Some(index))
    }

    /// The matched leaf with the id `txid`.
    pub fn inclusion(&self, txid: Txid) -> Option<&Inclusion> {
        self.find(txid).map(|leaf| &self.inclusions[leaf])
    }

    fn find(&self, txid: Txid) -> Option<usize> {
        let leaf = |&i: &usize| self.inclusions.get(i).map(|leaf| leaf.txid);
        let found = self.by_txid.binary_search_by_key(&Some(txid), leaf).ok()?;
        self.by_txid.get(found).copied()
    }

    /// The same proof of a header whose place in the chain the caller knows.
    #[must_use]
    pub fn linked(self, link: HeaderLink) -> Self {
        Self { link, ..self }
    }

    /// Whether the header's proof of work was checked.
    pub fn has_proof_of_work(&self) -> bool {
        matches!(self.policy, Policy::Strict(_))
    }

    /// Whether nothing is left open but omission: depth proven, and the header in a chain.
    pub fn is_inclusion_in_chain(&self) -> bool {
        self.depth != Depth::Unproven && self.link != HeaderLink::Unlinked
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.inclusions.len() == 1 { "" } else { "s" };
        write!(f, "{} transaction{plural}", self.inclusions.len())?;
        match self.depth {
            Depth::Coinbase(_) => write!(f, " proven to be in block {}", self.block_hash)?,
            Depth::Unproven => write!(
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
                f.write_str("; header not known to be in any chain, its work not checked")?;
            }
            (HeaderLink::Unlinked, Policy::Strict(network)) => write!(
                f,
                "; header not known to be in any chain, but with proof of work ({network})"
            )?,
        }
        f.write_str("; not proven: that no others were left out, ")?;
        write!(f, "and that the block has {} as claimed", self.num_transactions)
    }
}

/// Whether the two children of an inner node are, byte for byte, a transaction without witness
/// that consensus rules would let into a block.
///
/// One of 64 bytes has one input and one output, whose scripts take 4 bytes together: version 4,
/// count 1, outpoint 36, length 1, script, sequence 4, count 1, value 8, length 1, script, lock
/// time 4.
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
        && value <= Amount::MAX_MONEY.to_sat()
        && !(null_outpoint && input_script < 2)
}

/// Why a merkle block proves nothing under a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The tree is malformed, or its root is not the header's.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The header's proof of work.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// An inner node reads as a transaction: the tree may be deeper than the block's, with a
    /// leaf that never was a transaction (CVE-2017-12842).
    #[error("inner node {position} at level {level} reads as a transaction")]
    InnerNodeIsTransaction {
        /// Levels above the txids.
        level: u32,
        /// Position in the level.
        position: u32,
    },
    /// A delivered transaction has 64 bytes without witness: it may be an inner node of the
    /// block's tree (CVE-2017-12842).
    #[error("transaction {txid} at position {index} has 64 bytes, as inner nodes have")]
    TransactionOf64Bytes {
        /// The position claimed.
        index: u32,
        /// The transaction's id.
        txid: Txid,
    },
}
