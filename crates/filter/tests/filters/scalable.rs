//! Scalable filters: the compound rate after growth, stages, limits, bytes.

use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::sizing::classic;
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};

use crate::golden;
use crate::key_families::{Family, SEEDS};
use crate::model::Laws;
use testkit::assert_rate;

fn scalable(capacity: u64, fpr: f64, seed: u64) -> ScalableBloomFilter {
    ScalableBloomFilter::with_fpr(capacity, fpr, KeyHasher::xxh3(seed)).expect("a size")
}

/// Returns the compound rate of all stages, by the exact formula and the keys of each stage.
fn rate_of_stages(filter: &ScalableBloomFilter) -> f64 {
    classic::compound_fpr(filter.stages().map(|(len, _, size)| classic::slices_fpr(len, size)))
}

#[test]
fn laws() {
    for (capacity, fpr) in [(1, 0.1), (20, 0.01), (5_000, 1e-5)] {
        let make = move || {
            let hasher = KeyHasher::siphash_1_3([5, capacity]);
            ScalableBloomFilter::with_fpr(capacity, fpr, hasher).expect("a size")
        };
        Laws::new(make).counting_new_keys_only().portable().run(60);
        // A filter that is full after 7 or 140 keys.
        let bounded = move || make().with_max_stages(3);
        Laws::new(bounded).counting_new_keys_only().portable().run(40);
    }
}

/// After growth by a factor of a hundred and more, the rate matches the formula of the stages, and
/// is at most the rate promised.
#[test]
fn the_compound_rate_holds() {
    // The first rate is high enough to show whether the stages are independent.
    let cases = [
        (500, 0.6, 150, 20_000),
        (100, 0.02, 100, 80_000),
        (1_000, 0.01, 127, 100_000),
        (300, 1e-3, 200, 500_000),
    ];
    for (capacity, fpr, growth, probes) in cases {
        for family in Family::some() {
            let (mut hits, mut total, mut expected, mut design) = (0, 0, 0.0, 0.0);
            for seed in SEEDS {
                let mut filter = scalable(capacity, fpr, seed);
                for key in family.keys(seed, 0..capacity * growth) {
                    filter.insert(&key).expect("room");
                }
                assert!(filter.num_stages() >= 7, "{} stages", filter.num_stages());
                let formula = rate_of_stages(&filter);
                assert!(formula <= fpr, "the formula gives {formula}, above {fpr}");
                let strangers = (1 << 40)..(1 << 40) + probes / 4;
                let found = strangers.filter(|at| filter.contains(&family.key(seed, *at)));
                hits += found.count() as u64;
                total += probes / 4;
                expected += filter.expected_fpr() / SEEDS.len() as f64;
                design += formula / SEEDS.len() as f64;
            }
            let name = format!("{family:?}, {growth} times {capacity} at {fpr}");
            assert_rate(&name, expected, hits, total);
            // The rates computed from the bits of single filters differ from the formula, but the
            // mean of ten seeds hardly differs.
            let off = (expected / design - 1.0).abs();
            // The formula does not consider that keys which were false positives have set no bit.
            let tolerance = if fpr > 0.1 { 0.1 } else { 0.05 };
            assert!(off < tolerance, "{name}: {expected}, but the formula gives {design}");
            assert!(hits as f64 / total as f64 <= fpr, "{name}: {hits} of {total}");
        }
    }
}

/// With every possible stage full, the sum of the rates stays below the promised rate, and comes
/// close to it.
#[test]
fn the_bound_by_computation() {
    for fpr in [0.3, 0.01, 1e-3, 1e-6] {
        // Our rule, with the sizes that filters really have.
        let mut filter = scalable(64, fpr, 1);
        for at in 0..10_000_u64 {
            filter.insert(&at.to_le_bytes()).expect("room");
        }
        let full = |(_, capacity, size)| classic::slices_fpr(capacity, size);
        let ours = classic::compound_fpr(filter.stages().map(full));
        assert!(ours <= fpr && ours > fpr * 0.4, "{ours} of {fpr}");
        // Every stage that a filter can have.
        let every =
            (0..ScalableBloomFilter::MAX_STAGES).map(|stage| classic::stage_fpr(fpr, stage));
        let sum: f64 = every.sum();
        assert!(sum <= fpr && sum > fpr * 0.99, "{sum} of {fpr}");
    }
    // The rule of growable-bloom-filter: the first stage is sized for the whole rate, and each
    // further stage for 0.85 times the rate of the preceding stage. After a hundredfold growth by
    // doubling (seven stages), the total rate is over four times the promised rate. With further
    // stages it finally exceeds six times the promised rate.
    let theirs = |stages| {
        let rates = (0..stages).map(|stage| {
            let rate = 0.001 * 0.85_f64.powi(stage);
            classic::slices_fpr(
                1_000 << stage,
                classic::slices(1_000 << stage, rate).expect("size"),
            )
        });
        classic::compound_fpr(rates) / 0.001
    };
    let (first, grown, ever) = (theirs(1), theirs(7), theirs(24));
    assert!(first <= 1.0, "{first}");
    assert!((4.2..4.6).contains(&grown), "{grown} times the rate after growth");
    assert!((6.2..6.7).contains(&ever), "{ever} times the rate in the end");
}

