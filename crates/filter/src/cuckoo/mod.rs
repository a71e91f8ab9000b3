//! Cuckoo filters.

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

/// Questions of a batch whose memory is asked for before the first is answered.
const CHUNK: usize = 32;

/// A cuckoo filter: fingerprints of keys, of 8, 12 or 16 bits, in buckets of four, each key in one
/// of two buckets, and removable (Fan, Andersen, Kaminsky and Mitzenmacher 2014).
///
/// | | 8 bits | 12 bits | 16 bits |
/// |---|---|---|---|
/// | strangers found, at a load of 94 % | 2.93 % | 0.184 % | 0.0115 % |
/// | bits a key | 8.51 | 12.77 | 17.02 |
///
/// A question reads two cache lines, whatever the answer; in a batch they are on their way before
/// they are needed. An insertion writes one line at low loads, and two to four others near 94 %.
///
/// `true` means that a key of the same fingerprint is in one of the two buckets. `false` is certain
/// as long as nothing was removed that was not in the filter: to remove a stranger takes out
/// another key's fingerprint, and no filter can tell. That is what [`Witness`] is for.
///
/// **When to use it**: a set that changes both ways. It is the smallest filter here that keys can be
/// taken out of, and with 12 and 16 bits smaller at its rate than any Bloom filter. **When not**: a
/// set that never shrinks, at 0.1 % and above: a split-block Bloom filter is filled several times
/// faster, reads one line and has no hard limit. A set that never changes: binary fuse and ribbon
/// filters take less memory for the rate. Below some 100,000 keys an exact table costs little more.
///
/// What this one does otherwise than most:
///
/// - Any number of buckets. The other bucket is `(H(fingerprint) − bucket) mod buckets`, which
///   leads back from there; the exclusive or of the paper needs a power of two, and by rounding up
///   to one half of the memory may stay empty.
/// - A failed insertion changes nothing. Moves are made only once it is certain that they end in a
///   free slot. In some packages the last key moved is dropped, and is not found any more.
/// - Fingerprints are 1 to 2ᶠ − 1, all equally likely to within a part in 2³²⁻ᶠ.
/// - Bucket and fingerprint come from different halves of the hash, and there are up to 2³² buckets.
/// - "Cuckoo filters go up to a load of 95 %" is true on average and of large filters. This one
///   goes up to about 97 %; 94 % are what it can be counted on for.
/// - "No wrong *no*" does not hold while somebody reads in the midst of an insertion's moves. Here
///   the borrow checker forbids that; whoever shares a filter by locks has to lock it whole.
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

/// 2.9 % of strangers at 8.5 bits a key.
pub type CuckooFilter8<S = Words> = CuckooFilter<8, S>;
/// 0.18 % of strangers at 12.8 bits a key.
pub type CuckooFilter12<S = Words> = CuckooFilter<12, S>;
/// 0.0115 % of strangers at 17.0 bits a key.
pub type CuckooFilter16<S = Words> = CuckooFilter<16, S>;

/// [`CuckooFilter8`] over encoded bytes, where they are.
pub type CuckooFilter8Ref<'a> = CuckooFilter8<&'a [u64]>;
/// [`CuckooFilter12`] over encoded bytes, where they are.
pub type CuckooFilter12Ref<'a> = CuckooFilter12<&'a [u64]>;
/// [`CuckooFilter16`] over encoded bytes, where they are.
pub type CuckooFilter16Ref<'a> = CuckooFilter16<&'a [u64]>;

impl<const BITS: u32> CuckooFilter<BITS> {
    const IS_KNOWN: () = assert!(BITS == 8 || BITS == 12 || BITS == 16, "8, 12 or 16 bits");

    /// An empty filter for so many keys, with a load of 94 % once they are in, and somewhat less
    /// for fewer than a thousand.
    ///
    /// Less than one set of keys in a million doesn't fit all the same: [`Full`] then.
    ///
    /// # Errors
    /// If that takes more than 2³² buckets, and where there is no memory.
    pub fn with_capacity(capacity: u64, hasher: KeyHasher) -> Result<Self, SizingError> {
        Self::with_buckets(sizing::buckets_for(capacity), hasher)
    }

