//! The peer: BIP37 as a plain loop over crate `mur3`.

/// The seed of hash function `i` is `i * SEED_STEP + tweak`.
const SEED_STEP: u32 = 0xfba4_c795;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PlainFilter {
    pub(crate) data: Vec<u8>,
    pub(crate) hash_funcs: u32,
    pub(crate) tweak: u32,
}

impl PlainFilter {
    #[inline]
    fn bit(&self, i: u32, element: &[u8]) -> usize {
        let seed = i.wrapping_mul(SEED_STEP).wrapping_add(self.tweak);
        mur3::murmurhash3_x86_32(element, seed) as usize % (self.data.len() * 8)
    }

    #[inline]
    pub(crate) fn insert(&mut self, element: &[u8]) {
        for i in 0..self.hash_funcs {
            let bit = self.bit(i, element);
            self.data[bit >> 3] |= 1 << (bit & 7);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, element: &[u8]) -> bool {
        (0..self.hash_funcs).all(|i| {
            let bit = self.bit(i, element);
            self.data[bit >> 3] >> (bit & 7) & 1 != 0
        })
    }
}
