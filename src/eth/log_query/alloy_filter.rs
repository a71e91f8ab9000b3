//! Queries from the filters of `alloy-rpc-types-eth`, and back.

use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption, FilterSet};

use super::blocks::{BlockSelection, BlockTag};
use super::query::LogQuery;
use super::topics::TopicSet;

impl From<BlockNumberOrTag> for BlockTag {
    fn from(block: BlockNumberOrTag) -> Self {
        match block {
            BlockNumberOrTag::Number(number) => Self::Number(number),
            BlockNumberOrTag::Earliest => Self::Earliest,
            BlockNumberOrTag::Latest => Self::Latest,
            BlockNumberOrTag::Safe => Self::Safe,
            BlockNumberOrTag::Finalized => Self::Finalized,
            BlockNumberOrTag::Pending => Self::Pending,
        }
    }
}

impl From<BlockTag> for BlockNumberOrTag {
    fn from(block: BlockTag) -> Self {
        match block {
            BlockTag::Number(number) => Self::Number(number),
            BlockTag::Earliest => Self::Earliest,
            BlockTag::Latest => Self::Latest,
            BlockTag::Safe => Self::Safe,
            BlockTag::Finalized => Self::Finalized,
            BlockTag::Pending => Self::Pending,
        }
    }
}

/// The positions end with the last that is not "any": a `Filter` knows no more, and so both
/// [`Semantics`](super::Semantics) want the same logs.
impl From<&Filter> for LogQuery {
    fn from(filter: &Filter) -> Self {
        let blocks = match filter.block_option {
            FilterBlockOption::Range { from_block, to_block } => BlockSelection::Range {
                from: from_block.map(Into::into),
                to: to_block.map(Into::into),
            },
            FilterBlockOption::AtBlockHash(hash) => BlockSelection::AtHash(hash),
        };
        let query = Self::of(blocks).addresses(filter.address.iter().copied());
        filter.topics.iter().enumerate().filter(|(_, topics)| !topics.is_empty()).fold(
            query,
            |query, (position, topics)| {
                query.topic(position, topics.iter().copied().collect::<TopicSet>())
            },
        )
    }
}

impl From<Filter> for LogQuery {
    fn from(filter: Filter) -> Self {
        Self::from(&filter)
    }
}

/// A query that ends in "any", which a `Filter` can't hold: under geth's rules the filter would
/// want more logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("position {position} of the topics is \"any\" and the last: a Filter has no such position")]
pub struct TrailingWildcard {
    /// The last position, from 0.
    pub position: usize,
}

impl TryFrom<&LogQuery> for Filter {
    type Error = TrailingWildcard;

    fn try_from(query: &LogQuery) -> Result<Self, TrailingWildcard> {
        if query.ends_in_any() {
            return Err(TrailingWildcard { position: query.topics().len() - 1 });
        }
        let block_option = match *query.blocks() {
            BlockSelection::Range { from, to } => FilterBlockOption::Range {
                from_block: from.map(Into::into),
                to_block: to.map(Into::into),
            },
            BlockSelection::AtHash(hash) => FilterBlockOption::AtBlockHash(hash),
        };
        let address = query.address_set().iter().copied().collect();
        let mut filter = Self { block_option, address, ..Self::default() };
        for (set, topics) in filter.topics.iter_mut().zip(query.topics()) {
            *set = topics.values().iter().copied().collect::<FilterSet<_>>();
        }
        Ok(filter)
    }
}
