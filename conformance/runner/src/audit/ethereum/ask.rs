//! Calls of a node. What goes wrong in HTTP and JSON-RPC breaks no rule of the chain.

use chainsieve_provider::{Node, RpcError};

use crate::audit::report::AuditError;

/// Maximum number of characters of an error about an answer.
const MOST_WORDS: usize = 300;

/// Returns the result of a call, or the audit's error.
pub(super) fn called<T>(
    what: impl Into<String>,
    result: Result<T, RpcError>,
) -> Result<T, AuditError> {
    result.map_err(|error| match error {
        RpcError::Malformed(words) => {
            let words = words.strip_prefix("not JSON-RPC: ").unwrap_or(&words).to_owned();
            AuditError::NotJsonRpc { what: what.into(), words }
        }
        error => AuditError::rpc(what, error),
    })
}

/// Returns `true` if a node answers a call with an error, as nodes do that do not serve the method,
/// or have no such data, or send no answer of this length. None of them breaks a rule.
pub(super) fn is_refusal(error: &RpcError) -> bool {
    matches!(
        error,
        RpcError::MethodMissing { .. }
            | RpcError::Node { .. }
            | RpcError::TooLarge { .. }
            | RpcError::NotFound { .. }
            | RpcError::Http { status: 400..=499 }
    ) || matches!(error, RpcError::LimitExceeded { .. } if !error.is_transient())
}

/// Returns an error about the content of an answer, without secrets. Parsers quote the text that
/// they read, and a node may repeat the key of its URL.
pub(super) fn words(node: &Node, error: &impl ToString) -> String {
    let text = node.endpoint().scrub(&error.to_string());
    match text.char_indices().nth(MOST_WORDS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
