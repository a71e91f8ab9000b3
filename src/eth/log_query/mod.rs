//! Queries of `eth_getLogs`: they select logs by block, address and topics.
//!
//! A [`LogQuery`] is parsed from JSON ([`LogQuery::from_json`]), built by its own methods, or
//! converted from the filter type of alloy (feature `alloy-rpc`). [`LogQuery::matches`] decides
//! exactly if a log matches the query. A [`CompiledQuery`] decides from a block's filter if the
//! block may contain a matching log.
//!
//! # Where nodes differ
//! [`Semantics`] chooses between the rules of geth and those of alloy. reth and anvil are built on
//! alloy. The development nodes in the other columns are listed for comparison only, and this
//! library never follows their rules: a test that passes on a development node may fail on a
//! mainnet node.
//!
//! In the table, `A` is a topic, and – means that the node was not asked or did not answer. For the
//! rows about prefixes and about lists of numbers, the development nodes were tested with topics.
//!
//! | query | geth | alloy, reth | anvil | hardhat | ganache | eth-tester | here |
//! |---|---|---|---|---|---|---|---|
//! | `topics: [A, null]`: number of topics that a log needs | 2 | 1 | 1 | 2 | 2 | 2 | by [`Semantics`], when matching |
//! | `topics: [null]`: number of topics that a log needs | 1 | 0 | 0 | 1 | 1 | 1 | by [`Semantics`], when matching |
//! | `topics: [[]]` | as `[null]` | as `[null]` | as `[null]` | no logs | as `[null]` | no logs | as `[null]` |
//! | `topics: [[], A]` | as `[null, A]` | as `[null, A]` | as `[null, A]` | no logs | as `[null, A]` | no logs | as `[null, A]` |
//! | `topics: [[A, null]]` | as `[null]`; values after `null` are not read | as `[null]` | as `[null]` | error | as `[[A]]` | as `[null]` | as `[null]`, read by [`Semantics`] |
//! | `topics: [[null]]` | as `[null]` | as `[null]` | as `[null]` | error | no logs | as `[null]` | as `[null]` |
//! | five positions of topics | error | error | error | no logs | no logs | no logs | error |
//! | `topics` that is a string | error | error | error | error | no logs | error | error |
//! | a topic of 31 bytes | error | error | error | error | no logs | error | error |
//! | `address: []` | any | any | any | any | any | error | any |
//! | `address: [null]` | error | any | any | error | error | – | by [`Semantics`] |
//! | addresses, topics, hashes without `0x` | error | accepted | accepted | accepted | error | – | by [`Semantics`] |
//! | addresses, topics, hashes with `0X` | accepted | accepted | error | error | accepted | – | accepted |
//! | addresses, topics, hashes as lists of 20 or 32 numbers | error | accepted | accepted | accepted | no logs | – | error |
//! | unknown field | ignored | error | error | ignored | ignored | ignored | by [`Semantics`] |
//! | field in other case, `fromblock` | read as `fromBlock` | error | error | ignored | ignored | – | error |
//! | field twice | the last is used | error | the last is used | the last is used | the last is used | – | error |
//! | `"Latest"` | error | accepted | accepted | error | error | – | by [`Semantics`] |
//! | `"0x01"` as a block | error | accepted | accepted | accepted | accepted | – | by [`Semantics`] |
//! | `"0x+1"` as a block | error | accepted | accepted | error | error | – | error |
//! | 1 as a block, not a string | error | error | error | error | accepted | – | error |
//! | block number above 2^63 − 1 | error | accepted | accepted | – | accepted | – | by [`Semantics`] |
//! | `blockHash` together with `fromBlock` | error | error | error | error | `fromBlock` is ignored | – | error |
//! | unknown `blockHash` | error | error | error | error | no logs | – | error of an [audit](crate::eth::audit) |
//! | `fromBlock` after `toBlock` | error | error | no logs | no logs | logs of `fromBlock` | no logs | error when resolved |
//! | `fromBlock` after `toBlock: "0x0"` | no logs, or an error | error | no logs | no logs | logs of `fromBlock` | – | error when resolved |
//! | `toBlock` above the head | error | error | ends at the head | ends at the head | ends at the head | no logs | error when resolved |
//! | `fromBlock` above the head, no `toBlock` | error | error; no logs before reth #26891 | error | no logs | no logs | – | error when resolved |
//! | pending block | error | the node's candidate, or the head | answered | answered | answered | – | error when resolved |
//!
//! Both semantics treat a field that is null as absent. `fromBlock: null` beside `blockHash` is
//! therefore valid. An absent `fromBlock` or `toBlock` is the latest block, and `earliest` is the
//! first block that is not pruned.
//!
//! In practice, the first row of the table matters most: viem and ox send `[Transfer, from, null]`,
//! ethers drops the null, and geth answers the two queries differently.
//!
//! geth also rejects a query with more than 1000 addresses, or more than 1000 topics at one
//! position. The parser here does not check these limits: use [`QueryLimits`], which ignore
//! repeated values.
//!
//! Sources, by column:
//! - geth: go-ethereum's filter tests and source at 409aaefa and 02b73d4e (20 August 2026), and the
//!   answers of geth that execution-apis publishes (50d1e5e0, 22 July 2026).
//! - alloy: alloy-rpc-types-eth 2.5.0, run by this crate's tests. reth: source of 2.5.1
//!   (7b3432d9, 21 August 2026) and pull request #26891 (31 August 2026).
//! - anvil 1.7.1, hardhat 2.29.1, ganache 7.9.2: queried over JSON-RPC on 22 and 23 November 2026.
//! - eth-tester 0.14.0b1: queried on 22 November 2026.

