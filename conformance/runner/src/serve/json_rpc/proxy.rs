//! A proxy in front of a node, or of a function that answers calls, which may alter the answers.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::Fault;
use super::server::{Response, Server};
use super::upstream::Upstream;

/// Maximum number of calls in a batch, as in geth.
const MAX_BATCH: usize = 1_000;

/// The action of the proxy on a request. Each call of the request has a fate. The request gets the
/// first fate that is not [`Fate::Answered`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fate {
    /// The answer is sent, with the changes that the rule made.
    Answered,
    /// An HTTP status is sent without an answer.
    Status(u16),
    /// These bytes are sent in place of an HTTP response.
    Bytes(Vec<u8>),
    /// The connection is closed without an answer.
    Closed,
    /// The connection is closed without an answer, after this time or once the client closes it.
    Silent(Duration),
}

/// Gets each call's method and parameters, and may change the whole answer: `{"result": …}` or
/// `{"error": …}`.
pub type Rule = Box<dyn Fn(&str, &Value, &mut Value) -> Fate + Send + Sync>;

type Answers = dyn Fn(&str, &Value) -> Result<Value, Fault> + Send + Sync;

/// The origin of true answers.
pub struct Source(Origin);

enum Origin {
    Node(Upstream),
    Function(Box<Answers>),
}

impl Source {
    /// Returns a node with JSON-RPC over HTTP.
    pub fn node(url: impl Into<String>) -> Self {
        Self(Origin::Node(Upstream::new(url.into())))
    }

    /// Returns a function that gets a method and its parameters.
    pub fn function(
        answer: impl Fn(&str, &Value) -> Result<Value, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self(Origin::Function(Box::new(answer)))
    }

    /// Answers a whole request. Returns `None` if the node gives no JSON.
    fn answer(&self, request: &Value) -> Option<Value> {
        match &self.0 {
            Origin::Node(node) => {
                let answer = node.post(request.to_string().as_bytes()).ok()?;
                parsed(&answer)
            }
            Origin::Function(answer) => Some(match request {
                Value::Array(calls) => calls.iter().map(|call| one_answer(call, answer)).collect(),
                call => one_answer(call, answer),
            }),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Origin::Node(_) => "Node",
            Origin::Function(_) => "Function",
        })
    }
}

fn one_answer(call: &Value, answer: &Answers) -> Value {
    let id = call.get("id").unwrap_or(&Value::Null);
    let Some(method) = call.get("method").and_then(Value::as_str) else {
        return Fault::invalid_request("a call is an object with a method").answer(id);
    };
    let result = answer(method, call.get("params").unwrap_or(&Value::Null));
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => fault.answer(id),
    }
}

/// The running proxy; dropping the proxy closes its connections.
#[must_use = "dropping the proxy stops it"]
pub struct Proxy {
    server: Server,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy in front of a source; `rule` may alter each answer.
    ///
    /// # Errors
    /// Returns an error if the proxy cannot listen, or if no thread can be started.
    pub fn start(
        listen: SocketAddr,
        source: Source,
        rule: impl Fn(&str, &Value, &mut Value) -> Fate + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let calls = Arc::default();
        let counts = Arc::clone(&calls);
        let respond = move |body: &[u8]| respond(body, &source, &rule, &counts);
        Ok(Self { server: Server::start(listen, respond)?, calls })
    }

    /// Returns the address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the number of calls of each method.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Maximum number of values in JSON: the longest answer that a proxy reads has fewer, and each
/// takes far more memory than its text.
const MAX_VALUES: usize = 4 << 20;

/// Parses JSON with a limited number of values.
fn parsed(json: &[u8]) -> Option<Value> {
    // Each value but the first of a list or an object follows a comma.
    let values = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    (values <= MAX_VALUES).then(|| serde_json::from_slice(json).ok()).flatten()
}

/// Maximum number of methods that are counted by their own name, because clients invent names.
const MAX_NAMES: usize = 1_000;

/// Sends the request to the source, and alters the answers.
fn respond(
    body: &[u8],
    source: &Source,
    rule: impl Fn(&str, &Value, &mut Value) -> Fate,
    counts: &Mutex<BTreeMap<String, usize>>,
) -> Response {
    let refused = |fault: Fault| Response::Json(fault.answer(&Value::Null).to_string());
    let Some(request) = parsed(body) else {
        return refused(Fault::new(-32700, "the request is not JSON"));
    };
    let calls = match &request {
        Value::Array(calls) if calls.is_empty() => {
            return refused(Fault::invalid_request("an empty batch"));
        }
        Value::Array(calls) if calls.len() > MAX_BATCH => {
            let message = format!("a batch of {} calls, the limit is {MAX_BATCH}", calls.len());
            return refused(Fault::new(-32600, message));
        }
        Value::Array(calls) => calls.as_slice(),
        call => std::slice::from_ref(call),
    };
    let answers = source.answer(&request).filter(|answers| match answers {
        Value::Array(list) => list.iter().all(Value::is_object),
        one => one.is_object(),
    });
    let Some(mut answers) = answers else { return Response::Status(502) };
    for call in calls {
        let Some(method) = call.get("method").and_then(Value::as_str) else { continue };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() < MAX_NAMES || counts.contains_key(method) {
            *counts.entry(method.to_owned()).or_default() += 1;
        }
        drop(counts);
        let answer = match &mut answers {
            Value::Array(list) => list.iter_mut().find(|answer| answer["id"] == call["id"]),
            one => Some(one),
        };
        let mut absent = json!({ "jsonrpc": "2.0" });
        let params = call.get("params").unwrap_or(&Value::Null);
        match rule(method, params, answer.unwrap_or(&mut absent)) {
            Fate::Answered => {}
            Fate::Status(status) => return Response::Status(status),
            Fate::Bytes(bytes) => return Response::Bytes(bytes),
            Fate::Closed => return Response::Closed,
            Fate::Silent(time) => return Response::Silent(time),
        }
    }
    // A call without an id is a notification, which gets no answer (JSON-RPC 2.0, section 4.1).
    let is_notification = |call: &Value| call.is_object() && call.get("id").is_none();
    if calls.iter().all(is_notification) {
        return Response::Json(String::new());
    }
    if let Value::Array(list) = &mut answers
        && list.len() == calls.len()
    {
        let mut calls = calls.iter();
        list.retain(|_| calls.next().is_none_or(|call| !is_notification(call)));
    }
    Response::Json(answers.to_string())
}
