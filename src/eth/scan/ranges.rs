//! Sets of block numbers, stored as ranges.

use alloc::vec::Vec;
use core::ops::Range;

/// Set of numbers: ascending ranges, none of which is empty or touches the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(super) fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the index of the first range that ends at or after `number`.
    fn reaching(&self, number: u64) -> usize {
        self.0.partition_point(|range| range.end < number)
    }

    /// Adds the numbers of `new`.
    pub(super) fn insert(&mut self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.reaching(new.start);
        let mut end = first;
        while let Some(range) = self.0.get(end).filter(|range| range.start <= new.end) {
            new = new.start.min(range.start)..new.end.max(range.end);
            end += 1;
        }
        self.0.splice(first..end, [new]);
    }

    /// Removes the numbers of `gone`.
    pub(super) fn remove(&mut self, gone: &Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let first = self.reaching(gone.start);
        let mut end = first;
        let mut left = Vec::new();
        while let Some(range) = self.0.get(end).filter(|range| range.start < gone.end) {
            let before = range.start..range.end.min(gone.start);
            let behind = range.start.max(gone.end)..range.end;
            left.extend([before, behind].into_iter().filter(|range| !range.is_empty()));
            end += 1;
        }
        self.0.splice(first..end, left);
    }

    /// Returns the numbers of the set that lie in `within`.
    pub(super) fn intersection(&self, within: &Range<u64>) -> Self {
        let cut =
            self.0.iter().map(|range| range.start.max(within.start)..range.end.min(within.end));
        Self(cut.filter(|range| !range.is_empty()).collect())
    }

    /// Returns the numbers of `within` that are not in the set.
    pub(super) fn gaps(&self, within: &Range<u64>) -> Self {
        let mut gaps = Self::default();
        gaps.insert(within.clone());
        self.0.iter().for_each(|range| gaps.remove(range));
        gaps
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::Ranges;

    /// Compares every operation with a set of single numbers.
    #[test]
    fn as_a_set_of_numbers() {
        let mut rng = testkit::Rng::new(7);
        let mut below = move |end: u64| rng.u64() % end;
        for _ in 0..200 {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for _ in 0..20 {
                let start = below(40);
                let range = start..start + below(8);
                if below(3) == 0 {
                    ranges.remove(&range);
                    plain.retain(|number| !range.contains(number));
                } else {
                    ranges.insert(range.clone());
                    plain.extend(range);
                }
                let numbers = |ranges: &Ranges| -> BTreeSet<u64> {
                    let slice = ranges.as_slice();
                    assert!(slice.iter().all(|range| !range.is_empty()));
                    assert!(slice.windows(2).all(|pair| pair[0].end < pair[1].start));
                    slice.iter().cloned().flatten().collect()
                };
                assert_eq!(numbers(&ranges), plain);
                let start = below(40);
                let within = start..start + below(20);
                let (inside, outside) = within.clone().partition(|block| plain.contains(block));
                assert_eq!(numbers(&ranges.intersection(&within)), inside);
                assert_eq!(numbers(&ranges.gaps(&within)), outside);
            }
        }
    }
}
