//! Ethereum: logs, from a question to a proof that nothing was left out.
//!
//! A block's hash commits to its header, the header to a Bloom filter of the block's logs and to
//! the root of its receipts. So under a trusted hash a "no" of the filter proves that a block has
//! no such log, and a "maybe" becomes an answer with all receipts of the block.
//!
//! | module | what |
//! |---|---|
//! | [`bloom`] | the 2048-bit filter: positions of a value, accrual, an answer in three states |
//! | [`log_query`] | filters of `eth_getLogs`: read, compiled to bit positions, matched exactly |
//! | [`header`] | headers as received: a view over RLP, and chains linked by parent hash |
//! | `files` | headers, bodies and receipts in files: era1 and ere archives, RLP, JSON, hex (feature `std`, archives `era`) |
//! | [`scan`] | queries over many headers, and many watches over one |
//! | [`fill`] | how full filters are, and the rate of false "maybe" that follows |
//! | [`forecast`] | what a query will cost, from headers alone |
//! | `index` | the filters of a whole chain on disk, asked in milliseconds (feature `std`) |
//! | [`receipts`] | receipts under a receipts root, and proofs of one of them |
//! | [`audit`] | whether an answer to a query is complete and true, block by block |
//! | [`follow`] | the logs of a query, past and live, through reorganisations |
//! | [`provider`] | what providers limit, how requests are split, sent again and compared |
//! | [`certificate`] | an audit's result, and its verification by others |
//! | [`chain_profile`] | whose filters and receipts commit to what |
//! | [`log`] | a log with its place in the chain |
//! | [`json`] | what is wrong with a value of JSON-RPC, and where |

pub mod audit;
pub mod bloom;
pub mod certificate;
pub mod chain_profile;
#[cfg(feature = "std")]
pub mod files;
pub mod fill;
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
pub mod provider;
pub mod receipts;
pub mod scan;
