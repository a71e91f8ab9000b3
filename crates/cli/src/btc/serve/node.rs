//! What the node says to one peer: Bitcoin Core's `net_processing`, without a network.
//!
//! A [`Peer`] takes messages and gives out answers, one message at a time: a reply of a thousand
//! filters or of all the blocks of a `getdata` is never in memory together. The caller sends all
//! that [`next_message`](Peer::next_message) gives before it hands over the peer's next message, as
//! Core does, so that requests cannot pile up.
//!
//! Source: Bitcoin Core 28.1, `net_processing.cpp`. Left out is what a node does for itself: it asks
//! its peers for nothing.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::vec;

use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::{MAX_INV_SIZE, NetworkMessage};
use chainsieve::bitcoin::p2p::message_blockdata::{GetBlocksMessage, GetHeadersMessage, Inventory};
use chainsieve::bitcoin::p2p::message_network::VersionMessage;
use chainsieve::bitcoin::{Block, BlockHash, Txid};
use chainsieve::btc::bip37::{AddedData, BloomFilter, PayloadError};
use chainsieve::btc::bip157::server::{self, Answer, FilterServer};

use super::chain::Chain;
use super::replies::{self, Reply};
use crate::btc::p2p::frame::Frame;

/// Core's `MAX_LOCATOR_SZ`.
const MAX_LOCATOR: usize = 101;
/// How many blocks `getblocks` is answered with.
const MAX_BLOCKS: u32 = 500;
/// Core's `MAX_BLOCKS_TO_ANNOUNCE`: more new blocks are announced by the last one alone.
const MAX_HEADERS_ANNOUNCED: usize = 8;
/// How many transactions one announcement names.
const MAX_INV_ANNOUNCED: usize = 1000;
/// Core's `MIN_PEER_PROTO_VERSION`.
const LEAST_PROTOCOL: u32 = 31_800;
/// The longest user agent that Core takes.
const MAX_USER_AGENT: usize = 256;

/// What the node offers its peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offers {
    pub(super) bip37: bool,
    pub(super) bip157: bool,
}

impl Offers {
    /// The service bits, as far as `chain` can keep what they say.
    pub(super) fn services(self, chain: &Chain) -> ServiceFlags {
        let mut services = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
        if self.bip37 {
            services |= ServiceFlags::BLOOM;
        }
        if self.bip157 && chain.has_all_filters() {
            services |= ServiceFlags::COMPACT_FILTERS;
        }
        services
    }
}

/// How far the handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Version,
    Verack,
    Done,
}

/// One peer, and what it was told.
pub(super) struct Peer {
    services: ServiceFlags,
    nonce: u64,
    stage: Stage,
    user_agent: String,
    protocol: u32,
    filter: Option<BloomFilter>,
    /// Whether it wants transactions announced.
    relay: bool,
    send_headers: bool,
    /// The tip that it was told of, or that was there when it came.
    announced: BlockHash,
    /// The last header that it was sent.
    best_sent: Option<BlockHash>,
    /// Transactions of the pool that it was told of, or was not to be told of.
    told: HashSet<Txid>,
    /// When it asks for this block, there are more than `getblocks` was answered with.
    continue_at: Option<BlockHash>,
    replies: VecDeque<Reply>,
}

impl Peer {
    /// A peer that has just connected. `nonce` is random.
    pub(super) fn new(offers: Offers, chain: &Chain, nonce: u64) -> Self {
        Self {
            services: offers.services(chain),
            nonce,
            stage: Stage::Version,
            user_agent: String::new(),
            protocol: 0,
            filter: None,
            relay: false,
            send_headers: false,
            announced: chain.tip().hash,
            best_sent: None,
            told: HashSet::new(),
            continue_at: None,
            replies: VecDeque::new(),
        }
    }

