//! Byte strings laid out for lanes.
//!
//! Strings with equally many full blocks stand together, sixteen to a tile. A tile has the first
//! sixteen bytes of each, then the next sixteen of each, and so on; within those, the strings
//! stand in the order 0, 4, 8, 12, 1, 5, … 15, which brings them into lanes with unpacking alone.

#![expect(
    clippy::cast_possible_truncation,
    reason = "strings of a block, whose positions fit 32 bits"
)]

use alloc::vec::Vec;

/// Longer strings, of more full blocks of four bytes, have no tiles.
pub(in crate::btc::bip37) const MAX_BLOCKS: usize = 32;

/// Sixteen bytes of each string of a tile.
pub(super) type Quad = [[u8; 16]; 16];

/// Byte strings of `blocks` full blocks and up to three bytes more, numbered from `start`.
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct Tiles {
    blocks: usize,
    start: u32,
    /// Sixteen strings' sixteen bytes. Behind a string's end stands anything.
    quads: Vec<Quad>,
    /// Rounded up to tiles.
    lengths: Vec<[u32; 16]>,
    /// Whom each string belongs to.
    owners: Vec<u32>,
}

impl Tiles {
    /// Room for `count` strings, numbered from `start`.
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

    /// Takes in the next string, the `length` bytes at `offset`, and returns its number.
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
        if let Some(whole) = bytes.get(offset..offset + depth * 16) {
            for (quad, bytes) in quads.iter_mut().zip(whole.as_chunks().0) {
                quad[place] = *bytes;
            }
        } else {
            // Close to the end of the bytes.
            for (quad, bytes) in quads.iter_mut().zip(bytes[offset..][..length].chunks(16)) {
                quad[place][..bytes.len()].copy_from_slice(bytes);
            }
        }
        self.lengths[tile][index % 16] = length as u32;
        self.owners.push(owner);
        self.start + index as u32
    }

    /// The number of the first string.
    pub(in crate::btc::bip37) fn start(&self) -> u32 {
        self.start
    }

    /// The number behind the last string.
    pub(in crate::btc::bip37) fn end(&self) -> u32 {
        self.start + self.owners.len() as u32
    }

    /// Whom the string of this number belongs to.
    pub(in crate::btc::bip37) fn owner(&self, number: u32) -> u32 {
        self.owners[(number - self.start) as usize]
    }

    pub(in crate::btc::bip37) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Quads and lengths of each tile.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[Quad], &[u32; 16])> {
        self.quads.chunks_exact(depth(self.blocks)).zip(&self.lengths)
    }

    /// Shows the bytes of the string of this number to `look`.
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

/// Quads of a tile: with room for the tail.
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
            // The last ones end with the bytes.
            let offset = |i: usize| (i * 7).min(256 - length(i));
            for i in 0..50 {
                let number = tiles.push(&bytes, offset(i), length(i), 90 + i as u32);
                assert_eq!(number, 1_000 + i as u32);
            }
            assert_eq!(tiles.start()..tiles.end(), 1_000..1_050);
            for i in 0..50 {
                let expected = &bytes[offset(i)..offset(i) + length(i)];
                tiles.with_bytes(1_000 + i as u32, |bytes| assert_eq!(bytes, expected));
                assert_eq!(tiles.owner(1_000 + i as u32), 90 + i as u32);
            }
        }
    }
}
