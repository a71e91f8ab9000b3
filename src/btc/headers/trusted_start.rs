//! Trusted starting point of a chain of headers.

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network, Work};

use super::branches::sum_of_work;
use super::rules::MEDIAN_SPAN;
use super::{BlockAt, HeaderChainError, HeaderRules};
use crate::btc::proof_of_work::check_proof_of_work;

/// The highest height of a start: Core stores heights as `int`.
const MAX_HEIGHT: u32 = i32::MAX as u32;

/// A trusted block, with the facts about earlier blocks that the rules for later blocks need.
///
/// Nothing proves that a trusted start is right: a caller must trust the source not only for the
/// block, but also for the block's height and total work.
///
/// A trusted start whose height is a multiple of 2016 needs eleven headers and the total work. At
/// other heights, it also needs the first header of the period. On a custom signet with another
/// block time, [`HeaderRules::period`] takes the place of 2016.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TrustedStart {
    /// The height of the trusted block.
    pub height: u32,
    /// The eleven headers that end with the block's own header, lowest first. Near genesis, these
    /// are all headers from genesis on.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus_list"))]
    pub headers: Vec<Header>,
    /// The header at the highest multiple of 2016 that is not above `height`. At a multiple of
    /// 2016, this is the block's own header.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus"))]
    pub period_first: Header,
    /// The total work of the chain up to and including the block: Core's `nChainWork`, `chainwork`
    /// in the answer of `getblockheader`.
    pub work: Work,
}

impl TrustedStart {
    /// Returns the trusted start at the genesis block of `network`.
    pub fn genesis(network: Network) -> Self {
        let header = genesis_block(network).header;
        Self { height: 0, headers: vec![header], period_first: header, work: header.work() }
    }

    /// Checks that the trusted start is consistent, and returns its block.
    pub(super) fn check(&self, rules: HeaderRules) -> Result<BlockAt, HeaderChainError> {
        let network = rules.network();
        let height = self.height;
        if height > MAX_HEIGHT {
            return Err(HeaderChainError::TooHigh { height, limit: MAX_HEIGHT });
        }
        let (count, needed) = (self.headers.len(), MEDIAN_SPAN.min(height + 1) as usize);
        if count != needed {
            return Err(HeaderChainError::HeaderCount { height, count, needed });
        }
        // If the work is below 2^255, the sums of work with later headers cannot overflow.
        if self.work.to_be_bytes()[0] >> 7 != 0 {
            return Err(HeaderChainError::TooMuchWork { work: self.work });
        }
        let work_of = |height: u32, header: &Header| {
            check_proof_of_work(header, network)
                .map_err(|error| HeaderChainError::ProofOfWork { height, error })
        };
        let first = height - height % rules.period();
        let first_hash = work_of(first, &self.period_first)?;
        let mut hash = BlockHash::all_zeros();
        for (index, header) in self.headers.iter().enumerate() {
            let height = self.base() + u32::try_from(index).expect("at most 11");
            if index > 0 && header.prev_blockhash != hash {
                return Err(HeaderChainError::NotLinked { height });
            }
            hash = work_of(height, header)?;
            let genesis = genesis_block(network).block_hash();
            if height == 0 && hash != genesis {
                return Err(HeaderChainError::Genesis { hash, genesis });
            }
            if height == first && hash != first_hash {
                return Err(HeaderChainError::PeriodFirst { height, hash, first: first_hash });
            }
        }
        // Headers that reach down to genesis determine the work exactly. Otherwise, the blocks
        // below these headers add work.
        let sum = sum_of_work(self.headers[0].work(), &self.headers[1..]);
        if self.work < sum || (self.base() == 0) != (self.work == sum) {
            return Err(HeaderChainError::OtherWork { work: self.work, height, sum });
        }
        Ok(BlockAt { height, hash })
    }

    /// Returns the height of the lowest header of the trusted start.
    pub(super) fn base(&self) -> u32 {
        self.height.saturating_sub(MEDIAN_SPAN - 1)
    }
}
