//! Stored filters, so that a rescan does not download them again. There is one file per 1,000
//! blocks.
//!
//! ```text
//! "CSFC" | version 1 | for each record: height u32 | block hash 32 | filter
//! ```
//! The encoding is that of [`records`], but the filter has no length of its own: it is the rest of
//! the record. If a file has several filters of one height, the last of these filters is valid.
//! Reading stops at the first record that is incomplete or damaged.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::BlockHash;

use super::{File, Write};
use crate::btc::bip157::CHECKPOINT_INTERVAL;
use crate::btc::headers::BlockAt;
use crate::btc::records::{self, push, push_record, record, take};

const NAME: [u8; 4] = *b"CSFC";
const VERSION: u8 = 1;

/// Directory of the stored filter files.
#[derive(Debug)]
pub(super) struct FilterCache {
    /// Maximum number of bytes, see [`new`](Self::new).
    limit: u64,
    /// Size in bytes of each file, by its number.
    sizes: BTreeMap<u32, u64>,
    /// Sum of all sizes in bytes.
    total: u64,
}

/// Number of the file that stores the filter of a height.
pub(super) fn file_of(height: u32) -> u32 {
    height.div_ceil(CHECKPOINT_INTERVAL)
}

impl FilterCache {
    /// Creates the cache from the existing `files`, each with its number and its size in bytes. The
    /// cache stores at most `limit` bytes plus one file; a limit of 0 stores nothing.
    pub(super) fn new(limit: u64, files: &[(u32, u64)]) -> Self {
        let sizes: BTreeMap<_, _> = files.iter().copied().collect();
        let total = sizes.values().sum();
        Self { limit, sizes, total }
    }

    /// Returns `true` if the file exists.
    pub(super) fn contains(&self, file: u32) -> bool {
        self.sizes.contains_key(&file)
    }

    /// Stores a filter and removes the files with the lowest numbers while the limit is exceeded.
    /// Returns the writes to carry out.
    pub(super) fn keep(&mut self, at: BlockAt, content: &[u8]) -> Vec<Write> {
        let mut writes = Vec::new();
        if self.limit == 0 {
            return writes;
        }
        let number = file_of(at.height);
        let size = self.sizes.entry(number).or_default();
        let mut bytes = Vec::new();
        if *size == 0 {
            bytes.extend(records::start(NAME, VERSION));
        }
        let mut body = Vec::new();
        push(&(at.height, at.hash), &mut body);
        body.extend(content);
        push_record(body, &mut bytes);
        let file = File::Filters(number);
        let added = bytes.len() as u64;
        writes.push(Write::Append { file, at: *size, bytes });
        *size += added;
        self.total += added;
        // The file that was just written is kept: otherwise, a single large file would be removed
        // at once.
        while self.total > self.limit
            && let Some((&lowest, &size)) = self.sizes.first_key_value()
            && lowest != number
        {
            self.sizes.remove(&lowest);
            self.total -= size;
            writes.push(Write::Remove(File::Filters(lowest)));
        }
        writes
    }

    /// Sets the length of a file whose end is damaged: only the first `whole` bytes are valid. The
    /// next filter is written directly after these bytes, so that readers find it.
    pub(super) fn cut(&mut self, file: u32, whole: u64) {
        if let Some(size) = self.sizes.get_mut(&file)
            && whole < *size
        {
            self.total -= *size - whole;
            *size = whole;
        }
    }

    /// Forgets a file that the storage no longer has.
    pub(super) fn lose(&mut self, file: u32) {
        self.total -= self.sizes.remove(&file).unwrap_or(0);
    }
}

/// Maximum total size in bytes of the filters in memory: about a day of blocks on Bitcoin's main
/// network.
const MAX_RECENT: usize = 4 << 20;

/// The filters of the highest answered blocks, in memory: a new address, whose birthday is at the
/// tip, needs no download and no file.
#[derive(Debug, Default)]
pub(super) struct RecentFilters {
    filters: BTreeMap<u32, (BlockHash, Vec<u8>)>,
    bytes: usize,
}

impl RecentFilters {
    /// Adds a filter. The filters of the lowest heights make room for it.
    pub(super) fn insert(&mut self, at: BlockAt, content: Vec<u8>) {
        self.bytes += content.len();
        if let Some((_, before)) = self.filters.insert(at.height, (at.hash, content)) {
            self.bytes -= before.len();
        }
        while self.bytes > MAX_RECENT
            && let Some((_, (_, lowest))) = self.filters.pop_first()
        {
            self.bytes -= lowest.len();
        }
    }

