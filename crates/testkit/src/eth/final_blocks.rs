//! A made-up beacon chain that finalises given execution blocks, one after the other, now.

use alloy_primitives::B256;

use super::beacon_server::BeaconData;
use super::beacon_world::{Draft, EPOCH, World, at, started};

/// The period of all blocks.
const PERIOD: u64 = 1;
/// Slot of the checkpoint.
const CHECKPOINT: u64 = at(PERIOD, EPOCH);
/// The slot that has started.
const NOW: u64 = at(PERIOD, 7 * EPOCH);
/// First epoch of Gloas where it is far away.
const LATER: u64 = 1 << 32;

/// A beacon chain, and what its servers have.
pub struct FinalBlocks {
    pub world: World,
    /// Slot of the last finalised block.
    finalized: u64,
}

impl FinalBlocks {
    /// Returns a chain of blocks of Fulu, which bind execution headers, or of Gloas, which bind only
    /// the hash of the execution block before them.
    pub fn new(is_gloas: bool) -> Self {
        let gloas = if is_gloas { 0 } else { LATER };
        let world = World::with([0, 0, 0, 0, 0, 0, gloas], PERIOD + 2, &started(NOW));
        Self { world, finalized: CHECKPOINT }
    }

    /// Returns the root of the checkpoint, which a user trusts.
    pub fn checkpoint(&self) -> B256 {
        self.world.finalized(CHECKPOINT).beacon.root()
    }

    /// Finalises a beacon block that binds the execution block with this header. Returns what an
    /// honest server has then. At most three blocks can be finalised.
    pub fn finalise(&mut self, header_rlp: &[u8]) -> BeaconData {
        self.finalized += EPOCH;
        let attested = self.finalized + 2 * EPOCH;
        assert!(attested < NOW, "not yet started");
        self.world.bind(self.finalized, header_rlp);
        let mut data = BeaconData::default();
        data.add_bootstrap(self.world.bootstrap(CHECKPOINT));
        data.updates.insert(PERIOD, self.world.update(Draft::full(attested, self.finalized)));
        data.finality = Some(self.world.update(Draft::finality(attested, self.finalized)));
        data.optimistic = Some(self.world.update(Draft::optimistic(self.newest_signed())));
        data
    }

    /// Returns the slot of the newest signed block.
    pub fn newest_signed(&self) -> u64 {
        self.finalized + 2 * EPOCH + 1
    }
}
