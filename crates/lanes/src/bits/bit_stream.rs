//! Bit streams over bytes, most significant bit first.

use alloc::vec::Vec;

/// Number of bits that every window shows at least. A window is loaded as a 64-bit word from whole
/// bytes. The window's first bit may be any of the eight bits of the first byte, so up to 7 bits of
/// the word are lost.
pub const WINDOW_BITS: u32 = 57;

/// Returns the bits of `bytes` from bit `position` on, at the top of a word: at least
/// [`WINDOW_BITS`] bits, followed by zeros. Returns `None` if fewer than 8 bytes remain from the
/// byte that contains bit `position`.
#[inline(always)]
pub fn window_at(bytes: &[u8], position: u64) -> Option<u64> {
    let byte = usize::try_from(position / 8).ok()?;
    let word = bytes.get(byte..byte.checked_add(8)?)?.first_chunk()?;
    Some(u64::from_be_bytes(*word) << (position % 8))
}

/// Reads bits from a byte slice, from front to back.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Position in bits from the start of `bytes`, at most the number of bits in `bytes`.
    position: u64,
}

impl<'a> BitReader<'a> {
    /// Returns a reader that starts at bit `position`, at most the number of bits of `bytes`.
    #[inline]
    pub fn at(bytes: &'a [u8], position: u64) -> Self {
        debug_assert!(position <= bytes.len() as u64 * 8);
        Self { bytes, position }
    }

    /// Returns the position in bits from the start.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bits that are not read yet.
    #[inline]
    pub fn left(&self) -> u64 {
        self.bytes.len() as u64 * 8 - self.position
    }

    /// Returns the window at the current position, as [`window_at`] does.
    #[inline(always)]
    pub fn window(&self) -> Option<u64> {
        window_at(self.bytes, self.position)
    }

    /// Returns the same bits as [`window`](Self::window), with zeros after the end of the bytes.
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

    /// Skips `bits` bits, which an earlier window has shown.
    #[inline(always)]
    pub fn skip(&mut self, bits: u32) {
        debug_assert!(u64::from(bits) <= self.left());
        self.position += u64::from(bits);
    }

    /// Reads a unary number: counts the ones before the next zero, and skips the ones and the zero.
    /// Returns `None` if the bytes end before the zero.
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

    /// Reads the next `count` bits, at most [`WINDOW_BITS`], as a number. Returns `None` if the
    /// bytes end first.
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

/// Writes bits to a byte vector, most significant bit first.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that are not in `bytes` yet, from the top of the word; the rest of the word is
    /// zero.
    pending: u64,
    /// Number of pending bits: fewer than 32 between calls.
    pending_bits: u32,
}

impl BitWriter {
    /// Returns a writer that appends its bits to `bytes`.
    #[inline]
    pub fn behind(bytes: Vec<u8>) -> Self {
        Self { bytes, pending: 0, pending_bits: 0 }
    }

    /// Writes the low `count` bits of `value`, at most 32. All higher bits of `value` must be zero.
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

    /// Returns the bytes, with the last byte padded with zero bits.
    #[inline]
    pub fn finish(mut self) -> Vec<u8> {
        let pending = self.pending.to_be_bytes();
        self.bytes.extend(pending.iter().take(self.pending_bits.div_ceil(8) as usize));
        self.bytes
    }
}
