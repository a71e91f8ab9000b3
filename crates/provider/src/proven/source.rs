//! The sources of blocks: the disk and the nodes. Also the reasons why no source has a part of a block, the
//! trust in filters, and the events for the caller.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use chainsieve::alloy_primitives::{B256, Bytes, U256};
use chainsieve::eth::chain_profile::{ChainProfile, ProfileRange};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::transactions::ClaimedTransactions;

use super::kept::{Kind, Store};
use crate::nodes::Node;
use crate::nodes::ask::Unanswered;
use crate::stop::lock;

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
    /// Returns the machine-readable reason that no node has the part.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Header => "no_headers",
            Self::Receipts => "no_receipts",
            Self::Transactions => "no_transactions",
            Self::Withdrawals => "no_withdrawals",
            Self::Ommers => "no_ommers",
        }
    }

    /// Returns a text which says that a node does not have the part.
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
    /// The hashes that a node claims, if transactions of an unknown type are the only reason why the
    /// hashes are not proven.
    pub(super) claimed: Option<Arc<ClaimedHashes>>,
}

/// Hashes of the transactions of a block, as claimed by a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimedHashes {
    pub(super) hashes: Vec<B256>,
    /// Index and type of each transaction whose type is unknown. There is at least one.
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
    /// Returns the data that is stored under a root, if `proven` confirms that the data has this
    /// root.
    pub(super) fn stored<T>(
        &self,
        kind: Kind,
        root: B256,
        proven: impl FnOnce(Vec<Vec<u8>>) -> Option<T>,
    ) -> Option<T> {
        proven(self.store.as_ref()?.get(kind, root)?)
    }

    /// Queues encodings to be stored under their root. `encodings` is called only if there is a
    /// store.
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

/// Maximum number of recorded blocks that refute filters.
const MOST_REFUTING: usize = 64;

/// The assumption of the chain's profile about filters, and the blocks that refute this assumption.
#[derive(Debug)]
pub(crate) struct FilterTrust {
    pub(crate) profile: ChainProfile,
    /// `true` once the filter of a proven block lacked bits of a log, although the profile rules that out.
    are_refuted: AtomicBool,
    /// The blocks of the chain whose filters lack bits; not all of them, if there are many.
    refuting: Mutex<Vec<BlockRef>>,
}

impl FilterTrust {
    pub(super) fn new(profile: ChainProfile) -> Self {
        Self { profile, are_refuted: AtomicBool::new(false), refuting: Mutex::default() }
    }

    /// Returns `true` if a "no" of the filter of any of these blocks proves that the block has no matching
    /// log: the profile says so for all of these blocks, and no block has refuted it.
    pub(crate) fn prove_absence(&self, blocks: &RangeInclusive<u64>) -> bool {
        let prove = |range: &ProfileRange| range.bloom.proves_absence();
        self.profile.within(blocks).iter().all(prove) && !self.are_refuted()
    }

    /// Returns `true` if the filter of a block of the chain lacks bits of a log, so that filters of this
    /// chain prove nothing.
    pub(crate) fn are_refuted(&self) -> bool {
        self.are_refuted.load(Ordering::SeqCst)
    }

    /// Records a block whose filter lacks bits of a log, if the profile rules that out. Otherwise, such
    /// a block refutes nothing.
    pub(super) fn lacks_bits(&self, block: BlockRef, log_index: u64, observer: &dyn Observer) {
        if !self.profile.at(block.number).bloom.proves_absence() {
            return;
        }
        let mut refuting = lock(&self.refuting);
        if refuting.contains(&block) {
            return;
        }
        if refuting.len() < MOST_REFUTING {
            refuting.push(block);
        }
        let is_first = !self.are_refuted.swap(true, Ordering::SeqCst);
        drop(refuting);
        observer.filter_lacks_bits(block, log_index, is_first);
    }

    /// Believes the filters again, if all blocks that refuted them have left the chain: under a head that a
    /// node names, such a block may be made up. Returns the refuting blocks that have left now.
    pub(super) fn forget(&self, removed: &[B256]) -> Vec<B256> {
        let mut refuting = lock(&self.refuting);
        if refuting.is_empty() || refuting.len() >= MOST_REFUTING {
            return Vec::new();
        }
        let left = refuting.iter().map(|block| block.hash).filter(|hash| removed.contains(hash));
        let left: Vec<B256> = left.collect();
        refuting.retain(|block| !left.contains(&block.hash));
        if refuting.is_empty() {
            self.are_refuted.store(false, Ordering::SeqCst);
        }
        left
    }
}

/// The kind of data from a node that contradicts the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Receipts,
    Transactions,
    Withdrawals,
}

/// Where the receipts of a block were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Memory,
    Disk,
    Nodes,
}

/// Receives events. Each function may be called from any thread.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// A node sent data that contradicts the header.
    fn wrong(&self, node: &Node, wrong: Wrong);

    /// The receipts of a block were requested; `found` says where they were found.
    fn found(&self, found: Found);

    /// Logs of a block were returned with transaction hashes that a node only claims, because the
    /// type of a transaction is unknown.
    fn hashes_claimed(&self, block: BlockRef);

    /// The filter of a block lacks bits of a log in the block's receipts, although the chain's profile
    /// rules this out. `is_first` is `true` if all filters were believed until now.
    fn filter_lacks_bits(&self, block: BlockRef, log_index: u64, is_first: bool);
}
