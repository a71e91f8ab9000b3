//! Test world: a chain, peers that answer for it, and a wallet that executes the actions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bitcoin::absolute::LockTime;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::p2p::message_filter::{
    CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters,
};
use bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut,
    WPubkeyHash, Witness, transaction,
};
use core::time::Duration;

use crate::btc::bip157::{
    Action, BASIC_FILTER, Config, Event, FilterSync, Finding, Reason, ScanReason, VerifiedFilter,
};
use crate::btc::bip158::audit::{InvalidFilter, Prevouts, Refutation, Verdict, audit};
use crate::btc::bip158::{BlockFilter, BoundBlock, filter_hash, filter_header};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::tests as regtest;

/// Returns the wallet's script.
pub(super) fn wallet_script() -> ScriptBuf {
    ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]))
}

fn script(salt: u8, height: u32) -> ScriptBuf {
    let mut hash = [salt; 20];
    hash[..4].copy_from_slice(&height.to_le_bytes());
    ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array(hash))
}

/// A chain of blocks with their true filters.
///
/// Each block pays to one script. Blocks whose height ends in 5 pay the wallet. Blocks whose height
/// ends in 7 spend an output of the wallet, so their filters contain the wallet's script only as a
/// spent script. Blocks whose height ends in 3 spend a stranger's output. All remaining blocks
/// spend nothing, so their filters can be audited.
#[derive(Debug, Clone)]
pub(super) struct TestChain {
    pub(super) blocks: Vec<Block>,
    pub(super) filters: Vec<Vec<u8>>,
    heights: BTreeMap<BlockHash, u32>,
}

impl TestChain {
    pub(super) fn new(length: u32) -> Self {
        let genesis = genesis_block(Network::Regtest);
        let filter = BlockFilter::from_prevout_scripts::<ScriptBuf>(&genesis, &[]).unwrap();
        let mut chain = Self::of(vec![genesis], vec![filter.content]);
        chain.grow(length, 1);
        chain
    }

    pub(super) fn of(blocks: Vec<Block>, filters: Vec<Vec<u8>>) -> Self {
        let heights = blocks.iter().map(Block::block_hash).zip(0..).collect();
        Self { blocks, filters, heights }
    }

    /// Truncates the chain to `blocks` blocks.
    pub(super) fn truncate(&mut self, blocks: u32) {
        self.blocks.truncate(blocks as usize);
        self.filters.truncate(blocks as usize);
        self.heights.retain(|_, height| *height < blocks);
    }

    /// Returns a branch of this chain with new blocks from `height` on. The branch has `longer`
    /// blocks more than this chain.
    pub(super) fn fork(&self, height: u32, longer: u32) -> Self {
        let mut chain = self.clone();
        let length = self.tip() + 1 - height;
        chain.truncate(height);
        chain.grow(length + longer, 2);
        chain
    }

    pub(super) fn grow(&mut self, blocks: u32, salt: u8) {
        for _ in 0..blocks {
            let height = self.tip() + 1;
            let pay_to = if height % 10 == 5 { wallet_script() } else { script(salt, height) };
            let coinbase = Transaction {
                version: transaction::Version::TWO,
                lock_time: LockTime::ZERO,
                input: vec![TxIn {
                    previous_output: OutPoint::null(),
                    script_sig: ScriptBuf::builder()
                        .push_int(i64::from(height))
                        .push_slice([salt; 20])
                        .into_script(),
                    sequence: Sequence::MAX,
                    witness: Witness::new(),
                }],
                output: vec![TxOut { value: Amount::from_sat(50), script_pubkey: pay_to }],
            };
            let mut txdata = vec![coinbase];
            let mut prevouts = vec![];
            if height % 10 == 7 || height % 10 == 3 && height > 3 {
                let spent = &self.blocks[height as usize - 2].txdata[0];
                prevouts.push(spent.output[0].script_pubkey.clone());
                txdata.push(Transaction {
                    version: transaction::Version::TWO,
                    lock_time: LockTime::ZERO,
                    input: vec![TxIn {
                        previous_output: OutPoint::new(spent.compute_txid(), 0),
                        script_sig: ScriptBuf::new(),
                        sequence: Sequence::MAX,
                        witness: Witness::new(),
                    }],
                    output: vec![TxOut {
                        value: Amount::from_sat(50),
                        script_pubkey: script(salt + 100, height),
                    }],
                });
            }
            let block = regtest::block(&self.blocks.last().unwrap().header, txdata);
            let filter = BlockFilter::from_prevout_scripts(&block, &prevouts).unwrap();
            self.heights.insert(block.block_hash(), height);
            self.blocks.push(block);
            self.filters.push(filter.content);
        }
    }

