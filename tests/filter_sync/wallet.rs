//! A wallet on top of a sync, which checks the rules for the answers that it receives.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::bitcoin::{Block, BlockHash, ScriptBuf, Txid};
use chainsieve::btc::bip157::{FilterSync, VerifiedFilter};
use chainsieve::btc::bip158::{Acceptance, Matcher, PreparedScripts};
use chainsieve::btc::headers::{BlockAt, HeaderChain};

use testkit::btc::filter_world::{World, wallet_transactions};

/// The answer at a height.
pub(crate) enum State {
    /// The filter with this hash does not match.
    No(FilterHash),
    /// The filter with this hash matches or can't be read, and the block is requested.
    Matched(FilterHash),
    /// The block has been scanned.
    Scanned(Box<Block>),
}

/// A wallet with its current answers by height.
pub(crate) struct Wallet {
    pub(crate) states: BTreeMap<u32, (BlockHash, State)>,
    pub(crate) scripts: Vec<ScriptBuf>,
    prepared: PreparedScripts,
    matcher: Matcher,
    /// Heights whose answer by a filter is suspended until it is confirmed.
    pub(crate) reopened: BTreeSet<u32>,
    /// Heights that may be answered by a block a second time.
    again: BTreeSet<u32>,
    /// Number of blocks received.
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

    /// Watches all of `scripts`. From height `from` on, forgets the answers by filters and keeps
    /// those by blocks.
    pub(crate) fn watch(&mut self, scripts: &[ScriptBuf], from: u32) {
        self.scripts = scripts.to_vec();
        self.prepared = scripts.iter().map(|script| script.as_bytes()).collect();
        self.states
            .retain(|&height, (_, state)| height < from || matches!(state, State::Scanned(_)));
        self.reopened.retain(|&height| height < from);
        self.again.extend(self.states.range(from..).map(|(&height, _)| height));
    }

    /// Takes a filter, and returns `true` if it matches. Fails if the filter is out of turn.
    pub(crate) fn filter(&mut self, chain: &HeaderChain, answer: &VerifiedFilter) -> bool {
        let at = answer.at;
        assert_eq!(chain.hash_at(at.height), Some(at.hash), "a filter off the chain");
        assert_eq!(answer.filter.block_hash, at.hash, "a filter under another block's name");
        match self.states.get(&at.height) {
            None => {}
            // A rescan requests all heights again, and a scanned height stays scanned.
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

    /// Takes a block. Fails if it is not the block of the chain, or if it is repeated.
    pub(crate) fn block(&mut self, chain: &HeaderChain, world: &World, at: BlockAt, block: Block) {
        assert_eq!(chain.hash_at(at.height), Some(at.hash), "a block off the chain");
        let truth = &world.blocks[world.by_hash[&at.hash]].block;
        assert!(block == *truth, "{at} is not the block of the chain");
        self.blocks += 1;
        self.reopened.remove(&at.height);
        let state = State::Scanned(Box::new(block));
        if let Some((_, State::Scanned(_))) = self.states.insert(at.height, (at.hash, state)) {
            assert!(self.again.remove(&at.height), "{at} is scanned twice");
        }
    }

    /// Suspends the answers by filters from `from` to `to`.
    pub(crate) fn reopen(&mut self, from: u32, to: u32) {
        self.reopened
            .extend(self.by_filter(from, to).map(|(height, _)| height).collect::<Vec<_>>());
    }

    /// Confirms the answers by filters from `from` to `to`.
    pub(crate) fn confirm(&mut self, from: u32, to: u32) {
        self.reopened.retain(|height| !(from..=to).contains(height));
    }

    /// Returns the heights that are answered by a filter, with the hash of the filter.
    pub(crate) fn by_filter(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, FilterHash)> {
        self.states.range(from..=to).filter_map(|(&height, (_, state))| match state {
            State::No(hash) | State::Matched(hash) => Some((height, *hash)),
            State::Scanned(_) => None,
        })
    }

    /// Continues with the restored `sync`, and returns the heights whose answers by filters remain
    /// valid.
    ///
    /// Answers for which `sync` has no grade are suspended until they are confirmed or given again.
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

    /// Forgets all answers above `height`.
    pub(crate) fn roll_back(&mut self, height: u32) {
        self.states.retain(|&at, _| at <= height);
        self.again.retain(|&at| at <= height);
        self.reopened.retain(|&at| at <= height);
    }

    /// Returns the wallet's transactions in the scanned blocks.
    pub(crate) fn transactions(&self) -> BTreeSet<(BlockHash, Txid)> {
        let scanned = self.states.values().filter_map(|(_, state)| match state {
            State::Scanned(block) => Some(&**block),
            _ => None,
        });
        wallet_transactions(&self.scripts, scanned)
    }
}
