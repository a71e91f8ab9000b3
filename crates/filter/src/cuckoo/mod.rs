//! Cuckoo filters, which support removal.

mod table;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, refuse_if, refuse_nonzero, within,
};
use super::hashing::KeyHasher;
use super::membership::{Filter, Full, Insert, Merge, MergeError, NotContained, Remove};
use super::sizing::{BuildError, cuckoo};
use super::words::Words;
use table::{Entry, MAX_BUCKETS, SLOTS, Table, load, prefetch, words_for};

/// Number of hashes in a batch whose memory is prefetched before the first of them is tested.
const CHUNK: usize = 32;

/// A cuckoo filter: a set that supports removal (Fan, Andersen, Kaminsky and Mitzenmacher 2014).
///
/// The filter stores a fingerprint of 8, 12 or 16 bits for each key, in buckets of four slots. Each
/// key has two buckets, and its fingerprint is in one of them.
///
/// | | 8 bits | 12 bits | 16 bits |
/// |---|---|---|---|
/// | false-positive rate at a load of 94 % | 2.93 % | 0.184 % | 0.0115 % |
/// | bits per key | 8.51 | 12.77 | 17.02 |
///
/// A query reads two cache lines, whether or not the key is in the set. In a batch query these
/// cache lines are prefetched. An insertion writes one cache line at low loads, and two to four
/// more near a load of 94 %.
///
/// `true` means that one of the two buckets contains a key with the same fingerprint. `false` is
/// certain, provided that only keys in the filter were ever removed. Removing a key that is not in
/// the filter removes the fingerprint of another key, and no filter can detect that ([`Remove`]).
///
/// **When to use it.** For a set that grows and shrinks. The cuckoo filter is the smallest filter
/// of this crate that supports removal. With 12 and 16 bits it is smaller than any Bloom filter of
/// the same rate.
///
/// **When not to use it.** For a set that never shrinks, at rates of 0.1 % and above, use a
/// split-block Bloom filter: in such a filter, insertion is several times as fast, a query reads
/// one cache line, and there is no hard limit. For a set that never changes, binary fuse and ribbon
/// filters take less memory at the same rate. For fewer than about 100,000 keys, an exact table
/// takes little more memory than a filter.
///
/// This implementation differs from most others in several ways:
///
/// - The number of buckets is arbitrary. The other bucket of a fingerprint is `(H(fingerprint) −
///   bucket) mod buckets`, and the same formula leads from the other bucket back to the first. The
///   exclusive or of the paper needs a power of two as the number of buckets. Rounding up to a
///   power of two can leave half of the memory empty.
/// - A failed insertion changes nothing: fingerprints are moved only once it is certain that the
///   moves end in a free slot. Some packages drop the key that was moved last, and no longer find
///   it.
/// - Fingerprints are the numbers 1 to 2ᶠ − 1, where `f` is their width. The probabilities of these
///   numbers differ by at most one part in 2³²⁻ᶠ.
/// - The bucket and the fingerprint depend on different halves of the hash, and there are at most
///   2³² buckets.
/// - "Cuckoo filters can be filled to a load of 95 %" is true on average and for large filters.
///   This filter reaches about 97 % on average, and reliably reaches 94 %.
/// - During the moves of an insertion, a concurrent reader could miss a key that is in the set. In
///   this crate, the borrow checker makes such a concurrent reader impossible. A program that
///   shares a filter by means of locks must lock the whole filter.
///
/// # Examples
/// ```
/// use chainsieve_filter::cuckoo::CuckooFilter16;
/// use chainsieve_filter::{Filter, Insert, KeyHasher, Remove};
///
/// let mut filter = CuckooFilter16::with_capacity(1_000, KeyHasher::xxh3(7))?;
/// filter.insert(b"a key")?;
/// assert!(filter.contains(b"a key"));
/// // Only a caller that knows that the key is in the filter may remove it.
/// filter.remove_known_key(b"a key")?;
/// assert!(!filter.contains(b"a key"));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CuckooFilter<const BITS: u32, S = Words> {
    words: S,
    buckets: u64,
    len: u64,
    hasher: KeyHasher,
}

