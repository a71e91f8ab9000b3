//! Formulas for size, number of hash functions, false-positive rate and capacity of every layout.
//!
//! The modules have functions for the rate of a given size and the smallest size for a given rate.
//! [`Kind::cost`](super::Kind::cost), [`exact_table`] and [`floor`] compute comparable costs of all
//! layouts. Rates are computed as exactly as the layout allows. Sizes are found by a search over
//! whole numbers that computes the rate of each candidate, not by rounding a real number.
//!
//! | layout | the rate is | what the rate ignores |
//! |---|---|---|
//! | [`classic`] | exact for small filters, from mean and variance for large ones | nothing above 10⁻⁴ of the rate |
//! | [slices](classic::slices) of a partitioned filter | exact | |
//! | [`blocked`] | exact, over the binomial load of blocks | |
//! | [split blocks](blocked::split_blocks) | exact, over the binomial load of blocks | hash bits that the layout does not use; relevant below 10⁻⁸ |
//! | [`mod@cuckoo`] | computed from the mean load | the variation of the load between buckets: 10⁻⁴ of the rate for 8 bits, less for more |
//! | fuse and ribbon filters | a power of two | |
//!
//! All formulas assume random hash functions, and keys that were chosen without knowledge of the
//! hash. A 64-bit hash adds `n·2⁻⁶⁴` to every rate ([`hash_bits`]). The rates are averages over all
//! hash functions. A particular small filter may have a rate above or below the average.
//! [`Filter::expected_fpr`](super::Filter::expected_fpr) computes the rate of one filter from its
//! own bits.
//!
//! These formulas correct four errors that are common in tutorials. The formula `(1 - e^(-kn/m))^k`
//! gives too low a rate. The number of hash functions must be a whole number. Of the two whole
//! numbers next to the optimum, the nearer number is not always better. Rounding the size up to a
//! power of two costs up to twice the memory. A blocked filter that was sized by the classic
//! formula can have five times the requested rate.

pub mod blocked;
pub mod classic;
pub mod cuckoo;
mod math;
#[cfg(test)]
mod tests;

use math::ceil;
pub use math::{BuildError, MAX_HASH_FUNCS, hash_bits};
pub(super) use math::{check_hash, checked, distinct, float};

