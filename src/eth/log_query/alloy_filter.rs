//! Conversion of queries from and to the `Filter` type of `alloy-rpc-types-eth`.

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

/// Converts a filter to a query. The last topic position of the query is the last position of the
/// filter that is not "any".
///
/// A `Filter` does not store "any" positions at the end. So the query selects the same logs under
/// both [`Semantics`](super::Semantics).
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

/// Error: the last topic position of the query is "any", which a `Filter` cannot store.
///
/// Under geth's rules the filter without this position would select more logs than the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("position {position} of the topics is last and \"any\", which a Filter cannot store")]
#[non_exhaustive]
pub struct TrailingWildcard {
    /// Index of the last topic position, from 0.
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

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use alloy_primitives::{Address, B256, Bytes, Log, address};
    use alloy_rpc_types_eth::{BlockNumberOrTag, Filter};

    use super::TrailingWildcard;
    use crate::eth::log_query::{BlockTag, LogQuery, Semantics, TopicSet};

    const TOKEN: Address = address!("0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48");
    const OTHER: Address = address!("0xdac17f958d2ee523a2206206994597c13d831ec7");

    /// A `Filter` that is built with alloy's methods converts to the same query that this library's
    /// methods build.
    #[test]
    fn built_there_and_here() {
        let [one, two] = [B256::with_last_byte(1), B256::with_last_byte(2)];
        let transfer = "Transfer(address,address,uint256)";
        let pairs = [
            (Filter::new(), LogQuery::new()),
            (
                Filter::new().from_block(3_u64).to_block(BlockNumberOrTag::Safe),
                LogQuery::new().from_block(3).to_block(BlockTag::Safe),
            ),
            (Filter::new().at_block_hash(one), LogQuery::new().at_hash(one)),
            (
                Filter::new().address([OTHER, TOKEN].to_vec()).event(transfer).topic2(TOKEN),
                LogQuery::new()
                    .addresses([TOKEN, OTHER])
                    .event(transfer)
                    .expect("a signature")
                    .topic2(TOKEN),
            ),
            (
                Filter::new().topic1([two, one].to_vec()).topic3(true),
                LogQuery::new().topic1([one, two]).topic3(true),
            ),
        ];
        for (filter, query) in pairs {
            assert_eq!(LogQuery::from(&filter), query);
            assert_eq!(Filter::try_from(&query), Ok(filter.clone()));
            assert_eq!(LogQuery::from(filter), query);
        }
    }

    #[test]
    fn every_tag_goes_both_ways() {
        use BlockNumberOrTag as Theirs;
        let tags =
            [Theirs::Earliest, Theirs::Latest, Theirs::Safe, Theirs::Finalized, Theirs::Pending];
        for theirs in tags.into_iter().chain([Theirs::Number(0), Theirs::Number(u64::MAX)]) {
            let ours = BlockTag::from(theirs);
            assert_eq!(Theirs::from(ours), theirs);
            assert_eq!(ours.name().map_or(theirs, |name| name.parse().expect("a tag")), theirs);
        }
    }

    /// The conversion reports a trailing "any" instead of dropping it. For a log of one topic, the
    /// query and the filter without the trailing "any" give different answers.
    #[test]
    fn a_last_any_is_refused() {
        let query = LogQuery::new().topic0(B256::ZERO).topic2(TopicSet::any());
        let error = Filter::try_from(&query).expect_err("a trailing wildcard");
        assert_eq!(error, TrailingWildcard { position: 2 });
        assert!(error.to_string().starts_with("position 2 of the topics"));
        let log = Log::new(TOKEN, [B256::ZERO].to_vec(), Bytes::new()).expect("one topic");
        let filter = Filter::new().event_signature(B256::ZERO);
        assert!(!query.matches(&log, Semantics::Geth) && filter.matches(&log));
        // A query that was read from the filter selects the same logs under both rules.
        let query = LogQuery::from(filter);
        assert!(query.matches(&log, Semantics::Geth) && !query.depends_on_semantics(&log));
    }
}
