//! The outputs that are watched: those given by hand, those found, and a bounded number of
//! unconfirmed ones.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use bitcoin::{Amount, OutPoint};

/// An output whose spend is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchedOutput {
    /// The index of its script; `None` if the output was added by hand without its script.
    pub script: Option<usize>,
    /// Its value, if a transaction showed it.
    pub value: Option<Amount>,
    /// The height of the block that created it, if one was seen.
    pub created: Option<u32>,
    /// The height of the block that spent it, if one was seen.
    pub spent: Option<u32>,
    /// Whether it was added by hand: it then stays whatever blocks leave the chain.
    pub is_given: bool,
}

/// The most unconfirmed outputs that are remembered: they cost nothing to make up, so a peer can
/// send as many as it likes.
const MAX_UNCONFIRMED: usize = 1_000;

/// The wallet's outputs.
#[derive(Debug, Clone)]
pub(super) struct Coins {
    outputs: BTreeMap<OutPoint, WatchedOutput>,
    /// At this many outputs, no more are kept than those given by hand.
    limit: usize,
    unconfirmed: Unconfirmed,
}

/// Outputs of unconfirmed transactions with the index of their script; the oldest is dropped
/// first.
#[derive(Debug, Clone, Default)]
struct Unconfirmed {
    scripts: BTreeMap<OutPoint, usize>,
    order: VecDeque<OutPoint>,
}

/// An output that is known to be the wallet's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The index of its script, if that is known.
    pub(super) script: Option<usize>,
}

impl Coins {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { outputs: BTreeMap::new(), limit, unconfirmed: Unconfirmed::default() }
    }

    /// Adds an output by hand.
    pub(super) fn give(&mut self, outpoint: OutPoint, script: Option<usize>) {
        let new = WatchedOutput { script, value: None, created: None, spent: None, is_given: true };
        let kept = self.outputs.entry(outpoint).or_insert(new);
        kept.script = kept.script.or(script);
        kept.is_given = true;
    }

    /// Keeps an output that a transaction of a block shows; `height` is `None` if that block has
    /// left the chain. Returns `false` if the limit is reached.
    pub(super) fn keep(
        &mut self,
        outpoint: OutPoint,
        script: usize,
        value: Amount,
        height: Option<u32>,
    ) -> bool {
        if self.outputs.len() >= self.limit && !self.outputs.contains_key(&outpoint) {
            return false;
        }
        let new = WatchedOutput {
            script: Some(script),
            value: Some(value),
            created: height,
            spent: None,
            is_given: false,
        };
        let kept = self.outputs.entry(outpoint).or_insert(new);
        kept.script = kept.script.or(new.script);
        kept.value = new.value;
        kept.created = height.or(kept.created);
        true
    }

    /// Remembers an output of an unconfirmed transaction for a while.
    pub(super) fn keep_unconfirmed(&mut self, outpoint: OutPoint, script: usize) {
        self.unconfirmed.insert(outpoint, script);
    }

    /// Whether an output is the wallet's, unconfirmed ones included.
    pub(super) fn known(&self, outpoint: &OutPoint) -> Option<Known> {
        match self.outputs.get(outpoint) {
            Some(output) => Some(Known { script: output.script }),
            None => {
                self.unconfirmed.scripts.get(outpoint).map(|&script| Known { script: Some(script) })
            }
        }
    }

    /// Notes that a block of the chain spends `outpoint`, if it is kept.
    pub(super) fn spend(&mut self, outpoint: &OutPoint, height: u32) {
        if let Some(output) = self.outputs.get_mut(outpoint) {
            output.spent = Some(height);
        }
    }

    pub(super) fn get(&self, outpoint: &OutPoint) -> Option<&WatchedOutput> {
        self.outputs.get(outpoint)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&OutPoint, &WatchedOutput)> {
        self.outputs.iter()
    }

    pub(super) fn remove(&mut self, outpoint: &OutPoint) -> Option<WatchedOutput> {
        self.outputs.remove(outpoint)
    }

    /// Removes the outputs of these scripts.
    pub(super) fn remove_scripts(&mut self, scripts: &BTreeSet<usize>) {
        self.outputs.retain(|_, output| output.script.is_none_or(|it| !scripts.contains(&it)));
        self.unconfirmed.remove_scripts(scripts);
    }

    /// Forgets outputs created above `height`, but for those given by hand, and what blocks
    /// above it spent.
    pub(super) fn rewind(&mut self, height: u32) {
        let is_above = |at: Option<u32>| at.is_some_and(|at| at > height);
        self.outputs.retain(|_, output| output.is_given || !is_above(output.created));
        for output in self.outputs.values_mut() {
            if is_above(output.created) {
                (output.created, output.value) = (None, None);
            }
            if is_above(output.spent) {
                output.spent = None;
            }
        }
    }

    /// Keeps all outputs, and forgets the heights from `height` on.
    pub(super) fn unconfirm_from(&mut self, height: u32) {
        for output in self.outputs.values_mut() {
            output.created.take_if(|at| *at >= height);
            output.spent.take_if(|at| *at >= height);
        }
    }

    pub(super) fn forget_spent(&mut self, height: u32) {
        self.outputs.retain(|_, output| output.spent.is_none_or(|spent| spent > height));
    }
}

impl Unconfirmed {
    fn insert(&mut self, outpoint: OutPoint, script: usize) {
        if self.scripts.insert(outpoint, script).is_none() {
            self.order.push_back(outpoint);
        }
        while self.order.len() > MAX_UNCONFIRMED {
            if let Some(oldest) = self.order.pop_front() {
                self.scripts.remove(&oldest);
            }
        }
    }

    fn remove_scripts(&mut self, scripts: &BTreeSet<usize>) {
        self.scripts.retain(|_, script| !scripts.contains(script));
        self.order.retain(|outpoint| self.scripts.contains_key(outpoint));
    }
}
