//! Where blocks come from: the disk and the nodes. Reasons why neither has a part of a block, whether filters
//! are believed, and what the caller is told of all this.

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

/// Number of blocks after which no further ones are noted that refute filters.
const MOST_REFUTING: usize = 64;

/// What the chain's profile assumes of filters, and the blocks that refute it.
#[derive(Debug)]
pub(crate) struct FilterTrust {
    pub(crate) profile: ChainProfile,
    /// `true` once the filter of a proven block lacked bits of a log, although the profile rules that out.
    are_refuted: AtomicBool,
    /// Such blocks of the chain; not all, if there are many.
    refuting: Mutex<Vec<BlockRef>>,
}

impl FilterTrust {
    pub(super) fn new(profile: ChainProfile) -> Self {
        Self { profile, are_refuted: AtomicBool::new(false), refuting: Mutex::default() }
    }

    /// Returns `true` if a "no" of the filter of any of these blocks proves that the block has no matching
    /// log: the profile says so of all of them, and no block refuted it.
    pub(crate) fn prove_absence(&self, blocks: &RangeInclusive<u64>) -> bool {
        let prove = |range: &ProfileRange| range.bloom.proves_absence();
        self.profile.within(blocks).iter().all(prove) && !self.are_refuted()
    }

    /// Returns `true` if the filter of a block of the chain lacks bits of a log, so that filters of this
    /// chain prove nothing.
    pub(crate) fn are_refuted(&self) -> bool {
        self.are_refuted.load(Ordering::SeqCst)
    }

    /// Notes a block whose filter lacks bits of a log. Where the profile does not rule that out, it says
    /// nothing.
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
    /// node names, such a block may be made up. Returns those that have left now.
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

/// A part of a block from a node that the header refutes.
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

/// Is told what happens. Each function may be called from any thread.
pub(crate) trait Observer: fmt::Debug + Send + Sync {
    /// A node sent something that the header refutes.
    fn wrong(&self, node: &Node, wrong: Wrong);

    /// The receipts of a block were asked for, and found here.
    fn found(&self, found: Found);

    /// Logs of a block were given with transaction hashes that a node claims, because the type of a
    /// transaction is unknown.
    fn hashes_claimed(&self, block: BlockRef);

    /// The filter of a block lacks bits of a log that its receipts have, although the chain's profile rules
    /// that out. `is_first` is `true` if all filters were believed until now.
    fn filter_lacks_bits(&self, block: BlockRef, log_index: u64, is_first: bool);
}
