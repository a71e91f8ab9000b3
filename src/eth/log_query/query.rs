//! The query itself: built by its methods, matched exactly.

use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{Address, B256, Log};

use super::blocks::{BlockSelection, BlockTag, Heads, ResolveError, ResolvedBlocks};
use super::compiled::CompiledQuery;
use super::event_signature::{EventSignatureError, event_topic};
use super::topics::TopicSet;
use crate::eth::bloom;

/// How many topics a log has at most.
pub const MAX_TOPICS: usize = 4;

/// Whose rules a query is read and matched by, where they differ (see the
/// [module](crate::eth::log_query)). As `serde` it is `"geth"` or `"alloy"`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Semantics {
    /// go-ethereum: a log has at least as many topics as the query has positions.
    #[default]
    Geth,
    /// alloy, and nodes that are built on it: "any" at the end of the positions wants nothing.
    Alloy,
}

/// `geth` or `alloy`.
impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Geth => "geth",
            Self::Alloy => "alloy",
        })
    }
}

/// Which logs of which blocks: the object that `eth_getLogs` takes.
///
/// A log is wanted if its address is one of the query's, and at each position its topic is one of
/// the position's. Empty sets are "any". Sets are kept sorted, each value once, so that equal
/// queries are equal values.
///
/// As `serde` it is that object, in the canonical form of [`to_json`](Self::to_json). It is read
/// by the rules of [`Semantics::Alloy`], which refuse unknown members and take every block number;
/// [`from_json`](Self::from_json) reads by either.
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
    /// Sorted, each once.
    addresses: Vec<Address>,
    /// At most [`MAX_TOPICS`], those that stand for "any" at the end included.
    topics: Vec<TopicSet>,
}

impl LogQuery {
    /// Every log of the latest block.
    pub const fn new() -> Self {
        let blocks = BlockSelection::Range { from: None, to: None };
        Self { blocks, addresses: Vec::new(), topics: Vec::new() }
    }

    /// Every log of these blocks.
    pub fn of(blocks: BlockSelection) -> Self {
        Self { blocks, ..Self::new() }
    }

    /// The same logs of other blocks.
    #[must_use]
    pub fn in_blocks(self, blocks: BlockSelection) -> Self {
        Self { blocks, ..self }
    }

    /// Begins the range at a block. A hash that was set goes.
    #[must_use]
    pub fn from_block(mut self, block: impl Into<BlockTag>) -> Self {
        let (_, to) = self.range();
        self.blocks = BlockSelection::Range { from: Some(block.into()), to };
        self
    }

    /// Ends the range with a block. A hash that was set goes.
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

    /// Takes the one block with this hash, in place of a range.
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

    /// Adds addresses. None at all leave the query at "any".
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = Address>) -> Self {
        self.addresses.extend(addresses);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self
    }

    /// Sets the first topic, which is the hash of the event's signature unless the event is
    /// anonymous.
    #[must_use]
    pub fn topic0(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(0, topics.into())
    }

    /// Sets the second topic, the first indexed argument of an event that is not anonymous.
    ///
    /// Like the others it takes an [`Address`], padded to 32 bytes, a number, a truth value, a
    /// topic as it is, a list of one of them, or [`TopicSet::any`]. The positions before it are
    /// "any" unless they are set.
    #[must_use]
    pub fn topic1(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(1, topics.into())
    }

    /// Sets the third topic.
    #[must_use]
    pub fn topic2(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(2, topics.into())
    }

    /// Sets the fourth topic.
    #[must_use]
    pub fn topic3(self, topics: impl Into<TopicSet>) -> Self {
        self.topic(3, topics.into())
    }

    /// Sets the first topic to the hash of an event's signature ([`event_topic`]).
    ///
    /// # Errors
    /// A text that is no signature in its canonical form, since its hash is no event's.
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

    /// The blocks.
    pub const fn blocks(&self) -> &BlockSelection {
        &self.blocks
    }

    /// The addresses, sorted, each once; empty for "any".
    pub fn address_set(&self) -> &[Address] {
        &self.addresses
    }

    /// The positions of topics, those that stand for "any" at the end included: as many as
    /// geth wants a log to have.
    pub fn topics(&self) -> &[TopicSet] {
        &self.topics
    }

    /// The blocks by number ([`BlockSelection::resolve`]).
    ///
    /// # Errors
    /// Blocks that can't be named.
    pub fn resolve(&self, heads: &Heads) -> Result<ResolvedBlocks, ResolveError> {
        self.blocks.resolve(heads)
    }

    /// Whether a log is wanted: exactly, by address and topics. Its block is not looked at
    /// ([`ResolvedBlocks::contains`]).
    ///
    /// Costs a binary search for each set.
    pub fn matches(&self, log: &Log, semantics: Semantics) -> bool {
        self.admits_address(&log.address) && self.admits_topics(log.topics(), semantics)
    }

    /// Whether a log is wanted by one of the two [`Semantics`] and not by the other.
    ///
    /// Of a log with at most four topics, as many as there can be, it says that only the number
    /// of its topics stands against it: alloy's rules want it, geth's don't.
    pub fn depends_on_semantics(&self, log: &Log) -> bool {
        self.matches(log, Semantics::Geth) != self.matches(log, Semantics::Alloy)
    }

    /// Whether the last position is "any": without it both [`Semantics`] want the same logs.
    pub fn ends_in_any(&self) -> bool {
        self.topics.last().is_some_and(TopicSet::is_any)
    }

    fn admits_address(&self, address: &Address) -> bool {
        self.addresses.is_empty() || self.addresses.binary_search(address).is_ok()
    }

    fn admits_topics(&self, topics: &[B256], semantics: Semantics) -> bool {
        // A log that no EVM emits: alloy compares all topics to its four sets.
        if semantics == Semantics::Alloy && topics.len() > MAX_TOPICS {
            return false;
        }
        self.topics.iter().enumerate().all(|(position, wanted)| match topics.get(position) {
            Some(topic) => wanted.admits(topic),
            None => semantics == Semantics::Alloy && wanted.is_any(),
        })
    }

    /// The query as bit positions, for filters of whole blocks: each value hashed once, all in
    /// one batch.
    ///
    /// The compiled query never says "no" of a block with a log that [`matches`](Self::matches)
    /// under either [`Semantics`].
    pub fn compile(&self) -> CompiledQuery {
        let addresses = self.addresses.iter().map(|address| address.as_slice());
        let topics = self.topics.iter().flat_map(TopicSet::values).map(B256::as_slice);
        let values: Vec<&[u8]> = addresses.chain(topics).collect();
        let mut positions = bloom::positions_of_each(&values).into_iter();
        let sizes = self.topics.iter().map(|set| set.values().len());
        let clauses = core::iter::once(self.addresses.len())
            .chain(sizes)
            .filter(|&size| size > 0)
            .map(|size| positions.by_ref().take(size).collect())
            .collect();
        CompiledQuery::new(clauses)
    }
}
