//! The keys of all benchmarks: hashes that are computed before the timing, and scripts.

use testkit::split_mix;
use testkit::timer::Report;

/// Returns the numbers of keys that the filters are filled with.
pub(crate) fn sizes(report: &Report) -> Vec<usize> {
    let mut sizes = if report.is_quick() { vec![100_000] } else { Vec::new() };
    sizes.push(1_000_000);
    if !report.is_quick() {
        sizes.push(10_000_000);
    }
    if report.is_full() {
        sizes.push(100_000_000);
    }
    sizes
}

/// Returns the number of absent keys to query in a filter of `n` keys: enough to measure a rate of
/// 0.1 %.
pub(crate) fn probes(n: usize) -> usize {
    n.clamp(4_000_000, 10_000_000)
}

/// Hashes that are split into runs: each run of a benchmark queries the next part. The runs are so
/// short that other work on the machine leaves some of them undisturbed. No run profits from cache
/// lines that the preceding run has loaded.
pub(crate) struct Turns<'a> {
    hashes: &'a [u64],
    next: usize,
    len: usize,
}

impl<'a> Turns<'a> {
    pub(crate) fn of(hashes: &'a [u64]) -> Self {
        Self { hashes, next: 0, len: hashes.len().min(1 << 17) }
    }

    /// Returns runs of at most `len` hashes, which are shorter than the runs of the function `of`.
    pub(crate) fn of_len(hashes: &'a [u64], len: usize) -> Self {
        Self { hashes, next: 0, len: hashes.len().min(len) }
    }

    /// Returns the number of hashes of one run.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the hashes of the next run.
    pub(crate) fn next(&mut self) -> &'a [u64] {
        let (start, end) = (self.next, self.next + self.len());
        self.next = if end + self.len() <= self.hashes.len() { end } else { 0 };
        &self.hashes[start..end]
    }
}

/// Returns the hashes of `n` distinct keys, in random order.
pub(crate) fn present(n: usize) -> Vec<u64> {
    (0..n as u64).map(split_mix).collect()
}

/// Returns the hashes of `n` keys that are not in the filters.
pub(crate) fn absent(n: usize) -> Vec<u64> {
    (0..n as u64).map(|index| split_mix(index | 1 << 63)).collect()
}

/// Concatenated scripts of 22 to 34 bytes: P2WPKH, P2SH, P2PKH, P2WSH and P2TR in turn.
pub(crate) struct Scripts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Scripts {
    /// Returns the scripts with the numbers of `range`; all numbers give different scripts.
    pub(crate) fn new(range: std::ops::Range<u64>) -> Self {
        let count = usize::try_from(range.end - range.start).expect("indices of 64 bits");
        let mut bytes = Vec::with_capacity(count * 28);
        let mut ends = Vec::with_capacity(count);
        for index in range {
            let words = [0, 1, 2, 3].map(|word| split_mix(index * 4 + word).to_le_bytes());
            let hash = words.as_flattened();
            let (before, len, after): (&[u8], _, &[u8]) = match index % 5 {
                0 => (&[0x00, 0x14], 20, &[]),
                1 => (&[0xa9, 0x14], 20, &[0x87]),
                2 => (&[0x76, 0xa9, 0x14], 20, &[0x88, 0xac]),
                3 => (&[0x00, 0x20], 32, &[]),
                _ => (&[0x51, 0x20], 32, &[]),
            };
            bytes.extend(before.iter().chain(&hash[..len]).chain(after));
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// Returns the number of scripts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns script `index`.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// Returns every script, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }
}
