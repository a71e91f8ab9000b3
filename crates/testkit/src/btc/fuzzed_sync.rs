//! Assertions of the fuzz target for filter header syncs; the assertions take arbitrary bytes.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::p2p::message_filter::{CFHeaders, CFilter};
use chainsieve::bitcoin::{Block, Network, Transaction};
use chainsieve::btc::bip157::{Action, Config, Event, FilterSync, Reason, VerifiedFilter};
use chainsieve::btc::bip158::BlockFilter;
use chainsieve::btc::headers::HeaderChain;
use chainsieve::btc::peer::PeerId;
use chainsieve::btc::server::filters::{FilterResponse, FilterStore};

use crate::btc::filter_world::{NOW, World};

/// Height of the chain that the syncs run on.
const HEIGHT: usize = 24;

struct Chain {
    headers: HeaderChain,
    store: FilterStore,
    blocks: Vec<Block>,
}

fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| {
        let mut world = World::new(7);
        let tip = world.grow(0, HEIGHT);
        let mut headers = HeaderChain::new(Network::Regtest);
        let mut store = FilterStore::new();
        let mut blocks = Vec::new();
        for number in world.chain(tip) {
            let block = &world.blocks[number];
            if number != 0 {
                headers.accept(&[block.block.header], NOW).expect("mined");
            }
            let filter = BlockFilter { block_hash: block.hash, content: block.filter.clone() };
            store.append(filter).expect("each once");
            blocks.push(block.block.clone());
        }
        Chain { headers, store, blocks }
    })
}

/// A peer of the sync, and the requests that were sent to this peer.
struct Peer {
    id: PeerId,
    connected: bool,
    asked: VecDeque<NetworkMessage>,
}

struct Run {
    sync: FilterSync,
    peers: Vec<Peer>,
    now: Duration,
    verified: Vec<VerifiedFilter>,
    blocks: usize,
}

impl Run {
    fn handle(&mut self, event: Event) {
        let chain = chain();
        for action in self.sync.handle(&chain.headers, event, self.now) {
            match action {
                Action::Send(id, message) => {
                    let peer = self.peers.iter_mut().find(|peer| peer.id == id && peer.connected);
                    peer.expect("requests go to connected peers only").asked.push_back(message);
                }
                Action::Disconnect(id, reason) => {
                    let honest = self.peers[0].id == id;
                    let late = matches!(reason, Reason::Stalled(_) | Reason::TooManyPeers(_));
                    assert!(!honest || late, "an honest peer is blamed: {reason:?}");
                    let peer = self.peers.iter_mut().find(|peer| peer.id == id);
                    peer.expect("a peer").connected = false;
                }
                Action::Filter(filter) => {
                    assert_eq!(chain.headers.hash_at(filter.at.height), Some(filter.at.hash));
                    assert_eq!(filter.filter.block_hash, filter.at.hash);
                    self.verified.push(*filter);
                }
                Action::Block { at, block, .. } => {
                    let expected = &chain.blocks[at.height as usize];
                    assert_eq!(at.hash, expected.block_hash());
                    let txids = |block: &Block| -> Vec<_> {
                        block.txdata.iter().map(Transaction::compute_txid).collect()
                    };
                    assert_eq!(txids(&block), txids(expected), "another block is scanned");
                    self.blocks += 1;
                }
                _ => {}
            }
        }
        let answered = self.sync.answered_to();
        assert!(answered.is_none_or(|height| height as usize <= HEIGHT));
    }

    /// Returns an honest node's answers to the oldest request of a peer, and removes that request.
    fn answers(&mut self, which: usize) -> Vec<NetworkMessage> {
        let chain = chain();
        let Some(message) = self.peers[which].asked.pop_front() else { return Vec::new() };
        if let NetworkMessage::GetData(items) = message {
            let block = |item| {
                let Inventory::WitnessBlock(hash) = item else { panic!("a request for {item:?}") };
                let block = chain.blocks.iter().find(|block| block.block_hash() == hash);
                NetworkMessage::Block(block.expect("a block of the chain").clone())
            };
            return items.into_iter().map(block).collect();
        }
        let services = ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS;
        match chain.store.answer(&chain.headers, services, &message) {
            Some(FilterResponse::Send(mut reply)) => {
                std::iter::from_fn(|| reply.next_message(&chain.store)).collect()
            }
            other => panic!("a request that breaks Core's rules: {other:?}"),
        }
    }

    fn hear(&mut self, which: usize, message: NetworkMessage) {
        if self.peers[which].connected {
            for event in Event::from_message(self.peers[which].id, message) {
                self.handle(event);
            }
        }
    }
}