mod blocks;
mod json;
#[cfg(test)]
mod json_tests;
#[cfg(test)]
mod query_tests;
mod topics;

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Log, address, b256};
use chainsieve_lanes::names;

use crate::eth::bloom::{self, BloomAnswer, BloomView};
use crate::eth::json::{JsonPath, ValueProblem};

pub use blocks::{BlockSelection, BlockTag, Heads, ResolvedBlocks};
pub(crate) use json::read_query;
pub use topics::{ToTopic, TopicSet, event_topic};

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
/// # Ok::<(), chainsieve::eth::log_query::QueryError>(())
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
    pub fn event(self, signature: &str) -> Result<Self, QueryError> {
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
    /// 1. [`Pending`](QueryError::Pending) or [`UnknownTag`](QueryError::UnknownTag), for the
    ///    first block of the range, then for its last block;
    /// 2. [`BeyondHead`](QueryError::BeyondHead);
    /// 3. [`BeginsAfterHead`](QueryError::BeginsAfterHead), only if the query has no last block;
    /// 4. [`Reversed`](QueryError::Reversed);
    /// 5. [`Pruned`](QueryError::Pruned).
    pub fn resolve(&self, heads: &Heads) -> Result<ResolvedBlocks, QueryError> {
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

/// A query in hashed form: an AND of clauses, each of which is an OR of values.
///
/// A block may contain a match if every clause has a value whose bits are all set in the block's
/// filter. The compiled query contains neither the query's range of blocks nor the positions of
/// topics, because a filter contains neither.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct CompiledQuery {
    clauses: Vec<Vec<[u16; 3]>>,
}

impl CompiledQuery {
    /// Creates a compiled query from the bit positions of the values of each clause.
    ///
    /// Without any clause, every block is a candidate. A clause without values never matches, so that
    /// no block is a candidate: leave out clauses that mean "any".
    pub fn new(clauses: Vec<Vec<[u16; 3]>>) -> Self {
        Self { clauses }
    }

    /// Returns the clauses: first the addresses, then the topic positions that are not "any".
    pub fn clauses(&self) -> &[Vec<[u16; 3]>] {
        &self.clauses
    }

    /// Returns `true` if the query has no clause, so that every block is a candidate.
    pub fn matches_everything(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Tests if a block with this filter may contain a match.
    pub fn answer<'a>(&self, bloom: impl Into<BloomView<'a>>) -> BloomAnswer {
        match bloom.into().informative() {
            None => BloomAnswer::NoInformation,
            Some(bits) if self.may_match(bits) => BloomAnswer::Maybe,
            Some(_) => BloomAnswer::No,
        }
    }

    fn may_match(&self, bits: &[u8; bloom::BYTES]) -> bool {
        self.clauses.iter().all(|values| values.iter().any(|value| bloom::contains(bits, value)))
    }
}

/// The address that emits the logs of ether transfers: the system address.
///
/// Source: EIP-7708, which uses the system address of EIP-4788.
pub const EIP7708_EMITTER: Address = address!("0xfffffffffffffffffffffffffffffffffffffffe");

/// The first topic of a token transfer (ERC-20) and of an ether transfer (EIP-7708).
///
/// The topic is the Keccak-256 hash of `Transfer(address,address,uint256)`.
pub const TRANSFER_TOPIC: B256 =
    b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

impl LogQuery {
    /// Creates a query for the logs of ether transfers, which exist since the fork with EIP-7708.
    ///
    /// In the log of an ether transfer, the sender is [`topic1`](Self::topic1), the recipient is
    /// [`topic2`](Self::topic2), and the data is the amount in wei. To find what an account sends
    /// *or* receives, use two queries, because all positions of one query must match.
    ///
    /// **A balance cannot be computed from these logs.** The logs report value that moves to
    /// another account, by a transaction or inside the EVM. The logs do not report fees, priority
    /// fees, validator withdrawals or block rewards before the merge. Blocks before the fork have
    /// no logs of ether transfers. So an empty answer for blocks before the fork is complete and
    /// correct, but gives no information about transfers.
    ///
    /// Source: EIP-7708 as of May 2026, which builds on EIP-8246. Earlier drafts of EIP-7708 also
    /// had logs of burnt ether; the version of May 2026 has no such logs.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::alloy_primitives::address;
    /// use chainsieve::eth::log_query::LogQuery;
    /// let me = address!("0xd8da6bf26964af9d7eed9e03e53415d37aa96045");
    /// let received = LogQuery::eth_transfers().topic2(me).from_block(25_000_000);
    /// let sent = LogQuery::eth_transfers().topic1(me).from_block(25_000_000);
    /// assert_ne!(received, sent);
    /// ```
    pub fn eth_transfers() -> Self {
        Self::new().address(EIP7708_EMITTER).topic0(TRANSFER_TOPIC)
    }
}

/// Maximum sizes of a query. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct QueryLimits {
    /// Maximum number of distinct addresses.
    pub addresses: Option<usize>,
    /// Maximum number of distinct topics at one position.
    pub topics_per_position: Option<usize>,
    /// Maximum number of blocks in a range, both ends included.
    pub blocks: Option<u64>,
}

