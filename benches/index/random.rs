//! splitmix64.

use alloy_primitives::{Address, B256};

pub(crate) struct Random(pub(crate) u64);

impl Random {
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn word(&mut self) -> B256 {
        let words: [u64; 4] = std::array::from_fn(|_| self.next());
        B256::from_slice(words.map(u64::to_le_bytes).as_flattened())
    }

    pub(crate) fn address(&mut self) -> Address {
        Address::from_word(self.word())
    }
}
