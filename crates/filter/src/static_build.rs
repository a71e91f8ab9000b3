//! What the static filters share: why a build fails, and large sets cut into shards.

use alloc::vec::Vec;

use super::sizing::SizingError;
use super::words::NoMemory;

/// Why there is no static filter of a set.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No seed worked. With hashes that nobody chose against the seed this does not happen: each
    /// try fails with a chance below a half. Build with another seed, and hash with another key.
    #[error("no seed out of {tries} works for a set of {keys} keys")]
    NoSeed {
        /// Keys of the set, or of the shard that failed.
        keys: u64,
        /// Seeds tried.
        tries: u32,
    },
    /// More keys than the layout has numbers for.
    #[error("{keys} keys in one piece: at most {limit} are possible")]
    TooManyKeys {
        /// Keys there are.
        keys: u64,
        /// Keys there can be.
        limit: u64,
    },
    /// A rate or a parameter that the filter can't have.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// No memory for it.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

/// Shards of a wave: those whose keys are in memory a second time while they are built.
const WAVE_SHARDS: usize = 16;

/// The shard of a key. The multiplication spreads hashes that share their highest bits, as those
/// of one shard of another structure do.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "fewer than there are shards")]
pub(super) fn shard_of(hash: u64, num_shards: usize) -> usize {
    let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mul_high(spread, num_shards as u64) as usize
}

/// The upper half of the product: a number below `range`, evenly.
#[inline(always)]
pub(super) fn mul_high(hash: u64, range: u64) -> u64 {
    ((u128::from(hash) * u128::from(range)) >> 64) as u64
}

/// The next number of a `SplitMix64` generator.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Memory for `len` items, or an error where a vector would end the process.
pub(super) fn reserved<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = Vec::new();
    let words = (len.saturating_mul(size_of::<T>()) / 8) as u64;
    items.try_reserve_exact(len).map_err(|_| NoMemory { words })?;
    Ok(items)
}

/// `len` items of the default value.
pub(super) fn zeroed<T: Default + Clone>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = reserved(len)?;
    items.resize(len, T::default());
    Ok(items)
}

/// The hashes, sorted, each once.
pub(super) fn distinct(hashes: &[u64]) -> Result<Vec<u64>, NoMemory> {
    let mut distinct = reserved(hashes.len())?;
    distinct.extend_from_slice(hashes);
    distinct.sort_unstable();
    distinct.dedup();
    Ok(distinct)
}

/// Builds each shard out of its hashes: on all cores with feature `rayon`. Only the keys of a few
/// shards are copied at a time.
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
