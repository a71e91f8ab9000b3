//! What both followers of the chain share: what they are told, and what they want.

use core::time::Duration;
use std::collections::BTreeSet;
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{BlockHash, OutPoint, ScriptBuf};

use super::filter_cache::FilterCache;
use super::hits::{Hits, Unconfirmed};
use super::wallets::Wallets;
use super::{Finding, Graded, Hit, Reason, WalletId};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::PeerId;
use crate::btc::wallet::Label;

/// What a follower is told.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The first: what an earlier run found.
    Start {
        coins: Vec<(OutPoint, ScriptBuf)>,
        /// Indices of keychains that are used.
        used: BTreeSet<Label>,
    },
    /// A peer that offers what the follower needs, and the height that it claims.
    Connected(PeerId, u32),
    Disconnected(PeerId),
    /// The peer has shown that it has this block of the chain.
    Shows(PeerId, BlockHash),
    /// The chain has changed: all events of one change.
    Chain(&'a [ChainEvent]),
    Message(PeerId, NetworkMessage),
    /// The watched set has changed. `Some(from)`: items were added, blocks from this height on are
    /// answered again, with the coins already known. `None`: items were removed.
    Watch(Option<u32>, Vec<(OutPoint, ScriptBuf)>),
    /// Every block from this height on is to be answered again.
    Rescan(u32),
    /// A file of kept filters; `None` if it is not there.
    Contents(u32, Option<&'a [u8]>),
    /// What was answered is to be reported now.
    Flush,
    Tick,
}

/// What a follower wants.
#[derive(Debug)]
pub(super) enum Action {
    Send(PeerId, NetworkMessage),
    Disconnect(PeerId, Reason),
    /// Transactions of wallets, with the peer that they came from.
    Found(Option<PeerId>, Vec<(WalletId, Hit)>),
    Graded(Graded),
    Reopened(u32, u32),
    Report(Finding),
    /// Peers claim different filters; the client replaces ids by names.
    Disputed(BlockAt, Vec<(bitcoin::bip158::FilterHash, Vec<PeerId>)>),
    /// A filter to keep for later.
    Keep(BlockAt, Vec<u8>),
    /// A file of kept filters to read.
    Read(u32),
}

/// What a follower works with: the chain after the event, the wallets, the time.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) wallets: &'a mut Wallets,
    pub(super) cache: &'a FilterCache,
    /// The hits before the event.
    pub(super) hits: &'a Hits,
    pub(super) now: Duration,
    pub(super) actions: Vec<Action>,
}

impl Turn<'_> {
    /// The unconfirmed hits of all wallets.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        self.wallets.ids().map(|id| self.hits.unconfirmed(id)).sum()
    }

    /// Whether there is a file of kept filters.
    pub(super) fn keeps(&self, file: u32) -> bool {
        self.cache.contains(file)
    }
}

/// The blocks that left the chain.
pub(super) fn blocks_that_left(events: &[ChainEvent]) -> Vec<BlockAt> {
    let gone = events.iter().filter_map(|event| match event {
        ChainEvent::Disconnected { at } => Some(*at),
        ChainEvent::Connected { .. } => None,
    });
    gone.collect()
}
