//! The blocks that an audit examines, and the state of each.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bloom};

use super::{AuditQuestion, Undecidable, Verdict};
use crate::eth::chain_profile::{ChainProfile, ReceiptsScope};
use crate::eth::header::LinkedHeaders;
use crate::eth::scan;

/// State of a block that an audit examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The audit waits for the block's receipts.
    Open,
    /// The receipts arrived without post-state roots, so that they cannot be hashed.
    PostStateMissing,
    /// The receipts were compared with the answer.
    Checked,
    /// The receipts were compared with the answer, but they lack logs that nodes also return.
    PartlyChecked,
}

impl State {
    /// Returns `true` if the block's receipts were compared with the answer.
    pub(super) fn is_checked(self) -> bool {
        matches!(self, Self::Checked | Self::PartlyChecked)
    }
}

/// The blocks that an audit examines: their filters cannot rule out a match.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Number and state of each block, ascending by number.
    states: Vec<(u64, State)>,
    /// Hash and number of each block, ascending by hash.
    by_hash: Vec<(B256, u64)>,
    /// Blocks whose filter lacks bits, although the profile claims that it lacks none.
    contradicted: Vec<u64>,
}

impl Blocks {
    pub(super) fn new(question: &AuditQuestion<'_>, range: &RangeInclusive<u64>) -> Self {
        let mut states = Vec::new();
        let mut add = |number| states.push((number, State::Open));
        let query = question.query.compile();
        for (index, numbers) in ranges(question.profile, range) {
            if question.profile.ranges()[index].bloom.proves_absence() {
                let blooms = blooms(question.chain, &numbers);
                for at in scan::candidates(&query, blooms) {
                    add(numbers.start() + at as u64);
                }
            } else {
                // If a filter may lack bits, its "no" proves nothing, so every block is examined.
                numbers.for_each(&mut add);
            }
        }
        let hash = |&(number, _): &(u64, State)| Some((question.chain.block(number)?.hash, number));
        let mut by_hash: Vec<_> = states.iter().filter_map(hash).collect();
        by_hash.sort_unstable();
        Self { states, by_hash, contradicted: Vec::new() }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.states.iter().map(|(number, _)| *number)
    }

    /// Returns the numbers of the blocks whose receipts are awaited.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        let open = self.states.iter().filter(|(_, state)| *state == State::Open);
        open.map(|(number, _)| *number)
    }

    /// Returns the numbers of the blocks whose receipts were not compared with the answer.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = u64> {
        let unchecked = self.states.iter().filter(|(_, state)| !state.is_checked());
        unchecked.map(|(number, _)| *number)
    }

    pub(super) fn number_of(&self, hash: B256) -> Option<u64> {
        let at = self.by_hash.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        self.by_hash.get(at).map(|(_, number)| *number)
    }

    pub(super) fn state(&self, number: u64) -> Option<State> {
        self.states.get(self.index(number)?).map(|(_, state)| *state)
    }

    /// Returns `true` if the block's receipts were compared with the answer.
    pub(super) fn is_checked(&self, number: u64) -> bool {
        self.state(number).is_some_and(State::is_checked)
    }

    /// Returns `true` if the receipts of all blocks were checked and contain all logs that nodes
    /// return.
    pub(super) fn are_all_checked(&self) -> bool {
        self.states.iter().all(|(_, state)| *state == State::Checked)
    }

    pub(super) fn check(&mut self, number: u64, scope: ReceiptsScope) {
        let state = match scope {
            ReceiptsScope::EveryLog => State::Checked,
            ReceiptsScope::NotEveryLog => State::PartlyChecked,
        };
        self.set(number, state);
    }

    pub(super) fn miss_post_states(&mut self, number: u64) {
        self.set(number, State::PostStateMissing);
    }

    /// Records that the filter of this block lacks bits, which contradicts the profile.
    pub(super) fn contradict(&mut self, number: u64) {
        self.contradicted.push(number);
    }

    /// Returns the parts of the range for which a block has contradicted the profile.
    ///
    /// One contradiction withdraws the profile's statement for all blocks of its `ProfileRange`.
    pub(super) fn unsound_parts(
        &self,
        profile: &ChainProfile,
        range: &RangeInclusive<u64>,
    ) -> Vec<RangeInclusive<u64>> {
        let all = ranges(profile, range);
        let wrong = |numbers: &RangeInclusive<u64>| {
            self.contradicted.iter().any(|number| numbers.contains(number))
        };
        all.map(|(_, numbers)| numbers).filter(wrong).collect()
    }

    pub(super) fn verdict(&self, number: u64, anchored_to: Option<u64>) -> Verdict {
        if anchored_to.is_none_or(|anchored| number > anchored) {
            return Verdict::Undecidable(Undecidable::Unanchored);
        }
        match self.state(number) {
            None => Verdict::AbsentByBloom,
            Some(State::Open) => Verdict::Undecidable(Undecidable::ReceiptsNotSupplied),
            Some(State::PostStateMissing) => Verdict::Undecidable(Undecidable::PostStateMissing),
            Some(State::PartlyChecked) => Verdict::Undecidable(Undecidable::ReceiptsNotEveryLog),
            Some(State::Checked) => Verdict::CheckedByReceipts,
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        self.states.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    fn set(&mut self, number: u64, to: State) {
        let index = self.index(number);
        if let Some((_, state)) = index.and_then(|index| self.states.get_mut(index)) {
            *state = to;
        }
    }
}

/// Splits a range into parts with the same properties in the profile, each with the index of its
/// `ProfileRange`.
fn ranges(
    profile: &ChainProfile,
    range: &RangeInclusive<u64>,
) -> impl Iterator<Item = (usize, RangeInclusive<u64>)> {
    let ranges = profile.ranges();
    ranges.iter().enumerate().filter_map(move |(index, part)| {
        let first = part.first.max(*range.start());
        let end = ranges.get(index + 1).map_or(u64::MAX, |next| next.first - 1);
        let last = end.min(*range.end());
        (first <= last).then_some((index, first..=last))
    })
}

/// Returns the filters of these blocks, which must be on the chain.
fn blooms<'a>(chain: &'a LinkedHeaders, numbers: &RangeInclusive<u64>) -> &'a [Bloom] {
    let index = |number: u64| {
        let first = chain.numbers().map_or(number, |numbers| *numbers.start());
        usize::try_from(number - first).expect("as many blocks as are in memory")
    };
    &chain.blooms()[index(*numbers.start())..=index(*numbers.end())]
}
