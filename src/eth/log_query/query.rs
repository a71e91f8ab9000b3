//! The type [`LogQuery`]: its builder methods, and exact matching of logs.

use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Log};
use chainsieve_lanes::names;

use super::blocks::{BlockSelection, BlockTag, Heads, ResolveError, ResolvedBlocks};
use super::compiled::CompiledQuery;
use super::event_signature::{EventSignatureError, event_topic};
use super::topics::TopicSet;
use crate::eth::bloom;

/// Maximum number of topics of a log: the EVM has instructions from LOG0 to LOG4.
pub const MAX_TOPICS: usize = 4;

/// The rules for parsing and matching a query in the cases in which geth and alloy differ.
///
/// The [module](crate::eth::log_query) lists the differences. `serde` and
/// `Display` write `geth` or `alloy`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Semantics {
    /// Rules of go-ethereum: a log must have at least as many topics as the query has positions.
    #[default]
    Geth,
    /// Rules of alloy and of nodes built on alloy: positions at the end that are "any" require no
    /// topic.
    Alloy,
}

names! { Semantics, "the rules of a node": Geth = "geth", Alloy = "alloy" }

/// A query for logs: the object that `eth_getLogs` takes.
///
/// A log matches if the query's address set contains the log's address, and if at each position the
/// query's topic set contains the log's topic. An empty set accepts any value. Sets are sorted and
/// have no duplicates, so that equal queries compare as equal.
///
/// `serde` writes the object in the canonical form of [`to_json`](Self::to_json). `serde` reads by
/// the rules of [`Semantics::Alloy`], which reject unknown fields and accept every block number.
/// [`from_json`](Self::from_json) parses by the rules of either [`Semantics`].
///
/// # Examples
/// ```
/// use chainsieve::alloy_primitives::address;
/// use chainsieve::eth::log_query::LogQuery;
///
/// // Transfers of USDC to one account.
/// let query = LogQuery::new()
///     .from_block(17_686_111)
///     .to_block(17_686_112)
///     .address(address!("0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"))
///     .event("Transfer(address,address,uint256)")?
///     .topic2(address!("0x28c6c06298d514db089934071355e5743bf21d60"));
/// assert_eq!(
///     query.to_json(),
///     r#"{"fromBlock":"0x10dde5f","toBlock":"0x10dde60","#.to_owned()
///         + r#""address":["0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"],"#
///         + r#""topics":[["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"],"#
///         + r#"null,["0x00000000000000000000000028c6c06298d514db089934071355e5743bf21d60"]]}"#
/// );
/// # Ok::<(), chainsieve::eth::log_query::EventSignatureError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LogQuery {
    blocks: BlockSelection,
    /// Sorted, without duplicates.
    addresses: Vec<Address>,
    /// At most [`MAX_TOPICS`] positions. Positions at the end that are "any" are kept, because
    /// geth's rules depend on the number of positions.
    topics: Vec<TopicSet>,
}

impl LogQuery {
    /// Creates a query for all logs of the latest block.
    pub const fn new() -> Self {
        let blocks = BlockSelection::Range { from: None, to: None };
        Self { blocks, addresses: Vec::new(), topics: Vec::new() }
    }

    /// Creates a query for all logs of these blocks.
    pub fn of(blocks: BlockSelection) -> Self {
        Self { blocks, ..Self::new() }
    }

    /// Replaces the blocks of the query and keeps its addresses and topics.
    #[must_use]
    pub fn in_blocks(self, blocks: BlockSelection) -> Self {
        Self { blocks, ..self }
    }

    /// Sets the first block of the range. A block hash that was set before is removed.
    #[must_use]
    pub fn from_block(mut self, block: impl Into<BlockTag>) -> Self {
        let (_, to) = self.range();
        self.blocks = BlockSelection::Range { from: Some(block.into()), to };
        self
    }

    /// Sets the last block of the range. A block hash that was set before is removed.
    #[must_use]
    pub fn to_block(mut self, block: impl Into<BlockTag>) -> Self {
        let (from, _) = self.range();
        self.blocks = BlockSelection::Range { from, to: Some(block.into()) };
        self
    }

    fn range(&self) -> (Option<BlockTag>, Option<BlockTag>) {
        match self.blocks {
            BlockSelection::Range { from, to } => (from, to),
            BlockSelection::AtHash(_) => (None, None),
        }
    }

    /// Selects the one block with this hash, in place of a range.
    #[must_use]
    pub fn at_hash(mut self, hash: B256) -> Self {
        self.blocks = BlockSelection::AtHash(hash);
        self
    }

    /// Adds an address.
    #[must_use]
    pub fn address(self, address: Address) -> Self {
        self.addresses([address])
    }