    pub(super) fn tip(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap() - 1
    }

    pub(super) fn hash(&self, height: u32) -> BlockHash {
        self.blocks[height as usize].block_hash()
    }

    /// Returns the hash of each filter.
    fn hashes(&self) -> Vec<FilterHash> {
        self.filters.iter().map(|filter| filter_hash(filter)).collect()
    }

    /// Returns the filter header of each block.
    pub(super) fn headers(&self) -> Vec<FilterHeader> {
        let mut header = FilterHeader::all_zeros();
        let hashes = self.hashes().into_iter();
        hashes
            .map(|hash| {
                header = filter_header(&hash, &header);
                header
            })
            .collect()
    }

    pub(super) fn at(&self, height: u32) -> BlockAt {
        BlockAt { height, hash: self.hash(height) }
    }

    /// Returns the heights with transactions of the wallet.
    pub(super) fn truth(&self) -> BTreeSet<u32> {
        (1..=self.tip()).filter(|height| matches!(height % 10, 5 | 7)).collect()
    }

    /// Returns the filter of a block as if the block spent nothing. The block alone does not refute
    /// this filter.
    pub(super) fn without_prevouts(&self, height: u32) -> Vec<u8> {
        let block = &self.blocks[height as usize];
        let nothing = vec![ScriptBuf::new(); block.txdata.len() - 1];
        BlockFilter::from_prevout_scripts(block, &nothing).unwrap().content
    }
}

/// Proves that a filter of a block is false, with the transactions of the block two below, which it
/// may spend.
pub(super) fn refute(chain: &TestChain, height: u32, filter: &[u8]) -> Box<InvalidFilter> {
    let at = height as usize;
    let bound = BoundBlock::bind(&chain.blocks[at], chain.hash(height), Network::Regtest).unwrap();
    let previous = at.checked_sub(2).map_or(Vec::new(), |at| chain.blocks[at].txdata.clone());
    let verdict = audit(&bound, filter, Prevouts::ByTransactions(&previous));
    let Verdict::Invalid(Refutation::Proof(proof)) = verdict else { panic!("{verdict}") };
    proof
}

type Twist = Rc<dyn Fn(&mut Vec<Event>)>;

/// A simulated peer.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) chain: TestChain,
    /// The messages that the peer does not answer.
    pub(super) mute: fn(&NetworkMessage) -> bool,
    /// A change that the peer makes to its answers.
    pub(super) twist: Option<Twist>,
}

/// Returns the blocks that a `getdata` asks for, with their witnesses.
pub(super) fn blocks_of(items: &[Inventory]) -> Vec<BlockHash> {
    let hash = |item: &Inventory| match item {
        Inventory::WitnessBlock(hash) => *hash,
        other => panic!("a filter sync asks for no {other:?}"),
    };
    items.iter().map(hash).collect()
}

impl Node {
    pub(super) fn honest(chain: &TestChain) -> Self {
        Self { chain: chain.clone(), mute: |_| false, twist: None }
    }

    /// Creates a peer that claims and sends the given false filters.
    pub(super) fn lying(chain: &TestChain, lies: &[(u32, Vec<u8>)]) -> Self {
        let mut node = Self::honest(chain);
        for (height, filter) in lies {
            node.chain.filters[*height as usize].clone_from(filter);
        }
        node
    }

    pub(super) fn twisted(chain: &TestChain, twist: impl Fn(&mut Event) + 'static) -> Self {
        let all = move |events: &mut Vec<Event>| events.iter_mut().for_each(&twist);
        Self { twist: Some(Rc::new(all)), ..Self::honest(chain) }
    }

    fn height(&self, hash: BlockHash) -> usize {
        self.chain.heights[&hash] as usize
    }