/// Cuckoo filter with 8-bit fingerprints: a rate of 2.9 % at 8.5 bits per key.
pub type CuckooFilter8<S = Words> = CuckooFilter<8, S>;
/// Cuckoo filter with 12-bit fingerprints: a rate of 0.18 % at 12.8 bits per key.
pub type CuckooFilter12<S = Words> = CuckooFilter<12, S>;
/// Cuckoo filter with 16-bit fingerprints: a rate of 0.0115 % at 17.0 bits per key.
pub type CuckooFilter16<S = Words> = CuckooFilter<16, S>;

/// A [`CuckooFilter8`] that queries encoded bytes in place, without owning them.
pub type CuckooFilter8Ref<'a> = CuckooFilter8<&'a [u64]>;
/// A [`CuckooFilter12`] that queries encoded bytes in place, without owning them.
pub type CuckooFilter12Ref<'a> = CuckooFilter12<&'a [u64]>;
/// A [`CuckooFilter16`] that queries encoded bytes in place, without owning them.
pub type CuckooFilter16Ref<'a> = CuckooFilter16<&'a [u64]>;

impl<const BITS: u32> CuckooFilter<BITS> {
    /// Rejects widths other than 8, 12 and 16 bits at compile time: no other widths have a layout.
    const IS_KNOWN: () = assert!(BITS == 8 || BITS == 12 || BITS == 16, "8, 12 or 16 bits");

    /// Creates an empty filter for `capacity` keys. The load of the filter with all keys is 94 %,
    /// or somewhat less for fewer than a thousand keys.
    ///
    /// The probability that a set of keys does not fit into its filter is below one in a million.
    /// If a set does not fit, insertion returns [`Full`].
    ///
    /// # Errors
    /// Returns an error if the filter would need more than 2³² buckets, or if there is no memory
    /// for the filter.
    pub fn with_capacity(capacity: u64, hasher: KeyHasher) -> Result<Self, BuildError> {
        Self::with_buckets(cuckoo::buckets_for(capacity), hasher)
    }

    /// Creates an empty filter for `capacity` keys with a rate of at most `fpr`.
    ///
    /// The rates at a load of 94 % are 2.9 %, 0.18 % and 0.0115 %. If `fpr` is below the rate at 94
    /// %, the filter gets more buckets than [`with_capacity`](Self::with_capacity) creates. The
    /// memory of the filter grows as the rate falls, so the next wider fingerprint is usually the
    /// better choice.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, if the rate would need a load below a
    /// quarter, if the filter would need more than 2³² buckets, or if there is no memory for the
    /// filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let buckets = cuckoo::num_buckets(capacity, fpr, BITS)?;
        Self::with_buckets(buckets.max(cuckoo::buckets_for(capacity)), hasher)
    }

    /// Creates an empty filter with the given number of buckets, each of four slots.
    ///
    /// # Errors
    /// Returns an error if `buckets` is not from 1 to 2³², or if there is no memory for the filter.
    pub fn with_buckets(buckets: u64, hasher: KeyHasher) -> Result<Self, BuildError> {
        const { Self::IS_KNOWN };
        BuildError::unless_within("a number of buckets", buckets, MAX_BUCKETS)?;
        let words = Words::zeroed(words_for::<BITS>(buckets))?;
        Ok(Self { words, buckets, len: 0, hasher })
    }

    fn table(&mut self) -> Table<'_, BITS> {
        Table { words: self.words.as_mut(), buckets: self.buckets }
    }
}

impl<const BITS: u32, S> CuckooFilter<BITS, S> {
    /// The kind of filters with this width of fingerprints.
    const KIND: Kind = match BITS {
        8 => Kind::Cuckoo8,
        12 => Kind::Cuckoo12,
        _ => Kind::Cuckoo16,
    };
}

impl<const BITS: u32, S: AsRef<[u64]>> CuckooFilter<BITS, S> {
    /// Returns the number of buckets.
    pub fn num_buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the number of slots: four per bucket.
    pub fn num_slots(&self) -> u64 {
        self.buckets * u64::from(SLOTS)
    }

    /// Returns the number of keys that fit reliably: the greatest capacity for which
    /// [`with_capacity`](CuckooFilter::with_capacity) would create a filter of this size.
    pub fn capacity(&self) -> u64 {
        cuckoo::capacity_of(self.buckets)
    }

