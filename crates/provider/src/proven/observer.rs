//! What happens while blocks are fetched and proven, for the counters and the log of the caller.

use std::fmt;

use chainsieve::eth::header::BlockRef;

use crate::node::Node;

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
