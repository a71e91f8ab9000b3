//! Errors of the endpoint: why it does not start, and what clients get: JSON-RPC errors whose data a program
//! can read.

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
#[derive(Debug, Clone)]
pub(super) enum Refusal {
    /// The parameters are wrong.
    Params(String),
    /// The range ends after the verified head.
    BeyondHead { last: u64, head: u64 },
    /// The client asks for more than is allowed, and always will.
    Limit { what: &'static str, found: u64, limit: u64 },
    /// Clients, or this one, hold as much as they may now.
    Busy { what: &'static str, limit: u64 },
    /// Nobody waits for the answer any more, or it takes too long.
    Abandoned,
    /// A filter is not installed, or no longer.
    NoFilter,
    /// No block has this hash, or it is not on the verified chain.
    UnknownBlock(String),
    /// The method is not one of those whose answers are proven.
    Method(String),
    /// No subscription has this id.
    NoSubscription,
    /// Subscriptions need a connection that stays open.
    NeedsWebSocket,
    /// Nothing is trusted yet.
    NotReady,
    /// A block left the chain, and nobody has its logs any more: what was sent of it cannot be taken
    /// back one by one.
    Gap(Missing),
    /// The call ended without an answer, by a mistake in this program.
    Internal,
    /// No upstream answered.
    Upstream(String),
    /// The answer could not be proven.
    NotProven {
        /// A word for programs.
        reason: &'static str,
        why: String,
        /// The blocks whose logs are proven.
        proven: Vec<RangeInclusive<u64>>,
        missing: Vec<Missing>,
    },
}

/// Most missing blocks and proven ranges that an error lists.
const LISTED: usize = 100;

impl Refusal {
    /// Returns a word for the counters.
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

    /// An answer that lacks these blocks of a range.
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
            error => Self::NotProven {
                reason: "no_headers",
                why: error.to_string(),
                proven: Vec::new(),
                missing: Vec::new(),
            },
        }
    }
}

impl From<Missing> for Refusal {
    fn from(missing: Missing) -> Self {
        let number = missing.block.number;
        Self::missing(&(number..=number), vec![missing])
    }
}

/// Returns what a client can do when it has as many of these as it may have.
fn remedy(what: &str) -> &'static str {
    match what {
        "filters of yours" | "bytes of your filters" => "uninstall a filter first",
        "subscriptions of yours" | "subscriptions of a connection" => "end a subscription first",
        _ => "ask again later",
    }
}

impl From<Refusal> for ErrorObject {
    fn from(refusal: Refusal) -> Self {
        let (code, message, data) = match refusal {
            Refusal::Params(why) => (INVALID_PARAMS, why, None),
            Refusal::BeyondHead { last, head } => (
                INVALID_PARAMS,
                // The words of go-ethereum.
                "block range extends beyond current head block".to_owned(),
                Some(
                    json!({ "reason": "beyond_verified_head", "last": last, "verifiedHead": head }),
                ),
            ),
            Refusal::Limit { what, found, limit } => (
                // Not the code of exceeded limits, after which clients ask the same again.
                INVALID_PARAMS,
                format!("{found} {what}: the limit is {limit}"),
                Some(json!({ "reason": "limit", "what": what, "found": found, "limit": limit })),
            ),
            Refusal::Busy { what, limit } => (
                LIMIT_EXCEEDED,
                format!("{limit} {what} are the limit: {}", remedy(what)),
                Some(json!({ "reason": "busy", "what": what, "limit": limit })),
            ),
            Refusal::Abandoned => (
                UNAVAILABLE,
                "the answer took too long".to_owned(),
                Some(json!({ "reason": "abandoned" })),
            ),
            Refusal::NoFilter => (-32000, "filter not found".to_owned(), None),
            Refusal::NoSubscription => (-32000, "subscription not found".to_owned(), None),
            Refusal::UnknownBlock(what) => {
                (NOT_FOUND, what, Some(json!({ "reason": "unknown_block" })))
            }
            Refusal::Method(method) => (
                // The code on which clients try another method.
                METHOD_NOT_FOUND,
                format!("answers of {method} cannot be proven, and are not passed on"),
                Some(json!({ "reason": "unverified_method" })),
            ),
            Refusal::NeedsWebSocket => (
                METHOD_NOT_FOUND,
                // The words of go-ethereum.
                "notifications not supported: subscriptions need a WebSocket".to_owned(),
                None,
            ),
            Refusal::NotReady => (
                UNAVAILABLE,
                "no block is verified yet".to_owned(),
                Some(json!({ "reason": "not_ready" })),
            ),
            Refusal::Gap(missing) => (
                UNAVAILABLE,
                format!("a removed block is not available any more: {missing}"),
                Some(json!({ "reason": "gap" })),
            ),
            Refusal::Upstream(why) => (UNAVAILABLE, why, Some(json!({ "reason": "upstream" }))),
            Refusal::Internal => (-32603, "internal error".to_owned(), None),
            Refusal::NotProven { reason, why, proven, missing } => {
                let ranges = proven.iter().take(LISTED);
                let ranges: Vec<Value> =
                    ranges.map(|range| json!([range.start(), range.end()])).collect();
                let blocks = missing.iter().take(LISTED).map(|missing| {
                    let Missing { block, why, .. } = missing;
                    json!({ "number": block.number, "hash": block.hash, "why": why })
                });
                let data = json!({
                    "reason": reason,
                    "proven": ranges,
                    "missing": blocks.collect::<Vec<_>>(),
                    "missingCount": missing.len(),
                });
                (UNAVAILABLE, format!("not proven: {why}"), Some(data))
            }
        };
        Self { code: code.into(), message, data }
    }
}
