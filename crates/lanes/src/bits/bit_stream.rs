//! Bits in bytes, the most significant first.

use alloc::vec::Vec;

/// The bits that every window shows: one starts at any of the eight bits of a byte.
pub const WINDOW_BITS: u32 = 57;

/// The bits of `bytes` from `position` on, [`WINDOW_BITS`] of them at least, from the top, then
/// zeros; `None` in the last 8 bytes.
#[inline(always)]
pub fn window_at(bytes: &[u8], position: u64) -> Option<u64> {
    let byte = usize::try_from(position / 8).ok()?;
    let word = bytes.get(byte..byte.checked_add(8)?)?.first_chunk()?;
    Some(u64::from_be_bytes(*word) << (position % 8))
}

/// Reads bits from the front of bytes.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits from the start, at most all.
    position: u64,
}

impl<'a> BitReader<'a> {
    /// Reads from bit `position` on, at most the end.
    #[inline]
    pub fn at(bytes: &'a [u8], position: u64) -> Self {
        debug_assert!(position <= bytes.len() as u64 * 8);
        Self { bytes, position }
    }

    /// In bits from the start.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The bits that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        self.bytes.len() as u64 * 8 - self.position
    }

    /// [`window_at`] the position.
    #[inline(always)]
    pub fn window(&self) -> Option<u64> {
        window_at(self.bytes, self.position)
    }

    /// As [`window`](Self::window), with zeros behind the end.
    fn padded_window(&self) -> u64 {
        self.window().unwrap_or_else(|| {
            let byte = usize::try_from(self.position / 8).unwrap_or(usize::MAX);
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(self.bytes.get(byte..).unwrap_or_default()) {
                *to = *from;
            }
            u64::from_be_bytes(word) << (self.position % 8)
        })
    }

    /// Passes over bits that a window has shown.
    #[inline(always)]
    pub fn skip(&mut self, bits: u32) {
        debug_assert!(u64::from(bits) <= self.left());
        self.position += u64::from(bits);
    }

    /// The number of ones before the next zero, both taken; `None` where the bytes end first.
    #[inline]
    pub fn take_unary(&mut self) -> Option<u64> {
        let mut ones = 0;
        loop {
            let run = self.padded_window().leading_ones().min(WINDOW_BITS);
            if u64::from(run) >= self.left() {
                return None;
            }
            ones += u64::from(run);
            if run < WINDOW_BITS {
                self.skip(run + 1);
                return Some(ones);
            }
            self.skip(run);
        }
    }

    /// The next `count` bits, at most [`WINDOW_BITS`]; `None` where the bytes end first.
    #[inline]
    pub fn take_bits(&mut self, count: u32) -> Option<u64> {
        debug_assert!(count <= WINDOW_BITS);
        if u64::from(count) > self.left() {
            return None;
        }
        let bits = self.padded_window().unbounded_shr(64 - count);
        self.skip(count);
        Some(bits)
    }
}

/// Writes bits behind one another.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that are not in `bytes` yet, from the top; zeros below.
    pending: u64,
    /// How many, fewer than 32 between calls.
    pending_bits: u32,
}

impl BitWriter {
    #[inline]
    pub fn behind(bytes: Vec<u8>) -> Self {
        Self { bytes, pending: 0, pending_bits: 0 }
    }

    /// Writes the low `count` bits of `value`, at most 32; the others are zeros.
    #[inline]
    pub fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count <= 32 && value >> count == 0);
        self.pending_bits += count;
        self.pending |= value.unbounded_shl(64 - self.pending_bits);
        if let Some(rest) = self.pending_bits.checked_sub(32) {
            let [a, b, c, d, ..] = self.pending.to_be_bytes();
            self.bytes.extend([a, b, c, d]);
            self.pending <<= 32;
            self.pending_bits = rest;
        }
    }

    /// The bytes, filled up with zeros.
    #[inline]
    pub fn finish(mut self) -> Vec<u8> {
        let pending = self.pending.to_be_bytes();
        self.bytes.extend(pending.iter().take(self.pending_bits.div_ceil(8) as usize));
        self.bytes
    }
}
