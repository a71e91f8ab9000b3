//! Errors of decoding receipts, of verifying them against a root, and of verifying a proof.

use alloc::string::String;

use alloy_primitives::B256;

/// Error of decoding the receipts of a block from RLP or JSON.
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
}

/// Reason why receipts could not be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The given receipts are not exactly the receipts of a block with this root.
    #[error("{receipts} receipts have the root {computed}, the header has {expected}")]
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
    /// The root differs, perhaps because receipts of an unknown type have other fields than those of all
    /// known types. An honest source can cause this error.
    #[error(
        "undecidable: receipt {receipt} is of the unknown type {receipt_type:#04x}, and the receipts have the root {computed}, the header has {expected}"
    )]
    UnknownType {
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
    /// cause this error; see [`after_byzantium`](super::BlockReceipts::after_byzantium).
    #[error(
        "undecidable: the receipts have the root {computed}, the header has {expected}; the source may no longer store the post-states of a block before Byzantium"
    )]
    PostStatesMayBeMissing {
        /// Computed root of the receipts as given.
        computed: B256,
        /// The receipts root in the header.
        expected: B256,
    },
}

impl VerifyError {
    /// Returns `true` if an honest source can cause this error.
    pub const fn is_undecidable(&self) -> bool {
        !matches!(self, Self::RootMismatch { .. })
    }
}

/// Reason why a proof does not prove its receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
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
    /// The leaf contains no valid receipt of a known type.
    #[error(transparent)]
    Receipt(ReceiptsError),
}