    #[inline(always)]
    fn entry(&self, hash: u64) -> Entry {
        Entry::of::<BITS>(hash, self.buckets)
    }

    /// Returns the fingerprint and the buckets of every occupied slot.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let words = self.words.as_ref();
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^32 buckets")]
        let slots = (0..self.buckets).flat_map(|at| (0..SLOTS).map(move |slot| (at as u32, slot)));
        let stored = slots.map(|(at, slot)| (at, load::<BITS>(words, at).get(slot)));
        stored
            .filter(|(_, fingerprint)| *fingerprint != 0)
            .map(|(at, fingerprint)| Entry::in_bucket(at, fingerprint, self.buckets))
    }

    /// Prefetches the memory that a query for this hash reads. Watch sets use this method.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let Entry { first, second, .. } = self.entry(hash);
        prefetch::<BITS>(self.words.as_ref(), first);
        prefetch::<BITS>(self.words.as_ref(), second);
    }
}

/// Returns `true` if the fingerprint is in one of its two buckets.
#[inline(always)]
fn may_hold<const BITS: u32>(words: &[u64], entry: Entry) -> bool {
    let (first, second) = (load::<BITS>(words, entry.first), load(words, entry.second));
    first.either_has(second, entry.fingerprint)
}

impl<const BITS: u32, S: AsRef<[u64]>> Filter for CuckooFilter<BITS, S> {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        may_hold::<BITS>(self.words.as_ref(), self.entry(hash))
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        let words = self.words.as_ref();
        let mut entries = [Entry::default(); CHUNK];
        for (hashes, answers) in hashes.chunks(CHUNK).zip(may_contain.chunks_mut(CHUNK)) {
            for (entry, hash) in entries.iter_mut().zip(hashes) {
                *entry = self.entry(*hash);
                prefetch::<BITS>(words, entry.first);
                prefetch::<BITS>(words, entry.second);
            }
            for (answer, entry) in answers.iter_mut().zip(entries) {
                *answer = may_hold::<BITS>(words, entry);
            }
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        words_for::<BITS>(self.buckets) * 64
    }

    #[expect(clippy::cast_precision_loss, reason = "counts become a share")]
    fn fill(&self) -> f64 {
        self.len as f64 / self.num_slots() as f64
    }

    fn expected_fpr(&self) -> f64 {
        cuckoo::fpr(self.len, self.buckets, BITS)
    }
}

impl<const BITS: u32> Insert for CuckooFilter<BITS> {
    /// Inserts the key with this hash. Returns `true` if the key was certainly not in the set
    /// before.
    ///
    /// Each insertion of the same key takes another slot. There is room for eight copies of a key,
    /// or four if its two buckets are the same. Many copies leave less room for other keys: if
    /// every key is inserted three times, insertion may fail from a load of 75 % on. A caller that
    /// counts keys elsewhere should insert each key once.
    ///
    /// # Errors
    /// If no free slot was found, returns [`Full`] and leaves the filter unchanged.
    #[inline]
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let entry = self.entry(hash);
        let is_new = !may_hold::<BITS>(self.words.as_ref(), entry);
        if !self.table().insert(entry) {
            return Err(Full::new(self.len, self.num_slots()));
        }
        self.len += 1;
        Ok(is_new)
    }

    /// Inserts the keys with these hashes, several at a time. Inserting several at a time is faster
    /// than inserting them one by one.
    ///
    /// # Errors
    /// Returns [`Full`] if a key does not fit. The field `inserted` of the error is the number of
    /// keys at the start of the batch that were inserted. The other keys of the batch were not
    /// inserted. If the keys are inserted one by one, slightly more or fewer keys than in a
    /// batch may fit, because the keys get different slots.
    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        let capacity = self.num_slots();
        let mut table = Table::<BITS> { words: self.words.as_mut(), buckets: self.buckets };
        let entries = hashes.iter().map(|hash| Entry::of::<BITS>(*hash, self.buckets));
        let inserted = table.insert_all(entries);
        self.len += inserted as u64;
        if inserted < hashes.len() {
            return Err(Full { inserted, ..Full::new(self.len, capacity) });
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.len = 0;
    }
}

