//! Nodes of Ethereum, by JSON-RPC over HTTP: the requests to one node, and the order in which several
//! nodes are asked ([`ask`]).
//!
//! Only the form of answers is checked here: a header, for example, must have the claimed hash.
//! Receipts are checked later against the root in their header, and logs by an audit. The methods
//! that a node serves and its limits are learnt once, from its errors.

pub(crate) mod ask;
mod blocks;
#[cfg(feature = "server")]
pub(crate) mod body;
pub(crate) mod bounded;
mod calls;
pub(crate) mod endpoint;
pub(crate) mod error;
mod limit;
mod logs;
mod pacing;
mod receipts;
pub(crate) mod transport;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;
use serde::de::DeserializeOwned;

use crate::report::Note;
use crate::stop::Stop;
use calls::{Call, Caller};
use logs::WindowSize;
use transport::Transport;

pub(crate) use blocks::ReceivedTransactions;
#[cfg(feature = "server")]
pub(crate) use body::{ReceiptsAndBody, Wanted};
pub use endpoint::{Endpoint, EndpointError};
pub use error::RpcError;
pub use limit::Limit;
pub use pacing::Budget;
#[cfg(feature = "server")]
pub(crate) use receipts::{ReceiptRoom, ReceivedReceipts};
pub(crate) use transport::unix_time;

/// Callback that receives each note, and the endpoint of the node that the note is about.
type OnNote = dyn Fn(&Endpoint, &Note) + Send + Sync;

/// Wrapper of the callback for notes. The wrapper implements `Debug`, because functions do not
/// implement it.
#[derive(Clone)]
pub(crate) struct NoteSink(pub(crate) Arc<OnNote>);

debug_by!(NoteSink:);

/// Options for requests to nodes.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Timeout of a request; 30 s by default.
    pub(crate) timeout: Duration,
    /// Maximum number of retries of a failed request, with growing back-off; 5 by default.
    pub(crate) retries: u32,
    /// Maximum number of calls in one batch request; fewer if the node accepts fewer. 100 by
    /// default.
    pub(crate) batch: usize,
    /// Maximum number of parallel requests; 4 by default. Each answer has at most 256 MiB.
    pub(crate) parallel: usize,
    /// Maximum number of blocks in one `eth_getLogs` call; with `None`, the limit is learnt from
    /// the node's errors.
    pub(crate) log_range: Option<u64>,
    /// Maximum number of bytes that one operation may hold of each kind of data: RLP of headers,
    /// logs, and receipts; 2 GiB by default.
    pub(crate) max_held: u64,
    /// Budget of calls or credits that may be spent at each node; `None` means no limit.
    pub(crate) budget: Option<Budget>,
    /// Handle that stops requests and waits.
    pub(crate) stop: Stop,
    /// Callback for notes. The threads that send requests run this callback.
    pub(crate) on_note: Option<NoteSink>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            retries: 5,
            batch: 100,
            parallel: 4,
            log_range: None,
            max_held: 2 << 30,
            budget: None,
            stop: Stop::new(),
            on_note: None,
        }
    }
}

impl Options {
    pub(crate) fn note(&self, endpoint: &Endpoint, note: &Note) {
        if let Some(NoteSink(sink)) = &self.on_note {
            sink(endpoint, note);
        }
    }
}

/// One node. Clones share the node's connections, its budget, and the methods and limits that were
/// learnt from its errors.
#[derive(Debug, Clone)]
pub struct Node {
    caller: Caller,
    windows: Arc<Mutex<WindowSize>>,
    raw_headers: Arc<Served>,
    /// If the node serves receipts and bodies of several blocks in one request.
    #[cfg(feature = "server")]
    together: Arc<Served>,
    /// If the node serves encodings of whole blocks.
    #[cfg(feature = "server")]
    raw_blocks: Arc<Served>,
    /// Index of the first method for receipts that the node serves, as far as known.
    receipts_method: Arc<AtomicUsize>,
}

impl Node {
    /// Creates a node. No request is sent yet.
    pub(crate) fn new(endpoint: Endpoint, options: Options) -> Self {
        Self {
            windows: Arc::new(Mutex::new(WindowSize::new(options.log_range))),
            caller: Caller::new(Transport::new(endpoint, options)),
            raw_headers: Arc::default(),
            #[cfg(feature = "server")]
            together: Arc::default(),
            #[cfg(feature = "server")]
            raw_blocks: Arc::default(),
            receipts_method: Arc::default(),
        }
    }

    fn with(&self, change: impl FnOnce(&mut Transport)) -> Self {
        let mut node = self.clone();
        change(&mut node.caller.transport);
        node
    }

    /// Returns the same node with another stop handle for its requests and waits.
    #[must_use]
    pub fn with_stop(&self, stop: Stop) -> Self {
        self.with(|transport| transport.options.stop = stop)
    }

    /// Returns the same node, which repeats a failed request this many times.
    pub(crate) fn with_retries(&self, retries: u32) -> Self {
        self.with(|transport| transport.options.retries = retries)
    }

    /// Returns the same node with another limit for the size of an answer in bytes, after
    /// decompression (default: 256 MiB). A longer answer is an [`RpcError::TooLarge`].
    #[must_use]
    pub fn with_max_answer(&self, bytes: u64) -> Self {
        self.with(|transport| transport.max_body = bytes)
    }

