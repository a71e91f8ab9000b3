//! Receipts of a block, verified against the receipts root of its header.
//!
//! The receipts of a block can only be verified together: the root covers every receipt, and the
//! root changes if one receipt is left out. [`BlockReceipts`] are read from any form that nodes
//! send: consensus RLP, the slim form of `eth/69` and of `.ere` files, JSON-RPC, and alloy's type.
//! [`verify`](BlockReceipts::verify) checks that these are the receipts of the block with a given
//! receipts root.
//!
//! [`VerifiedReceipts`] returns all logs of the block in order. [`VerifiedBlock`] returns the same
//! logs with their position in the chain. A [`ReceiptProof`] lets others verify a single receipt.
//!
//! Supported receipt types: legacy, 1 (EIP-2930), 2 (EIP-1559), 3 (EIP-4844) and 4 (EIP-7702), which
//! all have the same fields. Feature `op` adds deposits of the OP stack (0x7e). A receipt of any other
//! type causes an error that names the type, unless a [`ReceiptsReader`] reads [any
//! type](ReceiptsReader::any_type).
//!
//! Sources: Yellow Paper 4.3.1; EIP-658 (status instead of post-state), EIP-2718 (types),
//! EIP-7642 (`eth/69`).

pub(super) mod json;
mod proof;
pub(super) mod reader;
pub(super) mod rlp;
mod verify;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::{B256, Log};

use crate::eth::bloom;

pub use proof::ReceiptProof;
pub use reader::{ReceiptLimits, ReceiptsReader, SingleReceipts};
pub use verify::{BloomAgreement, VerifiedBlock, VerifiedLog, VerifiedReceipts};

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
    entries: Vec<ReceiptEntry>,
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
pub(super) struct ReceiptEntry {
    pub(super) receipt: Receipt,
    pub(super) form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
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
    /// nodes send a status instead of the post-state, and then the computed root differs from the
    /// header's root. If such statuses can be the reason for a wrong root, [`verify`](Self::verify)
    /// returns [`ReceiptsError::PostStatesMayBeMissing`]. A caller of this function declares that
    /// such statuses cannot be the reason for a wrong root.
    #[must_use]
    pub fn after_byzantium(self) -> Self {
        Self { after_byzantium: true, ..self }
    }
}

