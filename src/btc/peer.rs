//! What BIP37 and BIP157 share: the number of a connection, and what an answer is worth.

/// A connection to a peer, numbered by the caller. A peer that connects again gets a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// The evidence behind a "no" about a block, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Grade {
    /// One peer claims it, and no other peer was heard.
    OnePeer,
    /// This many connections claim it and no peer that was heard differs. All of them may belong
    /// to one party.
    Peers(u32),
    /// A filter header that the caller trusts commits to it.
    Checkpoint,
    /// The filter equals the one built from the block, with all previous outputs proven.
    Audited,
    /// The block itself was scanned; no filter is needed.
    Scanned,
}