impl<const BITS: u32> Remove for CuckooFilter<BITS> {
    /// Removes one copy of a key that is in the filter.
    ///
    /// # Errors
    /// If the key is certainly not in the filter, returns [`NotContained`] and leaves the filter
    /// unchanged.
    #[inline]
    fn remove_known_hash(&mut self, hash: u64) -> Result<(), NotContained> {
        let entry = self.entry(hash);
        if !self.table().remove(entry) {
            return Err(NotContained);
        }
        self.len -= 1;
        Ok(())
    }
}

impl<const BITS: u32> Merge for CuckooFilter<BITS> {
    /// Adds all keys of `other`.
    ///
    /// The keys are added to a copy, which then replaces this filter. So memory for a third filter
    /// is needed for a moment.
    ///
    /// # Errors
    /// Returns an error if the numbers of buckets or the hashers differ, or if there is no room for
    /// all keys. After an error, the filter is unchanged.
    ///
    /// # Panics
    /// Panics if there is no memory for the copy, as `clone` does.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("number of buckets", self.buckets, other.buckets)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        let full = Full::new(self.len, self.num_slots());
        // This check is cheap and saves the copy if the keys of both filters can't fit.
        if self.num_slots() - self.len < other.len {
            return Err(full.into());
        }
        // The keys are inserted into a copy, so that a failure leaves this filter unchanged.
        let mut merged = self.clone();
        let inserted = merged.table().insert_all(other.entries()) as u64;
        if inserted != other.len {
            return Err(full.into());
        }
        merged.len += inserted;
        *self = merged;
        Ok(())
    }
}

/// The first parameter in the encoded header is the number of buckets, and the other two are zero. The
/// body contains the buckets as they lie in memory, padded with zeros to a whole word.
///
/// Any content of the buckets is a valid filter of some keys. So the decoder checks only what the
/// other operations rely on: the body has the length that follows from the number of buckets, the
/// number of taken slots equals the number of keys in the header, and the padding after the last
/// bucket is zero.
impl<const BITS: u32> Portable for CuckooFilter<BITS> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (kind, hasher, len) = (Self::KIND, self.hasher, self.len);
        let header = Header { kind, hasher, len, params: [self.buckets, 0, 0] };
        header.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open::<BITS>(bytes)?;
        Self::over(&opened, opened.words()?)
    }
}

impl<'a, const BITS: u32> CuckooFilter<BITS, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`decode`](Portable::decode). Also returns
    /// [`DecodeError::NotInPlace`] if the bytes can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = open::<BITS>(bytes)?;
        Self::over(&opened, opened.words_in_place()?)
    }
}

impl<const BITS: u32, S: AsRef<[u64]>> CuckooFilter<BITS, S> {
    fn over(opened: &Opened<'_>, words: S) -> Result<Self, DecodeError> {
        let Header { hasher, len, params: [buckets, ..], .. } = opened.header;
        check_body::<BITS>(words.as_ref(), buckets, len)?;
        Ok(Self { words, buckets, len, hasher })
    }
}

fn open<const BITS: u32>(bytes: &[u8]) -> Result<Opened<'_>, DecodeError> {
    Opened::read(bytes, CuckooFilter::<BITS>::KIND, |header| {
        let [buckets, rest @ ..] = header.params;
        refuse_nonzero(rest != [0; 2], "parameters after the number of buckets")?;
        within("number of buckets", buckets, 1..=MAX_BUCKETS, "from 1 to 2^32")?;
        Ok(words_for::<BITS>(buckets))
    })
}

fn check_body<const BITS: u32>(words: &[u64], buckets: u64, len: u64) -> Result<(), DecodeError> {
    let used = buckets * u64::from(SLOTS * BITS) % 64;
    if used != 0 && words.last().is_some_and(|last| last >> used != 0) {
        return Err(DecodeError::NotZero("bytes after the last bucket"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bucket indices are below 2^32")]
    let taken: u64 = (0..buckets).map(|at| u64::from(load::<BITS>(words, at as u32).taken())).sum();
    refuse_if(taken != len, "number of keys", len, "the number of taken slots")?;
    Ok(())
}