/// Error of decoding the receipts of a block from RLP or JSON, or of verifying receipts or the proof of
/// one receipt against a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptsError {
    /// The bytes are not an RLP list.
    #[error("the receipts are not an RLP list: {0}")]
    NotAList(alloy_rlp::Error),
    /// Trailing bytes follow the list of receipts.
    #[error("{0} trailing bytes after the receipts")]
    TrailingBytes(usize),
    /// A field is malformed.
    #[error("receipt {receipt}: {field}: {error}")]
    Field {
        /// Index of the receipt.
        receipt: usize,
        /// Name of the field in JSON-RPC, or `receipt` for the receipt as a whole.
        field: &'static str,
        /// The error of `alloy_rlp`.
        error: alloy_rlp::Error,
    },
    /// Trailing bytes follow a receipt or its last field.
    #[error("receipt {receipt}: {bytes} trailing bytes after its end")]
    Behind {
        /// Index of the receipt.
        receipt: usize,
        /// Number of trailing bytes.
        bytes: usize,
    },
    /// A receipt has an unknown type, whose encoding is unknown too.
    #[error("receipt {receipt} is of the unknown type {receipt_type:#04x}")]
    UnknownType {
        /// Index of the receipt.
        receipt: usize,
        /// The type byte.
        receipt_type: u8,
    },
    /// The text is not JSON, or a field is missing, duplicate or malformed. The message names the
    /// receipt, the field, the line and the column.
    #[error("{0}")]
    Json(String),
    /// A receipt lacks the index of its transaction, so the transaction is not in a block.
    #[error("receipt {receipt} has no transactionIndex")]
    NoIndex {
        /// Index of the receipt among the given receipts, from 0.
        receipt: usize,
    },
    /// No receipt has the missing index, but another receipt has a higher index.
    #[error("transactionIndex {transaction_index} is missing among {receipts} receipts")]
    Missing {
        /// The missing index.
        transaction_index: u64,
        /// Number of receipts given.
        receipts: usize,
    },
    /// Two receipts have the same index.
    #[error("duplicate transactionIndex {transaction_index}")]
    Twice {
        /// The index that occurs twice.
        transaction_index: u64,
    },
    /// The given receipts are not exactly the receipts of a block with this root.
    #[error("{receipts} receipts have the root {computed}, but the header has {expected}")]
    RootMismatch {
        /// Number of receipts given.
        receipts: usize,
        /// Computed root of the receipts.
        computed: B256,
        /// The receipts root in the header.
        expected: B256,
    },
    /// The source gives neither status nor post-state of a receipt, so its encoding cannot be
    /// rebuilt. An honest source can cause this error.
    #[error("undecidable: receipt {receipt} has neither status nor post-state")]
    NoOutcome {
        /// Index of the receipt.
        receipt: usize,
    },
    /// The root differs, perhaps because receipts of an unknown type have other fields than receipts of
    /// known types. An honest source can cause this error.
    #[error(
        "undecidable: receipt {receipt} is of the unknown type {receipt_type:#04x}, and the receipts have the root {computed}, but the header has {expected}"
    )]
    RootOfUnknownType {
        /// Index of the first such receipt.
        receipt: usize,
        /// Its type byte.
        receipt_type: u8,
        /// Computed root of the receipts.
        computed: B256,
        /// The receipts root in the header.
        expected: B256,
    },
    /// The root differs, perhaps because the source gave statuses in place of post-states.
    ///
    /// All receipts are legacy receipts, so the block may precede Byzantium. An honest source can
    /// cause this error; see [`after_byzantium`](BlockReceipts::after_byzantium).
    #[error(
        "undecidable: the receipts have the root {computed}, but the header has {expected}; the source may no longer store the post-states of a block before Byzantium"
    )]
    PostStatesMayBeMissing {
        /// Computed root of the receipts as given.
        computed: B256,
        /// The receipts root in the header.
        expected: B256,
    },
    /// A node does not have the hash that its parent or the root commits to.
    #[error("node {node} hashes to {computed}, not to {expected}")]
    Hash {
        /// Index of the node in the proof, from 0.
        node: usize,
        /// Hash of the node.
        computed: B256,
        /// The hash in the preceding node, or the root for the first node.
        expected: B256,
    },
    /// A node is not a valid trie node.
    #[error("node {node} is malformed: {error}")]
    Malformed {
        /// Index of the node.
        node: usize,
        /// The error of `alloy_rlp`.
        error: alloy_rlp::Error,
    },
    /// The path from a node of the trie does not lead to the receipt.
    #[error("node {node} does not lead to receipt {transaction_index}")]
    Path {
        /// Index of the node.
        node: usize,
        /// Index of the receipt.
        transaction_index: u64,
    },
    /// The proof ends before the leaf.
    #[error("the proof ends after {nodes} nodes, before the receipt")]
    TooShort {
        /// Number of nodes in the proof.
        nodes: usize,
    },
    /// Nodes follow the leaf.
    #[error("{nodes} nodes, but the leaf is node number {leaf}")]
    TooLong {
        /// Number of nodes in the proof.
        nodes: usize,
        /// Number of the node that is the leaf, from 1.
        leaf: usize,
    },
}

impl ReceiptsError {
    /// Returns `true` if an honest source can cause this error. Every other error shows that the receipts, or
    /// the proof of a receipt, do not belong to the header.
    pub const fn is_undecidable(&self) -> bool {
        matches!(
            self,
            Self::NoOutcome { .. }
                | Self::RootOfUnknownType { .. }
                | Self::PostStatesMayBeMissing { .. }
        )
    }
}
