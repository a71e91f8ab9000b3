use alloc::borrow::ToOwned as _;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use bitcoin::consensus::encode::{deserialize, serialize};
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::Magic;
use bitcoin::p2p::message::RawNetworkMessage;
use bitcoin::p2p::message_bloom::{BloomFlags, FilterAdd, FilterLoad};
use bitcoin::p2p::message_filter::{GetCFHeaders, GetCFilters};
use bitcoin::{Block, OutPoint, ScriptBuf, Transaction, Txid, Witness};

use super::super::tests::{add, chain_of};
use super::*;
use crate::btc::bip37::UpdateMode;
use crate::btc::bip157::BASIC_FILTER;
use crate::btc::tests::{extend, hashes, mine, next_block, reward, spend};
use testkit::Rng;

const ALL: Config =
    Config { bip37: true, bip157: true, accept_transactions: false, fee_filter: None };
const OPEN: Config = Config { accept_transactions: true, ..ALL };
/// The inventory type `MSG_FILTERED_BLOCK` of BIP37.
const FILTERED: u32 = 3;
/// Unix time in seconds at which peers connect in these tests.
const CONNECTED: Duration = Duration::from_secs(1_700_000_000);

/// Everything that the node does after an event, until all messages are written.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    sent: Vec<NetworkMessage>,
    accepted: Vec<Transaction>,
    disconnected: Option<Reason>,
}

/// Handles an event at a time after [`CONNECTED`], and writes all messages.
fn drive_at(peer: &mut Peer, chain: &ServedChain, event: Event, after: Duration) -> Outcome {
    let mut outcome = Outcome::default();
    let mut next = Some(event);
    while let Some(event) = next.take() {
        for action in peer.handle(chain, event, CONNECTED + after) {
            assert_eq!(outcome.disconnected, None, "action after the disconnect");
            match action {
                Action::Send(message) => {
                    outcome.sent.push(message);
                    assert!(next.replace(Event::Sent).is_none(), "one message at a time");
                    assert!(!peer.is_idle());
                }
                Action::Accept(tx) => outcome.accepted.push(tx),
                Action::Disconnect(reason) => outcome.disconnected = Some(reason),
                Action::Ready => assert!(peer.is_ready()),
            }
        }
    }
    assert!(peer.is_idle());
    outcome
}

fn drive(peer: &mut Peer, chain: &ServedChain, event: Event) -> Outcome {
    drive_at(peer, chain, event, Duration::ZERO)
}

/// Returns the messages that the node sends after an event. The peer must stay connected.
fn said(peer: &mut Peer, chain: &ServedChain, event: Event) -> Vec<NetworkMessage> {
    let Outcome { sent, accepted, disconnected } = drive(peer, chain, event);
    assert_eq!((accepted, disconnected), (vec![], None));
    sent
}

/// Returns the messages that the node sends after a message. The peer must stay connected.
fn ask(peer: &mut Peer, chain: &ServedChain, message: NetworkMessage) -> Vec<NetworkMessage> {
    said(peer, chain, Event::Message(message))
}

/// Returns the violation for which the node disconnects the peer after a message.
fn refused(peer: &mut Peer, chain: &ServedChain, message: NetworkMessage) -> Reason {
    let outcome = drive(peer, chain, Event::Message(message));
    assert_eq!((outcome.sent, outcome.accepted), (vec![], vec![]));
    let Some(violation) = outcome.disconnected else {
        panic!("the peer stays: {:?}", outcome.disconnected)
    };
    violation
}

fn connect(chain: &ServedChain, config: Config, nonce: u64) -> Peer {
    Peer::new(config, chain, nonce, CONNECTED)
}

fn hello(relay: bool) -> NetworkMessage {
    let nowhere = Address::new(&([0, 0, 0, 0], 0).into(), ServiceFlags::NONE);
    NetworkMessage::Version(VersionMessage {
        version: 70_016,
        services: ServiceFlags::NONE,
        timestamp: 0,
        receiver: nowhere.clone(),
        sender: nowhere,
        nonce: 5,
        user_agent: "/a wallet/".into(),
        start_height: 0,
        relay,
    })
}

/// Returns a peer after its handshake.
fn met(chain: &ServedChain, config: Config, relay: bool) -> Peer {
    let mut peer = connect(chain, config, 1);
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

fn announced(peer: &mut Peer, chain: &ServedChain) -> Vec<NetworkMessage> {
    said(peer, chain, Event::ChainChanged)
}

fn inv(items: impl IntoIterator<Item = Inventory>) -> NetworkMessage {
    NetworkMessage::Inv(items.into_iter().collect())
}

const NONE: [NetworkMessage; 0] = [];

#[test]
fn the_handshake_is_answered_and_comes_first() {
    let chain = chain_of(&mine(2));
    let mut peer = connect(&chain, ALL, 77);
    // The server does not send the first message.
    assert_eq!(said(&mut peer, &chain, Event::Tick), NONE);
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
    // A second `version` is ignored.
    assert_eq!(ask(&mut peer, &chain, hello(false)), NONE);
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::GetAddr), NONE);
}

