//! Rules for a [`Proxy`](testkit::proxy::bitcoin::Proxy): ways in which a peer misbehaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter};
use chainsieve::bitcoin::{Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, TxMerkleNode};
use chainsieve::btc::bip37::MerkleBlock;
use chainsieve::btc::bip157::{BASIC_FILTER, CHECKPOINT_INTERVAL};
use chainsieve::btc::bip158::BlockFilter;

use crate::harness::wait_until;
use testkit::proxy::bitcoin::{Fate, Letter, Sender};

/// Decides what a proxy does with each message.
pub(crate) type Rule = Box<dyn FnMut(&Letter<'_>) -> Fate + Send>;

/// Counts how often a rule has misbehaved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The filters of a chain, some of which are made from altered blocks. The filters are sent with
/// matching filter headers, so that the lie is consistent in itself.
#[derive(Debug)]
pub(crate) struct FalseFilters {
    heights: HashMap<BlockHash, usize>,
    contents: Vec<Vec<u8>>,
    hashes: Vec<FilterHash>,
    headers: Vec<FilterHeader>,
}

impl FalseFilters {
    /// Builds the filters for `blocks`, which start at height 1. `lie` changes the blocks that the
    /// filters are made from.
    pub(crate) fn new(blocks: &[Block], mut lie: impl FnMut(usize, &mut Block)) -> Self {
        let genesis = genesis_block(Network::Regtest);
        let mut scripts: HashMap<OutPoint, ScriptBuf> = HashMap::new();
        let mut filters = Self {
            heights: HashMap::new(),
            contents: Vec::new(),
            hashes: Vec::new(),
            headers: Vec::new(),
        };
        let mut before = FilterHeader::all_zeros();
        for (height, block) in [&genesis].into_iter().chain(blocks).enumerate() {
            let hash = block.block_hash();
            for tx in &block.txdata {
                let txid = tx.compute_txid();
                for (vout, output) in (0..).zip(&tx.output) {
                    scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
                }
            }
            let mut told = block.clone();
            lie(height, &mut told);
            // The key of the filter is still derived from the real block.
            told.header = block.header;
            let filter = BlockFilter::new(&told, |outpoint| scripts.get(outpoint).cloned());
            let filter = filter.expect("all scripts are there");
            before = filter.filter_header(&before);
            filters.heights.insert(hash, height);
            filters.hashes.push(filter.filter_hash());
            filters.headers.push(before);
            filters.contents.push(filter.content);
        }
        filters
    }

    /// Returns a rule that replaces a node's filters and filter headers by the false ones.
    pub(crate) fn rule(self, lies: Count) -> Rule {
        Box::new(move |letter| {
            let told = match letter.message {
                NetworkMessage::CFHeaders(message) => self.cfheaders(message),
                NetworkMessage::CFCheckpt(message) => self.cfcheckpt(message),
                NetworkMessage::CFilter(message) => self.cfilter(message),
                _ => None,
            };
            match told {
                Some(told) if letter.sender == Sender::Node && told != *letter.message => {
                    lies.up();
                    Fate::Instead(vec![told])
                }
                _ => Fate::Pass,
            }
        })
    }

    fn cfheaders(&self, message: &CFHeaders) -> Option<NetworkMessage> {
        let stop = *self.heights.get(&message.stop_hash)?;
        let start = (stop + 1).checked_sub(message.filter_hashes.len())?;
        let previous = start.checked_sub(1).map(|height| self.headers[height]);
        Some(NetworkMessage::CFHeaders(CFHeaders {
            previous_filter_header: previous.unwrap_or_else(FilterHeader::all_zeros),
            filter_hashes: self.hashes[start..=stop].to_vec(),
            ..message.clone()
        }))
    }

    fn cfcheckpt(&self, message: &CFCheckpt) -> Option<NetworkMessage> {
        let stop = *self.heights.get(&message.stop_hash)?;
        let headers = self.headers[..=stop].iter().step_by(CHECKPOINT_INTERVAL as usize).skip(1);
        let filter_headers = headers.copied().collect();
        Some(NetworkMessage::CFCheckpt(CFCheckpt { filter_headers, ..message.clone() }))
    }

    fn cfilter(&self, message: &CFilter) -> Option<NetworkMessage> {
        let height = *self.heights.get(&message.block_hash)?;
        let filter = self.contents[height].clone();
        let (filter_type, block_hash) = (BASIC_FILTER, message.block_hash);
        Some(NetworkMessage::CFilter(CFilter { filter_type, block_hash, filter }))
    }
}

/// Filters that do not match their filter headers.
pub(crate) fn damaged_filters(lies: Count) -> Rule {
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
pub(crate) fn unproven_headers(lies: Count) -> Rule {
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
pub(crate) fn noisy_filter_headers(lies: Count) -> Rule {
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
pub(crate) fn altered_blocks(lies: Count) -> Rule {
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
pub(crate) fn altered_witnesses(lies: Count) -> Rule {
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
pub(crate) fn hidden_matches(lies: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Node, NetworkMessage::MerkleBlock(block)) => {
            let nothing = MerkleBlock {
                header: block.header,
                num_transactions: block.txn.num_transactions(),
                hashes: vec![block.header.merkle_root],
                flags: vec![0],
            };
            lies.up();
            let nothing = chainsieve::bitcoin::MerkleBlock::try_from(&nothing);
            Fate::Instead(vec![NetworkMessage::MerkleBlock(nothing.expect("small"))])
        }
        (Sender::Node, NetworkMessage::Tx(_)) => Fate::Instead(Vec::new()),
        _ => Fate::Pass,
    })
}

/// Filtered blocks without their transactions.
pub(crate) fn withheld_transactions(lies: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Node, NetworkMessage::Tx(_)) => {
            lies.up();
            Fate::Instead(Vec::new())
        }
        _ => Fate::Pass,
    })
}

