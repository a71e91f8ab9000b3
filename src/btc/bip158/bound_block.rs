//! A block shown to be the one of its header, and what of its witnesses is.

use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{
    Block, BlockHash, Network, Script, Transaction, TxIn, TxMerkleNode, Txid, WitnessCommitment,
};
use thiserror::Error;

use crate::btc::merkle_tree::merkle_root;
use crate::btc::proof_of_work::{ProofOfWorkError, check_proof_of_work};

/// A block that was checked to be what its header commits to, so that whoever sent it could not
/// have changed a byte of what is used of it.
///
/// What is not checked is whether the header is in the chain, and whether the transactions are
/// valid: a header hash that comes from a chain of headers stands for both.
#[derive(Debug, Clone)]
pub struct BoundBlock<'a> {
    block: &'a Block,
    block_hash: BlockHash,
    network: Network,
    txids: Vec<Txid>,
    witnesses: Witnesses,
}

/// What is known of a block's witnesses, which its txids and merkle root say nothing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witnesses {
    /// There are none, and the coinbase commits to none, or the block is from before segwit.
    None,
    /// There are some, and they are those that the coinbase commits to.
    Committed,
    /// There are none, though the coinbase commits to some: the block was sent without. A peer
    /// does that if it is asked for a block and not for a witness block.
    Stripped,
}

impl<'a> BoundBlock<'a> {
    /// Checks that `block` is the one with the hash `expected`, down to the last byte; or all of
    /// it but the witnesses, which [`witnesses`](Self::witnesses) then says.
    ///
    /// In this order: the header's hash, its proof of work, a coinbase transaction in the first
    /// place and nowhere else, the merkle root, no transaction twice (CVE-2012-2459), and the
    /// witness commitment wherever there is a witness.
    ///
    /// Transactions of 64 bytes are let pass behind a coinbase transaction, as Bitcoin Core's
    /// `IsBlockMutated` does: honest blocks may have them. That inner nodes of the merkle tree are
    /// passed off as such transactions, or such transactions as inner nodes (CVE-2017-12842), takes
    /// a whole level of them, and the first would be a coinbase transaction, of which 224 bits are
    /// given.
    ///
    /// # Errors
    /// The first check that fails. No block that is in the chain fails one.
    ///
    /// # Cost
    /// The ids of all transactions, once; with witnesses, those with the witness too.
    pub fn bind(
        block: &'a Block,
        expected: BlockHash,
        network: Network,
    ) -> Result<Self, BindError> {
        let found = block.header.block_hash();
        if found != expected {
            return Err(BindError::OtherBlock { expected, found });
        }
        check_proof_of_work(&block.header, network)?;
        let coinbase = block.txdata.first().filter(|tx| tx.is_coinbase());
        let coinbase = coinbase.ok_or(BindError::NoCoinbase)?;
        if let Some(index) = block.txdata.iter().skip(1).position(Transaction::is_coinbase) {
            return Err(BindError::SecondCoinbase(index + 1));
        }
        let txids: Vec<Txid> = block.txdata.iter().map(Transaction::compute_txid).collect();
        let root = merkle_root(&txids).ok_or(BindError::TransactionCount(txids.len()))?;
        if root != block.header.merkle_root {
            return Err(BindError::MerkleRoot { block: root, header: block.header.merkle_root });
        }
        let mut sorted = txids.clone();
        sorted.sort_unstable();
        if let Some([txid, _]) = sorted.array_windows().find(|[a, b]| a == b) {
            return Err(BindError::DuplicateTransaction(*txid));
        }
        let witnesses = check_witnesses(block, coinbase, network)?;
        Ok(Self { block, block_hash: expected, network, txids, witnesses })
    }

    /// The block.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    /// Its hash.
    pub fn block_hash(&self) -> BlockHash {
        self.block_hash
    }

    /// The network whose rules it was checked by.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The ids of its transactions, in their order.
    pub fn txids(&self) -> &[Txid] {
        &self.txids
    }

    /// What is known of its witnesses.
    pub fn witnesses(&self) -> Witnesses {
        self.witnesses
    }

    /// The inputs that spend outputs, without the coinbase's: position of the transaction, of the
    /// input in it, and the input.
    pub(super) fn spending_inputs(&self) -> impl Iterator<Item = (u32, u32, &'a TxIn)> {
        let block = self.block;
        (0..).zip(&block.txdata).skip(1).flat_map(|(index, tx)| {
            (0..).zip(&tx.input).map(move |(vin, input)| (index, vin, input))
        })
    }
}

