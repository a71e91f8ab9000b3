//! The expectations of Bitcoin Core's `test/functional/p2p_blockfilters.py` (28.1) on chains of the
//! same shape, and more tests of the limits.

use core::time::Duration;

use bitcoin::Network;
use bitcoin::block::Header;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::sha256d;

use super::*;
use crate::btc::bip158::BlockFilter;
use crate::btc::tests::mine_headers;

/// A Unix time long after the timestamp of every block in these tests.
const NOW: Duration = Duration::from_secs(2_000_000_000);
/// Number of blocks that both chains of Core's test share, without genesis.
const SHARED: usize = 999;

/// Arbitrary bytes that are used as the filter of `block`.
fn content(block: &BlockHash) -> Vec<u8> {
    block.to_byte_array()[..9].to_vec()
}

struct Node {
    chain: HeaderChain,
    store: FilterStore,
}

impl Node {
    fn new(headers: &[Header]) -> Self {
        let genesis = genesis_block(Network::Regtest).header;
        let mut store = FilterStore::new();
        store.append(filter(&genesis)).unwrap();
        let mut node = Self { chain: HeaderChain::new(Network::Regtest), store };
        node.extend(headers);
        node
    }

    /// Connects blocks on top of the parent of the first one.
    fn extend(&mut self, headers: &[Header]) {
        let Some(first) = headers.first() else { return };
        self.chain.accept(headers, NOW).unwrap();
        self.store.rollback(&first.prev_blockhash).unwrap();
        for header in headers {
            self.store.append(filter(header)).unwrap();
        }
    }

    fn answer(&self, request: impl Into<Request>) -> FilterResponse {
        self.answer_offering(ServiceFlags::COMPACT_FILTERS | ServiceFlags::NETWORK, request)
    }

    fn answer_offering(
        &self,
        services: ServiceFlags,
        request: impl Into<Request>,
    ) -> FilterResponse {
        self.store.answer(&self.chain, services, &request.into().0).expect("a request")
    }

    fn messages(&self, request: impl Into<Request>) -> Vec<NetworkMessage> {
        let FilterResponse::Send(mut reply) = self.answer(request) else { panic!("no answer") };
        let count = reply.remaining();
        let messages: Vec<_> = core::iter::from_fn(|| reply.next_message(&self.store)).collect();
        assert_eq!((messages.len(), reply.remaining()), (count, 0));
        messages
    }

