//! JSON-RPC 2.0: calls, batches of calls, and their answers.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use chainsieve::alloy_primitives::U64;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer};
use serde_json::value::RawValue;

use super::bounded;
use super::bounded::{StreamedReply, id_of};
use super::error::RpcError;
use super::limit::Limit;
use super::transport::{Body, Lengths, Streamed, Transport, of_status};
use crate::stop::lock;

/// One call of a JSON-RPC method.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: &'static str,
    /// The list of parameters, as JSON.
    pub(super) params: String,
}

impl Call {
    pub(super) fn new(method: &'static str, params: &serde_json::Value) -> Self {
        Self { method, params: params.to_string() }
    }
}

/// Sends calls to one node, in batches if the node accepts them. Clones share the ids of calls and
/// the learnt size of a batch.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) transport: Transport,
    /// Id of the next call. Ids are never reused, so that the answer to an old call is not mistaken
    /// for the answer to a new call.
    next_id: Arc<AtomicU64>,
    /// Maximum number of calls in a request. With 1, calls are sent without a list around them.
    batch: Arc<AtomicUsize>,
    /// Id of the chain that the node must serve, once this id is known.
    chain: Arc<OnceLock<u64>>,
    /// Id of the chain that the node named, if it equals `chain` or if `chain` was not known yet. `None`
    /// also after the node could not be reached, because the URL may lead to another node afterwards.
    named: Arc<Mutex<Option<u64>>>,
}

/// Names the chain of a node.
const CHAIN_ID: &str = "eth_chainId";

/// The result of a call, or its error object.
#[cfg(feature = "server")]
pub(crate) type Forwarded = Result<Box<RawValue>, Box<RawValue>>;

