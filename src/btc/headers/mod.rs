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
//! The blocks of the headers are not checked. On signet, the signature is inside the block, so the
//! signature is not checked either: **anyone with some computing power can extend signet's headers
//! here**. A chain of signet headers is therefore only as trustworthy as the peers that sent it.
//!
//! | network | required bits |
//! |---|---|
//! | mainnet, signet | a new target every 2016 blocks, from the time that 2015 of them took, at most 4 times easier or harder |
//! | testnet3 | as mainnet, but a block more than 20 minutes after its parent has the easiest target, except the first of a period |
//! | testnet4 | as testnet3, but the new target is computed from the bits of the *first* block of the 2016 (BIP94) |
//! | regtest | always the easiest target |
//!
//! A custom signet may have another block time than ten minutes, and therefore another number of
//! blocks between two targets: see [`HeaderRules`].
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

mod branches;
mod chain;
mod encoding;
mod rules;
mod trusted_start;

use core::fmt;

use bitcoin::block::Header;
use bitcoin::constants::ChainHash;
use bitcoin::{BlockHash, Network, Work};

#[cfg(all(feature = "std", feature = "descriptors"))]
pub(in crate::btc) use chain::Candidate;
pub use chain::{HeaderChain, HeadersError, MAX_HEADERS, SIDE_HEADERS};
pub use rules::HeaderError;
pub use trusted_start::TrustedStart;

use crate::btc::proof_of_work::ProofOfWorkError;
use encoding::VERSION;

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

/// Block time in seconds at which the difficulty of the well-known networks aims: Core's
/// `nPowTargetSpacing`.
pub const BLOCK_TIME: u32 = 600;

/// Duration of a period in seconds if each block takes the block time, two weeks: Core's
/// `nPowTargetTimespan`.
const TIMESPAN: u32 = 14 * 24 * 60 * 60;

/// The network and the block time of a chain of headers. They determine the rules for its headers.
///
/// Only a custom signet may have another block time than 600 seconds: its nodes run with
/// `-signetblocktime`. A shorter block time makes the periods longer: the target of a chain with a
/// block time of 30 seconds changes every 40,320 blocks instead of every 2016 blocks.
///
/// A [`Network`] converts into its rules with a block time of 600 seconds.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::headers::{HeaderChain, HeaderRules};
///
/// // Mutinynet, a signet with a block every 30 seconds.
/// let rules = HeaderRules::new(Network::Signet, 30)?;
/// assert_eq!(rules.period(), 40_320);
/// let chain = HeaderChain::new(rules);
/// assert_eq!(chain.rules(), rules);
/// # Ok::<(), chainsieve::btc::headers::HeaderChainError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderRules {
    network: Network,
    block_time: u32,
}

impl HeaderRules {
    /// Creates the rules of a chain of `network` whose difficulty aims at one block every
    /// `block_time` seconds.
    ///
    /// # Errors
    /// Returns a [`HeaderChainError`] if the network has a fixed block time, or if the block time is
    /// 0 or longer than two weeks.
    pub fn new(network: Network, block_time: u32) -> Result<Self, HeaderChainError> {
        if network != Network::Signet && block_time != BLOCK_TIME {
            return Err(HeaderChainError::FixedBlockTime { network, block_time });
        }
        // With a longer block time, a period would have no block.
        if !(1..=TIMESPAN).contains(&block_time) {
            return Err(HeaderChainError::BlockTime { block_time });
        }
        Ok(Self { network, block_time })
    }

    /// Returns the network.
    pub fn network(self) -> Network {
        self.network
    }

    /// Returns the block time in seconds at which the difficulty aims.
    pub fn block_time(self) -> u32 {
        self.block_time
    }

    /// Returns the number of blocks between two changes of the target: Core's
    /// `DifficultyAdjustmentInterval`. On regtest, the target never changes.
    pub fn period(self) -> u32 {
        TIMESPAN / self.block_time
    }

    /// Returns `true` if `height` is the first height of a period.
    fn starts_period(self, height: u32) -> bool {
        height.is_multiple_of(self.period())
    }
}

impl From<Network> for HeaderRules {
    fn from(network: Network) -> Self {
        Self { network, block_time: BLOCK_TIME }
    }
}

