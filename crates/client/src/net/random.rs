//! A pseudorandom generator that peers cannot predict: for nonces, jitter and the choice of
//! addresses.

use chainsieve::bitcoin::hashes::siphash24;

/// A pseudorandom generator: the `SipHash` of a counter under a secret key.
///
/// A peer that sees one number learns nothing about the other numbers.
#[derive(Debug, Clone)]
pub struct Random {
    key: (u64, u64),
    count: u64,
}

impl Random {
    /// Creates a generator from a seed. Equal seeds give equal sequences.
    pub fn new(seed: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(seed);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let key = (number as u64, (number >> 64) as u64);
        Self { key, count: 0 }
    }

    /// Returns a random seed from the operating system.
    ///
    /// # Errors
    /// Returns an error if the system provides no random bytes.
    pub fn seed() -> Result<[u8; 16], getrandom::Error> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed)?;
        Ok(seed)
    }

    /// Returns the next number of the sequence.
    pub fn number(&mut self) -> u64 {
        self.count += 1;
        siphash24::Hash::hash_to_u64_with_keys(self.key.0, self.key.1, &self.count.to_le_bytes())
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % bound).unwrap_or(0)
    }

    /// Shuffles items (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (2..=items.len()).rev() {
            items.swap(left - 1, self.below(left));
        }
    }
}
