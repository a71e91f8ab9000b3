//! Encoded Golomb-coded sets.

use alloc::vec::Vec;
use core::mem;

use chainsieve_lanes::bits::bit_stream::BitWriter;
use chainsieve_lanes::bits::golomb_rice;
use chainsieve_lanes::hash::{SipKey, siphash_each};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::{GcsParams, scale};
use crate::btc::compact_size::{MAX_SIZE, put_length};

/// Maximum number of bits of the encoded values of a set: 512 MiB.
///
/// The largest basic filter that a reader accepts has 33,554,432 elements and takes about 88 MB.
/// Only an `M` far above two to the power of `P` can exceed the limit.
pub const MAX_ENCODED_BITS: u64 = 1 << 32;

/// Encodes the set of `elements`, byte for byte as Bitcoin Core does. Duplicates are encoded once.
///
/// # Errors
/// Returns an error if there are more elements than a reader accepts, or if the codes take more
/// than [`MAX_ENCODED_BITS`]. Both limits are checked before the output is allocated.
///
/// # Cost
/// Hashes each element and sorts the hashes. Elements with equal hashes are also compared by their
/// bytes. Allocates about 48 bytes for each element, and the output.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip158::gcs::{self, GcsParams};
/// use chainsieve::hash::SipKey;
///
/// let key = SipKey::from_bytes([0; 16]);
/// assert_eq!(gcs::encode(GcsParams::BASIC, key, [])?, [0]);
/// let twice: [&[u8]; 2] = [b"script", b"script"];
/// let once: [&[u8]; 1] = [b"script"];
/// assert_eq!(
///     gcs::encode(GcsParams::BASIC, key, twice)?,
///     gcs::encode(GcsParams::BASIC, key, once)?,
/// );
/// # Ok::<(), gcs::EncodeError>(())
/// ```
pub fn encode<'e>(
    params: GcsParams,
    key: SipKey,
    elements: impl IntoIterator<Item = &'e [u8]>,
) -> Result<Vec<u8>, EncodeError> {
    encode_on(Backend::best(), params, key, elements)
}

/// Like [`encode`], on the given backend.
///
/// # Errors
/// Returns the errors of [`encode`].
pub fn encode_on<'e>(
    backend: Backend,
    params: GcsParams,
    key: SipKey,
    elements: impl IntoIterator<Item = &'e [u8]>,
) -> Result<Vec<u8>, EncodeError> {
    let elements: Vec<&[u8]> = elements.into_iter().collect();
    let mut values = distinct_hashes(backend, key, &elements)?;
    let range = values.len() as u64 * u64::from(params.m());
    let mut bits = 0;
    let mut last = 0;
    for value in &mut values {
        // Scaling keeps the order of the hashes, so the scaled values are ascending too.
        let scaled = scale(*value, range);
        *value = scaled - last;
        last = scaled;
        bits += golomb_rice::code_bits(*value, params.p());
    }
    if bits > MAX_ENCODED_BITS {
        return Err(EncodeError::TooLong(bits));
    }
    let length = usize::try_from(bits.div_ceil(8)).expect("at most 2^29");
    // The count takes at most 5 bytes, and the last word of the writer takes 4 bytes.
    let mut bytes = Vec::with_capacity(5 + length + 4);
    put_length(&mut bytes, values.len());
    let mut writer = BitWriter::behind(bytes);
    for delta in values {
        golomb_rice::put(&mut writer, delta, params.p());
    }
    Ok(writer.finish())
}

/// The hash of an element, and the index of the element.
pub(super) type Hashed = (u64, usize);

/// Returns the hashes of the distinct elements, in ascending order. Core counts `N` from distinct
/// elements, not from distinct hashes, so a hash that two elements share occurs twice.
fn distinct_hashes(
    backend: Backend,
    key: SipKey,
    elements: &[&[u8]],
) -> Result<Vec<u64>, EncodeError> {
    let mut hashes = Vec::new();
    siphash_each(backend, key, elements, &mut hashes);
    let hashed = sorted(&hashes);
    let mut distinct = Vec::with_capacity(hashed.len());
    for same in hashed.chunk_by(|a, b| a.0 == b.0) {
        let count = if same.len() == 1 { 1 } else { distinct_elements(same, elements) };
        distinct.extend(same.iter().take(count).map(|&(hash, _)| hash));
    }
    let count = distinct.len() as u64;
    if count > MAX_SIZE { Err(EncodeError::TooMany(count)) } else { Ok(distinct) }
}

/// Returns the number of distinct elements among the elements with the same hash.
pub(super) fn distinct_elements(same: &[Hashed], elements: &[&[u8]]) -> usize {
    let mut same: Vec<&[u8]> = same.iter().map(|&(_, index)| elements[index]).collect();
    same.sort_unstable();
    same.dedup();
    same.len()
}

/// Returns the hashes in ascending order, each with its index.
///
/// Hashes are evenly distributed, so placing them into buckets by their top bits sorts them almost
/// completely. Each bucket is then sorted. If an attacker has chosen the elements so that most
/// hashes share a bucket, sorting this bucket still takes only about `n log n` steps.
pub(super) fn sorted(hashes: &[u64]) -> Vec<Hashed> {
    let bits = hashes.len().max(2).ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "as many bits as the length has")]
    let bucket = |hash: u64| (hash >> (64 - bits)) as usize;
    // For each bucket, the index of its next free place. Once a bucket is full, this index is the
    // start of the next bucket.
    let mut places = alloc::vec![0; 1 << bits];
    for hash in hashes {
        places[bucket(*hash)] += 1;
    }
    let mut start = 0;
    for place in &mut places {
        start += mem::replace(place, start);
    }
    let mut hashed = alloc::vec![(0, 0); hashes.len()];
    for (index, hash) in hashes.iter().enumerate() {
        let place = &mut places[bucket(*hash)];
        hashed[*place] = (*hash, index);
        *place += 1;
    }
    let mut start = 0;
    for end in places {
        hashed[start..end].sort_unstable();
        start = end;
    }
    hashed
}

/// Reason why a set cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The number of elements exceeds what a reader accepts.
    #[error("{0} elements, the limit is {MAX_SIZE}")]
    TooMany(u64),
    /// The codes exceed [`MAX_ENCODED_BITS`].
    #[error("the codes take {0} bits, the limit is {MAX_ENCODED_BITS}")]
    TooLong(u64),
}
