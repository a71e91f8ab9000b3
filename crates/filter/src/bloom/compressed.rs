//! A classic Bloom filter, compressed for transmission, alone and together with its decompressed form.

use alloc::vec::Vec;
use core::marker::PhantomData;

use chainsieve_lanes::bits::bit_stream::{BitReader, BitWriter};
use chainsieve_lanes::bits::golomb_rice;

use super::positions::{Positions, word_and_bit};
use super::{BloomFilter, MAX_RANGE, check_set, positions_of};
use crate::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_if,
};
use crate::hashing::KeyHasher;
use crate::membership::Filter;
use crate::sizing::{BuildError, classic};
use crate::words::Words;

/// A classic Bloom filter in compressed form. The filter has to be decompressed
/// ([`open`](Self::open)) before it can be queried.
///
/// Source: Mitzenmacher 2002 ("Compressed Bloom filters"). A filter with the usual number of hash
/// functions is half full and can't be compressed. With fewer hash functions and more bits for the
/// same rate, the filter is sparse, and Golomb-Rice codes of the gaps between its set bits are
/// shorter. At 1 % the code with one hash function takes 8.1 bits per key, and a classic filter
/// takes 9.6. At 0.1 % the code with two hash functions takes 12.8 bits per key, and a classic
/// filter takes 14.4. After decompression, the filter takes 100 bits per key at 1 % and 62 at 0.1 %
/// ([`sizing::classic::compressed_size`](crate::sizing::classic::compressed_size)). Compression also
/// makes a filter of the usual shape smaller if it is far from full.
///
/// **When to use it.** To send a filter to a receiver that queries the filter and inserts more keys
/// into it.
///
/// **When not to use it, and what is better.** A Golomb-coded set (as in BIP158, 1.5 bits per key
/// above log2(1/p)) is equivalent to a compressed filter with one hash function, and needs no
/// memory to decompress. Binary fuse and ribbon filters are smaller at any rate, and are queried
/// without decompression.
///
/// # Examples
/// ```
/// use chainsieve_filter::sizing::classic;
/// use chainsieve_filter::bloom::{BloomFilter, CompressedBloomFilter};
/// use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};
///
/// // Two hash functions instead of ten, and four times the bits.
/// let (size, _) = classic::compressed_size(1_000, 0.001)?;
/// let mut filter = <BloomFilter>::with_bits(size.num_bits, size.hash_funcs, KeyHasher::xxh3(7))?;
/// (0..1_000u32).for_each(|key| drop(filter.insert(&key.to_le_bytes())));
/// let bytes = CompressedBloomFilter::of(&filter).encode()?;
/// assert!(bytes.len() < 1_700 && filter.num_bits() / 8 > 7_000);
///
/// // The receiver limits the memory of the decompressed filter, in bits.
/// let opened = CompressedBloomFilter::decode(&bytes)?.open(1 << 20)?;
/// assert_eq!(opened, filter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressedBloomFilter {
    positions: Positions<false>,
    hasher: KeyHasher,
    len: u64,
    num_set: u64,
    rice: u8,
    /// The code as whole 8-byte words, padded with zeros after the last code.
    code: Vec<u8>,
}

/// First bit of the field in the second parameter that contains the length of the code in words.
const CODE_WORDS_FROM: u32 = 16;

impl CompressedBloomFilter {
    /// Compresses a filter.
    pub fn of<S: AsRef<[u64]>>(filter: &BloomFilter<u64, S>) -> Self {
        let BloomFilter { positions, hasher, len, .. } = *filter;
        let num_set = filter.num_set();
        let density = classic::share(num_set, positions.num_bits());
        let rice = classic::rice_parameter(density);
        let mut writer = BitWriter::behind(Vec::new());
        let mut next = 0;
        for position in set_bits(filter.words.as_ref()) {
            golomb_rice::put(&mut writer, position - next, rice);
            next = position + 1;
        }
        let mut code = writer.finish();
        code.resize(code.len().next_multiple_of(8), 0);
        Self { positions, hasher, len, num_set, rice, code }
    }

    /// Decompresses the filter, if it has at most `max_bits` bits.
    ///
    /// The limit is needed because a few hostile bytes can be the code of a large, nearly empty
    /// filter.
    ///
    /// # Errors
    /// Returns an error if the filter has more than `max_bits` bits, or if there is no memory for
    /// the filter.
    pub fn open(&self, max_bits: u64) -> Result<BloomFilter, BuildError> {
        let num_bits = self.positions.num_bits();
        if num_bits > max_bits {
            let what = "a number of bits";
            return Err(BuildError::Parameter { what, value: num_bits, min: 1, max: max_bits });
        }
        let mut words = Words::zeroed(num_bits.div_ceil(64))?;
        let set = words.as_mut();
        for position in self.codes() {
            let (word, bit) = word_and_bit(position);
            if let Some(word) = set.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        let Self { positions, hasher, len, .. } = *self;
        Ok(BloomFilter { words, positions, hasher, len, hash: PhantomData })
    }

    /// Returns the number of bits of the decompressed filter.
    pub fn num_bits(&self) -> u64 {
        self.positions.num_bits()
    }

    /// Returns the number of bits of the code.
    pub fn coded_bits(&self) -> u64 {
        self.code.len() as u64 * 8
    }

    /// Decodes the positions of the bits that are set. The iterator stops early if the code ends
    /// early.
    fn codes(&self) -> impl Iterator<Item = u64> {
        let mut reader = BitReader::at(&self.code, 0);
        let mut next = 0u64;
        (0..self.num_set).map_while(move |_| {
            let position = next.saturating_add(golomb_rice::take(&mut reader, self.rice.into())?);
            next = position.saturating_add(1);
            Some(position)
        })
    }

    /// Checks that the code contains exactly `num_set` positions within the filter, and has neither
    /// excess words nor padding bits that are set. So every filter has only one valid code for a
    /// given Rice parameter.
    fn check(&self) -> Result<(), DecodeError> {
        let (mut count, mut bits, mut next) = (0, 0u64, 0);
        for position in self.codes() {
            let is_wrong = position >= self.num_bits();
            refuse_if(is_wrong, "a position", position, "below the number of bits")?;
            bits = bits.saturating_add(golomb_rice::code_bits(position - next, self.rice));
            (count, next) = (count + 1, position + 1);
        }
        let limit = "the number of bits in the code";
        refuse_if(count < self.num_set, "the number of bits that are set", self.num_set, limit)?;
        let is_wrong = bits.div_ceil(64) != self.code.len() as u64 / 8;
        refuse_if(is_wrong, "the code's length", self.coded_bits(), "as long as its codes")?;
        let last = self.code.last_chunk().map_or(0, |last| u64::from_be_bytes(*last));
        let over = bits % 64;
        if over != 0 && last.unbounded_shl(u32::try_from(over).unwrap_or(64)) != 0 {
            return Err(DecodeError::NotZero("bits after the last code"));
        }
        Ok(())
    }
}

/// Returns the positions of the bits that are set, in ascending order.
fn set_bits(words: &[u64]) -> impl Iterator<Item = u64> {
    (0u64..).zip(words).flat_map(|(at, word)| {
        let mut left = *word;
        core::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(at * 64 + u64::from(bit))
        })
    })
}

