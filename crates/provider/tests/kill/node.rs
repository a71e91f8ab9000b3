//! A node whose chain grows, is reorganised, and returns to branches that it had left.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use testkit::Rng;
use testkit::eth::json_rpc;
use testkit::eth::rpc_methods::{self, BlockId};
use testkit::eth::world::{World, WorldBlock};

/// Maximum depth of a reorganisation below the highest head that the chain ever had.
const DEEPEST: usize = 9;
/// Kind of a block with logs that match the query.
const WITH_LOGS: u8 = 11;

/// The node's chain.
pub(crate) struct Chain {
    pub(crate) world: World,
    rng: Rng,
    /// Maximum number of blocks that the chain ever had.
    highest: usize,
    pub(crate) requests: usize,
}

impl Chain {
    /// Changes the chain at random: the chain grows or is reorganised.
    pub(crate) fn change(&mut self) {
        match self.rng.below(8) {
            0..4 => {
                let count = 1 + self.rng.below(4);
                self.mine(count);
            }
            4..7 => {
                let deepest = self.deepest();
                if deepest > 0 {
                    let depth = 1 + self.rng.below(deepest.min(6));
                    self.reorganise(depth);
                    // At first, the new branch may be one block shorter than the old one.
                    let count = (depth + self.rng.below(4)).saturating_sub(1);
                    self.mine(count);
                }
            }
            _ => {
                let (here, there) = (&self.world.canonical, &self.world.elsewhere);
                let common = here.iter().zip(there).take_while(|(here, there)| here == there);
                if common.count() + DEEPEST >= self.highest {
                    self.world.fail_over();
                }
            }
        }
        self.highest = self.highest.max(self.world.canonical.len());
    }

    /// Returns the number of blocks that may leave the chain.
    fn deepest(&self) -> usize {
        (self.world.canonical.len() + DEEPEST).saturating_sub(self.highest.max(DEEPEST + 1))
    }

    fn mine(&mut self, count: usize) {
        let seeds = self.rng.bytes(count);
        self.world.mine_all(&seeds);
        self.highest = self.highest.max(self.world.canonical.len());
    }

    /// Replaces the last `depth` blocks by other blocks.
    fn reorganise(&mut self, depth: usize) {
        self.world.synchronise();
        self.world.revert(depth);
    }

    /// Extends the chain beyond its highest head ever. The newest block that has enough
    /// confirmations contains logs.
    pub(crate) fn outgrow(&mut self, confirmations: u64) {
        self.world.outgrow(0);
        self.world.mine(WITH_LOGS);
        (0..confirmations).for_each(|_| self.mine(1));
        self.highest = self.highest.max(self.world.canonical.len());
    }

    /// Removes the last delivered block from the chain.
    pub(crate) fn take_back(&mut self, confirmations: u64) {
        let least = 1 + usize::try_from(confirmations).expect("few");
        let depth = least + self.rng.below(DEEPEST - least);
        self.reorganise(depth);
        self.outgrow(confirmations);
    }

    fn result(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.requests += 1;
        rpc_methods::result(method, params, |tag| self.at(tag).map(Into::into))
    }

    fn at(&self, tag: &Value) -> Option<&WorldBlock> {
        match BlockId::of(tag)? {
            BlockId::Tag("latest") => self.world.at(self.world.head().number),
            BlockId::Tag("finalized") => self.world.at(self.world.finalized().number),
            BlockId::Tag(_) => None,
            // The node has neither headers nor receipts of blocks that left its chain.
            BlockId::Hash(hash) => {
                self.world.canonical.contains(&hash).then(|| &self.world.blocks[&hash])
            }
            BlockId::Number(number) => self.world.at(number),
        }
    }
}

/// The node.
pub(crate) struct Node {
    pub(crate) url: String,
    chain: Arc<Mutex<Chain>>,
}

impl Node {
    pub(crate) fn start(seed: u64) -> Self {
        let (world, rng) = (World::new(), Rng::new(seed));
        let mut chain = Chain { world, rng, highest: 1, requests: 0 };
        chain.mine(12);
        chain.world.synchronise();
        let chain = Arc::new(Mutex::new(chain));
        let of_node = Arc::clone(&chain);
        let result = move |method: &str, params: &Value| {
            of_node.lock().expect("no panic").result(method, params)
        };
        Self { url: format!("http://{}", json_rpc::serve(result)), chain }
    }

    pub(crate) fn chain(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().expect("no panic")
    }
}
