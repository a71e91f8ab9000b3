//! Tests any filter against an exact model, over random sequences of operations.
//!
//! A test names the operations that its filter has besides insertion, and runs the sequences:
//!
//! ```ignore
//! Laws::new(|| CountingBloomFilter::with_fpr(500, 0.01, hasher).expect("a size"))
//!     .removing()
//!     .merging()
//!     .portable()
//!     .step("halved", |filter, _, _| filter.fold().expect("an even size"))
//!     .run(64);
//! ```
//!
//! After each step every key of the model must be found, one by one and in a batch, and `len` must
//! be the number that the model counts. A sequence that fails is shrunk to a shorter one.

use std::collections::BTreeMap;
use std::fmt::Debug;

use chainsieve_filter::hashing::KeyHash;
use chainsieve_filter::membership::{MergeError, NotContained};
use chainsieve_filter::{Filter, Fold, Insert, KeyHasher, Merge, Portable, Remove};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::key_families::Family;

/// Exact content of the filter: each key, and how often it was inserted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    counts: BTreeMap<Vec<u8>, u32>,
}

impl Model {
    pub(crate) fn insert(&mut self, key: &[u8]) {
        *self.counts.entry(key.to_vec()).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        let count = self.counts.get_mut(key).expect("a key of the model");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(key);
        }
    }

    pub(crate) fn count(&self, key: &[u8]) -> u32 {
        self.counts.get(key).copied().unwrap_or_default()
    }

    /// Returns every key once, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counts.keys().map(Vec::as_slice)
    }

    /// Returns the number of insertions less the number of removals.
    pub(crate) fn len(&self) -> u64 {
        self.counts.values().copied().map(u64::from).sum()
    }

    /// Returns key `index` of the keys that sequences draw from, which cycle through all families.
    pub(crate) fn key(index: u16) -> Vec<u8> {
        Family::ALL[usize::from(index) % Family::ALL.len()].key(7, u64::from(index))
    }
}

/// One operation of a sequence. A step that is impossible in the current state does nothing,
/// because shrinking may produce such steps.
#[derive(Debug, Clone)]
enum Step {
    Insert(u16),
    InsertBatch(Vec<u16>),
    /// Removes the key at this position among the keys of the model.
    Remove(u16),
    /// Removes a key that the filter certainly does not contain.
    RemoveAbsent(u16),
    Merge(Vec<u16>),
    Recode,
    Clear,
    /// Runs one of the test's own steps: the index of the step, and a random number for the step.
    Owners(usize, u16),
}

type RemoveFn<F> = fn(&mut F, &[u8]) -> Result<(), NotContained>;
type MergeFn<F> = fn(&mut F, &F) -> Result<(), MergeError>;
type OwnersStep<F> = Box<dyn Fn(&mut F, &mut Model, u16)>;

/// The operations of a filter, and the laws that must hold for it.
pub(crate) struct Laws<F: Filter> {
    make: Box<dyn Fn() -> F>,
    remove: Option<RemoveFn<F>>,
    merge: Option<MergeFn<F>>,
    recode: Option<fn(&F) -> F>,
    owners: Vec<(&'static str, OwnersStep<F>)>,
    /// All keys that sequences draw from.
    keys: Vec<Vec<u8>>,
    universe: u16,
    most_copies: u32,
    most_steps: usize,
    counts_all: bool,
}

impl<F: Insert> Laws<F> {
    /// Tests filters that `make` creates; these filters must be empty.
    pub(crate) fn new(make: impl Fn() -> F + 'static) -> Self {
        Self {
            make: Box::new(make),
            remove: None,
            merge: None,
            recode: None,
            owners: Vec::new(),
            keys: Vec::new(),
            universe: 600,
            most_copies: u32::MAX,
            most_steps: 40,
            counts_all: true,
        }
    }

    /// Sets the number of distinct keys of the sequences; 600 by default.
    pub(crate) fn keys(self, universe: u16) -> Self {
        Self { universe, ..self }
    }

    /// Sets how often a key may be in the filter at once; unlimited by default.
    pub(crate) fn most_copies(self, most_copies: u32) -> Self {
        Self { most_copies, ..self }
    }

    /// Tests a filter whose `len` does not count keys that may have been present before.
    pub(crate) fn counting_new_keys_only(self) -> Self {
        Self { counts_all: false, ..self }
    }

    /// Adds a step of the test's own, which changes filter and model alike. The third argument of
    /// `step` is a random number.
    pub(crate) fn step(
        mut self,
        name: &'static str,
        step: impl Fn(&mut F, &mut Model, u16) + 'static,
    ) -> Self {
        self.owners.push((name, Box::new(step)));
        self
    }