#[test]
fn only_what_is_offered_has_a_bit() {
    let chain = chain_of(&mine(1));
    let services = |bip37, bip157| Config { bip37, bip157, ..ALL }.services(&chain);
    let node = ServiceFlags::NETWORK | ServiceFlags::WITNESS;
    assert_eq!(services(false, false), node);
    assert_eq!(services(true, false), node | ServiceFlags::BLOOM);
    assert_eq!(services(false, true), node | ServiceFlags::COMPACT_FILTERS);
    let mut blocks = mine(1);
    let elsewhere = OutPoint { txid: Txid::all_zeros(), vout: 7 };
    blocks.push(next_block(&blocks, 0, vec![spend(elsewhere, ScriptBuf::new(), 1)]));
    let mut chain = chain_of(&blocks[..1]);
    add(&mut chain, &blocks[1..]);
    assert_eq!(ALL.services(&chain), node | ServiceFlags::BLOOM, "a filter is missing");
}

#[test]
fn headers_follow_the_locator() {
    let blocks = mine(2_003);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let genesis = chain.headers().hash_at(0).expect("genesis");
    let headers = |range: Range<usize>| {
        [NetworkMessage::Headers(blocks[range].iter().map(|block| block.header).collect())]
    };
    let none = BlockHash::all_zeros();
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![genesis], none)), headers(0..2_000));
    let at = |index: usize| blocks[index].block_hash();
    let answer = ask(&mut peer, &chain, get_headers(vec![none, at(1_999), genesis], none));
    assert_eq!(answer, headers(2_000..2_003));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![genesis], at(4))), headers(0..5));
    // An empty `headers` is an answer too. A request for an unknown block gets no answer.
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![at(2_002)], none)), headers(0..0));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![], at(7))), headers(7..8));
    assert_eq!(ask(&mut peer, &chain, get_headers(vec![], none)), NONE);
    let long = get_headers(vec![genesis; 102], none);
    assert_eq!(refused(&mut peer, &chain, long), Reason::Locator(102));
}

#[test]
fn blocks_are_named_by_five_hundred_and_the_tip_follows_the_last() {
    let blocks = mine(1_001);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let names = |range: Range<usize>| {
        [inv(blocks[range].iter().map(|block| Inventory::Block(block.block_hash())))]
    };
    let none = BlockHash::all_zeros();
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![], none)), names(0..500));
    let block = |index: usize| NetworkMessage::Block(blocks[index].clone());
    let want = |range: Range<usize>| {
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
    // The `inv` with the tip follows a filtered block and its matched transactions.
    ask(&mut peer, &chain, filter(&[], UpdateMode::None));
    let last = &blocks[999];
    ask(&mut peer, &chain, filter(&[last.txdata[0].compute_txid().as_ref()], UpdateMode::None));
    let answer = ask(&mut peer, &chain, filtered(last.block_hash()));
    assert_eq!(answer.len(), 3, "{answer:?}");
    assert_eq!(answer[1..], [NetworkMessage::Tx(last.txdata[0].clone()), tip]);
    // The answer does not include the stop block.
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![at(2)], at(5))), names(3..5));
    assert_eq!(ask(&mut peer, &chain, get_blocks(vec![at(1_000)], none)), NONE);
    let long = get_blocks(vec![none; 102], none);
    assert_eq!(refused(&mut peer, &chain, long), Reason::Locator(102));
}

/// Returns blocks and a chain of them. The second transaction of the last block has a witness.
fn with_witness() -> (Vec<Block>, ServedChain) {
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
    // A transaction in a block is not served. Missing transactions are listed in `notfound`, but
    // missing blocks are not.
    let missing = NetworkMessage::NotFound(vec![items[3]]);
    assert_eq!(answer, [NetworkMessage::Block(bare), NetworkMessage::Block(block), missing]);
    let too_many = NetworkMessage::GetData(vec![items[0]; 50_001]);
    assert_eq!(refused(&mut peer, &chain, too_many), Reason::TooManyItems(50_001));
}

#[test]
fn a_filtered_block_is_followed_by_what_matched_without_witnesses() {
    let (mut blocks, _) = with_witness();
    // One transaction matches the filter, another spends its output in the same block, and a third
    // does not match.
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
    // Outpoints that match this filter are not added to it.
    ask(&mut peer, &chain, filter(&[&[0x77]], UpdateMode::None));
    check(&ask(&mut peer, &chain, filtered(at(4))), 4, &[(1, &mine)]);
    ask(&mut peer, &chain, NetworkMessage::FilterAdd(FilterAdd { data: coin_bytes(&mine) }));
    check(&ask(&mut peer, &chain, filtered(at(4))), 4, &[(1, &mine), (3, &spends)]);
    ask(&mut peer, &chain, NetworkMessage::FilterClear);
    assert_eq!(ask(&mut peer, &chain, filtered(at(4))), NONE, "no filter");
}

