//! Why a node gave no answer.

use std::time::Duration;

use chainsieve::eth::provider::Limit;
use thiserror::Error;

/// Characters of a node's own words that are kept.
const MOST_WORDS: usize = 300;

/// Why a node gave no answer. No text of it holds the URL or a header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RpcError {
    /// A status that is no success, without an answer in its body.
    #[error("HTTP status {status}")]
    Http {
        /// The status.
        status: u16,
    },
    /// No answer within the time limit.
    #[error("no whole answer within {} s, the timeout", .limit.as_secs_f64())]
    Timeout {
        /// The time limit.
        limit: Duration,
    },
    /// No connection, or one that broke.
    #[error("{0}")]
    Transport(String),
    /// An answer that is larger than is read.
    #[error("an answer of more than {limit} bytes")]
    TooLarge {
        /// Bytes that are read at most.
        limit: u64,
    },
    /// An answer that is not what was asked for.
    #[error("not what was asked for: {0}")]
    Malformed(String),
    /// The node's own error.
    #[error("the node's error {code}: {message}")]
    Node {
        /// Its code.
        code: i64,
        /// Its words, cut to 300 characters.
        message: String,
    },
    /// The node does not serve the method.
    #[error("the node does not serve {method}")]
    MethodMissing {
        /// The method.
        method: &'static str,
    },
    /// The provider limits what it answers.
    #[error("{limit}: {message}")]
    LimitExceeded {
        /// The limit.
        limit: Limit,
        /// The provider's words, cut to 300 characters.
        message: String,
    },
    /// The node does not have what was asked for.
    #[error("the node does not have {what}")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// It failed each time.
    #[error("{last}, {tries} times in a row")]
    GaveUp {
        /// How often.
        tries: u32,
        /// The last error.
        last: Box<Self>,
    },
    /// A [`Stop`](crate::Stop) was set.
    #[error("stopped")]
    Stopped,
}

impl RpcError {
    /// A node's words, cut to a length that an error may have.
    pub(super) fn words(text: &str) -> String {
        match text.char_indices().nth(MOST_WORDS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        }
    }

    /// The error without how often it came.
    pub fn origin(&self) -> &Self {
        match self {
            Self::GaveUp { last, .. } => last.origin(),
            error => error,
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Http { status } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Timeout { .. } | Self::Transport(_) => true,
            Self::LimitExceeded { limit, .. } => matches!(limit, Limit::RateLimited { .. }),
            // "Internal error" is what proxies say when their node failed.
            Self::Node { code, .. } => *code == -32603,
            _ => false,
        }
    }

    /// How long the provider asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LimitExceeded { limit: Limit::RateLimited { retry_after }, .. } => *retry_after,
            _ => None,
        }
    }
}
