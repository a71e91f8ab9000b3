//! What filters have in common: asked, filled, merged, emptied.

use super::hashing::{KeyHash, KeyHasher};
use super::words::NoMemory;

/// A set that may say "maybe here" wrongly and never "not here" wrongly.
pub trait Filter {
    /// The hash that keys are known by.
    type Hash: KeyHash;

    /// How keys are hashed.
    fn hasher(&self) -> &KeyHasher;

    /// Whether the key of this hash may be in the set. `false` is certain, as long as only keys
    /// that are in the set were removed.
    fn contains_hash(&self, hash: Self::Hash) -> bool;

    /// Whether the key may be in the set.
    #[inline]
    fn contains(&self, key: &[u8]) -> bool {
        self.contains_hash(Self::Hash::of(self.hasher(), key))
    }

    /// As [`contains_hash`](Self::contains_hash) for many: the memory of later ones is asked for
    /// while earlier ones are tested, which is what large filters are fast by.
    ///
    /// # Panics
    /// If the slices differ in length.
    fn contains_batch(&self, hashes: &[Self::Hash], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        for (answer, hash) in may_contain.iter_mut().zip(hashes) {
            *answer = self.contains_hash(*hash);
        }
    }

    /// How many keys were inserted (less those removed), as counted: keys inserted twice count
    /// twice where the filter can't know.
    fn len(&self) -> u64;

    /// Whether nothing was inserted.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of the filter's body, in bits.
    fn num_bits(&self) -> u64;

    /// The share of what can be occupied that is: of bits set, of slots taken; 0 to 1.
    fn fill(&self) -> f64;

    /// The rate of false positives over strangers, as the filter is now.
    fn expected_fpr(&self) -> f64;

    /// How many distinct keys are in the filter by its fill; `None` where that says nothing.
    fn estimated_len(&self) -> Option<f64> {
        None
    }

    /// Everything above at once.
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

/// Keys of a batch whose memory is asked for before the first is tested.
const CHUNK: usize = 32;

/// As [`Filter::contains_batch`]: asks for the memory of some keys by `prefetch`, then tests them.
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

/// The figures of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// [`Filter::len`]
    pub len: u64,
    /// [`Filter::estimated_len`]
    pub estimated_len: Option<f64>,
    /// [`Filter::num_bits`]
    pub num_bits: u64,
    /// [`Filter::fill`]
    pub fill: f64,
    /// [`Filter::expected_fpr`]
    pub expected_fpr: f64,
}

/// A filter that keys can be put into.
pub trait Insert: Filter {
    /// Inserts the key of this hash. `true` if it was certainly not there before.
    ///
    /// # Errors
    /// Where the filter has a hard limit ([`Full`]); then nothing has changed.
    fn insert_hash(&mut self, hash: Self::Hash) -> Result<bool, Full>;

    /// Inserts a key. `true` if it was certainly not there before.
    ///
    /// # Errors
    /// As [`insert_hash`](Self::insert_hash).
    #[inline]
    fn insert(&mut self, key: &[u8]) -> Result<bool, Full> {
        let hash = Self::Hash::of(self.hasher(), key);
        self.insert_hash(hash)
    }

    /// Inserts many.
    ///
    /// # Errors
    /// [`Full`], which says how many of the first went in.
    fn insert_batch(&mut self, hashes: &[Self::Hash]) -> Result<(), Full> {
        for (inserted, hash) in hashes.iter().enumerate() {
            self.insert_hash(*hash).map_err(|full| Full { inserted, ..full })?;
        }
        Ok(())
    }

    /// Forgets every key. Memory, parameters and hasher stay.
    fn clear(&mut self);
}

/// A filter that keys can be taken out of.
pub trait Remove: Insert {
    /// Takes out a key that is in the filter, which the witness vouches for.
    ///
    /// # Errors
    /// If the filter is certain that the key is not there: the witness was wrong. Nothing has
    /// changed then.
    fn remove(&mut self, witness: Witness<Self::Hash>) -> Result<(), NotContained>;
}

/// The word of whoever keeps the keys that a key is in the filter: inserted once more often than
/// it was removed.
///
/// To remove a key that is not there takes others out, and the filter then says "not here"
/// wrongly. Nothing in a filter can tell, so the one who knows says so by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Witness<H = u64>(H);

impl<H: KeyHash> Witness<H> {
    /// For a key that the caller's own store of keys shows to be in the filter.
    pub const fn vouched(hash: H) -> Self {
        Self(hash)
    }

    /// The hash of the key.
    pub const fn hash(&self) -> H {
        self.0
    }
}

/// Filters that become the filter of both sets.
pub trait Merge {
    /// Adds all keys of `other`.
    ///
    /// # Errors
    /// If size, shape, function or seed differ; then nothing has changed.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;
}

/// Filters that can be folded to half their size: for those that were made larger than needed.
pub trait Fold: Filter + Sized {
    /// The rate that the filter would have after a fold, by its bits; `None` if it can't be folded.
    fn fpr_folded(&self) -> Option<f64>;

    /// The same set in half the memory, at a higher rate. `None` where the number of bits or
    /// blocks is odd.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn folded(&self) -> Result<Option<Self>, NoMemory>;

    /// Folds as often as the rate then still is `fpr` at most: not an estimate but
    /// [`expected_fpr`](Filter::expected_fpr) of the smaller filter. Returns how often.
    ///
    /// # Errors
    /// If there is no memory for the smaller filter.
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

/// The filter has no place for another key. What it holds, it still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no place for another key: {len} of {capacity} places are taken")]
#[non_exhaustive]
pub struct Full {
    /// Keys that the filter holds.
    pub len: u64,
    /// Places there are.
    pub capacity: u64,
    /// Of a batch, how many of the first went in.
    pub inserted: usize,
}

impl Full {
    pub(crate) const fn new(len: u64, capacity: u64) -> Self {
        Self { len, capacity, inserted: 0 }
    }
}

/// A key that was to be removed is certainly not in the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key to remove is not in the filter")]
pub struct NotContained;

/// Why two filters can't become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A parameter of the layout differs.
    #[error("{what} differs: {ours} here, {theirs} there")]
    Shape {
        /// Which parameter.
        what: &'static str,
        /// Ours.
        ours: u64,
        /// The other's.
        theirs: u64,
    },
    /// The hash function or its seed differs.
    #[error("the hash functions or their seeds differ")]
    Hasher,
    /// Both fit, and there is no place for all keys.
    #[error(transparent)]
    Full(#[from] Full),
}

impl MergeError {
    /// An error if a parameter differs.
    pub(crate) fn unless_equal(what: &'static str, ours: u64, theirs: u64) -> Result<(), Self> {
        if ours == theirs { Ok(()) } else { Err(Self::Shape { what, ours, theirs }) }
    }

    /// An error if the hashers differ.
    pub(crate) fn unless_same_hasher(ours: &KeyHasher, theirs: &KeyHasher) -> Result<(), Self> {
        if ours == theirs { Ok(()) } else { Err(Self::Hasher) }
    }
}