/// Filtered blocks with transactions other than those of the merkle proof.
pub(crate) fn altered_transactions(lies: Count) -> Rule {
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
pub(crate) fn false_proofs(lies: Count) -> Rule {
    from_node(lies, |message| match message {
        NetworkMessage::MerkleBlock(block) => {
            let mut block = block.clone();
            block.header.merkle_root = TxMerkleNode::hash(block.header.merkle_root.as_ref());
            Some(NetworkMessage::MerkleBlock(block))
        }
        _ => None,
    })
}

/// Forwards everything unchanged.
pub(crate) fn honest() -> Rule {
    Box::new(|_| Fate::Pass)
}

/// Forwards everything unchanged, but only after another rule has misbehaved.
pub(crate) fn comes_after(other: Count) -> Rule {
    Box::new(move |_| {
        wait_until("a lie", || other.get() > 0);
        Fate::Pass
    })
}

/// Stalls each connection from the node's message number `after` on; the count includes messages of
/// the handshake.
pub(crate) fn stalls(after: u32, stalled: Count) -> Rule {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    Box::new(move |letter| {
        let count = counts.entry(letter.connection).or_default();
        *count += u32::from(letter.sender == Sender::Node);
        if *count < after {
            return Fate::Pass;
        }
        stalled.up();
        Fate::Stall
    })
}

/// Closes each connection in place of the node's message number `after`.
pub(crate) fn hangs_up(after: u32, ended: Count) -> Rule {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    Box::new(move |letter| {
        let count = counts.entry(letter.connection).or_default();
        *count += u32::from(letter.sender == Sender::Node);
        if *count < after {
            return Fate::Pass;
        }
        ended.up();
        Fate::HangUp
    })
}

/// Sends the node's messages after the handshake very slowly, byte by byte.
pub(crate) fn trickles(slowed: Count) -> Rule {
    Box::new(move |letter| match (letter.sender, letter.message) {
        (Sender::Client, _) | (_, NetworkMessage::Version(_) | NetworkMessage::Verack) => {
            Fate::Pass
        }
        _ => {
            slowed.up();
            Fate::Trickle(u32::MAX, Duration::from_millis(200))
        }
    })
}

/// Sends garbage in place of the node's message number `after`.
pub(crate) fn garbage(after: u32, sent: Count) -> Rule {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    Box::new(move |letter| {
        let count = counts.entry(letter.connection).or_default();
        *count += u32::from(letter.sender == Sender::Node);
        if letter.sender == Sender::Client || *count < after {
            return Fate::Pass;
        }
        sent.up();
        Fate::Bytes(vec![0xa5; 4_096])
    })
}

/// Replaces a message of the node by the message that `tell` returns. If `tell` returns `None`, the
/// message is forwarded unchanged.
fn from_node(
    lies: Count,
    mut tell: impl FnMut(&NetworkMessage) -> Option<NetworkMessage> + Send + 'static,
) -> Rule {
    Box::new(move |letter| match tell(letter.message) {
        Some(told) if letter.sender == Sender::Node => {
            lies.up();
            Fate::Instead(vec![told])
        }
        _ => Fate::Pass,
    })
}
