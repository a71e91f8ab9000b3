//! Block downloads requested by the caller. A block is requested from one peer after another until
//! a peer delivers the block. The transactions of a block are checked against its header.
//!
//! The blocks are requested from different peers. Each peer has as many blocks in flight as
//! [`Pace`] allows, including those that the filter sync requested. Further blocks wait in the
//! order of the calls. If a block is overdue, another peer is asked for it too. A peer is
//! disconnected only if it has sent nothing for several timeouts.

use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{Block, BlockHash, Network};
use thiserror::Error;

use super::{Action, Reason};
use crate::btc::bip158::{BoundBlock, Witnesses};
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::pace::{BlockRequests, Overdue, Pace};
use crate::btc::peer::PeerId;

/// Maximum number of pending downloads, requested or waiting. The number equals the limit of blocks
/// in flight from one peer.
const MAX_OPEN: usize = 64;

/// Reason why a requested block is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The block is not in the best chain.
    #[error("block {0} is not in the chain")]
    NotInChain(BlockHash),
    /// No connected peer delivered the complete block.
    #[error("block {hash}: none of {peers} peers delivered the complete block")]
    Unavailable {
        /// Hash of the block.
        hash: BlockHash,
        /// Number of peers that were asked.
        peers: usize,
    },
    /// Too many downloads are pending.
    #[error("the limit of {MAX_OPEN} pending block downloads is reached")]
    TooMany,
}

#[derive(Debug)]
struct Open {
    hash: BlockHash,
    /// Peers that were asked, at most once each.
    tried: BTreeSet<PeerId>,
    /// Time at which the caller asked for the block.
    since: Duration,
}

/// The pending block downloads.
#[derive(Debug)]
pub(super) struct BlocksAsked {
    /// The downloads, in the order in which the caller asked.
    open: Vec<Open>,
    /// The requests that each peer has not answered yet.
    requests: BTreeMap<PeerId, BlockRequests>,
    pace: Pace,
}

impl BlocksAsked {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { open: Vec::new(), requests: BTreeMap::new(), pace: Pace::new(timeout) }
    }

    /// Starts the download of a block. Returns an error action if the block cannot be requested.
    pub(super) fn ask(
        &mut self,
        hash: BlockHash,
        chain: &HeaderChain,
        now: Duration,
    ) -> Vec<Action> {
        let refuse = |error| std::vec![Action::Block(hash, Err(error))];
        if chain.height_of(&hash).is_none() {
            return refuse(BlockError::NotInChain(hash));
        }
        if self.open.iter().any(|open| open.hash == hash) {
            return Vec::new();
        }
        if self.open.len() >= MAX_OPEN {
            return refuse(BlockError::TooMany);
        }
        self.open.push(Open { hash, tried: BTreeSet::new(), since: now });
        Vec::new()
    }

    /// Sends the requests that are due. Disconnects silent peers, and gives up on a block if no
    /// peer is left to ask. `peers` are the connected peers, each with the number of blocks that
    /// other parts of the client have in flight from it.
    pub(super) fn next(
        &mut self,
        peers: &BTreeMap<PeerId, usize>,
        chain: &HeaderChain,
        now: Duration,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut silent = BTreeSet::new();
        self.requests.retain(|id, _| peers.contains_key(id));
        for (&id, requests) in &mut self.requests {
            let mut overdue = Overdue::default();
            requests.check(now, self.pace, &mut overdue);
            if let (Some(_), Some((hash, sent))) = (overdue.gone, requests.oldest()) {
                silent.insert(id);
                let reason = Reason::BlockStalled(hash, now.saturating_sub(sent));
                actions.push(Action::Disconnect(id, reason));
            }
        }
        let mut wanted: BTreeMap<PeerId, Vec<Inventory>> = BTreeMap::new();
        let mut given_up = Vec::new();
        let Self { open, requests, pace } = self;
        open.retain_mut(|open| {
            let end = step(open, requests, *pace, peers, &silent, chain, now);
            match end {
                Next::Wait => {}
                Next::Ask(id) => {
                    wanted.entry(id).or_default().push(Inventory::WitnessBlock(open.hash));
                }
                Next::GiveUp(error) => given_up.push(Action::Block(open.hash, Err(error))),
            }
            !matches!(end, Next::GiveUp(_))
        });
        let wanted = wanted.into_iter();
        actions.extend(wanted.map(|(id, items)| Action::Send(id, NetworkMessage::GetData(items))));
        actions.extend(given_up);
        actions
    }

    /// Handles a block that a peer sent. Returns the result for the caller, a disconnect if the
    /// peer sent wrong transactions, or `None` if the block was not requested or is incomplete.
    pub(super) fn take(
        &mut self,
        from: PeerId,
        block: &Block,
        network: Network,
        now: Duration,
    ) -> Option<Action> {
        let hash = block.block_hash();
        // The peer has answered, even if the block is no longer wanted.
        let requests = self.requests.get_mut(&from);
        let was_asked = requests.is_some_and(|requests| requests.take(hash, now).is_some());
        let place = self.open.iter().position(|open| open.hash == hash)?;
        let Ok(bound) = BoundBlock::bind(block, hash, network) else {
            // A peer that was not asked may innocently relay an invented block.
            return was_asked.then_some(Action::Disconnect(from, Reason::FalseBlock(hash)));
        };
        // The witnesses are missing, and the block hash does not commit to them, so another peer
        // may deliver them.
        if bound.witnesses() == Witnesses::Stripped {
            return None;
        }
        self.pace.saw_block(block.total_size());
        self.open.remove(place);
        Some(Action::Block(hash, Ok(Box::new(block.clone()))))
    }

    /// Handles `notfound` for a block. Only a peer with a pending request can end the request.
    pub(super) fn missing(&mut self, from: PeerId, hash: &BlockHash, now: Duration) {
        if let Some(requests) = self.requests.get_mut(&from) {
            requests.take(*hash, now);
        }
    }
}