    /// Whether the handshake is done.
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Done
    }

    /// What the peer calls itself: a stranger's words.
    pub(super) fn user_agent(&self) -> &str {
        &self.user_agent
    }

    pub(super) fn protocol(&self) -> u32 {
        self.protocol
    }

    /// Takes a message of the peer; the answers are [`next_message`](Self::next_message)'s. `now`
    /// is the time in Unix seconds.
    ///
    /// # Errors
    /// The peer is to be disconnected.
    pub(super) fn handle(
        &mut self,
        message: NetworkMessage,
        chain: &Chain,
        now: i64,
    ) -> Result<(), Violation> {
        match (self.stage, message) {
            (Stage::Version, NetworkMessage::Version(version)) => {
                self.meet(version, chain, now)?;
            }
            (Stage::Verack, NetworkMessage::Verack) => self.stage = Stage::Done,
            // Taken before verack too.
            (Stage::Verack | Stage::Done, NetworkMessage::SendHeaders) => self.send_headers = true,
            (Stage::Done, message) => self.answer(message, chain)?,
            // Core ignores what comes too early, and a second version.
            _ => {}
        }
        Ok(())
    }

    fn meet(&mut self, version: VersionMessage, chain: &Chain, now: i64) -> Result<(), Violation> {
        if version.version < LEAST_PROTOCOL {
            return Err(Violation::Protocol(version.version));
        }
        if version.user_agent.len() > MAX_USER_AGENT {
            return Err(Violation::UserAgent(version.user_agent.len()));
        }
        (self.protocol, self.user_agent) = (version.version, version.user_agent);
        self.relay = version.relay;
        self.announced = chain.tip().hash;
        // Who wants to know what was there before has to ask (BIP35).
        self.told = chain.pool().open().map(|(txid, _)| txid).collect();
        self.send(replies::version(self.services, chain.tip().height, self.nonce, now));
        self.send(NetworkMessage::Verack);
        self.stage = Stage::Verack;
        Ok(())
    }

    fn answer(&mut self, message: NetworkMessage, chain: &Chain) -> Result<(), Violation> {
        match message {
            NetworkMessage::Ping(nonce) => self.send(NetworkMessage::Pong(nonce)),
            NetworkMessage::GetHeaders(request) => self.headers(&request, chain)?,
            NetworkMessage::GetBlocks(request) => self.blocks(&request, chain)?,
            NetworkMessage::GetData(items) => {
                if items.len() > MAX_INV_SIZE {
                    return Err(Violation::TooManyItems(items.len()));
                }
                self.replies.push_back(Reply::items(items));
            }
            NetworkMessage::MemPool => self.mempool(chain)?,
            NetworkMessage::FilterLoad(load) => self.load(BloomFilter::try_from(load))?,
            NetworkMessage::FilterAdd(added) => {
                self.offered(ServiceFlags::BLOOM, "filteradd")?;
                let added = AddedData::try_from(added).map_err(Violation::Filter)?;
                let filter = self.filter.as_mut().ok_or(Violation::NoFilter)?;
                filter.insert(added.as_bytes());
            }
            NetworkMessage::FilterClear => {
                self.offered(ServiceFlags::BLOOM, "filterclear")?;
                self.filter = None;
                self.relay = true;
            }
            NetworkMessage::GetCFilters(_)
            | NetworkMessage::GetCFHeaders(_)
            | NetworkMessage::GetCFCheckpt(_) => self.filters(&message, chain)?,
            NetworkMessage::Inv(items) | NetworkMessage::NotFound(items)
                if items.len() > MAX_INV_SIZE =>
            {
                return Err(Violation::TooManyItems(items.len()));
            }
            // A node that knows no other has no address to tell, and Core then sends nothing. What
            // peers have to give is not taken.
            _ => {}
        }
        Ok(())
    }

    /// Takes a `filterload` as it came, if it is one: Core masks flags that `bitcoin` does not
    /// decode, and ignores what is behind the last field.
    pub(super) fn take_filter(&mut self, frame: &Frame) -> Option<Result<(), Violation>> {
        if !self.is_ready() || frame.command() != "filterload" {
            return None;
        }
        Some(self.load(BloomFilter::decode_prefix(frame.payload()).map(|(filter, _)| filter)))
    }

    fn load(&mut self, filter: Result<BloomFilter, PayloadError>) -> Result<(), Violation> {
        self.offered(ServiceFlags::BLOOM, "filterload")?;
        self.filter = Some(filter.map_err(Violation::Filter)?);
        self.relay = true;
        Ok(())
    }

    fn offered(&self, service: ServiceFlags, message: &'static str) -> Result<(), Violation> {
        if self.services.has(service) { Ok(()) } else { Err(Violation::NotOffered(message)) }
    }

    fn headers(&mut self, request: &GetHeadersMessage, chain: &Chain) -> Result<(), Violation> {
        let GetHeadersMessage { locator_hashes: locator, stop_hash, .. } = request;
        check_locator(locator)?;
        if locator.is_empty() && chain.block(stop_hash).is_none() {
            return Ok(());
        }
        let headers = match chain.headers().headers_after(locator, *stop_hash) {
            // Of a block that left the chain.
            [] if locator.is_empty() => {
                chain.block(stop_hash).map(|block| block.header).into_iter().collect()
            }
            headers => headers.to_vec(),
        };
        // Who is told that there is nothing more has our tip.
        self.best_sent = Some(headers.last().map_or(chain.tip().hash, Header::block_hash));
        self.send(NetworkMessage::Headers(headers));
        Ok(())
    }

    fn blocks(&mut self, request: &GetBlocksMessage, chain: &Chain) -> Result<(), Violation> {
        check_locator(&request.locator_hashes)?;
        let headers = chain.headers();
        let mut common = request.locator_hashes.iter().filter_map(|hash| headers.height_of(hash));
        let first = common.next().unwrap_or(0).saturating_add(1);
        let hashes = (first..).take(MAX_BLOCKS as usize).map_while(|at| headers.hash_at(at));
        let hashes: Vec<_> = hashes.take_while(|hash| *hash != request.stop_hash).collect();
        if hashes.len() == MAX_BLOCKS as usize {
            self.continue_at = hashes.last().copied();
        }
        if !hashes.is_empty() {
            self.send(NetworkMessage::Inv(hashes.into_iter().map(Inventory::Block).collect()));
        }
        Ok(())
    }

    fn filters(&mut self, request: &NetworkMessage, chain: &Chain) -> Result<(), Violation> {
        let Some(store) = chain.filters() else {
            return Err(Violation::NotOffered("a request for filters"));
        };
        let server = FilterServer::new(chain.headers(), store, self.services);
        match server.answer(request) {
            Some(Answer::Send(reply)) => self.replies.push_back(Reply::Filters(reply)),
            Some(Answer::Disconnect(violation)) => return Err(Violation::Filters(violation)),
            _ => {}
        }
        Ok(())
    }

    /// Names all transactions of the pool, or those that the filter matches (BIP35).
    fn mempool(&mut self, chain: &Chain) -> Result<(), Violation> {
        self.offered(ServiceFlags::BLOOM, "mempool")?;
        self.told.clear();
        self.announce_transactions(chain);
        Ok(())
    }

    /// Queues what is new since the last call, for a peer that [is ready](Self::is_ready).
    pub(super) fn announce(&mut self, chain: &Chain) {
        self.announce_blocks(chain);
        if self.relay {
            self.announce_transactions(chain);
        } else {
            self.told = chain.pool().open().map(|(txid, _)| txid).collect();
        }
    }

    fn announce_blocks(&mut self, chain: &Chain) {
        let tip = chain.tip();
        if std::mem::replace(&mut self.announced, tip.hash) == tip.hash {
            return;
        }
        match self.headers_to_announce(chain) {
            Some(headers) => {
                self.best_sent = Some(tip.hash);
                self.send(NetworkMessage::Headers(headers));
            }
            None => self.send(NetworkMessage::Inv(vec![Inventory::Block(tip.hash)])),
        }
    }

    /// The headers up to the tip, if the peer wants headers and has the one before them.
    fn headers_to_announce(&self, chain: &Chain) -> Option<Vec<Header>> {
        let known = chain.fork_height(self.best_sent.filter(|_| self.send_headers)?)?;
        let headers = chain.headers().headers_from(known.checked_add(1)?);
        (1..=MAX_HEADERS_ANNOUNCED).contains(&headers.len()).then(|| headers.to_vec())
    }

    fn announce_transactions(&mut self, chain: &Chain) {
        let pool = chain.pool();
        self.told.retain(|txid| pool.contains(txid));
        let mut items = Vec::new();
        for (txid, tx) in pool.open() {
            if !self.told.insert(txid) {
                continue;
            }
            let matches =
                self.filter.as_mut().is_none_or(|filter| filter.is_relevant_and_update(tx));
            if matches {
                items.push(Inventory::Transaction(txid));
            }
        }
        for items in items.chunks(MAX_INV_ANNOUNCED) {
            self.send(NetworkMessage::Inv(items.to_vec()));
        }
    }

    fn send(&mut self, message: NetworkMessage) {
        self.replies.push_back(Reply::One(Box::new(message)));
    }

    /// The next message to send, made now.
    pub(super) fn next_message(&mut self, chain: &Chain) -> Option<NetworkMessage> {
        loop {
            match self.replies.front_mut()? {
                Reply::One(_) => {
                    let Some(Reply::One(message)) = self.replies.pop_front() else { continue };
                    return Some(*message);
                }
                Reply::Filters(reply) => {
                    let store = chain.filters();
                    if let Some(message) = store.and_then(|store| reply.next_message(store)) {
                        return Some(message);
                    }
                    self.replies.pop_front();
                }
                Reply::Matched { block, indices } => {
                    if let Some(message) = replies::next_matched(block, indices) {
                        return Some(message);
                    }
                    self.replies.pop_front();
                }
                Reply::Items { items, missing } => {
                    let Some(item) = items.next() else {
                        let missing = std::mem::take(missing);
                        self.replies.pop_front();
                        if missing.is_empty() {
                            continue;
                        }
                        return Some(NetworkMessage::NotFound(missing));
                    };
                    if let Some(message) = self.item(item, chain) {
                        return Some(message);
                    }
                }
            }
        }
    }

    /// What `getdata` asked for; queues what follows it.
    fn item(&mut self, item: Inventory, chain: &Chain) -> Option<NetworkMessage> {
        let wanted = replies::Wanted::of(item);
        let message = match &wanted {
            replies::Wanted::Transaction { tx, witness } => {
                let found = match tx {
                    replies::TxName::Txid(txid) => chain.transaction(txid),
                    replies::TxName::Wtxid(wtxid) => chain.witness_transaction(wtxid),
                };
                let Some(found) = found else {
                    if let Some(Reply::Items { missing, .. }) = self.replies.front_mut() {
                        missing.push(item);
                    }
                    return None;
                };
                return Some(replies::transaction(found, *witness));
            }
            replies::Wanted::Block { hash, witness } => {
                replies::block(chain.block(hash)?, *witness)
            }
            replies::Wanted::Filtered(hash) => self.filtered(chain.block(hash)?)?,
            replies::Wanted::Unknown => return None,
        };
        if let Some(hash) = wanted.block_hash()
            && self.continue_at == Some(hash)
        {
            // Behind the block and its transactions, before the next item.
            let more = NetworkMessage::Inv(vec![Inventory::Block(chain.tip().hash)]);
            let place = usize::from(matches!(self.replies.front(), Some(Reply::Matched { .. })));
            self.replies.insert(place, Reply::One(Box::new(more)));
            self.continue_at = None;
        }
        Some(message)
    }

    /// The merkle block; the transactions that the filter matched are queued before all else.
    fn filtered(&mut self, block: &Arc<Block>) -> Option<NetworkMessage> {
        let (message, indices) = replies::filtered(self.filter.as_mut()?, block)?;
        let indices: vec::IntoIter<usize> = indices.into_iter();
        self.replies.push_front(Reply::Matched { block: Arc::clone(block), indices });
        Some(message)
    }
}

