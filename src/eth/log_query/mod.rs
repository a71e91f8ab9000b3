//! Filters of `eth_getLogs`: which logs of which blocks.
//!
//! A [`LogQuery`] comes from JSON ([`LogQuery::from_json`]), from its own methods, or from the
//! filter type of alloy (feature `alloy-rpc`). It says of a log exactly whether it is wanted
//! ([`LogQuery::matches`]), and as a [`CompiledQuery`] of a block's filter whether the block may
//! have such a log.
//!
//! # Where nodes differ
//! [`Semantics`] chooses between geth and alloy, which reth is built on:
//!
//! | | geth | alloy and reth | here |
//! |---|---|---|---|
//! | `topics: [A, null]` | a log needs two topics | one is enough | by [`Semantics`], when matching |
//! | `null` in the list of a position | "any"; what follows it is not looked at | "any" | by [`Semantics`] |
//! | `address: [null]` | error | "any" | by [`Semantics`] |
//! | unknown field | ignored | error | by [`Semantics`] |
//! | field in other case, `fromblock` | taken for the field | error | error |
//! | field twice | the last one counts | error | error |
//! | addresses, topics, hashes without `0x` or `0X` | error | taken | by [`Semantics`] |
//! | addresses, topics, hashes as lists of 20 or 32 numbers | error | taken | error |
//! | `"Latest"`, `"0x00a"` | error | taken | by [`Semantics`] |
//! | `"0x+a"` | error | taken | error |
//! | block number above 2^63 − 1 | error | taken | by [`Semantics`] |
//! | pending block | error | the node's candidate | error when resolved |
//! | beginning after the head, no end | error | no logs | error when resolved |
//!
//! Both refuse numbers that are not hex in a string, `blockHash` beside `fromBlock` or `toBlock`
//! (null counts as absent), and more than four positions. Both read an absent or null end of the
//! range as the latest block, and `earliest` as the first block that is not pruned.
//!
//! What geth refuses for its size, more than 1000 addresses or topics of a position, is left to
//! [`QueryLimits`], which count each value once.

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