/// Reason why a chain of headers cannot be created: its block time, its trusted start or its encoded
/// form is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderChainError {
    /// The network has a fixed block time.
    #[error(
        "block time {block_time} s: {network} has a fixed block time of {BLOCK_TIME} s; only a signet can have another block time"
    )]
    FixedBlockTime {
        /// The network.
        network: Network,
        /// The block time that was given, in seconds.
        block_time: u32,
    },
    /// The block time is 0, or longer than two weeks.
    #[error("block time {block_time} s: a block time has 1 to {TIMESPAN} s")]
    BlockTime {
        /// The block time that was given, in seconds.
        block_time: u32,
    },
    /// The height exceeds the limit, since Core stores heights as `int`.
    #[error("height {height}, the limit is {limit}")]
    TooHigh {
        /// The height of the trusted start.
        height: u32,
        /// The highest allowed height.
        limit: u32,
    },
    /// The number of headers is wrong.
    #[error("{count} headers for a start at height {height}, but {needed} are needed")]
    HeaderCount {
        /// The height of the trusted start.
        height: u32,
        /// The number of headers given.
        count: usize,
        /// The number of headers needed.
        needed: usize,
    },
    /// The work is 2^255 or more: no chain has so much work, and sums of work could overflow.
    #[error("work {work:x}, the limit is 2^255")]
    TooMuchWork {
        /// The work of the trusted start.
        work: Work,
    },
    /// The total work contradicts the headers: it must equal the sum of their work if they reach
    /// down to genesis, and exceed that sum otherwise.
    #[error("work {work:x} at height {height} contradicts the headers, whose work is {sum:x}")]
    OtherWork {
        /// The total work that the trusted start states.
        work: Work,
        /// The height of the trusted start.
        height: u32,
        /// The sum of the work of the trusted start's headers.
        sum: Work,
    },
    /// A header has no valid proof of work.
    #[error("height {height}: {error}")]
    ProofOfWork {
        /// The height of the header.
        height: u32,
        /// The failed check.
        #[source]
        error: ProofOfWorkError,
    },
    /// A header does not build on the header before it.
    #[error("the header at height {height} does not build on the header before it")]
    NotLinked {
        /// The height of the header.
        height: u32,
    },
    /// The header at height 0 is not the network's genesis block.
    #[error("genesis block {hash}, but the network's genesis block is {genesis}")]
    Genesis {
        /// The hash of the header at height 0.
        hash: BlockHash,
        /// The hash of the network's genesis block.
        genesis: BlockHash,
    },
    /// The first header of the period is given twice, and the two headers differ.
    #[error("header {hash} at height {height} differs from the period's first header {first}")]
    PeriodFirst {
        /// The height of the first block of the period.
        height: u32,
        /// The hash of the header at that height among `headers`.
        hash: BlockHash,
        /// The hash of `period_first`.
        first: BlockHash,
    },
    /// The bytes do not begin with `CSHC`.
    #[error("not a header file: the bytes do not begin with `CSHC`")]
    Name,
    /// The version is unknown.
    #[error("version {version}, the only known version is {VERSION}")]
    Version {
        /// The version of the bytes.
        version: u8,
    },
    /// The bytes end inside the preamble, or its length is damaged.
    #[error("{length} bytes, but at least {needed} are needed")]
    PreambleCut {
        /// The number of bytes given.
        length: usize,
        /// The number of bytes that the preamble needs.
        needed: usize,
    },
    /// The preamble is damaged: its checksum does not match, or it does not contain whole headers.
    #[error("the preamble is damaged: its checksum or its length is wrong")]
    Damaged,
    /// The genesis block is not that of a network known to the `bitcoin` crate.
    #[error("no known network has genesis block {genesis}")]
    UnknownChain {
        /// The hash of the unknown genesis block.
        genesis: ChainHash,
    },
    /// The headers belong to another network than the caller expects.
    #[error("the headers belong to {kept}, not to {wanted}")]
    OtherNetwork {
        /// The network of the headers.
        kept: Network,
        /// The network that the caller expects.
        wanted: Network,
    },
    /// A header is refused by the rules.
    #[error("header at offset {offset}: {cause}")]
    Header {
        /// The height of the header.
        height: u32,
        /// The offset of the header in the bytes.
        offset: u64,
        /// The reason why the header is refused.
        #[source]
        cause: HeaderError,
    },
    /// A header of the bytes is valid by itself, but it does not build on the header before it.
    #[error("the header at offset {offset} does not build on height {}", height - 1)]
    RecordNotLinked {
        /// The height of the header.
        height: u32,
        /// The offset of the header in the bytes.
        offset: u64,
    },
    /// The bytes end inside a header.
    #[error("the header at offset {offset} has only {left} of its 80 bytes")]
    Cut {
        /// The offset of the incomplete header.
        offset: u64,
        /// The number of bytes that follow that offset.
        left: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signet_has_another_block_time() {
        let networks = [
            Network::Bitcoin,
            Network::Testnet,
            Network::Testnet4,
            Network::Signet,
            Network::Regtest,
        ];
        for network in networks {
            assert_eq!(HeaderRules::new(network, 600), Ok(network.into()));
            assert_eq!(HeaderRules::from(network).period(), 2016);
            let own = HeaderRules::new(network, 30);
            assert_eq!(own.is_ok(), network == Network::Signet, "{network}");
        }
        for (block_time, period) in
            [(1, 1_209_600), (30, 40_320), (60, 20_160), (700, 1_728), (1_209_600, 1)]
        {
            let rules = HeaderRules::new(Network::Signet, block_time).unwrap();
            assert_eq!((rules.period(), rules.block_time()), (period, block_time));
        }
        for block_time in [0, 1_209_601, u32::MAX] {
            let refused = Err(HeaderChainError::BlockTime { block_time });
            assert_eq!(HeaderRules::new(Network::Signet, block_time), refused);
        }
    }
}
