//! The traits that filters share: querying, inserting, removing, merging and folding.

use super::hashing::{KeyHash, KeyHasher};
use super::words::NoMemory;

/// A set of keys that answers "maybe in the set" or "certainly not in the set".
///
/// "Maybe" is wrong at the filter's false-positive rate. "Certainly not" is never wrong.
pub trait Filter {
    /// The type of the key hashes that the filter works on.
    type Hash: KeyHash;

    /// Returns the hasher of the keys.
    fn hasher(&self) -> &KeyHasher;

    /// Returns `true` if the key with this hash may be in the set. `false` means that the key is
    /// certainly not in the set, provided that only keys in the set were ever removed.
    fn contains_hash(&self, hash: Self::Hash) -> bool;

    /// Returns `true` if the key may be in the set.
    #[inline]
    fn contains(&self, key: &[u8]) -> bool {
        self.contains_hash(Self::Hash::of(self.hasher(), key))
    }

    /// Queries many hashes, with the same answers as [`contains_hash`](Self::contains_hash) for
    /// each.
    ///
    /// The answer for `hashes[i]` is written to `may_contain[i]`. Large filters are faster this
    /// way: the memory of later hashes is prefetched while earlier hashes are tested.
    ///
    /// # Panics
    /// Panics if the slices differ in length.
    fn contains_batch(&self, hashes: &[Self::Hash], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        for (answer, hash) in may_contain.iter_mut().zip(hashes) {
            *answer = self.contains_hash(*hash);
        }
    }

    /// Returns the number of insertions minus the number of removals. A key that was inserted twice
    /// is counted twice, unless the filter recognises that the key was already in the set.
    fn len(&self) -> u64;

    /// Returns `true` if the filter contains no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the filter's body in bits.
    fn num_bits(&self) -> u64;

    /// Returns the fraction of the filter that is occupied, from 0 to 1: the fraction of bits that
    /// are set, or of slots that are taken.
    fn fill(&self) -> f64;

    /// Returns the false-positive rate of the filter's current contents: the probability that
    /// [`contains_hash`](Self::contains_hash) returns `true` for a key that is not in the set.
    fn expected_fpr(&self) -> f64;

    /// Estimates the number of distinct keys in the filter from its fill. Returns `None` if the
    /// fill of this kind of filter does not determine such an estimate.
    fn estimated_len(&self) -> Option<f64> {
        None
    }

    /// Returns all figures of the filter at once.
    fn stats(&self) -> Stats {
        Stats {
            len: self.len(),
            estimated_len: self.estimated_len(),
            num_bits: self.num_bits(),
            fill: self.fill(),
            expected_fpr: self.expected_fpr(),
        }
    }
}

/// Number of keys whose memory is prefetched before the first of them is tested.
const CHUNK: usize = 32;

/// Implements [`Filter::contains_batch`]: calls `prefetch` for a chunk of hashes, then `contains`
/// for each of them.
#[inline(always)]
pub(crate) fn contains_in_chunks<H: Copy>(
    hashes: &[H],
    may_contain: &mut [bool],
    prefetch: impl Fn(H),
    contains: impl Fn(H) -> bool,
) {
    assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
    for (hashes, answers) in hashes.chunks(CHUNK).zip(may_contain.chunks_mut(CHUNK)) {
        hashes.iter().copied().for_each(&prefetch);
        for (answer, hash) in answers.iter_mut().zip(hashes) {
            *answer = contains(*hash);
        }
    }
}

/// Size, fill and false-positive rate of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of insertions minus removals: [`Filter::len`].
    pub len: u64,
    /// Estimated number of distinct keys: [`Filter::estimated_len`].
    pub estimated_len: Option<f64>,
    /// Size of the body in bits: [`Filter::num_bits`].
    pub num_bits: u64,
    /// Occupied fraction of the filter: [`Filter::fill`].
    pub fill: f64,
    /// Current false-positive rate: [`Filter::expected_fpr`].
    pub expected_fpr: f64,
}

/// A filter into which keys can be inserted.
pub trait Insert: Filter {
    /// Inserts the key with this hash. Returns `true` if the key was certainly not in the set
    /// before.
    ///
    /// # Errors
    /// Returns [`Full`] if the filter has a hard limit and has reached it. The filter is then
    /// unchanged.
    fn insert_hash(&mut self, hash: Self::Hash) -> Result<bool, Full>;

    /// Inserts a key. Returns `true` if the key was certainly not in the set before.
    ///
    /// # Errors
    /// Returns the same errors as [`insert_hash`](Self::insert_hash).
    #[inline]
    fn insert(&mut self, key: &[u8]) -> Result<bool, Full> {
        let hash = Self::Hash::of(self.hasher(), key);
        self.insert_hash(hash)
    }

    /// Inserts the keys with these hashes, in order.
    ///
    /// # Errors
    /// Returns [`Full`] if the filter is full. The field `inserted` of the error is the number of
    /// hashes that were inserted before the limit was reached.
    fn insert_batch(&mut self, hashes: &[Self::Hash]) -> Result<(), Full> {
        for (inserted, hash) in hashes.iter().enumerate() {
            self.insert_hash(*hash).map_err(|full| Full { inserted, ..full })?;
        }
        Ok(())
    }

