//! Operations on 64-bit words: loads and stores of lanes, and a checksum.

use super::super::{Backend, Kernel, Lanes};
use super::Sixteen;

/// Eight 64-bit words loaded as sixteen 32-bit words, and stored again.
struct Long([u64; 8]);

impl Kernel for Long {
    type Output = (Sixteen, [u64; 8]);

    fn scalar(self) -> Self::Output {
        let word = |lane: usize| self.0[lane / 2] >> (lane % 2 * 32) & u64::from(u32::MAX);
        (core::array::from_fn(|lane| u32::try_from(word(lane)).unwrap()), self.0)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let (mut words, mut long) = ([0; 16], [0; 8]);
        let loaded = lanes.load_long(&self.0);
        lanes.store(loaded, &mut words);
        lanes.store_long(loaded, &mut long);
        (words, long)
    }
}

#[test]
fn as_sixteen_short_ones() {
    let long = core::array::from_fn(|lane| {
        0x0123_4567_89ab_cdef_u64.rotate_left([0, 8, 16, 24, 32, 40, 48, 56][lane])
    });
    for backend in Backend::available() {
        assert_eq!(backend.run(Long(long)), Long(long).scalar(), "{backend:?}");
    }
}

/// CRC-32C of words, eight bytes at a time.
struct Checksum<'a>(&'a [u64]);

impl Kernel for Checksum<'_> {
    type Output = u64;

    fn scalar(self) -> u64 {
        // The checksum is computed bit by bit, lowest bit first, with the polynomial of RFC 3720,
        // B.4.
        self.0.iter().fold(u64::from(u32::MAX), |crc, word| {
            (0..64).fold(crc, |crc, bit| crc >> 1 ^ ((crc ^ word >> bit) & 1) * 0x82f6_3b78)
        })
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> u64 {
        let mut crc = u64::from(u32::MAX);
        for word in self.0 {
            crc = lanes.crc32c(crc, *word);
        }
        crc
    }
}

#[test]
fn checksums_of_words() {
    // Test vectors of RFC 3720, B.4: 32 bytes of zeros, and 32 bytes of ones.
    for (words, expected) in [([0; 4], 0x8a91_36aa_u32), ([u64::MAX; 4], 0x62a8_ab43)] {
        for backend in Backend::available() {
            assert_eq!(backend.run(Checksum(&words)), u64::from(!expected), "{backend:?}");
        }
    }
}
