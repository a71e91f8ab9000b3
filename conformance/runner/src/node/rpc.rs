//! JSON-RPC to a node over HTTP.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;

/// Maximum size of an answer in bytes.
const MAX_BODY: u64 = 16 << 20;

/// A connection to a node.
#[derive(Debug)]
pub(super) struct Rpc {
    agent: Agent,
    url: String,
}

/// An error that the node returned.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

#[derive(Deserialize)]
struct Response {
    // `null` is a result, and a missing member is none.
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<RpcError>,
}

fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl Rpc {
    pub(super) fn new(url: &str, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            // Some nodes send errors of JSON-RPC with an HTTP status other than 200.
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            // A proxy could not reach a node on this machine.
            .proxy(None)
            .build();
        Self { agent: Agent::new_with_config(config), url: url.to_owned() }
    }

    /// Calls a method: the outer error means that the node gave no answer of JSON-RPC.
    pub(super) fn call(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<Result<Value, RpcError>, String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let failed = |error: ureq::Error| format!("{method}: {error}");
        let mut response = request.send(body.to_string()).map_err(failed)?;
        let body = response.body_mut().with_config().limit(MAX_BODY).read_to_vec();
        let answer = serde_json::from_slice(&body.map_err(failed)?).map_err(
            |error: serde_json::Error| {
                format!("{method}: no answer of JSON-RPC: {:?}", error.to_string())
            },
        )?;
        match answer {
            Response { error: Some(error), .. } => Ok(Err(error)),
            Response { result: Some(result), .. } => Ok(Ok(result)),
            Response { .. } => Err(format!("{method}: neither a result nor an error")),
        }
    }

    /// Calls a method that must succeed.
    pub(super) fn result(&self, method: &str, params: &Value) -> Result<Value, String> {
        self.call(method, params)?.map_err(|error| format!("{method}: {:?}", error.to_string()))
    }

    /// Calls a method whose result is a string.
    pub(super) fn text(&self, method: &str, params: &Value) -> Result<String, String> {
        match self.result(method, params)? {
            Value::String(text) => Ok(text),
            other => Err(format!("{method}: not a string: {:?}", other.to_string())),
        }
    }
}