fn coin_bytes(tx: &Transaction) -> Vec<u8> {
    serialize(&OutPoint { txid: tx.compute_txid(), vout: 0 })
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
    let refuses = |messages: Vec<NetworkMessage>, why: Reason| {
        let mut peer = met(&chain, ALL, true);
        let mut messages = messages;
        let last = messages.pop().expect("one");
        for message in messages {
            assert_eq!(ask(&mut peer, &chain, message), NONE);
        }
        assert_eq!(refused(&mut peer, &chain, last), why);
    };
    let filter = Reason::BloomFilter;
    refuses(vec![load(36_000, 50), load(36_001, 50)], filter(PayloadError::FilterTooLarge(36_001)));
    refuses(vec![load(36_000, 51)], filter(PayloadError::TooManyHashFuncs(51)));
    refuses(vec![load(9, 1), add(520), add(521)], filter(PayloadError::DataTooLarge(521)));
    refuses(vec![load(9, 1), NetworkMessage::FilterClear, add(1)], Reason::NoFilter);
    let bare = Config { bip37: false, bip157: false, ..ALL };
    let stop = chain.tip().hash;
    let request = GetCFilters { filter_type: BASIC_FILTER, start_height: 0, stop_hash: stop };
    for message in [load(9, 1), add(1), NetworkMessage::FilterClear, NetworkMessage::MemPool] {
        let mut peer = met(&chain, bare, true);
        let why = refused(&mut peer, &chain, message);
        assert!(matches!(why, Reason::NotOffered(_)), "{why:?}");
    }
    let mut peer = met(&chain, bare, true);
    let why = refused(&mut peer, &chain, NetworkMessage::GetCFilters(request));
    assert!(matches!(why, Reason::NotOffered(_)), "{why:?}");
}

/// Core masks the flags with 3 and ignores trailing bytes. The crate `bitcoin` decodes neither
/// unknown flags nor trailing bytes.
#[test]
fn odd_filters_that_core_takes_are_taken() {
    let chain = chain_of(&mine(1));
    let mut peer = met(&chain, ALL, true);
    let message = |message| serialize(&RawNetworkMessage::new(Magic::REGTEST, message));
    let mut payload = message(filter(&[b"x"], UpdateMode::All)).split_off(24);
    *payload.last_mut().expect("flags") = 0x83;
    payload.push(0);
    let command = "filterload".to_owned().try_into().expect("short");
    let odd = message(NetworkMessage::Unknown { command, payload: payload.clone() });
    assert!(deserialize::<RawNetworkMessage>(&odd).is_err());
    assert_eq!(said(&mut peer, &chain, Event::FilterLoad(payload.clone())), NONE);
    let answer = ask(&mut peer, &chain, filtered(chain.tip().hash));
    assert!(matches!(answer[..], [NetworkMessage::MerkleBlock(_)]), "{answer:?}");
    // `Event::FilterLoad` is ignored before the handshake. The peer is disconnected for a truncated
    // payload, and if the node does not offer Bloom filters.
    let mut stranger = connect(&chain, ALL, 1);
    assert_eq!(said(&mut stranger, &chain, Event::FilterLoad(payload.clone())), NONE);
    ask(&mut stranger, &chain, hello(true));
    ask(&mut stranger, &chain, NetworkMessage::Verack);
    assert_eq!(ask(&mut stranger, &chain, filtered(chain.tip().hash)), NONE, "no filter");
    let outcome = drive(&mut peer, &chain, Event::FilterLoad(payload[..5].to_vec()));
    let reason = outcome.disconnected.expect("it is truncated");
    assert!(reason.is_misbehaviour());
    assert!(!peer.is_ready());
    let mut bare = met(&chain, Config { bip37: false, ..ALL }, true);
    let outcome = drive(&mut bare, &chain, Event::FilterLoad(payload));
    let not_offered = Reason::NotOffered("filterload");
    assert_eq!(outcome.disconnected, Some(not_offered));
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
    let why = refused(&mut peer, &chain, NetworkMessage::GetCFHeaders(request));
    assert!(matches!(why, Reason::UnknownStop(_)), "{why:?}");
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
    add(&mut chain, &blocks);
    assert_eq!(announced(&mut plain, &chain), tip(&blocks));
    // The node does not know which headers the peer has, so it sends an `inv`.
    assert_eq!(announced(&mut headers, &chain), tip(&blocks));
    let locator = get_headers(vec![blocks[4].block_hash()], BlockHash::all_zeros());
    assert_eq!(ask(&mut headers, &chain, locator), of(&[]));
    extend(&mut blocks, 2, 0);
    add(&mut chain, &blocks);
    assert_eq!(announced(&mut headers, &chain), of(&blocks[5..]));
    assert_eq!(announced(&mut headers, &chain), NONE, "said once");
    // After a reorganisation, the headers from the fork on are announced.
    let mut theirs = blocks[..4].to_vec();
    extend(&mut theirs, 4, 1);
    add(&mut chain, &theirs);
    assert_eq!(announced(&mut headers, &chain), of(&theirs[4..]));
    assert_eq!(announced(&mut plain, &chain), tip(&theirs));
    // There are too many new blocks for an announcement by `headers`.
    extend(&mut theirs, 9, 1);
    add(&mut chain, &theirs);
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
    chain.set_transactions([&child, &parent, &other].map(|tx| Arc::new(tx.clone())));
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
    // `mempool` (BIP35) lists announced transactions too, even for a peer that wants no
    // announcements.
    assert_eq!(names(ask(&mut none, &chain, NetworkMessage::MemPool)).len(), 3);
    let mempool = ask(&mut mine, &chain, NetworkMessage::MemPool);
    assert_eq!(names(mempool), [id(&parent), id(&child)]);
    // Three requests are for one known transaction: with witnesses, without witnesses, and by
    // wtxid. One request is for an unknown transaction.
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
    // Transactions from before the connection are not announced, even if the peer wants
    // announcements from now on.
    for relay in [true, false] {
        let mut late = met(&chain, ALL, relay);
        assert_eq!(announced(&mut late, &chain), NONE);
        ask(&mut late, &chain, NetworkMessage::FilterClear);
        assert_eq!(announced(&mut late, &chain), NONE);
        assert_eq!(names(ask(&mut late, &chain, NetworkMessage::MemPool)).len(), 3);
    }
    // As in Core, all transactions are announced to a peer without a filter.
    ask(&mut none, &chain, NetworkMessage::FilterClear);
    chain.set_transactions([&child, &parent].map(|tx| Arc::new(tx.clone())));
    assert_eq!(announced(&mut none, &chain), NONE, "all were named");
    chain.set_transactions([&child, &parent, &other].map(|tx| Arc::new(tx.clone())));
    assert_eq!(names(announced(&mut none, &chain)), [id(&other)], "it is back");
}

