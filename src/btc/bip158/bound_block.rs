//! A block that is verified to be the block that its header commits to.

use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{
    Block, BlockHash, Network, Script, Transaction, TxIn, TxMerkleNode, Txid, WitnessCommitment,
};
use thiserror::Error;

use crate::btc::merkle_tree::merkle_root;
use crate::btc::names::names;
use crate::btc::proof_of_work::{ProofOfWorkError, check_proof_of_work};

/// A block that is verified to be what its header commits to. The sender cannot have changed any
/// byte on which an audit relies.
///
/// Two things are not checked: that the header is in the chain, and that the transactions are
/// valid. If the expected block hash comes from a validated header chain, the header is in that
/// chain. The proof of work of a header shows that a miner committed to these transactions, at the
/// cost of that work. It does not show that the transactions are valid: only a node that checks all
/// blocks and their scripts knows that.
#[derive(Debug, Clone)]
pub struct BoundBlock<'a> {
    block: &'a Block,
    block_hash: BlockHash,
    network: Network,
    txids: Vec<Txid>,
    witnesses: Witnesses,
}

/// State of a block's witnesses. The txids and the merkle root do not commit to witnesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witnesses {
    /// The block has no witnesses, and either its coinbase commits to none or the block is from
    /// before segwit.
    None,
    /// The block has witnesses, and they match the commitment in the coinbase.
    Committed,
    /// The block has no witnesses, although its coinbase commits to some. A peer sends a block
    /// without witnesses when it is asked for a block instead of a witness block.
    Stripped,
}

names! {
    Witnesses, "a state of witnesses":
    None = "none",
    Committed = "committed",
    Stripped = "stripped",
}

impl<'a> BoundBlock<'a> {
    /// Checks that `block` is the block with the hash `expected`. The witnesses may be missing:
    /// [`witnesses`](Self::witnesses) reports their absence. All bytes that are present are
    /// checked.
    ///
    /// The checks, in this order: the header's hash, its proof of work, a coinbase transaction in
    /// the first position and nowhere else, the merkle root, no duplicate transaction
    /// (CVE-2012-2459), and the witness commitment if there is any witness.
    ///
    /// Transactions of 64 bytes are accepted after the coinbase transaction, as in Bitcoin Core's
    /// `IsBlockMutated`, because honest blocks may contain them. To pass off inner nodes of the
    /// merkle tree as transactions, or the reverse (CVE-2017-12842), an attacker needs a whole
    /// level of such nodes. The first of these nodes would have to be a coinbase transaction, which
    /// fixes 224 of its bits.
    ///
    /// # Errors
    /// Returns an error for the first check that fails. Blocks of the chain pass all checks.
    ///
    /// # Cost
    /// Computes the id of each transaction once; with witnesses, also the hashes with witness.
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
        // The inputs of a second coinbase spend no outputs, so no scripts could be found for them.
        if let Some(index) = block.txdata.iter().skip(1).position(Transaction::is_coinbase) {
            return Err(BindError::SecondCoinbase(index + 1));
        }
        let txids: Vec<Txid> = block.txdata.iter().map(Transaction::compute_txid).collect();
        let root = merkle_root(&txids).ok_or(BindError::TransactionCount(txids.len()))?;
        if root != block.header.merkle_root {
            return Err(BindError::MerkleRoot { block: root, header: block.header.merkle_root });
        }
        // The merkle tree repeats the last node of an odd level, so a list with repeated
        // transactions can have the same root (CVE-2012-2459).
        let mut sorted = txids.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(BindError::DuplicateTransaction(pair[0]));
        }
        let witnesses = check_witnesses(block, coinbase, network)?;
        Ok(Self { block, block_hash: expected, network, txids, witnesses })
    }

    /// Returns the block that was passed to [`bind`](Self::bind).
    ///
    /// The header has the expected hash and its proof of work, and commits to the transactions. The
    /// first transaction is the only coinbase, and no transaction occurs twice. The method
    /// [`witnesses`](Self::witnesses) returns the state of the witnesses. Scripts, signatures and
    /// amounts are not checked.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    /// Returns the hash of the block.
    pub fn block_hash(&self) -> BlockHash {
        self.block_hash
    }

    /// Returns the network by whose rules the block was checked.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Returns the ids of the transactions, in block order.
    pub fn txids(&self) -> &[Txid] {
        &self.txids
    }

    /// Returns the state of the witnesses.
    pub fn witnesses(&self) -> Witnesses {
        self.witnesses
    }

    /// Iterates over the inputs that spend outputs, without the coinbase input: position of the
    /// transaction, position of the input in it, and the input.
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

