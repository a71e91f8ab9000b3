//! Transactions that are proven to be in a block.

use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::hashes::Hash as _;
use bitcoin::{
    Block, BlockHash, Network, Transaction, TxMerkleNode, Txid, Witness, WitnessMerkleNode,
};

use super::ProofError;
use crate::btc::bip158::bound_block::{check_segwit_is_active, witness_commitment};
use crate::btc::bip158::{BindError, BoundBlock};
use crate::btc::merkle_tree::{MerklePath, PathError, TransactionInBlock};
use crate::btc::proof_of_work::check_proof_of_work;

/// A transaction with the proof that it is in a block: the header, and the merkle paths of the
/// transaction and of the coinbase. The coinbase's path proves the height of the merkle tree.
///
/// Without the height, an inner node could be passed off as a transaction, or a transaction of 64
/// bytes as an inner node (CVE-2017-12842). To pass off an inner node as a coinbase, an attacker
/// must find a hash with 224 given bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenTransaction {
    /// The header of the block.
    pub header: Header,
    /// The coinbase transaction, at position 0.
    pub coinbase: TransactionInBlock,
    /// The proven transaction, if it is not the coinbase.
    pub other: Option<TransactionInBlock>,
}

impl ProvenTransaction {
    /// Creates the proof for the transaction at `index`, with all witnesses.
    fn new(block: &BoundBlock<'_>, index: u32) -> Self {
        let show = |index: u32| TransactionInBlock {
            transaction: block.block().txdata[index as usize].clone(),
            path: MerklePath::new(block.txids(), index).expect("a position in the block"),
        };
        let other = (index > 0).then(|| show(index));
        Self { header: block.block().header, coinbase: show(0), other }
    }

    /// Creates the proof for the transaction at `index`, without witnesses, since the merkle root
    /// does not commit to them.
    pub(super) fn without_witness(block: &BoundBlock<'_>, index: u32) -> Self {
        let stripped = |TransactionInBlock { transaction, path }| TransactionInBlock {
            transaction: strip(transaction),
            path,
        };
        let Self { header, coinbase, other } = Self::new(block, index);
        Self { header, coinbase: stripped(coinbase), other: other.map(stripped) }
    }

    /// Creates the proof for the transaction at `index`, and its path in the merkle tree of the
    /// witness hashes.
    pub(super) fn with_witness(block: &BoundBlock<'_>, index: u32) -> (Self, MerklePath) {
        let path = MerklePath::new(&witness_leaves(block.block()), index);
        (Self::new(block, index), path.expect("a position in the block"))
    }

    /// Checks that the transaction is in the block `block_hash`, and returns the transaction.
    pub(super) fn check(
        &self,
        block_hash: BlockHash,
        network: Network,
    ) -> Result<&Transaction, ProofError> {
        let Self { header, coinbase, other } = self;
        let found = check_proof_of_work(header, network)?;
        if found != block_hash {
            return Err(ProofError::OtherBlock { expected: block_hash, found });
        }
        if !coinbase.transaction.is_coinbase() || coinbase.path.index != 0 {
            return Err(ProofError::NotTheCoinbase);
        }
        // The coinbase's path proves the height of the tree, which all paths must have.
        let height = coinbase.path.siblings.len();
        self.check_path(coinbase, height)?;
        let Some(other) = other else { return Ok(&coinbase.transaction) };
        // Position 0 belongs to the coinbase.
        if other.path.index == 0 {
            return Err(ProofError::NotTheCoinbase);
        }
        self.check_path(other, height)?;
        Ok(&other.transaction)
    }

    fn check_path(&self, shown: &TransactionInBlock, height: usize) -> Result<(), ProofError> {
        let root = root(&shown.path, shown.transaction.compute_txid(), height)?;
        if root == self.header.merkle_root {
            Ok(())
        } else {
            Err(ProofError::OtherRoot { path: root, header: self.header.merkle_root })
        }
    }

    /// Checks that no transaction has a witness, since the txids do not commit to witnesses.
    pub(super) fn check_without_witness(&self) -> Result<(), ProofError> {
        let shown = self.other.iter().chain([&self.coinbase]);
        match shown.map(|shown| &shown.transaction).find(|tx| has_witness(tx)) {
            Some(tx) => Err(ProofError::UnprovenWitness(tx.compute_txid())),
            None => Ok(()),
        }
    }

    /// Checks that the coinbase commits to the transaction's witness. [`check`](Self::check) must
    /// have accepted the proof before.
    pub(super) fn check_witness(
        &self,
        path: &MerklePath,
        network: Network,
    ) -> Result<(), ProofError> {
        let Self { coinbase, other, .. } = self;
        let other = other.as_ref().ok_or(ProofError::SpendsNothing)?;
        check_segwit_is_active(&coinbase.transaction, network)?;
        let committed = witness_commitment(&coinbase.transaction)
            .ok_or(ProofError::Block(BindError::NoWitnessCommitment))?;
        // BIP141: the witness of the coinbase is a single reserved value of 32 bytes.
        let witness = coinbase.transaction.input.first().map(|input| &input.witness);
        let reserved: [u8; 32] = witness
            .filter(|witness| witness.len() == 1)
            .and_then(|witness| witness.nth(0)?.try_into().ok())
            .ok_or(ProofError::WitnessCommitment)?;
        let leaf = Txid::from_raw_hash(other.transaction.compute_wtxid().to_raw_hash());
        // Both trees have the same shape and order, so the positions must be equal.
        if path.index != other.path.index {
            return Err(ProofError::WitnessPosition {
                witness: path.index,
                transaction: other.path.index,
            });
        }
        let root = root(path, leaf, other.path.siblings.len())?;
        let root = WitnessMerkleNode::from_raw_hash(root.to_raw_hash());
        if Block::compute_witness_commitment(&root, &reserved) == committed {
            Ok(())
        } else {
            Err(ProofError::WitnessCommitment)
        }
    }
}

fn root(path: &MerklePath, leaf: Txid, height: usize) -> Result<TxMerkleNode, PathError> {
    path.root_at_height(leaf, u32::try_from(height).unwrap_or(u32::MAX))
}

/// Returns the leaves of the merkle tree of the witness hashes. BIP141 sets the coinbase's leaf to
/// zeros.
fn witness_leaves(block: &Block) -> Vec<Txid> {
    let leaf = |tx: &Transaction| Txid::from_raw_hash(tx.compute_wtxid().to_raw_hash());
    [Txid::all_zeros()].into_iter().chain(block.txdata.iter().skip(1).map(leaf)).collect()
}

/// Returns the transaction without witnesses, as its id commits to it.
pub(super) fn strip(mut tx: Transaction) -> Transaction {
    for input in &mut tx.input {
        input.witness = Witness::new();
    }
    tx
}

pub(super) fn has_witness(tx: &Transaction) -> bool {
    tx.input.iter().any(|input| !input.witness.is_empty())
}
