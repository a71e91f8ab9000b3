//! Block downloads: which peer is asked, when a download fails, and which blocks are accepted.

use bitcoin::block::Header;
use bitcoin::{Amount, OutPoint, ScriptBuf, Witness};

use super::*;
use crate::btc::tests::{genesis, mine, mine_headers, next_block, spend};

const TIMEOUT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
const NETWORK: Network = Network::Regtest;
/// A Unix time later than the timestamp of every header in these tests.
const UNIX: Duration = Duration::from_secs(1_700_000_000);

/// A block after the genesis block. The block has a witness, to which the coinbase commits
/// (BIP141).
fn segwit_block() -> Block {
    let mut spends = spend(OutPoint { vout: 0, ..OutPoint::null() }, ScriptBuf::new(), 1);
    spends.input[0].witness = Witness::from_slice(&[[1; 32]]);
    next_block(&[], 0, std::vec![spends])
}

fn chain(headers: &[Header]) -> HeaderChain {
    let mut chain = HeaderChain::new(NETWORK);
    chain.accept(headers, UNIX).unwrap();
    chain
}

/// The pending downloads, the connected peers, the chain and the time.
struct World {
    asked: BlocksAsked,
    chain: HeaderChain,
    /// The connected peers, each with the number of blocks that the filter sync has in flight.
    peers: BTreeMap<PeerId, usize>,
    now: Duration,
}

impl World {
    fn new(chain: HeaderChain, peers: &[u64]) -> Self {
        let peers = peers.iter().map(|id| (PeerId(*id), 0)).collect();
        Self { asked: BlocksAsked::new(TIMEOUT), chain, peers, now: SECOND }
    }

    fn ask(&mut self, hash: BlockHash) -> Vec<Action> {
        self.asked.ask(hash, &self.chain, self.now)
    }

    fn next(&mut self) -> Vec<Action> {
        self.asked.next(&self.peers, &self.chain, self.now)
    }

    fn take(&mut self, from: u64, block: &Block) -> Option<Action> {
        self.asked.take(PeerId(from), block, NETWORK, self.now)
    }

    fn missing(&mut self, from: u64, hash: &BlockHash) {
        self.asked.missing(PeerId(from), hash, self.now);
    }
}

fn request(id: u64, hash: BlockHash) -> Action {
    let items = std::vec![Inventory::WitnessBlock(hash)];
    Action::Send(PeerId(id), NetworkMessage::GetData(items))
}

fn failed(hash: BlockHash, error: BlockError) -> Vec<Action> {
    std::vec![Action::Block(hash, Err(error))]
}

/// A world in which a block of the chain is requested from the first of two peers.
fn asked_of_one() -> (World, Block, BlockHash) {
    let block = segwit_block();
    let hash = block.block_hash();
    let mut world = World::new(chain(&[block.header]), &[1, 2]);
    assert_eq!(world.ask(hash), []);
    assert_eq!(world.next(), [request(1, hash)]);
    assert_eq!(world.next(), []);
    (world, block, hash)
}

#[test]
fn a_block_that_comes_is_given_out_once() {
    let (mut world, block, hash) = asked_of_one();
    let given = Action::Block(hash, Ok(Box::new(block.clone())));
    assert_eq!(world.take(1, &block), Some(given));
    assert_eq!(world.take(1, &block), None);
    assert_eq!(world.next(), []);
}

#[test]
fn an_overdue_block_is_asked_of_another_peer_too() {
    let (mut world, block, hash) = asked_of_one();
    world.now += TIMEOUT;
    assert_eq!(world.next(), []);
    world.now += SECOND;
    assert_eq!(world.next(), [request(2, hash)]);
    assert_eq!(world.next(), []);
    // Both peers may still send the block.
    world.now += TIMEOUT + SECOND;
    assert_eq!(world.next(), []);
    let given = Action::Block(hash, Ok(Box::new(block.clone())));
    assert_eq!(world.take(1, &block), Some(given));
    assert_eq!(world.take(2, &block), None);
    world.now += 9 * TIMEOUT;
    assert_eq!(world.next(), []);
}

