//! One node of Ethereum: JSON-RPC over HTTP.
//!
//! Nothing that a node says is believed here beyond its form: headers have the hash that is
//! claimed, receipts are for their block's root to judge, logs are what an audit is about. What a
//! node serves and what limits it has is learnt from its errors, once.

mod bounded;
mod calls;
mod endpoint;
pub(crate) mod error;
mod headers;
mod logs;
mod receipts;
mod transport;

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chainsieve::alloy_primitives::U64;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;
use chainsieve::eth::provider::{Budget, WindowSize};
use serde_json::json;

use crate::note::Note;
use crate::stop::Stop;
use calls::{Call, Caller};
pub use endpoint::{Endpoint, EndpointError};
pub use error::RpcError;
use transport::Transport;

/// Called with each note, and the endpoint of the node that it is about.
type OnNote = dyn Fn(&Endpoint, &Note) + Send + Sync;

/// The function that gets the notes; a type of its own, since functions have no `Debug`.
#[derive(Clone)]
pub(crate) struct NoteSink(pub(crate) Arc<OnNote>);

impl fmt::Debug for NoteSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoteSink")
    }
}

/// How nodes are asked.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How long an answer may take; 30 s by default.
    pub(crate) timeout: Duration,
    /// How often a request that failed is sent again, after longer and longer waits; 5 by default.
    pub(crate) retries: u32,
    /// Calls in one request at most; fewer where the node takes fewer. 100 by default.
    pub(crate) batch: usize,
    /// Requests at a time; 4 by default. An answer has at most 256 MiB.
    pub(crate) parallel: usize,
    /// Blocks of one `eth_getLogs` at most; by default learnt from the node.
    pub(crate) log_range: Option<u64>,
    /// Bytes that one operation may hold of headers' RLP, and as many of logs, and of receipts;
    /// 2 GiB by default.
    pub(crate) max_held: u64,
    /// What may be spent at each node; no limit by default.
    pub(crate) budget: Option<Budget>,
    /// Ends requests and waits.
    pub(crate) stop: Stop,
    /// Gets notes; nobody does by default. Called on the threads that ask.
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

/// One node. Clones share its connections, its budget and what is known of it.
#[derive(Debug, Clone)]
pub struct Node {
    caller: Caller,
    windows: Arc<Mutex<WindowSize>>,
    raw_headers: Arc<Served>,
    /// The first method for receipts that the node serves, by its index.
    receipts_method: Arc<AtomicUsize>,
}

impl Node {
    /// A node that is not asked anything yet.
    pub(crate) fn new(endpoint: Endpoint, options: Options) -> Self {
        Self {
            windows: Arc::new(Mutex::new(WindowSize::new(options.log_range))),
            caller: Caller::new(Transport::new(endpoint, options)),
            raw_headers: Arc::default(),
            receipts_method: Arc::default(),
        }
    }

    /// The same node, whose requests and waits this ends.
    #[must_use]
    pub fn with_stop(&self, stop: Stop) -> Self {
        let node = self.clone();
        Self { caller: node.caller.with_stop(stop), ..node }
    }

    /// Its URL, of which `Display` shows scheme, host and port.
    pub fn endpoint(&self) -> &Endpoint {
        self.caller.transport().endpoint()
    }

    /// The number of calls that were sent, repeated ones included.
    pub fn num_calls(&self) -> u64 {
        self.caller.transport().sent()
    }

    pub(crate) fn options(&self) -> &Options {
        self.caller.transport().options()
    }

    /// Scheme, host and port.
    pub(crate) fn name(&self) -> String {
        self.endpoint().to_string()
    }

    pub(crate) fn note(&self, note: &Note) {
        self.caller.transport().note(note);
    }

    /// The chain's id (EIP-155).
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn chain_id(&self) -> Result<u64, RpcError> {
        let call = Call::new("eth_chainId", &json!([]));
        self.caller.call(&call, |result| {
            let id: U64 = serde_json::from_str(result)
                .map_err(|error| RpcError::Malformed(format!("eth_chainId: {error}")))?;
            Ok(id.to())
        })
    }

    /// The block that a tag or a number names now.
    ///
    /// # Errors
    /// [`RpcError::NotFound`] if there is none, as where no block is finalised yet.
    pub fn block(&self, tag: BlockTag) -> Result<BlockRef, RpcError> {
        let header = self.header_at(tag)?.ok_or_else(|| RpcError::NotFound { what: named(tag) })?;
        Ok(BlockRef::from(&header))
    }
}

/// A tag as JSON-RPC has it.
fn tag_json(tag: BlockTag) -> String {
    match tag {
        BlockTag::Number(number) => format!("{number:#x}"),
        tag => tag.name().unwrap_or("latest").to_owned(),
    }
}

pub(crate) fn named(tag: BlockTag) -> String {
    match tag {
        BlockTag::Number(number) => format!("block {number}"),
        tag => format!("the {} block", tag.name().unwrap_or("latest")),
    }
}

/// Whether a node serves a method that not every node has.
#[derive(Debug, Default)]
struct Served(AtomicU8);

const MISSING: u8 = 1;
const PRESENT: u8 = 2;

impl Served {
    fn may_be(&self) -> bool {
        self.0.load(Ordering::Relaxed) != MISSING
    }

    /// Whether it is known that the node serves it.
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PRESENT
    }

    fn set_present(&self) {
        self.0.store(PRESENT, Ordering::Relaxed);
    }

    /// Notes that the node does not serve it; returns `true` the first time.
    fn set_missing(&self) -> bool {
        self.0.swap(MISSING, Ordering::Relaxed) != MISSING
    }
}
