//! Shared parts of the static filters: build errors, and the split of large sets into shards.

use alloc::vec::Vec;

use super::sizing::SizingError;
use super::words::NoMemory;

/// The reason why a static filter could not be built.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No seed led to a filter. Each try fails with a probability below one half, so this does not
    /// happen unless somebody chose the keys to make it fail. Build with another seed, and hash
    /// with another key.
    #[error("no seed out of {tries} works for a set of {keys} keys")]
    NoSeed {
        /// Number of keys of the set, or of the shard that failed.
        keys: u64,
        /// Number of seeds tried.
        tries: u32,
    },
    /// There are more keys than the layout can index.
    #[error("{keys} keys in one shard, but at most {limit} are possible")]
    TooManyKeys {
        /// Number of keys found.
        keys: u64,
        /// Greatest number of keys possible.
        limit: u64,
    },
    /// No filter has the requested parameters, for example the requested rate.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// There is no memory for the filter.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

/// Number of shards that are built together, in one wave. The keys of a wave's shards are copied
/// into a buffer while the shards are built, so this bounds the extra memory.
const WAVE_SHARDS: usize = 16;

/// Returns the shard of a key, from 0 to `num_shards - 1`.
///
/// The multiplication spreads hashes that have their highest bits in common, as the hashes of one
/// shard of another structure have.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the shard is below `num_shards`")]
pub(super) fn shard_of(hash: u64, num_shards: usize) -> usize {
    let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mul_high(spread, num_shards as u64) as usize
}

/// Scales a hash evenly to `0..range`: returns the upper half of the product of `hash` and `range`.
#[inline(always)]
pub(super) fn mul_high(hash: u64, range: u64) -> u64 {
    ((u128::from(hash) * u128::from(range)) >> 64) as u64
}

/// Returns the next number of a `SplitMix64` generator.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Reserves memory for `len` items. Returns an error where `Vec::with_capacity` would abort the
/// process.
pub(super) fn reserved<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = Vec::new();
    let words = (len.saturating_mul(size_of::<T>()) / 8) as u64;
    items.try_reserve_exact(len).map_err(|_| NoMemory { words })?;
    Ok(items)
}

/// Allocates `len` items with the default value.
pub(super) fn zeroed<T: Default + Clone>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = reserved(len)?;
    items.resize(len, T::default());
    Ok(items)
}

/// Returns the hashes sorted, without duplicates.
pub(super) fn distinct(hashes: &[u64]) -> Result<Vec<u64>, NoMemory> {
    let mut distinct = reserved(hashes.len())?;
    distinct.extend_from_slice(hashes);
    distinct.sort_unstable();
    distinct.dedup();
    Ok(distinct)
}

/// Builds each shard from its hashes, on all cores with feature `rayon`. The results are in the
/// order of the shards.
///
/// The hashes are grouped by shard in waves of [`WAVE_SHARDS`] shards. So only the keys of a few
/// shards are copied at a time. The disadvantage is that each wave reads all hashes again.
pub(super) fn build_shards<T: Send>(
    hashes: &[u64],
    num_shards: usize,
    build: impl Fn(usize, &mut [u64]) -> Result<T, BuildError> + Send + Sync,
) -> Result<Vec<T>, BuildError> {
    let mut sizes = zeroed::<usize>(num_shards)?;
    for hash in hashes {
        sizes[shard_of(*hash, num_shards)] += 1;
    }
    let mut built = reserved(num_shards)?;
    let (mut grouped, mut next) = (Vec::new(), Vec::new());
    for (wave, sizes) in sizes.chunks(WAVE_SHARDS).enumerate() {
        let first = wave * WAVE_SHARDS;
        let total = sizes.iter().sum();
        next.clear();
        next.extend(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end - size)
        }));
        if grouped.len() < total {
            grouped = zeroed(total)?;
        }
        for hash in hashes {
            if let Some(place) = next.get_mut(shard_of(*hash, num_shards).wrapping_sub(first)) {
                grouped[*place] = *hash;
                *place += 1;
            }
        }
        let (mut rest, mut parts) = (&mut grouped[..total], Vec::new());
        for (at, size) in sizes.iter().enumerate() {
            let (part, behind) = rest.split_at_mut(*size);
            parts.push((first + at, part));
            rest = behind;
        }
        built.extend(each(parts, |(at, part)| build(at, part))?);
    }
    Ok(built)
}

#[cfg(feature = "rayon")]
fn each<P: Send, T: Send>(
    parts: Vec<P>,
    build: impl Fn(P) -> Result<T, BuildError> + Send + Sync,
) -> Result<Vec<T>, BuildError> {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};
    parts.into_par_iter().map(build).collect()
}

#[cfg(not(feature = "rayon"))]
fn each<P, T>(
    parts: Vec<P>,
    build: impl Fn(P) -> Result<T, BuildError>,
) -> Result<Vec<T>, BuildError> {
    parts.into_iter().map(build).collect()
}
