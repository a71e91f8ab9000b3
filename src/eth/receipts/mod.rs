//! Receipts of a block, under the receipts root of its header.
//!
//! Receipts are all or nothing: the root covers every receipt of the block, and one that is left
//! out changes it. So [`BlockReceipts`] are read from whatever a node sends (consensus RLP, the
//! slim form of `eth/69` and of `.ere` files, JSON-RPC and alloy's type of it), and [`verify`](BlockReceipts::verify)
//! says whether they are the block's. From [`VerifiedReceipts`] come the block's logs, all of
//! them and in order, from [`VerifiedBlock`] the same with their place in the chain, and a [`ReceiptProof`] of any single receipt for others to verify.
//!
//! Types of receipts: legacy, 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844), 4 (EIP-7702), which all
//! hold the same fields; with feature `op` deposits of the OP stack (0x7e). Another type is an
//! error that names it, never a guess.
//!
//! Sources: Yellow Paper 4.3.1; EIP-658 (status instead of post-state), EIP-2718 (types),
//! EIP-7642 (`eth/69`).

#[cfg(feature = "alloy-rpc")]
mod alloy_receipt;
mod blooms;
mod error;
mod json;
mod proof;
mod rlp;
mod verify;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::{B256, Log};

pub use error::{ProofError, ReceiptsError, VerifyError};
pub use proof::ReceiptProof;
pub use verify::{BloomAgreement, VerifiedBlock, VerifiedLog, VerifiedReceipts};

use crate::eth::bloom;

/// The type byte of deposits on chains of the OP stack.
pub const DEPOSIT_TYPE: u8 = 0x7e;

/// What a receipt says of the transaction's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Whether the transaction succeeded: Byzantium (EIP-658) and later.
    Status(bool),
    /// Root of the state after the transaction: before Byzantium.
    PostState(B256),
    /// The source has neither, as nodes do that drop post-states.
    Unknown,
}

/// One receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Type of the transaction (EIP-2718), 0 for legacy ones.
    pub receipt_type: u8,
    /// Result of the transaction.
    pub outcome: Outcome,
    /// Gas used in the block up to the end of this transaction.
    pub cumulative_gas_used: u64,
    /// The logs, in order.
    pub logs: Vec<Log>,
    /// Of a deposit on the OP stack: the depositor's nonce, from Regolith on.
    pub deposit_nonce: Option<u64>,
    /// Of a deposit on the OP stack: the version, from Canyon on. Where it is there, the root
    /// covers nonce and version; where it is not, the root covers neither.
    pub deposit_receipt_version: Option<u64>,
}

/// All receipts of a block as a source gives them, in the order of the transactions. Nothing of
/// them is verified by being here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockReceipts {
    entries: Vec<Entry>,
    /// Consensus encodings as received, one behind the other or with list headers between.
    raw: Vec<u8>,
    after_byzantium: bool,
    /// One for each entry, or none at all.
    claims: Vec<Claims>,
}

/// What JSON-RPC says of a receipt's place. No receipts root covers it: to be compared with what
/// is known otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// `blockHash`.
    pub block_hash: Option<B256>,
    /// `blockNumber`.
    pub block_number: Option<u64>,
    /// `transactionHash`.
    pub transaction_hash: Option<B256>,
    /// `logIndex` of each log.
    pub log_indices: Vec<Option<u64>>,
}

/// A receipt and what its encoding is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    receipt: Receipt,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// The encoding as received, in `raw`: what is hashed, and where its filter is.
    Encoded { encoding: Range<usize>, bloom: Range<usize> },
    /// To be encoded from the fields, with this filter or the one of the logs.
    Fields { bloom: Option<Box<[u8; bloom::BYTES]>> },
}

impl BlockReceipts {
    /// The receipts, in the order of the transactions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Receipt> {
        self.entries.iter().map(|entry| &entry.receipt)
    }

    /// How many receipts there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no receipt, as in a block without transactions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What JSON says of the place of each receipt, in the order of the transactions; empty if the
    /// receipts came as RLP.
    pub fn claims(&self) -> &[Claims] {
        &self.claims
    }

    /// The same receipts, of a block that is known to be from Byzantium (EIP-658) or later, on
    /// mainnet 4,370,000.
    ///
    /// Receipts of earlier blocks hold post-states, which many nodes have dropped; some send a
    /// status in their place. So another root is [`VerifyError::PostStatesMayBeMissing`] where
    /// that may be the reason, unless it is ruled out here.
    #[must_use]
    pub fn after_byzantium(self) -> Self {
        Self { after_byzantium: true, ..self }
    }
}
