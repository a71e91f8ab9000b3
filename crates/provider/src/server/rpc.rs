//! JSON-RPC 2.0: requests and batches of clients, and their answers.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call::{Answer, Call, Method, Room, Written};
use super::clients::{Client, Held};
use super::error::{ErrorObject, INVALID_REQUEST, PARSE_ERROR, Refusal};
use super::filters::{MOST_WORDS, Subscriptions};
use super::{Proven, methods};
use crate::nodes::ask::in_turn;
use crate::nodes::bounded;
use crate::stop::Stop;

/// Number of calls of a batch that are processed at the same time.
const AT_ONCE: usize = 8;
/// Maximum length of an id in bytes, because each answer repeats it.
const LONGEST_ID: usize = 1024;
/// Minimum size of an error that counts as unread bytes.
const LONG_ERROR: usize = 1024;
/// Answers up to this size are copied into one piece.
const SMALL: usize = 16 << 10;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) proven: Arc<Proven>,
    pub(super) client: Arc<Client>,
    /// Subscriptions of the connection; `None` over HTTP.
    pub(super) subscriptions: Option<Arc<Subscriptions>>,
}

/// A permit of the client, and a permit of all clients together.
type Permits = [OwnedSemaphorePermit; 2];

/// The reply to a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The text, in pieces.
    pub(super) parts: Vec<Bytes>,
    /// `true` if a part of the reply comes from a node without a proof.
    pub(super) is_unverified: bool,
    /// Ids of subscriptions that begin after the text was sent.
    pub(super) subscribed: Vec<String>,
}

/// A call as a client sends it.
#[derive(serde::Deserialize)]
struct Request<'a> {
    jsonrpc: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Reads a member that may be `null`: `Some` if the member is present.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// JSON and its part of the budget, which is released together with the last clone of the bytes.
struct Piece {
    json: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

/// Stops the work for a call when no client waits for the answer any more.
pub(super) struct Waiting(Option<Stop>);

impl Waiting {
    /// Records that the work is done.
    pub(super) fn is_over(&mut self) {
        self.0 = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(stop) = self.0.take() {
            stop.set();
        }
    }
}

impl Reply {
    fn error(id: &str, error: &ErrorObject) -> Self {
        let error = serde_json::to_string(error).expect("JSON");
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        Self { parts: vec![text.into()], ..Self::default() }
    }

    fn success(id: &str, Written { mut json, held }: Written, is_unverified: bool) -> Self {
        let before = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
        let after: &[u8] = if is_unverified { br#","unverified":true}"# } else { b"}" };
        let parts = if json.len() < SMALL {
            let mut text = before.into_bytes();
            text.append(&mut json);
            text.extend_from_slice(after);
            vec![Bytes::from_owner(Piece { json: text, _held: held })]
        } else {
            let result = Bytes::from_owner(Piece { json, _held: held });
            vec![before.into(), result, Bytes::copy_from_slice(after)]
        };
        Self { parts, is_unverified, ..Self::default() }
    }

    fn push(&mut self, separator: &'static [u8], mut other: Self) {
        self.parts.push(Bytes::from_static(separator));
        self.parts.append(&mut other.parts);
        self.is_unverified |= other.is_unverified;
        self.subscribed.append(&mut other.subscribed);
    }
}

impl Caller {
    /// Answers a request. Returns `None` if the request contains only notifications.
    pub(super) async fn answer(&self, text: &[u8]) -> Option<Reply> {
        let Ok(text) = str::from_utf8(text) else { return Some(not_json()) };
        let text = text.trim_ascii();
        let room = Room::new(self.proven.limits.max_answer.into());
        if !text.starts_with('[') {
            return self.one(text, room).await;
        }
        let most = self.proven.limits.max_batch;
        let calls: Vec<&RawValue> = match bounded::list(text, most as usize) {
            Ok(calls) if calls.is_empty() => {
                return Some(invalid(INVALID_REQUEST, "empty batch"));
            }
            Ok(calls) => calls,
            Err(error) if error.is_data() => {
                self.proven.metrics.limit_reached("batch");
                // The words of go-ethereum.
                let why = format!("batch too large: the limit is {most} calls");
                return Some(invalid(INVALID_REQUEST, why));
            }
            Err(_) => return Some(not_json()),
        };
        let (mut calls, mut answers) = (calls.into_iter(), FuturesOrdered::new());
        let mut all = Reply::default();
        loop {
            for call in calls.by_ref().take(AT_ONCE - answers.len()) {
                answers.push_back(self.one(call.get(), Arc::clone(&room)));
            }
            let Some(answer) = answers.next().await else { break };
            if let Some(answer) = answer {
                all.push(if all.parts.is_empty() { b"[" } else { b"," }, answer);
            }
        }
        if all.parts.is_empty() {
            return None;
        }
        all.parts.push(Bytes::from_static(b"]"));
        Some(all)
    }

