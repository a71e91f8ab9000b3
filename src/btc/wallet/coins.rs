//! The watched outputs: those added by the caller, those found in transactions, and a bounded
//! number of unconfirmed ones.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use bitcoin::{Amount, OutPoint};

/// An output whose spend is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchedOutput {
    /// Index of its script in the watch; `None` if the caller added the output without its script.
    pub script: Option<usize>,
    /// Amount, if the transaction that created the output was seen.
    pub value: Option<Amount>,
    /// Height of the block that created the output; `None` if unknown.
    pub created: Option<u32>,
    /// Height of the block that spent the output; `None` if no spend is known.
    pub spent: Option<u32>,
    /// `true` if the caller added the output. Such an output is kept even if its block leaves the
    /// chain.
    pub is_given: bool,
}

/// Maximum number of remembered unconfirmed outputs. Without a limit, a peer could fill the memory:
/// unconfirmed transactions cost nothing to invent.
const MAX_UNCONFIRMED: usize = 1_000;

/// The outputs of the wallet.
#[derive(Debug, Clone)]
pub(super) struct Coins {
    outputs: BTreeMap<OutPoint, WatchedOutput>,
    /// Once this many outputs are kept, no further outputs are kept except those that the caller
    /// adds.
    limit: usize,
    unconfirmed: Unconfirmed,
}

/// Outputs of unconfirmed transactions, each with the index of its script. The oldest output is
/// dropped first.
#[derive(Debug, Clone, Default)]
struct Unconfirmed {
    scripts: BTreeMap<OutPoint, usize>,
    order: VecDeque<OutPoint>,
}

/// An output that is known to belong to the wallet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Index of the script of the output, if it is known.
    pub(super) script: Option<usize>,
}

impl Coins {
    /// Creates an empty set of outputs with a limit.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { outputs: BTreeMap::new(), limit, unconfirmed: Unconfirmed::default() }
    }

    /// Adds an output on behalf of the caller, regardless of the limit.
    pub(super) fn give(&mut self, outpoint: OutPoint, script: Option<usize>) {
        let new = WatchedOutput { script, value: None, created: None, spent: None, is_given: true };
        let kept = self.outputs.entry(outpoint).or_insert(new);
        kept.script = kept.script.or(script);
        kept.is_given = true;
    }

    /// Adds or updates an output that a transaction in a block creates. `height` is `None` if that
    /// block has left the chain. Returns `false` if the limit is reached.
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

    /// Remembers an output of an unconfirmed transaction until [`MAX_UNCONFIRMED`] newer ones
    /// replace it.
    pub(super) fn keep_unconfirmed(&mut self, outpoint: OutPoint, script: usize) {
        self.unconfirmed.insert(outpoint, script);
    }

    /// Returns the output if it belongs to the wallet, even if it is unconfirmed; otherwise `None`.
    pub(super) fn known(&self, outpoint: &OutPoint) -> Option<Known> {
        match self.outputs.get(outpoint) {
            Some(output) => Some(Known { script: output.script }),
            None => {
                self.unconfirmed.scripts.get(outpoint).map(|&script| Known { script: Some(script) })
            }
        }
    }

    /// Notes that the block at `height` spends `outpoint`, if that output is kept.
    pub(super) fn spend(&mut self, outpoint: &OutPoint, height: u32) {
        // Outputs beyond the limit are not kept, so their spends are not recorded either.
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

    /// Removes all outputs of these scripts.
    pub(super) fn remove_scripts(&mut self, scripts: &BTreeSet<usize>) {
        self.outputs.retain(|_, output| output.script.is_none_or(|it| !scripts.contains(&it)));
        self.unconfirmed.remove_scripts(scripts);
    }

    /// Removes the outputs created above `height`, except those added by the caller. Marks outputs
    /// spent above `height` as unspent.
    pub(super) fn rewind(&mut self, height: u32) {
        let is_above = |at: Option<u32>| at.is_some_and(|at| at > height);
        self.outputs.retain(|_, output| output.is_given || !is_above(output.created));
        for output in self.outputs.values_mut() {
            // An output that the caller has added stays watched, but is unconfirmed again.
            if is_above(output.created) {
                (output.created, output.value) = (None, None);
            }
            // The spending block has left the chain: on the new branch, another transaction may
            // spend the output.
            if is_above(output.spent) {
                output.spent = None;
            }
        }
    }

    /// Keeps all outputs, but marks those created at `height` or above as unconfirmed, and those
    /// spent at `height` or above as unspent.
    pub(super) fn unconfirm_from(&mut self, height: u32) {
        for output in self.outputs.values_mut() {
            output.created.take_if(|at| *at >= height);
            output.spent.take_if(|at| *at >= height);
        }
    }

    /// Removes the outputs that were spent at `height` or below.
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
