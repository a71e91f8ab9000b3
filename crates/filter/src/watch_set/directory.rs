//! Extendible hashing: a directory that divides the hashes into parts, and finds the part of a hash
//! by the hash's top bits. Each part can be split or joined without touching the others.
//!
//! The top bits of a hash divide all hashes into [`STRIPES`] stripes, each with a lock of its own.
//! Each stripe has a directory. The directory is addressed by as many further bits as its deepest
//! part needs. A split touches only the two halves of one part, so the cost of an insertion does
//! not grow with the size of the set.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Number of top bits of a hash that select the stripe.
const STRIPE_BITS: u32 = 6;
/// Number of stripes, which is the number of writers that can work at the same time.
pub(super) const STRIPES: usize = 1 << STRIPE_BITS;
/// Number of splits after which a part is not split again. Random hashes do not agree in so many
/// bits: keys in such a part were chosen to collide.
const MAX_DEPTH: u32 = 18;

/// Returns the stripe of a hash.
#[inline]
pub(super) fn stripe_of(hash: u64) -> usize {
    (hash >> (64 - STRIPE_BITS)) as usize
}

/// Returns the range of hashes that belong to a stripe.
pub(super) fn stripe_range(stripe: usize) -> RangeInclusive<u64> {
    prefix_range(stripe as u64, STRIPE_BITS)
}

/// Returns the range of hashes that start with the `bits` bits of `prefix`. `bits` must be at least
/// 1.
fn prefix_range(prefix: u64, bits: u32) -> RangeInclusive<u64> {
    let first = prefix << (64 - bits);
    first..=first | u64::MAX >> bits
}

/// The parts of one stripe.
#[derive(Debug)]
pub(super) struct Directory<T> {
    stripe: usize,
    /// Number of bits after the stripe's bits that address the directory.
    bits: u32,
    /// For every value of the bits that address the directory, the index of the cell in `cells`.
    slots: Vec<u32>,
    cells: Vec<Cell<T>>,
}

#[derive(Debug)]
struct Cell<T> {
    /// Number of bits after the stripe's bits that all hashes in this cell share.
    depth: u32,
    /// The value of the bits that all hashes in this cell share.
    prefix: u64,
    part: T,
}

/// The index of a cell in a directory. The index is valid until the next split or join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellId(usize);

impl<T> Directory<T> {
    /// Creates a directory with a single part for all hashes of the stripe.
    pub(super) fn new(stripe: usize, part: T) -> Self {
        let cells = vec![Cell { depth: 0, prefix: 0, part }];
        Self { stripe, bits: 0, slots: vec![0], cells }
    }

    /// Creates a directory of `2^depth` parts with ranges of equal size, in order.
    ///
    /// # Panics
    /// Panics if the number of parts is not `2^depth`.
    pub(super) fn of_parts(stripe: usize, depth: u32, parts: Vec<T>) -> Self {
        assert_eq!(parts.len(), 1 << depth, "a part for each prefix");
        let slots = (0..1_u32 << depth).collect();
        let cells = (0..).zip(parts).map(|(prefix, part)| Cell { depth, prefix, part });
        Self { stripe, bits: depth, slots, cells: cells.collect() }
    }

    /// Returns the ranges of `2^depth` parts of equal size, in order.
    pub(super) fn ranges(stripe: usize, depth: u32) -> impl Iterator<Item = RangeInclusive<u64>> {
        let prefix = (stripe as u64) << depth;
        (0..1 << depth).map(move |part| prefix_range(prefix | part, STRIPE_BITS + depth))
    }

    #[inline]
    pub(super) fn cell_of(&self, hash: u64) -> CellId {
        // A shift by 64 bits would overflow if `bits` is 0. So the shift is done in two steps.
        let slot = hash << STRIPE_BITS >> 1 >> (63 - self.bits);
        CellId(self.slots[slot as usize] as usize)
    }

    #[inline]
    pub(super) fn part(&self, cell: CellId) -> &T {
        &self.cells[cell.0].part
    }

    #[inline]
    pub(super) fn part_mut(&mut self, cell: CellId) -> &mut T {
        &mut self.cells[cell.0].part
    }

    #[inline]
    pub(super) fn of(&self, hash: u64) -> &T {
        self.part(self.cell_of(hash))
    }

    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = &T> {
        self.cells.iter().map(|cell| &cell.part)
    }

