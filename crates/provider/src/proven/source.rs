//! Where blocks come from: the disk and the nodes. Reasons why neither has a part of a block.

use std::fmt;
use std::sync::Arc;

use chainsieve::alloy_primitives::{B256, Bytes, U256};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::transactions::ClaimedTransactions;

use super::observer::Observer;
use super::store::{Kind, Store};
use crate::node::Node;
use crate::nodes::Unanswered;

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Header,
    Receipts,
    Transactions,
    Withdrawals,
    Ommers,
}

impl Part {
    /// Returns a word for programs, which says that nobody has the part.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Header => "no_headers",
            Self::Receipts => "no_receipts",
            Self::Transactions => "no_transactions",
            Self::Withdrawals => "no_withdrawals",
            Self::Ommers => "no_ommers",
        }
    }

    /// Says of one node that it does not have the part.
    const fn absent(self) -> &'static str {
        match self {
            Self::Header => "the node does not have the header",
            Self::Receipts => "the node does not have the receipts",
            Self::Transactions | Self::Withdrawals => "the node does not have the block",
            Self::Ommers => "the node does not have the ommers of the header",
        }
    }
}

/// A part of a block that is not proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) block: BlockRef,
    pub(crate) part: Part,
    /// Reasons, one for each node that was asked.
    pub(crate) why: Vec<String>,
    /// The hashes that a node claims, if it is only for transactions of an unknown type that they are not
    /// proven.
    pub(super) claimed: Option<Arc<ClaimedHashes>>,
}

/// Hashes of the transactions of a block, as a node claims them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimedHashes {
    pub(super) hashes: Vec<B256>,
    /// Index and type of the transactions whose type is unknown, of which there is at least one.
    pub(super) unknown: Vec<(usize, U256)>,
}

impl ClaimedHashes {
    /// Returns the claims, unless a hash is missing.
    pub(super) fn new(transactions: &ClaimedTransactions) -> Option<Self> {
        Some(Self { hashes: transactions.hashes()?, unknown: transactions.unknown().collect() })
    }

    /// Returns `true` if proven receipts have the same types: the type of a receipt is that of its transaction
    /// (EIP-2718). Otherwise a node only pretends that a type is unknown.
    pub(super) fn fit(&self, receipts: &BlockReceipts) -> bool {
        let types: Vec<u8> = receipts.iter().map(|receipt| receipt.receipt_type).collect();
        types.len() == self.hashes.len()
            && self.unknown.iter().all(|&(index, transaction_type)| {
                types.get(index).copied().map(U256::from) == Some(transaction_type)
            })
    }
}

impl Missing {
    pub(super) fn new(block: BlockRef, part: Part, unanswered: &Unanswered) -> Self {
        Self::of(block, part, unanswered.lines(part.absent()))
    }

    pub(crate) const fn of(block: BlockRef, part: Part, why: Vec<String>) -> Self {
        Self { block, part, why, claimed: None }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: {}", self.block.number, self.why.join("; "))
    }
}

/// The nodes and the disk.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) nodes: Vec<Node>,
    pub(super) store: Option<Store>,
    pub(super) observer: Arc<dyn Observer>,
}

impl Source {
    /// Returns what is on disk under a root, if `proven` finds that it has this root.
    pub(super) fn stored<T>(
        &self,
        kind: Kind,
        root: B256,
        proven: impl FnOnce(Vec<Vec<u8>>) -> Option<T>,
    ) -> Option<T> {
        proven(self.store.as_ref()?.get(kind, root)?)
    }

    /// Stores encodings under their root, soon. `encodings` is called only if there is a disk.
    pub(super) fn put<T: AsRef<[Bytes]>>(
        &self,
        kind: Kind,
        root: B256,
        encodings: impl FnOnce() -> Option<T>,
    ) {
        if let Some(store) = &self.store
            && let Some(encodings) = encodings()
        {
            store.put(kind, root, encodings.as_ref());
        }
    }
}
