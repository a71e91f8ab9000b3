//! An Ethereum node on loopback that conforms or lies: JSON-RPC over HTTP.
//!
//! The node answers `eth_chainId`, `eth_blockNumber`, `eth_getBlockByNumber`, `eth_getBlockByHash`,
//! `eth_getLogs`, `eth_getBlockReceipts`, `eth_getTransactionByHash` and `eth_getTransactionReceipt`, singly and in batches, and
//! "method not found" to all other methods. It has two consecutive blocks of mainnet,
//! [`FIRST`] and [`LAST`], or it asks another node and alters the answers. The built-in
//! blocks have all transactions and receipts, but no withdrawals.

mod block;
pub mod lies;
mod node;

use std::net::{Ipv4Addr, SocketAddr};

pub(crate) use block::{HEADER_MEMBERS, header_json};
pub use node::{FIRST, LAST};

use self::node::Node;
use super::json_rpc::{Fate, Proxy, Rule, Source};
use super::lie::{Count, StartError};

/// Configures and starts a [`LyingNode`].
#[must_use]
pub struct Builder {
    rule: Rule,
    count: Count,
    listen: SocketAddr,
    upstream: Option<String>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Builder {
    /// Sets the lie by its id (default: the node is honest).
    ///
    /// # Errors
    /// Returns [`StartError::UnknownLie`] if no lie of JSON-RPC has this id.
    pub fn lie(mut self, id: &str) -> Result<Self, StartError> {
        let rule = lies::rule(id, &self.count);
        self.rule = rule.ok_or_else(|| StartError::UnknownLie(id.to_owned()))?;
        Ok(self)
    }

    /// Sets the address to listen on (default: a free port of 127.0.0.1).
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the URL of a node whose answers are altered (default: the built-in blocks).
    pub fn upstream(mut self, url: impl Into<String>) -> Self {
        self.upstream = Some(url.into());
        self
    }

    /// Starts the node.
    ///
    /// # Errors
    /// Returns an error if the node cannot listen.
    pub fn start(self) -> Result<LyingNode, StartError> {
        let source = if let Some(url) = self.upstream {
            Source::node(url)
        } else {
            let node = Node::new();
            Source::function(move |method, params| node.answer(method, params))
        };
        let proxy = Proxy::start(self.listen, source, self.rule)?;
        Ok(LyingNode { proxy, count: self.count })
    }
}

/// An Ethereum node that conforms or lies. Dropping it stops the node.
#[derive(Debug)]
#[must_use = "dropping the node stops it"]
pub struct LyingNode {
    proxy: Proxy,
    count: Count,
}

impl LyingNode {
    /// Returns a builder for an honest node with the built-in blocks.
    pub fn builder() -> Builder {
        Builder {
            rule: Box::new(|_, _, _| Fate::Answered),
            count: Count::default(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            upstream: None,
        }
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Returns the URL of the node.
    pub fn url(&self) -> String {
        self.proxy.url()
    }

    /// Returns the number of calls so far.
    pub fn num_calls(&self) -> usize {
        self.proxy.calls().values().sum()
    }

    /// Returns the number of times that the lie was told.
    pub fn told(&self) -> u32 {
        self.count.get()
    }
}
