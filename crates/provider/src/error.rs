//! Errors of a provider: of its configuration and its operations.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::AuditError;
use chainsieve::eth::header::{BlockRef, ChainError};
use chainsieve::eth::log_query::QueryError;
use thiserror::Error;

use crate::nodes::endpoint::EndpointError;
use crate::nodes::error::RpcError;

/// Reason why a provider could not be created.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No URL was given.
    #[error("no URL of a node was given")]
    NoUrl,
    /// A header was given before any URL.
    #[error("a header was given before any URL, so no node would get it")]
    HeaderBeforeUrl,
    /// Nothing is trusted.
    #[error(
        "nothing is trusted: give an anchor, the hash of a block that you trust, or trust the head that \
         the nodes name (trust_head)"
    )]
    NoAnchor,
    /// A URL or one of its headers is invalid.
    #[error("URL {place}: {error}")]
    Endpoint {
        /// Number of the URL in the order in which URLs were given, from 1.
        place: usize,
        /// Reason why the URL or the header is invalid.
        error: EndpointError,
    },
}

/// Reason why an operation has no result.
///
/// The texts of the error contain no secrets. They show only scheme, host and port of a URL, and no
/// headers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// A request to a node failed.
    #[error("{what}, {node}: {error}")]
    Rpc {
        /// Scheme, host and port of the node.
        node: String,
        /// The data that was requested.
        what: String,
        /// Reason why the request failed.
        error: RpcError,
    },
    /// Two nodes serve different chains.
    #[error("the nodes serve two different chains, with ids {first} and {other}")]
    TwoChains {
        /// Chain id of the first node that answered.
        first: u64,
        /// Chain id of another node.
        other: u64,
    },
    /// The blocks of the query cannot be resolved to numbers.
    #[error("the query's blocks: {0}")]
    Blocks(QueryError),
    /// Only finalised blocks are allowed, but a node knows no finalised block.
    #[error("only finalised blocks are allowed, and a node knows no finalised block")]
    NoFinalized,
    /// Only finalised blocks are allowed, but this block may still leave the chain.
    #[error(
        "{what} block {block}, after the finalised block, {finalized}: such blocks may still leave \
         the chain"
    )]
    NotFinal {
        /// Role of the block in the query, such as "the range ends at".
        what: &'static str,
        /// Number of the block.
        block: u64,
        /// Number of the finalised block.
        finalized: u64,
    },
    /// No node has the query's block.
    #[error("no node has the query's block, {0}")]
    UnknownBlock(B256),
    /// The operation needs more headers than allowed.
    #[error(
        "{headers} headers are needed, from block {first} to {end}{}: the limit is {limit}",
        if .end > .last { ", the anchor" } else { "" }
    )]
    TooManyHeaders {
        /// Number of headers that the operation needs.
        headers: u64,
        /// Number of the first block.
        first: u64,
        /// Number of the query's last block.
        last: u64,
        /// Number of the last header: the number of the anchor, if the anchor is after the query's
        /// blocks.
        end: u64,
        /// Maximum number of headers.
        limit: u64,
    },
    /// The operation needs the receipts of more blocks than allowed.
    #[error(
        "receipts of {blocks} blocks are needed, about {bytes} bytes: the limit is {limit} blocks"
    )]
    TooManyReceipts {
        /// Number of blocks whose receipts are needed.
        blocks: u64,
        /// Estimated size of the receipts in bytes.
        bytes: u64,
        /// Maximum number of blocks.
        limit: u64,
    },
    /// The operation would hold more data in memory than allowed.
    #[error("{node}: more than {limit} bytes of {what}: narrow the query or its range")]
    TooMuch {
        /// Scheme, host and port of the node.
        node: String,
        /// Kind of the data: "headers", "logs" or "receipts".
        what: &'static str,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// The headers of a node do not form one chain, although they were fetched several times.
    #[error(
        "the headers from {node} do not form one chain, {tries} times in a row: block {block}: \
         {error}"
    )]
    NoOneChain {
        /// Scheme, host and port of the node.
        node: String,
        /// Number of the block that is not a child of the block before it.
        block: u64,
        /// Reason why the block is not a child of the block before it.
        error: ChainError,
        /// Number of attempts.
        tries: u32,
    },
    /// A part of a chain does not continue the part before it.
    #[error(
        "headers, {node}: block {block} is not the child of the block fetched before it: the chain \
         was reorganised, or this node is on another branch; start again"
    )]
    Reorganized {
        /// Scheme, host and port of the node.
        node: String,
        /// Number of the first block of the part.
        block: u64,
    },
    /// The data of a chain were requested from a node, but the node's chain is a different branch.
    #[error("{node}: the node is on another branch at block {block}{}", in_a_row(*.tries))]
    OtherBranch {
        /// Scheme, host and port of the node.
        node: String,
        /// Number of the first block that differs or that the node lacks.
        block: u64,
        /// Number of attempts.
        tries: u32,
    },
    /// No node provided receipts that match the block's header.
    #[error("receipts of {block}: {why}")]
    NoReceipts {
        /// The block.
        block: BlockRef,
        /// Reason why the first attempt failed.
        why: String,
    },
    /// The audit cannot begin: the headers do not cover the query's blocks, or the query's block is
    /// not on the chain.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The anchor could not provide its hashes.
    #[error("the anchor: {0}")]
    Anchor(String),
    /// A [`Stop`](crate::Stop) was set.
    #[error("stopped")]
    Stopped,
}

fn in_a_row(tries: u32) -> String {
    if tries > 1 { format!(", {tries} times in a row") } else { String::new() }
}

impl FetchError {
    /// Creates an error of a node. [`RpcError::Stopped`] becomes [`FetchError::Stopped`].
    pub(crate) fn rpc(node: String, what: impl Into<String>, error: RpcError) -> Self {
        match error {
            RpcError::Stopped => Self::Stopped,
            error => Self::Rpc { node, what: what.into(), error },
        }
    }

    /// Returns `true` if the same request may succeed later: after a failed connection, a timeout,
    /// a rate limit, or an error of the server.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rpc { error, .. } if error.origin().is_transient())
    }
}
