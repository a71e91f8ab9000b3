//! The cost of the same keys at the same rate in each kind of filter.
//!
//! The functions of this file expect a [`checked`] rate and at least one key, unless they name
//! another check.

use super::math::{ceil, checked, float};
use super::{SizingError, blocked, classic, cuckoo, fixed, partitioned, split_block, stages};

/// Memory, rate, operations and cache misses of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "independent properties, each with a name")]
pub struct Cost {
    /// Size of the filter in bits, without the header of its encoded form.
    ///
    /// The size of Bloom, split-block and counting filters is exact. From 10⁴ keys on, the size of
    /// rolling, cuckoo and compressed filters is accurate to 0.2 %, and the size of fuse and
    /// scalable filters to 2 %. The size of ribbon filters is an [upper
    /// bound](Self::is_upper_bound).
    pub num_bits: u64,
    /// `true` if the size is an upper bound, as for ribbon filters, which take 2 to 8 % less. For
    /// example, 10⁶ keys at a rate of 0.1 % take 10.24 bits per key, and the bound is 10.50.
    pub is_upper_bound: bool,
    /// Bits per key: `num_bits` divided by the number of keys.
    pub bits_per_key: f64,
    /// Number of hash functions. `None` if the layout does not test several equivalent positions
    /// per key.
    pub hash_funcs: Option<u32>,
    /// Rate of the filter with all keys inserted, at most the requested rate.
    pub fpr: f64,
    /// `true` if keys can be inserted after the filter was built.
    pub inserts: bool,
    /// `true` if keys can be removed.
    pub removes: bool,
    /// `true` if two filters can be merged.
    pub merges: bool,
    /// Mean number of cache lines that a query for a key outside the set reads.
    pub lines_absent: f64,
    /// Mean number of cache lines that a query for a key in the set reads.
    pub lines_present: f64,
}

/// Number of counters in a block of a counting filter.
const COUNTERS: u32 = 128;
/// Ratio of the final number of keys to the first stage's capacity, in the cost of a scalable
/// filter.
const GROWN: u64 = 100;

impl Cost {
    /// Creates the cost of a filter that supports insertion and reads one cache line per query.
    fn new(n: u64, num_bits: u64, fpr: f64) -> Self {
        Self {
            num_bits,
            is_upper_bound: false,
            bits_per_key: float(num_bits) / float(n),
            hash_funcs: None,
            fpr,
            inserts: true,
            removes: false,
            merges: false,
            lines_absent: 1.0,
            lines_present: 1.0,
        }
    }

    /// Creates the cost of a filter that tests positions as a classic filter does. `size` contains
    /// the numbers of positions and of hash functions, `num_bits` is the memory, and `held` is the
    /// number of keys that determines the rate.
    fn of_places(n: u64, num_bits: u64, size: classic::Size, held: u64) -> Self {
        let fpr = classic::fpr(held, size.num_bits, size.hash_funcs);
        let fill = classic::fill(held, size.num_bits, size.hash_funcs);
        Self::new(n, num_bits, fpr).probing(fill, size.hash_funcs).merging()
    }

    /// Sets the cache lines of a query that tests positions one after another, until one is empty.
    fn probing(self, fill: f64, hash_funcs: u32) -> Self {
        let lines_absent = lines_until_empty(fill, hash_funcs);
        let lines_present = f64::from(hash_funcs);
        Self { hash_funcs: Some(hash_funcs), lines_absent, lines_present, ..self }
    }

    fn lines(self, lines: f64) -> Self {
        Self { lines_absent: lines, lines_present: lines, ..self }
    }

    fn merging(self) -> Self {
        Self { merges: true, ..self }
    }

    /// Marks a filter that supports no insertion after it was built.
    fn fixed(self) -> Self {
        Self { inserts: false, ..self }
    }
}

fn lines_until_empty(fill: f64, hash_funcs: u32) -> f64 {
    (0..hash_funcs).map(|asked| libm::pow(fill, f64::from(asked))).sum()
}

/// Rounds the number of bits up to whole words. The filter also uses the bits up to the end of the
/// last word.
pub(crate) fn in_words(size: classic::Size) -> classic::Size {
    classic::Size { num_bits: size.num_bits.next_multiple_of(64), ..size }
}

/// Returns the cost of a hash table of 64-bit tags in place of a filter.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1, or is below the probability of equal tags.
pub fn exact_table(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    checked(fpr)?;
    let n = n.max(1);
    let bits = fixed::exact_table_bytes(n).saturating_mul(8);
    let rate = fixed::tag_fpr(n, 64);
    if rate > fpr {
        return Err(SizingError::OutOfReach { fpr, layout: "exact-table", best: rate });
    }
    // A query reads the table's control bytes. For a key in the set, the query also reads the tag.
    let cost = Cost { removes: true, ..Cost::new(n, bits, rate) };
    Ok(Cost { lines_present: 2.0, ..cost }.merging())
}

/// Returns the information-theoretic lower bound on the cost of a filter for a set that does not
/// change.
///
/// # Errors
/// Returns an error if `fpr` is not between 0 and 1.
pub fn floor(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let n = n.max(1);
    let bits = fixed::floor_bits(n, fpr)?;
    let cost = Cost::new(n, ceil(bits), fpr).lines(0.0).fixed();
    Ok(Cost { bits_per_key: bits / float(n), ..cost })
}

