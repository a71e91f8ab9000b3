//! The decoded values of one filter, and look-ups of scripts in them.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use chainsieve_lanes::hash::{Packed, SipKey, siphash_2_4};
use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter, scale};
use super::scripts::PreparedScripts;
use super::slots::Slots;

/// The values of a filter, with a slot table if many scripts are to be looked up.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    key: Option<SipKey>,
    range: u64,
    ascending: Vec<u64>,
    slots: Slots,
    has_slots: bool,
}

/// Number of values that can be entered into the slot table in the time of one binary search over
/// all values.
const VALUES_PER_SEARCH: usize = 16;

impl Values {
    /// Replaces the values with those of `filter`. `num_scripts` scripts will be looked up.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::decode_into`].
    pub(super) fn decode(
        &mut self,
        backend: Backend,
        filter: &GcsFilter<'_>,
        num_scripts: usize,
    ) -> Result<(), GcsError> {
        filter.decode_into_on(backend, &mut self.ascending)?;
        (self.key, self.range) = (Some(filter.key()), filter.range());
        // The slot table pays off only if there are enough look-ups to cover the cost of filling
        // it.
        self.has_slots = num_scripts >= self.ascending.len() / VALUES_PER_SEARCH;
        if self.has_slots {
            self.slots.fill(&self.ascending, self.range);
        }
        Ok(())
    }

    /// Returns `true` if the filter may contain `script`.
    pub(super) fn may_contain(&self, script: &[u8]) -> bool {
        self.key.is_some_and(|key| self.contains(siphash_2_4(key, script)))
    }

    fn contains(&self, hash: u64) -> bool {
        let value = scale(hash, self.range);
        if self.has_slots {
            self.slots.contains(&self.ascending, value)
        } else {
            self.ascending.binary_search(&value).is_ok()
        }
    }

    /// Looks up the scripts in `range`, a batch at a time. For each batch, calls `take` with the
    /// number of scripts of the batch and the indices of those that may be in the filter, in any
    /// order. Stops when `take` breaks.
    pub(super) fn ask(
        &self,
        backend: Backend,
        scripts: &PreparedScripts,
        range: Range<usize>,
        mut take: impl FnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(key) = self.key else { return ControlFlow::Continue(()) };
        scripts.hash_each(backend, key, range, |indices, hashes| {
            let mut found = [0; Packed::AT_A_TIME];
            let mut count = 0;
            let mut keep = |position: usize| {
                if self.contains(hashes[position]) {
                    found[count] = indices[position];
                    count += 1;
                }
            };
            if self.has_slots {
                let taken = self.slots.taken(backend, hashes, self.range);
                for (mut taken, start) in taken.into_iter().zip((0..).step_by(64)) {
                    while taken != 0 {
                        keep(start + taken.trailing_zeros() as usize);
                        taken &= taken - 1;
                    }
                }
            } else {
                (0..hashes.len()).for_each(keep);
            }
            take(hashes.len(), &found[..count])
        })
    }

    /// Returns `true` if at least one of the scripts in `range` may be in the filter.
    pub(super) fn match_any(
        &self,
        backend: Backend,
        scripts: &PreparedScripts,
        range: Range<usize>,
    ) -> bool {
        let first = |_, found: &[u32]| match found {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        self.ask(backend, scripts, range, first).is_break()
    }

    /// Returns `true` if each of `scripts` may be in the filter.
    pub(super) fn match_all(&self, backend: Backend, scripts: &PreparedScripts) -> bool {
        let first_missing = |asked, found: &[u32]| match found.len() {
            count if count < asked => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        self.ask(backend, scripts, 0..scripts.len(), first_missing).is_continue()
    }

    /// Returns the indices of the scripts in `range` that may be in the filter, in ascending order.
    pub(super) fn matching(
        &self,
        backend: Backend,
        scripts: &PreparedScripts,
        range: Range<usize>,
    ) -> Vec<usize> {
        let mut matching = Vec::new();
        let _ = self.ask(backend, scripts, range, |_, found| {
            matching.extend(found.iter().map(|index| *index as usize));
            ControlFlow::Continue(())
        });
        matching.sort_unstable();
        matching
    }
}
