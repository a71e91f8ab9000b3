//! A made-up beacon chain of many periods, with empty slots, epochs without finality and weak
//! signatures, and what an honest server has of it at any time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use alloy_primitives::B256;
use chainsieve::eth::anchor::sync_committee::{Bootstrap, LightClientHeader, Update};

use super::beacon_server::BeaconData;
use super::beacon_world::{Draft, EPOCH, MEMBERS, PERIOD, World, at};
use crate::Rng;

/// Smallest number of participants that are two thirds of a committee.
pub const TWO_THIRDS: usize = (2 * MEMBERS).div_ceil(3);

/// A block of the chain.
#[derive(Debug, Clone, Copy)]
struct Block {
    root: B256,
    /// Slot of the block that its state finalises; 0 is the genesis block.
    finalized: u64,
    /// Slot of the next block, which contains the signatures of this one.
    signature_slot: u64,
    /// Number of members that signed.
    participants: usize,
}

/// A chain, and its updates.
pub struct BeaconChain {
    pub world: World,
    blocks: BTreeMap<u64, Block>,
    /// Updates that were signed before, by attested slot.
    signed: Mutex<HashMap<u64, Arc<Update>>>,
}

impl BeaconChain {
    /// Makes a chain of a number of periods. In the periods of `stalled`, nothing is finalised.
    pub fn new(world: World, periods: u64, stalled: Range<u64>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let end = at(periods, 0);
        let is_there = |rng: &mut Rng, slot: u64| slot == 0 || !rng.one_in(5);
        let mut slots: Vec<u64> = (0..end).filter(|&slot| is_there(&mut rng, slot)).collect();
        // Now and then, an epoch has no block at all.
        let first = |epoch: u64| epoch * EPOCH;
        for epoch in (1..end / EPOCH).filter(|epoch| epoch % 8 != 4) {
            if rng.one_in(40) {
                slots.retain(|&slot| slot / EPOCH != epoch);
            }
        }
        let mut chain = Self { world, blocks: BTreeMap::new(), signed: Mutex::default() };
        let (mut finalized, mut epoch) = (0, 0);
        for (at, &slot) in slots.iter().enumerate() {
            if slot / EPOCH > epoch {
                epoch = slot / EPOCH;
                let stalls = stalled.contains(&(slot / PERIOD)) || epoch % 8 < 4 && rng.one_in(6);
                if !stalls && epoch >= 2 {
                    // The last block up to the first slot of the epoch.
                    let up_to = chain.blocks.range(..=first(epoch - 2));
                    finalized = up_to.map(|(slot, _)| *slot).next_back().unwrap_or(0);
                }
            }
            let participants = match rng.below(6) {
                0 => 1 + rng.below(TWO_THIRDS - 1),
                1 => TWO_THIRDS,
                _ => TWO_THIRDS + rng.below(MEMBERS - TWO_THIRDS + 1),
            };
            let root = chain.finalized_root(finalized);
            let root = chain.world.block(slot, root).0.beacon.root();
            let signature_slot = slots.get(at + 1).copied().unwrap_or(end);
            let block = Block { root, finalized, signature_slot, participants };
            chain.blocks.insert(slot, block);
        }
        chain
    }

    /// Returns the root by which a state names the finalised block of a slot.
    fn finalized_root(&self, slot: u64) -> B256 {
        if slot == 0 { B256::ZERO } else { self.blocks[&slot].root }
    }

    /// Returns the root of the block of a slot, if there is one.
    pub fn root(&self, slot: u64) -> Option<B256> {
        self.blocks.get(&slot).map(|block| block.root)
    }

    /// Returns the header of the block of a slot.
    pub fn header(&self, slot: u64) -> LightClientHeader {
        self.world.block(slot, self.finalized_root(self.blocks[&slot].finalized)).0
    }

    /// Returns the last slot with a block up to a slot.
    pub fn block_at(&self, slot: u64) -> u64 {
        *self.blocks.range(..=slot).next_back().expect("the genesis block").0
    }

    /// Returns the bootstrap of the block of a slot.
    pub fn bootstrap(&self, slot: u64) -> Bootstrap {
        let finalized = self.blocks[&slot].finalized;
        self.world.bootstrap_with(slot, self.finalized_root(finalized))
    }

    /// Returns the draft of the update that attests the block of a slot.
    pub fn draft(&self, slot: u64) -> Draft {
        let Block { finalized, signature_slot, participants, .. } = self.blocks[&slot];
        Draft { signature_slot, ..Draft::full(slot, finalized) }.by(participants)
    }

    /// Signs a draft. Its finalised block is one of this chain.
    pub fn sign(&self, draft: Draft) -> Update {
        let finalized = draft.finalized.filter(|&slot| slot > 0).map(|slot| self.header(slot));
        self.world.update_with(draft, finalized)
    }

    /// Returns the update that attests the block of a slot.
    pub fn update(&self, slot: u64) -> Arc<Update> {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        let update = signed.entry(slot).or_insert_with(|| Arc::new(self.sign(self.draft(slot))));
        Arc::clone(update)
    }

    /// Returns the slots of the blocks in a range of slots whose signatures are on the chain when
    /// the slot `now` has started.
    pub fn attested(&self, slots: Range<u64>, now: u64) -> impl Iterator<Item = u64> {
        let signed = move |(_, block): &(&u64, &Block)| block.signature_slot <= now;
        self.blocks.range(slots).filter(signed).map(|(slot, _)| *slot)
    }

    /// Returns the attested slot of the best update of a period at a time: `is_better_update`.
    pub fn best(&self, period: u64, now: u64) -> Option<u64> {
        let rank = |&slot: &u64| {
            let block = self.blocks[&slot];
            let supermajority = block.participants >= TWO_THIRDS;
            let finality = block.finalized / PERIOD == period;
            (
                supermajority,
                if supermajority { 0 } else { block.participants },
                block.signature_slot / PERIOD == period,
                finality,
                block.participants,
                Reverse(slot),
            )
        };
        self.attested(at(period, 0)..at(period + 1, 0), now).max_by_key(rank)
    }

    /// Returns the attested slot of the newest finality update at a time: that of the newest
    /// finalised block, and by two thirds of the committee if there is one.
    pub fn newest(&self, now: u64) -> Option<u64> {
        let rank = |&slot: &u64| {
            let block = self.blocks[&slot];
            (block.finalized, block.participants >= TWO_THIRDS, slot)
        };
        let since = now.saturating_sub(3 * PERIOD);
        self.attested(since..now.saturating_add(1), now).max_by_key(rank)
    }

    /// Returns the slot of the newest finalised block that a client can take from the newest
    /// finality update at a time, if two thirds signed it.
    pub fn finalized(&self, now: u64) -> Option<u64> {
        let block = self.blocks[&self.newest(now)?];
        (block.participants >= TWO_THIRDS).then_some(block.finalized)
    }

    /// Returns what a server has at a time: the updates, and no bootstrap.
    pub fn data(&self, now: u64) -> BeaconData {
        let best = |period: u64| {
            let slot = self.best(period, now)?;
            Some((period, Update::clone(&self.update(slot))))
        };
        let newest = self.newest(now).map(|slot| Update::clone(&self.update(slot)));
        let last = self.attested(now.saturating_sub(PERIOD)..now + 1, now).last();
        BeaconData {
            bootstraps: HashMap::new(),
            updates: (0..=now / PERIOD).filter_map(best).collect(),
            finality: newest,
            optimistic: last.map(|slot| Update::clone(&self.update(slot))),
        }
    }
}
