//! Elements with mixed blocks, in the form that all filters of a bank share.

use alloc::vec::Vec;

use chainsieve_lanes::hash::murmur3::{length, mix_block, mix_tail};

use crate::btc::bip37::Elements;

/// The elements of transactions, with their Murmur3 blocks mixed.
#[derive(Debug, Default)]
pub(in crate::btc::bip37) struct Mixed {
    blocks: Vec<u32>,
    ends: Vec<End>,
}

/// End of an element's blocks in `blocks`, with its mixed tail and its length in bytes.
#[derive(Debug, Clone, Copy)]
struct End {
    blocks: usize,
    tail: u32,
    length: u32,
}

impl Mixed {
    pub(in crate::btc::bip37) fn new(elements: &Elements) -> Self {
        let mut mixed = Self::default();
        for class in elements.classes() {
            for number in class.start()..class.end() {
                class.with_bytes(number, |bytes| mixed.push(bytes));
            }
        }
        elements.long().for_each(|(_, bytes)| mixed.push(bytes));
        mixed
    }

    fn push(&mut self, element: &[u8]) {
        let (words, tail) = element.as_chunks::<4>();
        self.blocks.extend(words.iter().map(|word| mix_block(u32::from_le_bytes(*word))));
        let blocks = self.blocks.len();
        self.ends.push(End { blocks, tail: mix_tail(tail), length: length(element) });
    }

    /// Returns the mixed blocks, the mixed tail and the length of each element.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u32], u32, u32)> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let blocks = &self.blocks[start..end.blocks];
            start = end.blocks;
            (blocks, end.tail, end.length)
        })
    }
}
