//! Block downloads requested by the caller. A block is requested from one peer after another until
//! a peer delivers the block. The transactions of a block are checked against its header.

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
use crate::btc::headers::HeaderChain;
use crate::btc::peer::PeerId;

/// Maximum number of pending downloads. The number equals the BIP157 limit of blocks in flight from
/// one peer, since one peer may be asked for all of them.
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
    /// The peer with the pending request, and the time at which the request was sent.
    asked: Option<(PeerId, Duration)>,
    /// Peers that were asked, at most once each.
    tried: BTreeSet<PeerId>,
    /// Time at which the caller asked for the block.
    since: Duration,
}

/// The pending block downloads.
#[derive(Debug)]
pub(super) struct BlocksAsked {
    open: BTreeMap<BlockHash, Open>,
    timeout: Duration,
}

impl BlocksAsked {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { open: BTreeMap::new(), timeout }
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
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&hash) {
            return refuse(BlockError::TooMany);
        }
        self.open.entry(hash).or_insert(Open { asked: None, tried: BTreeSet::new(), since: now });
        Vec::new()
    }

    /// Sends the requests that are due. Disconnects overdue peers, and gives up on a block if no
    /// peer is left to ask.
    pub(super) fn next(
        &mut self,
        peers: &BTreeSet<PeerId>,
        chain: &HeaderChain,
        now: Duration,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut given_up = Vec::new();
        let timeout = self.timeout;
        // Without any peer, the caller must not wait for ever. The length of two timeouts is an
        // estimate of the time that connecting takes.
        let wait = timeout.saturating_mul(2);
        for (&hash, open) in &mut self.open {
            // A reorganisation has removed the block since the caller asked for it.
            if chain.height_of(&hash).is_none() {
                given_up.push((hash, BlockError::NotInChain(hash)));
                continue;
            }
            if let Some((id, since)) = open.asked {
                // The peer has disconnected: ask the next peer.
                if !peers.contains(&id) {
                    open.asked = None;
                } else if now.saturating_sub(since) > timeout {
                    open.asked = None;
                    let reason = Reason::BlockStalled(hash, now.saturating_sub(since));
                    actions.push(Action::Disconnect(id, reason));
                    // The next call asks another peer.
                    continue;
                }
            }
            if open.asked.is_some() {
                continue;
            }
            if let Some(&id) = peers.iter().find(|id| !open.tried.contains(id)) {
                open.tried.insert(id);
                open.asked = Some((id, now));
                let items = std::vec![Inventory::WitnessBlock(hash)];
                actions.push(Action::Send(id, NetworkMessage::GetData(items)));
            } else if !open.tried.is_empty() || now.saturating_sub(open.since) > wait {
                // Every connected peer was asked, or no peer connected in time.
                let error = BlockError::Unavailable { hash, peers: open.tried.len() };
                given_up.push((hash, error));
            }
        }
        for (hash, error) in given_up {
            self.open.remove(&hash);
            actions.push(Action::Block(hash, Err(error)));
        }
        actions
    }

    /// Handles a block that a peer sent. Returns the result for the caller, a disconnect if the
    /// peer sent wrong transactions, or `None` if the block was not requested or is incomplete.
    pub(super) fn take(&mut self, from: PeerId, block: &Block, network: Network) -> Option<Action> {
        let hash = block.block_hash();
        let open = self.open.get_mut(&hash)?;
        let Ok(bound) = BoundBlock::bind(block, hash, network) else {
            // A peer that was not asked may innocently relay an invented block.
            let was_asked = open.asked.is_some_and(|(id, _)| id == from);
            return was_asked.then_some(Action::Disconnect(from, Reason::FalseBlock(hash)));
        };
        // The witnesses are missing, and the block hash does not commit to them, so another peer
        // may deliver them. If the block comes from a peer that was not asked, the request to the
        // asked peer stays open.
        if bound.witnesses() == Witnesses::Stripped {
            open.asked.take_if(|(id, _)| *id == from);
            return None;
        }
        self.open.remove(&hash);
        Some(Action::Block(hash, Ok(Box::new(block.clone()))))
    }

    /// Handles `notfound` for a block. Only the peer with the pending request can end the request.
    pub(super) fn missing(&mut self, from: PeerId, hash: &BlockHash) {
        if let Some(open) = self.open.get_mut(hash) {
            open.asked.take_if(|(id, _)| *id == from);
        }
    }
}

#[cfg(test)]
mod tests;
