//! Bits in bytes, the most significant first.

use alloc::vec::Vec;

/// Reads bits from the front of bytes.
#[derive(Debug, Clone)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits from the start.
    position: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The next 57 bits at least, from the top; zeros behind the end.
    #[inline]
    fn window(&self) -> u64 {
        let rest = self.bytes.get(self.position / 8..).unwrap_or_default();
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(rest) {
                *to = *from;
            }
            word
        });
        u64::from_be_bytes(word) << (self.position % 8)
    }

    fn left(&self) -> usize {
        (self.bytes.len() * 8).saturating_sub(self.position)
    }

    /// The number of ones before the next zero, both taken; `None` where the bytes end first.
    pub(crate) fn take_unary(&mut self) -> Option<u64> {
        let mut ones = 0;
        loop {
            let run = self.window().leading_ones() as usize;
            // A window shows 57 bits of the stream at least.
            if run < 57 {
                if run >= self.left() {
                    return None;
                }
                self.position += run + 1;
                return Some(ones + run as u64);
            }
            let run = run.min(57).min(self.left());
            self.position += run;
            ones += run as u64;
        }
    }

    /// The next `count` bits, at most 57; `None` where the bytes end first.
    pub(crate) fn take_bits(&mut self, count: u8) -> Option<u64> {
        debug_assert!(count <= 57);
        if usize::from(count) > self.left() {
            return None;
        }
        let bits = self.window().unbounded_shr(64 - u32::from(count));
        self.position += usize::from(count);
        Some(bits)
    }
}

/// Writes bits behind one another.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that are no whole byte yet, from the top.
    pending: u64,
    /// How many, at most 7 between calls.
    pending_bits: u32,
}

impl BitWriter {
    pub(crate) fn behind(bytes: Vec<u8>) -> Self {
        Self { bytes, pending: 0, pending_bits: 0 }
    }

    /// Writes the low `count` bits of `value`, at most 57.
    pub(crate) fn put(&mut self, value: u64, count: u8) {
        let count = u32::from(count);
        self.pending |= value.unbounded_shl(64 - count).unbounded_shr(self.pending_bits);
        self.pending_bits += count;
        while self.pending_bits >= 8 {
            self.bytes.push(self.pending.to_be_bytes()[0]);
            self.pending <<= 8;
            self.pending_bits -= 8;
        }
    }

    /// The bytes, filled up with zeros.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.pending_bits > 0 {
            self.bytes.push(self.pending.to_be_bytes()[0]);
        }
        self.bytes
    }
}