    pub(super) fn answer(&self, id: PeerId, message: &NetworkMessage) -> Vec<Event> {
        let filter_type = BASIC_FILTER;
        let mut events = match message {
            _ if (self.mute)(message) => vec![],
            NetworkMessage::GetCFCheckpt(GetCFCheckpt { stop_hash, .. }) => {
                let stop = self.height(*stop_hash);
                let headers = self.chain.headers();
                let filter_headers = (1..=stop / 1000).map(|n| headers[n * 1000]).collect();
                let stop_hash = *stop_hash;
                vec![Event::CFCheckpt(id, CFCheckpt { filter_type, stop_hash, filter_headers })]
            }
            NetworkMessage::GetCFHeaders(GetCFHeaders { start_height, stop_hash, .. }) => {
                let (start, stop) = (*start_height as usize, self.height(*stop_hash));
                assert!(start > 0 && start <= stop && stop - start < 2000);
                let message = CFHeaders {
                    filter_type,
                    stop_hash: *stop_hash,
                    previous_filter_header: self.chain.headers()[start - 1],
                    filter_hashes: self.chain.hashes()[start..=stop].to_vec(),
                };
                vec![Event::CFHeaders(id, message)]
            }
            NetworkMessage::GetCFilters(GetCFilters { start_height, stop_hash, .. }) => {
                let (start, stop) = (*start_height as usize, self.height(*stop_hash));
                assert!(start <= stop && stop - start < 1000);
                let filter = |height: usize| {
                    let block_hash = self.chain.blocks[height].block_hash();
                    let filter = self.chain.filters[height].clone();
                    Event::CFilter(id, CFilter { filter_type, block_hash, filter })
                };
                (start..=stop).map(filter).collect()
            }
            NetworkMessage::GetData(items) => {
                let block = |hash| self.chain.blocks[self.height(hash)].clone();
                let blocks = blocks_of(items).into_iter().map(block);
                blocks.map(|block| Event::Block(Some(id), Box::new(block))).collect()
            }
            other => panic!("a filter sync sends no {other:?}"),
        };
        if let Some(twist) = &self.twist {
            twist(&mut events);
        }
        events
    }
}

/// The data that the wallet has received about a height.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Known {
    Filter(VerifiedFilter),
    Block(ScanReason),
}

pub(super) struct World {
    pub(super) headers: HeaderChain,
    pub(super) sync: FilterSync,
    pub(super) now: Duration,
    pub(super) nodes: BTreeMap<PeerId, Node>,
    pub(super) queue: VecDeque<(PeerId, NetworkMessage)>,
    pub(super) actions: Vec<Action>,
    pub(super) known: BTreeMap<u32, Known>,
    pub(super) hits: BTreeSet<u32>,
    pub(super) reopened: BTreeSet<u32>,
}

impl World {
    pub(super) fn new(chain: &TestChain, config: Config) -> Self {
        let mut headers = HeaderChain::new(config.network);
        let new: Vec<_> = chain.blocks[1..].iter().map(|block| block.header).collect();
        headers.accept(&new, Duration::MAX).unwrap();
        Self {
            headers,
            sync: FilterSync::new(config),
            now: Duration::ZERO,
            nodes: BTreeMap::new(),
            queue: VecDeque::new(),
            actions: vec![],
            known: BTreeMap::new(),
            hits: BTreeSet::new(),
            reopened: BTreeSet::new(),
        }
    }

    pub(super) fn config() -> Config {
        let mut config = Config::new(Network::Regtest, 0, [1; 16]);
        config.spot_audits = 0;
        config
    }

    pub(super) fn connect(&mut self, id: u64, node: Node) {
        let tip = node.chain.hash(node.chain.tip());
        self.nodes.insert(PeerId(id), node);
        self.event(Event::PeerConnected(PeerId(id)));
        self.event(Event::PeerTip(PeerId(id), tip));
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.nodes.remove(&PeerId(id));
        self.event(Event::PeerDisconnected(PeerId(id)));
    }

