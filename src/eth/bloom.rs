//! The Bloom filter of logs in every receipt and header: 2048 bits, three for each value.
//!
//! A value is the address of a log (20 bytes) or one of its topics (32 bytes). The filter contains
//! neither the data of a log nor the position of a topic. The filter is a big-endian number of
//! 2048 bits: bit `b` is bit `b % 8` of byte `255 - b / 8`.
//!
//! Two kinds of bytes must never be mixed up. The bytes *of a filter* are received from a node and
//! are wrapped in a [`BloomView`]. The bytes *of a value* are hashed by [`positions`]. No
//! conversion in this module computes a hash.
//!
//! Functions over `&[u8; 256]` also accept `&alloy_primitives::Bloom`, which dereferences to
//! `&[u8; 256]`. Functions over many filters accept [`Blooms`].
//!
//! Source: Yellow Paper, section 4.3.1 (M3:2048).

#![expect(clippy::cast_precision_loss, reason = "rounding does not matter in shares and estimates")]

use alloc::vec::Vec;

use alloy_primitives::{B256, Bloom, FixedBytesSliceExt as _, LogData};
use chainsieve_lanes::hash::{keccak256, keccak256_each};
use chainsieve_lanes::names;
use chainsieve_lanes::simd::Backend;
use serde::de::{Deserialize as _, Deserializer, Error as _};

/// Length of a filter in bytes.
pub const BYTES: usize = 256;

/// Length of a filter in bits.
pub const BITS: usize = 2048;

/// Hashes a value (an address of 20 bytes or a topic of 32 bytes) and returns its three bit positions, each
/// 0 to 2047, numbered as in the Yellow Paper. Two or all three positions may be equal.
///
/// The positions are the first three pairs of bytes of the Keccak-256 hash, each a big-endian
/// number modulo 2048 (Yellow Paper, section 4.3.1, M3:2048).
///
/// An address that is an indexed argument of an event is a topic: pad the address to 32 bytes first
/// ([`Address::into_word`](alloy_primitives::Address::into_word)).
#[inline]
pub fn positions(value: &[u8]) -> [u16; 3] {
    positions_of_hash(&B256::new(keccak256(value)))
}

/// Returns the bit positions of each value, in the order of `values`, hashed several at a time.
pub fn positions_of_each(values: &[&[u8]]) -> Vec<[u16; 3]> {
    positions_of_each_on(Backend::best(), values)
}

/// Does the same as [`positions_of_each`], on the given backend.
pub fn positions_of_each_on(backend: Backend, values: &[&[u8]]) -> Vec<[u16; 3]> {
    let hashes = keccak256_each(backend, values);
    hashes.into_iter().map(|hash| positions_of_hash(&B256::new(hash))).collect()
}

/// Returns the bit positions of a value whose Keccak-256 hash is already known.
///
/// The positions are bytes 0 and 1, 2 and 3, and 4 and 5 of the hash, each a big-endian number
/// modulo 2048.
#[inline]
pub fn positions_of_hash(hash: &B256) -> [u16; 3] {
    let pair = |at: usize| u16::from_be_bytes([hash[at], hash[at + 1]]) & 0x7ff;
    [pair(0), pair(2), pair(4)]
}

/// Returns the offset of the byte that contains a bit position, and the mask of the bit.
#[inline]
pub(crate) const fn byte_and_mask(position: u16) -> (usize, u8) {
    let position = position & 0x7ff;
    (BYTES - 1 - (position >> 3) as usize, 1 << (position & 7))
}

/// Result of testing a filter for a value or a query.
///
/// `serde` and `Display` write the [name](Self::name), for example `no_information`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum BloomAnswer {
    /// There is no match in the block. This answer is a proof if the header is authentic and its
    /// filter is sound.
    No,
    /// There may be a match in the block: all bits of the value are set, possibly by other values.
    Maybe,
    /// The filter carries no information: all its bits are set, or its length is not 256 bytes.
    NoInformation,
}

names! {
    BloomAnswer, "an answer of a filter": No = "no", Maybe = "maybe", NoInformation = "no_information",
}

