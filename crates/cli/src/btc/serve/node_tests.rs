use std::sync::Arc;

use chainsieve::bitcoin::consensus::encode::deserialize;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message::{NetworkMessage, RawNetworkMessage};
use chainsieve::bitcoin::p2p::message_blockdata::{GetBlocksMessage, GetHeadersMessage, Inventory};
use chainsieve::bitcoin::p2p::message_bloom::{BloomFlags, FilterAdd, FilterLoad};
use chainsieve::bitcoin::p2p::message_filter::{GetCFHeaders, GetCFilters};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Transaction, Txid, Witness};
use chainsieve::btc::bip37::{BloomFilter, PayloadError, UpdateMode};
use chainsieve::btc::bip157::BASIC_FILTER;

use super::super::chain::Chain;
use super::super::test_chain::{chain_of, extend, hashes, mine, next_block, reward, spend, take};
use super::{Offers, Peer, Violation, replies};
use crate::btc::p2p::frame::{read_frame, write_message};

const ALL: Offers = Offers { bip37: true, bip157: true };
const FILTERED: u32 = 3;

/// All that the node has to say now.
fn said(peer: &mut Peer, chain: &Chain) -> Vec<NetworkMessage> {
    std::iter::from_fn(|| peer.next_message(chain)).collect()
}

/// What the node says to a message that it puts up with.
fn ask(peer: &mut Peer, chain: &Chain, message: NetworkMessage) -> Vec<NetworkMessage> {
    peer.handle(message, chain, 0).expect("the peer stays");
    said(peer, chain)
}

fn hello(relay: bool) -> NetworkMessage {
    let NetworkMessage::Version(mut version) = replies::version(ServiceFlags::NONE, 0, 5, 0) else {
        panic!("a version")
    };
    version.relay = relay;
    NetworkMessage::Version(version)
}

/// A peer behind its handshake.
fn met(chain: &Chain, offers: Offers, relay: bool) -> Peer {
    let mut peer = Peer::new(offers, chain, 1);
    ask(&mut peer, chain, hello(relay));
    assert_eq!(ask(&mut peer, chain, NetworkMessage::Verack), []);
    assert!(peer.is_ready());
    peer
}

fn get_headers(locator: Vec<BlockHash>, stop: BlockHash) -> NetworkMessage {
    NetworkMessage::GetHeaders(GetHeadersMessage::new(locator, stop))
}

fn get_blocks(locator: Vec<BlockHash>, stop: BlockHash) -> NetworkMessage {
    NetworkMessage::GetBlocks(GetBlocksMessage::new(locator, stop))
}

fn filtered(hash: BlockHash) -> NetworkMessage {
    let hash = hash.to_byte_array();
    NetworkMessage::GetData(vec![Inventory::Unknown { inv_type: FILTERED, hash }])
}

fn filter(elements: &[&[u8]], mode: UpdateMode) -> NetworkMessage {
    let mut filter = BloomFilter::new(10, 1e-9, 3, mode).expect("in bounds");
    for element in elements {
        filter.insert(element);
    }
    NetworkMessage::FilterLoad(filter.try_into().expect("known flags"))
}

fn announced(peer: &mut Peer, chain: &Chain) -> Vec<NetworkMessage> {
    peer.announce(chain);
    said(peer, chain)
}

fn inv(items: impl IntoIterator<Item = Inventory>) -> NetworkMessage {
    NetworkMessage::Inv(items.into_iter().collect())
}

const NONE: [NetworkMessage; 0] = [];

