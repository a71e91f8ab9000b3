//! Queries of `eth_getLogs`: they select logs by block, address and topics.
//!
//! A [`LogQuery`] is parsed from JSON ([`LogQuery::from_json`]), built by its own methods, or
//! converted from the filter type of alloy (feature `alloy-rpc`). [`LogQuery::matches`] decides
//! exactly if a log matches the query. A [`CompiledQuery`] decides from a block's filter if the
//! block may contain a matching log.
//!
//! # Where nodes differ
//! [`Semantics`] chooses between the rules of geth and those of alloy, which reth and anvil are
//! built on. The development nodes in the other columns are listed for comparison only, and this
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

#[cfg(feature = "alloy-rpc")]
mod alloy_filter;
mod blocks;
mod compiled;
mod eth_transfers;
mod event_signature;
mod json;
#[cfg(test)]
mod json_tests;
mod limits;
mod query;
#[cfg(test)]
mod query_tests;
mod topics;

#[cfg(feature = "alloy-rpc")]
pub use alloy_filter::TrailingWildcard;
pub use blocks::{BlockSelection, BlockTag, Heads, ResolveError, ResolvedBlocks};
pub use compiled::CompiledQuery;
pub use eth_transfers::{EIP7708_EMITTER, TRANSFER_TOPIC};
pub use event_signature::{EventSignatureError, event_topic};
pub use json::QueryJsonError;
pub(crate) use json::read_query;
pub use limits::{LimitError, QueryLimits};
pub use query::{LogQuery, MAX_TOPICS, Semantics};
pub use topics::{ToTopic, TopicSet};