    /// Runs `cases` random sequences.
    #[track_caller]
    pub(crate) fn run(mut self, cases: u32) {
        self.keys = (0..self.universe).map(Model::key).collect();
        let config =
            ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let steps = vec(self.any_step(), 0..self.most_steps);
        let run = |steps: Vec<Step>| {
            self.run_one(&steps);
            Ok(())
        };
        if let Err(error) = TestRunner::new(config).run(&steps, run) {
            let names: Vec<_> = self.owners.iter().map(|(name, _)| name).collect();
            panic!("{error}\nsteps of the test: {names:?}");
        }
    }

    fn any_step(&self) -> impl Strategy<Value = Step> + use<F> {
        let can = u32::from;
        let (removes, merges) = (can(self.remove.is_some()), can(self.merge.is_some()));
        let (recodes, owners) = (can(self.recode.is_some()), self.owners.len());
        let key = 0..self.universe;
        let several = vec(key.clone(), 0..150);
        prop_oneof![
            8 => key.clone().prop_map(Step::Insert),
            4 => several.clone().prop_map(Step::InsertBatch),
            12 * removes => any::<u16>().prop_map(Step::Remove),
            2 * removes => key.prop_map(Step::RemoveAbsent),
            2 * merges => several.prop_map(Step::Merge),
            2 * recodes => Just(Step::Recode),
            1 => Just(Step::Clear),
            3 * can(owners > 0) => (0..owners.max(1), any::<u16>())
                .prop_map(|(which, number)| Step::Owners(which, number)),
        ]
    }

    fn run_one(&self, steps: &[Step]) {
        let (mut filter, mut model) = ((self.make)(), Model::default());
        let hashes: Vec<_> = self.keys.iter().map(|key| hash_of(filter.hasher(), key)).collect();
        self.check_empty(&filter, &hashes);
        for step in steps {
            self.take(step, &mut filter, &mut model, &hashes);
            self.check(&filter, &model, &hashes);
        }
    }

    fn key(&self, index: u16) -> &[u8] {
        &self.keys[usize::from(index)]
    }

    fn take(&self, step: &Step, filter: &mut F, model: &mut Model, hashes: &[F::Hash]) {
        match step {
            Step::Insert(index) => {
                let key = self.key(*index);
                if model.count(key) >= self.most_copies {
                    return;
                }
                let before = self.answers(filter, hashes);
                let was_there = filter.contains(key);
                match filter.insert(key) {
                    Ok(is_new) => {
                        assert_eq!(is_new, !was_there, "is_new after contains was {was_there}");
                        model.insert(key);
                    }
                    Err(_) => {
                        assert_eq!(self.answers(filter, hashes), before, "changed by a refusal");
                    }
                }
            }
            Step::InsertBatch(indices) => self.insert_batch(indices, filter, model),
            Step::Remove(place) => {
                let keys = model.keys().count();
                let key = model.keys().nth(usize::from(*place) % keys.max(1));
                let (Some(key), Some(remove)) = (key, self.remove) else {
                    return;
                };
                let key = key.to_vec();
                assert_eq!(remove(filter, &key), Ok(()), "a key that is there");
                model.remove(&key);
            }
            Step::RemoveAbsent(index) => {
                let key = self.key(*index);
                let Some(remove) = self.remove.filter(|_| !filter.contains(key)) else {
                    return;
                };
                let before = self.answers(filter, hashes);
                assert_eq!(remove(filter, key), Err(NotContained), "an absent key");
                assert_eq!(
                    self.answers(filter, hashes),
                    before,
                    "changed by removing an absent key"
                );
            }
            Step::Merge(indices) => {
                let Some(merge) = self.merge else { return };
                let (mut other, mut others) = ((self.make)(), Model::default());
                let allowed = |index: &&u16| {
                    self.most_copies == u32::MAX || model.count(self.key(**index)) == 0
                };
                let indices: Vec<_> = indices.iter().filter(allowed).copied().collect();
                self.insert_batch(&indices, &mut other, &mut others);
                let before = self.answers(filter, hashes);
                match merge(filter, &other) {
                    Ok(()) => {
                        for (key, count) in others.counts {
                            *model.counts.entry(key).or_default() += count;
                        }
                    }
                    Err(MergeError::Full(_)) => {
                        assert_eq!(
                            self.answers(filter, hashes),
                            before,
                            "changed by a refused merge"
                        );
                    }
                    Err(error) => panic!("filters of one shape: {error}"),
                }
            }
            Step::Recode => {
                let Some(recode) = self.recode else { return };
                let before = self.answers(filter, hashes);
                *filter = recode(filter);
                assert_eq!(self.answers(filter, hashes), before, "other answers after decoding");
            }
            Step::Clear => {
                filter.clear();
                *model = Model::default();
                self.check_empty(filter, hashes);
            }
            Step::Owners(which, number) => {
                if let Some((_, step)) = self.owners.get(*which) {
                    step(filter, model, *number);
                }
            }
        }
    }

