//! Peers that tell the truth.

use bitcoin::bip158::FilterHeader;
use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::{Block, Network};
use core::time::Duration;

use super::world::{Known, Node, TestChain, World};
use crate::btc::bip157::{Action, Event, Grade, Message, PeerId, Why};

#[test]
fn one_peer_syncs_everything() {
    let chain = TestChain::new(2_345);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.grade(1_234), Some(Grade::OnePeer));
    assert_eq!(world.grade(1_235), Some(Grade::Scanned));
    assert_eq!(world.grade(0), Some(Grade::Audited));
    assert_eq!(world.scanned(Why::Matched).len(), chain.truth().len());
    assert_eq!(world.sent(|message| matches!(message, Message::GetCFilters(_))), 3);
    assert_eq!(world.sent(|message| matches!(message, Message::GetCFHeaders(_))), 3);
    assert_eq!(world.sent(|message| matches!(message, Message::GetCFCheckpt(_))), 1);
}