    async fn one(&self, text: &str, room: Arc<Room>) -> Option<Reply> {
        let is_id = |id: &RawValue| {
            let id = id.get();
            let is_value = id == "null" || id.starts_with(|c: char| "\"-0123456789".contains(c));
            is_value && id.len() <= LONGEST_ID
        };
        // A list would be read as the members of the object.
        let request = text.starts_with('{').then(|| serde_json::from_str::<Request<'_>>(text).ok());
        let request = request
            .flatten()
            .filter(|request| request.jsonrpc == "2.0" && request.id.is_none_or(is_id));
        let Some(Request { id, method, params, .. }) = request else {
            if serde_json::from_str::<IgnoredAny>(text).is_err() {
                return Some(not_json());
            }
            return Some(invalid(INVALID_REQUEST, "invalid request"));
        };
        // Nobody learns what a notification does, so it does nothing.
        let id = id?.get();
        let params = params.map_or("[]", RawValue::get);
        Some(self.call(id, &method, params, room).await)
    }

    async fn call(&self, id: &str, method: &str, params: &str, room: Arc<Room>) -> Reply {
        let began = Instant::now();
        let (name, answer) = if let Some((name, method)) = methods::find_instant(method) {
            (name, self.at_once(method, params, room))
        } else if let Some((name, method)) = methods::find(method) {
            (name, self.work(method, params, room).await)
        } else {
            match method {
                "eth_subscribe" => {
                    let mut subscribed = None;
                    let answer = self.at_once(
                        |call, params| {
                            let subscriptions = self.subscriptions()?;
                            let id = subscriptions.subscribe(call, params)?;
                            let answer = call.written(&id);
                            if answer.is_ok() {
                                subscribed = Some(id);
                            } else {
                                subscriptions.end(&id);
                            }
                            answer
                        },
                        params,
                        room,
                    );
                    let mut reply = self.reply("eth_subscribe", id, began, answer);
                    reply.subscribed.extend(subscribed);
                    return reply;
                }
                "eth_unsubscribe" => {
                    let unsubscribe = |call: &Call, params: &[&RawValue]| {
                        let subscriptions = self.subscriptions()?;
                        let id: String = methods::param(params, 0)?;
                        if subscriptions.end(&id) {
                            call.written(&true)
                        } else {
                            Err(Refusal::NoSubscription)
                        }
                    };
                    ("eth_unsubscribe", self.at_once(unsubscribe, params, room))
                }
                _ if self.proven.pass_unverified && !is_never_passed(method) => {
                    return self.pass_on(id, method, params, room).await;
                }
                _ => {
                    let refusal = Refusal::Method(method.chars().take(MOST_WORDS).collect());
                    self.proven.metrics.refused(refusal.outcome());
                    return Reply::error(id, &refusal.into());
                }
            }
        };
        self.reply(name, id, began, answer)
    }

    fn reply(&self, name: &'static str, id: &str, began: Instant, answer: Answer) -> Reply {
        let outcome = answer.as_ref().map_or_else(Refusal::outcome, |_| "ok");
        self.proven.metrics.answered(name, outcome, began.elapsed());
        match answer {
            Ok(written) => Reply::success(id, written, false),
            Err(refusal) => self.refused(id, refusal),
        }
    }

    /// Returns the answer of a refusal. A long answer counts as unread bytes; if there is no room
    /// for these bytes, a shorter error is returned.
    fn refused(&self, id: &str, refusal: Refusal) -> Reply {
        let error = ErrorObject::from(refusal);
        let mut reply = Reply::error(id, &error);
        let length = reply.parts.iter().map(Bytes::len).sum::<usize>();
        if length > LONG_ERROR {
            let mut held = self.proven.passing.part(&self.client);
            if held.grow(length as u64).is_err() {
                let short = ErrorObject { data: None, ..error };
                return Reply::error(id, &short);
            }
            let json = reply.parts.concat();
            reply.parts = vec![Bytes::from_owner(Piece { json, _held: held })];
        }
        reply
    }

    fn subscriptions(&self) -> Result<&Subscriptions, Refusal> {
        self.subscriptions.as_deref().ok_or(Refusal::NeedsWebSocket)
    }

    /// Returns a call, and a guard that stops the work for the call when the guard is dropped.
    pub(super) fn begin(&self, room: Arc<Room>) -> (Call, Waiting) {
        let stop = self.proven.stop.child();
        let waiting = Waiting(Some(stop.clone()));
        (Call::new(Arc::clone(&self.proven), Arc::clone(&self.client), stop, room), waiting)
    }

    /// Answers a call that asks no node and reads little.
    fn at_once(
        &self,
        method: impl FnOnce(&Call, &[&RawValue]) -> Answer,
        params: &str,
        room: Arc<Room>,
    ) -> Answer {
        let params = methods::list_of(params)?;
        let (call, mut waiting) = self.begin(room);
        waiting.is_over();
        method(&call.instant(), &params)
    }

    /// Calls a method on a thread that is allowed to block.
    async fn work(&self, method: Method, params: &str, room: Arc<Room>) -> Answer {
        let permits = self.permits(&self.proven.calls).await?;
        let params = params.to_owned();
        let work = move |call: &Call| method(call, &methods::list_of(&params)?);
        self.on_thread(permits, room, work).await
    }

    /// Does the work for a call on a thread that is allowed to block.
    async fn on_thread<E: From<Refusal> + Send + 'static>(
        &self,
        permits: Permits,
        room: Arc<Room>,
        work: impl FnOnce(&Call) -> Result<Written, E> + Send + 'static,
    ) -> Result<Written, E> {
        let (call, mut waiting) = self.begin(room);
        let work = tokio::task::spawn_blocking(move || {
            // Work that nobody waits for any more holds them until it has ended.
            let _permits = permits;
            work(&call)
        });
        let answer = tokio::time::timeout(self.proven.limits.call_timeout, work).await;
        let Ok(answer) = answer else {
            self.proven.metrics.limit_reached("call_timeout");
            return Err(Refusal::Abandoned.into());
        };
        waiting.is_over();
        answer.unwrap_or_else(|_| Err(Refusal::Internal.into()))
    }

