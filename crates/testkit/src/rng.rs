//! A seeded random number generator, so that a failure can be repeated from its seed.

#[cfg(feature = "chains")]
use alloy_primitives::{Address, B256};

/// Increment of the generator's state from one number to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the distance between the cases that a test with many cases takes: 1 with
/// `CHAINSIEVE_CASES=all`, as in `.ci/full cases`, and `sparse` otherwise.
///
/// # Panics
/// If the variable has another value.
pub fn stride(sparse: usize) -> usize {
    match std::env::var("CHAINSIEVE_CASES") {
        Ok(cases) => {
            assert_eq!(cases, "all", "CHAINSIEVE_CASES");
            1
        }
        Err(_) => sparse,
    }
}

/// One step of `SplitMix64`: a permutation of the 64-bit words.
#[inline]
pub fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(STEP);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The `SplitMix64` generator, started from a seed.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub fn u64(&mut self) -> u64 {
        let number = split_mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("64 bits");
        usize::try_from(self.u64() % end).expect("below a usize")
    }

    /// Returns `true` once in `n` times on average.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u64().to_le_bytes()[0]).collect()
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u64().to_le_bytes()[0])
    }

    /// The same as [`array`](Self::array), but uses eight bytes of each random number, which is
    /// faster for large arrays.
    #[inline]
    pub fn packed<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.u64().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    #[cfg(feature = "chains")]
    pub fn word(&mut self) -> B256 {
        B256::from(self.packed())
    }

    #[cfg(feature = "chains")]
    pub fn address(&mut self) -> Address {
        Address::from_word(self.word())
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