fn check_witnesses(
    block: &Block,
    coinbase: &Transaction,
    network: Network,
) -> Result<Witnesses, BindError> {
    let commitment = witness_commitment(coinbase);
    let is_active = check_segwit_is_active(coinbase, network);
    if block.txdata.iter().flat_map(|tx| &tx.input).all(|input| input.witness.is_empty()) {
        let is_stripped = commitment.is_some() && is_active.is_ok();
        return Ok(if is_stripped { Witnesses::Stripped } else { Witnesses::None });
    }
    is_active?;
    if commitment.is_none() {
        return Err(BindError::NoWitnessCommitment);
    }
    if !block.check_witness_commitment() {
        return Err(BindError::WitnessCommitment);
    }
    Ok(Witnesses::Committed)
}

/// Refuses a block whose coinbase says that it is from before segwit.
///
/// No such block has a witness, whatever its coinbase commits to: some miners committed before
/// that counted for anything. On mainnet and testnet3, heights in a coinbase are the true ones
/// long before segwit (BIP34); before BIP34, when they were not, nobody committed to witnesses.
pub(super) fn check_segwit_is_active(
    coinbase: &Transaction,
    network: Network,
) -> Result<(), BindError> {
    // `SegwitHeight` of Core's chainparams.cpp. The others have had segwit from the start.
    let segwit = match network {
        Network::Bitcoin => 481_824,
        Network::Testnet => 834_624,
        _ => return Ok(()),
    };
    match coinbase_height(coinbase) {
        Some(height) if height >= segwit => Ok(()),
        height => Err(BindError::WitnessBeforeSegwit { height, segwit }),
    }
}

/// The height that a coinbase transaction starts with (BIP34), if it is in three bytes: that is
/// any from 32,768 to 8,388,607.
fn coinbase_height(coinbase: &Transaction) -> Option<u32> {
    match coinbase.input.first()?.script_sig.as_bytes() {
        &[3, low, middle, high @ ..0x80, ..] => {
            let height = u32::from_le_bytes([low, middle, high, 0]);
            (height > 0x7fff).then_some(height)
        }
        _ => None,
    }
}

/// What the coinbase transaction commits to: Core's `GetWitnessCommitmentIndex`.
pub(super) fn witness_commitment(coinbase: &Transaction) -> Option<WitnessCommitment> {
    let hash = |script: &Script| match script.as_bytes() {
        [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed, rest @ ..] => rest.first_chunk().copied(),
        _ => None,
    };
    let hash = coinbase.output.iter().rev().find_map(|output| hash(&output.script_pubkey))?;
    Some(WitnessCommitment::from_byte_array(hash))
}

/// Why a block is not shown to be the one of its header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The header of another block.
    #[error("block {found}, asked for {expected}")]
    OtherBlock {
        /// The hash asked for.
        expected: BlockHash,
        /// The hash of the block's header.
        found: BlockHash,
    },
    /// The header's proof of work.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// No transactions, or the first is no coinbase transaction: it may be an inner node of the
    /// merkle tree, if it has 64 bytes.
    #[error("the first transaction is not a coinbase transaction")]
    NoCoinbase,
    /// A coinbase transaction that is not the first.
    #[error("transaction {0} is a coinbase transaction, only the first can be")]
    SecondCoinbase(usize),
    /// More transactions than a block can have.
    #[error(
        "{0} transactions, the limit is {max}",
        max = crate::btc::merkle_tree::MAX_BLOCK_TRANSACTIONS
    )]
    TransactionCount(usize),
    /// Not the transactions that the header commits to.
    #[error("the transactions' merkle root is {block}, the header's {header}")]
    MerkleRoot {
        /// The root over the transactions.
        block: TxMerkleNode,
        /// The root in the header.
        header: TxMerkleNode,
    },
    /// A transaction twice, which leaves the merkle root as it was (CVE-2012-2459).
    #[error("transaction {0} is there twice")]
    DuplicateTransaction(Txid),
    /// A witness in a block from before segwit.
    #[error(
        "a witness in a block of height {}, the least is {segwit}",
        height.map_or_else(|| "unknown".into(), |height| alloc::string::ToString::to_string(&height))
    )]
    WitnessBeforeSegwit {
        /// The height that the coinbase transaction says, if any.
        height: Option<u32>,
        /// The first height with segwit.
        segwit: u32,
    },
    /// A witness, and no commitment to it in the coinbase transaction.
    #[error("a witness, and no commitment in the coinbase transaction")]
    NoWitnessCommitment,
    /// Not the witnesses that the coinbase transaction commits to.
    #[error("the witnesses are not those that the coinbase transaction commits to")]
    WitnessCommitment,
}
