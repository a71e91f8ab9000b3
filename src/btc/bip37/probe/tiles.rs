//! Byte strings laid out for lanes.
//!
//! Strings with equally many full blocks stand together, sixteen to a tile. A tile has the first
//! sixteen bytes of each, then the next sixteen of each, and so on; within those, the strings
//! stand in the order 0, 4, 8, 12, 1, 5, … 15, which brings them into lanes with unpacking alone.

use alloc::vec::Vec;

/// Longer strings, of more full blocks of four bytes, have no tiles.
pub(in crate::btc::bip37) const MAX_BLOCKS: usize = 32;

/// Byte strings of `blocks` full blocks and up to three bytes more, numbered from `start`.
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct Tiles {
    blocks: usize,
    start: u32,
    /// Sixteen strings' sixteen bytes. Behind a string's end stands anything.
    quads: Vec<[[u8; 16]; 16]>,
    /// Rounded up to tiles.
    lengths: Vec<[u32; 16]>,
    /// Whom each string belongs to.
    owners: Vec<u32>,
}

impl Tiles {
    pub(in crate::btc::bip37) fn new(blocks: usize) -> Self {
        Self { blocks, start: 0, quads: Vec::new(), lengths: Vec::new(), owners: Vec::new() }
    }

    /// Quads of a tile: with room for the tail.
    fn depth(&self) -> usize {
        self.blocks / 4 + 1
    }

    /// Takes in the `length` bytes at `offset` and returns how many were there before.
    #[inline]
    pub(in crate::btc::bip37) fn push(
        &mut self,
        bytes: &[u8],
        offset: usize,
        length: usize,
        owner: u32,
    ) -> u32 {
        debug_assert_eq!(length / 4, self.blocks);
        let number = self.owners.len();
        let lane = number % 16;
        let depth = self.depth();
        if lane == 0 {
            self.quads.resize(self.quads.len() + depth, [[0; 16]; 16]);
            self.lengths.push([0; 16]);
        }
        let place = lane % 4 * 4 + lane / 4;
        let first = self.quads.len() - depth;
        for (quad, from) in self.quads[first..].iter_mut().zip((offset..).step_by(16)) {
            match bytes.get(from..).and_then(<[u8]>::first_chunk) {
                Some(whole) => quad[place] = *whole,
                // Close to the end of the bytes.
                None => {
                    let rest = bytes.get(from..offset + length).unwrap_or_default();
                    quad[place][..rest.len()].copy_from_slice(rest);
                }
            }
        }
        if let Some(lengths) = self.lengths.last_mut() {
            lengths[lane] = length as u32;
        }
        self.owners.push(owner);
        number as u32
    }

    /// Numbers the strings from `start` and returns the number behind the last.
    pub(in crate::btc::bip37) fn number_from(&mut self, start: u32) -> u32 {
        self.start = start;
        self.end()
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

    pub(in crate::btc::bip37) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Quads and lengths of each tile.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[[[u8; 16]; 16]], &[u32; 16])> {
        self.quads.chunks_exact(self.depth()).zip(&self.lengths)
    }

    /// Shows the bytes of the string of this number to `look`.
    pub(in crate::btc::bip37) fn with_bytes<T>(
        &self,
        number: u32,
        look: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let (tile, lane) =
            ((number - self.start) as usize / 16, (number - self.start) as usize % 16);
        let quads = self.quads[tile * self.depth()..][..self.depth()].iter();
        let mut bytes = [[0; 16]; MAX_BLOCKS / 4 + 1];
        for (bytes, quad) in bytes.iter_mut().zip(quads) {
            *bytes = quad[lane % 4 * 4 + lane / 4];
        }
        look(&bytes.as_flattened()[..self.lengths[tile][lane] as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BLOCKS, Tiles};

    #[test]
    fn strings_come_back_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        for blocks in 0..=MAX_BLOCKS {
            let mut tiles = Tiles::new(blocks);
            let length = |i: usize| blocks * 4 + i % 4;
            // The last ones end with the bytes.
            let offset = |i: usize| (i * 7).min(256 - length(i));
            for i in 0..50 {
                assert_eq!(tiles.push(&bytes, offset(i), length(i), 90 + i as u32), i as u32);
            }
            assert_eq!((tiles.number_from(1_000), tiles.len()), (1_050, 50));
            for i in 0..50 {
                let expected = &bytes[offset(i)..offset(i) + length(i)];
                tiles.with_bytes(1_000 + i as u32, |bytes| assert_eq!(bytes, expected));
                assert_eq!(tiles.owner(1_000 + i as u32), 90 + i as u32);
            }
        }
    }
}
