//! Limits of nodes on the size of queries and results.

use super::blocks::ResolvedBlocks;
use super::query::LogQuery;

/// Maximum sizes of a query and of its result. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct QueryLimits {
    /// Maximum number of distinct addresses.
    pub addresses: Option<usize>,
    /// Maximum number of distinct topics at one position.
    pub topics_per_position: Option<usize>,
    /// Maximum number of blocks in a range, both ends included.
    pub blocks: Option<u64>,
    /// Maximum number of logs in a result. The result of a query of a single block may have any
    /// number of logs.
    pub results: Option<usize>,
}

impl QueryLimits {
    /// Returns limits that are all `None`.
    pub const fn none() -> Self {
        Self { addresses: None, topics_per_position: None, blocks: None, results: None }
    }

    /// Returns geth's default limits: 1000 addresses, and 1000 topics at each position.
    ///
    /// geth counts repeated values too. A [`LogQuery`] has no repeated values, so a query that geth
    /// rejects because of repeated values passes this check.
    pub const fn geth() -> Self {
        Self { addresses: Some(1_000), topics_per_position: Some(1_000), ..Self::none() }
    }

    /// Returns reth's default limits: 100,001 blocks and 20,000 logs.
    ///
    /// reth's own limit of 100,000 is the difference between the last and the first block number.
    pub const fn reth() -> Self {
        Self { blocks: Some(100_001), results: Some(20_000), ..Self::none() }
    }

    /// Checks the size of a query and its range. Only distinct values are counted, because a
    /// [`LogQuery`] has no repeated values.
    ///
    /// # Errors
    /// Returns the first limit that is exceeded, in this order: addresses, topics by position, number
    /// of blocks.
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
    /// Returns an error if the result has too many logs and the query selects more than one block.
    pub fn check_results(&self, logs: usize, blocks: &ResolvedBlocks) -> Result<(), LimitError> {
        // A query of a single block cannot be split into smaller queries, so all its logs are
        // allowed. reth applies its limit in the same way.
        match self.results.filter(|&limit| logs > limit && blocks.count() > 1) {
            Some(limit) => Err(LimitError::Results { found: logs, limit }),
            None => Ok(()),
        }
    }
}

/// A limit that a query or its result exceeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Too many addresses.
    #[error("{found} addresses, the limit is {limit}")]
    Addresses {
        /// Number of distinct addresses in the query.
        found: usize,
        /// Maximum number of distinct addresses.
        limit: usize,
    },
    /// Too many topics at one position.
    #[error("topics[{position}]: {found} topics, the limit is {limit}")]
    Topics {
        /// The topic position, from 0.
        position: usize,
        /// Number of distinct topics at this position.
        found: usize,
        /// Maximum number of distinct topics.
        limit: usize,
    },
    /// Too many blocks.
    #[error("{found} blocks, the limit is {limit}")]
    Blocks {
        /// Number of blocks in the range.
        found: u64,
        /// Maximum number of blocks.
        limit: u64,
    },
    /// Too many logs.
    #[error("{found} logs, the limit is {limit}")]
    Results {
        /// Number of logs in the result.
        found: usize,
        /// Maximum number of logs.
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

    /// Each default limit of geth and reth accepts its own number but no higher number: 1000 pass,
    /// 1001 do not.
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