/// Returns an error if the coinbase states a height from before segwit.
///
/// No block before segwit has a witness, whatever its coinbase commits to: some miners added
/// commitments before commitments had any effect. On mainnet and testnet3, BIP34 made the height in
/// the coinbase reliable long before segwit. Blocks before BIP34 may state a false height, but none
/// of them commits to witnesses.
pub(super) fn check_segwit_is_active(
    coinbase: &Transaction,
    network: Network,
) -> Result<(), BindError> {
    // `SegwitHeight` of Core's chainparams.cpp. Networks other than mainnet and testnet3 have had
    // segwit from the start.
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

/// Returns the height at the start of a coinbase script (BIP34) if it is encoded in three bytes,
/// which is the case from 32,768 to 8,388,607.
fn coinbase_height(coinbase: &Transaction) -> Option<u32> {
    match coinbase.input.first()?.script_sig.as_bytes() {
        &[3, low, middle, high @ ..0x80, ..] => {
            let height = u32::from_le_bytes([low, middle, high, 0]);
            (height > 0x7fff).then_some(height)
        }
        _ => None,
    }
}

/// Returns the witness commitment of the coinbase transaction: Core's `GetWitnessCommitmentIndex`.
pub(super) fn witness_commitment(coinbase: &Transaction) -> Option<WitnessCommitment> {
    let hash = |script: &Script| match script.as_bytes() {
        [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed, rest @ ..] => rest.first_chunk().copied(),
        _ => None,
    };
    let hash = coinbase.output.iter().rev().find_map(|output| hash(&output.script_pubkey))?;
    Some(WitnessCommitment::from_byte_array(hash))
}

/// Reason why a block is not proven to belong to its header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The header is that of another block.
    #[error("found block {found}, expected {expected}")]
    OtherBlock {
        /// The expected block hash.
        expected: BlockHash,
        /// The hash of the given block's header.
        found: BlockHash,
    },
    /// The header's proof of work is invalid.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// The block has no transactions, or the first is not a coinbase. A first transaction of 64
    /// bytes may be an inner node of the merkle tree.
    #[error("the first transaction is not a coinbase transaction")]
    NoCoinbase,
    /// A transaction other than the first is a coinbase.
    #[error("transaction {0} is a coinbase transaction, only the first can be")]
    SecondCoinbase(usize),
    /// The block has more transactions than any valid block.
    #[error(
        "{0} transactions, the limit is {max}",
        max = crate::btc::merkle_tree::MAX_BLOCK_TRANSACTIONS
    )]
    TransactionCount(usize),
    /// The transactions are not those that the header commits to.
    #[error("the transactions' merkle root is {block}, but the header's root is {header}")]
    MerkleRoot {
        /// The merkle root of the transactions.
        block: TxMerkleNode,
        /// The merkle root in the header.
        header: TxMerkleNode,
    },
    /// A transaction occurs twice, which can leave the merkle root unchanged (CVE-2012-2459).
    #[error("transaction {0} occurs twice")]
    DuplicateTransaction(Txid),
    /// A block from before segwit has a witness.
    #[error(
        "a witness in a block of height {}, segwit starts at height {segwit}",
        height.map_or_else(|| "unknown".into(), |height| alloc::string::ToString::to_string(&height))
    )]
    WitnessBeforeSegwit {
        /// The height that the coinbase states, if any.
        height: Option<u32>,
        /// The first height with segwit.
        segwit: u32,
    },
    /// The block has a witness, but its coinbase does not commit to witnesses.
    #[error("the block has a witness, but its coinbase has no witness commitment")]
    NoWitnessCommitment,
    /// The witnesses are not those that the coinbase commits to.
    #[error("the witnesses are not those that the coinbase transaction commits to")]
    WitnessCommitment,
}
