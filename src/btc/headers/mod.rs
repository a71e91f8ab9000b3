//! A chain of block headers: which blocks there are, and which chain of them has most work.
//!
//! [`HeaderChain`] takes headers as they come from peers nobody trusts, checks them as Bitcoin
//! Core checks headers, and says which blocks joined and left the chain with most work. It is a
//! state machine without sockets and without a clock: the time comes in with each call.
//!
//! Checked, as `CheckBlockHeader` and `ContextualCheckBlockHeader` do: the link to a known header,
//! proof of work, the bits that the network asks for at this height, the time against the median
//! of eleven and against the clock, BIP94's limit on stepping back in time, and the versions that
//! BIP34, BIP66 and BIP65 made obsolete. Not checked: the blocks behind the headers, and on
//! signet the signature, which is in the block: **anyone with some computing power can extend
//! signet's headers here**, so there a chain is worth what the peers are worth.
//!
//! | network | bits |
//! |---|---|
//! | mainnet, signet | a new target every 2016 blocks, from the time that 2015 of them took, at most 4 times easier or harder |
//! | testnet3 | and, 20 minutes after the block before, the easiest target for one block |
//! | testnet4 | and the new target comes from the *first* block of the 2016 (BIP94) |
//! | regtest | always the easiest target |
//!
//! # Side branches
//! Headers of branches with less work are kept, up to a limit on their number
//! ([`SIDE_HEADERS`], [`HeaderChain::with_side_limit`]), so that nobody fills the memory with
//! cheap headers. Where there are too many, the branches whose tips have least work go, until a
//! quarter of the room is free; if this meets the headers just given, they are refused with
//! [`HeaderError::SideBranchesFull`]. The limit is never in the way of a stronger chain that
//! comes in one call: **headers given in one [`HeaderChain::accept`] that end with more work than
//! the active chain become the active chain, however deep the fork and however full the side
//! branches.** A caller who is refused collects the branch and gives it in one piece.
//!
//! Headers of low work, as anyone can mine on genesis in seconds, take up room in that limit and
//! nothing else. Who starts from nothing should still compare [`HeaderChain::work`] with a sum of
//! work that the network is known to have reached before trusting the tip, as Core does with
//! `nMinimumChainWork`, or start from an [`Anchor`].
//!
//! # Cost
//! 80 bytes for a header of the active chain and 6 to 12 for finding it by hash: about 85 MB for
//! 930,000 headers. The hash is not stored: the next header has it.
//!
//! Source: Bitcoin Core 28.1, `validation.cpp`, `pow.cpp`, `chain.cpp`, `kernel/chainparams.cpp`.

mod active;
mod anchor;
mod chain;
mod encoding;
mod rules;
mod side;

use core::fmt;

use bitcoin::BlockHash;
use bitcoin::block::Header;

pub use anchor::{Anchor, AnchorError};
pub use chain::{HeaderChain, HeadersError, MAX_HEADERS, SIDE_HEADERS};
pub use encoding::HeaderFileError;

pub use rules::HeaderError;

/// A block by its place and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAt {
    /// The height: 0 for genesis.
    pub height: u32,
    /// The hash of the header.
    pub hash: BlockHash,
}

impl fmt::Display for BlockAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at height {}", self.hash, self.height)
    }
}

/// A change of the active chain.
///
/// When another branch gets more work, the blocks down to the fork are disconnected, the tip
/// first, and then those of the branch are connected upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainEvent {
    /// The block on top of the tip; it is the tip now.
    Connected {
        /// The block.
        at: BlockAt,
        /// Its header.
        header: Header,
    },
    /// The tip is no longer in the chain; the block before it is the tip now.
    Disconnected {
        /// The block that left.
        at: BlockAt,
    },
}
