//! Sets encoded.

use alloc::vec::Vec;
use core::mem;

use chainsieve_lanes::bits::bit_stream::BitWriter;
use chainsieve_lanes::bits::golomb_rice;
use chainsieve_lanes::hash::{SipKey, siphash_each};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::{GcsParams, scale};
use crate::btc::compact_size::{MAX_SIZE, put_length};

/// The most bits that the values of a set are encoded in: 512 MiB. The largest basic filter that a
/// reader accepts, of 33,554,432 elements, takes about 88 MB; only an `M` far above two to the `P`
/// goes past the limit.
pub const MAX_ENCODED_BITS: u64 = 1 << 32;

/// Encodes the set of `elements`, each counted once, as Bitcoin Core does.
///
/// # Errors
/// More elements than a reader accepts, or codes of more than [`MAX_ENCODED_BITS`]; found out
/// before anything of that size is allocated.
///
/// # Cost
/// A hash of each element and a sort of the hashes; elements of equal bytes are also sorted by
/// them. Allocates about 48 bytes for each element, and what it returns.
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

/// [`encode`], on a backend of choice.
///
/// # Errors
/// As [`encode`].
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
        // The order of hashes is that of what they are scaled to.
        let scaled = scale(*value, range);
        *value = scaled - last;
        last = scaled;
        bits += golomb_rice::code_bits(*value, params.p());
    }
    if bits > MAX_ENCODED_BITS {
        return Err(EncodeError::TooLong(bits));
    }
    let length = usize::try_from(bits.div_ceil(8)).expect("at most 2^29");
    // A count takes 5 bytes at most, and the writer's last word 4.
    let mut bytes = Vec::with_capacity(5 + length + 4);
    put_length(&mut bytes, values.len());
    let mut writer = BitWriter::behind(bytes);
    for delta in values {
        golomb_rice::put(&mut writer, delta, params.p());
    }
    Ok(writer.finish())
}

/// An element's hash, and where the element is.
pub(super) type Hashed = (u64, usize);

/// The hashes of the elements, ascending, as many as there are different elements.
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

/// The number of different elements among those of one hash.
pub(super) fn distinct_elements(same: &[Hashed], elements: &[&[u8]]) -> usize {
    let mut same: Vec<&[u8]> = same.iter().map(|&(_, index)| elements[index]).collect();
    same.sort_unstable();
    same.dedup();
    same.len()
}

/// The hashes in ascending order, each with its index.
///
/// Hashes are spread evenly, so that laid out by their top bits they are nearly in order. Where an
/// opponent has seen to it that they are not, they are sorted as anything else.
pub(super) fn sorted(hashes: &[u64]) -> Vec<Hashed> {
    let bits = hashes.len().max(2).ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "as many bits as the length has")]
    let bucket = |hash: u64| (hash >> (64 - bits)) as usize;
    // Where the next hash of each bucket goes; in the end, where the next bucket starts.
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

/// Why a set cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// More elements than any reader accepts.
    #[error("{0} elements, the limit is {MAX_SIZE}")]
    TooMany(u64),
    /// An encoding over the limit.
    #[error("the codes take {0} bits, the limit is {MAX_ENCODED_BITS}")]
    TooLong(u64),
}
