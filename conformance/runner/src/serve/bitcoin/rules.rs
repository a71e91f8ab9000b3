//! Rules for a [`Proxy`](super::Proxy): ways in which a peer misbehaves.
//!
//! Each rule counts how often it was applied.

use std::collections::HashMap;
use std::time::Duration;

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{Amount, TxMerkleNode};
use chainsieve::btc::bip37::MerkleBlock;

use super::proxy::{Fate, Rule, Sender};
use crate::serve::Count;

/// Filters that do not match their filter headers.
pub fn damaged_filters(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::CFilter(filter) => {
            let mut filter = filter.clone();
            let last = filter.filter.last_mut()?;
            *last ^= 0x80;
            Some(NetworkMessage::CFilter(filter))
        }
        _ => None,
    })
}

/// Headers without proof of work.
pub fn unproven_headers(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::Headers(headers) if !headers.is_empty() => {
            let mut headers = headers.clone();
            let last = headers.last_mut()?;
            while last.target().is_met_by(last.block_hash()) {
                last.nonce = last.nonce.wrapping_add(1);
            }
            Some(NetworkMessage::Headers(headers))
        }
        _ => None,
    })
}

/// Filter headers with a random hash.
pub fn noisy_filter_headers(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::CFHeaders(message) if !message.filter_hashes.is_empty() => {
            let mut message = message.clone();
            let hash = message.filter_hashes.last_mut()?;
            *hash = FilterHash::hash(hash.as_byte_array());
            Some(NetworkMessage::CFHeaders(message))
        }
        _ => None,
    })
}

/// Blocks in which the amount of an output is changed.
pub fn altered_blocks(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::Block(block) => {
            let mut block = block.clone();
            let output = block.txdata.last_mut()?.output.first_mut()?;
            output.value += Amount::ONE_SAT;
            Some(NetworkMessage::Block(block))
        }
        _ => None,
    })
}

/// Blocks in which a witness is changed.
pub fn altered_witnesses(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::Block(block) => {
            let mut block = block.clone();
            let mut inputs = block.txdata.iter_mut().skip(1).flat_map(|tx| &mut tx.input);
            inputs.find(|input| !input.witness.is_empty())?.witness.push([1, 2, 3]);
            Some(NetworkMessage::Block(block))
        }
        _ => None,
    })
}

/// Filtered blocks without matches and without transactions: nothing reveals the lie.
pub fn hidden_matches(lies: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Node, NetworkMessage::MerkleBlock(block)) => {
            let nothing = MerkleBlock {
                header: block.header,
                num_transactions: block.txn.num_transactions(),
                hashes: vec![block.header.merkle_root],
                flags: vec![0],
            };
            // Of a block without matches, this is the truth.
            if nothing == MerkleBlock::from(block) {
                return Fate::Pass;
            }
            let Ok(nothing) = chainsieve::bitcoin::MerkleBlock::try_from(&nothing) else {
                return Fate::Pass;
            };
            lies.add_one();
            Fate::Instead(vec![NetworkMessage::MerkleBlock(nothing)])
        }
        (Sender::Node, NetworkMessage::Tx(_)) => Fate::Instead(Vec::new()),
        _ => Fate::Pass,
    })
}

/// Filtered blocks without their transactions.
pub fn withheld_transactions(lies: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Node, NetworkMessage::Tx(_)) => {
            lies.add_one();
            Fate::Instead(Vec::new())
        }
        _ => Fate::Pass,
    })
}

/// Filtered blocks with transactions other than those of the merkle proof.
pub fn altered_transactions(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::Tx(tx) => {
            let mut tx = tx.clone();
            tx.output.first_mut()?.value += Amount::ONE_SAT;
            Some(NetworkMessage::Tx(tx))
        }
        _ => None,
    })
}

