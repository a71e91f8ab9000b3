//! Numbers that look random and are the same in each run: SplitMix64.

#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    pub(crate) fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    /// A number below `bound`.
    #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.u64() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u64().to_le_bytes()[3]).collect()
    }
}
