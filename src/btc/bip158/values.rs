//! The values of one filter, asked for scripts.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use chainsieve_lanes::hash::{Packed, SipKey, siphash_2_4};
use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter, scale};
use super::scripts::PreparedScripts;
use super::slots::Slots;

/// The values of a filter, and where they stand if many scripts are to be asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    key: Option<SipKey>,
    range: u64,
    ascending: Vec<u64>,
    slots: Slots,
    has_slots: bool,
}

/// To fill the slots with as many values takes as long as to search all values for one script.
const VALUES_PER_SEARCH: usize = 16;

impl Values {
    /// Replaces the values by those of `filter`, which is to be asked for so many scripts.
    ///
    /// # Errors
    /// As [`GcsFilter::decode_into`].
    pub(super) fn decode(
        &mut self,
        backend: Backend,
        filter: &GcsFilter<'_>,
        num_scripts: usize,
    ) -> Result<(), GcsError> {
        filter.decode_into_on(backend, &mut self.ascending)?;
        (self.key, self.range) = (Some(filter.key()), filter.range());
        self.has_slots = num_scripts >= self.ascending.len() / VALUES_PER_SEARCH;
        if self.has_slots {
            self.slots.fill(&self.ascending, self.range);
        }
        Ok(())
    }

    /// Whether `script` may be there.
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

    /// Asks for the scripts in `range`. Hands to `take` how many were asked since, and the
    /// indices of those that may be there, in any order, until it breaks.
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

    /// Whether at least one of `scripts` may be there.
    pub(super) fn match_any(&self, backend: Backend, scripts: &PreparedScripts) -> bool {
        let first = |_, found: &[u32]| match found {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        self.ask(backend, scripts, 0..scripts.len(), first).is_break()
    }

    /// Whether each of `scripts` may be there.
    pub(super) fn match_all(&self, backend: Backend, scripts: &PreparedScripts) -> bool {
        let first_missing = |asked, found: &[u32]| match found.len() {
            count if count < asked => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        self.ask(backend, scripts, 0..scripts.len(), first_missing).is_continue()
    }

    /// The indices of the scripts in `range` that may be there, ascending.
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