impl Portable for CompressedBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        // The shift loses no bits: the filter has at most 2⁵⁶ bits, so its code is shorter than 2⁵¹
        // bytes.
        let code_words = (self.code.len() / 8) as u64;
        let shape = u64::from(self.positions.hash_funcs)
            | u64::from(self.rice) << 8
            | code_words << CODE_WORDS_FROM;
        let params = [self.positions.range, shape, self.num_set];
        let words: Vec<u64> =
            self.code.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (hasher, len) = (self.hasher, self.len);
        Header { kind: Kind::Compressed, hasher, len, params }.encode(&[&words])
    }

    /// Decodes a compressed filter without decompressing it. The whole code is checked, and only
    /// the memory of the code is allocated.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let read = |header: &Header| {
            let [range, shape, num_set] = header.params;
            let (hash_funcs, rice) = (shape & 0xff, shape >> 8 & 0xff);
            let positions = positions_of::<false>([range, hash_funcs, 0])?;
            let wrong = parameter("the Rice parameter", rice, "from 0 to 32");
            let rice = u8::try_from(rice).ok().filter(|rice| *rice <= 32).ok_or(wrong)?;
            if num_set > range.min(MAX_RANGE) {
                return Err(parameter(
                    "the number of bits that are set",
                    num_set,
                    "at most the number of bits",
                ));
            }
            check_set(num_set, positions, header.len)?;
            Ok((positions, rice, num_set))
        };
        let opened = Opened::read(bytes, Kind::Compressed, |header| {
            read(header)?;
            let [_, shape, _] = header.params;
            Ok(shape >> CODE_WORDS_FROM)
        })?;
        let (positions, rice, num_set) = read(&opened.header)?;
        let Header { hasher, len, .. } = opened.header;
        let code = opened.body.to_vec();
        let filter = Self { positions, hasher, len, num_set, rice, code };
        filter.check()?;
        Ok(filter)
    }
}

/// A [`CompressedBloomFilter`] together with its decompressed filter, which answers the queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedBloomFilter {
    coded: CompressedBloomFilter,
    opened: BloomFilter,
}

impl OpenedBloomFilter {
    /// Greatest number of filter bits for each bit of the code. Filters sized for compression have
    /// fewer than 25 bits for each bit of the code. A filter that exceeds this limit has to be
    /// decompressed by [`CompressedBloomFilter::open`], with an explicit limit.
    pub const MAX_EXPANSION: u64 = 64;

    /// Decompresses a filter.
    ///
    /// # Errors
    /// Returns an error if the decompressed filter has more than
    /// [`MAX_EXPANSION`](Self::MAX_EXPANSION) times the bits of the code and more than 64 kB, or if
    /// there is no memory for the filter.
    pub fn of(coded: CompressedBloomFilter) -> Result<Self, BuildError> {
        let max_bits = coded.coded_bits().saturating_mul(Self::MAX_EXPANSION).max(1 << 19);
        Ok(Self { opened: coded.open(max_bits)?, coded })
    }

    /// Returns the compressed filter.
    pub const fn coded(&self) -> &CompressedBloomFilter {
        &self.coded
    }

    /// Returns the decompressed filter.
    pub const fn opened(&self) -> &BloomFilter {
        &self.opened
    }
}

impl Portable for OpenedBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.coded.encode()
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let coded = CompressedBloomFilter::decode(bytes)?;
        let num_bits = coded.num_bits();
        Self::of(coded).map_err(|error| {
            if let BuildError::NoMemory(no_memory) = error {
                return no_memory.into();
            }
            let limit = "at most 64 for each bit of the code";
            parameter("the number of bits that the code expands to", num_bits, limit)
        })
    }
}

impl Filter for OpenedBloomFilter {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        self.opened.hasher()
    }

    fn contains_hash(&self, hash: u64) -> bool {
        self.opened.contains_hash(hash)
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        self.opened.contains_batch(hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.opened.len()
    }

    fn num_bits(&self) -> u64 {
        self.opened.num_bits()
    }

    fn fill(&self) -> f64 {
        self.opened.fill()
    }

    fn expected_fpr(&self) -> f64 {
        self.opened.expected_fpr()
    }

    fn estimated_len(&self) -> Option<f64> {
        self.opened.estimated_len()
    }
}