#[test]
fn stages_double_and_tighten() {
    let mut filter = scalable(10, 0.01, 3);
    let mut inserted = 0;
    for at in 0..5_000_u64 {
        let before = filter.num_stages();
        let is_new = filter.insert(&at.to_le_bytes()).expect("room");
        inserted += u64::from(is_new);
        // A new stage starts only when the previous one is full, and no stage exceeds its capacity.
        let all: Vec<_> = filter.stages().collect();
        let (last, older) = all.split_last().expect("a stage");
        assert!(older.iter().all(|(len, capacity, _)| len == capacity));
        assert!(last.0 <= last.1 && filter.num_stages() - before <= 1);
        assert!(all.windows(2).all(|pair| pair[1].1 == 2 * pair[0].1));
        assert_eq!(filter.len(), inserted);
    }
    assert_eq!(filter.num_stages(), 9);
    let estimated = filter.estimated_len().expect("not full");
    assert!((estimated / inserted as f64 - 1.0).abs() < 0.03, "{estimated} of {inserted}");
    // Inserting the same key again uses no space.
    assert_eq!(filter.insert(&7_u64.to_le_bytes()), Ok(false));
    assert_eq!(filter.len(), inserted);
    filter.clear();
    assert_eq!(
        (filter.num_stages(), filter.len(), filter.num_bits()),
        (1, 0, scalable(10, 0.01, 3).num_bits())
    );
}

#[test]
fn full_changes_nothing() {
    let mut filter = scalable(4, 0.01, 3).with_max_stages(3);
    let mut kept = Vec::new();
    for at in 0..1_000_u64 {
        let before = filter.clone();
        match filter.insert(&at.to_le_bytes()) {
            Ok(true) => kept.push(at),
            Ok(false) => assert_eq!(filter, before),
            Err(full) => {
                assert_eq!((full.len, full.capacity), (28, 28));
                assert_eq!(filter, before);
            }
        }
    }
    assert_eq!(kept.len(), 28);
    assert!(kept.iter().all(|at| filter.contains(&at.to_le_bytes())));
    let hashes: Vec<u64> = (0..9_u64).map(|at| at << 40).collect();
    let mut filter = scalable(4, 1e-9, 3).with_max_stages(1);
    let full = filter.insert_batch(&hashes).expect_err("four places");
    assert_eq!((full.inserted, full.len), (4, 4));
    // A limit below the number of existing stages, and a limit above the maximum.
    assert!(scalable(4, 0.1, 1).with_max_stages(0).insert(b"key").is_ok());
    let mut many = scalable(1, 0.5, 1).with_max_stages(99);
    for at in 0..5_000_u64 {
        many.insert(&at.to_le_bytes()).expect("room");
    }
    assert!(many.num_stages() > 9);
}

#[test]
fn sizes_that_are_none() {
    let hasher = KeyHasher::xxh3(0);
    let made = ScalableBloomFilter::with_fpr(1_000_000, 1e-12, hasher);
    assert!(matches!(made, Err(BuildError::HashTooShort { .. })), "{made:?}");
    assert!(ScalableBloomFilter::with_fpr(u64::MAX, 0.01, hasher).is_err());
    // The filter is full when collisions of hashes would start to matter for the rate.
    let mut rare = scalable(1_000, 1e-13, 1);
    let end = (0..1_000_000_u64).find(|at| rare.insert(&at.to_le_bytes()).is_err());
    assert_eq!(end, Some(15_000));
}

fn golden() -> ScalableBloomFilter {
    golden::filled(ScalableBloomFilter::with_fpr(15, 0.01, golden::HASHER).expect("a size"))
}

#[test]
fn golden_bytes() {
    golden::check("scalable", &golden());
    assert_eq!(golden().num_stages(), 3);
    let filter =
        ScalableBloomFilter::decode(&golden().encode().expect("a key of ours")).expect("ours");
    // The decoded filter keeps growing exactly as the encoded one does.
    let (mut read, mut written) = (filter, golden());
    for at in 100..1_000_u64 {
        assert_eq!(read.insert(&at.to_le_bytes()), written.insert(&at.to_le_bytes()));
    }
    assert_eq!(read, written);
}

#[test]
fn hostile_bytes() {
    let bytes = golden().encode().expect("a key of ours");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let (fpr, num_stages, num_words) = (word(40), word(48), word(56));
    assert_eq!(num_stages, 3 | 24 << 32);
    let params = [
        [0, num_stages, num_words],
        [f64::NAN.to_bits(), num_stages, num_words],
        [1.0_f64.to_bits(), num_stages, num_words],
        // The header claims a lower rate than the one for which the stages were created.
        [1e-9_f64.to_bits(), num_stages, num_words],
        [fpr, 24 << 32, num_words],
        [fpr, 2 | 24 << 32, num_words],
        [fpr, 4 | 24 << 32, num_words],
        [fpr, 3 | 2 << 32, num_words],
        [fpr, 3 | 25 << 32, num_words],
        [fpr, u64::MAX, num_words],
        [fpr, num_stages, 0],
        [fpr, num_stages, 24],
        [fpr, num_stages, u64::MAX],
    ];
    // The entries of the stages start at bytes 64, 128 and 192: keys, capacity, bits per slice,
    // slices, zeros.
    let words = [
        (64, 14),
        (64, u64::MAX),
        (72, 0),
        (72, u64::MAX),
        (80, 0),
        (80, u64::MAX),
        (80, 1 << 47),
        (88, 0),
        (88, 3),
        (88, 129),
        (88, 1 << 32),
        (96, 1),
        (136, 31),
        (192, 0),
        (192, 61),
        (200, 1 << 63),
        (208, 1 << 40),
        (32, 99),
        (32, 101),
    ];
    let vast = [[fpr, num_stages, 1 << 48]];
    golden::refuses::<ScalableBloomFilter>(&bytes, &params, &words, &vast);
}
