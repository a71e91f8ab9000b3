//! Inserts keys into filters: all at once, or as they are read.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chainsieve_filter::{AnyFilter, Insert, KeyHasher};
use chainsieve_filter::fuse::BuildError;
use chainsieve_filter::hashing::KeyHash;
use chainsieve_filter::membership::Full;
use chainsieve_filter::sizing::SizingError;
use chainsieve_report::{Progress, Status, grouped};
use rayon::slice::ParallelSliceMut as _;

use super::keys::KeyLines;

/// Number of keys between two updates of the progress bar.
const STEP: u64 = 65_536;
/// Number of hashes that are inserted together.
const BATCH: usize = 4096;

/// The source of keys, and their hash function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) hex: bool,
    pub(super) hasher: KeyHasher,
}

/// Counts of the keys that were read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    /// Number of keys, including duplicates.
    pub(super) keys: u64,
    /// Number of empty lines.
    pub(super) empty: u64,
    /// Number of distinct keys; `None` if it was not counted.
    pub(super) distinct: Option<u64>,
}

impl Keys<'_> {
    /// Calls `take` with the hash of every key, in the order of the files.
    fn each<H: KeyHash>(
        &self,
        mut take: impl FnMut(H) -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        let progress = Progress::over_files(self.files.iter().filter_map(|file| file.to_str()));
        let mut status = (!progress.is_shown()).then(Status::default);
        let mut counts = Counts::default();
        let mut before = 0;
        for file in self.files {
            let mut lines = KeyLines::open(file, self.hex)?;
            while let Some(key) = lines.next_key()? {
                take(self.hasher.hash(key))?;
                counts.keys += 1;
                if counts.keys.is_multiple_of(STEP) {
                    progress.at(before + lines.offset());
                    if let Some(status) = &mut status {
                        status.show(|| format!("{} keys", grouped(counts.keys)));
                    }
                }
            }
            before += lines.offset();
            counts.empty += lines.empty;
        }
        Ok(counts)
    }

    /// Returns the distinct hashes, sorted.
    fn distinct<H: KeyHash>(&self) -> anyhow::Result<(Vec<H>, Counts)> {
        let mut hashes = Vec::new();
        let counts = self.each(|hash| {
            // If memory ran out, `push` alone would abort the process.
            if hashes.len() == hashes.capacity() {
                hashes
                    .try_reserve(hashes.len().max(BATCH))
                    .context("the memory is too small for the hashes of all keys")?;
            }
            hashes.push(hash);
            Ok(())
        })?;
        if hashes.is_empty() {
            bail!("the input contains no keys: no filter was built");
        }
        hashes.par_sort_unstable();
        hashes.dedup();
        let distinct = Some(hashes.len() as u64);
        Ok((hashes, Counts { distinct, ..counts }))
    }
}

/// Builds a filter that supports insertion, sized for `capacity` keys, or for the number of
/// distinct keys.
pub(super) fn filled<F: Insert>(
    keys: &Keys<'_>,
    capacity: Option<u64>,
    make: impl Fn(u64) -> Result<F, SizingError>,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (filter, counts) = filled_as(keys, capacity, make)?;
    Ok((filter.into(), counts))
}

/// Builds a filter as [`filled`] does, but returns the filter's own type `F`.
pub(super) fn filled_as<F: Insert>(
    keys: &Keys<'_>,
    capacity: Option<u64>,
    make: impl Fn(u64) -> Result<F, SizingError>,
) -> anyhow::Result<(F, Counts)> {
    let Some(capacity) = capacity else {
        let (hashes, counts) = keys.distinct()?;
        return Ok((with_all(&hashes, make)?, counts));
    };
    streamed(keys, make(capacity)?).map_err(|error| {
        let words = || format!("sized for {} keys by --capacity", grouped(capacity));
        if error.is::<Full>() { error.context(words()) } else { error }
    })
}

/// Inserts all keys into a filter, in their order.
pub(super) fn as_they_come<F: Insert>(
    keys: &Keys<'_>,
    filter: F,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (filter, counts) = streamed(keys, filter)?;
    Ok((filter.into(), counts))
}

/// Builds a filter that contains all these keys. About one set of keys in a million does not fit
/// into its computed size, so larger sizes are tried too.
fn with_all<F: Insert>(
    hashes: &[F::Hash],
    make: impl Fn(u64) -> Result<F, SizingError>,
) -> anyhow::Result<F> {
    let keys = hashes.len() as u64;
    for room in [0, keys / 50 + 4, keys / 20 + 16] {
        let mut filter = make(keys + room)?;
        if filter.insert_batch(hashes).is_ok() {
            return Ok(filter);
        }
    }
    bail!("{} keys do not fit into the filter: build it with another seed", grouped(keys))
}

fn streamed<F: Insert>(keys: &Keys<'_>, mut filter: F) -> anyhow::Result<(F, Counts)> {
    let mut batch = Vec::with_capacity(BATCH);
    let counts = keys.each(|hash| {
        batch.push(hash);
        if batch.len() == BATCH {
            filter.insert_batch(&batch)?;
            batch.clear();
        }
        Ok(())
    })?;
    filter.insert_batch(&batch)?;
    Ok((filter, counts))
}

/// Builds a static filter, which is computed from all its keys at once.
pub(super) fn solved<F, H: KeyHash>(
    keys: &Keys<'_>,
    build: impl FnOnce(&[H]) -> Result<F, BuildError>,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (hashes, counts) = keys.distinct()?;
    Ok((build(&hashes)?.into(), counts))
}
