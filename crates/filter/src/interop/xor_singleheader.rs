//! The byte format of the C library `xor_singleheader`, which its bindings for other languages read
//! and write too.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | seed |
//! | 8–11 | number of keys |
//! | 12–15 | segment length |
//! | 16–19 | segment count: number of segments that a key's first fingerprint can lie in |
//! | 20–23 | product of segment length and segment count |
//! | 24–27 | number of fingerprints: the product, plus two segment lengths |
//! | 28– | the fingerprints, of 8 or 16 bits |
//!
//! The C library writes all integers in the byte order of its host, and the format does not record
//! that order. This module reads and writes little-endian integers. For 16-bit fingerprints, the C
//! function that computes the buffer size adds the four bytes of a mask that is never written.
//! Files of 16-bit filters therefore end with four extra bytes of any value.
//!
//! Keys of `xor_singleheader` are 64-bit numbers. `hasher` must compute these numbers from the
//! bytes of a key in the same way as the other program. For example, the Python package
//! `pyfusefilter` hashes the text of a key by XXH64 with seed 0. This module and the other program
//! then mix the seed of the filter into the number in the same way (`murmur64(key + seed)`).

use alloc::vec::Vec;

use super::super::encoding::{DecodeError, EncodeError, parameter, refuse_if};
use super::super::fuse::{BinaryFuse, FuseFingerprint, Segments};
use super::super::hashing::KeyHasher;
use super::super::membership::Filter;

/// Number of bytes before the fingerprints.
const HEADER_BYTES: usize = 28;
/// Number of extra bytes that may follow 16-bit fingerprints.
const SURPLUS_BYTES: usize = 4;

/// Encodes a filter in the format of `xor_singleheader`, without the extra bytes at the end.
///
/// # Errors
/// Returns an error if the filter has more than one shard.
pub fn encode<F: FuseFingerprint, S: AsRef<[u64]>>(
    filter: &BinaryFuse<F, S>,
) -> Result<Vec<u8>, EncodeError> {
    let many = EncodeError::Shards { num_shards: filter.num_shards() };
    let (seed, shape, words) = filter.only_shard().ok_or(many)?;
    let cells = shape.cells();
    let bytes = cells as usize * size_of::<F>();
    let mut encoded = Vec::with_capacity(HEADER_BYTES + bytes);
    encoded.extend(seed.to_le_bytes());
    // A shard has at most one key for each fingerprint, and so fewer than 2^32 keys.
    let keys = u32::try_from(filter.len()).unwrap_or(u32::MAX);
    for field in [keys, shape.segment_length, shape.segment_count, shape.first_places(), cells] {
        encoded.extend(field.to_le_bytes());
    }
    encoded.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(bytes));
    Ok(encoded)
}

/// Decodes a filter in the format of `xor_singleheader`. `hasher` computes the numbers of the keys.
///
/// # Errors
/// Returns an error if the fields of the header contradict each other or the length of `bytes`.
pub fn decode<F: FuseFingerprint>(
    bytes: &[u8],
    hasher: KeyHasher,
) -> Result<BinaryFuse<F>, DecodeError> {
    let found = bytes.len() as u64;
    let truncated = |needed| DecodeError::Truncated { found, needed };
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(truncated(HEADER_BYTES as u64));
    };
    let [s0, s1, fields @ ..] = core::array::from_fn::<u32, 7, _>(|at| {
        u32::from_le_bytes(header.as_chunks::<4>().0.get(at).copied().unwrap_or_default())
    });
    let [keys, segment_length, segment_count, first_places, cells] = fields;
    let shape = Segments::new(segment_length, segment_count)?;
    if first_places != shape.first_places() {
        return Err(parameter(
            "field at byte 20",
            first_places.into(),
            "the product of segment length and segment count",
        ));
    }
    let limit = "the product of segment length and segment count, plus two segment lengths";
    refuse_if(cells != shape.cells(), "array length", cells.into(), limit)?;
    refuse_if(keys > cells, "number of keys", keys.into(), "at most one for each fingerprint")?;
    let expected = u64::from(cells) * size_of::<F>() as u64;
    let Some((fingerprints, behind)) =
        usize::try_from(expected).ok().and_then(|expected| rest.split_at_checked(expected))
    else {
        return Err(truncated(HEADER_BYTES as u64 + expected));
    };
    // The C library sizes the buffer of 16-bit filters four bytes too large: see the module's docs.
    if !(behind.is_empty() || F::BITS == 16 && behind.len() == SURPLUS_BYTES) {
        return Err(DecodeError::TooLong { found, expected: HEADER_BYTES as u64 + expected });
    }
    let seed = u64::from(s1) << 32 | u64::from(s0);
    Ok(BinaryFuse::of_cells(seed, shape, keys.into(), fingerprints, hasher)?)
}
