//! What goes along with the chain of headers: filters, or filtered blocks.

use std::time::Duration;

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use chainsieve::btc::peer::PeerId;

use crate::btc::p2p::handshake::Theirs;

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Told<'a> {
    /// The peer, and the name of its address.
    Connected(PeerId, &'a Theirs, &'a str),
    Disconnected(PeerId),
    /// The peer has shown that it has this block, which is in the chain.
    Shows(PeerId, BlockHash),
    /// The chain has changed: all of one change.
    Chain(&'a [ChainEvent]),
    Message(PeerId, NetworkMessage),
    Tick,
}

/// The blocks that left the chain.
pub(super) fn disconnected(events: &[ChainEvent]) -> Vec<BlockAt> {
    let gone = events.iter().filter_map(|event| match event {
        ChainEvent::Disconnected { at } => Some(*at),
        ChainEvent::Connected { .. } => None,
    });
    gone.collect()
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Order {
    Send(PeerId, NetworkMessage),
    /// Close the connection, for this reason.
    Drop(PeerId, String),
    /// The same, for misbehaviour: it is not called again.
    Ban(PeerId, String),
}

/// What a follower sees of the world: the chain after what it is told, and the time from any one
/// moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World<'a> {
    pub(crate) chain: &'a HeaderChain,
    pub(crate) now: Duration,
}

/// A state machine on top of the headers, without sockets and without a clock.
pub(crate) trait Follower {
    fn handle(&mut self, told: Told<'_>, world: World<'_>) -> anyhow::Result<Vec<Order>>;

    /// Whether everything is answered that the connected peers have.
    fn is_caught_up(&mut self, world: World<'_>) -> bool;

    /// Told once each time that everything is answered.
    fn caught_up(&mut self, world: World<'_>) -> anyhow::Result<()>;

    /// A number that grows with each step forward.
    fn progress(&self) -> u64;

    /// Keeps what is known for the next run.
    fn save(&mut self, chain: &HeaderChain) -> anyhow::Result<()>;

    /// Nobody reads what it prints.
    fn is_closed(&self) -> bool {
        false
    }

    /// A few words on how far it is, for a progress bar.
    fn status(&self, chain: &HeaderChain) -> String;
}

/// Headers, and nothing else.
#[derive(Debug)]
pub(crate) struct HeadersOnly;

impl Follower for HeadersOnly {
    fn handle(&mut self, _: Told<'_>, _: World<'_>) -> anyhow::Result<Vec<Order>> {
        Ok(Vec::new())
    }

    fn is_caught_up(&mut self, _: World<'_>) -> bool {
        true
    }

    fn caught_up(&mut self, _: World<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn progress(&self) -> u64 {
        0
    }

    fn save(&mut self, _: &HeaderChain) -> anyhow::Result<()> {
        Ok(())
    }

    fn status(&self, _: &HeaderChain) -> String {
        String::new()
    }
}
