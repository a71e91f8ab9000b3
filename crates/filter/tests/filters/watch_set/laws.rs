//! Random sequences of operations against a map of counts.

use std::collections::HashMap;
use std::fmt::Debug;

use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse16};
use chainsieve_filter::watch_set::{
    Added, Exposure, Hit, KeyStore, Probe, Removed, WatchAnswer, WatchError, WatchSet,
    WatchSetBuilder,
};
use chainsieve_filter::{Filter as _, KeyHasher};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::stores::{HASHER, Shows, Tree};
use crate::key_families::Family;

#[derive(Debug, Clone)]
enum Step {
    Add(u64),
    Remove(u64),
    /// Adds keys with consecutive numbers: the first field is the lowest number, the second field
    /// is the number of keys.
    AddMany(u64, u64),
    RemoveMany(u64, u64),
    Rebuild,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_000_u64).prop_map(Step::Add),
        6 => (0..3_000_u64).prop_map(Step::Remove),
        3 => (0..3_000_u64, 0..2_500_u64).prop_map(|(from, n)| Step::AddMany(from, n)),
        2 => (0..3_000_u64, 0..2_500_u64).prop_map(|(from, n)| Step::RemoveMany(from, n)),
        1 => Just(Step::Rebuild),
    ];
    vec(step, 1..30)
}

/// Small shards, so that they are split and joined all the time.
fn builder() -> WatchSetBuilder {
    WatchSetBuilder::new().hasher(HASHER).exact_up_to(300).shard_keys(16)
}

struct Watched<S: KeyStore> {
    set: WatchSet<S>,
    model: HashMap<Vec<u8>, u64>,
    family: Family,
    probe: Probe,
    /// Number of checks in which the set was exact, and number of checks in which it was not.
    seen: [u64; 2],
}

impl<S: KeyStore<Error: Debug + PartialEq>> Watched<S> {
    fn new(set: WatchSet<S>, family: Family) -> Self {
        Self { set, model: HashMap::new(), family, probe: Probe::new(), seen: [0; 2] }
    }

    fn add(&mut self, index: u64) {
        let key = self.family.key(1, index);
        let added = self.set.add(&key);
        let count = self.model.entry(key).or_default();
        *count += 1;
        assert_eq!(added, Ok(if *count == 1 { Added::New } else { Added::Again }));
    }