impl BloomAnswer {
    /// Returns `true` if the block's receipts must be checked: any answer except [`No`](Self::No).
    pub const fn is_candidate(self) -> bool {
        !matches!(self, Self::No)
    }
}

/// A borrowed filter as received, of any length.
///
/// Headers of some chains have no filter, or a filter that is not 256 bytes long. Later forks of
/// Ethereum may do the same. A filter whose length is not 256 bytes is accepted and carries no
/// information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomView<'a> {
    bits: Option<&'a [u8; BYTES]>,
}

impl<'a> BloomView<'a> {
    /// Wraps the bytes of a filter as received. The bytes are not hashed.
    #[inline]
    pub fn from_wire(bytes: &'a [u8]) -> Self {
        Self { bits: bytes.try_into().ok() }
    }

    /// Returns the 256 bytes of the filter, or `None` if its length is not 256 bytes.
    ///
    /// This function also returns a filter with all bits set; [`informative`](Self::informative)
    /// returns `None` for it.
    #[inline]
    pub const fn bytes(self) -> Option<&'a [u8; BYTES]> {
        self.bits
    }

    /// Returns the filter's bytes if the filter can rule out any value.
    ///
    /// Returns `None` if the length is not 256 bytes or all bits are set.
    #[inline]
    pub fn informative(self) -> Option<&'a [u8; BYTES]> {
        self.bits.filter(|bits| bits.iter().any(|&byte| byte != u8::MAX))
    }

    /// Tests if a value with these bit positions may be in the block.
    #[inline]
    pub fn answer(self, value: &[u16; 3]) -> BloomAnswer {
        match self.informative() {
            None => BloomAnswer::NoInformation,
            Some(bits) if contains(bits, value) => BloomAnswer::Maybe,
            Some(_) => BloomAnswer::No,
        }
    }

    /// Returns the number of set bits, or `None` if the length is not 256 bytes.
    pub fn count_ones(self) -> Option<u32> {
        self.bits.map(count_ones)
    }
}

impl<'a> From<&'a [u8; BYTES]> for BloomView<'a> {
    fn from(bits: &'a [u8; BYTES]) -> Self {
        Self { bits: Some(bits) }
    }
}

impl<'a> From<&'a Bloom> for BloomView<'a> {
    fn from(bloom: &'a Bloom) -> Self {
        Self { bits: Some(bloom) }
    }
}

/// Contiguous filters in memory: slices, arrays and vectors of [`Bloom`] or of `[u8; 256]`.
///
/// # Examples
/// ```
/// use chainsieve::alloy_primitives::Bloom;
/// use chainsieve::eth::bloom::Blooms;
///
/// let blooms = vec![Bloom::ZERO, Bloom::repeat_byte(0xff)];
/// assert_eq!(blooms.as_arrays(), [[0; 256], [0xff; 256]]);
/// assert_eq!(blooms[1..].as_arrays(), [[0xff; 256]]);
/// ```
pub trait Blooms {
    /// Returns the same filters as arrays of bytes.
    ///
    /// # Cost
    /// Nothing is copied.
    fn as_arrays(&self) -> &[[u8; BYTES]];
}

impl Blooms for [[u8; BYTES]] {
    fn as_arrays(&self) -> &[[u8; BYTES]] {
        self
    }
}

impl Blooms for [Bloom] {
    fn as_arrays(&self) -> &[[u8; BYTES]] {
        let (arrays, _) = self.as_flattened().as_chunks();
        arrays
    }
}

impl<T, const N: usize> Blooms for [T; N]
where
    [T]: Blooms,
{
    fn as_arrays(&self) -> &[[u8; BYTES]] {
        self.as_slice().as_arrays()
    }
}

impl<T> Blooms for Vec<T>
where
    [T]: Blooms,
{
    fn as_arrays(&self) -> &[[u8; BYTES]] {
        self.as_slice().as_arrays()
    }
}

/// Returns `true` if all bits of a value are set: the value may be in the block.
#[inline]
pub fn contains(bloom: &[u8; BYTES], value: &[u16; 3]) -> bool {
    value.iter().all(|&position| {
        let (byte, mask) = byte_and_mask(position);
        bloom[byte] & mask != 0
    })
}

