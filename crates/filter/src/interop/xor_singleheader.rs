//! The bytes of `xor_singleheader`, which its bindings for other languages read and write too.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | seed |
//! | 8–11 | keys |
//! | 12–15 | length of a segment |
//! | 16–19 | segments that a first fingerprint can be in |
//! | 20–23 | the product of the two |
//! | 24–27 | fingerprints: two segments more |
//! | 28– | the fingerprints, of 8 or 16 bits |
//!
//! All in the order of the writing machine, which nothing tells: this is the little-endian one.
//! The function that sizes the buffer for 16 bits counts a mask that is not written, so that its
//! files have four bytes more at the end, of any value.
//!
//! Keys there are numbers of 64 bits. `hasher` says how they come from bytes: the package
//! `pyfusefilter`, for one, hashes the text of a key by XXH64 with seed 0. What is mixed into
//! them then (`murmur64(key + seed)`) is the same here and there.

use alloc::vec::Vec;

use super::super::encoding::{DecodeError, parameter};
use super::super::fuse::{BinaryFuse, FuseFingerprint, Shape};
use super::super::hashing::KeyHasher;
use super::super::membership::Filter;

/// Bytes before the fingerprints.
const HEADER_BYTES: usize = 28;
/// Bytes that follow those of 16-bit fingerprints.
const SURPLUS_BYTES: usize = 4;

/// Why a filter has no such bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{num_shards} shards: the layout has one; build it in one")]
pub struct ManyShards {
    /// Shards of the filter.
    pub num_shards: usize,
}

/// The filter in the layout of `xor_singleheader`, without the surplus bytes.
///
/// # Errors
/// If it has more than one shard.
pub fn encode<F: FuseFingerprint, S: AsRef<[u64]>>(
    filter: &BinaryFuse<F, S>,
) -> Result<Vec<u8>, ManyShards> {
    let many = ManyShards { num_shards: filter.num_shards() };
    let (seed, shape, words) = filter.only_shard().ok_or(many)?;
    let cells = shape.cells();
    let bytes = cells as usize * size_of::<F>();
    let mut encoded = Vec::with_capacity(HEADER_BYTES + bytes);
    encoded.extend(seed.to_le_bytes());
    // As many keys as fit a shard, so fewer than 2^32.
    let keys = u32::try_from(filter.len()).unwrap_or(u32::MAX);
    for field in [keys, shape.segment_length, shape.segment_count, shape.first_places(), cells] {
        encoded.extend(field.to_le_bytes());
    }
    encoded.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(bytes));
    Ok(encoded)
}

/// A filter of such bytes, whose keys come from `hasher`.
///
/// # Errors
/// If the fields contradict each other or the length.
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
    let shape = Shape::new(segment_length, segment_count)?;
    if first_places != shape.first_places() {
        return Err(parameter(
            "segment count length",
            first_places.into(),
            "the product of the two before",
        ));
    }
    if cells != shape.cells() {
        return Err(parameter(
            "array length",
            cells.into(),
            "two segments more than the length before",
        ));
    }
    if keys > cells {
        return Err(parameter("number of keys", keys.into(), "at most one for each fingerprint"));
    }
    let expected = u64::from(cells) * size_of::<F>() as u64;
    let Some((fingerprints, behind)) =
        usize::try_from(expected).ok().and_then(|expected| rest.split_at_checked(expected))
    else {
        return Err(truncated(HEADER_BYTES as u64 + expected));
    };
    if !(behind.is_empty() || F::BITS == 16 && behind.len() == SURPLUS_BYTES) {
        return Err(DecodeError::TooLong { found, expected: HEADER_BYTES as u64 + expected });
    }
    let seed = u64::from(s1) << 32 | u64::from(s0);
    Ok(BinaryFuse::of_cells(seed, shape, keys.into(), fingerprints, hasher)?)
}