#[test]
fn who_is_silent_for_four_timeouts_is_let_go() {
    let (mut world, block, hash) = asked_of_one();
    world.peers.remove(&PeerId(2));
    world.now += 4 * TIMEOUT;
    assert_eq!(world.next(), []);
    world.now += SECOND;
    let late = Reason::BlockStalled(hash, 4 * TIMEOUT + SECOND);
    assert_eq!(world.next(), [Action::Disconnect(PeerId(1), late)]);
    world.peers.remove(&PeerId(1));
    assert_eq!(world.next(), failed(hash, BlockError::Unavailable { hash, peers: 1 }));
    assert_eq!(world.take(1, &block), None);
}

#[test]
fn a_block_that_one_peer_lacks_is_asked_of_the_next() {
    let (mut world, _, hash) = asked_of_one();
    // A `notfound` from a peer that was not asked is ignored.
    world.missing(2, &hash);
    assert_eq!(world.next(), []);
    world.missing(1, &hash);
    assert_eq!(world.next(), [request(2, hash)]);
    world.missing(2, &hash);
    assert_eq!(world.next(), failed(hash, BlockError::Unavailable { hash, peers: 2 }));
}

#[test]
fn a_false_block_is_the_fault_of_who_was_asked_for_it() {
    let (mut world, block, hash) = asked_of_one();
    let mut forged = block.clone();
    forged.txdata[1].output[0].value = Amount::from_sat(2);
    assert_eq!(world.take(2, &forged), None);
    let lied = Action::Disconnect(PeerId(1), Reason::FalseBlock(hash));
    assert_eq!(world.take(1, &forged), Some(lied));
    // The download is still pending.
    assert!(matches!(world.take(2, &block), Some(Action::Block(of, Ok(_))) if of == hash));
}

#[test]
fn a_block_without_its_witnesses_is_asked_of_the_next() {
    let (mut world, block, hash) = asked_of_one();
    let mut stripped = block;
    for tx in &mut stripped.txdata {
        tx.input[0].witness = Witness::new();
    }
    assert_eq!(stripped.block_hash(), hash);
    // If another peer sends the block without witnesses, the request to the asked peer stays open.
    assert_eq!(world.take(2, &stripped), None);
    assert_eq!(world.next(), []);
    assert_eq!(world.take(1, &stripped), None);
    assert_eq!(world.next(), [request(2, hash)]);
}

#[test]
fn a_block_that_leaves_the_chain_is_given_up() {
    let (mut world, _, hash) = asked_of_one();
    world.chain.accept(&mine_headers(&genesis(), 2, 2, 1), UNIX).unwrap();
    assert_eq!(world.next(), failed(hash, BlockError::NotInChain(hash)));
    assert_eq!(world.ask(hash), failed(hash, BlockError::NotInChain(hash)));
}