    fn insert_batch(&self, indices: &[u16], filter: &mut F, model: &mut Model) {
        let (mut after, mut keys) = (model.clone(), Vec::new());
        for key in indices.iter().map(|index| self.key(*index)) {
            if after.count(key) < self.most_copies {
                after.insert(key);
                keys.push(key);
            }
        }
        let hashes: Vec<_> = keys.iter().map(|key| hash_of(filter.hasher(), key)).collect();
        match filter.insert_batch(&hashes) {
            Ok(()) => *model = after,
            Err(full) => keys.iter().take(full.inserted).for_each(|key| model.insert(key)),
        }
    }

    /// Returns the answer for every key, and `len`. All ways to query must give the same answers.
    fn answers(&self, filter: &F, hashes: &[F::Hash]) -> (Vec<bool>, u64) {
        let one_by_one: Vec<_> = hashes.iter().map(|hash| filter.contains_hash(*hash)).collect();
        let mut in_a_batch = vec![false; hashes.len()];
        filter.contains_batch(hashes, &mut in_a_batch);
        assert_eq!(in_a_batch, one_by_one, "a batch against one by one");
        for (key, answer) in self.keys.iter().zip(&one_by_one).step_by(7) {
            assert_eq!(filter.contains(key), *answer, "a key against its hash");
        }
        (one_by_one, filter.len())
    }

    fn check(&self, filter: &F, model: &Model, hashes: &[F::Hash]) {
        let (answers, len) = self.answers(filter, hashes);
        for (index, (key, answer)) in self.keys.iter().zip(answers).enumerate() {
            assert!(answer || model.count(key) == 0, "key {index} is lost");
        }
        if self.counts_all {
            assert_eq!(len, model.len(), "len");
        } else {
            assert!(len <= model.len(), "len {len}, but only {} insertions", model.len());
        }
        assert_eq!(filter.is_empty(), len == 0, "is_empty");
        let stats = filter.stats();
        assert!((0.0..=1.0).contains(&stats.fill), "{stats:?}");
        assert!((0.0..=1.0).contains(&stats.expected_fpr), "{stats:?}");
        assert!(stats.estimated_len.is_none_or(|len| len >= 0.0), "{stats:?}");
    }

    fn check_empty(&self, filter: &F, hashes: &[F::Hash]) {
        let (answers, len) = self.answers(filter, hashes);
        assert!(!answers.contains(&true) && len == 0, "an empty filter contains no key");
    }
}

impl<F: Remove> Laws<F> {
    /// Adds removals of keys that are in the filter.
    pub(crate) fn removing(self) -> Self {
        Self { remove: Some(F::remove_known_key), ..self }
    }
}

impl<F: Insert + Merge> Laws<F> {
    /// Adds merges with other filters that `make` creates.
    pub(crate) fn merging(self) -> Self {
        Self { merge: Some(F::merge), ..self }
    }

    /// Adds merges with other filters that `make` creates. A filter that was folded meanwhile is merged with
    /// one that is folded as often.
    pub(crate) fn merging_folded(self) -> Self
    where
        F: Fold,
    {
        fn merge<F: Merge + Fold>(filter: &mut F, other: &F) -> Result<(), MergeError> {
            match (filter.merge(other), other.folded().expect("memory")) {
                (Err(MergeError::Shape { ours, theirs, .. }), Some(folded)) if ours < theirs => {
                    merge(filter, &folded)
                }
                (merged, _) => merged,
            }
        }
        Self { merge: Some(merge), ..self }
    }
}

impl<F: Insert + Portable> Laws<F> {
    /// Adds encoding and decoding. The filter's hash key must not be secret.
    pub(crate) fn portable(self) -> Self {
        let recode = |filter: &F| {
            let bytes = filter.encode().expect("no secret key");
            let decoded = F::decode(&bytes).expect("what was written");
            assert_eq!(decoded.encode().as_ref(), Ok(&bytes), "written again");
            decoded
        };
        Self { recode: Some(recode), ..self }
    }
}

fn hash_of<H: KeyHash>(hasher: &KeyHasher, key: &[u8]) -> H {
    H::of(hasher, key)
}