#[test]
fn the_handshake_is_answered_and_comes_first() {
    let chain = chain_of(&mine(2));
    let mut peer = Peer::new(ALL, &chain, 77);
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Ping(1)), NONE);
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Verack), NONE);
    let answer = ask(&mut peer, &chain, hello(true));
    let [NetworkMessage::Version(version), NetworkMessage::Verack] = &answer[..] else {
        panic!("{answer:?}")
    };
    let services = ServiceFlags::NETWORK
        | ServiceFlags::WITNESS
        | ServiceFlags::BLOOM
        | ServiceFlags::COMPACT_FILTERS;
    assert_eq!((version.services, version.start_height, version.nonce), (services, 2, 77));
    assert_eq!((version.version, version.relay), (70_016, true));
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Ping(1)), NONE);
    assert!(!peer.is_ready());
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Verack), NONE);
    assert!(peer.is_ready());
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Ping(9)), [NetworkMessage::Pong(9)]);
    // A second one is nothing new.
    assert_eq!(ask(&mut peer, &chain, hello(false)), NONE);
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::GetAddr), NONE);
}

#[test]
fn only_what_is_offered_has_a_bit() {
    let chain = chain_of(&mine(1));
    let services = |bip37, bip157| Offers { bip37, bip157 }.services(&chain);
    let node = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
    assert_eq!(services(false, false), node);
    assert_eq!(services(true, false), node | ServiceFlags::BLOOM);
    assert_eq!(services(false, true), node | ServiceFlags::COMPACT_FILTERS);
    let mut blocks = mine(1);
    let elsewhere = OutPoint { txid: Txid::all_zeros(), vout: 7 };
    blocks.push(next_block(&blocks, 0, vec![spend(elsewhere, ScriptBuf::new(), 1)]));
    let mut chain = chain_of(&blocks[..1]);
    take(&mut chain, &blocks[1..]);
    assert_eq!(ALL.services(&chain), node | ServiceFlags::BLOOM, "a filter is missing");
}

#[test]
fn headers_follow_the_locator() {
    let blocks = mine(2_003);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let genesis = chain.headers().hash_at(0).expect("genesis");
    let headers = |range: std::ops::Range<usize>| {
        [NetworkMessage::Headers(blocks[range].iter().map(|block| block.header).collect())]
    };
    let none = BlockHash::all_zeros();
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![genesis], none)), headers(0..2_000));
    let at = |index: usize| blocks[index].block_hash();
    let answer = ask(&mut peer, &chain, get_headers(vec![none, at(1_999), genesis], none));
    assert_eq!(answer, headers(2_000..2_003));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![genesis], at(4))), headers(0..5));
    // Nothing new is an answer too; a block that nobody knows is none.
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![at(2_002)], none)), headers(0..0));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![], at(7))), headers(7..8));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![], none)), NONE);
    let long = get_headers(vec![genesis; 102], none);
    assert_eq!(peer.handle(long, &chain, 0), Err(Violation::Locator(102)));
}

#[test]
fn blocks_are_named_by_five_hundred_and_the_tip_follows_the_last() {
    let blocks = mine(1_001);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let names = |range: std::ops::Range<usize>| {
        [inv(blocks[range].iter().map(|block| Inventory::Block(block.block_hash())))]
    };
    let none = BlockHash::all_zeros();
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![], none)), names(0..500));
    let block = |index: usize| NetworkMessage::Block(blocks[index].clone());
    let want = |range: std::ops::Range<usize>| {
        let items = hashes(&blocks[range]).into_iter().map(Inventory::Block).collect();
        NetworkMessage::GetData(items)
    };
    assert_eq!(ask(&mut peer, &chain, want(3..4)), [block(3)]);
    let tip = names(1_000..1_001)[0].clone();
    let answer = ask(&mut peer, &chain, want(499..501));
    assert_eq!(answer, [block(499), tip.clone(), block(500)]);
    assert_eq!(ask(&mut peer, &chain, want(499..500)), [block(499)], "said once");
    let at = |index: usize| blocks[index].block_hash();
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![at(499)], none)), names(500..1_000));
    // A filtered block and its transactions come before it.
    ask(&mut peer, &chain, filter(&[], UpdateMode::None));
    let last = &blocks[999];
    ask(&mut peer, &chain, filter(&[last.txdata[0].compute_txid().as_ref()], UpdateMode::None));
    let answer = ask(&mut peer, &chain, filtered(last.block_hash()));
    assert_eq!(answer.len(), 3, "{answer:?}");
    assert_eq!(answer[1..], [NetworkMessage::Tx(last.txdata[0].clone()), tip]);
    // The stop is not named.
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![at(2)], at(5))), names(3..5));
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![at(1_000)], none)), NONE);
    let long = get_blocks(vec![none; 102], none);
    assert_eq!(peer.handle(long, &chain, 0), Err(Violation::Locator(102)));
}

