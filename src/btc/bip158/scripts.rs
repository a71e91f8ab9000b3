//! Scripts that are packed once and matched against many filters.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use chainsieve_lanes::hash::{Packed, SipKey};
use chainsieve_lanes::simd::Backend;

/// An ordered set of scripts to look for, packed once for hashing under the key of each filter.
///
/// The index of a script never changes while the set grows. Scripts that are empty or begin with
/// `OP_RETURN` match only by chance: basic filters leave them out, and nobody can spend an
/// `OP_RETURN` output.
///
/// # Cost
/// Adding a script copies it twice. Building a set for a single filter is therefore cheap enough.
#[derive(Debug, Clone, Default)]
pub struct PreparedScripts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    packed: Packed,
}

impl PreparedScripts {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a script, and returns its index. A script that is already in the set gets a second
    /// index.
    ///
    /// # Panics
    /// Panics if the set already has 2<sup>32</sup> - 1 scripts.
    pub fn push(&mut self, script: &[u8]) -> usize {
        let index = self.ends.len();
        let packed_index = u32::try_from(index).ok().filter(|index| *index < u32::MAX);
        self.packed.push(packed_index.expect("fewer than 2^32 - 1 scripts"), script);
        self.bytes.extend_from_slice(script);
        self.ends.push(self.bytes.len());
        index
    }

    /// Removes all scripts, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.packed.clear();
    }

    /// Returns the number of scripts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if the set contains no scripts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the script at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..end)
    }

    /// Iterates over the scripts in the order of their indices.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).expect("below the number of scripts"))
    }

    /// Hashes the scripts in `range` under `key`, a batch at a time. For each batch, calls `take`
    /// with the indices of its scripts and with their hashes, until `take` breaks. The indices may
    /// be in any order.
    pub(super) fn hash_each(
        &self,
        backend: Backend,
        key: SipKey,
        range: Range<usize>,
        take: impl FnMut(&[u32], &[u64]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let bound =
            |index: usize| u32::try_from(index.min(self.len())).expect("as many were added");
        let script = |index: u32| self.get(index as usize).expect("it was added");
        let end = bound(range.end);
        self.packed.hash_each(backend, key, bound(range.start).min(end)..end, script, take)
    }
}

impl<S: AsRef<[u8]>> Extend<S> for PreparedScripts {
    fn extend<I: IntoIterator<Item = S>>(&mut self, scripts: I) {
        let scripts = scripts.into_iter();
        self.ends.reserve(scripts.size_hint().0);
        for script in scripts {
            self.push(script.as_ref());
        }
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for PreparedScripts {
    fn from_iter<I: IntoIterator<Item = S>>(scripts: I) -> Self {
        let mut set = Self::new();
        set.extend(scripts);
        set
    }
}

#[cfg(test)]
mod tests {
    use core::ops::ControlFlow;

    use chainsieve_lanes::hash::{SipKey, siphash_2_4};
    use chainsieve_lanes::simd::Backend;

    use super::PreparedScripts;

    const KEY: SipKey = SipKey { k0: 3, k1: 7 };

    /// Returns a script of 0 to 99 bytes.
    fn script(i: usize) -> Vec<u8> {
        vec![u8::try_from(i % 256).unwrap(); i * 37 % 100]
    }

    fn check(set: &PreparedScripts, expected: &[Vec<u8>], range: core::ops::Range<usize>) {
        assert_eq!(set.len(), expected.len());
        assert!(set.iter().eq(expected));
        assert_eq!(set.get(expected.len()), None);
        for backend in Backend::available() {
            let mut hashes = Vec::new();
            let end = set.hash_each(backend, KEY, range.clone(), |indices, some| {
                assert_eq!(indices.len(), some.len());
                hashes.extend(indices.iter().copied().zip(some.iter().copied()));
                ControlFlow::Continue(())
            });
            assert!(end.is_continue());
            hashes.sort_unstable();
            let expected = range.clone().map(|i| {
                assert_eq!(set.get(i), Some(&expected[i][..]));
                (u32::try_from(i).unwrap(), siphash_2_4(KEY, &expected[i]))
            });
            assert!(hashes.into_iter().eq(expected), "{backend:?}, {range:?}");
        }
    }

    #[test]
    fn indices_stay_while_a_set_grows() {
        let (mut set, mut expected) = (PreparedScripts::new(), Vec::new());
        assert!(set.is_empty());
        for round in 0..30 {
            let start = expected.len();
            for i in start..start + round * 3 {
                assert_eq!(set.push(&script(i)), i);
                expected.push(script(i));
            }
            // The ranges contain the new scripts, the earlier scripts, or some of both.
            let len = expected.len();
            for range in [start..len, 0..start, start / 2..start + (len - start) / 2] {
                check(&set, &expected, range);
            }
        }
        #[expect(clippy::reversed_empty_ranges, reason = "it is none")]
        check(&set, &expected, 9..2);
        set.clear();
        check(&set, &[], 0..0);
        let again: Vec<_> = (5..300).map(script).collect();
        set.extend(&again);
        check(&set, &again, 0..again.len());
        check(&again.iter().collect(), &again, 7..101);
    }

    #[test]
    fn a_break_ends_the_hashing() {
        let set: PreparedScripts = (0..5_000).map(script).collect();
        for backend in Backend::available() {
            let mut calls = 0;
            let end = set.hash_each(backend, KEY, 0..set.len(), |_, _| {
                calls += 1;
                ControlFlow::Break(())
            });
            assert!(end.is_break());
            assert_eq!(calls, 1);
        }
    }
}
