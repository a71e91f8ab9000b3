//! Simulation of a chain, a node that serves filtered blocks, and the connection between node and
//! session.

use core::time::Duration;
use std::collections::VecDeque;

use bitcoin::absolute::LockTime;
use bitcoin::hashes::Hash as _;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut,
    Txid, WPubkeyHash, Witness,
};

use crate::btc::bip37::session::{
    Action, Config, Event, FilterPolicy, Finding, Message, Session, TransactionInBlock,
};
use crate::btc::bip37::{BloomFilter, MerkleBlock};
use crate::btc::headers::BlockAt;
use crate::btc::merkle_tree::MerklePath;
use crate::btc::tests as regtest;
use crate::btc::wallet::{Label, WatchItem};
use testkit::Rng;

/// Returns the wallet's script number `index`. Numbers from 1,000,000 on belong to scripts of
/// strangers.
pub(super) fn script(index: u32) -> ScriptBuf {
    ScriptBuf::new_p2wpkh(&WPubkeyHash::hash(&index.to_le_bytes()))
}

pub(super) fn watched(index: u32) -> WatchItem {
    WatchItem::Script { script: script(index), label: Some(Label { keychain: 0, index }) }
}

pub(super) fn tx(spends: &[OutPoint], pays: &[ScriptBuf]) -> Transaction {
    let input = |&previous_output: &OutPoint| TxIn {
        previous_output,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let output = |script: &ScriptBuf| TxOut {
        value: Amount::from_sat(1_000),
        script_pubkey: script.clone(),
    };
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: spends.iter().map(input).collect(),
        output: pays.iter().map(output).collect(),
    }
}

pub(super) fn stranger(rng: &mut Rng) -> Transaction {
    let hash = Txid::hash(&rng.array::<32>());
    let pays = script(1_000_000 + rng.below(1 << 31) as u32);
    tx(&[OutPoint::new(hash, 0)], &[pays.clone(), pays])
}

pub(super) fn txids(block: &Block) -> Vec<Txid> {
    block.txdata.iter().map(Transaction::compute_txid).collect()
}

/// Returns a mined block with a coinbase transaction and `txdata`.
pub(super) fn block(height: u32, txdata: Vec<Transaction>) -> Block {
    let mut coinbase = tx(&[OutPoint::null()], &[script(2_000_000 + height)]);
    coinbase.input[0].script_sig = ScriptBuf::from(height.to_le_bytes().to_vec());
    let txdata = [vec![coinbase], txdata].concat();
    // All blocks follow the genesis block, and the hash distinguishes blocks of the same height.
    let mut block = regtest::block(&regtest::genesis(), txdata);
    block.header.time = height;
    regtest::solve(&mut block.header);
    block
}

pub(super) fn show(block: &Block, index: u32) -> TransactionInBlock {
    let transaction = block.txdata[index as usize].clone();
    let path = MerklePath::new(&txids(block), index).unwrap();
    TransactionInBlock { transaction, path }
}

/// Returns a chain and the sorted txids of the wallet's transactions in it. The chain contains
/// payments to scripts with numbers below `scripts`, and spends of these payments in the same and
/// in later blocks.
pub(super) fn chain(rng: &mut Rng, length: u32, scripts: u32) -> (Vec<Block>, Vec<Txid>) {
    let (mut coins, mut own) = (Vec::<OutPoint>::new(), Vec::new());
    let mut blocks = Vec::new();
    for height in 0..length {
        let mut txdata = Vec::new();
        for _ in 0..rng.below(12) {
            let pick = rng.below(6);
            let tx = match pick {
                0 => {
                    let to = script(rng.below(scripts as usize) as u32);
                    tx(
                        &stranger(rng).input.iter().map(|i| i.previous_output).collect::<Vec<_>>(),
                        &[script(1_500_000), to],
                    )
                }
                1 if !coins.is_empty() => {
                    let coin = coins.swap_remove(rng.below(coins.len()));
                    tx(&[coin], &[script(1_600_000 + height)])
                }
                _ => stranger(rng),
            };
            let txid = tx.compute_txid();
            match pick {
                0 => coins.push(OutPoint::new(txid, 1)),
                1 if tx.output.len() == 1 => {}
                _ => {
                    txdata.push(tx);
                    continue;
                }
            }
            own.push(txid);
            txdata.push(tx);
        }
        blocks.push(block(height, txdata));
    }
    own.sort_unstable();
    (blocks, own)
}