/// A block whose second transaction has a witness, and a chain that ends in it.
fn with_witness() -> (Vec<Block>, Chain) {
    let mut blocks = mine(3);
    let mut tx = spend(reward(&blocks[0]), ScriptBuf::from_bytes(vec![1, 0x77]), 1);
    tx.input[0].witness = Witness::from_slice(&[[9; 64]]);
    let block = next_block(&blocks, 0, vec![tx]);
    blocks.push(block);
    let chain = chain_of(&blocks);
    (blocks, chain)
}

fn stripped(mut tx: Transaction) -> Transaction {
    tx.input.iter_mut().for_each(|input| input.witness.clear());
    tx
}

#[test]
fn blocks_come_with_their_witnesses_to_those_who_ask_for_them() {
    let (blocks, chain) = with_witness();
    let mut peer = met(&chain, ALL, true);
    let block = blocks[3].clone();
    let hash = block.block_hash();
    let mut bare = block.clone();
    bare.txdata = bare.txdata.into_iter().map(stripped).collect();
    assert_ne!(bare, block);
    let nobody = BlockHash::all_zeros();
    let items = vec![
        Inventory::Block(hash),
        Inventory::WitnessBlock(nobody),
        Inventory::WitnessBlock(hash),
        Inventory::Transaction(block.txdata[1].compute_txid()),
        Inventory::Unknown { inv_type: 99, hash: [1; 32] },
    ];
    let answer = ask(&mut peer, &chain, NetworkMessage::GetData(items.clone()));
    // A transaction that is in a block is not given out, and blocks that are not there are not
    // named as missing.
    let missing = NetworkMessage::NotFound(vec![items[3]]);
    assert_eq!(answer, [NetworkMessage::Block(bare), NetworkMessage::Block(block), missing]);
    let too_many = NetworkMessage::GetData(vec![items[0]; 50_001]);
    assert_eq!(peer.handle(too_many, &chain, 0), Err(Violation::TooManyItems(50_001)));
}

#[test]
fn a_filtered_block_is_followed_by_what_matched_without_witnesses() {
    let (mut blocks, _) = with_witness();
    // Spends, in the same block, what the filter matches; and something else.
    let paid = blocks[3].txdata[1].clone();
    let coin = |tx: &Transaction| OutPoint { txid: tx.compute_txid(), vout: 0 };
    let plain = ScriptBuf::from_bytes(vec![0x51]);
    let mine = spend(reward(&blocks[1]), ScriptBuf::from_bytes(vec![1, 0x77]), 2);
    let spends = spend(coin(&mine), plain.clone(), 1);
    let others = spend(reward(&blocks[2]), plain.clone(), 1);
    let later = spend(coin(&paid), plain, 1);
    let txs = vec![mine.clone(), others, spends.clone()];
    blocks.push(next_block(&blocks, 0, txs));
    blocks.push(next_block(&blocks, 0, vec![later.clone()]));
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, false);
    let at = |index: usize| blocks[index].block_hash();
    assert_eq!(ask(&mut peer, &chain, filtered(at(3))), NONE, "no filter");
    assert_eq!(ask(&mut peer, &chain, filter(&[&[0x77]], UpdateMode::All)), NONE);
    let check = |answer: &[NetworkMessage], index: usize, expected: &[(u32, &Transaction)]| {
        let [NetworkMessage::MerkleBlock(merkle), rest @ ..] = answer else { panic!("{answer:?}") };
        assert_eq!(merkle.header, blocks[index].header);
        let (mut txids, mut places) = (Vec::new(), Vec::new());
        merkle.extract_matches(&mut txids, &mut places).expect("the tree is sound");
        let matched: Vec<_> = places.into_iter().zip(txids).collect();
        let wanted: Vec<_> = expected.iter().map(|(at, tx)| (*at, tx.compute_txid())).collect();
        assert_eq!(matched, wanted);
        let bare = expected.iter().map(|(_, tx)| NetworkMessage::Tx(stripped((*tx).clone())));
        assert_eq!(rest, bare.collect::<Vec<_>>());
    };
    check(&ask(&mut peer, &chain, filtered(at(3))), 3, &[(1, &paid)]);
    check(&ask(&mut peer, &chain, filtered(at(4))), 4, &[(1, &mine), (3, &spends)]);
    check(&ask(&mut peer, &chain, filtered(at(5))), 5, &[(1, &later)]);
    check(&ask(&mut peer, &chain, filtered(at(0))), 0, &[]);
    // Another filter, which does not grow.
    ask(&mut peer, &chain, filter(&[&[0x77]], UpdateMode::None));
    check(&ask(&mut peer, &chain, filtered(at(4))), 4, &[(1, &mine)]);
    ask(&mut peer, &chain, NetworkMessage::FilterAdd(FilterAdd { data: coin_bytes(&mine) }));
    check(&ask(&mut peer, &chain, filtered(at(4))), 4, &[(1, &mine), (3, &spends)]);
    ask(&mut peer, &chain, NetworkMessage::FilterClear);
    assert_eq!(ask(&mut peer, &chain, filtered(at(4))), NONE, "no filter");
}

