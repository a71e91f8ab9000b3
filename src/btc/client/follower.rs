//! The interface that both followers (BIP157 and BIP37) share: their events, their actions and the
//! context of a call.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{BlockHash, OutPoint, ScriptBuf};

use super::filter_cache::FilterCache;
use super::hits::{Hits, Unconfirmed};
use super::wallets::{Since, ToWatch, Wallets};
use super::{Finding, Graded, Hit, Reason, WalletId};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::PeerId;
use crate::btc::wallet::Label;

/// Input of a follower.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The first event: coins and indices that an earlier run found.
    Start {
        /// The first height that is wanted.
        first: u32,
        /// Coins of the wallets with their scripts.
        coins: Vec<(OutPoint, ScriptBuf)>,
        /// Keychain indices that are known to be used.
        used: BTreeSet<Label>,
        /// Scripts of coins that were found after the state was stored, each with the first height
        /// at which the coin may be spent.
        late: Vec<(ScriptBuf, u32)>,
    },
    /// A peer that offers the needed services has connected. Contains the height that the peer
    /// claims.
    Connected(PeerId, u32),
    Disconnected(PeerId),
    /// The peer has shown that it has this block of the best chain.
    Shows(PeerId, BlockHash),
    /// The chain has changed. Contains all events of one change.
    Chain(&'a [ChainEvent]),
    Message(PeerId, NetworkMessage),
    /// The watched set has changed: the wallets have new or dropped scripts, and these coins are
    /// known now.
    Watch(Vec<(OutPoint, ScriptBuf)>),
    /// Every block from this height on must be searched again for everything watched.
    Rescan(u32),
    /// Contents of a file of stored filters; `None` if the file does not exist.
    Contents(u32, Option<&'a [u8]>),
    /// Report now which heights have been graded.
    Flush,
    Tick,
}

/// Output of a follower.
#[derive(Debug)]
pub(super) enum Action {
    Send(PeerId, NetworkMessage),
    Disconnect(PeerId, Reason),
    /// Transactions that concern wallets, and the peer that sent them.
    Found(Option<PeerId>, Vec<(WalletId, Hit)>),
    Graded(Graded),
    Reopened(u32, u32),
    Report(Finding),
    /// Peers claim different filters for a block. The client replaces the ids of the peers by their
    /// names.
    Disputed(BlockAt, Vec<(bitcoin::bip158::FilterHash, Vec<PeerId>)>),
    /// Store this filter, so that a rescan need not download it.
    Keep(BlockAt, Vec<u8>),
    /// Read this file of stored filters.
    Read(u32),
}

/// Context of one call of a follower: the chain after the event, the wallets, the time, and the
/// actions so far.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) wallets: &'a mut Wallets,
    pub(super) cache: &'a FilterCache,
    /// The hits as they were before the event.
    pub(super) hits: &'a Hits,
    pub(super) now: Duration,
    pub(super) actions: Vec<Action>,
}

impl Turn<'_> {
    /// Returns the number and size of the unconfirmed hits of all wallets.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        self.wallets.ids().map(|id| self.hits.unconfirmed(id)).sum()
    }

    /// Returns `true` if this file of stored filters exists.
    pub(super) fn keeps(&self, file: u32) -> bool {
        self.cache.contains(file)
    }
}

/// New scripts and coins, each with the height from which it is wanted. The heights below `below`
/// need not be searched for them.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) below: u32,
    pub(super) new: Vec<(ToWatch, u32)>,
}

/// Groups new scripts by the heights that need not be searched for them, most heights first.
/// `answered_from` is the lowest height that was answered in this run: above it, the stored progress
/// of items does not apply, because they were not watched.
pub(super) fn group(new: Vec<ToWatch>, answered_from: u32, chain: &HeaderChain) -> Vec<Group> {
    let mut groups: BTreeMap<Reverse<u32>, Vec<(ToWatch, u32)>> = BTreeMap::new();
    for new in new {
        let (below, from) = match new.since {
            Since::Birthday(birthday) => (0, birthday.height(chain)),
            Since::Known { from, todo } => (todo.unwrap_or(u32::MAX).min(answered_from), from),
        };
        groups.entry(Reverse(below)).or_default().push((new, from));
    }
    groups.into_iter().map(|(Reverse(below), new)| Group { below, new }).collect()
}

/// Returns the blocks that left the chain, in the order of the events.
pub(super) fn blocks_that_left(events: &[ChainEvent]) -> Vec<BlockAt> {
    let gone = events.iter().filter_map(|event| match event {
        ChainEvent::Disconnected { at } => Some(*at),
        ChainEvent::Connected { .. } => None,
    });
    gone.collect()
}
