//! The description of a lie: its id, and the verdict of a correct client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chainsieve::btc::bip158::BuildError;
use serde::Serialize;

use super::{bitcoin, ethereum};

/// The protocol in which a node lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Protocol {
    /// Bitcoin's peer-to-peer protocol: headers, blocks, BIP37, BIP157.
    BitcoinP2p,
    /// Ethereum's JSON-RPC over HTTP.
    EthereumJsonRpc,
}

/// The behaviour of a correct client that meets a lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// The client detects the lie without any other node, and never uses the false data.
    MustDetect,
    /// One node alone can tell this lie undetected, so a client must not claim more than the word
    /// of one node. With an honest second node, the client detects the lie.
    CannotDetectAlone,
    /// The client neither crashes nor waits for ever. It asks another node, or reports an error.
    MustNotCrash,
    /// The client ends the wait by its own timeout.
    MustTimeOut,
}

/// The verdict that a correct client must reach, and the evidence for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// The check, or the further source of data, that reveals the lie.
    pub by: &'static str,
}

/// A way in which a node lies or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lie {
    /// The id, such as `btc-filter-damaged`. Ids never change their meaning.
    pub id: &'static str,
    /// The lie in one line.
    pub title: &'static str,
    /// The protocol in which the node lies.
    pub protocol: Protocol,
    /// The verdict that a correct client must reach.
    pub expected: Expected,
    /// The specification on which the verdict rests.
    pub source: &'static str,
}

impl Lie {
    /// Creates the description of a lie in the table of a protocol.
    pub(super) const fn new(
        protocol: Protocol,
        id: &'static str,
        title: &'static str,
        (verdict, by): (Verdict, &'static str),
        source: &'static str,
    ) -> Self {
        Self { id, title, protocol, expected: Expected { verdict, by }, source }
    }
}

/// Returns all lies, those of Bitcoin first.
pub fn lies() -> impl Iterator<Item = &'static Lie> {
    let bitcoin = bitcoin::LIES.iter().map(|told| &told.lie);
    bitcoin.chain(ethereum::lies::lies())
}

/// Returns the lie with this id.
pub fn find(id: &str) -> Option<&'static Lie> {
    lies().find(|lie| lie.id == id)
}

/// The number of times that a lie was told. Clones share the number.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicU32>);

impl Count {
    /// Returns the number so far.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more lie.
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reason why a node cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No lie of the node's protocol has this id.
    #[error("no such lie: {0:?}")]
    UnknownLie(String),
    /// The node cannot listen, or no thread can be started.
    #[error("cannot listen: {0}")]
    Io(io::Error),
    /// The false filters cannot be built from the blocks.
    #[error("filters of the blocks: {0}")]
    Filters(BuildError),
}

// The causes are in the texts already, so that they are no sources: a chain of errors would have
// each text twice.
impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BuildError> for StartError {
    fn from(error: BuildError) -> Self {
        Self::Filters(error)
    }
}