impl QueryLimits {
    /// Returns limits that are all `None`.
    pub const fn none() -> Self {
        Self { addresses: None, topics_per_position: None, blocks: None }
    }

    /// Returns geth's default limits: 1000 addresses, and 1000 topics at each position.
    ///
    /// geth counts repeated values too. A [`LogQuery`] has no repeated values, so a query that geth
    /// rejects because of repeated values passes this check.
    pub const fn geth() -> Self {
        Self { addresses: Some(1_000), topics_per_position: Some(1_000), ..Self::none() }
    }

    /// Returns reth's default limit of a query: 100,001 blocks.
    ///
    /// reth's own limit of 100,000 is the difference between the last and the first block number.
    pub const fn reth() -> Self {
        Self { blocks: Some(100_001), ..Self::none() }
    }

    /// Checks the size of a query and its range. Only distinct values are counted, because a
    /// [`LogQuery`] has no repeated values.
    ///
    /// # Errors
    /// Returns the first limit that is exceeded, in this order: addresses, topics by position, number
    /// of blocks.
    pub fn check(&self, query: &LogQuery, blocks: &ResolvedBlocks) -> Result<(), QueryError> {
        let addresses = query.address_set().len();
        if let Some(limit) = self.addresses.filter(|&limit| addresses > limit) {
            return Err(QueryError::TooManyAddresses { found: addresses, limit });
        }
        for (position, topics) in query.topics().iter().enumerate() {
            let found = topics.values().len();
            if let Some(limit) = self.topics_per_position.filter(|&limit| found > limit) {
                return Err(QueryError::TooManyTopics { position, found, limit });
            }
        }
        let found = blocks.count();
        match self.blocks.filter(|&limit| found > limit) {
            Some(limit) => Err(QueryError::TooManyBlocks { found, limit }),
            None => Ok(()),
        }
    }
}