/// Merkle blocks whose proof does not lead to the merkle root of the header.
pub fn false_proofs(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::MerkleBlock(block) => {
            let mut block = MerkleBlock::from(block);
            let hash = block.hashes.last_mut()?;
            *hash = TxMerkleNode::hash(hash.as_ref());
            let block = chainsieve::bitcoin::MerkleBlock::try_from(&block).ok()?;
            Some(NetworkMessage::MerkleBlock(block))
        }
        _ => None,
    })
}

/// Merkle blocks with another header than that of the block.
pub fn other_headers(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::MerkleBlock(block) => {
            let mut block = block.clone();
            block.header.merkle_root = TxMerkleNode::hash(block.header.merkle_root.as_ref());
            Some(NetworkMessage::MerkleBlock(block))
        }
        _ => None,
    })
}

/// Forwards everything unchanged, as an honest node sends it.
pub fn honest() -> Rule {
    Box::new(|_| Fate::Pass)
}

/// Stalls each connection from the node's message number `after` on; the count includes messages of
/// the handshake.
pub fn stalls(after: u32, stalled: Count) -> Rule {
    from_message(after, stalled, || Fate::Stall)
}

/// Closes each connection in place of the node's message number `after`.
pub fn hangs_up(after: u32, ended: Count) -> Rule {
    from_message(after, ended, || Fate::HangUp)
}

/// Sends garbage in place of the node's message number `after`.
pub fn garbage(after: u32, sent: Count) -> Rule {
    from_message(after, sent, || Fate::Bytes(vec![0xa5; 4_096]))
}

/// Sends the node's messages after the handshake very slowly, byte by byte.
pub fn trickles(slowed: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Client, _) | (_, NetworkMessage::Version(_) | NetworkMessage::Verack) => {
            Fate::Pass
        }
        _ => {
            slowed.add_one();
            Fate::Trickle(u32::MAX, Duration::from_millis(200))
        }
    })
}

/// Gives the node's messages of a connection another fate, from number `after` on.
fn from_message(after: u32, lies: Count, fate: impl Fn() -> Fate + Send + 'static) -> Rule {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    Box::new(move |letter| {
        let count = counts.entry(letter.connection).or_default();
        *count += u32::from(letter.sender == Sender::Node);
        if letter.sender == Sender::Client || *count < after {
            return Fate::Pass;
        }
        lies.add_one();
        fate()
    })
}

/// Replaces a message of the node by the message that `tell` returns. If `tell` returns `None`, the
/// message is forwarded unchanged.
fn from_node(
    lies: Count,
    mut tell: impl FnMut(&NetworkMessage) -> Option<NetworkMessage> + Send + 'static,
) -> Rule {
    Box::new(move |letter| {
        let is_of_node = letter.sender == Sender::Node;
        match is_of_node.then(|| tell(letter.message)).flatten() {
            Some(told) => {
                lies.add_one();
                Fate::Instead(vec![told])
            }
            None => Fate::Pass,
        }
    })
}

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin;

    use super::*;
    use crate::serve::bitcoin::{Letter, blocks};

    /// The merkle blocks are built by `bitcoin`.
    #[test]
    fn a_block_without_matches_is_told_as_it_is() {
        let (count, block) = (Count::default(), &blocks()[100]);
        let mut rule = hidden_matches(count.clone());
        let mut fate = |message: NetworkMessage| {
            rule(&Letter { connection: 0, sender: Sender::Node, message: &message })
        };
        let payment = block.txdata[1].compute_txid();
        let merkle_block = |is_match: fn(bool) -> bool| {
            bitcoin::MerkleBlock::from_block_with_predicate(block, |txid| {
                is_match(*txid == payment)
            })
        };
        let nothing = merkle_block(|_| false);
        assert!(matches!(fate(NetworkMessage::MerkleBlock(nothing.clone())), Fate::Pass));
        assert_eq!(count.get(), 0);
        let matched = NetworkMessage::MerkleBlock(merkle_block(|is_payment| is_payment));
        let Fate::Instead(told) = fate(matched) else { panic!("a lie") };
        let [NetworkMessage::MerkleBlock(told)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((MerkleBlock::from(told), count.get()), (MerkleBlock::from(&nothing), 1));
    }
}
