//! Block header chain: validates headers and follows the branch with the most work.
//!
//! [`HeaderChain`] takes headers from untrusted peers, checks them with Bitcoin Core's rules for
//! headers, and reports which blocks joined and left the chain with the most work. The type is a
//! state machine without sockets and without a clock: the caller passes the time with each call.
//!
//! As in Core's `CheckBlockHeader` and `ContextualCheckBlockHeader`, each header is checked for:
//!
//! - the link to a known header;
//! - proof of work, and the bits that the network requires at this height;
//! - a time after the median of the last eleven blocks, at most two hours ahead of the clock, and
//!   within BIP94's limit on stepping back in time;
//! - a version that BIP34, BIP66 and BIP65 have not made obsolete.
//!
//! The blocks of the headers are not checked. On signet, the signature is inside the block, so it
//! is not checked either: **anyone with some computing power can extend signet's headers here**. A
//! chain of signet headers is therefore only as trustworthy as the peers that sent it.
//!
//! | network | required bits |
//! |---|---|
//! | mainnet, signet | a new target every 2016 blocks, from the time that 2015 of them took, at most 4 times easier or harder |
//! | testnet3 | as mainnet, but a block more than 20 minutes after its parent has the easiest target, except the first of a period |
//! | testnet4 | as testnet3, but the new target is computed from the bits of the *first* block of the 2016 (BIP94) |
//! | regtest | always the easiest target |
//!
//! A custom signet may have another block time than ten minutes, and so another number of blocks
//! between two targets: see [`HeaderRules`].
//!
//! # Side branches
//! Headers of branches with less work are kept, up to a limit on their number ([`SIDE_HEADERS`],
//! [`HeaderChain::with_side_limit`]). The limit stops peers from filling the memory with cheap
//! headers. When the limit is exceeded, the branch tips with the least work are dropped until a
//! quarter of the room is free. If headers of the current call are dropped this way, the call
//! returns [`HeaderError::SideBranchesFull`].
//!
//! The limit never blocks a stronger chain that is given in one call: **if the headers of one
//! [`HeaderChain::accept`] end with more work than the active chain, they become the active chain,
//! however deep the fork is and however full the side branches are.** A caller that gets
//! [`HeaderError::SideBranchesFull`] collects the whole branch and passes it in one call.
//!
//! Anyone can mine headers of low work on top of genesis in seconds. Such headers count towards the
//! limit and have no other effect. A caller that starts from genesis should not trust the tip until
//! [`HeaderChain::work`] is at least the total work that the network is known to have, as in Core
//! with `nMinimumChainWork`. The alternative is to start from a [`TrustedStart`].
//!
//! # Cost
//! Each header of the active chain takes 80 bytes, and 6 to 12 bytes in the index by hash: about 85
//! MB for 930,000 headers. Hashes are not stored, because each header contains the hash of its
//! parent.
//!
//! Source: Bitcoin Core 28.1, `validation.cpp`, `pow.cpp`, `chain.cpp`, `kernel/chainparams.cpp`.

mod active;
mod block_time;
mod chain;
mod encoding;
mod rules;
mod side;
mod trusted_start;

use core::fmt;

use bitcoin::BlockHash;
use bitcoin::block::Header;

pub use block_time::{BLOCK_TIME, BlockTimeError, HeaderRules};
#[cfg(all(feature = "std", feature = "descriptors"))]
pub(in crate::btc) use chain::Candidate;
pub use chain::{HeaderChain, HeadersError, MAX_HEADERS, SIDE_HEADERS};
pub use encoding::HeaderFileError;
pub use trusted_start::{TrustedStart, TrustedStartError};

pub use rules::HeaderError;

/// A block, identified by its height and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockAt {
    /// The block's height: 0 for genesis.
    pub height: u32,
    /// The hash of the block's header.
    pub hash: BlockHash,
}

impl fmt::Display for BlockAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at height {}", self.hash, self.height)
    }
}

/// A change of the active chain.
///
/// When another branch gets more work, the blocks above the fork are disconnected, highest first.
/// Then the blocks of the new branch are connected, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum ChainEvent {
    /// A block was connected on top of the tip and is now the tip.
    Connected {
        /// The connected block.
        at: BlockAt,
        /// The header of the connected block.
        #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus"))]
        header: Header,
    },
    /// The tip was disconnected; its parent is now the tip.
    Disconnected {
        /// The disconnected block.
        at: BlockAt,
    },
}
