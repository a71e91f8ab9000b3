//! Why a provider gave no answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::limits::Limit;
use crate::output::grouped;

/// Characters of a node's own words that are kept.
const MOST_WORDS: usize = 300;

/// Why there is no answer. No text of it holds the URL or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RpcError {
    /// A status that is no success, without an answer in its body.
    Http { status: u16 },
    /// No answer within the time limit.
    Timeout { limit: Duration },
    /// No connection, or one that broke.
    Transport(String),
    /// An answer that is larger than is read.
    TooLarge { limit: u64 },
    /// An answer that is not what was asked for.
    Malformed(String),
    /// The node's own error.
    Node { code: i64, message: String },
    /// The node does not have the method.
    MethodMissing { method: &'static str },
    /// The provider limits what it answers.
    LimitExceeded { limit: Limit, message: String },
    /// The node does not have what was asked for.
    NotFound { what: String },
    /// It failed each time.
    GaveUp { tries: u32, last: Box<Self> },
    /// The command is ending.
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

    /// The error behind how often it came.
    pub(crate) fn origin(&self) -> &Self {
        match self {
            Self::GaveUp { last, .. } => last.origin(),
            error => error,
        }
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Http { status } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Timeout { .. } | Self::Transport(_) => true,
            Self::LimitExceeded { limit, .. } => matches!(limit, Limit::RateLimited { .. }),
            // "Internal error" is what proxies say of a node behind them that failed.
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

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status } => write!(f, "HTTP status {status}"),
            Self::Timeout { limit } => {
                write!(f, "no whole answer within {} s (--timeout)", limit.as_secs())
            }
            Self::Transport(words) => f.write_str(words),
            Self::TooLarge { limit } => {
                write!(f, "an answer of more than {} bytes", grouped(*limit))
            }
            Self::Malformed(words) => write!(f, "not what was asked for: {words}"),
            Self::Node { code, message } => write!(f, "the node's error {code}: {message}"),
            Self::MethodMissing { method } => write!(f, "the node does not serve {method}"),
            Self::LimitExceeded { limit, message } => write!(f, "{limit}: {message}"),
            Self::NotFound { what } => write!(f, "the node does not have {what}"),
            Self::GaveUp { tries, last } => write!(f, "{last}, {tries} times in a row"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl Error for RpcError {}
