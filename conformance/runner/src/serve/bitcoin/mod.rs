//! A Bitcoin peer on loopback that conforms or lies.
//!
//! The peer is a [test node](chainsieve_client::testnode) that answers as Bitcoin Core does, behind
//! a [`Proxy`] whose [rule](rules) alters, delays or drops the node's messages.

mod built_in;
mod false_filters;
mod proxy;
pub mod rules;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use chainsieve::bitcoin::{Block, Network};
use chainsieve::btc::bip158::BuildError;
use chainsieve::btc::server::ServedChain;
use chainsieve_client::testnode::{Node, NodeBuilder};

pub use built_in::{KnownScript, blocks, known_scripts};
pub use false_filters::FalseFilters;
pub use proxy::{Fate, Letter, Proxy, Rule, Sender};

use super::lie::{Count, Lie, Protocol, StartError, Verdict};
use Verdict::{CannotDetectAlone, MustDetect, MustNotCrash, MustTimeOut};

/// The chain that a lie is about.
struct Served {
    network: Network,
    /// The blocks from height 1 on.
    blocks: Vec<Arc<Block>>,
}

/// A lie, and the rule that tells it.
pub(super) struct Told {
    pub(super) lie: Lie,
    rule: fn(&Served, Count) -> Result<Rule, BuildError>,
}

const fn told(
    id: &'static str,
    title: &'static str,
    expected: (Verdict, &'static str),
    source: &'static str,
    rule: fn(&Served, Count) -> Result<Rule, BuildError>,
) -> Told {
    Told { lie: Lie::new(Protocol::BitcoinP2p, id, title, expected, source), rule }
}

/// All lies of a Bitcoin peer.
pub(super) static LIES: [Told; 21] = [
    told(
        "btc-header-unproven",
        "The last header of each headers message has no proof of work",
        (MustDetect, "the proof of work of the header"),
        "Bitcoin Core, CheckProofOfWork",
        |_, count| Ok(rules::unproven_headers(count)),
    ),
    told(
        "btc-filter-damaged",
        "A bit of each filter is changed, so that no filter fits its filter header",
        (MustDetect, "the hash of the filter, to which the filter header commits"),
        "BIP157, Client Operation",
        |_, count| Ok(rules::damaged_filters(count)),
    ),
    told(
        "btc-filter-header-noise",
        "The last filter hash of each cfheaders message is another hash",
        (MustDetect, "the hash of the filter, or the next filter header of the same node"),
        "BIP157, Client Operation",
        |_, count| Ok(rules::noisy_filter_headers(count)),
    ),
    told(
        "btc-filter-hides-transactions",
        "Filters lack all scripts but those of the coinbase; filter headers fit them",
        (
            CannotDetectAlone,
            "an honest second node, then the block: its outputs are not in the filter",
        ),
        "BIP157, Client Operation",
        |served, count| hiding(served, count, |block| block.txdata.truncate(1)),
    ),
    told(
        "btc-filter-hides-payments",
        "Filters have the spent scripts, but no output of the transactions; filter headers fit them",
        (
            CannotDetectAlone,
            "an honest second node, then the block, whose outputs are not in its filter",
        ),
        "BIP157, Client Operation",
        |served, count| {
            hiding(served, count, |block| {
                block.txdata.iter_mut().skip(1).for_each(|tx| tx.output.clear());
            })
        },
    ),
    told(
        "btc-filter-hides-spends",
        "Filters lack the scripts that the block spends; filter headers fit them",
        (
            CannotDetectAlone,
            "an honest second node, then the block with the outputs that it spends",
        ),
        "BIP157, Client Operation",
        |served, count| {
            hiding(served, count, |block| {
                block.txdata.iter_mut().skip(1).for_each(|tx| tx.input.clear());
            })
        },
    ),
    told(
        "btc-block-altered",
        "An amount in each block is changed",
        (MustDetect, "the merkle root of the header"),
        "Bitcoin Core, IsBlockMutated",
        |_, count| Ok(rules::altered_blocks(count)),
    ),
    told(
        "btc-witness-altered",
        "A witness in each block is changed",
        (MustDetect, "the witness commitment of the coinbase"),
        "BIP141, Commitment structure",
        |_, count| Ok(rules::altered_witnesses(count)),
    ),
    told(
        "btc-merkleblock-hides-matches",
        "Filtered blocks have no matches",
        (CannotDetectAlone, "an honest second node: a merkle block proves no absence"),
        "BIP37, Partial Merkle branch format",
        |_, count| Ok(rules::hidden_matches(count)),
    ),
    told(
        "btc-merkleblock-false-proof",
        "The merkle proof of each filtered block leads to another root than that of its header",
        (MustDetect, "the merkle root of the header"),
        "BIP37, Parsing a partial merkle tree object",
        |_, count| Ok(rules::false_proofs(count)),
    ),
    told(
        "btc-merkleblock-other-header",
        "Each filtered block has another header, of a block that was not requested",
        (MustDetect, "the hash of the header, which is in no known chain"),
        "BIP37, Parsing a partial merkle tree object",
        |_, count| Ok(rules::other_headers(count)),
    ),
    told(
        "btc-tx-withheld",
        "Filtered blocks come without their transactions",
        (MustDetect, "the transaction ids that the merkle block proves"),
        "BIP37, Extensions to existing messages",
        |_, count| Ok(rules::withheld_transactions(count)),
    ),
    told(
        "btc-tx-altered",
        "Filtered blocks come with other transactions than those of the merkle proof",
        (MustDetect, "the transaction ids that the merkle block proves"),
        "BIP37, Extensions to existing messages",
        |_, count| Ok(rules::altered_transactions(count)),
    ),
    told(
        "btc-stall-handshake",
        "The connection stays open and silent from the start",
        (MustTimeOut, "a timeout of the handshake"),
        "Bitcoin Core, InactivityCheck",
        |_, count| Ok(rules::stalls(1, count)),
    ),
    told(
        "btc-stall",
        "The connection stays open and silent from the node's fifth message on",
        (MustTimeOut, "a timeout of each request"),
        "Bitcoin Core, InactivityCheck",
        |_, count| Ok(rules::stalls(5, count)),
    ),
    told(
        "btc-stall-late",
        "The connection stays open and silent from the node's message number 50 on",
        (MustTimeOut, "a timeout of each request"),
        "Bitcoin Core, InactivityCheck",
        |_, count| Ok(rules::stalls(50, count)),
    ),
    told(
        "btc-trickle",
        "Messages after the handshake come at five bytes a second",
        (MustTimeOut, "a timeout of a whole message, not of each read"),
        "Bitcoin Core, InactivityCheck",
        |_, count| Ok(rules::trickles(count)),
    ),
    told(
        "btc-hang-up",
        "The connection ends at the node's message number 6",
        (MustNotCrash, "the end of the stream"),
        "Bitcoin Core, CConnman::SocketHandlerConnected",
        |_, count| Ok(rules::hangs_up(6, count)),
    ),
    told(
        "btc-hang-up-late",
        "The connection ends at the node's message number 40",
        (MustNotCrash, "the end of the stream"),
        "Bitcoin Core, CConnman::SocketHandlerConnected",
        |_, count| Ok(rules::hangs_up(40, count)),
    ),
    told(
        "btc-garbage",
        "Random bytes come in place of the node's fourth message",
        (MustNotCrash, "the magic of the message"),
        "Bitcoin Core, V1Transport::readHeader",
        |_, count| Ok(rules::garbage(4, count)),
    ),
    told(
        "btc-garbage-late",
        "Random bytes come in place of the node's message number 30",
        (MustNotCrash, "the magic of the message"),
        "Bitcoin Core, V1Transport::readHeader",
        |_, count| Ok(rules::garbage(30, count)),
    ),
];

/// Returns a rule with the filters of blocks that `lie` has changed.
fn hiding(served: &Served, count: Count, lie: fn(&mut Block)) -> Result<Rule, BuildError> {
    let blocks = served.blocks.iter().map(|block| Block::clone(block));
    Ok(FalseFilters::new(served.network, blocks, |_, block| lie(block))?.rule(count))
}

/// Configures and starts a [`LyingNode`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    lie: Option<&'static Told>,
    listen: SocketAddr,
    chain: Option<ServedChain>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.lie.id)
    }
}

