//! A trusted start of a chain of headers.

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network, Work};

use super::BlockAt;
use super::active::sum_of_work;
use super::rules::{MEDIAN_SPAN, PERIOD};
use crate::btc::proof_of_work::{ProofOfWorkError, check_proof_of_work};

/// The highest start: heights are `int` in Core.
const MAX_HEIGHT: u32 = i32::MAX as u32;

/// A block that the user trusts to be in the chain, and what the rules for the blocks behind it
/// need of the blocks before it.
///
/// Nothing shows that an anchor is right: who starts from one trusts whoever gave it, for the
/// height and the sum of work as for the block itself. A start at a height that 2016 divides
/// needs eleven headers and the sum of work; elsewhere the first header of the period comes too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The height of the block.
    pub height: u32,
    /// The eleven headers that end with the block's own, in the order of the chain; all of them
    /// from genesis where there are fewer.
    pub headers: Vec<Header>,
    /// The header at the last height, not above the block's, that 2016 divides. The block's own
    /// where that is its height.
    pub period_first: Header,
    /// The work of the chain up to the block, which counts: Core's `nChainWork`, `chainwork` in
    /// the answer of `getblockheader`.
    pub work: Work,
}

impl Anchor {
    /// The genesis block of `network`.
    pub fn genesis(network: Network) -> Self {
        let header = genesis_block(network).header;
        Self { height: 0, headers: vec![header], period_first: header, work: header.work() }
    }

    /// Checks what can be checked, and returns the block.
    pub(super) fn check(&self, network: Network) -> Result<BlockAt, AnchorError> {
        let height = self.height;
        if height > MAX_HEIGHT {
            return Err(AnchorError::TooHigh { height, limit: MAX_HEIGHT });
        }
        let (count, needed) = (self.headers.len(), MEDIAN_SPAN.min(height + 1) as usize);
        if count != needed {
            return Err(AnchorError::HeaderCount { height, count, needed });
        }
        if self.work.to_be_bytes()[0] >> 7 != 0 {
            return Err(AnchorError::TooMuchWork { work: self.work });
        }
        let work_of = |height: u32, header: &Header| {
            check_proof_of_work(header, network)
                .map_err(|error| AnchorError::ProofOfWork { height, error })
        };
        let first = height - height % PERIOD;
        let first_hash = work_of(first, &self.period_first)?;
        let mut hash = BlockHash::all_zeros();
        for (place, header) in self.headers.iter().enumerate() {
            let height = self.base() + u32::try_from(place).expect("at most 11");
            if place > 0 && header.prev_blockhash != hash {
                return Err(AnchorError::NotLinked { height });
            }
            hash = work_of(height, header)?;
            let genesis = genesis_block(network).block_hash();
            if height == 0 && hash != genesis {
                return Err(AnchorError::Genesis { hash, genesis });
            }
            if height == first && hash != first_hash {
                return Err(AnchorError::PeriodFirst { height, hash, first: first_hash });
            }
        }
        // The work is known where the headers reach down to genesis; elsewhere there is more of it.
        let sum = sum_of_work(self.headers[0].work(), &self.headers[1..]);
        if self.work < sum || (self.base() == 0) != (self.work == sum) {
            return Err(AnchorError::OtherWork { work: self.work, height, sum });
        }
        Ok(BlockAt { height, hash })
    }

    /// The height of the lowest of the headers.
    pub(super) fn base(&self) -> u32 {
        self.height.saturating_sub(MEDIAN_SPAN - 1)
    }
}

/// Why an anchor can't be the start of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// A height over Core's `int`.
    #[error("height {height}, the limit is {limit}")]
    TooHigh {
        /// The height.
        height: u32,
        /// The highest allowed.
        limit: u32,
    },
    /// Too few or too many headers.
    #[error("{count} headers for a start at height {height}, needed are {needed}")]
    HeaderCount {
        /// The height of the start.
        height: u32,
        /// The headers given.
        count: usize,
        /// The headers needed.
        needed: usize,
    },
    /// Half of the largest number or more: no chain has that, and sums could overflow.
    #[error("work {work:x}, the limit is 2^255")]
    TooMuchWork {
        /// The work.
        work: Work,
    },
    /// Less work than the headers have, or not theirs and that of blocks below them, if there are
    /// any.
    #[error("work {work:x} at height {height}, where the last headers have {sum:x}")]
    OtherWork {
        /// The work.
        work: Work,
        /// The height of the start.
        height: u32,
        /// The work of the headers.
        sum: Work,
    },
    /// A header without proof of work.
    #[error("height {height}: {error}")]
    ProofOfWork {
        /// The height of the header.
        height: u32,
        /// What is wrong.
        #[source]
        error: ProofOfWorkError,
    },
    /// A header that does not build on the one before.
    #[error("the header at height {height} does not build on the one before")]
    NotLinked {
        /// The height of the header.
        height: u32,
    },
    /// Another genesis block than the network's.
    #[error("genesis {hash}, the network's is {genesis}")]
    Genesis {
        /// The hash of the header at height 0.
        hash: BlockHash,
        /// The hash of the network's genesis block.
        genesis: BlockHash,
    },
    /// The first header of the period is given twice and differs.
    #[error("header {hash} at height {height}, and the period's first is {first}")]
    PeriodFirst {
        /// The height where the period starts.
        height: u32,
        /// The hash among the headers.
        hash: BlockHash,
        /// The hash of the header that is given as the period's first.
        first: BlockHash,
    },
}
