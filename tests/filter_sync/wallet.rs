//! A wallet on top of a sync, and the laws for what it is told.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::{Block, BlockHash, ScriptBuf, Txid};
use chainsieve::btc::bip157::{FilterSync, ScanBlock, VerifiedFilter};
use chainsieve::btc::bip158::{Acceptance, Matcher, PreparedScripts};
use chainsieve::btc::headers::HeaderChain;

use testkit::btc::filter_world::{World, wallet_transactions};

/// What is known of a height.
pub(crate) enum State {
    /// The filter with this hash says that there is nothing.
    No(FilterHash),
    /// The filter with this hash matches, or cannot be read; the block is on its way.
    Matched(FilterHash),
    /// The block has been scanned.
    Scanned(Box<Block>),
}

/// A wallet: the answers that count, by height.
pub(crate) struct Wallet {
    pub(crate) states: BTreeMap<u32, (BlockHash, State)>,
    pub(crate) scripts: Vec<ScriptBuf>,
    prepared: PreparedScripts,
    matcher: Matcher,
    /// Heights where what a filter said does not count until it is confirmed.
    pub(crate) reopened: BTreeSet<u32>,
    /// Heights that may be answered by a block once more.
    again: BTreeSet<u32>,
    /// Blocks that came.
    pub(crate) blocks: usize,
}

impl Wallet {
    pub(crate) fn new(scripts: &[ScriptBuf]) -> Self {
        Self {
            states: BTreeMap::new(),
            scripts: scripts.to_vec(),
            prepared: scripts.iter().map(|script| script.as_bytes()).collect(),
            matcher: Matcher::new(),
            reopened: BTreeSet::new(),
            again: BTreeSet::new(),
            blocks: 0,
        }
    }

    /// Watches all of `scripts`; answers from `from` on are forgotten, but for blocks.
    pub(crate) fn watch(&mut self, scripts: &[ScriptBuf], from: u32) {
        self.scripts = scripts.to_vec();
        self.prepared = scripts.iter().map(|script| script.as_bytes()).collect();
        self.states
            .retain(|&height, (_, state)| height < from || matches!(state, State::Scanned(_)));
        self.reopened.retain(|&height| height < from);
        self.again.extend(self.states.range(from..).map(|(&height, _)| height));
    }

    /// Takes a filter; whether it matches. Fails if it comes out of turn.
    pub(crate) fn filter(&mut self, chain: &HeaderChain, answer: &VerifiedFilter) -> bool {
        let at = answer.at;
        assert_eq!(chain.hash_at(at.height), Some(at.hash), "a filter off the chain");
        assert_eq!(answer.filter.block_hash, at.hash, "a filter under another block's name");
        match self.states.get(&at.height) {
            None => {}
            // A rescan asks for all heights, and what is scanned stays scanned.
            Some((_, State::Scanned(_))) if self.again.contains(&at.height) => return false,
            Some(_) => assert!(self.reopened.remove(&at.height), "{at} is answered twice"),
        }
        let matches = answer
            .filter
            .gcs(Acceptance::Strict)
            .and_then(|filter| self.matcher.match_any(&filter, &self.prepared))
            .unwrap_or(true);
        let hash = answer.filter.filter_hash();
        let state = if matches { State::Matched(hash) } else { State::No(hash) };
        self.states.insert(at.height, (at.hash, state));
        matches
    }

    /// Takes a block. Fails if it is not that of the chain, or comes again.
    pub(crate) fn block(&mut self, chain: &HeaderChain, world: &World, answer: ScanBlock) {
        let at = answer.at;
        assert_eq!(chain.hash_at(at.height), Some(at.hash), "a block off the chain");
        let truth = &world.blocks[world.by_hash[&at.hash]].block;
        assert!(answer.block == *truth, "{at} is not the block of the chain");
        self.blocks += 1;
        self.reopened.remove(&at.height);
        let state = State::Scanned(Box::new(answer.block));
        if let Some((_, State::Scanned(_))) = self.states.insert(at.height, (at.hash, state)) {
            assert!(self.again.remove(&at.height), "{at} is scanned twice");
        }
    }

    /// What filters said counts no more.
    pub(crate) fn reopen(&mut self, from: u32, to: u32) {
        self.reopened
            .extend(self.by_filter(from, to).map(|(height, _)| height).collect::<Vec<_>>());
    }

    /// What filters said counts.
    pub(crate) fn confirm(&mut self, from: u32, to: u32) {
        self.reopened.retain(|height| !(from..=to).contains(height));
    }

    /// The heights at which a filter is what was heard, with its hash.
    pub(crate) fn by_filter(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, FilterHash)> {
        self.states.range(from..=to).filter_map(|(&height, (_, state))| match state {
            State::No(hash) | State::Matched(hash) => Some((height, *hash)),
            State::Scanned(_) => None,
        })
    }

    /// Goes on with `sync`, which was restored: what it has no grade for does not count until it
    /// is confirmed or told again. Returns the heights where filters count.
    pub(crate) fn restart(&mut self, sync: &FilterSync) -> Vec<u32> {
        self.states.retain(|_, (_, state)| !matches!(state, State::Matched(_)));
        let is_known = |height: u32| sync.grade(height).is_some();
        let told: Vec<_> = self.by_filter(0, u32::MAX).map(|(height, _)| height).collect();
        let (count, wait) = told.into_iter().partition::<Vec<_>, _>(|&height| is_known(height));
        self.reopened = wait.into_iter().collect();
        let scanned = self.states.iter().filter(|(_, (_, s))| matches!(s, State::Scanned(_)));
        let again = scanned.map(|(&height, _)| height).filter(|&height| !is_known(height));
        self.again.extend(again);
        count
    }

    /// Forgets all above `height`.
    pub(crate) fn roll_back(&mut self, height: u32) {
        self.states.retain(|&at, _| at <= height);
        self.again.retain(|&at| at <= height);
        self.reopened.retain(|&at| at <= height);
    }

    /// The wallet's transactions in the blocks that it has scanned.
    pub(crate) fn transactions(&self) -> BTreeSet<(BlockHash, Txid)> {
        let scanned = self.states.values().filter_map(|(_, state)| match state {
            State::Scanned(block) => Some(&**block),
            _ => None,
        });
        wallet_transactions(&self.scripts, scanned)
    }
}
