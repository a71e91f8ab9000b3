//! Layout of byte strings for SIMD lanes.
//!
//! MurmurHash3 reads a string in blocks of four bytes. Strings with the same number of whole blocks
//! are grouped into tiles of sixteen. A tile contains the first sixteen bytes of each string, then
//! the next sixteen bytes of each string, and so on. Within each such group, the strings are in the
//! order 0, 4, 8, 12, 1, 5, … 15, so that unpack instructions alone bring them into lanes.

#![expect(
    clippy::cast_possible_truncation,
    reason = "strings of a block, whose positions fit 32 bits"
)]

use alloc::vec::Vec;

/// Largest number of full blocks (of four bytes) of a string in tiles. Longer strings are probed
/// one by one.
pub(in crate::btc::bip37) const MAX_BLOCKS: usize = 32;

/// Sixteen bytes of each of the sixteen strings of a tile.
pub(super) type Quad = [[u8; 16]; 16];

/// Byte strings of `blocks` full blocks and at most three more bytes, numbered from `start`.
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct Tiles {
    pub(super) blocks: usize,
    pub(in crate::btc::bip37) start: u32,
    /// Contents of the tiles. Bytes after the end of a string are arbitrary.
    quads: Vec<Quad>,
    /// Length of each string in bytes, for whole tiles.
    lengths: Vec<[u32; 16]>,
    /// The owner of each string: the transaction that contains it.
    owners: Vec<u32>,
}

impl Tiles {
    /// Returns an empty layout with space for `count` strings, numbered from `start`.
    pub(in crate::btc::bip37) fn new(blocks: usize, start: u32, count: usize) -> Self {
        let tiles = count.div_ceil(16);
        Self {
            blocks,
            start,
            quads: alloc::vec![[[0; 16]; 16]; tiles * depth(blocks)],
            lengths: alloc::vec![[0; 16]; tiles],
            owners: Vec::with_capacity(count),
        }
    }

    /// Appends the next string, which is the `length` bytes at `offset`, and returns its number.
    #[inline]
    pub(in crate::btc::bip37) fn push(
        &mut self,
        bytes: &[u8],
        offset: usize,
        length: usize,
        owner: u32,
    ) -> u32 {
        debug_assert_eq!(length / 4, self.blocks);
        let index = self.owners.len();
        let (tile, place) = (index / 16, index % 4 * 4 + index % 16 / 4);
        let depth = depth(self.blocks);
        let quads = &mut self.quads[tile * depth..][..depth];
        // Whole quads are copied, because copies of a fixed size are fast. The bytes after the end
        // of the string may be arbitrary.
        if let Some(whole) = bytes.get(offset..offset + depth * 16) {
            for (quad, bytes) in quads.iter_mut().zip(whole.as_chunks().0) {
                quad[place] = *bytes;
            }
        } else {
            // Near the end of `bytes`, only the exact length can be copied.
            for (quad, bytes) in quads.iter_mut().zip(bytes[offset..][..length].chunks(16)) {
                quad[place][..bytes.len()].copy_from_slice(bytes);
            }
        }
        self.lengths[tile][index % 16] = length as u32;
        self.owners.push(owner);
        self.start + index as u32
    }

    /// Returns the number of the last string plus 1.
    pub(in crate::btc::bip37) fn end(&self) -> u32 {
        self.start + self.owners.len() as u32
    }

    /// Returns the owner of the string with this number.
    pub(in crate::btc::bip37) fn owner(&self, number: u32) -> u32 {
        self.owners[(number - self.start) as usize]
    }

    /// Returns the contents and the lengths of each tile.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[Quad], &[u32; 16])> {
        self.quads.chunks_exact(depth(self.blocks)).zip(&self.lengths)
    }

    /// Calls `look` with the bytes of the string with this number.
    pub(in crate::btc::bip37) fn with_bytes<T>(
        &self,
        number: u32,
        look: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let (tile, lane) =
            ((number - self.start) as usize / 16, (number - self.start) as usize % 16);
        let depth = depth(self.blocks);
        let quads = self.quads[tile * depth..][..depth].iter();
        let mut bytes = [[0; 16]; MAX_BLOCKS / 4 + 1];
        for (bytes, quad) in bytes.iter_mut().zip(quads) {
            *bytes = quad[lane % 4 * 4 + lane / 4];
        }
        look(&bytes.as_flattened()[..self.lengths[tile][lane] as usize])
    }
}

/// Returns the number of quads of a tile, including space for the tail.
fn depth(blocks: usize) -> usize {
    blocks / 4 + 1
}

#[cfg(test)]
mod tests {
    use super::{MAX_BLOCKS, Tiles};

    #[test]
    fn strings_come_back_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        for blocks in 0..=MAX_BLOCKS {
            let mut tiles = Tiles::new(blocks, 1_000, 50);
            let length = |i: usize| blocks * 4 + i % 4;
            // The last strings end at the end of `bytes`.
            let offset = |i: usize| (i * 7).min(256 - length(i));
            for i in 0..50 {
                let number = tiles.push(&bytes, offset(i), length(i), 90 + i as u32);
                assert_eq!(number, 1_000 + i as u32);
            }
            assert_eq!(tiles.start..tiles.end(), 1_000..1_050);
            for i in 0..50 {
                let expected = &bytes[offset(i)..offset(i) + length(i)];
                tiles.with_bytes(1_000 + i as u32, |bytes| assert_eq!(bytes, expected));
                assert_eq!(tiles.owner(1_000 + i as u32), 90 + i as u32);
            }
        }
    }
}
