//! Rates and estimates of BIP37 filters, from fixed seeds, with bounds on both sides of the
//! expected values.

use chainsieve::btc::bip37::{BloomFilter, UpdateMode};

use testkit::Rng;

/// Returns a filter for `elements` at `fpr` that contains as many random elements of 20 bytes.
fn filled(rng: &mut Rng, elements: u32, fpr: f64) -> BloomFilter {
    let mut filter = BloomFilter::new(elements, fpr, rng.u32(), UpdateMode::None).expect("a size");
    for _ in 0..elements {
        filter.insert(&rng.array::<20>());
    }
    filter
}

fn bits_of(filter: &BloomFilter) -> (f64, f64) {
    let set: u32 = filter.data().iter().map(|byte| byte.count_ones()).sum();
    let all = u32::try_from(filter.data().len() * 8).expect("36,000 bytes at most");
    (f64::from(set), f64::from(all))
}

/// The mean of 40 estimates is within 4 standard deviations of the number inserted. One estimate
/// has a standard deviation of `sqrt(m (e^a - 1 - a)) / k` for `a = k n / m`.
#[test]
fn estimated_elements_are_those_inserted() {
    const TRIALS: u32 = 40;
    for (seed, elements, fpr) in
        [(1, 100, 0.01), (2, 1_000, 1e-4), (3, 5_000, 0.001), (4, 20_000, 1e-3), (5, 50, 0.2)]
    {
        let mut rng = Rng::new(seed);
        let mut sum = 0.0;
        let mut deviation = 0.0;
        for _ in 0..TRIALS {
            let filter = filled(&mut rng, elements, fpr);
            sum += filter.estimated_elements();
            let (_, bits) = bits_of(&filter);
            let functions = f64::from(filter.hash_funcs());
            let load = functions * f64::from(elements) / bits;
            deviation = (bits * (load.exp() - 1.0 - load)).sqrt() / functions;
        }
        let mean = sum / f64::from(TRIALS);
        let bound = 4.0 * deviation / f64::from(TRIALS).sqrt();
        let off = mean - f64::from(elements);
        assert!(off.abs() < bound, "{elements} at {fpr}: mean {mean}, off {off}, bound {bound}");
    }
}

/// Of 400,000 absent elements, as many match as the fill to the power of k predicts, within 4
/// standard deviations of the binomial. The filter's own rate equals this power.
#[test]
fn false_positives_are_as_many_as_the_fill_says() {
    const TESTED: u32 = 400_000;
    for (seed, elements, fpr) in
        [(1, 10, 0.1), (2, 100, 0.01), (3, 1_000, 0.001), (4, 3_000, 0.02), (5, 60_000, 0.1)]
    {
        let mut rng = Rng::new(seed);
        let filter = filled(&mut rng, elements, fpr);
        let (set, bits) = bits_of(&filter);
        let expected = (set / bits).powf(f64::from(filter.hash_funcs()));
        let said = filter.false_positive_rate();
        assert!((said / expected - 1.0).abs() < 1e-9, "{elements} at {fpr}: {said}, {expected}");

        let found = (0..TESTED).filter(|_| filter.contains(&rng.array::<21>())).count();
        let found = f64::from(u32::try_from(found).expect("no more than tested"));
        let mean = f64::from(TESTED) * expected;
        let bound = 4.0 * (mean * (1.0 - expected)).sqrt();
        assert!(
            (found - mean).abs() < bound,
            "{elements} at {fpr}: {found} found, {mean} expected, {bound} allowed"
        );
    }
}

/// A filter that is filled as it was sized comes close to the requested rate. Rounding down the
/// size and the number of functions raises the rate a little, more for small filters.
#[test]
fn the_rate_asked_for_is_met() {
    for (seed, elements, fpr) in
        [(1, 500, 0.01), (2, 2_000, 0.001), (3, 10_000, 1e-4), (4, 1_000, 1e-6), (5, 3_000, 0.05)]
    {
        let mut rng = Rng::new(seed);
        let trials = (0..10).map(|_| filled(&mut rng, elements, fpr).false_positive_rate());
        let rate = trials.sum::<f64>() / 10.0;
        let ratio = rate / fpr;
        assert!((0.8..1.5).contains(&ratio), "{elements} at {fpr}: rate {rate}");
    }
}

/// Over 20,000 elements, each eighth of the filter gets its share of bits.
#[test]
fn bits_spread_over_the_whole_filter() {
    const ELEMENTS: u32 = 20_000;
    for size in [800_usize, 808, 1_000, 35_992] {
        let mut rng = Rng::new(size as u64);
        let mut hits = [0_u32; 8];
        for _ in 0..ELEMENTS {
            let mut filter = crate::filter(vec![0; size], 1, rng.u32(), 0);
            filter.insert(&rng.array::<12>());
            let byte = filter.data().iter().position(|byte| *byte != 0).expect("one bit");
            hits[byte * 8 / size] += 1;
        }
        let mean = f64::from(ELEMENTS) / 8.0;
        let bound = 5.0 * (mean * 7.0 / 8.0).sqrt();
        for (eighth, hits) in hits.into_iter().enumerate() {
            let off = (f64::from(hits) - mean).abs();
            assert!(off < bound, "{size} bytes: {hits} hits in eighth {eighth}");
        }
    }
}