    /// Adds addresses. A query without addresses accepts any address.
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = Address>) -> Self {
        self.addresses.extend(addresses);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self
    }

    /// Sets the topics at the first position.
    ///
    /// The first topic of a log is the hash of the event's signature unless the event is anonymous.
    #[must_use]
    pub fn topic0(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(0, topics.into())
    }

    /// Sets the topics at the second position: the first indexed argument, unless the event is
    /// anonymous.
    ///
    /// The argument can be an [`Address`] (padded to 32 bytes), a number, a boolean, a 32-byte
    /// topic, a list of one of these types, or [`TopicSet::any`]. Preceding positions that were not
    /// set accept any topic.
    #[must_use]
    pub fn topic1(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(1, topics.into())
    }

    /// Sets the topics at the third position.
    #[must_use]
    pub fn topic2(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(2, topics.into())
    }

    /// Sets the topics at the fourth position.
    #[must_use]
    pub fn topic3(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(3, topics.into())
    }

    /// Sets the first topic to the hash of an event's signature ([`event_topic`]).
    ///
    /// # Errors
    /// Returns an error if the text is neither the signature nor the declaration of an event.
    pub fn event(self, signature: &str) -> Result<Self, EventSignatureError> {
        Ok(self.topic0(event_topic(signature)?))
    }

    pub(super) fn topic(mut self, position: usize, topics: TopicSet) -> Self {
        if self.topics.len() <= position {
            self.topics.resize_with(position + 1, TopicSet::any);
        }
        self.topics[position] = topics;
        self
    }

    /// Returns the blocks that the query selects.
    pub const fn blocks(&self) -> &BlockSelection {
        &self.blocks
    }

    /// Returns the addresses, sorted and without duplicates; empty if any address matches.
    pub fn address_set(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the topic set of each position, including positions at the end that are "any".
    ///
    /// Under geth's rules a log needs at least as many topics as there are positions.
    pub fn topics(&self) -> &[TopicSet] {
        &self.topics
    }

    /// Resolves the tags of the query to block numbers, as [`BlockSelection::resolve`] does.
    ///
    /// A missing first or last block means `latest`. `earliest` is the first block that the node
    /// still has. A block hash is returned unchanged, and `heads` is not used. The addresses and
    /// topics of the query do not change the result.
    ///
    /// # Errors
    /// Returns the first error that applies, in this order:
    /// 1. [`Pending`](ResolveError::Pending) or [`UnknownTag`](ResolveError::UnknownTag), for the
    ///    first block of the range, then for its last block;
    /// 2. [`BeyondHead`](ResolveError::BeyondHead);
    /// 3. [`BeginsAfterHead`](ResolveError::BeginsAfterHead), only if the query has no last block;
    /// 4. [`Reversed`](ResolveError::Reversed);
    /// 5. [`Pruned`](ResolveError::Pruned).
    pub fn resolve(&self, heads: &Heads) -> Result<ResolvedBlocks, ResolveError> {
        self.blocks.resolve(heads)
    }

    /// Returns `true` if the address and topics of a log match the query.
    ///
    /// The result is exact. The log's block is not checked: use [`ResolvedBlocks::contains`].
    ///
    /// # Cost
    /// Makes one binary search in each set.
    pub fn matches(&self, log: &Log, semantics: Semantics) -> bool {
        self.admits_address(&log.address) && self.admits_topics(log.topics(), semantics)
    }

    /// Returns `true` if a log matches the query under only one of the two [`Semantics`].
    ///
    /// For a log with at most four topics, `true` means that the log matches under alloy's rules,
    /// and that it does not match under geth's rules because it has too few topics.
    pub fn depends_on_semantics(&self, log: &Log) -> bool {
        self.matches(log, Semantics::Geth) != self.matches(log, Semantics::Alloy)
    }

    /// Returns `true` if the last topic position accepts any topic.
    ///
    /// If the result is `false`, the same logs match under both [`Semantics`].
    pub fn ends_in_any(&self) -> bool {
        self.topics.last().is_some_and(TopicSet::is_any)
    }

    fn admits_address(&self, address: &Address) -> bool {
        self.addresses.is_empty() || self.addresses.binary_search(address).is_ok()
    }

    fn admits_topics(&self, topics: &[B256], semantics: Semantics) -> bool {
        // The EVM never emits a log with more than four topics. alloy rejects such a log, because a
        // filter has four topic sets.
        if semantics == Semantics::Alloy && topics.len() > MAX_TOPICS {
            return false;
        }
        self.topics.iter().enumerate().all(|(position, wanted)| match topics.get(position) {
            Some(topic) => wanted.admits(topic),
            None => semantics == Semantics::Alloy && wanted.is_any(),
        })
    }

    /// Converts the query to bit positions, to test it against the filters of blocks.
    ///
    /// Each value is hashed once, and all values are hashed in one batch. If a block contains a log
    /// that matches ([`matches`](Self::matches)) under either of the [`Semantics`], the compiled
    /// query never answers "no" for this block.
    pub fn compile(&self) -> CompiledQuery {
        let addresses = self.addresses.iter().map(|address| address.as_slice());
        let topics = self.topics.iter().flat_map(TopicSet::values).map(B256::as_slice);
        let values: Vec<&[u8]> = addresses.chain(topics).collect();
        let mut positions = bloom::positions_of_each(&values).into_iter();
        let sizes = self.topics.iter().map(|set| set.values().len());
        // An empty set accepts any value, but a clause without values would match nothing.
        let clauses = core::iter::once(self.addresses.len())
            .chain(sizes)
            .filter(|&size| size > 0)
            .map(|size| positions.by_ref().take(size).collect())
            .collect();
        CompiledQuery::new(clauses)
    }
}