// The functions of this file expect a checked rate and at least one key, unless they check them.

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
pub fn exact_table(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    checked(fpr)?;
    let n = n.max(1);
    let bits = exact_table_bytes(n).saturating_mul(8);
    let rate = classic::hash_fpr(n, 64);
    if rate > fpr {
        return Err(BuildError::OutOfReach { fpr, layout: "exact-table", best: rate });
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
pub fn floor(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let n = n.max(1);
    let bits = float(n) * -libm::log2(checked(fpr)?);
    let cost = Cost::new(n, ceil(bits), fpr).lines(0.0).fixed();
    Ok(Cost { bits_per_key: bits / float(n), ..cost })
}

pub(crate) fn bloom(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let size = in_words(classic::size(n, fpr)?);
    Ok(Cost::of_places(n, size.num_bits, size, n))
}

pub(crate) fn partitioned(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let size = classic::slices(n, fpr)?;
    let cost = Cost::new(n, size.num_bits(), classic::slices_fpr(n, size));
    Ok(cost.probing(classic::slice_fill(n, size), size.hash_funcs).merging())
}

pub(crate) fn count_min(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let cost = partitioned(n, fpr)?;
    let num_bits = cost.num_bits.saturating_mul(32);
    Ok(Cost { num_bits, bits_per_key: float(num_bits) / float(n), ..cost })
}

pub(crate) fn counting(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let (blocks, hash_funcs) = blocked::size(blocked::MAX_COUNTERS_OF_KEY, n, fpr, COUNTERS)?;
    let rate = blocked::fpr(n, blocks, COUNTERS, hash_funcs);
    let bits = blocks.saturating_mul(u64::from(COUNTERS) * 4);
    let cost = Cost::new(n, bits, rate).merging();
    Ok(Cost { hash_funcs: Some(hash_funcs), removes: true, ..cost })
}

pub(crate) fn rolling(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let rolling = classic::rolling(n, fpr)?;
    let (num_bits, hash_funcs) = (rolling.num_places, rolling.hash_funcs);
    let held = rolling.per_generation * classic::GENERATIONS;
    let size = classic::Size { num_bits, hash_funcs };
    let cost = Cost::of_places(n, num_bits.saturating_mul(2), size, held);
    Ok(Cost { merges: false, ..cost })
}

pub(crate) fn compressed(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let (size, code) = classic::compressed_size(n, fpr)?;
    let cost = Cost::of_places(n, ceil(code), size, n);
    Ok(Cost { inserts: false, merges: false, ..cost })
}

pub(crate) fn ribbon(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let columns = ceil(-libm::log2(fpr)).max(1);
    let rate = |columns: u64| libm::exp2(-float(columns));
    if columns > 32 {
        return Err(BuildError::OutOfReach { fpr, layout: "ribbon", best: rate(32) });
    }
    let rows = ceil(float(n) * (1.0 + RIBBON_OVERHEAD)).saturating_add(RIBBON_WIDTH - 1);
    let bytes = float(RIBBON_WIDTH / 8 * columns);
    let cost = Cost::new(n, rows.saturating_mul(columns), rate(columns));
    Ok(Cost { is_upper_bound: true, ..cost.lines(1.0 + bytes / 64.0).fixed() })
}

pub(crate) fn split_block(n: u64, fpr: f64, word_bits: u32) -> Result<Cost, BuildError> {
    let blocks = blocked::split_blocks(n, fpr, word_bits)?;
    let rate = blocked::split_fpr(n, blocks, word_bits);
    let bits = blocks.saturating_mul(u64::from(word_bits) * 8);
    Ok(Cost { hash_funcs: Some(8), ..Cost::new(n, bits, rate) }.merging())
}

pub(crate) fn cuckoo(n: u64, fpr: f64, fingerprint_bits: u32) -> Result<Cost, BuildError> {
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
) -> Result<Cost, BuildError> {
    let best = libm::exp2(-f64::from(fingerprint_bits));
    if best > fpr {
        return Err(BuildError::OutOfReach { fpr, layout, best });
    }
    let bits = fuse_slots(n).saturating_mul(fingerprint_bits.into());
    Ok(Cost::new(n, bits, best).lines(3.0).fixed())
}

pub(crate) fn scalable(n: u64, fpr: f64) -> Result<Cost, BuildError> {
    let stages = classic::scalable(n, fpr, n / GROWN)?;
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

/// Returns the number of slots of a 3-wise binary fuse filter for `n` keys, as the code of its
/// authors computes it. Sets of about a million keys or more have 1.125 slots per key, and smaller
/// sets have more slots per key.
///
/// Construction fails with a certain probability even for distinct hashes, and is then repeated
/// with another seed. Near n = 11,500, 20 to 40 % of the attempts fail with these sizes
/// (found by users of `xor_singleheader`).
fn fuse_slots(n: u64) -> u64 {
    if n <= 1 {
        return if n == 0 { 0 } else { 3 * 4 };
    }
    let keys = float(n);
    let ln = libm::log(keys);
    let length = 1u64 << math::floor(ln / libm::log(3.33) + 2.25).min(18);
    let factor = (0.875 + 0.25 * libm::log(1e6) / ln).max(1.125);
    let capacity = math::floor(keys * factor + 0.5);
    let segments = capacity.div_ceil(length).saturating_sub(2).max(1);
    segments.saturating_add(2).saturating_mul(length)
}

/// Width of a row in a ribbon filter, in bits.
const RIBBON_WIDTH: u64 = 128;
/// Ratio of extra rows to keys in a ribbon filter. With this ratio, a single system of equations of
/// width [`RIBBON_WIDTH`] can be solved for up to about ten million keys.
const RIBBON_OVERHEAD: f64 = 0.05;

/// Returns the size in bytes of a hash table of 64-bit tags for `n` keys, in the layout of
/// `hashbrown`: the number of buckets is a power of two, at most seven eighths of the buckets are
/// filled, and each bucket has one control byte.
fn exact_table_bytes(n: u64) -> u64 {
    let buckets = match n {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        _ => (n.saturating_mul(8) / 7).checked_next_power_of_two().unwrap_or(1 << 63),
    };
    buckets.saturating_mul(9).saturating_add(16)
}
