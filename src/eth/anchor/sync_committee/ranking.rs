//! Order of updates of the same period: which one is worth more.

use core::cmp::Reverse;

use super::update::Update;
use crate::eth::anchor::network::Preset;

/// Value of an update, to choose between several of one period: the greater one is better.
///
/// The order is that of `is_better_update`: a signature by two thirds of the committee; without
/// one, more participants; a next sync committee of the signature's period; any finalised header; a
/// finalised header in the attested period; more participants; an older attested header; an earlier
/// signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a criterion of the specification")]
pub struct Rank {
    // The derived order compares the fields from first to last.
    supermajority: bool,
    /// Participants, if they are fewer than two thirds; otherwise 0.
    minority: usize,
    relevant_committee: bool,
    finality: bool,
    finality_in_period: bool,
    participants: usize,
    attested_slot: Reverse<u64>,
    signature_slot: Reverse<u64>,
}

impl Update {
    /// Returns the value of the update among others of its period. The update is not verified.
    pub fn rank(&self, preset: Preset) -> Rank {
        let period = |slot: u64| slot / preset.slots_per_period();
        let attested_period = period(self.attested.beacon.slot);
        let supermajority = self.aggregate.is_supermajority();
        let participants = self.aggregate.participants();
        let in_period = |slot| period(slot) == attested_period;
        Rank {
            supermajority,
            minority: if supermajority { 0 } else { participants },
            relevant_committee: self.next_committee.is_some() && in_period(self.signature_slot),
            finality: self.finality.is_some(),
            finality_in_period: self.finality.as_ref().is_some_and(|at| in_period(at.slot())),
            participants,
            attested_slot: Reverse(self.attested.beacon.slot),
            signature_slot: Reverse(self.signature_slot),
        }
    }
}