/// Returns `true` if every bit that is set in `other` is also set in `bloom`.
///
/// The filter of a sound header covers the filter of each receipt of its block.
pub fn covers(bloom: &[u8; BYTES], other: &[u8; BYTES]) -> bool {
    bloom.iter().zip(other).fold(0, |missing, (have, want)| missing | (want & !have)) == 0
}

/// Sets the bits of a value whose positions are known.
#[inline]
pub fn accrue(bloom: &mut [u8; BYTES], value: &[u16; 3]) {
    for &position in value {
        let (byte, mask) = byte_and_mask(position);
        bloom[byte] |= mask;
    }
}

/// Hashes a value (an address of 20 bytes or a topic of 32) and sets its bits.
pub fn accrue_value(bloom: &mut [u8; BYTES], value: &[u8]) {
    accrue(bloom, &positions(value));
}

/// Sets the bits of a log's address and of each of its topics.
pub fn accrue_log(bloom: &mut [u8; BYTES], log: &alloy_primitives::Log) {
    accrue_value(bloom, log.address.as_slice());
    accrue_topics(bloom, &log.data);
}

fn accrue_topics(bloom: &mut [u8; BYTES], data: &LogData) {
    for topic in data.topics() {
        accrue_value(bloom, topic.as_slice());
    }
}

/// Sets the bits of every given log, for example of all logs of a receipt.
pub fn accrue_logs<'a>(
    bloom: &mut [u8; BYTES],
    logs: impl IntoIterator<Item = &'a alloy_primitives::Log>,
) {
    logs.into_iter().for_each(|log| accrue_log(bloom, log));
}

/// Sets every bit that is set in `other`, for example in the filter of a receipt.
pub fn accrue_bloom(bloom: &mut [u8; BYTES], other: &[u8; BYTES]) {
    for (byte, other) in bloom.iter_mut().zip(other) {
        *byte |= other;
    }
}

/// Returns the number of set bits.
pub fn count_ones(bloom: &[u8; BYTES]) -> u32 {
    let (words, _) = bloom.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum()
}

/// Estimates the number of distinct values in a filter from its number of set bits.
///
/// Returns infinity if all 2048 bits are set. For nine mainnet blocks the estimate was within
/// 2.7 % of the true number.
///
/// Source: n = −(m/k)·ln(1 − X/m) (Swamidass and Baldi 2007), with m = 2048 and k = 3.
pub fn estimated_values(ones: u32) -> f64 {
    let clear = 1.0 - f64::from(ones) / 2048.0;
    if clear <= 0.0 { f64::INFINITY } else { 0.0 - 2048.0 / 3.0 * libm::log(clear) }
}

/// Number of filters for each number of set bits.
///
/// The false-positive rate must be computed block by block: fills vary so much that the mean fill
/// does not predict the rate. With this histogram the sum over all blocks becomes a sum over at
/// most 2,049 distinct fills.
///
/// `serde` writes the list of the 2,049 counts, from 0 set bits to 2048. A list of another length is
/// rejected.
///
/// # Cost
/// The histogram uses 16 kB of memory for any number of filters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct FillHistogram {
    /// Number of filters; the index is the number of set bits, 0 to 2048.
    #[serde(deserialize_with = "of_each_count")]
    filters: Vec<u64>,
}

/// Reads one count for each number of set bits.
fn of_each_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let filters = Vec::deserialize(deserializer)?;
    if filters.len() == BITS + 1 {
        return Ok(filters);
    }
    let found = filters.len();
    Err(D::Error::custom(format_args!("a histogram of {found} counts, expected 2049")))
}

impl Default for FillHistogram {
    fn default() -> Self {
        Self { filters: alloc::vec![0; BITS + 1] }
    }
}