    /// Waits for a permit of the client, and for a permit of all clients together.
    async fn permits(&self, all: &Arc<Semaphore>) -> Result<Permits, Refusal> {
        let limits = &self.proven.limits;
        let mut limit = ("calls of yours at once", "calls_of_client", limits.max_calls_of_client);
        let acquired = tokio::time::timeout(limits.max_wait, async {
            let own = Arc::clone(&self.client.calls).acquire_owned().await.ok()?;
            limit = ("calls at once", "calls", limits.max_calls);
            Some([own, Arc::clone(all).acquire_owned().await.ok()?])
        });
        acquired.await.ok().flatten().ok_or_else(|| {
            let (what, name, limit) = limit;
            self.proven.metrics.limit_reached(name);
            Refusal::Busy { what, limit }
        })
    }

    /// Passes a call to a node, and marks its answer.
    async fn pass_on(&self, id: &str, method: &str, params: &str, room: Arc<Room>) -> Reply {
        let permits = match self.permits(&self.proven.passed).await {
            Ok(permits) => permits,
            Err(refusal) => {
                self.proven.metrics.refused(refusal.outcome());
                return Reply::error(id, &refusal.into());
            }
        };
        self.proven.metrics.passed();
        let (method, params) = (method.to_owned(), params.to_owned());
        let work = move |call: &Call| {
            let result = call.forward(&method, &params, &call.stop)?;
            call.written(&result).map_err(ErrorObject::from)
        };
        match self.on_thread(permits, room, work).await {
            Ok(written) => Reply::success(id, written, true),
            Err(error) => Reply { is_unverified: true, ..Reply::error(id, &error) },
        }
    }
}

/// Returns the answer to a text that is not a valid call.
fn invalid(code: i32, why: impl Into<String>) -> Reply {
    Reply::error("null", &ErrorObject::new(code, why))
}

fn not_json() -> Reply {
    invalid(PARSE_ERROR, "the request is not JSON")
}

/// Returns `true` if a method that is not proven is never passed on: it reads, searches or watches
/// blocks, headers, transactions, receipts or logs in a way that is not proven here, and its answer could
/// be mistaken for a proven answer.
pub(super) fn is_never_passed(method: &str) -> bool {
    let name = method.split_once('_').map_or(method, |(_, name)| name).to_ascii_lowercase();
    if name == "gettransactioncount" {
        // The nonce of an account.
        return false;
    }
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let reads = begins(&["get", "search", "new", "latest", "subscri", "unsubscri", "blocknumber"]);
    let data =
        has(&["block", "header", "uncle", "transaction", "receipt", "log", "filter", "subscri"]);
    // These wait for a receipt.
    reads && data || begins(&["send"]) && name.ends_with("sync")
}

impl Proven {
    /// Passes a call to the first node that answers, and returns its answer without any check.
    pub(super) fn forward(
        &self,
        method: &str,
        params: &str,
        stop: &Stop,
    ) -> Result<Box<RawValue>, ErrorObject> {
        let mut failed = None;
        // Each node is asked once: the call may send a transaction.
        for node in in_turn(self.blocks.nodes()) {
            if stop.is_set() {
                break;
            }
            match node.forward(method, params) {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => {
                    let malformed =
                        |_| ErrorObject::new(-32000, "the error of the node is malformed");
                    return Err(serde_json::from_str(error.get()).unwrap_or_else(malformed));
                }
                Err(error) => failed.get_or_insert(format!("{}: {error}", node.name())),
            };
        }
        Err(Refusal::Upstream(failed.unwrap_or_default()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::is_never_passed;

    #[test]
    fn what_reads_the_chain_is_never_passed() {
        for method in [
            "alchemy_getTransactionReceipts",
            "bor_getHeaderByNumber",
            "debug_getBadBlocks",
            "erigon_blockNumber",
            "erigon_getLatestLogs",
            "erigon_getLogsByHash",
            "eth_getBlockAccessList",
            "eth_getBlockAccessListByBlockHash",
            "eth_getTransactionBySenderAndNonce",
            "eth_getTransactionReceiptsByBlock",
            "eth_getUserOperationReceipt",
            "eth_newPendingTransactionFilter",
            "eth_newSideForkFilter",
            "eth_sendRawTransactionSync",
            "eth_sendTransactionSync",
            "eth_subscribe",
            "eth_unsubscribe",
            "ots_getBlockDetails",
            "ots_searchTransactionsBefore",
            "parity_getBlockReceipts",
            "parity_subscribe",
            "qn_getReceipts",
            "reth_getBlockExecutionOutcome",
        ] {
            assert!(is_never_passed(method), "{method}");
        }
        for method in [
            "anvil_mine",
            "anvil_setNextBlockBaseFeePerGas",
            "debug_traceBlockByHash",
            "eth_accounts",
            "eth_blobBaseFee",
            "eth_call",
            "eth_createAccessList",
            "eth_estimateGas",
            "eth_feeHistory",
            "eth_gasPrice",
            "eth_getBalance",
            "eth_getCode",
            "eth_getProof",
            "eth_getStorageAt",
            "eth_getTransactionCount",
            "eth_sendRawTransaction",
            "eth_sendTransaction",
            "eth_simulateV1",
            "eth_syncing",
            "evm_mine",
            "net_listening",
            "trace_block",
            "txpool_content",
            "web3_sha3",
        ] {
            assert!(!is_never_passed(method), "{method}");
        }
    }
}
