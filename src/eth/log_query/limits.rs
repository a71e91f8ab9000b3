//! Limits that nodes put on queries.

use super::blocks::ResolvedBlocks;
use super::query::LogQuery;

/// How large a query and its result may be. Without a number there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryLimits {
    /// Distinct addresses.
    pub addresses: Option<usize>,
    /// Distinct topics of one position.
    pub topics_per_position: Option<usize>,
    /// Blocks of a range, its ends included.
    pub blocks: Option<u64>,
    /// Logs of a result; those of a single block are never too many.
    pub results: Option<usize>,
}

impl QueryLimits {
    /// No limits.
    pub const fn none() -> Self {
        Self { addresses: None, topics_per_position: None, blocks: None, results: None }
    }

    /// What geth allows unless it is told otherwise: 1000 addresses, 1000 topics of a position.
    /// geth counts repeated values too, before they come here.
    pub const fn geth() -> Self {
        Self { addresses: Some(1_000), topics_per_position: Some(1_000), ..Self::none() }
    }

    /// What reth allows unless it is told otherwise: a last block 100,000 after the first, so
    /// 100,001 blocks, and 20,000 logs.
    pub const fn reth() -> Self {
        Self { blocks: Some(100_001), results: Some(20_000), ..Self::none() }
    }

    /// Checks the size of a query and its range.
    ///
    /// # Errors
    /// The first limit that is passed.
    pub fn check(&self, query: &LogQuery, blocks: &ResolvedBlocks) -> Result<(), LimitError> {
        let addresses = query.address_set().len();
        if let Some(limit) = self.addresses.filter(|&limit| addresses > limit) {
            return Err(LimitError::Addresses { found: addresses, limit });
        }
        for (position, topics) in query.topics().iter().enumerate() {
            let found = topics.values().len();
            if let Some(limit) = self.topics_per_position.filter(|&limit| found > limit) {
                return Err(LimitError::Topics { position, found, limit });
            }
        }
        let found = blocks.count();
        match self.blocks.filter(|&limit| found > limit) {
            Some(limit) => Err(LimitError::Blocks { found, limit }),
            None => Ok(()),
        }
    }

    /// Checks the number of logs in a result.
    ///
    /// # Errors
    /// Too many for more than one block.
    pub fn check_results(&self, logs: usize, blocks: &ResolvedBlocks) -> Result<(), LimitError> {
        match self.results.filter(|&limit| logs > limit && blocks.count() > 1) {
            Some(limit) => Err(LimitError::Results { found: logs, limit }),
            None => Ok(()),
        }
    }
}

/// A limit that a query or its result passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Too many addresses.
    #[error("{found} addresses, the limit is {limit}")]
    Addresses {
        /// Distinct addresses.
        found: usize,
        /// How many there can be.
        limit: usize,
    },
    /// Too many topics of a position.
    #[error("topics[{position}]: {found} topics, the limit is {limit}")]
    Topics {
        /// The position, from 0.
        position: usize,
        /// Distinct topics.
        found: usize,
        /// How many there can be.
        limit: usize,
    },
    /// Too many blocks.
    #[error("{found} blocks, the limit is {limit}")]
    Blocks {
        /// Blocks of the range.
        found: u64,
        /// How many there can be.
        limit: u64,
    },
    /// Too many logs.
    #[error("{found} logs, the limit is {limit}")]
    Results {
        /// Logs of the result.
        found: usize,
        /// How many there can be.
        limit: usize,
    },
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use alloy_primitives::{Address, B256, U256};

    use super::{LimitError, QueryLimits};
    use crate::eth::log_query::{LogQuery, ResolvedBlocks};

    fn addresses(count: u64) -> LogQuery {
        LogQuery::new()
            .addresses((0..count).map(|at| Address::left_padding_from(&at.to_be_bytes())))
    }

    const ONE: ResolvedBlocks = ResolvedBlocks::AtHash(B256::ZERO);

    /// geth's default of `LogQueryLimit`, and reth's of its two limits: 1000 pass, 1001 do not.
    #[test]
    fn each_limit_holds_to_the_number() {
        let geth = QueryLimits::geth();
        assert_eq!(geth.check(&addresses(1_000), &ONE), Ok(()));
        let error = geth.check(&addresses(1_001), &ONE).unwrap_err();
        assert_eq!(error.to_string(), "1001 addresses, the limit is 1000");
        let topics =
            |count: u64| LogQuery::new().topic2((0..count).map(U256::from).collect::<Vec<_>>());
        assert_eq!(geth.check(&topics(1_000), &ONE), Ok(()));
        let error = geth.check(&topics(1_001), &ONE).unwrap_err();
        assert_eq!(error.to_string(), "topics[2]: 1001 topics, the limit is 1000");
        assert_eq!(QueryLimits::none().check(&addresses(1_001), &ONE), Ok(()));

        let reth = QueryLimits::reth();
        let range = |last| ResolvedBlocks::Range { first: 7, last };
        assert_eq!(reth.check(&addresses(1_001), &range(100_007)), Ok(()));
        assert_eq!(
            reth.check(&LogQuery::new(), &range(100_008)),
            Err(LimitError::Blocks { found: 100_002, limit: 100_001 })
        );
        assert_eq!(reth.check_results(20_000, &range(8)), Ok(()));
        assert_eq!(
            reth.check_results(20_001, &range(8)),
            Err(LimitError::Results { found: 20_001, limit: 20_000 })
        );
        assert_eq!(reth.check_results(20_001, &range(7)), Ok(()), "a single block");
        assert_eq!(reth.check_results(20_001, &ONE), Ok(()), "a single block");
        let all = ResolvedBlocks::Range { first: 0, last: u64::MAX };
        assert_eq!(geth.check(&LogQuery::new(), &all), Ok(()));
        assert_eq!(all.count(), u64::MAX, "one less than there are");
    }
}
