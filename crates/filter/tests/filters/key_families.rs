//! Families of distinct keys: keys as users put into filters, and keys on which weak hash functions
//! fail.

use testkit::{split_mix, stride};

/// Ten seeds for statistical tests. The seeds are fixed, so that a test that passes once always
/// passes.
pub(crate) const SEEDS: [u64; 10] = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89];

/// A family of distinct keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// 32 random bytes.
    Random,
    /// Consecutive numbers in 8 bytes, little-endian.
    Sequential,
    /// Pay-to-witness-public-key-hash scripts: 22 bytes, of which the first two are always the
    /// same.
    WitnessScripts,
    /// Pay-to-taproot scripts: 34 bytes, `5120…`, that differ in their last bytes only.
    LastBytes,
}

impl Family {
    pub(crate) const ALL: [Self; 4] =
        [Self::Random, Self::Sequential, Self::WitnessScripts, Self::LastBytes];

    /// Returns the families that tests of rates take, which insert millions of keys: [`stride`] leaves some out.
    pub(crate) fn some() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().rev().step_by(stride(2))
    }

    /// Returns key `index` of the family; different indices give different keys. Different seeds
    /// give different keys too, except in the sequential family.
    pub(crate) fn key(self, seed: u64, index: u64) -> Vec<u8> {
        let word = |at: u64| split_mix(split_mix(seed ^ at << 56).wrapping_add(index));
        let words = |count: u64| (0..count).flat_map(move |at| word(at).to_le_bytes());
        match self {
            Self::Random => words(4).collect(),
            Self::Sequential => index.to_le_bytes().to_vec(),
            Self::WitnessScripts => [0x00, 0x14].into_iter().chain(words(3).take(20)).collect(),
            Self::LastBytes => {
                let mut script = vec![0x51, 0x20];
                script.resize(26, 0xab);
                script.extend(split_mix(seed).wrapping_add(index).to_be_bytes());
                script
            }
        }
    }

    /// Returns the keys with the indices of `range`.
    pub(crate) fn keys(self, seed: u64, range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
        range.map(|index| self.key(seed, index)).collect()
    }
}

#[test]
fn keys_of_a_family_are_distinct() {
    for family in Family::ALL {
        let keys: std::collections::HashSet<_> = family.keys(7, 0..10_000).into_iter().collect();
        assert_eq!(keys.len(), 10_000, "{family:?}");
    }
}