/// Core's `ProcessGetData` ignores the transactions of a `getdata` if it keeps no state of
/// transaction relay for the peer (`TxRelay`). On `version`, Core creates this state if the peer
/// wants transactions announced, or if the node offers `NODE_BLOOM`, because the peer may then load
/// a filter.
#[test]
fn a_peer_that_wants_no_transactions_gets_none_unless_bloom_filters_are_offered() {
    let blocks = mine(2);
    let mut chain = chain_of(&blocks);
    let tx = spend(reward(&blocks[0]), ScriptBuf::from_bytes(vec![0x51]), 1);
    chain.set_transactions([Arc::new(tx.clone())]);
    let nobody = Inventory::WitnessTransaction(Txid::all_zeros());
    let items = [
        Inventory::WitnessTransaction(tx.compute_txid()),
        nobody,
        Inventory::WTx(tx.compute_wtxid()),
        Inventory::WitnessBlock(blocks[0].block_hash()),
    ];
    let block = NetworkMessage::Block(blocks[0].clone());
    let missing = NetworkMessage::NotFound(vec![nobody]);
    for (bip37, relay) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut peer = met(&chain, Config { bip37, ..ALL }, relay);
        let answer = ask(&mut peer, &chain, NetworkMessage::GetData(items.to_vec()));
        let expected = if bip37 || relay {
            let tx = NetworkMessage::Tx(tx.clone());
            vec![tx.clone(), tx, block.clone(), missing.clone()]
        } else {
            // There is no `notfound` for what is ignored.
            vec![block.clone()]
        };
        assert_eq!(answer, expected, "bip37 {bip37}, relay {relay}");
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn the_version_has_the_time_and_old_versions_are_refused() {
    let chain = chain_of(&mine(1));
    let version = |change: fn(&mut VersionMessage)| {
        let NetworkMessage::Version(mut version) = hello(true) else { panic!("a version") };
        change(&mut version);
        NetworkMessage::Version(version)
    };
    let mut peer = connect(&chain, ALL, 1);
    let event = Event::Message(version(|version| version.version = 31_800));
    let outcome = drive_at(&mut peer, &chain, event, secs(7));
    let Some(NetworkMessage::Version(sent)) = outcome.sent.first() else { panic!("{outcome:?}") };
    assert_eq!(sent.timestamp, 1_700_000_007);
    assert_eq!((peer.protocol(), peer.user_agent()), (31_800, "/a wallet/"));
    let why = |message| refused(&mut connect(&chain, ALL, 1), &chain, message);
    assert_eq!(why(version(|version| version.version = 31_799)), Reason::Protocol(31_799));
    let long = |version: &mut VersionMessage| version.user_agent = "a".repeat(257);
    assert_eq!(why(version(long)), Reason::UserAgent(257));
}

#[test]
fn who_does_not_shake_hands_within_a_minute_is_let_go() {
    let chain = chain_of(&mine(1));
    for messages in [vec![], vec![hello(true)]] {
        let mut peer = connect(&chain, ALL, 1);
        for message in messages {
            ask(&mut peer, &chain, message);
        }
        assert_eq!(drive_at(&mut peer, &chain, Event::Tick, secs(60)), Outcome::default());
        let reason = drive_at(&mut peer, &chain, Event::Tick, secs(61)).disconnected;
        assert_eq!(reason, Some(Reason::HandshakeTimeout));
        // A closed connection returns no further actions.
        assert_eq!(drive(&mut peer, &chain, Event::Message(hello(true))), Outcome::default());
    }
}

#[test]
fn a_silent_peer_is_pinged_every_two_minutes_and_let_go_after_twenty() {
    let chain = chain_of(&mine(1));
    let tick = |peer: &mut Peer, at| drive_at(peer, &chain, Event::Tick, secs(at));
    let ping = |peer: &mut Peer, at| {
        let outcome = tick(peer, at);
        let [NetworkMessage::Ping(nonce)] = outcome.sent[..] else { panic!("{outcome:?}") };
        nonce
    };
    let mut peer = met(&chain, ALL, true);
    assert_eq!(tick(&mut peer, 120), Outcome::default());
    let first = ping(&mut peer, 121);
    assert_eq!(tick(&mut peer, 500), Outcome::default(), "one at a time");
    // A wrong nonce does not answer the ping.
    let pong = |nonce| Event::Message(NetworkMessage::Pong(nonce));
    drive_at(&mut peer, &chain, pong(first ^ 1), secs(500));
    assert_eq!(tick(&mut peer, 501), Outcome::default());
    // Two minutes have passed since the first ping, so the next ping is due at once.
    let outcome = drive_at(&mut peer, &chain, pong(first), secs(502));
    let [NetworkMessage::Ping(second)] = outcome.sent[..] else { panic!("{outcome:?}") };
    assert_ne!(first, second);
    // The peer sends other messages, but does not answer the ping.
    drive_at(&mut peer, &chain, Event::Message(NetworkMessage::GetAddr), secs(1_600));
    assert_eq!(tick(&mut peer, 1_702).disconnected, None);
    assert_eq!(tick(&mut peer, 1_703).disconnected, Some(Reason::PingTimeout));
    let mut peer = met(&chain, ALL, true);
    ping(&mut peer, 600);
    assert_eq!(tick(&mut peer, 1_200).disconnected, None);
    let reason = tick(&mut peer, 1_201).disconnected.expect("silent for 20 minutes");
    assert_eq!(reason, Reason::Silent);
    assert!(!reason.is_misbehaviour());
}

/// The node does not read while it writes a long reply. The time of writing is therefore not
/// treated as silence of the peer.
#[test]
fn the_time_of_a_long_reply_counts_for_no_timeout() {
    let blocks = mine(3);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let outcome = drive_at(&mut peer, &chain, Event::Tick, secs(121));
    assert!(matches!(outcome.sent[..], [NetworkMessage::Ping(_)]), "{outcome:?}");
    let items = hashes(&blocks).into_iter().map(Inventory::Block).collect();
    let request = Event::Message(NetworkMessage::GetData(items));
    // Writing each block takes 20 minutes.
    for (number, event) in [request, Event::Sent, Event::Sent].into_iter().enumerate() {
        let now = CONNECTED + secs(130 + 1_200 * number as u64);
        let [Action::Send(NetworkMessage::Block(block))] = &peer.handle(&chain, event, now)[..]
        else {
            panic!("block {number}")
        };
        assert_eq!(*block, blocks[number]);
        assert_eq!(peer.handle(&chain, Event::Tick, now + secs(1)), []);
        assert!(!peer.is_idle());
    }
    let done = CONNECTED + secs(130 + 3_600);
    assert_eq!(peer.handle(&chain, Event::Sent, done), []);
    assert!(peer.is_idle());
    // The ping waited for 9 s before the reply, so 1,191 s of its timeout remain.
    assert_eq!(peer.handle(&chain, Event::Tick, done + secs(1_191)), []);
    let actions = peer.handle(&chain, Event::Tick, done + secs(1_192));
    assert_eq!(actions, [Action::Disconnect(Reason::PingTimeout)]);
}

#[test]
fn a_reply_is_made_one_message_at_a_time() {
    let blocks = mine(1_000);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let stop_hash = blocks[999].block_hash();
    let request = GetCFilters { filter_type: BASIC_FILTER, start_height: 1, stop_hash };
    let mut event = Event::Message(NetworkMessage::GetCFilters(request));
    for block in &blocks {
        let [Action::Send(NetworkMessage::CFilter(filter))] =
            &peer.handle(&chain, event, CONNECTED)[..]
        else {
            panic!("a filter")
        };
        assert_eq!(filter.block_hash, block.block_hash());
        // Only a list of block hashes is pending.
        assert_eq!(peer.outbox.len(), 1);
        for other in [Event::Tick, Event::ChainChanged] {
            assert_eq!(peer.handle(&chain, other, CONNECTED), [], "one is being written");
        }
        event = Event::Sent;
    }
    assert_eq!(peer.handle(&chain, event, CONNECTED), []);
}

/// A caller that reads further requests while it writes is stopped before the answers fill the
/// memory.
#[test]
fn answers_do_not_pile_up() {
    let blocks = mine(1);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let items = vec![Inventory::Block(blocks[0].block_hash()); 50_000];
    let mut waiting = 0;
    let reason = loop {
        let request = Event::Message(NetworkMessage::GetData(items.clone()));
        match &peer.handle(&chain, request, CONNECTED)[..] {
            [Action::Disconnect(reason)] => break reason.clone(),
            [Action::Send(_)] if waiting == 0 => {}
            [] => {}
            other => panic!("{other:?}"),
        }
        waiting += 1;
    };
    assert_eq!((waiting, &reason), (16, &Reason::Backlog(16)));
    assert!(!reason.is_misbehaviour(), "the caller is at fault");
}

/// Returns a transaction with a witness that spends the reward of `block`.
fn payment(block: &Block) -> Transaction {
    let mut tx = spend(reward(block), ScriptBuf::from_bytes(vec![1, 0x77]), 3);
    tx.input[0].witness = Witness::from_slice(&[[9; 64]]);
    tx
}

/// The order of messages in Bitcoin Core: `inv`, `getdata`, `tx`, then announcements to other
/// peers.
#[test]
fn a_transaction_that_is_offered_is_asked_for_taken_and_announced_to_others() {
    let blocks = mine(3);
    let mut chain = chain_of(&blocks);
    let tx = payment(&blocks[0]);
    let id = Inventory::Transaction(tx.compute_txid());
    let offer = |tx: &Transaction| inv([Inventory::Transaction(tx.compute_txid())]);
    let mut wallet = met(&chain, OPEN, false);
    let (mut all, mut none) = (met(&chain, OPEN, true), met(&chain, OPEN, false));
    let mut other = met(&chain, OPEN, false);
    ask(&mut other, &chain, filter(&[&[0x77]], UpdateMode::All));
    let mut stranger = met(&chain, OPEN, false);
    ask(&mut stranger, &chain, filter(&[&[0x78]], UpdateMode::All));
    // The wallet's filter also matches the wallet's own payment.
    ask(&mut wallet, &chain, filter(&[&[0x77]], UpdateMode::All));
    // The wallet does not offer `NODE_WITNESS`, so the request asks for no witnesses, as in Core.
    let asked = [NetworkMessage::GetData(vec![id])];
    assert_eq!(ask(&mut wallet, &chain, offer(&tx)), asked);
    assert_eq!(ask(&mut wallet, &chain, offer(&tx)), NONE, "asked for once");
    let delivery = Event::Message(NetworkMessage::Tx(tx.clone()));
    let outcome = drive(&mut wallet, &chain, delivery.clone());
    assert_eq!((&outcome.sent[..], &outcome.accepted[..]), (&NONE[..], &[tx.clone()][..]));
    chain.add_transaction(tx.clone()).expect("it spends what is there");
    assert_eq!(announced(&mut wallet, &chain), NONE, "it came from there");
    assert_eq!(announced(&mut all, &chain), [inv([id])]);
    assert_eq!(announced(&mut none, &chain), NONE);
    assert_eq!(announced(&mut other, &chain), [inv([id])]);
    assert_eq!(announced(&mut stranger, &chain), NONE);
    // The transaction is served. It is not requested again when another peer offers it.
    let whole = Inventory::WitnessTransaction(tx.compute_txid());
    let answer = ask(&mut other, &chain, NetworkMessage::GetData(vec![whole]));
    assert_eq!(answer, [NetworkMessage::Tx(tx.clone())]);
    assert_eq!(ask(&mut other, &chain, offer(&tx)), NONE);
    let wtxid = Inventory::WTx(tx.compute_wtxid());
    assert_eq!(ask(&mut other, &chain, inv([wtxid])), NONE);
    assert_eq!(drive(&mut other, &chain, delivery), Outcome::default());
    // A peer that requests the mempool also gets its own transactions listed (BIP35).
    assert_eq!(ask(&mut wallet, &chain, NetworkMessage::MemPool), [inv([id])]);
    // This child spends an output that was added to the filter.
    let coin = OutPoint { txid: tx.compute_txid(), vout: 0 };
    let child = spend(coin, ScriptBuf::from_bytes(vec![0x51]), 2);
    let outcome = drive(&mut all, &chain, Event::Message(NetworkMessage::Tx(child.clone())));
    assert_eq!(outcome.accepted.first(), Some(&child), "accepted without a request, as in Core");
    chain.add_transaction(child.clone()).expect("its parent is there");
    let id = Inventory::Transaction(child.compute_txid());
    assert_eq!(announced(&mut wallet, &chain), [inv([id])]);
}

#[test]
fn a_node_of_its_own_transactions_takes_none() {
    let blocks = mine(2);
    let chain = chain_of(&blocks);
    let mut peer = met(&chain, ALL, true);
    let tx = payment(&blocks[0]);
    let offer = inv([Inventory::Transaction(tx.compute_txid())]);
    assert_eq!(ask(&mut peer, &chain, offer), NONE);
    assert_eq!(ask(&mut peer, &chain, NetworkMessage::Tx(tx)), NONE);
}

/// The limits of Core: 100 requests in flight, 5,000 offers per peer, one minute per request.
#[test]
fn offers_and_requests_are_bounded() {
    let chain = chain_of(&mine(1));
    let mut peer = connect(&chain, OPEN, 1);
    let NetworkMessage::Version(mut version) = hello(true) else { panic!("a version") };
    version.services = ServiceFlags::WITNESS;
    ask(&mut peer, &chain, NetworkMessage::Version(version));
    ask(&mut peer, &chain, NetworkMessage::Verack);
    let txid = |number: u32| {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        Txid::from_byte_array(bytes)
    };
    let offer = |range: Range<u32>| inv(range.map(txid).map(Inventory::Transaction));
    let whole = |range: Range<u32>| -> Vec<_> {
        range.map(txid).map(Inventory::WitnessTransaction).collect()
    };
    let asks = |range| [NetworkMessage::GetData(whole(range))];
    // The peer offers `NODE_WITNESS`, so the requests ask for witnesses.
    assert_eq!(ask(&mut peer, &chain, offer(0..50_000)), asks(0..100));
    assert_eq!(ask(&mut peer, &chain, offer(0..50_000)), NONE);
    let too_many = inv(vec![Inventory::Transaction(txid(0)); 50_001]);
    let mut other = met(&chain, OPEN, true);
    assert_eq!(refused(&mut other, &chain, too_many), Reason::TooManyItems(50_001));
    // For each transaction that the peer lacks, the node may send one more request.
    let lacks = |range| NetworkMessage::NotFound(whole(range));
    assert_eq!(ask(&mut peer, &chain, lacks(0..30)), asks(100..130));
    let tick = |peer: &mut Peer, at| drive_at(peer, &chain, Event::Tick, secs(at)).sent;
    assert_eq!(tick(&mut peer, 59), NONE);
    let (mut asked, mut at) = (130, 0);
    loop {
        let before = asked;
        at += 60;
        let talks = Event::Message(NetworkMessage::GetAddr);
        for message in drive_at(&mut peer, &chain, talks, secs(at)).sent {
            match message {
                NetworkMessage::Ping(nonce) => {
                    let pong = Event::Message(NetworkMessage::Pong(nonce));
                    assert_eq!(drive_at(&mut peer, &chain, pong, secs(at)), Outcome::default());
                }
                NetworkMessage::GetData(items) => {
                    asked += u32::try_from(items.len()).unwrap();
                    assert_eq!(items, whole(before..asked));
                }
                other => panic!("{other:?}"),
            }
        }
        if asked == before {
            break;
        }
    }
    // The node asks only for the first 5,000 offers of the first `inv`. All other offers were
    // ignored.
    assert_eq!(asked, 5_000);
}

#[test]
fn the_fee_filter_comes_after_verack_to_those_who_know_it() {
    let chain = chain_of(&mine(1));
    for (rate, protocol, sent) in [
        (None, 70_016, None),
        (Some(1_234), 70_016, Some(1_234)),
        (Some(1_234), 70_013, Some(1_234)),
        (Some(1_234), 70_012, None),
        (Some(u64::MAX), 70_016, Some(i64::MAX)),
    ] {
        let mut peer = connect(&chain, Config { fee_filter: rate, ..ALL }, 1);
        let NetworkMessage::Version(mut version) = hello(true) else { panic!("a version") };
        version.version = protocol;
        assert_eq!(ask(&mut peer, &chain, NetworkMessage::Version(version)).len(), 2);
        let expected: Vec<_> = sent.map(NetworkMessage::FeeFilter).into_iter().collect();
        assert_eq!(ask(&mut peer, &chain, NetworkMessage::Verack), expected);
    }
}

/// Draws random messages with valid and invalid parts.
struct Draws(Rng);

impl Draws {
    fn hash(&mut self, known: &[BlockHash]) -> BlockHash {
        let index = self.0.below(known.len() + 2);
        known.get(index).copied().unwrap_or_else(BlockHash::all_zeros)
    }

    fn height(&mut self) -> u32 {
        *self.0.pick(&[0, 1, 5, 12, u32::MAX])
    }

    fn item(&mut self, known: &[BlockHash], txs: &[Transaction]) -> Inventory {
        let hash = self.hash(known);
        let tx = self.0.pick(txs);
        match self.0.below(9) {
            0 => Inventory::Error,
            1 => Inventory::Transaction(tx.compute_txid()),
            2 => Inventory::WitnessTransaction(tx.compute_txid()),
            3 => Inventory::WTx(tx.compute_wtxid()),
            4 => Inventory::Block(hash),
            5 => Inventory::WitnessBlock(hash),
            6 => Inventory::CompactBlock(hash),
            7 => Inventory::Unknown { inv_type: FILTERED, hash: hash.to_byte_array() },
            _ => Inventory::Unknown { inv_type: u32::MAX, hash: [1; 32] },
        }
    }

    fn items(&mut self, known: &[BlockHash], txs: &[Transaction]) -> Vec<Inventory> {
        (0..self.0.below(6)).map(|_| self.item(known, txs)).collect()
    }

    fn message(&mut self, known: &[BlockHash], txs: &[Transaction]) -> NetworkMessage {
        use bitcoin::p2p::message_filter::GetCFCheckpt;
        let filter_type = u8::from(self.0.one_in(8));
        let (start_height, stop_hash) = (self.height(), self.hash(known));
        let locator = (0..self.0.below(4)).map(|_| self.hash(known)).collect();
        match self.0.below(20) {
            0 => hello(self.0.one_in(2)),
            1 => NetworkMessage::Verack,
            2 => NetworkMessage::SendHeaders,
            3 => NetworkMessage::Ping(self.0.u64() % 9),
            4 => NetworkMessage::Pong(self.0.u64() % 9),
            5 => get_headers(locator, stop_hash),
            6 => get_blocks(locator, stop_hash),
            7 | 8 => NetworkMessage::GetData(self.items(known, txs)),
            9 | 10 => NetworkMessage::Inv(self.items(known, txs)),
            11 => NetworkMessage::NotFound(self.items(known, txs)),
            12 => NetworkMessage::MemPool,
            13 => filter(&[&[0x77]], UpdateMode::All),
            14 => NetworkMessage::FilterAdd(FilterAdd { data: vec![0x51] }),
            15 => NetworkMessage::FilterClear,
            16 => NetworkMessage::GetCFilters(GetCFilters { filter_type, start_height, stop_hash }),
            17 => {
                NetworkMessage::GetCFHeaders(GetCFHeaders { filter_type, start_height, stop_hash })
            }
            18 => NetworkMessage::GetCFCheckpt(GetCFCheckpt { filter_type, stop_hash }),
            _ => NetworkMessage::Tx(self.0.pick(txs).clone()),
        }
    }
}

/// Random messages in random order, mixed with reorganisations and transactions. The machine must
/// not panic and must send one message at a time. The machine must send only handshake messages
/// before the end of the handshake, and nothing after the disconnect.
#[test]
fn no_sequence_of_messages_breaks_the_machine() {
    let ours = mine(8);
    let mut theirs = ours[..4].to_vec();
    extend(&mut theirs, 9, 1);
    let mut known = [hashes(&ours), hashes(&theirs[4..])].concat();
    known.push(chain_of(&[]).tip().hash);
    let tx = payment(&ours[0]);
    let child = spend(OutPoint { txid: tx.compute_txid(), vout: 0 }, ScriptBuf::new(), 1);
    let mut own = spend(reward(&ours[1]), ScriptBuf::from_bytes(vec![1, 0x77]), 1);
    own.input.clear();
    let txs = [tx, child, spend(reward(&ours[1]), ScriptBuf::new(), 1), own];
    let (mut handshakes, mut ends, mut accepted, mut messages) = (0_u32, 0, 0, 0);
    for seed in 1..=3_000 {
        let mut draws = Draws(Rng::new(seed));
        let mut chain = chain_of(&ours);
        let config = Config {
            bip37: draws.0.below(4) > 0,
            bip157: draws.0.below(4) > 0,
            accept_transactions: draws.0.below(4) > 0,
            fee_filter: Some(1_000).filter(|_| draws.0.one_in(2)),
        };
        let mut peer = connect(&chain, config, draws.0.u64() % 9);
        let (mut now, mut is_sending, mut is_over) = (Duration::ZERO, false, false);
        let mut opening = vec![NetworkMessage::Verack, hello(true)];
        for step in 0..60 {
            now += secs(*draws.0.pick(&[0, 0, 1, 30, 130]));
            let event = match draws.0.below(16) {
                0 => Event::Tick,
                1 => Event::FilterLoad(
                    (0..draws.0.below(12)).map(|_| *draws.0.pick(&[0, 1, 2, 3])).collect(),
                ),
                2 => {
                    let height = draws.0.below(theirs.len());
                    add(&mut chain, &theirs[4.min(height)..height]);
                    Event::ChainChanged
                }
                3..=9 if is_sending => Event::Sent,
                // In three of four runs, the first messages are a valid handshake.
                _ if step < 6 && seed % 4 > 0 => match opening.pop() {
                    Some(message) => Event::Message(message),
                    None => Event::Tick,
                },
                _ => Event::Message(draws.message(&known, &txs)),
            };
            is_sending &= event != Event::Sent;
            for action in peer.handle(&chain, event, now) {
                assert!(!is_over, "{action:?} after the end");
                match action {
                    Action::Send(message) => {
                        assert!(!is_sending, "two at a time");
                        is_sending = true;
                        messages += 1;
                        let raw = RawNetworkMessage::new(Magic::REGTEST, message.clone());
                        assert!(deserialize::<RawNetworkMessage>(&serialize(&raw)).is_ok());
                        let of_handshake =
                            matches!(message, NetworkMessage::Version(_) | NetworkMessage::Verack);
                        assert!(of_handshake || peer.is_ready(), "{message:?}");
                        if matches!(message, NetworkMessage::CFilter(_)) {
                            assert!(config.bip157);
                        }
                    }
                    Action::Ready => handshakes += 1,
                    Action::Accept(tx) => {
                        assert!(config.accept_transactions);
                        accepted += u32::from(chain.add_transaction(tx).is_ok());
                    }
                    Action::Disconnect(reason) => {
                        assert!(!peer.is_ready() && peer.is_idle(), "{reason}");
                        is_over = true;
                        ends += 1;
                    }
                }
            }
            assert_eq!(peer.is_idle(), is_over || !is_sending);
        }
    }
    // Each kind of outcome occurred often enough.
    let counts = [handshakes, ends, accepted, messages];
    let least = [1_000, 500, 50, 5_000];
    assert!(counts.iter().zip(least).all(|(count, least)| *count > least), "{counts:?}");
}
