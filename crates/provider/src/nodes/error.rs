//! Errors of requests to a node.

use std::time::Duration;

use thiserror::Error;

use super::limit::Limit;

/// Maximum length of a node's own error message in characters; the rest is removed.
const MOST_WORDS: usize = 300;

/// Reason why a request to a node failed. The texts of the error contain no URL and no header.
///
/// `Display` writes one line. Text that the node chose is escaped and quoted: otherwise, such text
/// could control the terminal, or look like a line of the program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The HTTP status is not a success, and the body contains no JSON-RPC answer.
    #[error("HTTP status {status}")]
    Http {
        /// The HTTP status code.
        status: u16,
    },
    /// No complete answer arrived before the timeout.
    #[error("no complete answer within {} s, the timeout", .limit.as_secs_f64())]
    Timeout {
        /// The timeout.
        limit: Duration,
    },
    /// The connection could not be opened, or it failed.
    #[error("{}", unquoted(.0))]
    Transport(String),
    /// The answer is longer than allowed.
    #[error("an answer of more than {limit} bytes")]
    TooLarge {
        /// Maximum number of bytes of an answer.
        limit: u64,
    },
    /// The answer is malformed, or does not fit the request.
    #[error("invalid answer: {0:?}")]
    Malformed(String),
    /// The node answered with an error of its own.
    #[error("the node's error {code}: {message:?}")]
    Node {
        /// Code of the node's error.
        code: i64,
        /// Message of the node's error, cut to 300 characters.
        message: String,
    },
    /// The node does not serve the method, or does not allow it for this user.
    #[error("the node does not serve {method}")]
    MethodMissing {
        /// Name of the JSON-RPC method.
        method: &'static str,
    },
    /// The request exceeds a limit of the provider.
    #[error("{limit}: {message:?}")]
    LimitExceeded {
        /// The limit that the provider reports.
        limit: Limit,
        /// The provider's message, cut to 300 characters.
        message: String,
    },
    /// The node serves another chain than the other nodes. The node gets no further request.
    #[error("this node serves chain {found}, but the other nodes serve chain {expected}")]
    OtherChain {
        /// Id of the chain that the first answers named.
        expected: u64,
        /// Id of the node's chain.
        found: u64,
    },
    /// The node does not have the requested data.
    #[error("the node does not have {what}")]
    NotFound {
        /// The requested data.
        what: String,
    },
    /// The request failed at each attempt.
    #[error("{last}, {tries} times in a row")]
    GaveUp {
        /// Number of attempts.
        tries: u32,
        /// The error of the last attempt.
        last: Box<Self>,
    },
    /// A [`Stop`](crate::Stop) was set.
    #[error("stopped")]
    Stopped,
}

/// Escapes a text as `Debug` does, without the quotes around it.
fn unquoted(text: &str) -> String {
    let quoted = format!("{text:?}");
    quoted[1..quoted.len() - 1].to_owned()
}

impl RpcError {
    /// Cuts a node's message to [`MOST_WORDS`] characters.
    pub(crate) fn words(text: &str) -> String {
        match text.char_indices().nth(MOST_WORDS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        }
    }

    /// Returns the underlying error of [`GaveUp`](Self::GaveUp), and otherwise the error itself.
    pub fn origin(&self) -> &Self {
        match self {
            Self::GaveUp { last, .. } => last.origin(),
            error => error,
        }
    }

    /// Returns `true` if the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Http { status } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Timeout { .. } | Self::Transport(_) => true,
            Self::LimitExceeded { limit, .. } => matches!(limit, Limit::RateLimited { .. }),
            // -32603, "internal error": proxies answer with this code when the node behind them
            // failed.
            Self::Node { code, .. } => *code == -32603,
            _ => false,
        }
    }

    /// Returns `true` if a call of another method would fail in the same way: the node cannot be reached,
    /// or it refuses requests for a while, or the operation was stopped.
    pub(crate) fn is_silence(&self) -> bool {
        match self.origin() {
            Self::Timeout { .. } | Self::Transport(_) | Self::Stopped => true,
            Self::LimitExceeded { limit, .. } => matches!(limit, Limit::RateLimited { .. }),
            _ => false,
        }
    }

    /// Returns the wait that the provider asks for before the next request, if any.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self.origin() {
            Self::LimitExceeded { limit: Limit::RateLimited { retry_after }, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node chose neither steers a terminal nor adds a line.
    #[test]
    fn texts_of_a_node_are_escaped_and_quoted() {
        let message = String::from("no\u{1b}[2J\r\n\u{9b}\u{202e}\u{2028}\"");
        let escaped = r#"no\u{1b}[2J\r\n\u{9b}\u{202e}\u{2028}\""#;
        let node = RpcError::Node { code: -1, message: message.clone() };
        let limit = Limit::RateLimited { retry_after: None };
        for (error, begins) in [
            (node.clone(), "the node's error -1: \"".into()),
            (RpcError::GaveUp { tries: 2, last: node.into() }, "the node's error -1: \"".into()),
            (RpcError::Malformed(message.clone()), String::from("invalid answer: \"")),
            (
                RpcError::LimitExceeded { limit: limit.clone(), message: message.clone() },
                format!("{limit}: \""),
            ),
            (RpcError::Transport(message), String::new()),
        ] {
            let text = error.to_string();
            assert!(text.starts_with(&format!("{begins}{escaped}")), "{text}");
        }
        let own = RpcError::Transport("the host's name is not known".into());
        assert_eq!(own.to_string(), "the host's name is not known");
    }
}