/// Returns an answer with one byte changed, or truncated.
fn twisted(message: NetworkMessage, a: u8, b: u8) -> NetworkMessage {
    let flip = |bytes: &mut [u8]| {
        if !bytes.is_empty() {
            let at = usize::from(a) % bytes.len();
            bytes[at] ^= 1 << (b % 8);
        }
    };
    match message {
        NetworkMessage::CFilter(mut filter) => {
            flip(&mut filter.filter);
            NetworkMessage::CFilter(filter)
        }
        NetworkMessage::CFHeaders(mut headers) => {
            if b >= 128 {
                headers.filter_hashes.pop();
            } else if let Some(hash) = headers.filter_hashes.get_mut(usize::from(a) % (HEIGHT + 1))
            {
                *hash = FilterHash::from_byte_array([b; 32]);
            } else {
                headers.previous_filter_header = FilterHeader::from_byte_array([b; 32]);
            }
            NetworkMessage::CFHeaders(headers)
        }
        NetworkMessage::CFCheckpt(mut headers) => {
            headers.filter_headers.push(FilterHeader::from_byte_array([b; 32]));
            NetworkMessage::CFCheckpt(headers)
        }
        NetworkMessage::Block(mut block) => {
            let tx = usize::from(a) % block.txdata.len();
            match b % 3 {
                0 => block.txdata.truncate(tx),
                1 => block.txdata.push(block.txdata[tx].clone()),
                _ => block.txdata[tx].output.truncate(1),
            }
            NetworkMessage::Block(block)
        }
        other => other,
    }
}

/// Runs a sync with four peers whose behaviour the bytes determine, three bytes for each step. The
/// first peer is honest, but may be late: the honest peer must never be blamed for anything but
/// delay. The sync must not scan a block of another chain, and its requests must follow Core's
/// rules. Returns the numbers of filters and blocks that the sync returned.
pub fn sync_keeps_its_word(data: &[u8]) -> (usize, usize) {
    let chain = chain();
    let (setting, steps) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let mut config = Config::new(Network::Regtest, u32::from(setting % 4), [setting; 16]);
    config.spot_audits = u32::from(setting / 4 % 4);
    let peer = |id| Peer { id: PeerId(id), connected: false, asked: VecDeque::new() };
    let mut run = Run {
        sync: FilterSync::new(config),
        peers: (0..4).map(peer).collect(),
        now: Duration::ZERO,
        verified: Vec::new(),
        blocks: 0,
    };
    for [step, a, b] in steps.as_chunks().0.iter().take(400) {
        let which = usize::from(step / 16 % 4);
        let hash = chain.blocks[usize::from(*a) % chain.blocks.len()].block_hash();
        let connected = run.peers[which].connected;
        match step % 16 {
            0 | 1 if !connected => {
                let id = PeerId(run.peers[which].id.0 + 4);
                run.peers[which] = Peer { id, connected: true, asked: VecDeque::new() };
                run.handle(Event::PeerConnected(id));
                run.handle(Event::PeerTip(id, chain.headers.tip().hash));
            }
            2 if connected && *a < 64 => {
                run.peers[which].connected = false;
                run.handle(Event::PeerDisconnected(run.peers[which].id));
            }
            3 => {
                run.now += Duration::from_secs(u64::from(*a));
                run.handle(Event::Tick);
            }
            4..=9 => {
                for message in run.answers(which) {
                    run.hear(which, message);
                }
            }
            10 | 11 if which > 0 => {
                for message in run.answers(which) {
                    run.hear(which, twisted(message, *a, *b));
                }
            }
            12 if which > 0 => {
                let filter = CFilter { filter_type: b % 2, block_hash: hash, filter: vec![*b; 3] };
                run.hear(which, NetworkMessage::CFilter(filter));
                let headers = CFHeaders {
                    filter_type: 0,
                    stop_hash: hash,
                    previous_filter_header: FilterHeader::all_zeros(),
                    filter_hashes: vec![FilterHash::from_byte_array([*b; 32]); usize::from(*b)],
                };
                run.hear(which, NetworkMessage::CFHeaders(headers));
            }
            13 if which > 0 && connected => {
                run.handle(Event::BlockUnavailable(run.peers[which].id, hash));
                let block = chain.blocks[usize::from(*a) % chain.blocks.len()].clone();
                run.hear(which, NetworkMessage::Block(block));
            }
            14 => {
                if let Some(filter) = run.verified.pop() {
                    run.handle(Event::Matched(Box::new(filter)));
                }
            }
            15 => run.handle(Event::Rescan(u32::from(*a) % 32..=u32::MAX)),
            _ => {}
        }
    }
    (run.verified.len(), run.blocks)
}
