//! A JSON-RPC client over HTTP, for tests that query nodes.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

/// Largest response body that is read: larger than any response of a test chain.
const MAX_BODY: u64 = 512 << 20;

/// The endpoint of a node.
#[derive(Clone, Debug)]
pub struct HttpRpc {
    agent: Agent,
    url: String,
}

impl HttpRpc {
    pub fn new(port: u16) -> Self {
        Self::to(format!("http://127.0.0.1:{port}"))
    }

    /// Returns the endpoint with the address `url`.
    pub fn to(url: String) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(5 * 60)))
            .proxy(None)
            .build();
        Self { agent: config.into(), url }
    }

    /// Returns the address, for the arguments of the command.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a body, and returns the status and the body of the response, whatever they are.
    pub fn post(&self, body: &str) -> Result<(u16, String), ureq::Error> {
        let request = self.agent.post(&self.url).content_type("application/json");
        let mut response = request.send(body)?;
        let text = response.body_mut().with_config().limit(MAX_BODY).read_to_string()?;
        Ok((response.status().as_u16(), text))
    }

    /// Returns the JSON body of the response to a GET request.
    pub fn get(&self, path: &str) -> Result<Value, ureq::Error> {
        let mut response = self.agent.get(format!("{}{path}", self.url)).call()?;
        let text = response.body_mut().with_config().limit(MAX_BODY).read_to_string()?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Calls a method, and returns its result or the node's error.
    pub fn try_call(&self, method: &str, params: &Value) -> Result<Value, String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (_, text) = self.post(&body.to_string()).map_err(|error| error.to_string())?;
        let mut answer: Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            error => Err(error.to_string()),
        }
    }

    /// Calls a method, and returns its result. Panics on an error.
    pub fn call(&self, method: &str, params: &Value) -> Value {
        self.try_call(method, params)
            .unwrap_or_else(|error| panic!("{method} {}: {error}", cut(&params.to_string())))
    }
}

/// Returns at most the first 300 bytes of a text.
fn cut(text: &str) -> &str {
    text.get(..300).unwrap_or(text)
}
