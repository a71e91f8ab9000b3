//! Block downloads: which peer is asked, when a download fails, and which blocks are accepted.

use bitcoin::block::Header;
use bitcoin::{Amount, OutPoint, ScriptBuf, Witness};

use super::*;
use crate::btc::tests::{genesis, mine_headers, next_block, spend};

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
    peers: BTreeSet<PeerId>,
    now: Duration,
}

impl World {
    fn new(chain: HeaderChain, peers: &[u64]) -> Self {
        let peers = peers.iter().map(|id| PeerId(*id)).collect();
        Self { asked: BlocksAsked::new(TIMEOUT), chain, peers, now: SECOND }
    }

    fn ask(&mut self, hash: BlockHash) -> Vec<Action> {
        self.asked.ask(hash, &self.chain, self.now)
    }

    fn next(&mut self) -> Vec<Action> {
        self.asked.next(&self.peers, &self.chain, self.now)
    }

    fn take(&mut self, from: u64, block: &Block) -> Option<Action> {
        self.asked.take(PeerId(from), block, NETWORK)
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
fn who_is_overdue_is_let_go_and_another_is_asked() {
    let (mut world, block, hash) = asked_of_one();
    world.now += TIMEOUT;
    assert_eq!(world.next(), []);
    world.now += SECOND;
    let late = Reason::BlockStalled(hash, TIMEOUT + SECOND);
    assert_eq!(world.next(), [Action::Disconnect(PeerId(1), late)]);
    world.peers.remove(&PeerId(1));
    assert_eq!(world.next(), [request(2, hash)]);
    world.peers.remove(&PeerId(2));
    assert_eq!(world.next(), failed(hash, BlockError::Unavailable { hash, peers: 2 }));
    assert_eq!(world.take(2, &block), None);
}

#[test]
fn a_block_that_one_peer_lacks_is_asked_of_the_next() {
    let (mut world, _, hash) = asked_of_one();
    // A `notfound` from a peer that was not asked is ignored.
    world.asked.missing(PeerId(2), &hash);
    assert_eq!(world.next(), []);
    world.asked.missing(PeerId(1), &hash);
    assert_eq!(world.next(), [request(2, hash)]);
    world.asked.missing(PeerId(2), &hash);
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
    assert_eq!(world.next().len(), MAX_OPEN);
    world.asked.missing(PeerId(1), &hashes[0]);
    assert_eq!(world.next().len(), 1);
    assert_eq!(world.ask(last), []);
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
