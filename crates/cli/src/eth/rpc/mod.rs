//! A provider of Ethereum's chain: JSON-RPC over HTTP.
//!
//! Nothing that a provider says is believed here beyond its form: headers have the hash that is
//! claimed, receipts are for their block's root to judge, logs are what an audit is about. What a
//! node serves and what limits it has is learnt from its errors, once.

mod blocks;
mod bounded;
mod calls;
mod chain;
mod endpoint;
mod error;
mod headers;
mod in_order;
mod limits;
mod logs;
mod receipts;
mod transport;
mod windows;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use chainsieve::alloy_primitives::U64;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;
use serde_json::json;

pub(crate) use blocks::{Asked, end as end_of_headers, resolve};
pub(crate) use chain::FetchedChain;
pub(crate) use endpoint::{Endpoint, Secret};
pub(crate) use error::RpcError;
pub(crate) use limits::Limit;
use windows::WindowSize;

use crate::args::eth::RpcArgs;
use crate::output;
use crate::stop::Stop;
use calls::{Call, Caller};
use transport::Transport;

/// One provider.
#[derive(Debug)]
pub(crate) struct Provider {
    caller: Caller,
    parallel: usize,
    batch: usize,
    windows: Mutex<WindowSize>,
    raw_headers: Served,
    /// Which way of getting receipts is the first that the node serves.
    receipts_way: AtomicUsize,
}

impl Provider {
    /// A provider that is not asked anything yet.
    pub(crate) fn connect(args: &RpcArgs, endpoint: Endpoint) -> Self {
        Self::connect_until(args, endpoint, Stop::default())
    }

    /// The same, of which no call waits any more once `stop` is set.
    pub(crate) fn connect_until(args: &RpcArgs, endpoint: Endpoint, stop: Stop) -> Self {
        let timeout = Duration::from_secs(args.timeout);
        let transport = Transport::new(endpoint, timeout, args.retries, stop);
        Self {
            caller: Caller::new(transport, args.batch),
            parallel: args.parallel,
            batch: args.batch,
            windows: Mutex::new(WindowSize::new(args.rpc_log_range)),
            raw_headers: Served::default(),
            receipts_way: AtomicUsize::new(0),
        }
    }

    /// Scheme, host and port: whatever else the URL has is secret.
    pub(crate) fn name(&self) -> String {
        self.endpoint().to_string()
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.caller.transport().endpoint()
    }

    /// The chain's id (EIP-155).
    pub(crate) fn chain_id(&self) -> Result<u64, RpcError> {
        let call = Call::new("eth_chainId", &json!([]));
        self.caller.call(&call, |result| {
            let id: U64 = serde_json::from_str(result)
                .map_err(|error| RpcError::Malformed(format!("eth_chainId: {error}")))?;
            Ok(id.to())
        })
    }

    /// The block that a tag or a number stands for now.
    pub(crate) fn head(&self, tag: BlockTag) -> Result<BlockRef, RpcError> {
        let header = self.header_at(tag)?.ok_or_else(|| RpcError::NotFound { what: named(tag) })?;
        Ok(BlockRef::from(&header))
    }

    /// A line on standard error about what was learnt of the node.
    fn note(&self, text: &str) {
        output::print_note(&format!("{}: {text}", self.name()));
    }
}

/// A tag as JSON-RPC has it.
fn tag_json(tag: BlockTag) -> String {
    match tag {
        BlockTag::Number(number) => format!("{number:#x}"),
        tag => tag.name().unwrap_or("latest").to_owned(),
    }
}

fn named(tag: BlockTag) -> String {
    match tag {
        BlockTag::Number(number) => format!("block {number}"),
        tag => format!("the {} block", tag.name().unwrap_or("latest")),
    }
}

/// Whether a node serves a method that not every node has.
#[derive(Debug, Default)]
struct Served(AtomicU8);

const MISSING: u8 = 1;
const THERE: u8 = 2;

impl Served {
    fn may_be(&self) -> bool {
        self.0.load(Ordering::Relaxed) != MISSING
    }

    /// Whether it is known that the node serves it.
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) == THERE
    }

    /// Notes that the node serves it.
    fn is_there(&self) {
        self.0.store(THERE, Ordering::Relaxed);
    }

    /// Notes that the node does not serve it; true the first time.
    fn is_missing(&self) -> bool {
        self.0.swap(MISSING, Ordering::Relaxed) != MISSING
    }
}