    fn remove(&mut self, index: u64) {
        let key = self.family.key(1, index);
        let removed = self.set.remove(&key);
        match self.model.get_mut(&key) {
            None => assert_eq!(removed, Err(WatchError::Unknown)),
            Some(1) => {
                self.model.remove(&key);
                assert_eq!(removed, Ok(Removed::Gone));
            }
            Some(count) => {
                *count -= 1;
                assert_eq!(removed, Ok(Removed::StillHeld));
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Add(index) => self.add(*index),
            Step::Remove(index) => self.remove(*index),
            Step::AddMany(from, n) => (*from..from + n).for_each(|index| self.add(index)),
            Step::RemoveMany(from, n) => (*from..from + n).for_each(|index| self.remove(index)),
            Step::Rebuild => assert_eq!(self.set.rebuild(), Ok(())),
        }
        self.check();
    }

    fn check(&mut self) {
        let Self { set, model, family, probe, seen } = self;
        assert_eq!(set.len(), model.len() as u64);
        assert_eq!(set.is_empty(), model.is_empty());
        let is_exact = set.is_exact();
        seen[usize::from(!is_exact)] += 1;
        // Query all members and as many strangers, mixed.
        let mut keys: Vec<_> = model.keys().cloned().collect();
        keys.extend((0..keys.len() as u64).map(|index| family.key(2, (1 << 40) + index)));
        keys.sort_unstable_by_key(|key| HASHER.hash::<u64>(key).rotate_left(13));
        let answers: Vec<_> = keys.iter().map(|key| set.ask(key)).collect();
        for (key, answer) in keys.iter().zip(&answers) {
            match (is_exact, model.contains_key(key)) {
                (true, is_member) => assert_eq!(*answer == WatchAnswer::Yes, is_member),
                (false, true) => assert_ne!(*answer, WatchAnswer::No),
                (false, false) => assert_ne!(*answer, WatchAnswer::Yes),
            }
            assert_eq!(set.contains(key), answer.may_contain());
            assert_eq!(set.confirm(key), Ok(model.contains_key(key)));
        }
        let hits = |expected: &dyn Fn(usize) -> Option<bool>| -> Vec<(usize, bool)> {
            let hit = |index| expected(index).map(|is_certain| (index, is_certain));
            (0..keys.len()).filter_map(hit).collect()
        };
        let asked =
            hits(&|index| answers[index].may_contain().then(|| answers[index].is_certain()));
        assert_eq!(pairs(set.contains_batch(&keys, probe)), asked);
        let members = hits(&|index| model.contains_key(&keys[index]).then_some(true));
        assert_eq!(pairs(set.confirm_batch(&keys, probe).expect("a disk")), members);
    }
}

fn pairs(hits: &[Hit]) -> Vec<(usize, bool)> {
    hits.iter().map(|hit| (hit.index, hit.is_certain)).collect()
}

/// Runs sequences on sets of one kind. If `is_ever_exact`, the sets must have been exact at times,
/// and inexact at other times.
fn run<S: KeyStore<Error: Debug + PartialEq>>(set: impl Fn() -> WatchSet<S>, is_ever_exact: bool) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(12));
    let seen = std::cell::Cell::new([0; 2]);
    let families = (0..Family::ALL.len()).prop_map(|at| Family::ALL[at]);
    let law = |(steps, family): (Vec<Step>, Family)| {
        // Strangers have indices beyond all members, because the sequential family ignores the
        // seed.
        let mut watched = Watched::new(set(), family);
        watched.check();
        for step in &steps {
            watched.step(step);
        }
        let [exact, filtered] = seen.get();
        seen.set([exact + watched.seen[0], filtered + watched.seen[1]]);
        Ok(())
    };
    runner.run(&(steps(), families), law).unwrap_or_else(|error| panic!("{error}"));
    let [exact, filtered] = seen.get();
    assert!(filtered > 20 && (exact > 20) == is_ever_exact, "{exact} exact, {filtered} not");
}

#[test]
fn kept_keys_obey_the_model() {
    run(|| builder().empty(), true);
    run(|| builder().without_gate().empty(), true);
}

#[test]
fn keys_of_a_store_obey_the_model() {
    run(|| builder().over(Tree::default(), |_| ()).expect("an empty set"), true);
    run(|| builder().over(Tree::showing(Shows::AllKeys), |_| ()).expect("an empty set"), true);
}

#[test]
fn hashes_of_a_store_obey_the_model() {
    let set = || builder().over(Tree::showing(Shows::Hashes), |_| ()).expect("an empty set");
    run(set, true);
}

#[test]
fn a_set_grows_a_hundredfold_and_shrinks_again() {
    let set = WatchSetBuilder::new().hasher(HASHER).exact_up_to(1_000).shard_keys(200).empty();
    let keys = Family::WitnessScripts.keys(1, 0..100_000);
    let check = |present: &[Vec<u8>], absent: &[Vec<u8>]| {
        assert!(present.iter().all(|key| set.contains(key)));
        let mut probe = Probe::new();
        assert_eq!(set.contains_batch(present, &mut probe).len(), present.len());
        assert!(absent.iter().filter(|key| set.contains(key)).count() <= absent.len() / 1_000);
        assert_eq!(set.len(), present.len() as u64);
    };
    let mut parts = 0;
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(set.add(key), Ok(Added::New));
        assert_eq!(set.is_exact(), at < 1_000, "key {at}");
        if at % 9_973 == 0 {
            check(&keys[..=at], &keys[at + 1..]);
            let now = set.stats().shards;
            assert!(now >= parts);
            parts = now;
        }
    }
    let stats = set.stats();
    assert!(stats.shards >= 300 && stats.stashed < 100, "{stats}");
    for shard in set.shard_stats() {
        assert!(shard.keys <= 334 && shard.load <= 0.94 && shard.keys <= shard.capacity);
    }
    for (at, key) in keys.iter().enumerate().rev() {
        assert_eq!(set.remove(key), Ok(Removed::Gone));
        if at % 9_973 == 0 {
            check(&keys[..at], &keys[at..]);
        }
    }
    // Few shards and no keys are left. The set is exact again only after a rebuild.
    let stats = set.stats();
    assert!(stats.shards == 64 && stats.total_bits < 1_500_000, "{stats}");
    assert!(!set.is_exact() && set.key_bytes() < 200_000, "{} bytes", set.key_bytes());
    set.rebuild().expect("memory");
    assert!(set.is_exact());
    check(&[], &keys);
}

