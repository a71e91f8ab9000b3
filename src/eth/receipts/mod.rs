//! Receipts of a block, verified against the receipts root of its header.
//!
//! The receipts of a block can only be verified together: the root covers every receipt, and
//! leaving one out changes the root. [`BlockReceipts`] are read from any form that nodes send:
//! consensus RLP, the slim form of `eth/69` and of `.ere` files, JSON-RPC, and alloy's type.
//! [`verify`](BlockReceipts::verify) checks that these are the receipts of the block with a given
//! receipts root.
//!
//! [`VerifiedReceipts`] returns all logs of the block in order. [`VerifiedBlock`] returns the same
//! logs with their position in the chain. A [`ReceiptProof`] lets others verify a single receipt.
//!
//! Supported receipt types: legacy, 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844) and 4 (EIP-7702),
//! which all have the same fields. Feature `op` adds deposits of the OP stack (0x7e). A receipt of
//! any other type causes an error that names the type, unless a [`ReceiptsReader`] is told to read it.
//!
//! Sources: Yellow Paper 4.3.1; EIP-658 (status instead of post-state), EIP-2718 (types),
//! EIP-7642 (`eth/69`).

#[cfg(feature = "alloy-rpc")]
mod alloy_receipt;
mod blooms;
mod error;
mod json;
mod proof;
mod reader;
mod rlp;
mod verify;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::{B256, Log};

pub use error::{ProofError, ReceiptsError, VerifyError};
pub use proof::ReceiptProof;
pub use reader::{ReceiptLimits, ReceiptsReader, SingleReceipt, SingleReceipts};
pub use verify::{BloomAgreement, VerifiedBlock, VerifiedLog, VerifiedReceipts};

use crate::eth::bloom;

/// The type byte of deposit receipts on chains of the OP stack.
pub const DEPOSIT_TYPE: u8 = 0x7e;

/// The first field of a receipt: the result of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `true` if the transaction succeeded. Receipts have a status since Byzantium (EIP-658).
    Status(bool),
    /// Root of the state after the transaction, in receipts from before Byzantium.
    PostState(B256),
    /// The source gives neither status nor post-state. Some nodes no longer store post-states.
    Unknown,
}

/// One receipt of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Type of the transaction (EIP-2718), 0 for a legacy transaction.
    pub receipt_type: u8,
    /// Result of the transaction.
    pub outcome: Outcome,
    /// Gas used in the block up to and including this transaction.
    pub cumulative_gas_used: u64,
    /// The logs, in order.
    pub logs: Vec<Log>,
    /// The depositor's nonce. Only receipts of OP-stack deposits have this nonce, since the
    /// Regolith upgrade.
    pub deposit_nonce: Option<u64>,
    /// The version of a deposit receipt. Only receipts of OP-stack deposits have this version,
    /// since the Canyon upgrade. If the version is present, the receipts root covers the nonce and
    /// the version; otherwise the root covers neither.
    pub deposit_receipt_version: Option<u64>,
}

/// All receipts of a block as a source gives them, in the order of the transactions. Not verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockReceipts {
    entries: Vec<Entry>,
    /// Consensus encodings as received, concatenated or wrapped in an RLP list.
    raw: Vec<u8>,
    after_byzantium: bool,
    /// One element for each entry if the receipts were read from JSON-RPC; otherwise empty.
    claims: Vec<Claims>,
}

/// The position of a receipt, as a JSON-RPC source claims it.
///
/// The receipts root does not cover these values: compare them with values from another source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Claims {
    /// `blockHash`.
    pub block_hash: Option<B256>,
    /// `blockNumber`.
    pub block_number: Option<u64>,
    /// `transactionHash`.
    pub transaction_hash: Option<B256>,
    /// `logIndex` of each log, in order.
    pub log_indices: Vec<Option<u64>>,
}

/// A receipt and the source of its consensus encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    receipt: Receipt,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// The encoding was received: `encoding` is the range of the hashed bytes in `raw`, and `bloom`
    /// is the range of the receipt's filter in `raw`.
    Encoded { encoding: Range<usize>, bloom: Range<usize> },
    /// The encoding is built from the fields, with this filter or a filter computed from the logs.
    Fields { bloom: Option<Box<[u8; bloom::BYTES]>> },
}

impl BlockReceipts {
    /// Returns the receipts in the order of the transactions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Receipt> {
        self.entries.iter().map(|entry| &entry.receipt)
    }

    /// Returns the number of receipts.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there is no receipt, as in a block without transactions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the claimed position of each receipt, in the order of the transactions.
    ///
    /// Empty if the receipts were read from RLP.
    pub fn claims(&self) -> &[Claims] {
        &self.claims
    }

    /// Declares that the block is from Byzantium (EIP-658, mainnet block 4,370,000) or later.
    ///
    /// Receipts of earlier blocks have post-states, which many nodes no longer store. Some honest
    /// nodes send a status instead, and then the computed root differs from the header's root. If
    /// such statuses can be the reason for a wrong root, [`verify`](Self::verify) returns
    /// [`VerifyError::PostStatesMayBeMissing`]. A caller of this function declares that such
    /// statuses can't be the reason for a wrong root.
    #[must_use]
    pub fn after_byzantium(self) -> Self {
        Self { after_byzantium: true, ..self }
    }
}