    /// Returns every part with its range of hashes, in the order of the hashes.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (RangeInclusive<u64>, &T)> {
        let mut next = Some(*stripe_range(self.stripe).start());
        let end = *stripe_range(self.stripe).end();
        core::iter::from_fn(move || {
            let cell = self.cell_of(next.filter(|hash| *hash <= end)?);
            let range = self.range(cell);
            next = range.end().checked_add(1);
            Some((range, self.part(cell)))
        })
    }

    /// Returns the range of hashes that belong to the part.
    pub(super) fn range(&self, cell: CellId) -> RangeInclusive<u64> {
        let Cell { depth, prefix, .. } = self.cells[cell.0];
        prefix_range((self.stripe as u64) << depth | prefix, STRIPE_BITS + depth)
    }

    /// Returns the first hash of the upper half of the part. Returns `None` if the part must not be
    /// split further.
    pub(super) fn middle(&self, cell: CellId) -> Option<u64> {
        let Cell { depth, .. } = self.cells[cell.0];
        let range = self.range(cell);
        (depth < MAX_DEPTH).then(|| range.start() + (range.end() - range.start()) / 2 + 1)
    }

    /// Splits a part: `lower` gets the hashes below the middle of the part, and `upper` gets all
    /// remaining hashes.
    pub(super) fn split(&mut self, cell: CellId, lower: T, upper: T) {
        if self.cells[cell.0].depth == self.bits {
            // The part is already addressed by all bits of the directory. So the directory is
            // doubled, and is then addressed by one more bit.
            self.slots = self.slots.iter().flat_map(|slot| [*slot, *slot]).collect();
            self.bits += 1;
        }
        let added = self.cells.len();
        let Cell { depth, prefix, part } = &mut self.cells[cell.0];
        *depth += 1;
        *prefix <<= 1;
        *part = lower;
        let upper = Cell { depth: *depth, prefix: *prefix | 1, part: upper };
        self.cells.push(upper);
        self.point_to(CellId(added));
    }

    /// Returns the buddy of a part: the part whose hashes differ only in the last shared bit.
    /// Returns `None` if the hashes of the buddy are divided among several parts.
    pub(super) fn buddy(&self, cell: CellId) -> Option<CellId> {
        let Cell { depth, prefix, .. } = self.cells[cell.0];
        let slot = (prefix ^ 1) << (self.bits - depth);
        let buddy = *self.slots.get(usize::try_from(slot).ok()?)? as usize;
        (depth > 0 && self.cells[buddy].depth == depth).then_some(CellId(buddy))
    }

    /// Replaces a part and its [`buddy`](Self::buddy) by one part.
    pub(super) fn join(&mut self, cell: CellId, buddy: CellId, part: T) {
        let joined = &mut self.cells[cell.0];
        joined.depth -= 1;
        joined.prefix >>= 1;
        joined.part = part;
        self.point_to(cell);
        self.cells.swap_remove(buddy.0);
        if buddy.0 < self.cells.len() {
            // `swap_remove` moved the last cell to the buddy's index, so the slots of that cell
            // must be updated.
            self.point_to(buddy);
        }
    }

    /// Updates the slots of a cell's hashes to point to the cell.
    fn point_to(&mut self, cell: CellId) {
        let Cell { depth, prefix, .. } = self.cells[cell.0];
        let spread = self.bits - depth;
        let first = usize::try_from(prefix << spread).unwrap_or(usize::MAX);
        let slots = self.slots.iter_mut().skip(first).take(1 << spread);
        slots.for_each(|slot| *slot = u32::try_from(cell.0).unwrap_or(u32::MAX));
    }

    /// Returns the memory of the directory in bytes, without the memory that the parts own.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.cells.capacity() * size_of::<Cell<T>>()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    /// Compares the directory with a model. Each part stores its own range.
    fn check(directory: &Directory<(u64, u64)>, model: &BTreeMap<u64, u64>) {
        assert_eq!(directory.parts().len(), model.len());
        for (first, last) in model {
            for hash in [*first, *last, first + (last - first) / 3] {
                let cell = directory.cell_of(hash);
                assert_eq!(directory.part(cell), &(*first, *last));
                assert_eq!(directory.range(cell), *first..=*last);
            }
        }
    }

    #[test]
    fn parts_are_found_through_splits_and_joins() {
        for stripe in [0, 1, STRIPES - 1] {
            let (first, last) = stripe_range(stripe).into_inner();
            let mut directory = Directory::new(stripe, (first, last));
            let mut model = BTreeMap::from([(first, last)]);
            let mut state = 7_u64;
            let (mut splits, mut joins) = (0, 0);
            for step in 0..4_000 {
                state = crate::hashing::fmix64(state + step);
                let hash = first | state >> STRIPE_BITS;
                let cell = directory.cell_of(hash);
                let (from, to) = directory.range(cell).into_inner();
                // There are more splits at first, and more joins later.
                if state % 100 < if step < 1_000 { 70 } else { 30 } {
                    let Some(middle) = directory.middle(cell) else { continue };
                    directory.split(cell, (from, middle - 1), (middle, to));
                    model.insert(from, middle - 1);
                    model.insert(middle, to);
                    splits += 1;
                } else if let Some(buddy) = directory.buddy(cell) {
                    let (other, end) = directory.range(buddy).into_inner();
                    let (low, high) = (from.min(other), to.max(end));
                    directory.join(cell, buddy, (low, high));
                    model.remove(&from);
                    model.remove(&other);
                    model.insert(low, high);
                    joins += 1;
                }
                if step % 50 == 0 {
                    check(&directory, &model);
                }
            }
            check(&directory, &model);
            assert!(splits > 500 && joins > 500, "{splits} splits, {joins} joins");
        }
    }

    #[test]
    fn stripes_cover_all_hashes() {
        let mut next = Some(0_u64);
        for stripe in 0..STRIPES {
            let (first, last) = stripe_range(stripe).into_inner();
            assert_eq!(Some(first), next);
            assert_eq!([stripe_of(first), stripe_of(last)], [stripe; 2]);
            next = last.checked_add(1);
        }
        assert_eq!(next, None);
    }

    #[test]
    fn equal_parts_are_found_in_order() {
        let (first, last) = stripe_range(5).into_inner();
        let width = (last - first) / 8 + 1;
        let ranges = (0..8).map(|i| (first + i * width, first + i * width + (width - 1)));
        let directory = Directory::of_parts(5, 3, ranges.clone().collect());
        check(&directory, &ranges.collect());
    }

    #[test]
    fn depth_has_an_end() {
        let mut directory = Directory::new(0, ());
        for _ in 0..MAX_DEPTH {
            let cell = directory.cell_of(0);
            assert!(directory.middle(cell).is_some());
            directory.split(cell, (), ());
        }
        assert_eq!(directory.middle(directory.cell_of(0)), None);
        assert!(directory.middle(directory.cell_of(1 << 57)).is_some());
    }
}