    /// Returns the filter of a block.
    pub(super) fn get(&self, at: BlockAt) -> Option<&[u8]> {
        let (hash, content) = self.filters.get(&at.height)?;
        (*hash == at.hash).then_some(content)
    }
}

/// Decodes a file. Returns the filters of the file by height, each with its block hash, and the
/// number of bytes before the first incomplete or damaged record: 0 if the file has another name or
/// version.
pub(super) fn decode(file: &[u8]) -> (BTreeMap<u32, (BlockHash, Vec<u8>)>, usize) {
    let mut filters = BTreeMap::new();
    let Some(mut rest) = file.strip_prefix(&records::start(NAME, VERSION)) else {
        return (filters, 0);
    };
    let mut whole = file.len() - rest.len();
    while let Some(mut body) = record(&mut rest)
        && let Some((height, hash)) = take(&mut body)
    {
        filters.insert(height, (hash, body.to_vec()));
        whole = file.len() - rest.len();
    }
    (filters, whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btc::records::START_LEN;
    use crate::btc::records::tests::laid_out;
    use bitcoin::hashes::Hash as _;

    fn at(height: u32) -> BlockAt {
        BlockAt { height, hash: BlockHash::hash(&height.to_le_bytes()) }
    }

    fn carry_out(file: &mut Vec<u8>, writes: Vec<Write>) {
        for write in writes {
            let Write::Append { at, bytes, .. } = write else { panic!("{write:?}") };
            file.truncate(usize::try_from(at).unwrap());
            file.extend(bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let mut cache = FilterCache::new(1 << 20, &[]);
        let mut file = Vec::new();
        let bodies = [(258_u32, &[2, 1, 0, 0]), (259, &[3, 1, 0, 0])].map(|(height, number)| {
            carry_out(&mut file, cache.keep(at(height), &[7; 5]));
            [&number[..], at(height).hash.as_byte_array(), &[7; 5]].concat()
        });
        assert_eq!(file, laid_out(*b"CSFC\x01", &bodies));
    }

    #[test]
    fn a_file_that_is_cut_or_turned_keeps_the_filters_before() {
        let mut cache = FilterCache::new(1 << 20, &[]);
        let (mut file, mut ends) = (Vec::new(), std::vec![START_LEN]);
        for height in 1..=3 {
            carry_out(&mut file, cache.keep(at(height), &[7; 5]));
            ends.push(file.len());
        }
        let (filters, whole) = decode(&file);
        assert_eq!((filters.len(), whole), (3, file.len()));
        assert_eq!(filters[&2], (at(2).hash, std::vec![7; 5]));
        for length in 0..file.len() {
            let last = ends.iter().rposition(|end| *end <= length);
            let expected = last.map_or((0, 0), |count| (count, ends[count]));
            let (filters, whole) = decode(&file[..length]);
            assert_eq!((filters.len(), whole), expected, "{length}");
        }
        for place in 0..file.len() {
            let mut turned = file.clone();
            turned[place] ^= 1;
            let last = ends.iter().rposition(|end| *end <= place);
            assert_eq!(decode(&turned).1, last.map_or(0, |last| ends[last]), "{place}");
        }
    }

    #[test]
    fn what_follows_a_filter_that_was_cut_is_found_again() {
        let mut cache = FilterCache::new(1 << 20, &[]);
        let mut file = Vec::new();
        carry_out(&mut file, cache.keep(at(1), &[7; 5]));
        carry_out(&mut file, cache.keep(at(2), &[7; 5]));
        file.pop();
        // The code below simulates the next run after a crash.
        let mut cache = FilterCache::new(1 << 20, &[(1, file.len() as u64)]);
        let (_, whole) = decode(&file);
        cache.cut(1, whole as u64);
        carry_out(&mut file, cache.keep(at(3), &[8; 5]));
        assert_eq!(decode(&file).0.keys().copied().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_lowest_files_make_room() {
        let mut cache = FilterCache::new(200, &[(1, 90), (5, 60)]);
        let writes = cache.keep(at(7_000), &[1; 50]);
        assert_eq!(writes[1..], [Write::Remove(File::Filters(1))]);
        assert!(!cache.contains(1) && cache.contains(5) && cache.contains(7));
        cache.lose(5);
        assert_eq!(cache.total, 99);
        assert_eq!(FilterCache::new(0, &[]).keep(at(1), &[1]), []);
    }
}
