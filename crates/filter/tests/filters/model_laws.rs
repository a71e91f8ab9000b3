//! Tests of the laws themselves: an exact set obeys them, and sets with one defect each break them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use chainsieve_filter::membership::{Full, MergeError, NotContained};
use chainsieve_filter::{Filter, Insert, KeyHasher, Merge, Remove};

use crate::model::{Laws, Model};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    ForgetsEighthInBatch,
    BatchSaysYes,
    MergeDropsCounts,
    ClearKeepsLen,
    CountsDuplicatesOnce,
    RemovesAbsent,
    RemovesAllCopies,
    NeverNew,
}

struct Exact {
    hasher: KeyHasher,
    counts: HashMap<u64, u32>,
    len: u64,
    defect: Defect,
}

impl Filter for Exact {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    fn contains_hash(&self, hash: u64) -> bool {
        self.counts.contains_key(&hash)
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        for (answer, hash) in may_contain.iter_mut().zip(hashes) {
            *answer = self.contains_hash(*hash) || self.defect == Defect::BatchSaysYes;
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        0
    }

    fn fill(&self) -> f64 {
        0.0
    }

    fn expected_fpr(&self) -> f64 {
        0.0
    }
}

impl Insert for Exact {
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let count = self.counts.entry(hash).or_default();
        *count += 1;
        let is_new = *count == 1;
        self.len += u64::from(is_new || self.defect != Defect::CountsDuplicatesOnce);
        Ok(is_new && self.defect != Defect::NeverNew)
    }

    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        for (at, hash) in hashes.iter().enumerate() {
            if at == 7 && self.defect == Defect::ForgetsEighthInBatch {
                self.len += 1;
            } else {
                self.insert_hash(*hash)?;
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.counts.clear();
        self.len *= u64::from(self.defect == Defect::ClearKeepsLen);
    }
}

impl Remove for Exact {
    fn remove_known_hash(&mut self, hash: u64) -> Result<(), NotContained> {
        let Some(count) = self.counts.get_mut(&hash) else {
            self.len -= u64::from(self.defect == Defect::RemovesAbsent && self.len > 0);
            return Err(NotContained);
        };
        self.len -= 1;
        *count -= 1;
        if *count == 0 || self.defect == Defect::RemovesAllCopies {
            self.counts.remove(&hash);
        }
        Ok(())
    }
}

impl Merge for Exact {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        for (hash, count) in &other.counts {
            let count = if self.defect == Defect::MergeDropsCounts { 1 } else { *count };
            *self.counts.entry(*hash).or_default() += count;
            self.len += u64::from(count);
        }
        Ok(())
    }
}

fn laws(defect: Defect) -> Laws<Exact> {
    let hasher = KeyHasher::xxh3(1);
    Laws::new(move || Exact { hasher, counts: HashMap::new(), len: 0, defect })
        .keys(60)
        .removing()
        .merging()
        .step("inserted twice", |filter, model, number| {
            let key = Model::key(number % 60);
            for _ in 0..2 {
                filter.insert(&key).expect("room");
                model.insert(&key);
            }
        })
}

#[test]
fn an_exact_set_obeys() {
    laws(Defect::None).run(100);
    laws(Defect::None).most_copies(2).run(50);
}

#[test]
fn every_defect_is_found() {
    for defect in [
        Defect::ForgetsEighthInBatch,
        Defect::BatchSaysYes,
        Defect::MergeDropsCounts,
        Defect::ClearKeepsLen,
        Defect::CountsDuplicatesOnce,
        Defect::RemovesAbsent,
        Defect::RemovesAllCopies,
        Defect::NeverNew,
    ] {
        let run = AssertUnwindSafe(|| laws(defect).run(100));
        assert!(catch_unwind(run).is_err(), "{defect:?} goes unnoticed");
    }
}
