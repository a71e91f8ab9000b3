//! The bits of a filter, and the exact reduction of a hash to a bit position.

use alloc::vec::Vec;
use core::fmt;

/// Number of padding bytes after the filter's bytes, so that a four-byte load at any offset stays
/// in bounds.
const PADDING: usize = 3;

/// Array of bits in BIP37's order: bit `i` is `1 << (i & 7)` of byte `i >> 3`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BitArray {
    /// The `reduction.num_bytes` bytes of the filter, then `PADDING` zeros, which must stay clear:
    /// vector code gathers from them. No bytes at all if the filter is empty.
    pub(super) padded: Vec<u8>,
    pub(super) reduction: Reduction,
}

impl BitArray {
    /// Largest size of an array in bytes, because bit positions are 32 bits wide.
    pub(crate) const MAX_BYTES: usize = 1 << 28;

    /// Takes the bytes of a filter and appends the padding. Returns `None` if there are more than
    /// [`MAX_BYTES`](Self::MAX_BYTES).
    pub(crate) fn from_bytes(mut bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() > Self::MAX_BYTES {
            return None;
        }
        let reduction = Reduction::new(u32::try_from(bytes.len()).ok()?);
        if !bytes.is_empty() {
            bytes.reserve_exact(PADDING);
            bytes.resize(bytes.len() + PADDING, 0);
        }
        Some(Self { padded: bytes, reduction })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.padded[..self.padded.len().saturating_sub(PADDING)]
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let end = self.padded.len().saturating_sub(PADDING);
        &mut self.padded[..end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.padded.is_empty()
    }

    pub(crate) fn num_bits(&self) -> u64 {
        u64::from(self.reduction.num_bytes) * 8
    }

    pub(crate) fn count_ones(&self) -> u64 {
        let (words, rest) = self.as_bytes().as_chunks::<8>();
        let words: u64 = words.iter().map(|&w| u64::from(u64::from_le_bytes(w).count_ones())).sum();
        words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
    }
}

impl fmt::Debug for BitArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bits set", self.count_ones(), self.num_bits())
    }
}

/// Computes `hash % (8 * num_bytes)` by multiplication instead of division.
///
/// The low three bits of the hash are kept. The other bits of the hash are the number `n` of the
/// reduction `n % d`, where `n` has 29 bits and `d` is the number of bytes. With
/// `shift = ceil(log2 d)` and `magic = ceil(2^(29 + shift) / d)`, which is at most `2^30`, `n / d`
/// is exactly `(n * magic) >> (29 + shift)` for every `n` of 29 bits (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", 1994, theorem 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) num_bytes: u32,
    pub(crate) magic: u32,
    pub(crate) shift: u32,
}

impl Reduction {
    /// Returns the reduction for a filter of `num_bytes`, at most [`BitArray::MAX_BYTES`].
    pub(crate) fn new(num_bytes: u32) -> Self {
        debug_assert!(num_bytes as usize <= BitArray::MAX_BYTES);
        let shift = num_bytes.max(1).next_power_of_two().trailing_zeros();
        let magic = (1_u64 << (29 + shift)).div_ceil(u64::from(num_bytes.max(1)));
        Self { num_bytes, magic: u32::try_from(magic).expect("at most 2^30"), shift }
    }

    /// Returns the position of the bit that `hash` selects. The position is meaningless for a
    /// filter without bytes.
    #[inline(always)]
    pub(crate) fn bit(self, hash: u32) -> u32 {
        // `hash & !7` is `n << 3`, and `((n << 3) * magic) >> 32` equals `(n * magic) >> 29`.
        let quotient = (u64::from(hash & !7) * u64::from(self.magic) >> 32) as u32 >> self.shift;
        hash.wrapping_sub(quotient.wrapping_mul(self.num_bytes) << 3)
    }
}

#[cfg(test)]
mod tests {
    use super::{BitArray, Reduction};

    #[test]
    fn reduction_is_the_remainder() {
        let sizes = (1..=2_000).chain([2_396, 4_095, 35_999, 36_000, 65_537, 4_000_000, 1 << 28]);
        for num_bytes in sizes {
            let reduction = Reduction::new(num_bytes);
            let modulus = num_bytes * 8;
            let near_multiples = (0..200_u32).flat_map(|i| {
                let multiple = u32::MAX / 200 * i / modulus * modulus;
                [multiple, multiple.wrapping_sub(1), multiple.wrapping_add(modulus - 1)]
            });
            for hash in near_multiples.chain([u32::MAX, u32::MAX - 7, 0, 1, 7, 8]) {
                assert_eq!(reduction.bit(hash), hash % modulus, "{hash} % {modulus}");
            }
        }
    }

    #[test]
    fn padding_is_no_part_of_the_bits() {
        let array = BitArray::from_bytes(vec![0xff; 5]).unwrap();
        assert_eq!((array.as_bytes().len(), array.count_ones(), array.num_bits()), (5, 40, 40));
        assert!(BitArray::from_bytes(vec![]).unwrap().is_empty());
    }
}
