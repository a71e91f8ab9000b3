//! Buckets of four fingerprints, packed into 64-bit words. One operation compares all four slots.
//!
//! Bucket `b` starts at bit `4·BITS·b`, counted from the lowest bit of the first word. Slot `s` of
//! a bucket has `BITS` bits and starts at bit `BITS·s` of the bucket. In little-endian memory the
//! buckets therefore follow one another byte by byte. A slot with the value zero is free.

/// Number of slots in a bucket.
pub(super) const SLOTS: u32 = 4;

/// One bucket, with its first slot in the lowest bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket<const BITS: u32>(pub(super) u64);

impl<const BITS: u32> Bucket<BITS> {
    /// A mask of the lowest bit of every slot.
    const ONES: u64 = 1 | 1 << BITS | 1 << (2 * BITS) | 1 << (3 * BITS);
    /// A mask of the highest bit of every slot.
    const HIGHS: u64 = Self::ONES << (BITS - 1);
    /// A mask of the first slot.
    const SLOT: u64 = (1 << BITS) - 1;

    /// Returns a value that is not zero if any slot is zero. The lowest set bit of the result is
    /// the highest bit of the first slot that is zero. The higher bits of the result may be wrong,
    /// because the subtraction borrows between slots.
    #[inline(always)]
    const fn zeros(slots: u64) -> u64 {
        slots.wrapping_sub(Self::ONES) & !slots & Self::HIGHS
    }

    #[inline(always)]
    const fn differences(self, fingerprint: u32) -> u64 {
        self.0 ^ (fingerprint as u64).wrapping_mul(Self::ONES)
    }

    /// Returns `true` if a slot of either bucket contains the fingerprint.
    #[inline(always)]
    pub(super) const fn either_has(self, other: Self, fingerprint: u32) -> bool {
        let (ours, theirs) = (self.differences(fingerprint), other.differences(fingerprint));
        Self::zeros(ours) | Self::zeros(theirs) != 0
    }

    /// Returns the first slot that contains the fingerprint.
    #[inline]
    pub(super) const fn slot_of(self, fingerprint: u32) -> Option<u32> {
        match Self::zeros(self.differences(fingerprint)) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// Returns the first free slot.
    #[inline(always)]
    pub(super) const fn free_slot(self) -> Option<u32> {
        match Self::zeros(self.0) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// Returns the number of slots that are taken.
    #[inline(always)]
    pub(super) const fn taken(self) -> u32 {
        let below = Self::HIGHS - Self::ONES;
        (((self.0 & below) + below | self.0) & Self::HIGHS).count_ones()
    }

    /// Returns the fingerprint in a slot, or 0 if the slot is free.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a slot has 16 bits at most")]
    pub(super) const fn get(self, slot: u32) -> u32 {
        (self.0 >> (BITS * slot) & Self::SLOT) as u32
    }

    /// Returns a copy of the bucket with `fingerprint` stored in `slot`.
    #[inline(always)]
    pub(super) const fn with(self, slot: u32, fingerprint: u32) -> Self {
        let at = BITS * slot;
        Self(self.0 & !(Self::SLOT << at) | (fingerprint as u64) << at)
    }
}

/// Returns the number of words that `buckets` buckets take.
pub(super) const fn words_for<const BITS: u32>(buckets: u64) -> u64 {
    (buckets * (SLOTS * BITS) as u64).div_ceil(64)
}

/// Returns the first word of a bucket, the last word, and the bit of the first word at which the
/// bucket starts.
#[inline(always)]
const fn span<const BITS: u32>(bucket: u32) -> (usize, usize, u32) {
    let (at, bits) = (bucket as usize, SLOTS * BITS);
    match bits {
        64 => (at, at, 0),
        32 => (at / 2, at / 2, bucket % 2 * 32),
        // Four buckets of 48 bits lie in three words.
        _ => (at / 4 * 3 + at % 4 * 3 / 4, at / 4 * 3 + (at % 4 * 3 + 2) / 4, bucket % 4 * 48 % 64),
    }
}

/// Reads a bucket.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
pub(super) fn load<const BITS: u32>(words: &[u64], bucket: u32) -> Bucket<BITS> {
    let (first, last, shift) = span::<BITS>(bucket);
    match BITS {
        16 => Bucket(words[first]),
        8 => Bucket(words[first] >> shift & 0xffff_ffff),
        _ => {
            let both = u128::from(words[last]) << 64 | u128::from(words[first]);
            Bucket((both >> shift) as u64 & 0xffff_ffff_ffff)
        }
    }
}

/// Writes a bucket.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are stored")]
pub(super) fn store<const BITS: u32>(words: &mut [u64], bucket: u32, value: Bucket<BITS>) {
    let (first, last, shift) = span::<BITS>(bucket);
    match BITS {
        16 => words[first] = value.0,
        8 => words[first] = words[first] & !(0xffff_ffff << shift) | value.0 << shift,
        _ => {
            let both = u128::from(words[last]) << 64 | u128::from(words[first]);
            let both = both & !(0xffff_ffff_ffff << shift) | u128::from(value.0) << shift;
            if last != first {
                words[last] = (both >> 64) as u64;
            }
            words[first] = both as u64;
        }
    }
}

/// Prefetches the memory of a bucket.
#[inline(always)]
pub(super) fn prefetch<const BITS: u32>(words: &[u64], bucket: u32) {
    let (first, last, _) = span::<BITS>(bucket);
    for at in [first, last].into_iter().take(if BITS == 12 { 2 } else { 1 }) {
        if let Some([byte, ..]) = words.get(at).map(bytemuck::bytes_of) {
            chainsieve_lanes::simd::prefetch(byte);
        }
    }
}