impl Builder {
    /// Sets the lie by its id (default: the node is honest).
    ///
    /// # Errors
    /// Returns [`StartError::UnknownLie`] if no lie of a Bitcoin peer has this id.
    pub fn lie(mut self, id: &str) -> Result<Self, StartError> {
        let told = LIES.iter().find(|told| told.lie.id == id);
        self.lie = Some(told.ok_or_else(|| StartError::UnknownLie(id.to_owned()))?);
        Ok(self)
    }

    /// Sets the address to listen on (default: a free port of 127.0.0.1).
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the chain to serve (default: the [built-in chain](blocks)). Blocks that are added later
    /// are served without the lies about filters.
    pub fn chain(mut self, chain: ServedChain) -> Self {
        self.chain = Some(chain);
        self
    }

    /// Starts the node.
    ///
    /// # Errors
    /// Returns an error if the node cannot listen, or if the false filters cannot be built.
    pub fn start(self) -> Result<LyingNode, StartError> {
        let chain = self.chain.unwrap_or_else(built_in_chain);
        let network = chain.network();
        let heights = 1..=chain.tip().height;
        let hashes = heights.filter_map(|height| chain.headers().hash_at(height));
        let blocks = hashes.filter_map(|hash| chain.block(&hash).cloned()).collect();
        let count = Count::default();
        let rule = match self.lie {
            Some(told) => (told.rule)(&Served { network, blocks }, count.clone())?,
            None => rules::honest(),
        };
        let node = NodeBuilder::new(chain).start()?;
        let proxy = Proxy::start(self.listen, network, node.address(), rule)?;
        Ok(LyingNode { proxy, node, count })
    }
}

fn built_in_chain() -> ServedChain {
    let mut chain = ServedChain::new(Network::Regtest, true);
    for block in blocks() {
        // The blocks are valid by the rules of regtest, so that the call cannot fail.
        let _added = chain.add_block(block, None, std::time::Duration::MAX);
    }
    chain
}

/// A Bitcoin peer that conforms or lies. Dropping it stops the peer.
#[derive(Debug)]
#[must_use = "dropping the node stops it"]
pub struct LyingNode {
    // The proxy is dropped first, so that its connections do not outlive the node.
    proxy: Proxy,
    node: Node,
    count: Count,
}

impl LyingNode {
    /// Returns a builder for an honest node with the built-in chain.
    pub fn builder() -> Builder {
        Builder { lie: None, listen: (Ipv4Addr::LOCALHOST, 0).into(), chain: None }
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Returns the node behind the lie, for changes of its chain.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the number of times that the lie was told.
    pub fn told(&self) -> u32 {
        self.count.get()
    }
}