    /// Removes every key. The size, the parameters and the hasher do not change.
    fn clear(&mut self);
}

/// A filter from which keys can be removed.
///
/// **Remove only keys that are in the filter**: keys that were inserted more often than they were
/// removed. Removing another key removes keys of the set with it, and the filter then answers
/// "certainly not in the set" for keys that are in the set. A filter can't detect such a removal by
/// itself, because it does not store the keys. So the caller has to know from elsewhere, such as from
/// its own table of the keys, that the key is in the filter. It is not sufficient that
/// [`contains`](Filter::contains) returned `true`.
pub trait Remove: Insert {
    /// Removes the key with this hash, which the caller knows to be in the filter. If the key was
    /// never inserted, other keys may be lost: see [`Remove`].
    ///
    /// # Errors
    /// Returns [`NotContained`] if the key is certainly not in the filter. The filter is then
    /// unchanged.
    fn remove_known_hash(&mut self, hash: Self::Hash) -> Result<(), NotContained>;

    /// Removes a key that the caller knows to be in the filter. If the key was never inserted, other
    /// keys may be lost: see [`Remove`].
    ///
    /// # Errors
    /// Returns the same errors as [`remove_known_hash`](Self::remove_known_hash).
    fn remove_known_key(&mut self, key: &[u8]) -> Result<(), NotContained> {
        let hash = Self::Hash::of(self.hasher(), key);
        self.remove_known_hash(hash)
    }
}

/// Filters that can be merged: the result is a filter of the union of both sets.
pub trait Merge {
    /// Adds all keys of `other`.
    ///
    /// # Errors
    /// Returns an error if the sizes, the shapes, the hash functions or their seeds differ, or if
    /// there is no room for all keys. The filter is then unchanged.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;
}

/// Filters that can be folded to half their size. Folding is useful for filters that were created
/// larger than needed.
pub trait Fold: Filter + Sized {
    /// Returns the expected false-positive rate after one fold, computed from the bits that are
    /// set. Returns `None` if the filter can't be folded.
    fn fpr_folded(&self) -> Option<f64>;

    /// Returns a filter of the same set in half the memory, at a higher false-positive rate.
    /// Returns `None` if the filter can't be halved because its number of bits or blocks is odd.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the smaller filter.
    fn folded(&self) -> Result<Option<Self>, NoMemory>;

    /// Folds the filter repeatedly, as long as the rate after the fold is at most `fpr`. Returns
    /// the number of folds.
    ///
    /// The rate compared with `fpr` is the [`expected_fpr`](Filter::expected_fpr) of the smaller
    /// filter, computed from its bits.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the smaller filter.
    fn fold_to_fpr(&mut self, fpr: f64) -> Result<u32, NoMemory> {
        let mut folds = 0;
        while self.fpr_folded().is_some_and(|folded| folded <= fpr)
            && let Some(folded) = self.folded()?
        {
            *self = folded;
            folds += 1;
        }
        Ok(folds)
    }
}

/// Error: the filter has no room for another key. All keys inserted before are still in the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for another key: {len} of {capacity} slots are taken")]
#[non_exhaustive]
pub struct Full {
    /// Number of keys in the filter.
    pub len: u64,
    /// Number of keys for which the filter has room.
    pub capacity: u64,
    /// Number of keys at the start of a batch that were inserted before the filter was full. Zero
    /// for a single insertion.
    pub inserted: usize,
}

impl Full {
    pub(crate) const fn new(len: u64, capacity: u64) -> Self {
        Self { len, capacity, inserted: 0 }
    }
}

/// Error: the key to remove is certainly not in the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key to remove is not in the filter")]
pub struct NotContained;

/// The reason why two filters can't be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A parameter of the layout differs between the two filters.
    #[error("{what} differs: {ours} in this filter, {theirs} in the other")]
    Shape {
        /// Name of the parameter.
        what: &'static str,
        /// Value in the filter that was to be extended.
        ours: u64,
        /// Value in the other filter.
        theirs: u64,
    },
    /// The hash functions or their seeds differ.
    #[error("the hash functions or their seeds differ")]
    Hasher,
    /// The filters are compatible, but there is no room for the keys of both.
    #[error(transparent)]
    Full(#[from] Full),
}

impl MergeError {
    /// Returns [`MergeError::Shape`] if a parameter differs.
    pub(crate) fn unless_equal(what: &'static str, ours: u64, theirs: u64) -> Result<(), Self> {
        if ours == theirs { Ok(()) } else { Err(Self::Shape { what, ours, theirs }) }
    }

    /// Returns [`MergeError::Hasher`] if the hashers differ.
    pub(crate) fn unless_same_hasher(ours: &KeyHasher, theirs: &KeyHasher) -> Result<(), Self> {
        if ours == theirs { Ok(()) } else { Err(Self::Hasher) }
    }
}
