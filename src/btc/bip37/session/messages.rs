//! Conversions from and to the message types of the crate `bitcoin` (feature `std`).

use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;

use super::event::{Event, Message};
use crate::btc::bip37::PayloadError;
use crate::btc::protocol::MSG_FILTERED_BLOCK;

/// Converts a message from the node. Messages that a session does not use become [`Event::Other`].
impl From<NetworkMessage> for Event {
    fn from(message: NetworkMessage) -> Self {
        match message {
            NetworkMessage::MerkleBlock(block) => Self::MerkleBlock((&block).into()),
            NetworkMessage::Tx(tx) => Self::Tx(tx),
            NetworkMessage::Pong(nonce) => Self::Pong(nonce),
            _ => Self::Other,
        }
    }
}

impl TryFrom<Message> for NetworkMessage {
    type Error = PayloadError;

    /// # Errors
    /// Returns an error for a filter with reserved flags, which no session sends.
    fn try_from(message: Message) -> Result<Self, PayloadError> {
        Ok(match message {
            Message::FilterLoad(filter) => Self::FilterLoad(filter.try_into()?),
            Message::FilterAdd(data) => Self::FilterAdd(data.into()),
            Message::Ping(nonce) => Self::Ping(nonce),
            Message::GetFilteredBlocks(blocks) => Self::GetData(
                blocks
                    .iter()
                    .map(|block| Inventory::Unknown {
                        inv_type: MSG_FILTERED_BLOCK,
                        hash: block.to_byte_array(),
                    })
                    .collect(),
            ),
        })
    }
}