pub(crate) fn bloom(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let size = in_words(classic::size(n, fpr)?);
    Ok(Cost::of_places(n, size.num_bits, size, n))
}

pub(crate) fn partitioned(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let size = partitioned::size(n, fpr)?;
    let cost = Cost::new(n, size.num_bits(), partitioned::fpr(n, size));
    Ok(cost.probing(partitioned::fill(n, size), size.hash_funcs).merging())
}

pub(crate) fn count_min(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let cost = partitioned(n, fpr)?;
    let num_bits = cost.num_bits.saturating_mul(32);
    Ok(Cost { num_bits, bits_per_key: float(num_bits) / float(n), ..cost })
}

pub(crate) fn counting(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let (blocks, hash_funcs) = blocked::counting_size(n, fpr, COUNTERS)?;
    let rate = blocked::fpr(n, blocks, COUNTERS, hash_funcs);
    let bits = blocks.saturating_mul(u64::from(COUNTERS) * 4);
    let cost = Cost::new(n, bits, rate).merging();
    Ok(Cost { hash_funcs: Some(hash_funcs), removes: true, ..cost })
}

pub(crate) fn rolling(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let rolling = stages::rolling(n, fpr)?;
    let (num_bits, hash_funcs) = (rolling.num_places, rolling.hash_funcs);
    let held = rolling.per_generation * stages::GENERATIONS;
    let size = classic::Size { num_bits, hash_funcs };
    let cost = Cost::of_places(n, num_bits.saturating_mul(2), size, held);
    Ok(Cost { merges: false, ..cost })
}

pub(crate) fn compressed(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let (size, code) = stages::compressed_size(n, fpr)?;
    let cost = Cost::of_places(n, ceil(code), size, n);
    Ok(Cost { inserts: false, merges: false, ..cost })
}

pub(crate) fn ribbon(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let columns = fixed::ribbon_columns(fpr)?;
    let bits = fixed::ribbon_rows(n).saturating_mul(columns.into());
    let bytes = float(fixed::RIBBON_WIDTH / 8) * f64::from(columns);
    let cost = Cost::new(n, bits, fixed::fingerprint_fpr(columns));
    Ok(Cost { is_upper_bound: true, ..cost.lines(1.0 + bytes / 64.0).fixed() })
}

pub(crate) fn split_block(n: u64, fpr: f64, word_bits: u32) -> Result<Cost, SizingError> {
    let blocks = split_block::num_blocks(n, fpr, word_bits)?;
    let rate = split_block::fpr(n, blocks, word_bits);
    let bits = blocks.saturating_mul(u64::from(word_bits) * 8);
    Ok(Cost { hash_funcs: Some(8), ..Cost::new(n, bits, rate) }.merging())
}

pub(crate) fn cuckoo(n: u64, fpr: f64, fingerprint_bits: u32) -> Result<Cost, SizingError> {
    let buckets = cuckoo::num_buckets(n, fpr, fingerprint_bits)?;
    let bits = buckets.saturating_mul(u64::from(cuckoo::SLOTS * fingerprint_bits));
    let cost = Cost::new(n, bits, cuckoo::fpr(n, buckets, fingerprint_bits)).lines(2.0);
    Ok(Cost { removes: true, ..cost })
}

pub(crate) fn fuse(
    n: u64,
    fpr: f64,
    fingerprint_bits: u32,
    layout: &'static str,
) -> Result<Cost, SizingError> {
    let best = fixed::fingerprint_fpr(fingerprint_bits);
    if best > fpr {
        return Err(SizingError::OutOfReach { fpr, layout, best });
    }
    let bits = fixed::fuse_slots(n).saturating_mul(fingerprint_bits.into());
    Ok(Cost::new(n, bits, best).lines(3.0).fixed())
}

pub(crate) fn scalable(n: u64, fpr: f64) -> Result<Cost, SizingError> {
    let stages = stages::scalable(n, fpr, n / GROWN, 2, stages::TIGHTENING)?;
    let (mut bits, mut left) = (0u64, n);
    let (mut absent, mut present, mut ln_found_by_none) = (0.0, 0.0, 0.0);
    // The stages are ordered from the oldest to the newest. Queries search the newest stage first.
    for (capacity, size) in stages {
        let held = capacity.min(left);
        left -= held;
        bits = bits.saturating_add(size.num_bits.next_multiple_of(64));
        let lines =
            lines_until_empty(classic::fill(held, size.num_bits, size.hash_funcs), size.hash_funcs);
        // A query for a key of an older stage first reads this newer stage. The stage does not
        // contain the key, so the query reads as many lines as for a key that is not in the set.
        present += lines * float(n - left - held) + f64::from(size.hash_funcs) * float(held);
        absent += lines;
        ln_found_by_none += libm::log1p(-classic::fpr(held, size.num_bits, size.hash_funcs));
    }
    let cost = Cost::new(n, bits, -libm::expm1(ln_found_by_none));
    Ok(Cost { lines_absent: absent, lines_present: present / float(n), ..cost })
}