/// The next step of a download.
#[derive(Debug)]
enum Next {
    Wait,
    Ask(PeerId),
    GiveUp(BlockError),
}

/// Decides the next step of a download, and records the request if a peer is to be asked.
fn step(
    open: &mut Open,
    requests: &mut BTreeMap<PeerId, BlockRequests>,
    pace: Pace,
    peers: &BTreeMap<PeerId, usize>,
    silent: &BTreeSet<PeerId>,
    chain: &HeaderChain,
    now: Duration,
) -> Next {
    let hash = open.hash;
    // A reorganisation has removed the block since the caller asked for it.
    let Some(height) = chain.height_of(&hash) else {
        return Next::GiveUp(BlockError::NotInChain(hash));
    };
    if requests.values().any(|requests| requests.brings(hash, now, pace)) {
        return Next::Wait;
    }
    let untried = peers.iter().filter(|(id, _)| !open.tried.contains(id) && !silent.contains(id));
    let best = untried.map(|(&id, &others)| {
        let requests = requests.get(&id);
        let has_room = requests.is_none_or(|requests| requests.has_room(others, pace));
        let is_slow = requests.is_some_and(|requests| requests.is_slow(now, pace));
        (!has_room, is_slow, requests.map_or(0, BlockRequests::len) + others, id, others)
    });
    match best.min() {
        // Every peer has as many blocks in flight as it may have.
        Some((true, ..)) => Next::Wait,
        Some((false, .., id, others)) => {
            open.tried.insert(id);
            let at = BlockAt { height, hash };
            requests.entry(id).or_default().ask(at, others, now, pace);
            Next::Ask(id)
        }
        // The block is overdue, and may still arrive.
        None if requests.values().any(|requests| requests.has(hash)) => Next::Wait,
        // Without any peer, the caller must not wait for ever. The length of two timeouts is an
        // estimate of the time that connecting takes.
        None if open.tried.is_empty()
            && now.saturating_sub(open.since) <= pace.timeout.saturating_mul(2) =>
        {
            Next::Wait
        }
        // Every connected peer was asked, or no peer connected in time.
        None => Next::GiveUp(BlockError::Unavailable { hash, peers: open.tried.len() }),
    }
}

#[cfg(test)]
mod tests;
