//! Extreme sizes, rates and counts: each call returns a result or an error quickly, and never
//! panics.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use chainsieve_filter::bloom::BloomFilter;
use chainsieve_filter::cuckoo::CuckooFilter16;
use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::sizing::classic::{self, Rolling, Slices};
use chainsieve_filter::sizing::{self, Cost, blocked, cuckoo};
use chainsieve_filter::split_block::{SplitBlockFilter256, SplitBlockFilter512};
use chainsieve_filter::textbook::{CountingBloomFilter, PartitionedBloomFilter};
use chainsieve_filter::{Filter, KeyHasher, Kind};

const HASHER: KeyHasher = KeyHasher::xxh3(7);
/// The greatest rate below one.
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
const COUNTS: [u64; 9] = [0, 1, 2, 1 << 20, 1 << 40, 1 << 49, 1 << 56, 1 << 60, u64::MAX];
const RATES: [f64; 12] = [
    f64::NAN,
    f64::INFINITY,
    -1.0,
    0.0,
    1e-300,
    f64::MIN_POSITIVE,
    1e-30,
    1e-7,
    0.5,
    0.999_999,
    ALMOST_ONE,
    1.0,
];

/// Returns the result of `compute`. Panics if the computation takes longer than 30 seconds, because
/// no search for a size takes so long.
#[track_caller]
fn soon<T: Send + 'static>(what: &str, compute: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(compute()));
    receive.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[test]
fn sizes_of_extremes_are_found_or_refused_soon() {
    type Sizing = Box<dyn Fn(u64, f64) -> Result<Cost, BuildError> + Send + Sync>;
    let of_kind = |kind: Kind| (kind.name(), Box::new(move |n, fpr| kind.cost(n, fpr)) as Sizing);
    let others: [(&str, Sizing); 2] =
        [("exact table", Box::new(sizing::exact_table)), ("floor", Box::new(sizing::floor))];
    for (name, sized) in Kind::ALL.map(of_kind).into_iter().chain(others) {
        let sized = Arc::new(sized);
        for fpr in RATES {
            for n in COUNTS {
                let name = format!("{name}, {n} keys at {fpr:e}");
                let sized = Arc::clone(&sized);
                let cost = soon(&name, move || sized(n, fpr));
                let is_rate = fpr > 0.0 && fpr < 1.0;
                match cost {
                    Ok(cost) => {
                        assert!(is_rate && cost.fpr <= fpr, "{name}: {cost:?}");
                        assert!(cost.bits_per_key >= 0.0, "{name}: {cost:?}");
                    }
                    Err(BuildError::Fpr { .. }) => assert!(!is_rate, "{name}"),
                    Err(_) => assert!(is_rate, "{name}"),
                }
            }
        }
    }
}

#[test]
fn rates_of_extremes_are_rates() {
    let is_rate = |name: &str, rate: f64| assert!((0.0..=1.0).contains(&rate), "{name}: {rate}");
    let small = [0, 1, 2, 3, 1 << 10, 1 << 33];
    for n in COUNTS {
        for size in small.into_iter().chain(COUNTS) {
            let name = format!("{n} keys in {size}");
            let of_name = name.clone();
            soon(&name, move || {
                for hash_funcs in [0, 1, 2, 128, 129, 1 << 16, 1 << 30, u32::MAX] {
                    is_rate(&of_name, classic::fpr(n, size, hash_funcs));
                    let sliced = Slices { slice_bits: size, hash_funcs };
                    is_rate(&of_name, classic::slices_fpr(n, sliced));
                }
                for word_bits in [0, 1, 32, 64, u32::MAX] {
                    is_rate(&of_name, blocked::split_fpr(n, size, word_bits));
                }
                is_rate(&of_name, blocked::fpr(n, size, 128, 9));
                is_rate(&of_name, cuckoo::fpr(n, size, 16));
                is_rate(&of_name, classic::fill(n, size, u32::MAX));
            });
        }
        let rolling = Rolling { num_places: 64, hash_funcs: 3, per_generation: n };
        is_rate("rolling", rolling.fpr());
    }
}

#[test]
fn filters_of_extremes_are_made_or_refused_soon() {
    for fpr in RATES {
        // All filters that are built here are small: memory is not what this test checks.
        for n in [0, 1, 1 << 60, u64::MAX] {
            if n > 1 && fpr == ALMOST_ONE {
                continue;
            }
            soon(&format!("{n} keys at {fpr:e}"), move || {
                let is_rate = fpr > 0.0 && fpr < 1.0;
                let errors = [
                    <BloomFilter>::with_fpr(n, fpr, HASHER).err(),
                    BloomFilter::<u128>::with_fpr(n, fpr, HASHER).err(),
                    <PartitionedBloomFilter>::with_fpr(n, fpr, HASHER).err(),
                    SplitBlockFilter512::with_fpr(n, fpr, HASHER).err(),
                    SplitBlockFilter256::with_fpr(n, fpr, HASHER).err(),
                    CountingBloomFilter::with_fpr(n, fpr, HASHER).err(),
                    CuckooFilter16::with_fpr(n, fpr, HASHER).err(),
                    RollingBloomFilter::with_fpr(n, fpr, HASHER).err(),
                    ScalableBloomFilter::with_fpr(n, fpr, HASHER).err(),
                ];
                for error in errors {
                    let is_refused = matches!(error, Some(BuildError::Fpr { .. }));
                    assert!(!is_refused || !is_rate, "{n} keys at {fpr:e}");
                    let is_right = if n <= 1 { is_refused != is_rate } else { error.is_some() };
                    assert!(is_right, "{n} keys at {fpr:e}: {error:?}");
                }
                let ribbon = RibbonFilter::build(&[1, 2, 3], fpr, HASHER).err();
                assert_eq!(matches!(ribbon, Some(BuildError::Fpr { .. })), !is_rate, "{fpr:e}");
            });
        }
    }
}

/// `with_fpr` promises a rate for every hash width. Rates that even 128-bit hashes can't reach are
/// refused.
#[test]
fn hashes_of_128_bits_end_as_well() {
    for (n, fpr) in [(1_000, 1e-36), (100_000, 1e-34), (1, 1e-38)] {
        let filter = BloomFilter::<u128>::with_fpr(n, fpr, HASHER);
        assert!(
            matches!(filter, Err(BuildError::HashTooShort { bits: 128, .. })),
            "{n} keys at {fpr:e}: {filter:?}"
        );
        let filter = PartitionedBloomFilter::<u128>::with_fpr(n, fpr, HASHER);
        assert!(matches!(filter, Err(BuildError::HashTooShort { bits: 128, .. })), "{filter:?}");
    }
    assert!(BloomFilter::<u128>::with_fpr(1_000, 1e-33, HASHER).is_ok());
}

/// The best number of counters per key exceeds the maximum at these rates. Then a filter with fewer
/// counters per key is built.
#[test]
fn counting_filters_of_low_rates() {
    for (n, fpr) in [(1_000, 1e-7), (1_000, 1e-9), (100, 1e-12)] {
        let filter = CountingBloomFilter::with_fpr(n, fpr, HASHER).expect("a filter");
        let rate = blocked::fpr(n, filter.num_blocks(), 128, filter.hash_funcs());
        assert!(rate <= fpr, "{n} keys at {fpr:e}: {rate:e}");
        let cost = Kind::Counting.cost(n, fpr).expect("a cost");
        assert_eq!(cost.num_bits, filter.num_bits(), "{n} keys at {fpr:e}");
        assert_eq!(cost.hash_funcs, Some(filter.hash_funcs()), "{n} keys at {fpr:e}");
    }
}
