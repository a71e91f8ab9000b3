//! Why an operation of a provider failed.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::AuditError;
use chainsieve::eth::header::{BlockRef, ChainError};
use chainsieve::eth::log_query::ResolveError;
use thiserror::Error;

use crate::node::{EndpointError, RpcError};

/// Why a provider is not set up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No URL was given.
    #[error("no URL of a node was given")]
    NoUrl,
    /// A header was given before any URL.
    #[error("a header was given before any URL, so that no node would get it")]
    HeaderBeforeUrl,
    /// A URL or a header of one is invalid.
    #[error("URL {place}: {error}")]
    Endpoint {
        /// Which of the URLs, from 1.
        place: usize,
        /// What is wrong.
        error: EndpointError,
    },
}

/// Why there is no result. No text of it holds a URL beyond scheme, host and port, or a header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// A node gave no answer.
    #[error("{what}, {node}: {error}")]
    Rpc {
        /// Scheme, host and port of the node.
        node: String,
        /// What was asked for.
        what: String,
        /// Why it did not come.
        error: RpcError,
    },
    /// The nodes are of two chains.
    #[error("the nodes are of two chains, with ids {first} and {other}")]
    TwoChains {
        /// The first node's chain id.
        first: u64,
        /// Another node's.
        other: u64,
    },
    /// The query's blocks cannot be named.
    #[error("the query's blocks: {0}")]
    Blocks(ResolveError),
    /// Only final blocks are wanted, and a node knows none.
    #[error("only final blocks are wanted, and a node knows no finalised block")]
    NoFinalized,
    /// Only final blocks are wanted, and this one may still leave the chain.
    #[error(
        "{what} block {block}, after the finalised block, {finalized}: such blocks may still leave \
         the chain"
    )]
    NotFinal {
        /// What the block is to the query.
        what: &'static str,
        /// The block's number.
        block: u64,
        /// The finalised block.
        finalized: u64,
    },
    /// No node has the query's block.
    #[error("no node has the query's block, {0}")]
    UnknownBlock(B256),
    /// More headers than allowed.
    #[error(
        "{headers} headers, from block {first} to {end}{}: the limit is {limit}",
        if .end > .last { ", the anchor" } else { "" }
    )]
    TooManyHeaders {
        /// The number of headers.
        headers: u64,
        /// The first block.
        first: u64,
        /// The last block of the query.
        last: u64,
        /// The last header: of the anchor, if that comes after the query's blocks.
        end: u64,
        /// The limit.
        limit: u64,
    },
    /// Receipts of more blocks than allowed.
    #[error("receipts of {blocks} blocks, about {bytes} bytes: the limit is {limit} blocks")]
    TooManyReceipts {
        /// The number of blocks.
        blocks: u64,
        /// About how many bytes they would be.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More than is held in memory.
    #[error("{node}: more than {limit} bytes of {what}: narrow the query or its range")]
    TooMuch {
        /// The node.
        node: String,
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Headers that do not form one chain, however often they are fetched.
    #[error(
        "the headers from {node} do not form one chain, {tries} times in a row: block {block}: \
         {error}"
    )]
    NoOneChain {
        /// The node.
        node: String,
        /// The block that does not follow on the one before.
        block: u64,
        /// How it does not.
        error: ChainError,
        /// How often.
        tries: u32,
    },
    /// A part of a chain does not follow on the part before.
    #[error(
        "headers, {node}: block {block} is not the child of the block fetched before it: the chain \
         was reorganised, or this node is on another branch; start again"
    )]
    Reorganized {
        /// The node.
        node: String,
        /// The block.
        block: u64,
    },
    /// A node is on another branch than the chain that it is asked about.
    #[error("{node}: it is on another branch at block {block}{}", in_a_row(*.tries))]
    OtherBranch {
        /// The node.
        node: String,
        /// The block.
        block: u64,
        /// How often.
        tries: u32,
    },
    /// No node gave receipts that are the block's.
    #[error("receipts of {block}: {why}")]
    NoReceipts {
        /// The block.
        block: BlockRef,
        /// Why the first try failed.
        why: String,
    },
    /// The audit cannot begin: headers do not cover the query's blocks, or its block is not on the
    /// chain.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The anchor could not be had.
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
    /// Why a node did not give this. A stop stays one.
    pub(crate) fn rpc(node: String, what: impl Into<String>, error: RpcError) -> Self {
        match error {
            RpcError::Stopped => Self::Stopped,
            error => Self::Rpc { node, what: what.into(), error },
        }
    }

    /// Returns `true` if the same request may succeed later: no connection, no answer in time, a
    /// rate limit, an error of the server.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rpc { error, .. } if error.origin().is_transient())
    }
}