fn coin_bytes(tx: &Transaction) -> Vec<u8> {
    chainsieve::bitcoin::consensus::encode::serialize(&OutPoint {
        txid: tx.compute_txid(),
        vout: 0,
    })
}

#[test]
fn bloom_filters_have_limits() {
    let chain = chain_of(&mine(1));
    let load = |bytes, hash_funcs| {
        let flags = BloomFlags::All;
        NetworkMessage::FilterLoad(FilterLoad {
            filter: vec![1; bytes],
            hash_funcs,
            tweak: 0,
            flags,
        })
    };
    let add = |bytes| NetworkMessage::FilterAdd(FilterAdd { data: vec![1; bytes] });
    let refused = |messages: Vec<NetworkMessage>, why: Violation| {
        let mut peer = met(&chain, ALL, true);
        let mut messages = messages;
        let last = messages.pop().expect("one");
        for message in messages {
            assert_eq!(ask(&mut peer, &chain, message), NONE);
        }
        assert_eq!(peer.handle(last, &chain, 0), Err(why));
    };
    let filter = Violation::Filter;
    refused(vec![load(36_000, 50), load(36_001, 50)], filter(PayloadError::FilterTooLarge(36_001)));
    refused(vec![load(36_000, 51)], filter(PayloadError::TooManyHashFuncs(51)));
    refused(vec![load(9, 1), add(520), add(521)], filter(PayloadError::DataTooLarge(521)));
    refused(vec![load(9, 1), NetworkMessage::FilterClear, add(1)], Violation::NoFilter);
    let bare = Offers { bip37: false, bip157: false };
    let stop = chain.tip().hash;
    let request = GetCFilters { filter_type: BASIC_FILTER, start_height: 0, stop_hash: stop };
    for message in [load(9, 1), add(1), NetworkMessage::FilterClear, NetworkMessage::MemPool] {
        let mut peer = met(&chain, bare, true);
        let answer = peer.handle(message, &chain, 0);
        assert!(matches!(answer, Err(Violation::NotOffered(_))), "{answer:?}");
    }
    let mut peer = met(&chain, bare, true);
    let answer = peer.handle(NetworkMessage::GetCFilters(request), &chain, 0);
    assert!(matches!(answer, Err(Violation::Filters(_))), "{answer:?}");
}

