//! Errors of the endpoint: reasons why it does not start, and JSON-RPC errors for clients, with data that a
//! program can read.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use chainsieve::eth::log_query::QueryError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::chain::HeadersError;
use crate::error::FetchError;
use crate::proven::{Missing, Part};

/// Reason why an endpoint does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RpcServerError {
    /// The upstreams do not name their chain.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The address cannot be listened on.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// No block could be verified.
    #[error("no head: {0}")]
    NoHead(String),
    /// A thread or the store of blocks cannot be opened.
    #[error("{0}")]
    Open(String),
}

/// Codes of JSON-RPC errors, of the specification and of EIP-1474.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const NOT_FOUND: i32 = -32001;
const UNAVAILABLE: i32 = -32002;
const LIMIT_EXCEEDED: i32 = -32005;

/// The error of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ErrorObject {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

impl ErrorObject {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), data: None }
    }
}

/// Reason why a client gets no answer.
#[derive(Debug, Clone, Error)]
pub(super) enum Refusal {
    /// The parameters are wrong.
    #[error("{0}")]
    Params(String),
    /// The range ends after the verified head.
    // The words of go-ethereum.
    #[error("block range extends beyond current head block")]
    BeyondHead { last: u64, head: u64 },
    /// The client asks for more than is allowed at any time.
    #[error("{found} {what}: the limit is {limit}")]
    Limit { what: &'static str, found: u64, limit: u64 },
    /// The total of all clients, or the share of this client, has reached its limit for now.
    #[error("the limit is {limit} {what}: {}", remedy(.what))]
    Busy { what: &'static str, limit: u64 },
    /// No client waits for the answer any more, or the answer takes too long.
    #[error("the answer took too long")]
    Abandoned,
    /// The filter was never installed, or it was removed.
    #[error("filter not found")]
    NoFilter,
    /// No block has this hash, or it is not on the verified chain.
    #[error("{0}")]
    UnknownBlock(String),
    /// The method is not one of those whose answers are proven.
    #[error("answers of {0} cannot be proven, and are not passed on")]
    Method(String),
    /// No subscription has this id.
    #[error("subscription not found")]
    NoSubscription,
    /// Subscriptions need a connection that stays open.
    // The words of go-ethereum.
    #[error("notifications not supported: subscriptions need a WebSocket")]
    NeedsWebSocket,
    /// Nothing is trusted yet.
    #[error("no block is verified yet")]
    NotReady,
    /// A block left the chain, and no node has its logs any more: the logs that were sent cannot be
    /// withdrawn one by one.
    #[error("a removed block is not available any more: {0}")]
    Gap(Missing),
    /// The call ended without an answer, because of an error in this program.
    #[error("internal error")]
    Internal,
    /// No node answered.
    #[error("{0}")]
    Upstream(String),
    /// The answer could not be proven.
    #[error("not proven: {why}")]
    NotProven {
        /// The machine-readable reason.
        reason: &'static str,
        why: String,
        /// The blocks whose logs are proven.
        proven: Vec<RangeInclusive<u64>>,
        missing: Vec<Missing>,
    },
}

/// Maximum number of missing blocks, and of proven ranges, that an error lists.
const LISTED: usize = 100;

impl Refusal {
    /// Returns the label of the counters.
    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::Params(_) | Self::BeyondHead { .. } => "invalid",
            Self::Limit { .. } => "limit",
            Self::Busy { .. } => "busy",
            Self::Abandoned => "abandoned",
            Self::NoFilter | Self::NoSubscription | Self::UnknownBlock(_) => "not_found",
            Self::Method(_) | Self::NeedsWebSocket => "not_supported",
            Self::NotReady => "not_ready",
            Self::Internal => "internal",
            Self::Gap(_) => "gap",
            Self::Upstream(_) => "upstream",
            Self::NotProven { reason, .. } => reason,
        }
    }

    const fn code(&self) -> i32 {
        match self {
            // The limit has not the code of exceeded ones, after which clients ask the same again.
            Self::Params(_) | Self::BeyondHead { .. } | Self::Limit { .. } => INVALID_PARAMS,
            Self::Busy { .. } => LIMIT_EXCEEDED,
            Self::NoFilter | Self::NoSubscription => -32000,
            Self::UnknownBlock(_) => NOT_FOUND,
            // The code on which clients try another method.
            Self::Method(_) | Self::NeedsWebSocket => METHOD_NOT_FOUND,
            Self::Internal => -32603,
            Self::Abandoned
            | Self::NotReady
            | Self::Gap(_)
            | Self::Upstream(_)
            | Self::NotProven { .. } => UNAVAILABLE,
        }
    }

