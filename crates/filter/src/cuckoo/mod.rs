//! Cuckoo filters, which support removal.

mod bucket;
mod bytes;
mod insertion;
mod place;
mod sizing;
#[cfg(test)]
mod tests;

use super::hashing::KeyHasher;
use super::kind::Kind;
use super::membership::{Filter, Full, Insert, Merge, MergeError, NotContained, Remove, Witness};
use super::sizing::{SizingError, cuckoo};
use super::words::Words;
use bucket::{SLOTS, load, prefetch, words_for};
use insertion::Table;
use place::{MAX_BUCKETS, Place};

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
/// the filter removes the fingerprint of another key, and no filter can detect that. Therefore
/// removal requires a [`Witness`].
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
/// use chainsieve_filter::{Filter, Insert, KeyHasher, Remove, Witness};
///
/// let mut filter = CuckooFilter16::with_capacity(1_000, KeyHasher::xxh3(7))?;
/// filter.insert(b"a key")?;
/// assert!(filter.contains(b"a key"));
/// let hash = filter.hasher().hash(b"a key");
/// filter.remove(Witness::vouched(hash))?;
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
    pub fn with_capacity(capacity: u64, hasher: KeyHasher) -> Result<Self, SizingError> {
        Self::with_buckets(sizing::buckets_for(capacity), hasher)
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
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let buckets = cuckoo::num_buckets(capacity, fpr, BITS)?;
        Self::with_buckets(buckets.max(sizing::buckets_for(capacity)), hasher)
    }

    /// Creates an empty filter with the given number of buckets, each of four slots.
    ///
    /// # Errors
    /// Returns an error if `buckets` is not from 1 to 2³², or if there is no memory for the filter.
    pub fn with_buckets(buckets: u64, hasher: KeyHasher) -> Result<Self, SizingError> {
        const { Self::IS_KNOWN };
        SizingError::unless_within("a number of buckets", buckets, MAX_BUCKETS)?;
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
        sizing::capacity_of(self.buckets)
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        Place::of::<BITS>(hash, self.buckets)
    }

    /// Returns the fingerprint and the buckets of every occupied slot.
    fn places(&self) -> impl Iterator<Item = Place> {
        let words = self.words.as_ref();
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^32 buckets")]
        let slots = (0..self.buckets).flat_map(|at| (0..SLOTS).map(move |slot| (at as u32, slot)));
        let stored = slots.map(|(at, slot)| (at, load::<BITS>(words, at).get(slot)));
        stored
            .filter(|(_, fingerprint)| *fingerprint != 0)
            .map(|(at, fingerprint)| Place::in_bucket(at, fingerprint, self.buckets))
    }

    /// Prefetches the memory that a query for this hash reads. Watch sets use this method.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let Place { first, second, .. } = self.place(hash);
        prefetch::<BITS>(self.words.as_ref(), first);
        prefetch::<BITS>(self.words.as_ref(), second);
    }
}

/// Returns `true` if the fingerprint is in one of its two buckets.
#[inline(always)]
fn may_hold<const BITS: u32>(words: &[u64], place: Place) -> bool {
    let (first, second) = (load::<BITS>(words, place.first), load(words, place.second));
    first.either_has(second, place.fingerprint)
}

impl<const BITS: u32, S: AsRef<[u64]>> Filter for CuckooFilter<BITS, S> {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        may_hold::<BITS>(self.words.as_ref(), self.place(hash))
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        let words = self.words.as_ref();
        let mut places = [Place::default(); CHUNK];
        for (hashes, answers) in hashes.chunks(CHUNK).zip(may_contain.chunks_mut(CHUNK)) {
            for (place, hash) in places.iter_mut().zip(hashes) {
                *place = self.place(*hash);
                prefetch::<BITS>(words, place.first);
                prefetch::<BITS>(words, place.second);
            }
            for (answer, place) in answers.iter_mut().zip(places) {
                *answer = may_hold::<BITS>(words, place);
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
        let place = self.place(hash);
        let is_new = !may_hold::<BITS>(self.words.as_ref(), place);
        if !self.table().insert(place) {
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
        let places = hashes.iter().map(|hash| Place::of::<BITS>(*hash, self.buckets));
        let inserted = table.insert_all(places);
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
    fn remove(&mut self, witness: Witness) -> Result<(), NotContained> {
        let place = self.place(witness.hash());
        if !self.table().remove(place) {
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
        let inserted = merged.table().insert_all(other.places()) as u64;
        if inserted != other.len {
            return Err(full.into());
        }
        merged.len += inserted;
        *self = merged;
        Ok(())
    }
}