/// Core masks flags with 3 and does not look behind the last field; `bitcoin` decodes neither.
#[test]
fn odd_filters_that_core_takes_are_taken() {
    let chain = chain_of(&mine(1));
    let mut peer = met(&chain, ALL, true);
    let mut bytes = Vec::new();
    let NetworkMessage::FilterLoad(load) = filter(&[b"x"], UpdateMode::All) else { return };
    write_message(&mut bytes, Magic::REGTEST, NetworkMessage::FilterLoad(load)).expect("memory");
    let mut payload = bytes.split_off(24);
    *payload.last_mut().expect("flags") = 0x83;
    payload.push(0);
    let command = "filterload".to_owned().try_into().expect("short");
    let odd = NetworkMessage::Unknown { command, payload };
    let mut bytes = Vec::new();
    write_message(&mut bytes, Magic::REGTEST, odd).expect("memory");
    assert!(deserialize::<RawNetworkMessage>(&bytes).is_err());
    let frame = read_frame(&mut &bytes[..], Magic::REGTEST).expect("a frame");
    assert_eq!(peer.take_filter(&frame), Some(Ok(())));
    let answer = ask(&mut peer, &chain, filtered(chain.tip().hash));
    assert!(matches!(answer[..], [NetworkMessage::MerkleBlock(_)]), "{answer:?}");
    // Nothing but a filter, and none before the handshake.
    let mut stranger = Peer::new(ALL, &chain, 1);
    assert_eq!(stranger.take_filter(&frame), None);
    let mut bytes = Vec::new();
    write_message(&mut bytes, Magic::REGTEST, NetworkMessage::Verack).expect("memory");
    let frame = read_frame(&mut &bytes[..], Magic::REGTEST).expect("a frame");
    assert_eq!(peer.take_filter(&frame), None);
}

