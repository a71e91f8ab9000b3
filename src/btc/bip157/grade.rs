//! What an answer is worth.

/// What the "no" of a filter is worth, from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Grade {
    /// One peer claims it, and no other was heard.
    OnePeer,
    /// So many connections claim it, which may all be one party, and none heard differs.
    Peers(u32),
    /// A filter header that the caller trusts commits to it.
    Checkpoint,
    /// It equals the filter built from the block, all of whose previous outputs were proven.
    Audited,
    /// The block itself was handed over: no filter is needed.
    Scanned,
}
