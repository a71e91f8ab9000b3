//! Buckets of four fingerprints in words of 64 bits, all four looked at in one operation.
//!
//! Bucket `b` is the bits from `4·BITS·b` on, counted from the lowest bit of the first word; slot
//! `s` of it the `BITS` bits from `BITS·s` on. In memory of little-endian order the buckets thus
//! follow one another byte by byte. A slot of zero is free.

/// Slots of a bucket.
pub(super) const SLOTS: u32 = 4;

/// One bucket, its first slot in the lowest bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket<const BITS: u32>(pub(super) u64);

impl<const BITS: u32> Bucket<BITS> {
    /// The lowest bit of every slot.
    const ONES: u64 = 1 | 1 << BITS | 1 << (2 * BITS) | 1 << (3 * BITS);
    /// The highest bit of every slot.
    const HIGHS: u64 = Self::ONES << (BITS - 1);
    const SLOT: u64 = (1 << BITS) - 1;

    /// A set bit if any slot is zero; the lowest one is the high bit of the first such slot. Those
    /// above it mean nothing.
    #[inline(always)]
    const fn zeros(slots: u64) -> u64 {
        slots.wrapping_sub(Self::ONES) & !slots & Self::HIGHS
    }

    #[inline(always)]
    const fn differences(self, fingerprint: u32) -> u64 {
        self.0 ^ (fingerprint as u64).wrapping_mul(Self::ONES)
    }

    /// Whether a slot of either of two buckets holds this.
    #[inline(always)]
    pub(super) const fn either_has(self, other: Self, fingerprint: u32) -> bool {
        let (ours, theirs) = (self.differences(fingerprint), other.differences(fingerprint));
        Self::zeros(ours) | Self::zeros(theirs) != 0
    }

    /// The first slot that holds this.
    #[inline]
    pub(super) const fn slot_of(self, fingerprint: u32) -> Option<u32> {
        match Self::zeros(self.differences(fingerprint)) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// The first free slot.
    #[inline(always)]
    pub(super) const fn free_slot(self) -> Option<u32> {
        match Self::zeros(self.0) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// How many slots are taken.
    #[inline(always)]
    pub(super) const fn taken(self) -> u32 {
        let below = Self::HIGHS - Self::ONES;
        (((self.0 & below) + below | self.0) & Self::HIGHS).count_ones()
    }

    /// What a slot holds.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a slot has 16 bits at most")]
    pub(super) const fn get(self, slot: u32) -> u32 {
        (self.0 >> (BITS * slot) & Self::SLOT) as u32
    }

    /// The bucket with another content of one slot.
    #[inline(always)]
    pub(super) const fn with(self, slot: u32, fingerprint: u32) -> Self {
        let at = BITS * slot;
        Self(self.0 & !(Self::SLOT << at) | (fingerprint as u64) << at)
    }
}

/// The words that so many buckets take.
pub(super) const fn words_for<const BITS: u32>(buckets: u64) -> u64 {
    (buckets * (SLOTS * BITS) as u64).div_ceil(64)
}

/// The first word of a bucket, the last one, and the bit of the first that it begins at.
#[inline(always)]
const fn span<const BITS: u32>(bucket: u32) -> (usize, usize, u32) {
    let (at, bits) = (bucket as usize, SLOTS * BITS);
    match bits {
        64 => (at, at, 0),
        32 => (at / 2, at / 2, bucket % 2 * 32),
        // Four buckets of 48 bits in three words.
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
#[expect(clippy::cast_possible_truncation, reason = "halves of the double word")]
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

/// Asks for the memory of a bucket.
#[inline(always)]
pub(super) fn prefetch<const BITS: u32>(words: &[u64], bucket: u32) {
    let (first, last, _) = span::<BITS>(bucket);
    for at in [first, last].into_iter().take(if BITS == 12 { 2 } else { 1 }) {
        if let Some([byte, ..]) = words.get(at).map(bytemuck::bytes_of) {
            chainsieve_lanes::simd::prefetch(byte);
        }
    }
}
