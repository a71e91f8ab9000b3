//! Count-Min sketches: estimates are never too low, and are too high as rarely as theory predicts.
//! The encoded bytes are also tested.

use std::collections::HashMap;

use chainsieve_filter::count_min::{CountMin, UpdateRule};
use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::membership::MergeError;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::{Filter, Insert, KeyHasher, Merge, Portable};

use testkit::{assert_rate, split_mix};

use crate::golden;
use crate::model::Laws;

const HASHER: KeyHasher = KeyHasher::xxh3(7);
const UPDATES: [UpdateRule; 2] = [UpdateRule::Plain, UpdateRule::Conservative];

fn sketch(width: u64, depth: u32, update: UpdateRule) -> CountMin {
    CountMin::with_size(width, depth, update, HASHER).expect("a size")
}

/// Rows of counters as the type's documentation describes them, without packing and without hashing
/// in advance.
struct Oracle {
    rows: Vec<Vec<u32>>,
    update: UpdateRule,
}

impl Oracle {
    /// Returns the position of a key's counter in each row: `SplitMix64` started from the key's
    /// hash, scaled to the width.
    fn places(&self, key: u64) -> Vec<usize> {
        let hash: u64 = HASHER.hash(&key.to_le_bytes());
        let place = |(row, counters): (u64, &Vec<u32>)| {
            let mut x = hash.wrapping_add((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
            x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            x ^= x >> 33;
            usize::try_from(u128::from(x) * counters.len() as u128 >> 64).expect("a place")
        };
        (0..).zip(&self.rows).map(place).collect()
    }

    fn estimate(&self, key: u64) -> u32 {
        let places = self.places(key).into_iter().zip(&self.rows);
        places.map(|(place, row)| row[place]).min().expect("a row")
    }

    fn add(&mut self, key: u64, n: u32) {
        let (places, raised) = (self.places(key), self.estimate(key).saturating_add(n));
        for (place, row) in places.into_iter().zip(&mut self.rows) {
            row[place] = match self.update {
                UpdateRule::Plain => row[place].saturating_add(n),
                UpdateRule::Conservative => row[place].max(raised),
                other => panic!("{other:?}"),
            };
        }
    }
}

/// Returns keys and counts of a stream in which some keys are far more frequent than others.
fn stream(seed: u64, len: u64) -> impl Iterator<Item = (u64, u32)> {
    (0..len).map(move |at| {
        let draw = split_mix(seed << 32 | at);
        let key = (draw % 1_000) * (draw >> 20 & 7) / 7;
        (key, u32::from(draw.to_le_bytes()[7] % 4))
    })
}

#[test]
fn sequences_of_operations_lose_no_key() {
    for update in UPDATES {
        for (width, depth) in [(1, 1), (37, 3), (1_000, 5)] {
            Laws::new(move || sketch(width, depth, update)).merging().portable().run(24);
        }
    }
}

#[test]
fn estimates_are_the_oracles_and_never_too_low() {
    for update in UPDATES {
        for (width, depth) in [(1, 1), (50, 1), (97, 4), (500, 7), (2_000, 5)] {
            let mut ours = sketch(width, depth, update);
            let row = vec![0; usize::try_from(width).expect("small")];
            let mut oracle = Oracle { rows: vec![row; depth as usize], update };
            let mut exact: HashMap<u64, u32> = HashMap::new();
            for (key, n) in stream(width, 3_000) {
                let estimate = ours.add(&key.to_le_bytes(), n);
                oracle.add(key, n);
                *exact.entry(key).or_default() += n;
                assert_eq!(estimate, oracle.estimate(key), "after an addition");
            }
            assert_eq!(ours.total(), exact.values().copied().map(u64::from).sum::<u64>());
            for key in 0..1_200_u64 {
                let estimate = ours.estimate(&key.to_le_bytes());
                assert_eq!(estimate, oracle.estimate(key), "{width} by {depth}, {update:?}");
                assert!(estimate >= exact.get(&key).copied().unwrap_or_default(), "key {key}");
            }
        }
    }
}

/// Returns the probability that a Poisson variable is at least `least`.
fn poisson_tail(mean: f64, least: u32) -> f64 {
    let chance = |i: u32| {
        let i = f64::from(i);
        (i * mean.ln() - mean - libm::lgamma(i + 1.0)).exp()
    };
    1.0 - (0..least).map(chance).sum::<f64>()
}

/// 5,000 distinct keys in 3 rows of 1,000 counters: a stranger's counter in each row is Poisson
/// distributed with mean 5, and its estimate is the lowest of the three. The test uses 40 sketches
/// with 10,000 strangers each.
#[test]
fn strangers_are_too_high_as_often_as_theory_says() {
    let (mut at_least, mut strangers) = ([0_u64; 9], 0_u64);
    for seed in 0..40 {
        let hasher = KeyHasher::xxh3(seed);
        let mut ours = CountMin::with_size(1_000, 3, UpdateRule::Plain, hasher).expect("a size");
        for key in 0..5_000_u64 {
            ours.add(&key.to_le_bytes(), 1);
        }
        // Check the share of counters that are not zero, and the false-positive rate that this
        // sketch computes from the share.
        let occupied = (ours.fill() * 3_000.0).round();
        let fill = 1.0 - (5_000.0 * (-0.001_f64).ln_1p()).exp();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        assert_rate("fill", fill, occupied as u64, 3_000);
        let len = ours.estimated_len().expect("not full");
        assert!((4_500.0..5_500.0).contains(&len), "{len}");
        let mut hits = 0;
        for key in 0..10_000_u64 {
            let estimate = ours.estimate(&(1 << 40 | key).to_le_bytes());
            strangers += 1;
            hits += u64::from(estimate > 0);
            for (least, count) in (0..).zip(&mut at_least) {
                *count += u64::from(estimate >= least);
            }
        }
        assert_rate("not zero", ours.expected_fpr(), hits, 10_000);
    }
    for (least, count) in (0..).zip(at_least) {
        let expected = poisson_tail(5.0, least).powi(3);
        let share = count as f64 / strangers as f64;
        // The share varies by about 5 % between single sketches, and by 1 % for the mean of 40.
        assert!((0.95..1.05).contains(&(share / expected)), "{least}: {share}, {expected}");
    }
}

/// The bound that the type promises: of 20,000 estimates, at most a share of `δ` is too high by
/// more than `ε` times the total. With rows one tenth as wide, the bound is broken.
#[test]
fn the_error_is_within_its_bound() {
    for update in UPDATES {
        for (epsilon, delta) in [(0.001, 0.05), (0.002, 0.3)] {
            let mut ours = CountMin::with_error(epsilon, delta, update, HASHER).expect("a size");
            let mut narrow = sketch(ours.width() / 10, ours.depth(), update);
            (0..20_000_u64).for_each(|key| {
                ours.add(&key.to_le_bytes(), 1);
                narrow.add(&key.to_le_bytes(), 1);
            });
            assert!(ours.error_bound() <= epsilon * 20_000.0 && ours.total() == 20_000);
            assert!(ours.error_bound() > epsilon * 20_000.0 * 0.99, "whole counters");
            let too_high = |sketch: &CountMin| {
                let error = |key: u64| f64::from(sketch.estimate(&key.to_le_bytes()) - 1);
                (0..20_000).filter(|key| error(*key) > ours.error_bound()).count() as f64
            };
            assert!(too_high(&ours) <= delta * 20_000.0, "{}", too_high(&ours));
            assert!(too_high(&narrow) > delta * 20_000.0, "{}", too_high(&narrow));
        }
    }
}

/// Keys whose counts are just above the bound make a stranger's error as likely as possible. In
/// each row the chance of an error above the bound is 1 - (1 - 1/272)^90 = 28 %, and theory allows
/// 1/e.
#[test]
fn errors_are_nearly_as_likely_as_the_theory_allows() {
    for update in UPDATES {
        let mut ours = CountMin::with_error(0.01, 0.05, update, HASHER).expect("a size");
        assert_eq!((ours.width(), ours.depth()), (272, 3));
        let mut a_row_less = sketch(272, 2, update);
        for key in 0..90_u64 {
            ours.add(&key.to_le_bytes(), 1_000);
            a_row_less.add(&key.to_le_bytes(), 1_000);
        }
        let bound = ours.error_bound();
        assert!(bound < 1_000.0, "{bound}");
        let share = |sketch: &CountMin| {
            let strangers = 1_000..101_000_u64;
            let too_high = |key: &u64| f64::from(sketch.estimate(&key.to_le_bytes())) > bound;
            strangers.filter(too_high).count() as f64 / 100_000.0
        };
        assert!((0.01..=0.05).contains(&share(&ours)), "{}", share(&ours));
        assert!(share(&a_row_less) > 0.05, "{}", share(&a_row_less));
    }
}

#[test]
fn conservative_estimates_are_lower_and_no_lower_than_the_count() {
    let (mut plain, mut conservative) =
        (sketch(300, 4, UpdateRule::Plain), sketch(300, 4, UpdateRule::Conservative));
    let mut exact: HashMap<u64, u32> = HashMap::new();
    for (key, n) in stream(3, 20_000) {
        plain.add(&key.to_le_bytes(), n);
        conservative.add(&key.to_le_bytes(), n);
        *exact.entry(key).or_default() += n;
    }
    let mut errors = [0_u64; 2];
    for (key, count) in exact {
        let [low, high] = [&conservative, &plain].map(|all| all.estimate(&key.to_le_bytes()));
        assert!(count <= low && low <= high, "{key}: {count}, {low}, {high}");
        errors[0] += u64::from(low - count);
        errors[1] += u64::from(high - count);
    }
    assert!(errors[0] > 0 && errors[0] * 2 < errors[1], "{errors:?}");
}

#[test]
fn a_plain_merge_is_the_sketch_of_both_streams() {
    for (width, depth) in [(1, 1), (97, 4), (1_000, 5)] {
        let [mut ours, mut theirs, mut both] = [(); 3].map(|()| sketch(width, depth, UPDATES[0]));
        for (key, n) in stream(1, 2_000) {
            ours.add(&key.to_le_bytes(), n);
            both.add(&key.to_le_bytes(), n);
        }
        for (key, n) in stream(2, 2_000) {
            theirs.add(&key.to_le_bytes(), n);
            both.add(&key.to_le_bytes(), n);
        }
        ours.merge(&theirs).expect("the same shape");
        assert_eq!(ours, both);
    }
}

/// A conservative merge differs from the sketch of both streams. Each estimate of the merged sketch
/// lies between the true count and the estimate with plain updates.
#[test]
fn a_conservative_merge_stays_an_upper_bound() {
    let [mut ours, mut theirs, mut both] = [(); 3].map(|()| sketch(200, 4, UPDATES[1]));
    let mut plain = sketch(200, 4, UpdateRule::Plain);
    let mut exact: HashMap<u64, u32> = HashMap::new();
    for (seed, half) in [(1, &mut ours), (2, &mut theirs)] {
        for (key, n) in stream(seed, 5_000) {
            half.add(&key.to_le_bytes(), n);
            both.add(&key.to_le_bytes(), n);
            plain.add(&key.to_le_bytes(), n);
            *exact.entry(key).or_default() += n;
        }
    }
    ours.merge(&theirs).expect("the same shape");
    assert_eq!(ours.total(), both.total());
    let mut lost = 0;
    for (key, count) in exact {
        let [one, merged, most] =
            [&both, &ours, &plain].map(|sketch| sketch.estimate(&key.to_le_bytes()));
        assert!(count <= merged && merged <= most, "{key}: {count}, {merged}, {most}");
        lost += i64::from(merged) - i64::from(one);
    }
    assert!(lost > 0, "a merge should raise estimates: {lost}");
}

#[test]
fn others_are_not_merged() {
    let mut ours = sketch(100, 3, UpdateRule::Plain);
    ours.add(b"key", 5);
    let before = ours.clone();
    let other_hasher =
        CountMin::with_size(100, 3, UpdateRule::Plain, KeyHasher::xxh3(8)).expect("a size");
    assert_eq!(ours.merge(&other_hasher), Err(MergeError::Hasher));
    for other in [
        sketch(101, 3, UpdateRule::Plain),
        sketch(100, 4, UpdateRule::Plain),
        sketch(100, 3, UpdateRule::Conservative),
    ] {
        assert!(matches!(ours.merge(&other), Err(MergeError::Shape { .. })));
    }
    assert_eq!(ours, before);
}

#[test]
fn counters_stop_at_the_end() {
    for update in UPDATES {
        let mut ours = sketch(10, 2, update);
        assert_eq!(ours.add(b"key", u32::MAX - 1), u32::MAX - 1);
        assert_eq!((ours.add(b"key", 7), ours.add(b"key", 0)), (u32::MAX, u32::MAX));
        assert_eq!(ours.total(), u64::from(u32::MAX) + 6);
        let mut twice = ours.clone();
        twice.merge(&ours).expect("the same shape");
        assert_eq!((twice.estimate(b"key"), twice.total()), (u32::MAX, ours.total() * 2));
        for sketch in [ours, twice] {
            let bytes = sketch.encode().expect("no secret");
            assert_eq!(CountMin::decode(&bytes).as_ref(), Ok(&sketch));
        }
    }
}

#[test]
fn sizes_follow_from_the_errors() {
    let sized = |epsilon, delta| CountMin::with_error(epsilon, delta, UpdateRule::Plain, HASHER);
    for (epsilon, delta, width, depth) in
        [(0.01, 0.01, 272, 5), (0.001, 0.001, 2_719, 7), (0.9, 0.9, 4, 1), (1e-4, 1e-4, 27_183, 10)]
    {
        let sketch = sized(epsilon, delta).expect("a size");
        assert_eq!((sketch.width(), sketch.depth()), (width, depth));
        assert_eq!(sketch.num_bits(), width * u64::from(depth) * 32);
    }
    for wrong in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        for result in [sized(wrong, 0.1), sized(0.1, wrong)] {
            assert!(matches!(result, Err(BuildError::Share { .. })), "{wrong}: {result:?}");
        }
    }
    for result in [
        sized(1e-10, 0.1),
        sized(f64::MIN_POSITIVE, 0.1),
        sized(0.1, 1e-60),
        sized(0.1, f64::MIN_POSITIVE),
        CountMin::with_size(0, 1, UpdateRule::Plain, HASHER),
        CountMin::with_size(u64::MAX, 1, UpdateRule::Plain, HASHER),
        CountMin::with_size(1, 0, UpdateRule::Plain, HASHER),
        CountMin::with_size(1, 129, UpdateRule::Plain, HASHER),
    ] {
        assert!(matches!(result, Err(BuildError::Parameter { .. })), "{result:?}");
    }
}

fn golden() -> CountMin {
    let sketch = CountMin::with_size(269, 5, UpdateRule::Conservative, golden::HASHER);
    let mut sketch = sketch.expect("a size");
    for (key, n) in (0..100_u64).zip((1..8).cycle()) {
        sketch.add(&key.to_le_bytes(), n);
    }
    sketch
}

#[test]
fn golden_bytes() {
    golden::check("count_min", &golden());
    assert_eq!((golden().total(), golden().estimate(&6_u64.to_le_bytes())), (395, 7));
}

#[test]
fn hostile_bytes() {
    let bytes = golden().encode().expect("a key of ours");
    let decode = |params| CountMin::decode(&golden::with_params(&bytes, params)).map(drop);
    let conservative = 1 << 32;
    let params = [
        [0, 5 | conservative, 0],
        [(1 << 32) + 1, 5 | conservative, 0],
        [u64::MAX, 5 | conservative, 0],
        [269, conservative, 0],
        [269, 0x81 | conservative, 0],
        [269, 5 | conservative << 1, 0],
        [269, u64::MAX, 0],
        [269, 5 | conservative, 1],
        // The header claims plain updates, which count every addition in every row. The counters do
        // not agree with plain updates.
        [269, 5, 0],
    ];
    let vast = [[1 << 32, 5, 0], [269, 128, 0], [1 << 32, 0x80 | conservative, 0]];
    golden::refuses::<CountMin>(&bytes, &params, &[], &vast);
    assert!(matches!(decode([269, 4 | conservative, 0]), Err(DecodeError::TooLong { .. })));
    // The header claims wrong sums of the counts, or bits after the last counter are set.
    let changed = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        golden::mend(&mut bytes);
        CountMin::decode(&bytes).map(|sketch| sketch.total())
    };
    assert_eq!(changed(32, 396), Ok(396), "a conservative sketch may have counted more");
    for (at, value) in [(32, 0), (32, 100), (64, u32::MAX)] {
        let error = changed(at, value).expect_err("too few counts");
        assert!(matches!(error, DecodeError::Parameter { .. }), "{at}: {error:?}");
    }
    let behind = bytes.len() - 12;
    assert!(matches!(changed(behind, 1), Err(DecodeError::NotZero(_))));
    let none = CountMin::with_size(3, 1, UpdateRule::Conservative, HASHER).expect("a size");
    let bytes = golden::with_word(&none.encode().expect("no secret"), 32, 1);
    assert!(matches!(CountMin::decode(&bytes), Err(DecodeError::Parameter { .. })));
}

#[test]
fn a_sketch_begins_anew() {
    let mut ours = sketch(50, 3, UpdateRule::Conservative);
    assert_eq!((ours.insert(b"key"), ours.insert(b"key")), (Ok(true), Ok(false)));
    assert_eq!((ours.estimate(b"key"), ours.is_empty()), (2, false));
    ours.clear();
    assert_eq!(ours, sketch(50, 3, UpdateRule::Conservative));
}
