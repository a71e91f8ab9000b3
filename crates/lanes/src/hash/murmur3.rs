//! `MurmurHash3_x86_32`, the hash of BIP37.
//!
//! The mixing of a block (`k1` in the original) does not depend on the seed. If an element is
//! hashed under many seeds, its blocks are mixed only once, and only the remaining steps are
//! repeated.
//!
//! Source: Austin Appleby's public-domain `MurmurHash3.cpp`, as Bitcoin Core's `hash.cpp` has it.

/// First and second multiplier of [`mix_block`].
pub const MIX: [u32; 2] = [0xcc9e_2d51, 0x1b87_3593];
/// The constant that [`absorb`] adds.
pub const ABSORB_ADD: u32 = 0xe654_6b64;
/// First and second multiplier of [`finalize`].
pub const FMIX: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];

/// Returns the `MurmurHash3_x86_32` of `data` under `seed`.
///
/// # Cost
/// Time in proportion to `data`, no allocation.
///
/// # Examples
/// ```
/// assert_eq!(chainsieve::hash::murmur3_32(0xfba4_c795, &[]), 0x6a39_6f08);
/// ```
#[inline]
pub fn murmur3_32(seed: u32, data: &[u8]) -> u32 {
    let (blocks, tail) = data.as_chunks::<4>();
    let mut hash = seed;
    for &block in blocks {
        hash = absorb(hash, mix_block(u32::from_le_bytes(block)));
    }
    finalize(hash ^ mix_tail(tail), length(data))
}

/// Mixes a four-byte block (read as little-endian), independently of the seed.
#[inline(always)]
pub fn mix_block(block: u32) -> u32 {
    block.wrapping_mul(MIX[0]).rotate_left(15).wrapping_mul(MIX[1])
}

/// Mixes the last 0 to 3 bytes, independently of the seed. An empty tail mixes to 0, which leaves
/// the hash unchanged.
#[inline(always)]
pub fn mix_tail(tail: &[u8]) -> u32 {
    debug_assert!(tail.len() < 4);
    let word = tail.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    mix_block(word)
}

/// Combines a mixed block with the hash.
#[inline(always)]
pub fn absorb(hash: u32, mixed: u32) -> u32 {
    (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(ABSORB_ADD)
}

/// Applies the final avalanche to the hash and the length in bytes.
#[inline(always)]
pub fn finalize(hash: u32, length: u32) -> u32 {
    let mut hash = hash ^ length;
    hash = (hash ^ hash >> 16).wrapping_mul(FMIX[0]);
    hash = (hash ^ hash >> 13).wrapping_mul(FMIX[1]);
    hash ^ hash >> 16
}

/// Returns the length as the hash uses it: modulo 2^32, like the conversion to `int` in the C code.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the algorithm uses only the low 32 bits")]
pub fn length(data: &[u8]) -> u32 {
    data.len() as u32
}

#[cfg(test)]
mod tests {
    use super::murmur3_32;

    /// The fourteen vectors of Bitcoin Core's `hash_tests.cpp`.
    #[test]
    fn core_vectors() {
        let rows: [(u32, u32, &str); 14] = [
            (0x0000_0000, 0x0000_0000, ""),
            (0x6a39_6f08, 0xfba4_c795, ""),
            (0x81f1_6f39, 0xffff_ffff, ""),
            (0x514e_28b7, 0x0000_0000, "00"),
            (0xea3f_0b17, 0xfba4_c795, "00"),
            (0xfd6c_f10d, 0x0000_0000, "ff"),
            (0x16c6_b7ab, 0x0000_0000, "0011"),
            (0x8eb5_1c3d, 0x0000_0000, "001122"),
            (0xb447_1bf8, 0x0000_0000, "00112233"),
            (0xe230_1fa8, 0x0000_0000, "0011223344"),
            (0xfc2e_4a15, 0x0000_0000, "001122334455"),
            (0xb074_502c, 0x0000_0000, "00112233445566"),
            (0x8034_d2a0, 0x0000_0000, "0011223344556677"),
            (0xb469_8def, 0x0000_0000, "001122334455667788"),
        ];
        for (expected, seed, data) in rows {
            assert_eq!(
                murmur3_32(seed, &hex::decode(data).unwrap()),
                expected,
                "{data} under {seed:x}"
            );
        }
    }
}
