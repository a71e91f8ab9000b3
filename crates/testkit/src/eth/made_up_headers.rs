//! Simulated chains of headers, with blooms that are cheap to make and not all empty.

use std::collections::HashMap;

use alloy_primitives::{B256, Bloom, BloomInput};
use chainsieve::eth::header::LinkedHeaders;

use crate::eth::linked_headers::linked_headers;

/// Value that the bloom of every seventh block contains. `SELDOM`: value that the bloom of every
/// hundredth block contains.
pub const OFTEN: [u8; 20] = [0x07; 20];
pub const SELDOM: [u8; 20] = [0x64; 20];

/// The values that tests query.
pub const VALUES: [[u8; 20]; 2] = [OFTEN, SELDOM];

/// Returns the bloom for a mark. The mark depends on number and branch, so blocks of different
/// branches differ.
fn filter(mark: u64) -> Bloom {
    if mark.is_multiple_of(1000) {
        return Bloom::repeat_byte(0xff);
    }
    let mut filter = Bloom::ZERO;
    for (every, value) in [(7, OFTEN), (100, SELDOM)] {
        if mark.is_multiple_of(every) {
            filter.accrue(BloomInput::Raw(&value));
        }
    }
    filter
}

/// A simulated block.
#[derive(Debug)]
struct Made {
    number: u64,
    parent: B256,
    /// For each value: the last block, up to and including this one, whose bloom contains the
    /// value, as computed by alloy.
    found: [Option<B256>; 2],
}

/// All simulated blocks, by hash.
#[derive(Debug, Default)]
pub struct Blocks {
    by_hash: HashMap<B256, Made>,
}

impl Blocks {
    /// Creates `count` descendants of a block, each the child of the previous one. `branch`
    /// distinguishes blocks that have the same parent.
    pub fn extend(
        &mut self,
        first: u64,
        parent_hash: B256,
        count: usize,
        branch: u64,
    ) -> LinkedHeaders {
        let numbers = (0..count).map(|block| first + block as u64);
        let filters = numbers.map(|number| filter(number.wrapping_add(branch)).0.0);
        let filters: Vec<_> = filters.collect();
        let chain = linked_headers(first, parent_hash, branch, &filters);
        assert_eq!(chain.len(), count);
        let mut parent = parent_hash;
        for (block, filter) in chain.blocks().zip(filters) {
            let filter = Bloom::from(filter);
            let mut found = self.by_hash.get(&parent).map_or([None; 2], |made| made.found);
            for (found, value) in found.iter_mut().zip(VALUES) {
                if filter.contains_input(BloomInput::Raw(&value)) {
                    *found = Some(block.hash);
                }
            }
            self.by_hash.insert(block.hash, Made { number: block.number, parent, found });
            parent = block.hash;
        }
        chain
    }

    pub fn number(&self, hash: B256) -> u64 {
        self.by_hash[&hash].number
    }

    /// Returns for each value the blocks up to `tip` whose bloom contains it.
    pub fn found(&self, tip: B256) -> [Vec<u64>; 2] {
        let mut numbers = [Vec::new(), Vec::new()];
        for (value, numbers) in numbers.iter_mut().enumerate() {
            let mut last = self.by_hash[&tip].found[value];
            while let Some(hash) = last {
                let made = &self.by_hash[&hash];
                numbers.push(made.number);
                let before = self.by_hash.get(&made.parent);
                last = before.and_then(|before| before.found[value]);
            }
            numbers.reverse();
        }
        numbers
    }

    /// Returns the hash of a block's ancestor with this number.
    pub fn ancestor(&self, mut hash: B256, number: u64) -> B256 {
        while self.by_hash[&hash].number > number {
            hash = self.by_hash[&hash].parent;
        }
        hash
    }
}