fn check_locator(locator: &[BlockHash]) -> Result<(), Violation> {
    if locator.len() > MAX_LOCATOR { Err(Violation::Locator(locator.len())) } else { Ok(()) }
}

/// Why a peer is disconnected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Violation {
    Protocol(u32),
    UserAgent(usize),
    Locator(usize),
    TooManyItems(usize),
    /// A message that needs a service which the node does not offer.
    NotOffered(&'static str),
    /// A Bloom filter, or data to add to one, over the limits.
    Filter(PayloadError),
    NoFilter,
    Filters(server::Violation),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(got) => write!(f, "protocol {got}, the least is {LEAST_PROTOCOL}"),
            Self::UserAgent(bytes) => {
                write!(f, "a user agent of {bytes} bytes, the limit is {MAX_USER_AGENT}")
            }
            Self::Locator(hashes) => {
                write!(f, "a locator of {hashes} hashes, the limit is {MAX_LOCATOR}")
            }
            Self::TooManyItems(items) => write!(f, "{items} items, the limit is {MAX_INV_SIZE}"),
            Self::NotOffered(message) => {
                write!(f, "{message}, which is not offered: see the service bits")
            }
            Self::Filter(error) => error.fmt(f),
            Self::NoFilter => f.write_str("filteradd without a filter"),
            Self::Filters(violation) => violation.fmt(f),
        }
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
