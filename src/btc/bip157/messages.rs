//! Messages as `bitcoin` has them.

use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;

use super::{Event, Message};
use crate::btc::peer::PeerId;
use crate::btc::protocol::MAX_INV_SIZE;

impl Event {
    /// The events of a peer's message: none for what the sync does not look into, which leaves
    /// `headers` and `inv` to the caller, for [`Event::PeerTip`]. Of a `notfound`, the items that
    /// the protocol allows are looked at.
    pub fn from_message(peer: PeerId, message: NetworkMessage) -> Vec<Self> {
        match message {
            NetworkMessage::CFCheckpt(message) => vec![Self::CFCheckpt(peer, message)],
            NetworkMessage::CFHeaders(message) => vec![Self::CFHeaders(peer, message)],
            NetworkMessage::CFilter(message) => vec![Self::CFilter(peer, message)],
            NetworkMessage::Block(block) => vec![Self::Block(Some(peer), Box::new(block))],
            NetworkMessage::NotFound(items) => items
                .iter()
                .take(MAX_INV_SIZE)
                .filter_map(|item| match item {
                    Inventory::WitnessBlock(hash) | Inventory::Block(hash) => {
                        Some(Self::BlockUnavailable(peer, *hash))
                    }
                    _ => None,
                })
                .collect(),
            _ => vec![],
        }
    }
}

impl From<Message> for NetworkMessage {
    fn from(message: Message) -> Self {
        match message {
            Message::GetCFCheckpt(message) => Self::GetCFCheckpt(message),
            Message::GetCFHeaders(message) => Self::GetCFHeaders(message),
            Message::GetCFilters(message) => Self::GetCFilters(message),
            Message::GetBlocks(hashes) => {
                Self::GetData(hashes.into_iter().map(Inventory::WitnessBlock).collect())
            }
        }
    }
}
