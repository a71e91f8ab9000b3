//! JSON-RPC 2.0 over HTTP, as Ethereum's nodes speak it: a server, and a [`Proxy`] that alters the
//! answers of a node.

mod proxy;
mod server;
mod upstream;

pub use proxy::{Fate, Proxy, Rule, Source};

use serde_json::{Value, json};

/// An error object of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[non_exhaustive]
pub struct Fault {
    /// The code.
    pub code: i64,
    /// The message.
    pub message: String,
}

impl Fault {
    /// Creates an error object.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the error for a method that the node does not serve (JSON-RPC 2.0, section 5.1).
    pub fn method_not_found(method: &str) -> Self {
        // A client may send a method name of any length.
        let shown: String = method.chars().take(100).collect();
        Self::new(-32601, format!("the method {shown} does not exist/is not available"))
    }

    /// Returns the error for invalid parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    fn invalid_request(message: &str) -> Self {
        Self::new(-32600, message)
    }

    /// Returns the answer to the call with this id.
    pub(super) fn answer(&self, id: &Value) -> Value {
        let error = json!({ "code": self.code, "message": self.message });
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}