/// Returns every key of a set, with its reference count.
pub(crate) fn contents(set: &WatchSet) -> Vec<(Vec<u8>, u64)> {
    let mut keys = Vec::new();
    set.for_each_key(|key, count| keys.push((key.to_vec(), count)));
    keys
}

#[test]
fn sets_are_made_of_many_keys_at_once() {
    let keys = Family::LastBytes.keys(1, 0..30_000);
    let twice = || keys.iter().chain(&keys[..1_000]);
    let mut reports = Vec::new();
    let builder = builder().shard_keys(300);
    let loaded = builder.from_keys(twice(), |report| reports.push(report)).expect("memory");
    assert_eq!(reports.len(), 1 + 64, "one report after the keys, and one for each stripe");
    assert_eq!(
        [reports[0], reports[64]],
        [
            chainsieve_filter::watch_set::Progress::Keys { taken: 31_000 },
            chainsieve_filter::watch_set::Progress::Filters { done: 30_000, of: 30_000 }
        ]
    );
    let over = builder.over(Tree::of(keys.iter().map(Vec::as_slice)), |_| ()).expect("memory");
    assert_eq!([loaded.len(), over.len()], [30_000; 2]);
    assert!(keys.iter().all(|key| loaded.contains(key) && over.contains(key)));
    assert_eq!([loaded.count(&keys[0]), loaded.count(&keys[1_000]), loaded.count(b"?")], [2, 1, 0]);
    // Built in one pass, the shards have the same sizes as those of a set that has grown.
    for shard in loaded.shard_stats() {
        assert!(shard.keys <= 500 && shard.load <= 0.94 && shard.load > 0.7, "{shard:?}");
    }
    let mut all = contents(&loaded);
    all.sort_unstable();
    let counts = keys.iter().enumerate().map(|(at, key)| (key.clone(), 1 + u64::from(at < 1_000)));
    let mut expected: Vec<_> = counts.collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
    loaded.clear().expect("memory");
    assert!(loaded.is_empty() && loaded.is_exact() && !loaded.contains(&keys[0]));
    assert!(contents(&loaded).is_empty());
}

#[test]
fn exports_answer_for_the_keys() {
    let keys = Family::WitnessScripts.keys(1, 0..5_000);
    let set = builder().from_keys(&keys, |_| ()).expect("memory");
    let public = KeyHasher::siphash_1_3([8, 9]);
    let exposure = Exposure::AnyoneCanTestScripts;
    let small: BinaryFuse8 = set.export_public(public, exposure).expect("a filter");
    let large: BinaryFuse16 = set.export_public(public, exposure).expect("a filter");
    assert!(keys.iter().all(|key| small.contains(key) && large.contains(key)));
    assert_eq!([small.len(), large.len()], [5_000; 2]);
    assert_eq!([*small.hasher(), *large.hasher()], [public; 2]);
    let strangers = Family::WitnessScripts.keys(2, 0..20_000);
    let hits = strangers.iter().filter(|key| small.contains(key)).count();
    assert!((20..200).contains(&hits), "{hits} hits of 20,000, at a rate of 1/256");
    let secret = set.export_public::<u8>(KeyHasher::random(), exposure);
    assert_eq!(secret.err(), Some(WatchError::SecretKey));
}

#[test]
fn a_store_of_hashes_can_only_export_them() {
    let tree = Tree::showing(Shows::Hashes);
    let set = builder().over(tree, |_| ()).expect("memory");
    let keys = Family::Random.keys(1, 0..500);
    for key in &keys {
        _ = set.add(key).expect("memory");
    }
    let exposure = Exposure::AnyoneCanTestScripts;
    let other = set.export_public::<u16>(KeyHasher::xxh3(1), exposure);
    assert_eq!(other.err(), Some(WatchError::NoKeys));
    let same: BinaryFuse16 = set.export_public(HASHER, exposure).expect("hashes");
    assert!(keys.iter().all(|key| same.contains(key)));
}