/// An answer to a call. `result` is `Some` for `null` too, which is a valid result.
#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct ErrorObject<'a> {
    #[serde(default)]
    code: Option<serde_json::Number>,
    #[serde(default)]
    message: Option<String>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl Caller {
    pub(super) fn new(transport: Transport) -> Self {
        let batch = transport.options.batch.max(1);
        let next_id = Arc::new(AtomicU64::new(1));
        let batch = Arc::new(AtomicUsize::new(batch));
        Self { transport, next_id, batch, chain: Arc::default(), named: Arc::default() }
    }

    pub(super) fn of_chain(self, chain: Arc<OnceLock<u64>>) -> Self {
        Self { chain, ..self }
    }

    /// Asks the node for the id of its chain.
    pub(super) fn chain_id(&self) -> Result<u64, RpcError> {
        let call = Call::new(CHAIN_ID, &serde_json::json!([]));
        let id = self.call(&call, |result| {
            let id: U64 = serde_json::from_str(result)
                .map_err(|error| RpcError::Malformed(format!("{CHAIN_ID}: {error}")))?;
            Ok(id.to())
        })?;
        if self.chain.get().is_none_or(|expected| *expected == id) {
            *lock(&self.named) = Some(id);
        }
        Ok(id)
    }

    /// Asks the node for its chain again before its next answer, if it could not be reached.
    fn note_lost<T>(&self, answer: Result<T, RpcError>) -> Result<T, RpcError> {
        let is_lost = |error: &RpcError| {
            matches!(error.origin(), RpcError::Transport(_) | RpcError::Timeout { .. })
        };
        if answer.as_ref().is_err_and(is_lost) {
            *lock(&self.named) = None;
        }
        answer
    }

    /// Returns an error if the node serves another chain than expected. A node that did not name its
    /// chain at the start is asked now, so that no answer about another chain is used.
    fn check_chain(&self) -> Result<(), RpcError> {
        let Some(&expected) = self.chain.get() else { return Ok(()) };
        let named = *lock(&self.named);
        let found = match named.map_or_else(|| self.chain_id(), Ok) {
            Ok(found) => found,
            Err(error @ RpcError::Stopped) => return Err(error),
            Err(error) if error.origin().is_transient() => return Err(error),
            // Not to be taken for an error of the caller's method. Others are asked before it.
            Err(error) => {
                let words = format!("the node does not name its chain: {error}");
                let error = RpcError::Malformed(words);
                self.transport.rest(&error);
                return Err(error);
            }
        };
        if found == expected {
            return Ok(());
        }
        // Others are asked before it.
        let error = RpcError::OtherChain { expected, found };
        self.transport.rest(&error);
        Err(error)
    }

    /// Returns the current maximum number of calls in a request.
    pub(super) fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// Sends one call, with retries after transient errors. `read` receives the result as JSON.
    pub(super) fn call<T>(
        &self,
        call: &Call,
        read: impl Fn(&str) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        self.call_while(RpcError::is_transient, call, read)
    }

    /// Sends one call. After a timeout, the call is not retried, because the caller can split it,
    /// and a smaller request is more likely to succeed.
    pub(super) fn call_of_parts<T>(
        &self,
        call: &Call,
        read: impl Fn(&str) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let may_pass =
            |error: &RpcError| error.is_transient() && !matches!(error, RpcError::Timeout { .. });
        self.call_while(may_pass, call, read)
    }

    fn call_while<T>(
        &self,
        may_pass: impl Fn(&RpcError) -> bool,
        call: &Call,
        read: impl Fn(&str) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        if call.method != CHAIN_ID {
            self.check_chain()?;
        }
        let answer = self.transport.retried_while(may_pass, || {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let body = self.transport.post(&[call.method], &request(id, call))?;
            self.single(&body, id, call, &read).map_err(|error| self.clean(error))
        });
        self.note_lost(answer)
    }

    /// Sends one call, with retries after transient errors, and reads the result while it arrives, by a new
    /// seed for each attempt. Only the data that the seed keeps is held in memory.
    pub(super) fn stream<S: for<'de> DeserializeSeed<'de, Value = T>, T>(
        &self,
        call: &Call,
        lengths: Lengths,
        seed: impl Fn() -> S,
    ) -> Result<T, RpcError> {
        self.check_chain()?;
        let answer = self.transport.retried(|| {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let json = request(id, call);
            let read = |reader: &mut dyn Read| StreamedReply::read(reader, seed());
            match self.transport.post_and_stream(call.method, &json, lengths, read)? {
                Streamed::Failed(body) => {
                    let not_one = |_: &str| Err(RpcError::Http { status: body.status });
                    self.single(&body, id, call, not_one)
                }
                Streamed::Read(reply, _) if reply.error.is_none() && reply.id != Some(id) => {
                    Err(other_id())
                }
                Streamed::Read(reply, body) => {
                    self.result(reply.error.as_deref(), reply.result, call, &body)
                }
            }
            .map_err(|error| self.clean(error))
        });
        self.note_lost(answer)
    }

    /// Sends any call once, and returns its result or its error as the node wrote it, except that
    /// secrets of the endpoint are removed.
    #[cfg(feature = "server")]
    pub(super) fn forward(&self, method: &str, params: &str) -> Result<Forwarded, RpcError> {
        self.check_chain()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let method = serde_json::Value::from(method);
        let json = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#);
        // Not repeated: the call may send a transaction. A slow one says nothing of other methods, so the node
        // does not rest after it.
        let body = self.note_lost(self.transport.post(&["forwarded"], &json))?;
        let Ok(reply) = object(body.text.trim_start()) else {
            return Err(of_status(body.status, body.retry_after));
        };
        let endpoint = self.transport.endpoint();
        match (reply.error, reply.result) {
            (Some(error), _) => Ok(Err(endpoint.scrub_error(error))),
            (None, Some(result)) => Ok(Ok(endpoint.scrub_result(result))),
            (None, None) => Err(RpcError::Malformed("neither a result nor an error".into())),
        }
    }

    /// Sends several calls in as few requests as the provider accepts, with retries after transient
    /// errors. Returns the answers in the order of the calls.
    ///
    /// `read` receives the index of a call and its result as JSON.
    ///
    /// # Errors
    /// Returns an error if a whole request failed, for example without a connection. Returns
    /// [`RpcError::TooLarge`] if the total length of the answers exceeds the limit for a single
    /// answer. An error about a single call is returned as the answer to that call.
    pub(super) fn calls<T>(
        &self,
        calls: &[Call],
        read: impl Fn(usize, &str) -> Result<T, RpcError>,
    ) -> Result<Vec<Result<T, RpcError>>, RpcError> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut bytes = 0;
        let read = |at, result: &str| Ok((read(at, result)?, result.len() as u64));
        while answers.len() < calls.len() {
            let start = answers.len();
            let end = calls.len().min(start + self.batch());
            let part = &calls[start..end];
            let came = if let [one] = part {
                match self.call(one, |result| read(start, result)) {
                    Err(error) if error.origin().is_transient() => return Err(error),
                    answer => vec![answer],
                }
            } else {
                match self.batch_of(part, |at, result| read(start + at, result)) {
                    Ok(part) => part,
                    Err(error) => {
                        self.smaller(part.len(), error)?;
                        continue;
                    }
                }
            };
            for answer in came {
                answers.push(answer.map(|(answer, length)| {
                    bytes += length;
                    answer
                }));
            }
            let limit = self.transport.max_body;
            if bytes > limit {
                return Err(RpcError::TooLarge { limit });
            }
        }
        Ok(answers)
    }

    /// Reduces the size of batches after a batch was refused for its size. Returns the error if it
    /// had another cause.
    fn smaller(&self, calls: usize, error: RpcError) -> Result<(), RpcError> {
        let most = Self::accepted(calls, &error).ok_or(error)?;
        self.batch.fetch_min(most.clamp(1, (calls / 2).max(1)), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of calls that the node may accept, after it refused this number of calls
    /// because of their number or the length of their answers. Returns `None` if the error has another
    /// cause.
    pub(super) fn accepted(calls: usize, error: &RpcError) -> Option<usize> {
        match error.origin() {
            RpcError::LimitExceeded { limit: Limit::Batch(Some(most)), .. } => Some(*most),
            // A rate limit does not depend on the size of a batch.
            RpcError::LimitExceeded { limit: Limit::RateLimited { .. }, .. } => None,
            RpcError::LimitExceeded { .. } | RpcError::TooLarge { .. } => Some(calls / 2),
            // A server that does not accept batches may answer with one of these statuses.
            RpcError::Http { status: 400 | 405 | 411 | 414 | 415 | 422 | 501 } => Some(1),
            _ => None,
        }
    }

    /// Sends several calls in one request, with retries after transient errors. Returns the answers in
    /// the order of the calls.
    pub(super) fn batch_of<T>(
        &self,
        calls: &[Call],
        read: impl Fn(usize, &str) -> Result<T, RpcError>,
    ) -> Result<Vec<Result<T, RpcError>>, RpcError> {
        self.check_chain()?;
        let mut answers: Vec<Option<Result<T, RpcError>>> = Vec::new();
        answers.resize_with(calls.len(), || None);
        let sent = self.transport.retried(|| {
            let open: Vec<usize> = (0..calls.len()).filter(|&at| answers[at].is_none()).collect();
            let first = self.next_id.fetch_add(open.len() as u64, Ordering::Relaxed);
            let requests: Vec<String> =
                (first..).zip(&open).map(|(id, &at)| request(id, &calls[at])).collect();
            let methods: Vec<_> = open.iter().map(|&at| calls[at].method).collect();
            let posted = self.transport.post(&methods, &format!("[{}]", requests.join(",")));
            let body = posted.map_err(|error| match error {
                // A timeout is reported as an exceeded limit, so that smaller batches are tried:
                // fewer calls take less time.
                RpcError::Timeout { .. } => {
                    RpcError::LimitExceeded { limit: Limit::Time, message: error.to_string() }
                }
                error => error,
            })?;
            let replies = self.replies(&body, first, open.len())?;
            let mut transient = None;
            for (&at, reply) in open.iter().zip(replies) {
                let answer = match reply {
                    None => Err(RpcError::Malformed("a call of the batch is not answered".into())),
                    Some(reply) => {
                        let result = self.result(reply.error, reply.result, &calls[at], &body);
                        result.and_then(|result| read(at, result.get()))
                    }
                };
                match answer.map_err(|error| self.clean(error)) {
                    Err(error) if error.is_transient() => transient = Some(error),
                    // Perhaps only the total length of the answers is too large, so the whole batch
                    // is sent again in smaller parts.
                    Err(
                        error @ RpcError::LimitExceeded {
                            limit: Limit::ResponseBytes | Limit::Batch(_),
                            ..
                        },
                    ) => return Err(error),
                    answer => answers[at] = Some(answer),
                }
            }
            transient.map_or(Ok(()), Err)
        });
        self.note_lost(sent)?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// Reads the replies to a batch, in the order of its calls; `None` for a call without a reply.
    fn replies<'a>(
        &self,
        body: &'a Body,
        first: u64,
        calls: usize,
    ) -> Result<Vec<Option<Reply<'a>>>, RpcError> {
        let text = body.text.trim_start();
        // By JSON-RPC 2.0, the answer to a batch is an array. A node that refuses the whole batch
        // answers with one object.
        if !text.starts_with('[') {
            return Err(self.refused(body, calls));
        }
        let no_json = |error: serde_json::Error| self.no_json(&error, body);
        let list: Vec<&RawValue> = bounded::list(text, calls).map_err(no_json)?;
        let mut by_id = HashMap::new();
        for reply in list {
            let reply = object(reply.get()).map_err(no_json)?;
            let id = id(&reply);
            let index = id.and_then(|id| id.checked_sub(first)).filter(|&at| at < calls as u64);
            let Some(index) = index else {
                // Some nodes refuse a whole batch by an error without the id of a call.
                if let Some(error) = reply.error {
                    return Err(self.node_error(error.get(), "a batch", body));
                }
                return Err(RpcError::Malformed("an answer has an id that no call has".into()));
            };
            if by_id.insert(index, reply).is_some() {
                return Err(RpcError::Malformed("two answers to one call".into()));
            }
        }
        Ok((0..calls as u64).map(|at| by_id.remove(&at)).collect())
    }

    /// Returns the error for an answer to a batch that is not a list.
    fn refused(&self, body: &Body, calls: usize) -> RpcError {
        let text = body.text.trim_start();
        let error = text.starts_with('{').then(|| serde_json::from_str::<Reply<'_>>(text).ok());
        let Some(error) = error.flatten().and_then(|reply| reply.error) else {
            return if (200..300).contains(&body.status) {
                let message = "the answer to a batch is not a list".to_owned();
                RpcError::LimitExceeded { limit: Limit::Batch(None), message }
            } else {
                of_status(body.status, body.retry_after)
            };
        };
        match self.node_error(error.get(), "a batch", body) {
            // A single error for all calls may be caused by the size of the batch, whatever the
            // message of the error is. So the calls are sent again in smaller batches.
            RpcError::Node { message, .. } if calls > 1 => {
                RpcError::LimitExceeded { limit: Limit::Batch(None), message }
            }
            RpcError::MethodMissing { .. } => RpcError::LimitExceeded {
                limit: Limit::Batch(None),
                message: "the node does not serve batches".into(),
            },
            error => error,
        }
    }

    /// Reads the answer to a call that was sent without a batch.
    fn single<T>(
        &self,
        body: &Body,
        sent: u64,
        call: &Call,
        read: impl Fn(&str) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let text = body.text.trim_start();
        let success = (200..300).contains(&body.status);
        let reply = match object(text) {
            Ok(reply) => reply,
            Err(_) if !success => return Err(of_status(body.status, body.retry_after)),
            Err(error) => return Err(self.no_json(&error, body)),
        };
        // The id of an error is not checked: a node that could not parse the request, or that
        // rejects it before parsing, does not know the id.
        if reply.error.is_none() {
            if !success {
                return Err(of_status(body.status, body.retry_after));
            }
            if id(&reply) != Some(sent) {
                return Err(other_id());
            }
        }
        read(self.result(reply.error, reply.result, call, body)?.get())
    }

    /// Returns the result of an answer, or the error that the answer has instead of a result.
    fn result<T>(
        &self,
        error: Option<&RawValue>,
        result: Option<T>,
        call: &Call,
        body: &Body,
    ) -> Result<T, RpcError> {
        if let Some(error) = error {
            return Err(self.node_error(error.get(), call.method, body));
        }
        result.ok_or_else(|| {
            RpcError::Malformed("the answer has neither a result nor an error".into())
        })
    }

    /// Converts the error object of a node, and recognises missing methods and exceeded limits.
    fn node_error(&self, json: &str, method: &'static str, body: &Body) -> RpcError {
        let scrub = |text: &str| RpcError::words(&self.transport.endpoint().scrub(text));
        let Ok(error) = serde_json::from_str::<ErrorObject<'_>>(json) else {
            // Some nodes answer with a string instead of an error object.
            let text = serde_json::from_str::<String>(json).unwrap_or_default();
            return match Limit::of_error(0, &text, "") {
                Some(limit) => RpcError::LimitExceeded { limit, message: scrub(&text) },
                None => RpcError::Node { code: 0, message: scrub(&text) },
            };
        };
        let code = error.code.and_then(|code| code.as_i64()).unwrap_or_default();
        let text = error.message.unwrap_or_default();
        let data = error.data.map_or("", RawValue::get);
        let mut message = scrub(&text);
        // A node may send an error without `message`, or with an empty one. The error needs some
        // text.
        if message.is_empty() {
            message = "no message".into();
        }
        // After this error, callers try another method of the same node.
        if is_missing(code, &text) {
            return RpcError::MethodMissing { method };
        }
        let limit = match Limit::of_error(code, &text, data) {
            Some(Limit::RateLimited { retry_after }) => {
                Limit::RateLimited { retry_after: body.retry_after.or(retry_after) }
            }
            None if body.status == 429 => Limit::RateLimited { retry_after: body.retry_after },
            Some(limit) => limit,
            None => return RpcError::Node { code, message },
        };
        RpcError::LimitExceeded { limit, message }
    }

    /// Removes secrets from the message of an error about a malformed answer, and shortens the
    /// message. Parsers quote the text that they read, and this text may contain the URL.
    pub(super) fn clean(&self, error: RpcError) -> RpcError {
        match error {
            RpcError::Malformed(words) => {
                let words = self.transport.endpoint().scrub(&words);
                RpcError::Malformed(RpcError::words(&words))
            }
            error => error,
        }
    }

    fn no_json(&self, error: &serde_json::Error, body: &Body) -> RpcError {
        if (200..300).contains(&body.status) {
            self.clean(RpcError::Malformed(format!("not JSON-RPC: {error}")))
        } else {
            of_status(body.status, body.retry_after)
        }
    }
}

/// Reads an answer, which must be an object. A list is rejected here, because serde would read its
/// elements as the fields.
fn object(text: &str) -> Result<Reply<'_>, serde_json::Error> {
    if text.starts_with('{') {
        serde_json::from_str(text)
    } else {
        Err(serde::de::Error::custom("an answer must be an object"))
    }
}

fn other_id() -> RpcError {
    RpcError::Malformed("the answer has another id than the call".into())
}

fn request(id: u64, call: &Call) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":{}}}"#, call.method, call.params)
}

fn id(reply: &Reply<'_>) -> Option<u64> {
    id_of(reply.id?)
}

/// Returns `true` if an error says that the method does not exist or is not allowed for this user.
fn is_missing(code: i64, message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    code == -32601
        || says(&["method not found", "method does not exist", "does not exist/is not available"])
        || (text.contains("method")
            && says(&[
                "not supported",
                "unsupported",
                "not available",
                "not allowed",
                "not whitelisted",
                "not enabled",
                "disabled",
                "does not exist",
                "not implemented",
                "unavailable",
            ]))
}
