//! Ethereum logs, from a query to a proof that the answer is complete.
//!
//! A block's hash commits to its header. The header commits to a Bloom filter of the block's logs
//! and to the root of its receipts. So under a trusted hash, a "no" of the filter proves that the
//! block has no matching log. A "maybe" is decided by checking all receipts of the block.
//!
//! # What you call
//! | module | contents |
//! |---|---|
//! | [`bloom`] | the 2048-bit filter: bit positions of a value, accrual, an answer in three states, fill and false-positive rate |
//! | [`log_query`] | filters of `eth_getLogs`: parsed, compiled to bit positions, matched exactly |
//! | [`header`] | headers as received: a view over RLP, and chains linked by parent hash |
//! | `files` | reads headers, bodies and receipts from files: era1 and ere archives, RLP, JSON, hex (feature `std`; archives need `era`) |
//! | [`scan`] | tests one query against many headers, and many watches against one header |
//! | [`forecast`] | estimates the cost of a query from headers alone |
//! | `index` | on-disk index of a whole chain's filters, queried in milliseconds (feature `std`) |
//! | [`receipts`] | verifies receipts against a receipts root, and builds and verifies proofs of single receipts |
//! | [`transactions`] | verifies transactions against a transactions root |
//! | `anchor` | why a block hash is believed: sync committees of the beacon chain, the history contract, proofs of headers (feature `anchor`) |
//! | [`audit`] | decides block by block if the answer to a query is complete and correct |
//! | [`columns`] | verifies the rows of a data set: tables of blocks, transactions and logs |
//! | [`certificate`] | an audit's result in a form that others can verify |
//! | [`chain_profile`] | what the filters and receipts of each chain commit to |
//! | [`log`] | a log with its position in the chain, and the difference of two answers |
//! | `alloy` | conversions from and to the types of `alloy-rpc-types-eth` (feature `alloy-rpc`) |
//! | [`json`] | errors in JSON-RPC values, with their position |
//!
//! # What you drive
//! State machines without sockets, clock or files: the caller passes each `Event` in, and carries out
//! each `Action`. [`follow`] follows the past and new logs of a query through reorganisations. `anchor`
//! has two more state machines: the light client of the beacon chain, and the part that keeps the light
//! client up to date.

#[cfg(feature = "alloy-rpc")]
pub mod alloy;
#[cfg(feature = "anchor")]
pub mod anchor;
pub mod audit;
pub mod bloom;
pub mod certificate;
pub mod chain_profile;
pub mod columns;
#[cfg(feature = "std")]
pub mod files;
pub mod follow;
pub mod forecast;
pub mod header;
#[cfg(feature = "std")]
pub mod index;
pub mod json;
pub mod log;
pub mod log_query;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod names_tests;
pub mod receipts;
pub mod scan;
pub mod transactions;
mod trie;
