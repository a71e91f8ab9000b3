//! Filters of `eth_getLogs`: which logs of which blocks.
//!
//! A [`LogQuery`] comes from JSON ([`LogQuery::from_json`]), from its own methods, or from the
//! filter type of alloy (feature `alloy-rpc`). It says of a log exactly whether it is wanted
//! ([`LogQuery::matches`]), and as a [`CompiledQuery`] of a block's filter whether the block may
//! have such a log.
//!
//! # Where nodes differ
//! [`Semantics`] chooses between geth and alloy, which reth and anvil are built on. The development
//! nodes in the other columns are followed nowhere: a test that passes on them may fail on a node
//! of the main network. `A` is a topic; – was not asked, or not answered. In the rows of prefixes and
//! lists of numbers the development nodes were asked with topics.
//!
//! | query | geth | alloy, reth | anvil | hardhat | ganache | eth-tester | here |
//! |---|---|---|---|---|---|---|---|
//! | `topics: [A, null]`: topics that a log needs | 2 | 1 | 1 | 2 | 2 | 2 | by [`Semantics`], when matching |
//! | `topics: [null]`: topics that a log needs | 1 | 0 | 0 | 1 | 1 | 1 | by [`Semantics`], when matching |
//! | `topics: [[]]` | as `[null]` | as `[null]` | as `[null]` | no logs | as `[null]` | no logs | as `[null]` |
//! | `topics: [[], A]` | as `[null, A]` | as `[null, A]` | as `[null, A]` | no logs | as `[null, A]` | no logs | as `[null, A]` |
//! | `topics: [[A, null]]` | as `[null]`; what follows `null` is not read | as `[null]` | as `[null]` | error | as `[[A]]` | as `[null]` | as `[null]`, read by [`Semantics`] |
//! | `topics: [[null]]` | as `[null]` | as `[null]` | as `[null]` | error | no logs | as `[null]` | as `[null]` |
//! | five positions of topics | error | error | error | no logs | no logs | no logs | error |
//! | `topics` that is a string | error | error | error | error | no logs | error | error |
//! | a topic of 31 bytes | error | error | error | error | no logs | error | error |
//! | `address: []` | any | any | any | any | any | error | any |
//! | `address: [null]` | error | any | any | error | error | – | by [`Semantics`] |
//! | addresses, topics, hashes without `0x` | error | taken | taken | taken | error | – | by [`Semantics`] |
//! | addresses, topics, hashes with `0X` | taken | taken | error | error | taken | – | taken |
//! | addresses, topics, hashes as lists of 20 or 32 numbers | error | taken | taken | taken | no logs | – | error |
//! | unknown field | ignored | error | error | ignored | ignored | ignored | by [`Semantics`] |
//! | field in other case, `fromblock` | taken for the field | error | error | ignored | ignored | – | error |
//! | field twice | the last counts | error | the last counts | the last counts | the last counts | – | error |
//! | `"Latest"` | error | taken | taken | error | error | – | by [`Semantics`] |
//! | `"0x01"` as a block | error | taken | taken | taken | taken | – | by [`Semantics`] |
//! | `"0x+1"` as a block | error | taken | taken | error | error | – | error |
//! | 1 as a block, not a string | error | error | error | error | taken | – | error |
//! | block number above 2^63 − 1 | error | taken | taken | – | taken | – | by [`Semantics`] |
//! | `blockHash` beside `fromBlock` | error | error | error | error | `fromBlock` is ignored | – | error |
//! | unknown `blockHash` | error | error | error | error | no logs | – | error of an [audit](crate::eth::audit) |
//! | `fromBlock` after `toBlock` | error | error | no logs | no logs | logs of `fromBlock` | no logs | error when resolved |
//! | `fromBlock` after `toBlock: "0x0"` | no logs, or an error | error | no logs | no logs | logs of `fromBlock` | – | error when resolved |
//! | `toBlock` above the head | error | error | ends at the head | ends at the head | ends at the head | no logs | error when resolved |
//! | `fromBlock` above the head, no `toBlock` | error | error; no logs before reth #26891 | error | no logs | no logs | – | error when resolved |
//! | pending block | error | the node's candidate, or the head | answered | answered | answered | – | error when resolved |
//!
//! Both semantics read null as absent: for a field, for an end of the range beside `blockHash`,
//! for `topics` and `address`. An absent end of the range is the latest block, and `earliest` the
//! first block that is not pruned.
//!
//! The first row is the one that is met in practice: viem and ox send `[Transfer, from, null]`,
//! ethers drops the null, and geth answers the two differently.
//!
//! What geth refuses for its size, more than 1000 addresses or topics of a position, is left to
//! [`QueryLimits`], which count each value once.
//!
//! Sources, by column:
//! - geth: go-ethereum's filter tests and source at 409aaefa and 02b73d4e (20 August 2026), and
//!   answers of its runs that execution-apis publishes (50d1e5e0, 22 July 2026).
//! - alloy: alloy-rpc-types-eth 2.5.0, asked by this crate's tests. reth: source of 2.5.1
//!   (7b3432d9, 21 August 2026) and pull request #26891 (31 August 2026).
//! - anvil 1.7.1, hardhat 2.29.1, ganache 7.9.2: asked over JSON-RPC on 22 and 23 November 2026.
//! - eth-tester 0.14.0b1: asked on 22 November 2026.

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