/// Returns `true` if a finding is a complaint about the node or reports an error.
pub(super) fn is_complaint(finding: &Finding) -> bool {
    !matches!(
        finding,
        Finding::Relevant(_)
            | Finding::FalsePositive(..)
            | Finding::Block { .. }
            | Finding::KeychainAdvanced { .. }
            | Finding::Refilter(_)
            | Finding::RefilterEarlier(_)
            | Finding::Privacy(_)
            | Finding::RefreshAdvised(_)
    )
}

/// Function that replaces a node's true answer; `None` for no answer.
pub(super) type Lie = fn(&Block, &[u32]) -> Option<Answer>;

/// Merkle block and transactions of an answer.
pub(super) type Answer = (MerkleBlock, Vec<Transaction>);

pub(super) fn truth(block: &Block, matched: &[u32]) -> Answer {
    let merkle_block = MerkleBlock::new(&block.header, &txids(block), matched).unwrap();
    (merkle_block, matched.iter().map(|&i| block.txdata[i as usize].clone()).collect())
}

/// A session, a node with its blocks, and the messages in flight between the two.
pub(super) struct World {
    pub(super) session: Session,
    pub(super) blocks: Vec<Block>,
    pub(super) filter: Option<BloomFilter>,
    pub(super) to_session: VecDeque<Event>,
    pub(super) to_node: VecDeque<Message>,
    pub(super) findings: Vec<Finding>,
    pub(super) lie: Lie,
    /// A block that the node claims not to have.
    pub(super) withheld: Option<BlockHash>,
    /// `true` if the node answers requests only after later messages.
    pub(super) slow: bool,
    deferred: VecDeque<BlockHash>,
    /// The filter as the wallet loaded it last.
    loaded: Option<BloomFilter>,
    /// The answers that the node sent, each with the filter as loaded.
    pub(super) answers: Vec<(BloomFilter, MerkleBlock)>,
    /// Number of `filterload` and `filteradd` messages that the session sent.
    pub(super) sent_filters: usize,
    /// Number of findings that the caller has dealt with.
    pub(super) handled: usize,
}

impl World {
    pub(super) fn new(policy: FilterPolicy, blocks: Vec<Block>) -> Self {
        Self {
            session: Self::session(policy, 4),
            blocks,
            filter: None,
            to_session: VecDeque::new(),
            to_node: VecDeque::new(),
            findings: Vec::new(),
            lie: |block, matched| Some(truth(block, matched)),
            withheld: None,
            slow: false,
            deferred: VecDeque::new(),
            loaded: None,
            answers: Vec::new(),
            sent_filters: 0,
            handled: 0,
        }
    }

    fn session(policy: FilterPolicy, in_flight: usize) -> Session {
        let mut config = Config::new(Network::Regtest, policy);
        config.in_flight = in_flight;
        Session::new(config)
    }

    /// Replaces the session by one with at most `in_flight` requests in flight.
    pub(super) fn limit_in_flight(&mut self, in_flight: usize) {
        self.session = Self::session(*self.session.filter_policy(), in_flight);
    }

    pub(super) fn at(&self, height: usize) -> BlockAt {
        BlockAt { hash: self.blocks[height].block_hash(), height: height as u32 }
    }

    pub(super) fn request_from(&mut self, height: usize) {
        let blocks = (height..self.blocks.len()).map(|height| self.at(height)).collect();
        self.event(Event::Request(blocks));
    }