#[test]
fn filters_are_sent_one_by_one_in_the_order_of_the_chain() {
    let blocks = mine(5);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let stop_hash = blocks[4].block_hash();
    let request = GetCFilters { filter_type: BASIC_FILTER, start_height: 2, stop_hash };
    let answer = ask(&mut peer, &chain, NetworkMessage::GetCFilters(request));
    let order: Vec<_> = answer
        .iter()
        .map(|message| match message {
            NetworkMessage::CFilter(filter) => filter.block_hash,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, hashes(&blocks[1..]));
    let request = GetCFHeaders {
        filter_type: BASIC_FILTER,
        start_height: 0,
        stop_hash: BlockHash::all_zeros(),
    };
    let answer = peer.handle(NetworkMessage::GetCFHeaders(request), &chain, 0);
    assert!(matches!(answer, Err(Violation::Filters(_))), "{answer:?}");
}

#[test]
fn new_blocks_are_announced_by_headers_or_by_the_tip() {
    let mut blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let (mut plain, mut headers) = (met(&chain, ALL, true), met(&chain, ALL, true));
    assert_eq!(ask(&mut headers, &chain, NetworkMessage::SendHeaders), NONE);
    assert_eq!(announced(&mut plain, &chain), NONE);
    let tip = |blocks: &[Block]| [inv(hashes(blocks).last().copied().map(Inventory::Block))];
    let of = |blocks: &[Block]| {
        [NetworkMessage::Headers(blocks.iter().map(|block| block.header).collect())]
    };
    extend(&mut blocks, 2, 0);
    take(&mut chain, &blocks);
    assert_eq!(announced(&mut plain, &chain), tip(&blocks));
    // Nobody knows which headers it has.
    assert_eq!(announced(&mut headers, &chain), tip(&blocks));
    let locator = get_headers(vec![blocks[4].block_hash()], BlockHash::all_zeros());
    assert_eq!(ask(&mut headers, &chain, locator), of(&[]));
    extend(&mut blocks, 2, 0);
    take(&mut chain, &blocks);
    assert_eq!(announced(&mut headers, &chain), of(&blocks[5..]));
    assert_eq!(announced(&mut headers, &chain), NONE, "said once");
    // From the fork on.
    let mut theirs = blocks[..4].to_vec();
    extend(&mut theirs, 4, 1);
    take(&mut chain, &theirs);
    assert_eq!(announced(&mut headers, &chain), of(&theirs[4..]));
    assert_eq!(announced(&mut plain, &chain), tip(&theirs));
    // Too many to name.
    extend(&mut theirs, 9, 1);
    take(&mut chain, &theirs);
    assert_eq!(announced(&mut headers, &chain), tip(&theirs));
}

#[test]
fn transactions_are_announced_as_the_filter_and_relay_say() {
    let blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let script = ScriptBuf::from_bytes(vec![1, 0x77]);
    let parent = spend(reward(&blocks[0]), script, 3);
    let coin = OutPoint { txid: parent.compute_txid(), vout: 0 };
    let mut child = spend(coin, ScriptBuf::from_bytes(vec![0x51]), 2);
    child.input[0].witness = Witness::from_slice(&[[9; 64]]);
    let other = spend(reward(&blocks[1]), ScriptBuf::from_bytes(vec![0x51]), 1);
    let id = |tx: &Transaction| Inventory::Transaction(tx.compute_txid());
    let (mut all, mut none) = (met(&chain, ALL, true), met(&chain, ALL, false));
    let mut mine = met(&chain, ALL, false);
    ask(&mut mine, &chain, filter(&[&[0x77]], UpdateMode::All));
    chain.set_pool([&child, &parent, &other].map(|tx| Arc::new(tx.clone())));
    let names = |answer: Vec<NetworkMessage>| -> Vec<Inventory> {
        let [NetworkMessage::Inv(items)] = &answer[..] else { panic!("{answer:?}") };
        items.clone()
    };
    let mut everything = names(announced(&mut all, &chain));
    everything.sort();
    let mut expected = vec![id(&parent), id(&child), id(&other)];
    expected.sort();
    assert_eq!(everything, expected);
    assert_eq!(announced(&mut all, &chain), NONE, "said once");
    assert_eq!(announced(&mut none, &chain), NONE, "not wanted");
    assert_eq!(names(announced(&mut mine, &chain)), [id(&parent), id(&child)]);
    // BIP35 names what was named before, and asks no relay.
    assert_eq!(names(ask(&mut none, &chain, NetworkMessage::MemPool)).len(), 3);
    let mempool = ask(&mut mine, &chain, NetworkMessage::MemPool);
    assert_eq!(names(mempool), [id(&parent), id(&child)]);
    // With witnesses, without, by either id; and one that is not there.
    let nobody = Inventory::Transaction(Txid::all_zeros());
    let items = vec![
        Inventory::WitnessTransaction(child.compute_txid()),
        id(&child),
        nobody,
        Inventory::WTx(child.compute_wtxid()),
    ];
    let answer = ask(&mut none, &chain, NetworkMessage::GetData(items));
    let whole = NetworkMessage::Tx(child.clone());
    let bare = NetworkMessage::Tx(stripped(child.clone()));
    let missing = NetworkMessage::NotFound(vec![nobody]);
    assert_eq!(answer, [whole.clone(), bare, whole, missing]);
    // What was there before is not announced to who comes, nor to who wants all from now on.
    for relay in [true, false] {
        let mut late = met(&chain, ALL, relay);
        assert_eq!(announced(&mut late, &chain), NONE);
        ask(&mut late, &chain, NetworkMessage::FilterClear);
        assert_eq!(announced(&mut late, &chain), NONE);
        assert_eq!(names(ask(&mut late, &chain, NetworkMessage::MemPool)).len(), 3);
    }
    // Without a filter all are wanted, as Core takes it.
    ask(&mut none, &chain, NetworkMessage::FilterClear);
    chain.set_pool([&child, &parent].map(|tx| Arc::new(tx.clone())));
    assert_eq!(announced(&mut none, &chain), NONE, "all were named");
    chain.set_pool([&child, &parent, &other].map(|tx| Arc::new(tx.clone())));
    assert_eq!(names(announced(&mut none, &chain)), [id(&other)], "it is back");
}