    fn checkpoints(&self, stop_hash: BlockHash) -> Vec<FilterHeader> {
        let messages = self.messages(GetCFCheckpt { filter_type: 0, stop_hash });
        let [NetworkMessage::CFCheckpt(message)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((message.filter_type, message.stop_hash), (0, stop_hash));
        message.filter_headers.clone()
    }

    fn headers(&self, start_height: u32, stop_hash: BlockHash) -> CFHeaders {
        let request = GetCFHeaders { filter_type: 0, start_height, stop_hash };
        let mut messages = self.messages(request);
        let Some(NetworkMessage::CFHeaders(message)) = messages.pop() else { panic!("no message") };
        assert_eq!((messages.len(), message.filter_type), (0, 0));
        assert_eq!(message.stop_hash, stop_hash);
        message
    }

    fn filters(&self, start_height: u32, stop_hash: BlockHash) -> Vec<CFilter> {
        let request = GetCFilters { filter_type: 0, start_height, stop_hash };
        let filter = |message| match message {
            NetworkMessage::CFilter(filter) => filter,
            other => panic!("{other:?}"),
        };
        self.messages(request).into_iter().map(filter).collect()
    }
}

fn filter(header: &Header) -> BlockFilter {
    let block_hash = header.block_hash();
    BlockFilter { block_hash, content: content(&block_hash) }
}

struct Request(NetworkMessage);

impl From<GetCFilters> for Request {
    fn from(request: GetCFilters) -> Self {
        Self(NetworkMessage::GetCFilters(request))
    }
}

impl From<GetCFHeaders> for Request {
    fn from(request: GetCFHeaders) -> Self {
        Self(NetworkMessage::GetCFHeaders(request))
    }
}

impl From<GetCFCheckpt> for Request {
    fn from(request: GetCFCheckpt) -> Self {
        Self(NetworkMessage::GetCFCheckpt(request))
    }
}

fn get_filters(start_height: u32, stop_hash: BlockHash) -> GetCFilters {
    GetCFilters { filter_type: 0, start_height, stop_hash }
}

fn get_headers(start_height: u32, stop_hash: BlockHash) -> GetCFHeaders {
    GetCFHeaders { filter_type: 0, start_height, stop_hash }
}

/// Computes the filter header after a row of filter hashes, as Core's test does.
fn last_header(before: FilterHeader, hashes: impl IntoIterator<Item = FilterHash>) -> FilterHeader {
    let fold = |header: FilterHeader, hash: FilterHash| {
        let both = [hash.to_byte_array(), header.to_byte_array()].concat();
        FilterHeader::from_byte_array(sha256d::Hash::hash(&both).to_byte_array())
    };
    hashes.into_iter().fold(before, fold)
}

fn hash_of(block: &BlockHash) -> FilterHash {
    FilterHash::from_byte_array(sha256d::Hash::hash(&content(block)).to_byte_array())
}

/// Returns node 0 of Core's test after the reorganisation. Also returns two lists of block hashes
/// by height: those of the chain that the node left (to height 1000), and those of its active chain
/// (to height 2000).
fn node_0() -> (Node, Vec<BlockHash>, Vec<BlockHash>) {
    let genesis = genesis_block(Network::Regtest).header;
    let shared = mine_headers(&genesis, SHARED, 1, 600);
    let stale = mine_headers(shared.last().unwrap(), 1, 2, 600);
    let main = mine_headers(shared.last().unwrap(), 1001, 3, 600);
    let chain = |tail: &[Header]| {
        let all = [&genesis].into_iter().chain(&shared).chain(tail);
        all.map(Header::block_hash).collect::<Vec<_>>()
    };
    let (stale_chain, main_chain) = (chain(&stale), chain(&main));
    let mut node = Node::new(&[shared, stale].concat());
    assert_eq!(node.checkpoints(stale_chain[1000]).len(), 1, "before the reorganization");
    node.extend(&main);
    assert_eq!(node.chain.tip().height, 2000);
    (node, stale_chain, main_chain)
}

#[test]
fn checkpoints_and_headers_of_the_active_and_the_stale_chain() {
    let (node, stale, main) = node_0();
    let zeros = FilterHeader::all_zeros();
    let header_at = |chain: &[BlockHash], height: usize| {
        last_header(zeros, chain[..=height].iter().map(hash_of))
    };
    assert_eq!(node.checkpoints(main[2000]), [header_at(&main, 1000), header_at(&main, 2000)]);
    assert_eq!(node.checkpoints(main[1999]), [header_at(&main, 1000)]);
    assert_eq!(node.checkpoints(main[999]), []);
    assert_eq!(node.checkpoints(stale[1000]), [header_at(&stale, 1000)]);
    assert_ne!(header_at(&stale, 1000), header_at(&main, 1000));

    for chain in [&main, &stale] {
        let answer = node.headers(1, chain[1000]);
        assert_eq!(answer.filter_hashes.len(), 1000);
        assert_eq!(answer.previous_filter_header, header_at(chain, 0));
        let last = last_header(answer.previous_filter_header, answer.filter_hashes);
        assert_eq!(last, header_at(chain, 1000));
    }
    // The filter header before genesis is zero.
    assert_eq!(node.headers(0, main[5]).previous_filter_header, zeros);
    assert_eq!(node.headers(7, main[7]).previous_filter_header, header_at(&main, 6));
}

#[test]
fn filters_of_the_active_and_the_stale_chain() {
    let (node, stale, main) = node_0();
    let answer = node.filters(1, main[10]);
    assert_eq!(answer.len(), 10);
    for (message, block) in answer.iter().zip(&main[1..]) {
        assert_eq!((message.filter_type, message.block_hash), (0, *block));
        assert_eq!(message.filter, content(block));
    }
    let [message] = &node.filters(1000, stale[1000])[..] else { panic!("one filter") };
    assert_eq!((message.block_hash, &message.filter), (stale[1000], &content(&stale[1000])));
    let across = node.filters(998, stale[1000]);
    let blocks: Vec<_> = across.iter().map(|message| message.block_hash).collect();
    assert_eq!(blocks, stale[998..], "the branch that ends in the stop");
}

#[test]
fn a_node_that_does_not_offer_filters_disconnects() {
    let (node, _, main) = node_0();
    let services = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
    let disconnect = FilterResponse::Disconnect(Reason::NotOffered("a request for filters"));
    let stop_hash = main[1000];
    let request = GetCFCheckpt { filter_type: 0, stop_hash };
    assert_eq!(node.answer_offering(services, request), disconnect);
    assert_eq!(node.answer_offering(services, get_headers(1000, stop_hash)), disconnect);
    assert_eq!(node.answer_offering(services, get_filters(1000, stop_hash)), disconnect);
}

#[test]
fn invalid_requests_disconnect() {
    let (node, _, main) = node_0();
    let disconnects = |answer, violation| assert_eq!(answer, FilterResponse::Disconnect(violation));
    // The four invalid requests of Core's test.
    let many = Reason::TooManyBlocks { start: 0, stop: 1000, limit: 1000 };
    disconnects(node.answer(get_filters(0, main[1000])), many);
    let many = Reason::TooManyBlocks { start: 0, stop: 2000, limit: 2000 };
    disconnects(node.answer(get_headers(0, main[2000])), many);
    let request = GetCFCheckpt { filter_type: 255, stop_hash: main[1000] };
    disconnects(node.answer(request), Reason::FilterType(255));
    let mut unknown = [0; 32];
    unknown[..4].copy_from_slice(&123_456_789_u32.to_le_bytes());
    let stop_hash = BlockHash::from_byte_array(unknown);
    let request = GetCFCheckpt { filter_type: 0, stop_hash };
    disconnects(node.answer(request), Reason::UnknownStop(stop_hash));

    // A range that is one block shorter is valid.
    assert_eq!(node.filters(1, main[1000]).len(), 1000);
    assert_eq!(node.headers(1, main[2000]).filter_hashes.len(), 2000);
    // An unknown stop block and an unknown filter type are invalid in all kinds of requests. A
    // start height above the stop block is invalid, too.
    disconnects(node.answer(get_filters(1, stop_hash)), Reason::UnknownStop(stop_hash));
    disconnects(node.answer(get_headers(1, stop_hash)), Reason::UnknownStop(stop_hash));
    let wrong = GetCFilters { filter_type: 1, ..get_filters(1, main[5]) };
    disconnects(node.answer(wrong), Reason::FilterType(1));
    let wrong = GetCFHeaders { filter_type: 1, ..get_headers(1, main[5]) };
    disconnects(node.answer(wrong), Reason::FilterType(1));
    let backwards = Reason::StartAfterStop { start: 6, stop: 5 };
    disconnects(node.answer(get_filters(6, main[5])), backwards.clone());
    disconnects(node.answer(get_headers(6, main[5])), backwards);
    let backwards = Reason::StartAfterStop { start: u32::MAX, stop: 5 };
    disconnects(node.answer(get_filters(u32::MAX, main[5])), backwards);
}

#[test]
fn a_missing_filter_is_met_with_silence() {
    let genesis = genesis_block(Network::Regtest).header;
    let headers = mine_headers(&genesis, 2100, 1, 600);
    let hash = |height: usize| headers[height - 1].block_hash();
    let mut node = Node::new(&headers[..1500]);
    node.chain.accept(&headers, NOW).unwrap();
    // The store has filters up to height 1500. The chain has headers up to height 2100.
    assert_eq!(node.answer(get_filters(1500, hash(1501))), FilterResponse::Silent { height: 1501 });
    assert_eq!(node.answer(get_headers(1500, hash(1501))), FilterResponse::Silent { height: 1501 });
    assert_eq!(node.answer(get_headers(1502, hash(1502))), FilterResponse::Silent { height: 1501 });
    let request = GetCFCheckpt { filter_type: 0, stop_hash: hash(2000) };
    assert_eq!(node.answer(request), FilterResponse::Silent { height: 2000 });
    // The answer to `getcfcheckpt` needs only the filter headers at multiples of 1,000.
    assert_eq!(node.checkpoints(hash(1999)).len(), 1);
    // A violation takes precedence over a missing filter.
    let backwards = Reason::StartAfterStop { start: 2000, stop: 1999 };
    let answer = node.answer(get_filters(2000, hash(1999)));
    assert_eq!(answer, FilterResponse::Disconnect(backwards));
}

/// Returns the answer to a request for the filter of a stale block at height 1. The tip is at
/// height `blocks` + 1, with `spacing` seconds between blocks. `stored` is `true` if the store has
/// the filter of the stale block.
fn stale_answer(blocks: usize, spacing: u32, stored: bool) -> FilterResponse {
    let genesis = genesis_block(Network::Regtest).header;
    let stale = mine_headers(&genesis, 1, 2, 600);
    let main = mine_headers(&genesis, 1, 3, 600);
    let main = [main.clone(), mine_headers(&main[0], blocks, 3, spacing)].concat();
    let mut node = Node::new(&[]);
    if stored {
        node.extend(&stale);
    } else {
        node.chain.accept(&stale, NOW).unwrap();
    }
    node.extend(&main);
    node.answer(get_filters(0, stale[0].block_hash()))
}

#[test]
fn stale_blocks_are_unknown_after_30_days_of_time_or_work() {
    let days = 24 * 60 * 60;
    let unknown = |answer| matches!(answer, FilterResponse::Disconnect(Reason::UnknownStop(_)));
    let served = |answer| matches!(answer, FilterResponse::Send(reply) if reply.remaining() == 2);
    assert!(served(stale_answer(30, days - 1, true)));
    assert!(served(stale_answer(1, 30 * days - 1, true)));
    assert!(unknown(stale_answer(30, days, true)));
    assert!(unknown(stale_answer(1, 30 * days, true)));
    assert!(served(stale_answer(4319, 1, true)));
    assert!(unknown(stale_answer(4320, 1, true)));
    // Without a stored filter, the block is unknown: Core requires that the block was valid once.
    assert!(unknown(stale_answer(1, 600, false)));
}

#[test]
fn other_messages_are_none_of_its_business() {
    let node = Node::new(&[]);
    let services = ServiceFlags::COMPACT_FILTERS;
    assert_eq!(node.store.answer(&node.chain, services, &NetworkMessage::Verack), None);
}

#[test]
fn a_reply_goes_on_after_a_reorganization_and_ends_where_a_filter_is_lost() {
    let genesis = genesis_block(Network::Regtest).header;
    let old = mine_headers(&genesis, 3, 1, 600);
    let mut node = Node::new(&old);
    let stop = old[2].block_hash();
    let FilterResponse::Send(mut reply) = node.answer(get_filters(1, stop)) else {
        panic!("no answer")
    };
    let first = reply.next_message(&node.store);
    node.extend(&mine_headers(&genesis, 4, 2, 600));
    let second = reply.next_message(&node.store);
    for (message, header) in [first, second].iter().zip(&old) {
        let Some(NetworkMessage::CFilter(message)) = message else { panic!("{message:?}") };
        assert_eq!(message.block_hash, header.block_hash());
        assert_eq!(message.filter, content(&header.block_hash()));
    }
    node.store.drop_stale();
    assert_eq!(reply.next_message(&node.store), None);
    assert_eq!(reply.remaining(), 0);
}

#[test]
fn the_store_follows_its_chain() {
    let genesis = genesis_block(Network::Regtest).header;
    let old = mine_headers(&genesis, 3, 1, 600);
    let new = mine_headers(&old[0], 1, 2, 600);
    let mut node = Node::new(&old);
    let (fork, left) = (old[0].block_hash(), old[2].block_hash());
    assert_eq!((node.store.len(), node.store.tip()), (4, Some(left)));
    let again = node.store.append(filter(&old[1]));
    assert_eq!(again, Err(BlockError::AlreadyThere(old[1].block_hash())));
    node.store.rollback(&fork).unwrap();
    assert_eq!(node.store.rollback(&left), Err(BlockError::NotThere(left)));
    let header = node.store.append(filter(&new[0])).unwrap();
    let chain = [genesis.block_hash(), fork, new[0].block_hash()];
    assert_eq!(header, last_header(FilterHeader::all_zeros(), chain.iter().map(hash_of)));
    assert_eq!((node.store.tip_header(), node.store.len()), (header, 3));
    assert!(node.store.filter(&left).is_some());
    node.store.drop_stale();
    assert_eq!(node.store.filter(&left), None);
    assert_eq!(node.store.filter_hash(&fork), Some(hash_of(&fork)));
    // A block that left the chain may join the chain again.
    node.store.rollback(&fork).unwrap();
    node.store.append(filter(&old[1])).unwrap();

    let later = FilterStore::behind(header);
    assert_eq!((later.tip_header(), later.is_empty()), (header, true));
}