/// Returns the blocks that these actions request, each with the peer.
fn requested(actions: &[Action]) -> Vec<(PeerId, BlockHash)> {
    let requests = actions.iter().flat_map(|action| match action {
        Action::Send(id, NetworkMessage::GetData(items)) => {
            items.iter().map(|item| (*id, *item)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    });
    let hash = |(id, item)| match item {
        Inventory::WitnessBlock(hash) => (id, hash),
        other => panic!("{other:?}"),
    };
    requests.map(hash).collect()
}

#[test]
fn only_so_many_are_asked_for_at_a_time() {
    let headers = mine_headers(&genesis(), MAX_OPEN + 1, 1, 1);
    let hashes: Vec<_> = headers.iter().map(Header::block_hash).collect();
    let mut world = World::new(chain(&headers), &[1]);
    for hash in &hashes[..MAX_OPEN] {
        assert_eq!(world.ask(*hash), []);
    }
    let last = hashes[MAX_OPEN];
    assert_eq!(world.ask(last), failed(last, BlockError::TooMany));
    // A second request for the same block does not add a pending download.
    assert_eq!(world.ask(hashes[0]), []);
    // A block that no peer has makes room for another one.
    assert_eq!(requested(&world.next()).len(), 4);
    world.missing(1, &hashes[0]);
    let unavailable = BlockError::Unavailable { hash: hashes[0], peers: 1 };
    assert_eq!(world.next(), failed(hashes[0], unavailable));
    assert_eq!(world.ask(last), []);
}

/// Blocks may be large until one has arrived, so each peer is asked for four at first. What does not
/// fit waits, in the order of the calls.
#[test]
fn blocks_are_spread_over_the_peers_and_the_rest_waits() {
    let blocks = mine(40);
    let headers: Vec<_> = blocks.iter().map(|block| block.header).collect();
    let mut world = World::new(chain(&headers), &[1, 2, 3]);
    // The filter sync has three blocks in flight from the second peer.
    world.peers.insert(PeerId(2), 3);
    for block in &blocks {
        assert_eq!(world.ask(block.block_hash()), []);
    }
    let hash = |place: usize| blocks[place].block_hash();
    let first = requested(&world.next());
    let of = |id: u64| first.iter().filter(|(peer, _)| peer.0 == id).count();
    assert_eq!([of(1), of(2), of(3)], [4, 1, 4]);
    let hashes: BTreeSet<_> = first.iter().map(|(_, hash)| *hash).collect();
    assert_eq!(hashes, (0..9).map(hash).collect());
    assert_eq!(world.next(), []);
    // Each peer delivers a block a second, although the blocks are many. None is let go, all
    // blocks come, and the peers share the work.
    world.peers.insert(PeerId(2), 0);
    let mut queues: BTreeMap<PeerId, Vec<BlockHash>> = BTreeMap::new();
    let (mut counts, mut delivered) = (BTreeMap::<PeerId, u32>::new(), 0);
    for (id, hash) in first {
        queues.entry(id).or_default().push(hash);
    }
    while delivered < blocks.len() {
        world.now += SECOND;
        for (id, queue) in &mut queues {
            if queue.is_empty() {
                continue;
            }
            let hash = queue.remove(0);
            let block = blocks.iter().find(|block| block.block_hash() == hash).unwrap();
            assert!(matches!(world.take(id.0, block), Some(Action::Block(..))));
            delivered += 1;
            *counts.entry(*id).or_default() += 1;
        }
        for (id, hash) in requested(&world.next()) {
            queues.entry(id).or_default().push(hash);
        }
    }
    assert!(counts.values().all(|count| *count >= 10), "{counts:?}");
    assert!(world.now <= 20 * SECOND, "{:?}", world.now);
}

/// The peer first sends what the filter sync requested, which may take several timeouts.
#[test]
fn blocks_that_the_filter_sync_requested_before_give_more_time() {
    let (mut world, block, hash) = asked_of_one();
    world.asked = BlocksAsked::new(TIMEOUT);
    world.peers = BTreeMap::from([(PeerId(1), 3)]);
    assert_eq!(world.ask(hash), []);
    assert_eq!(world.next(), [request(1, hash)]);
    world.peers.insert(PeerId(2), 0);
    // Three blocks of 1 MB may take three timeouts.
    world.now += 4 * TIMEOUT;
    assert_eq!(world.next(), []);
    world.now += SECOND;
    assert_eq!(world.next(), [request(2, hash)]);
    assert!(matches!(world.take(1, &block), Some(Action::Block(of, Ok(_))) if of == hash));
}

#[test]
fn without_peers_a_block_is_waited_for_and_then_given_up() {
    let headers = mine_headers(&genesis(), 1, 1, 1);
    let hash = headers[0].block_hash();
    let mut world = World::new(chain(&headers), &[]);
    assert_eq!(world.ask(hash), []);
    world.now += 2 * TIMEOUT;
    assert_eq!(world.next(), []);
    world.now += SECOND;
    assert_eq!(world.next(), failed(hash, BlockError::Unavailable { hash, peers: 0 }));
}

#[test]
fn without_a_timeout_it_is_waited_for_as_long_as_it_takes() {
    let headers = mine_headers(&genesis(), 1, 1, 1);
    let hash = headers[0].block_hash();
    let mut world = World::new(chain(&headers), &[]);
    world.asked = BlocksAsked::new(Duration::MAX);
    assert_eq!(world.ask(hash), []);
    world.now += Duration::from_secs(1 << 40);
    assert_eq!(world.next(), []);
}