    pub(super) fn event(&mut self, event: Event) {
        for action in self.session.handle(event, Duration::ZERO) {
            match action {
                Action::Send(message) => {
                    let is_filter =
                        matches!(message, Message::FilterLoad(_) | Message::FilterAdd(_));
                    self.sent_filters += usize::from(is_filter);
                    self.to_node.push_back(message);
                }
                Action::Report(finding) => self.findings.push(finding),
            }
        }
    }

    /// Lets the node handle one message. Returns `false` if there is no message.
    pub(super) fn node_step(&mut self) -> bool {
        if !self.slow
            && let Some(hash) = self.deferred.pop_front()
        {
            self.answer(hash);
            return true;
        }
        let Some(message) = self.to_node.pop_front() else { return false };
        match message {
            Message::FilterLoad(filter) => {
                self.filter = Some(BloomFilter::decode(&filter.encode()).unwrap());
                self.loaded.clone_from(&self.filter);
            }
            Message::FilterAdd(data) => {
                self.filter.as_mut().expect("loaded before").insert(data.as_bytes());
            }
            Message::Ping(nonce) => self.to_session.push_back(Event::Pong(nonce)),
            Message::GetFilteredBlocks(blocks) => {
                self.deferred.extend(blocks);
            }
        }
        true
    }

    /// Closes the connection and opens a new one.
    pub(super) fn reconnect(&mut self) {
        self.to_node.clear();
        self.to_session.clear();
        self.deferred.clear();
        self.filter = None;
        self.event(Event::Connected);
    }

    fn answer(&mut self, hash: BlockHash) {
        // What the node does not have does not change its filter.
        if self.withheld == Some(hash) {
            return;
        }
        let filter = self.filter.as_mut().expect("loaded before");
        let block = self.blocks.iter().find(|block| block.block_hash() == hash).unwrap();
        let is_match = |(_, tx): &(u32, &Transaction)| filter.is_relevant_and_update(tx);
        let matched: Vec<_> = (0..).zip(&block.txdata).filter(is_match).map(|(i, _)| i).collect();
        let Some((merkle_block, transactions)) = (self.lie)(block, &matched) else { return };
        self.answers.push((self.loaded.clone().expect("loaded before"), merkle_block.clone()));
        self.to_session.push_back(Event::MerkleBlock(merkle_block));
        self.to_session.extend(transactions.into_iter().map(Event::Tx));
    }

    /// Lets the session handle one message. Returns `false` if there is no message.
    pub(super) fn session_step(&mut self) -> bool {
        let Some(event) = self.to_session.pop_front() else { return false };
        self.event(event);
        true
    }

    /// Runs node and session until no message is in flight.
    pub(super) fn settle(&mut self) {
        while self.node_step() || self.session_step() {}
    }

    /// Runs as [`settle`](Self::settle), and adds scripts and restarts where the session asks for
    /// it.
    pub(super) fn sync(&mut self, lookahead: u32) {
        self.settle();
        let mut seen = 0;
        while seen < self.findings.len() {
            match self.findings[seen].clone() {
                Finding::KeychainAdvanced { label, .. } => {
                    self.event(Event::Watch((0..=label.index + lookahead).map(watched).collect()));
                }
                Finding::Refilter(from) | Finding::RefilterEarlier(from) => {
                    self.request_from(from.height as usize);
                }
                _ => {}
            }
            seen += 1;
            self.settle();
        }
    }

    /// Returns the sorted txids of the wallet's confirmed transactions that were reported.
    pub(super) fn relevant(&self) -> Vec<Txid> {
        let relevant = |finding: &Finding| match finding {
            Finding::Relevant(tx) => tx.place.map(|_| tx.txid),
            _ => None,
        };
        let mut txids: Vec<_> = self.findings.iter().filter_map(relevant).collect();
        txids.sort_unstable();
        txids.dedup();
        txids
    }

    pub(super) fn count(&self, finding: fn(&Finding) -> bool) -> usize {
        self.findings.iter().filter(|f| finding(f)).count()
    }
}