impl FillHistogram {
    /// Adds filters to the histogram.
    ///
    /// A filter whose length is not 256 bytes is recorded as a filter with all bits set, because
    /// neither of the two filters carries information.
    pub fn add<'a>(&mut self, blooms: impl IntoIterator<Item: Into<BloomView<'a>>>) {
        for bloom in blooms {
            let ones = bloom.into().count_ones();
            self.filters[ones.map_or(BITS, |ones| ones as usize)] += 1;
        }
    }

    /// Adds the counts of another histogram to this histogram.
    pub fn merge(&mut self, other: &Self) {
        for (filters, others) in self.filters.iter_mut().zip(&other.filters) {
            *filters += others;
        }
    }

    /// Adds `filters` filters with `ones` set bits each.
    #[cfg(feature = "std")]
    pub(super) fn add_count(&mut self, ones: usize, filters: u64) {
        self.filters[ones] += filters;
    }

    /// Returns the number of filters in the histogram.
    pub fn filters(&self) -> u64 {
        self.filters.iter().sum()
    }

    /// Returns the number of filters that carry no information: all their bits are set.
    pub fn uninformative(&self) -> u64 {
        self.filters[BITS]
    }

    /// Returns the number of filters without any set bit: the filters of blocks without logs.
    pub fn empty(&self) -> u64 {
        self.filters[0]
    }

    /// Returns the mean share of set bits, 0 to 1, or 0 if the histogram is empty.
    pub fn mean_fill(&self) -> f64 {
        self.mean(|ones| f64::from(ones) / 2048.0)
    }

    /// Returns the quantile of the fill at `share`; for example, a `share` of 0.5 gives the median.
    ///
    /// The result is a fill, 0 to 1: the lowest fill for which at least `share` of all filters have
    /// this fill or a lower fill. `share` is clamped to 0 to 1. Returns 0 if the histogram is
    /// empty.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = libm::ceil(share.clamp(0.0, 1.0) * self.filters() as f64).max(1.0);
        let mut counted = 0;
        for (ones, filters) in self.fills() {
            counted += filters;
            if counted as f64 >= rank {
                return f64::from(ones) / 2048.0;
            }
        }
        0.0
    }

    /// Estimates the number of distinct values per filter and returns the sum over all filters.
    ///
    /// Filters with all bits set are left out. A value that occurs in two filters is counted twice.
    pub fn estimated_values(&self) -> f64 {
        let informative = self.fills().filter(|&(ones, _)| estimated_values(ones).is_finite());
        informative.map(|(ones, filters)| estimated_values(ones) * filters as f64).sum()
    }

    /// Returns the expected share of filters, 0 to 1, in which `bits` given bits are set by chance.
    ///
    /// The share is the false-positive rate of a query for one value (3 bits), for two values (6
    /// bits) or for three values (9 bits). The calculation assumes that a block's set bits are
    /// spread evenly, which is true for Keccak.
    pub fn false_positive_rate(&self, bits: u32) -> f64 {
        self.mean(|ones| libm::pow(f64::from(ones) / 2048.0, f64::from(bits)))
    }

    /// Calls `of` with the number of set bits of each filter, and returns the sum of the results.
    pub(crate) fn sum(&self, of: impl Fn(u32) -> f64) -> f64 {
        self.fills().map(|(ones, filters)| of(ones) * filters as f64).sum()
    }

    fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        match self.filters() {
            0 => 0.0,
            filters => self.sum(of) / filters as f64,
        }
    }

    /// Returns each number of set bits that occurs, and the number of filters with that many set
    /// bits.
    pub(super) fn fills(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(&self.filters).filter(|&(_, &filters)| filters > 0).map(|(ones, &n)| (ones, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{Address, BloomInput, address, b256, bloom};

    /// The test vector of parity's ethbloom and of alloy: one address and one topic.
    #[test]
    fn the_published_filter() {
        let expected = bloom!(
            "00000000000000000000000000000000
             00000000100000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000002020000000000000000000000
             00000000000000000000000800000000
             10000000000000000000000000000000
             00000000000000000000001000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000
             00000000000000000000000000000000"
        );
        let address = address!("ef2d6d194084c2de36e0dabfce45d046b37d1106");
        let topic = b256!("02c69be41d0b7e40352fc85be1cd65eb03d40ef8427a0ca4596b1ead9a00e9fc");
        let mut bloom = Bloom::ZERO;
        accrue_value(&mut bloom, address.as_slice());
        assert_eq!(BloomView::from(&bloom).answer(&positions(topic.as_slice())), BloomAnswer::No);
        accrue_value(&mut bloom, topic.as_slice());
        assert_eq!(bloom, expected);
        assert_eq!(
            BloomView::from(&expected).answer(&positions(topic.as_slice())),
            BloomAnswer::Maybe
        );
    }

    /// Two values whose bit positions were computed by hand from their hashes.
    #[test]
    fn positions_of_known_values() {
        let transfer = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
        assert_eq!(positions(transfer.as_slice()), [1443, 481, 1060]);
        let emitter = address!("fffffffffffffffffffffffffffffffffffffffe");
        assert_eq!(positions(emitter.as_slice()), [1213, 435, 262]);
        let each = positions_of_each(&[transfer.as_slice(), emitter.as_slice()]);
        assert_eq!(each, [[1443, 481, 1060], [1213, 435, 262]]);
    }

    #[test]
    fn every_position_is_the_bit_that_alloy_sets() {
        for seed in 0..3_000_u32 {
            let value = Address::from_word(B256::new(keccak256(&seed.to_be_bytes())));
            let mut ours = [0; BYTES];
            accrue_value(&mut ours, value.as_slice());
            let alloy = Bloom::from(BloomInput::Raw(value.as_slice()));
            assert_eq!(ours, **alloy, "{value}");
            assert!(count_ones(&ours) <= 3);
        }
    }

    #[test]
    fn bytes_that_say_nothing_are_no_answer() {
        let value = positions(b"anything");
        for length in [0, 1, 32, 255, 257, 512] {
            let bytes = alloc::vec![0; length];
            let view = BloomView::from_wire(&bytes);
            assert_eq!(
                (view.answer(&value), view.count_ones()),
                (BloomAnswer::NoInformation, None)
            );
        }
        let full = [u8::MAX; BYTES];
        assert_eq!(BloomView::from(&full).answer(&value), BloomAnswer::NoInformation);
        assert_eq!(BloomView::from_wire(&full).count_ones(), Some(2048));
        let mut one_clear = full;
        one_clear[255] = 0xfe;
        assert_eq!(BloomView::from(&one_clear).answer(&[1, 2, 3]), BloomAnswer::Maybe);
        assert_eq!(BloomView::from(&one_clear).answer(&[1, 0, 3]), BloomAnswer::No);
        assert_eq!(BloomView::from(&[0; BYTES]).answer(&value), BloomAnswer::No);
    }

    #[test]
    fn filters_are_arrays_in_place() {
        let blooms: [Bloom; 3] = [1, 2, 3].map(Bloom::repeat_byte);
        for given in [blooms.as_arrays(), blooms[..].as_arrays(), blooms.to_vec().as_arrays()] {
            assert_eq!(given, [[1; BYTES], [2; BYTES], [3; BYTES]]);
        }
        assert_eq!(blooms.as_arrays().as_ptr().addr(), blooms.as_ptr().addr());
        assert!(blooms[..0].as_arrays().is_empty());
    }

    #[test]
    fn a_filter_covers_its_parts() {
        let (mut a, mut b) = ([0; BYTES], [0; BYTES]);
        accrue_value(&mut a, b"a");
        accrue_value(&mut b, b"b");
        let mut both = a;
        accrue_bloom(&mut both, &b);
        assert!(covers(&both, &a) && covers(&both, &b) && covers(&a, &[0; BYTES]));
        assert!(!covers(&a, &both) && !covers(&a, &b));
    }

    /// Four mainnet blocks: their set bits and their number of distinct addresses and topics.
    #[test]
    fn the_estimate_is_near_the_count() {
        for (ones, distinct) in [(1077, 510), (849, 358), (1631, 1083), (775, 323)] {
            let estimate = estimated_values(ones) / f64::from(distinct);
            assert!((0.97..1.03).contains(&estimate), "{ones}: {estimate}");
        }
        assert_eq!(estimated_values(0).total_cmp(&0.0), core::cmp::Ordering::Equal);
        assert!(estimated_values(2048).is_infinite());
    }
}