    pub(super) fn event(&mut self, event: Event) {
        let actions = self.sync.handle(&self.headers, event, self.now);
        for action in actions {
            self.actions.push(action.clone());
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(peer, message) => self.queue.push_back((peer, message)),
            Action::Disconnect(peer, _) => {
                self.nodes.remove(&peer);
            }
            Action::Filter(filter) => {
                let height = filter.at.height;
                assert_eq!(self.headers.hash_at(height), Some(filter.at.hash));
                self.reopened.remove(&height);
                self.known.insert(height, Known::Filter((*filter).clone()));
                self.hits.remove(&height);
                let script = wallet_script();
                let reader = bitcoin::bip158::BlockFilter::new(&filter.filter.content);
                let query = core::iter::once(script.as_bytes());
                let matches = reader.match_any(&filter.at.hash, query).unwrap_or(true);
                if matches {
                    self.event(Event::Matched(filter));
                }
            }
            Action::Block { at, block, why, .. } => {
                let height = at.height;
                assert_eq!(self.headers.hash_at(height), Some(at.hash));
                assert_eq!(block.block_hash(), at.hash);
                self.reopened.remove(&height);
                self.known.insert(height, Known::Block(why));
                self.hits.remove(&height);
                if matches!(height % 10, 5 | 7) {
                    self.hits.insert(height);
                }
            }
            Action::Reopened(from, to) => {
                for height in from..=to {
                    assert!(matches!(self.known.get(&height), Some(Known::Filter(_))), "{height}");
                    self.reopened.insert(height);
                }
            }
            Action::Graded(from, to, grade) => {
                for height in from..=to {
                    self.reopened.remove(&height);
                    let Some(Known::Filter(filter)) = self.known.get_mut(&height) else {
                        panic!("graded {height}")
                    };
                    filter.grade = grade;
                }
            }
            Action::Rollback(height) => {
                self.known.retain(|&at, _| at <= height);
                self.hits.retain(|&at| at <= height);
                self.reopened.retain(|&at| at <= height);
            }
            Action::Report(_) => {}
        }
    }

    /// Delivers messages and answers until none are left.
    pub(super) fn settle(&mut self) {
        let left = self.deliver(|_| true);
        assert_eq!(left, []);
    }

    /// Delivers messages for which `is` returns `true`, and their answers, until none are left.
    /// Returns the other messages.
    pub(super) fn deliver(
        &mut self,
        is: impl Fn(&NetworkMessage) -> bool,
    ) -> Vec<(PeerId, NetworkMessage)> {
        let mut left = Vec::new();
        while let Some((peer, message)) = self.queue.pop_front() {
            if !is(&message) {
                left.push((peer, message));
                continue;
            }
            let Some(node) = self.nodes.get(&peer) else { continue };
            for event in node.answer(peer, &message) {
                self.event(event);
            }
        }
        left
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.event(Event::Tick);
        self.settle();
    }

    /// Moves the header chain to the given chain, and reports the change.
    pub(super) fn move_to(&mut self, chain: &TestChain) -> Vec<ChainEvent> {
        let new: Vec<_> = chain.blocks[1..].iter().map(|block| block.header).collect();
        let events = self.headers.accept(&new, Duration::MAX).unwrap();
        self.event(Event::Chain(events.clone()));
        events
    }

    pub(super) fn reasons(&self) -> Vec<(PeerId, Reason)> {
        let reason = |action: &Action| match action {
            Action::Disconnect(peer, reason) => Some((*peer, reason.clone())),
            _ => None,
        };
        self.actions.iter().filter_map(reason).collect()
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let finding = |action: &Action| match action {
            Action::Report(finding) => Some(finding.clone()),
            _ => None,
        };
        self.actions.iter().filter_map(finding).collect()
    }

    pub(super) fn sent(&self, is: impl Fn(&NetworkMessage) -> bool) -> usize {
        let sent = |action: &&Action| matches!(action, Action::Send(_, message) if is(message));
        self.actions.iter().filter(sent).count()
    }

    /// Returns the number of requests for the filter of a single block.
    pub(super) fn sent_for_one_filter(&self) -> usize {
        self.sent(|message| match message {
            NetworkMessage::GetCFilters(message) => {
                self.headers.hash_at(message.start_height) == Some(message.stop_hash)
            }
            _ => false,
        })
    }

    /// Returns the heights of the blocks that were scanned for a given reason.
    pub(super) fn scanned(&self, reason: ScanReason) -> Vec<u32> {
        let scanned = |action: &Action| match action {
            Action::Block { at, why, .. } if *why == reason => Some(at.height),
            _ => None,
        };
        self.actions.iter().filter_map(scanned).collect()
    }

    pub(super) fn grade(&self, height: u32) -> Option<Grade> {
        self.sync.grade(height)
    }

    /// Checks that every height is answered and the hits are exactly those of the wallet.
    #[track_caller]
    pub(super) fn assert_complete(&self, chain: &TestChain) {
        assert_eq!(self.sync.answered_to(), Some(chain.tip()));
        assert_eq!(self.known.len(), chain.blocks.len());
        assert_eq!(self.hits, chain.truth());
        assert!(self.reopened.is_empty());
    }
}