/// Error about a query: its text, the signature of an event, its blocks or its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The text is not JSON, or text follows the JSON value.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// The value is not an object.
    #[error("a query is an object, not {0}")]
    NotAnObject(&'static str),
    /// The object has an unknown field. This error is returned only under [`Semantics::Alloy`],
    /// because geth ignores unknown fields.
    #[error("field {0:?} is none of blockHash, fromBlock, toBlock, address, topics")]
    UnknownField(String),
    /// A field differs from a known field only in upper or lower case. geth would accept it as the
    /// known field, but other nodes would not.
    #[error("field {found:?} must be written {field:?}")]
    FieldCase {
        /// The field as found.
        found: String,
        /// The correct spelling.
        field: &'static str,
    },
    /// A field occurs twice. Nodes disagree on which of the two values is valid.
    #[error("duplicate field {0:?}")]
    DuplicateField(&'static str),
    /// The query has `blockHash` together with `fromBlock` or `toBlock`.
    #[error("blockHash excludes fromBlock and toBlock")]
    HashAndRange,
    /// The query has more topic positions than a log can have topics.
    #[error("topics: {found} positions, but a log has at most {MAX_TOPICS} topics")]
    TooManyPositions {
        /// Number of positions found.
        found: usize,
    },
    /// A field has an invalid value.
    #[error("{place}: {problem}")]
    Value {
        /// Position of the value.
        place: JsonPath,
        /// Reason why the value is invalid.
        problem: ValueProblem,
    },
    /// The name before the parenthesis is missing, or Solidity does not allow it.
    #[error("{0:?} is not the name of an event")]
    EventName(String),
    /// A type is not an ABI type.
    #[error("{found:?} at byte {at} is not a type of the ABI")]
    EventType {
        /// The text that was found where a type was expected.
        found: String,
        /// Offset of this text, in bytes.
        at: usize,
    },
    /// The event is anonymous: no topic of its logs identifies it.
    #[error("an anonymous event has no topic of its own")]
    EventAnonymous,
    /// The text of an event does not continue as expected.
    #[error("expected {expected} at byte {at}")]
    EventSyntax {
        /// The expected text.
        expected: &'static str,
        /// Offset at which the text was expected, in bytes.
        at: usize,
    },
    /// Too many addresses.
    #[error("{found} addresses, the limit is {limit}")]
    TooManyAddresses {
        /// Number of distinct addresses in the query.
        found: usize,
        /// Maximum number of distinct addresses.
        limit: usize,
    },
    /// Too many topics at one position.
    #[error("topics[{position}]: {found} topics, the limit is {limit}")]
    TooManyTopics {
        /// The topic position, from 0.
        position: usize,
        /// Number of distinct topics at this position.
        found: usize,
        /// Maximum number of distinct topics.
        limit: usize,
    },
    /// Too many blocks.
    #[error("{found} blocks, the limit is {limit}")]
    TooManyBlocks {
        /// Number of blocks in the range.
        found: u64,
        /// Maximum number of blocks.
        limit: u64,
    },
    /// The query selects the pending block. geth rejects such a query; reth answers with its own
    /// candidate block.
    #[error("logs of the pending block cannot be queried")]
    Pending,
    /// The node does not know the block of the tag, for example before the first finalised block.
    #[error("the number of the {0} block is not known")]
    UnknownTag(&'static str),
    /// The last block of the range precedes the first block. For ranges with tags, older versions
    /// of geth answer with an empty list.
    #[error("the range begins at block {first} and ends before it, at {last}")]
    Reversed {
        /// Number of the first block of the range.
        first: u64,
        /// Number of the last block of the range.
        last: u64,
    },
    /// The range ends after the head. The logs of blocks that do not exist yet cannot be complete.
    #[error("the range ends at block {last}, beyond the head {head}")]
    BeyondHead {
        /// Number of the last block of the range.
        last: u64,
        /// Number of the head.
        head: u64,
    },
    /// The range begins after the head and has no last block. geth rejects such a range. Older
    /// versions of reth answer with an empty list, which proves nothing.
    #[error("the range begins at block {first}, after the head {head}")]
    BeginsAfterHead {
        /// Number of the first block of the range.
        first: u64,
        /// Number of the head.
        head: u64,
    },
    /// The range begins before the first block whose logs the node still has.
    #[error("the range begins at block {first}, but the node has pruned blocks before {earliest}")]
    Pruned {
        /// Number of the first block of the range.
        first: u64,
        /// Number of the first block that is not pruned.
        earliest: u64,
    },
    /// The last topic position is "any", which the `Filter` of `alloy-rpc-types-eth` cannot store.
    #[error("position {position} of the topics is last and \"any\", which a Filter cannot store")]
    TrailingWildcard {
        /// Index of the last topic position, from 0.
        position: usize,
    },
}

#[cfg(test)]
mod eth_transfers_tests {

    use super::{EIP7708_EMITTER, TRANSFER_TOPIC};
    use crate::eth::bloom;
    use crate::eth::log_query::{LogQuery, event_topic};

    /// The bit positions of emitter and topic were computed independently of this library.
    #[test]
    fn the_query_has_the_bits_of_emitter_and_topic() {
        assert_eq!(event_topic("Transfer(address,address,uint256)"), Ok(TRANSFER_TOPIC));
        assert_eq!(bloom::positions(EIP7708_EMITTER.as_slice()), [1213, 435, 262]);
        let compiled = LogQuery::eth_transfers().compile();
        assert_eq!(compiled.clauses(), [[[1213, 435, 262]], [[1443, 481, 1060]]]);
    }
}

#[cfg(test)]
mod limits_tests {
    use alloc::string::ToString as _;

    use alloy_primitives::{Address, B256, U256};

    use super::{QueryError, QueryLimits};
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
            Err(QueryError::TooManyBlocks { found: 100_002, limit: 100_001 })
        );
        let all = ResolvedBlocks::Range { first: 0, last: u64::MAX };
        assert_eq!(geth.check(&LogQuery::new(), &all), Ok(()));
        assert_eq!(all.count(), u64::MAX, "one less than there are");
    }
}
