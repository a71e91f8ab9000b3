//! Conversions from and to the messages of the `bitcoin` crate.

use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;

use super::{Event, Message};
use crate::btc::peer::PeerId;
use crate::btc::protocol::MAX_INV_SIZE;

impl Event {
    /// Converts a message of a peer into events.
    ///
    /// Messages that the sync does not process give no events. For example, `headers` and `inv`
    /// give no events: the caller derives [`Event::PeerTip`] from them. Of a `notfound`, only the
    /// items within the protocol's limit are converted.
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
