//! Blocks that the caller asks for: fetched from one peer after the other, and bound to their
//! headers.

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

/// Most blocks that are asked for at a time: as many as BIP157 has in flight from one peer, since
/// one peer may be asked for all of them.
const MAX_OPEN: usize = 64;

/// Why a block is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The chain does not have it.
    #[error("block {0} is not in the chain")]
    NotInChain(BlockHash),
    /// No connected peer has delivered it.
    #[error("block {hash}: none of {peers} peers has delivered it")]
    Unavailable {
        /// The block.
        hash: BlockHash,
        /// The peers that were asked.
        peers: usize,
    },
    /// Too many blocks are asked for.
    #[error("{MAX_OPEN} blocks are asked for already, the limit")]
    TooMany,
}

#[derive(Debug)]
struct Open {
    asked: Option<(PeerId, Duration)>,
    tried: BTreeSet<PeerId>,
    since: Duration,
}

/// The blocks asked for.
#[derive(Debug)]
pub(super) struct BlocksAsked {
    open: BTreeMap<BlockHash, Open>,
    timeout: Duration,
}

impl BlocksAsked {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { open: BTreeMap::new(), timeout }
    }

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

    /// Asks another peer where one is overdue, and gives up where none is left.
    pub(super) fn next(
        &mut self,
        peers: &BTreeSet<PeerId>,
        chain: &HeaderChain,
        now: Duration,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut given_up = Vec::new();
        let timeout = self.timeout;
        // Without a peer, two timeouts are an estimate of how long one takes to connect: the caller
        // must not wait for ever.
        let wait = timeout.saturating_mul(2);
        for (&hash, open) in &mut self.open {
            if chain.height_of(&hash).is_none() {
                given_up.push((hash, BlockError::NotInChain(hash)));
                continue;
            }
            if let Some((id, since)) = open.asked {
                if !peers.contains(&id) {
                    open.asked = None;
                } else if now.saturating_sub(since) > timeout {
                    open.asked = None;
                    let reason = Reason::BlockStalled(hash, now.saturating_sub(since));
                    actions.push(Action::Disconnect(id, reason));
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

    /// A peer sent a block.
    pub(super) fn take(&mut self, from: PeerId, block: &Block, network: Network) -> Option<Action> {
        let hash = block.block_hash();
        let open = self.open.get_mut(&hash)?;
        let Ok(bound) = BoundBlock::bind(block, hash, network) else {
            // A peer that was not asked may pass on what others made up.
            let was_asked = open.asked.is_some_and(|(id, _)| id == from);
            return was_asked.then_some(Action::Disconnect(from, Reason::FalseBlock(hash)));
        };
        // Nothing commits to what is missing, so another peer may have all of it. From a peer that
        // was not asked, it says nothing about the one that was.
        if bound.witnesses() == Witnesses::Stripped {
            open.asked.take_if(|(id, _)| *id == from);
            return None;
        }
        self.open.remove(&hash);
        Some(Action::Block(hash, Ok(Box::new(block.clone()))))
    }

    /// A peer does not have a block.
    pub(super) fn missing(&mut self, from: PeerId, hash: &BlockHash) {
        if let Some(open) = self.open.get_mut(hash) {
            open.asked.take_if(|(id, _)| *id == from);
        }
    }
}

#[cfg(test)]
mod tests;
