//! Golomb-Rice codes: a quotient in unary, a remainder of fixed width.
//!
//! Source: BIP158, "Golomb-Rice Coding".

use super::bit_stream::{BitReader, BitWriter};

/// Takes a code with a remainder of `p` bits; `None` where the bytes end first. Saturates.
pub(crate) fn take(reader: &mut BitReader<'_>, p: u8) -> Option<u64> {
    let quotient = reader.take_unary()?;
    let remainder = reader.take_bits(p)?;
    Some(quotient.saturating_mul(1 << p) | remainder)
}

/// Writes the code of `value` with a remainder of `p` bits.
pub(crate) fn put(writer: &mut BitWriter, value: u64, p: u8) {
    let mut quotient = value >> p;
    while quotient >= 32 {
        writer.put(u64::from(u32::MAX), 32);
        quotient -= 32;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 32")]
    writer.put((1 << (quotient + 1)) - 2, quotient as u8 + 1);
    writer.put(value, p);
}
