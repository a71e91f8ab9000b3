//! Shared parts of the static filters: the split of large sets into shards, each built by itself.

use alloc::vec::Vec;

#[cfg(feature = "rayon")]
use rayon::iter::ParallelIterator;

use super::sizing::BuildError;
use super::words::{NoMemory, reserved, zeroed};

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
    build: impl Fn(&mut [u64]) -> Result<T, BuildError> + Send + Sync,
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
        for size in sizes {
            let (part, others) = rest.split_at_mut(*size);
            parts.push(part);
            rest = others;
        }
        #[cfg(feature = "rayon")]
        let parts = rayon::iter::IntoParallelIterator::into_par_iter(parts);
        #[cfg(not(feature = "rayon"))]
        let parts = parts.into_iter();
        built.extend(parts.map(&build).collect::<Result<Vec<T>, _>>()?);
    }
    Ok(built)
}