    /// As [`with_capacity`](Self::with_capacity), with as many more buckets as the rate takes.
    ///
    /// At a load of 94 % the rates are 2.9 %, 0.18 % and 0.0115 %. Below, memory grows as the rate
    /// falls, so that the next wider fingerprint is the better choice.
    ///
    /// # Errors
    /// As there, for a rate outside of (0, 1), and for one that takes a load below a quarter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let buckets = cuckoo::num_buckets(capacity, fpr, BITS)?;
        Self::with_buckets(buckets.max(sizing::buckets_for(capacity)), hasher)
    }

    /// An empty filter of so many buckets of four.
    ///
    /// # Errors
    /// For no buckets or more than 2³², and where there is no memory.
    pub fn with_buckets(buckets: u64, hasher: KeyHasher) -> Result<Self, SizingError> {
        const { Self::IS_KNOWN };
        SizingError::unless_within("buckets", buckets, MAX_BUCKETS)?;
        let words = Words::zeroed(words_for::<BITS>(buckets))?;
        Ok(Self { words, buckets, len: 0, hasher })
    }

    fn table(&mut self) -> Table<'_, BITS> {
        Table { words: self.words.as_mut(), buckets: self.buckets }
    }
}

impl<const BITS: u32, S> CuckooFilter<BITS, S> {
    const KIND: Kind = match BITS {
        8 => Kind::Cuckoo8,
        12 => Kind::Cuckoo12,
        _ => Kind::Cuckoo16,
    };
}

impl<const BITS: u32, S: AsRef<[u64]>> CuckooFilter<BITS, S> {
    /// Buckets there are.
    pub fn num_buckets(&self) -> u64 {
        self.buckets
    }

    /// Keys that there are slots for.
    pub fn num_slots(&self) -> u64 {
        self.buckets * u64::from(SLOTS)
    }

    /// The keys that the filter can be counted on to take: those that
    /// [`with_capacity`](CuckooFilter::with_capacity) would make it for.
    pub fn capacity(&self) -> u64 {
        sizing::capacity_of(self.buckets)
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        Place::of::<BITS>(hash, self.buckets)
    }

    /// The places of all that is stored.
    fn places(&self) -> impl Iterator<Item = Place> {
        let words = self.words.as_ref();
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^32 buckets")]
        let slots = (0..self.buckets).flat_map(|at| (0..SLOTS).map(move |slot| (at as u32, slot)));
        let stored = slots.map(|(at, slot)| (at, load::<BITS>(words, at).get(slot)));
        stored
            .filter(|(_, fingerprint)| *fingerprint != 0)
            .map(|(at, fingerprint)| Place::in_bucket(at, fingerprint, self.buckets))
    }

    /// Asks for the memory that a question about this hash reads. For watch sets.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let Place { first, second, .. } = self.place(hash);
        prefetch::<BITS>(self.words.as_ref(), first);
        prefetch::<BITS>(self.words.as_ref(), second);
    }
}

/// Whether the fingerprint is in one of its buckets.
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
    /// Inserts the key of this hash. `true` if it was certainly not there before.
    ///
    /// A key that is inserted several times takes a slot each time, and has room for eight copies,
    /// four where its two buckets are one. Many copies leave less room for others: with every key
    /// three times in, there may be none from a load of 75 % on. Who counts keys elsewhere inserts
    /// each once.
    ///
    /// # Errors
    /// If no slot was found for it. Then not a byte has changed.
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

    /// Inserts many, several at a time: the faster way, and the one to build a filter.
    ///
    /// # Errors
    /// [`Full`], which says how many of the first went in; the others have left no trace. One by
    /// one some more or fewer might have gone in, because the slots taken differ.
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
    /// Takes out one copy of a key that is in the filter.
    ///
    /// # Errors
    /// If the filter is certain that there is none. Nothing has changed then.
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
    /// Adds all keys of `other`, in a copy that then takes the place of this filter: memory for a
    /// third filter is needed meanwhile.
    ///
    /// # Errors
    /// If the numbers of buckets or the hashers differ, and if there is no room for all keys; then
    /// nothing has changed.
    ///
    /// # Panics
    /// If there is no memory, as `clone`.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("number of buckets", self.buckets, other.buckets)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        let full = Full::new(self.len, self.num_slots());
        if self.num_slots() - self.len < other.len {
            return Err(full.into());
        }
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