    /// Returns the same node with a limit: at most `count` of its answers of more than a megabyte
    /// are held at the same time.
    #[cfg(feature = "server")]
    pub(crate) fn with_large_answers(&self, count: usize) -> Self {
        self.with(|transport| transport.large = Some(bounded::Large::new(count)))
    }

    /// Returns the same node, whose chain is checked before its first answer is used. `chain` is the
    /// expected id, once it is known.
    pub(crate) fn of_chain(&self, chain: Arc<OnceLock<u64>>) -> Self {
        let node = self.clone();
        Self { caller: node.caller.of_chain(chain), ..node }
    }

    /// Returns the node's URL. Its `Display` shows only scheme, host and port.
    pub fn endpoint(&self) -> &Endpoint {
        self.caller.transport.endpoint()
    }

    /// Returns the number of calls that were sent, including repetitions.
    pub fn num_calls(&self) -> u64 {
        self.caller.transport.sent.load(Ordering::Relaxed)
    }

    /// Returns `true` if `other` is a clone of this node.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.windows, &other.windows)
    }

    /// Returns `true` if the node did not answer recently, or asked for a pause. Other nodes are then
    /// asked before this node.
    pub(crate) fn rests(&self) -> bool {
        self.why_it_rests().is_some()
    }

    /// Returns the failure after which the node [rests](Self::rests).
    pub(crate) fn why_it_rests(&self) -> Option<RpcError> {
        self.caller.transport.rests()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.caller.transport.options
    }

    /// Returns the scheme, host and port of the node, for messages.
    pub(crate) fn name(&self) -> String {
        self.endpoint().to_string()
    }

    pub(crate) fn note(&self, note: &Note) {
        self.caller.transport.note(note);
    }

    /// Calls any method, and returns its result. Only the type of the result is checked.
    ///
    /// The node may serve any chain with JSON-RPC over HTTP.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or if the result is not of type `T`.
    pub fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &serde_json::Value,
    ) -> Result<T, RpcError> {
        self.caller.call(&Call::new(method, params), |result| {
            let read = serde_json::from_str(result);
            read.map_err(|error| RpcError::Malformed(format!("{method}: {error}")))
        })
    }

    /// Calls any method, and passes the JSON text of its result to `read`. A long result is not
    /// copied, in contrast to [`call`](Self::call) with the type `RawValue`.
    ///
    /// `read` is called at most once for each attempt.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails. [`RpcError::Malformed`] means that the answer is
    /// not JSON-RPC.
    pub fn read<T>(
        &self,
        method: &'static str,
        params: &serde_json::Value,
        read: impl Fn(&str) -> T,
    ) -> Result<T, RpcError> {
        self.caller.call(&Call::new(method, params), |result| Ok(read(result)))
    }

    /// Calls a method once for each element of `params`, in batches if the node accepts them, and
    /// passes the JSON text of each result to `read`.
    ///
    /// The answers have the order of `params`.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if a whole request fails, or if all answers together are longer than
    /// a single answer may be. An error about a single call is the answer to that call.
    pub fn read_each<T>(
        &self,
        method: &'static str,
        params: &[serde_json::Value],
        read: impl Fn(&str) -> T,
    ) -> Result<Vec<Result<T, RpcError>>, RpcError> {
        let calls: Vec<Call> = params.iter().map(|params| Call::new(method, params)).collect();
        self.caller.calls(&calls, |_, result| Ok(read(result)))
    }

    /// Sends any call once, and returns its result or its error as the node wrote it.
    #[cfg(feature = "server")]
    pub(crate) fn forward(&self, method: &str, params: &str) -> Result<calls::Forwarded, RpcError> {
        self.caller.forward(method, params)
    }

    /// Asks the node for the chain's id (EIP-155), at each call.
    /// [`Provider::chain_id`](crate::Provider::chain_id) asks only once.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails.
    pub fn chain_id(&self) -> Result<u64, RpcError> {
        self.caller.chain_id()
    }

    /// Asks the node for the block that a tag or number currently names.
    ///
    /// # Errors
    /// Returns [`RpcError::NotFound`] if there is no such block, for example if no block is
    /// finalised yet. Returns another [`RpcError`] if the request fails.
    pub fn block(&self, tag: BlockTag) -> Result<BlockRef, RpcError> {
        let header = self.header_at(tag)?.ok_or_else(|| RpcError::NotFound { what: named(tag) })?;
        Ok(BlockRef::from(&header))
    }
}

/// Returns a tag or number in words, for messages.
pub(crate) fn named(tag: BlockTag) -> String {
    match tag {
        BlockTag::Number(number) => format!("block {number}"),
        tag => format!("the {} block", tag.name().unwrap_or("latest")),
    }
}

/// Records whether a node serves an optional method: unknown, missing or present.
#[derive(Debug, Default)]
struct Served(AtomicU8);

const MISSING: u8 = 1;
const PRESENT: u8 = 2;

impl Served {
    fn may_be(&self) -> bool {
        self.0.load(Ordering::Relaxed) != MISSING
    }

    /// Returns `true` if the node is known to serve the method.
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PRESENT
    }

    fn set_present(&self) {
        self.0.store(PRESENT, Ordering::Relaxed);
    }

    /// Records that the node does not serve the method. Returns `true` the first time.
    fn set_missing(&self) -> bool {
        self.0.swap(MISSING, Ordering::Relaxed) != MISSING
    }
}
