//! What can be wrong with receipts, with their root, and with a proof.

use alloc::string::String;

use alloy_primitives::B256;

/// Why bytes or JSON are not the receipts of a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptsError {
    /// The bytes are not an RLP list.
    #[error("the receipts are not an RLP list: {0}")]
    NotAList(alloy_rlp::Error),
    /// Bytes stand behind the list of receipts.
    #[error("{0} bytes behind the receipts")]
    TrailingBytes(usize),
    /// A field is not what belongs there.
    #[error("receipt {receipt}: {field}: {error}")]
    Field {
        /// Index of the receipt.
        receipt: usize,
        /// Name of the field, as in JSON-RPC; `receipt` for the receipt as a whole.
        field: &'static str,
        /// What `alloy_rlp` says.
        error: alloy_rlp::Error,
    },
    /// Bytes stand behind a receipt, or behind its last field.
    #[error("receipt {receipt}: {bytes} bytes behind its end")]
    Behind {
        /// Index of the receipt.
        receipt: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// A receipt is of a type that is not known here, so that its encoding is not either.
    #[error("receipt {receipt} is of the unknown type {receipt_type:#04x}")]
    UnknownType {
        /// Index of the receipt.
        receipt: usize,
        /// The type byte.
        receipt_type: u8,
    },
    /// Not JSON, or a field is missing, twice there or malformed; the text names receipt, field,
    /// line and column.
    #[error("{0}")]
    Json(String),
    /// A receipt without the index of its transaction, which is in no block.
    #[error("receipt {receipt} has no transactionIndex")]
    NoIndex {
        /// Which of the receipts given, from 0.
        receipt: usize,
    },
    /// No receipt has this index, though there are enough receipts for it.
    #[error("transactionIndex {transaction_index} is missing among {receipts} receipts")]
    Missing {
        /// The index.
        transaction_index: u64,
        /// How many receipts there are.
        receipts: usize,
    },
    /// Two receipts have the same index.
    #[error("transactionIndex {transaction_index} twice")]
    Twice {
        /// The index.
        transaction_index: u64,
    },
}

/// Why receipts could not be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// They are not, or not all, the receipts of a block with this root.
    #[error("{receipts} receipts have the root {computed}, the header says {expected}")]
    RootMismatch {
        /// How many receipts there are.
        receipts: usize,
        /// Their root.
        computed: B256,
        /// The root to be.
        expected: B256,
    },
    /// The source gives neither status nor post-state of a receipt: its encoding can't be rebuilt.
    /// This says nothing against the source.
    #[error("undecidable: receipt {receipt} has neither status nor post-state")]
    NoOutcome {
        /// Index of the receipt.
        receipt: usize,
    },
    /// The root is another, but all receipts that have a status are legacy ones, and in a block
    /// before Byzantium their source may have put it in the place of post-states. This says
    /// nothing against the source; see
    /// [`after_byzantium`](super::BlockReceipts::after_byzantium).
    #[error(
        "undecidable: the root of the receipts is {computed} instead of {expected}, as it is if the source has dropped the post-states of a block before Byzantium"
    )]
    PostStatesMayBeMissing {
        /// The root of the receipts as they are.
        computed: B256,
        /// The root to be.
        expected: B256,
    },
}

impl VerifyError {
    /// Whether an honest source may cause it.
    pub const fn is_undecidable(&self) -> bool {
        !matches!(self, Self::RootMismatch { .. })
    }
}

/// Why a proof does not prove its receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// A node has another hash than the one that leads to it.
    #[error("node {node} hashes to {computed}, not to {expected}")]
    Hash {
        /// Index of the node.
        node: usize,
        /// Its hash.
        computed: B256,
        /// The hash in the node before, or the root.
        expected: B256,
    },
    /// A node is not a node of a trie.
    #[error("node {node} is malformed: {error}")]
    Malformed {
        /// Index of the node.
        node: usize,
        /// What `alloy_rlp` says.
        error: alloy_rlp::Error,
    },
    /// A node leads away from the receipt, or ends in another way than by a leaf.
    #[error("node {node} does not lead to receipt {transaction_index}")]
    Path {
        /// Index of the node.
        node: usize,
        /// The receipt's index.
        transaction_index: u64,
    },
    /// No leaf at the end.
    #[error("{nodes} nodes end before the receipt")]
    TooShort {
        /// How many nodes there are.
        nodes: usize,
    },
    /// Nodes behind the leaf.
    #[error("{nodes} nodes, the leaf is the {leaf}th")]
    TooLong {
        /// How many nodes there are.
        nodes: usize,
        /// Which of them is the leaf, from 1.
        leaf: usize,
    },
    /// What is proven is not a receipt that is understood.
    #[error(transparent)]
    Receipt(ReceiptsError),
}