    /// Returns the data of the error, which a program can read.
    fn data(&self) -> Option<Value> {
        Some(match self {
            Self::BeyondHead { last, head } => {
                json!({ "reason": "beyond_verified_head", "last": last, "verifiedHead": head })
            }
            Self::Limit { what, found, limit } => {
                json!({ "reason": "limit", "what": what, "found": found, "limit": limit })
            }
            Self::Busy { what, limit } => {
                json!({ "reason": "busy", "what": what, "limit": limit })
            }
            Self::UnknownBlock(_) => json!({ "reason": "unknown_block" }),
            Self::Method(_) => json!({ "reason": "unverified_method" }),
            Self::NotProven { reason, proven, missing, .. } => {
                let ranges = proven.iter().take(LISTED).map(|range| [range.start(), range.end()]);
                let blocks = missing.iter().take(LISTED).map(|missing| {
                    let Missing { block, why, .. } = missing;
                    json!({ "number": block.number, "hash": block.hash, "why": why })
                });
                json!({
                    "reason": reason,
                    "proven": ranges.collect::<Vec<_>>(),
                    "missing": blocks.collect::<Vec<_>>(),
                    "missingCount": missing.len(),
                })
            }
            Self::Abandoned | Self::NotReady | Self::Gap(_) | Self::Upstream(_) => {
                json!({ "reason": self.outcome() })
            }
            _ => return None,
        })
    }

    /// Creates the error of an answer that could not be proven, without a list of blocks.
    pub(super) const fn not_proven(reason: &'static str, why: String) -> Self {
        Self::NotProven { reason, why, proven: Vec::new(), missing: Vec::new() }
    }

    /// Creates the error of an answer that lacks these blocks of a range.
    pub(super) fn missing(range: &RangeInclusive<u64>, missing: Vec<Missing>) -> Self {
        let why = missing.first().map_or_else(String::new, ToString::to_string);
        let reason = missing.first().map_or(Part::Receipts, |missing| missing.part).reason();
        let mut proven = Vec::new();
        let mut next = *range.start();
        for Missing { block, .. } in &missing {
            if block.number > next {
                proven.push(next..=block.number - 1);
            }
            next = block.number + 1;
        }
        if next <= *range.end() {
            proven.push(next..=*range.end());
        }
        Self::NotProven { reason, why, proven, missing }
    }
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        Self::Params(match error {
            // The words of go-ethereum, for which some clients search.
            QueryError::HashAndRange => {
                let both = "cannot specify both BlockHash and FromBlock/ToBlock";
                format!("invalid argument 0: {both}, choose one or the other")
            }
            QueryError::TooManyPositions { .. } => "exceed max topics".to_owned(),
            QueryError::Reversed { .. } | QueryError::BeginsAfterHead { .. } => {
                "invalid block range params".to_owned()
            }
            QueryError::Pending => "pending blocks are not supported".to_owned(),
            QueryError::BeyondHead { last, head } => return Self::BeyondHead { last, head },
            QueryError::UnknownTag(tag) => {
                return Self::UnknownBlock(format!("{tag} block not found"));
            }
            error @ QueryError::Pruned { .. } => error.to_string(),
            error => format!("invalid argument 0: {error}"),
        })
    }
}

impl From<HeadersError> for Refusal {
    fn from(error: HeadersError) -> Self {
        match error {
            HeadersError::NoHead => Self::NotReady,
            HeadersError::TooMany { headers, limit, .. } => {
                Self::Limit { what: "headers", found: headers, limit }
            }
            error => Self::not_proven("no_headers", error.to_string()),
        }
    }
}

impl From<Missing> for Refusal {
    fn from(missing: Missing) -> Self {
        let number = missing.block.number;
        Self::missing(&(number..=number), vec![missing])
    }
}

/// Returns advice for a client that has reached this limit.
fn remedy(what: &str) -> &'static str {
    match what {
        "filters of yours" | "bytes of your filters" => "uninstall a filter first",
        "subscriptions of yours" | "subscriptions of a connection" => "end a subscription first",
        _ => "ask again later",
    }
}

impl From<Refusal> for ErrorObject {
    fn from(refusal: Refusal) -> Self {
        let data = refusal.data();
        Self { data, ..Self::new(refusal.code(), refusal.to_string()) }
    }
}
