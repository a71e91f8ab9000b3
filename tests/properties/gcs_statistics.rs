//! Rates and sizes of Golomb-coded sets, from fixed seeds, with bounds on both sides of the
//! expected values.

use std::collections::BTreeSet;

use chainsieve::btc::bip158::{
    Acceptance, DecodedFilter, GcsFilter, GcsParams, Matcher, PreparedScripts, gcs,
};
use chainsieve::hash::SipKey;
use chainsieve::simd::Backend;

use testkit::Rng;

struct Set {
    params: GcsParams,
    key: SipKey,
    bytes: Vec<u8>,
}

impl Set {
    /// Returns a set of `count` random elements of 21 bytes. Absent scripts in these tests have
    /// another length.
    fn new(rng: &mut Rng, p: u8, m: u32, count: usize) -> Self {
        let params = GcsParams::new(p, m).expect("parameters");
        let key = SipKey { k0: rng.u64(), k1: rng.u64() };
        let elements: Vec<_> = (0..count).map(|_| rng.array::<21>()).collect();
        let slices = elements.iter().map(<[u8; 21]>::as_slice);
        Self { params, key, bytes: gcs::encode(params, key, slices).expect("few") }
    }

    fn filter(&self) -> GcsFilter<'_> {
        GcsFilter::parse(self.params, self.key, &self.bytes, Acceptance::Strict).expect("written")
    }

    fn values(&self) -> Vec<u64> {
        let mut values = Vec::new();
        self.filter().decode_into(&mut values).expect("written");
        values
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("few"))
}

/// Returns how many of `count` absent scripts match, and checks that every backend and the decoded
/// filter agree.
fn strangers_found(rng: &mut Rng, set: &Set, count: usize) -> f64 {
    let scripts: PreparedScripts = (0..count).map(|_| rng.array::<22>()).collect();
    let filter = set.filter();
    let found = DecodedFilter::decode(&filter).expect("written").matching(&scripts, 0..count);
    for backend in Backend::available() {
        let by_backend = Matcher::new().with_backend(backend).matching(&filter, &scripts);
        assert_eq!(by_backend.as_ref(), Ok(&found));
    }
    float(found.len())
}

fn assert_within(name: &str, got: f64, mean: f64, bound: f64) {
    assert!((got - mean).abs() < bound, "{name}: {got}, {mean} expected, {bound} allowed");
}

/// One absent script in M matches, within 4.5 standard deviations. Some values are equal by chance,
/// which lowers the rate by one part in 2 M.
#[test]
fn one_stranger_in_m_is_found() {
    /// Number of absent scripts.
    const ASKED: u32 = 300_000;
    for (seed, p, m, elements) in [
        (1, 2, 5, 1_000),
        (2, 5, 40, 3_000),
        (3, 7, 200, 500),
        (4, 10, 1_024, 4_000),
        (5, 0, 2, 200),
    ] {
        let mut rng = Rng::new(seed);
        let set = Set::new(&mut rng, p, m, elements);
        let distinct: BTreeSet<u64> = set.values().into_iter().collect();
        let (n, m) = (float(elements), f64::from(m));
        let coverage = float(distinct.len()) / (n * m);
        // The expected number of distinct values among n random values in a range of n m: about n /
        // 2 m values coincide with another one.
        let expected = n * m * (1.0 - (-1.0 / m).exp());
        let deviation = (n / (2.0 * m)).sqrt().max(1.0);
        assert_within("distinct values", float(distinct.len()), expected, 5.0 * deviation);

        let found = strangers_found(&mut rng, &set, ASKED as usize);
        let mean = f64::from(ASKED) * coverage;
        let bound = 4.5 * (mean * (1.0 - coverage)).sqrt();
        assert_within(&format!("P = {p}, M = {m}"), found, mean, bound);
    }
}

/// Of 12 million absent scripts, about 15 match a basic filter.
#[test]
fn strangers_of_the_basic_filter() {
    let mut rng = Rng::new(6);
    let set = Set::new(&mut rng, 19, 784_931, 5_000);
    let found: f64 = (0..24).map(|_| strangers_found(&mut rng, &set, 500_000)).sum();
    let mean = 12e6 / 784_931.0;
    assert_within("of the basic filter", found, mean, 4.0 * f64::sqrt(mean));
}

/// The values are spread evenly, over 64 parts of the range and over the remainders modulo 64.
/// Chi-squared with 63 degrees of freedom is within 4.5 standard deviations of its mean.
#[test]
fn values_spread_over_the_whole_range() {
    const ELEMENTS: usize = 64_000;
    for (seed, p, m) in [(7, 19, 784_931), (8, 10, 1_024), (9, 24, 16_777_259)] {
        let set = Set::new(&mut Rng::new(seed), p, m, ELEMENTS);
        let range = ELEMENTS as u64 * u64::from(m);
        let values = set.values();
        for (name, part) in [
            ("parts", (|value, range| value * 64 / range) as fn(u64, u64) -> u64),
            ("remainders", |value, _| value % 64),
        ] {
            let mut counts = [0_u32; 64];
            for value in &values {
                counts[usize::try_from(part(*value, range)).expect("below 64")] += 1;
            }
            let mean = float(ELEMENTS) / 64.0;
            let square = |count: u32| (f64::from(count) - mean).powi(2) / mean;
            let chi_squared: f64 = counts.into_iter().map(square).sum();
            assert_within(name, chi_squared, 63.0, 4.5 * f64::sqrt(2.0 * 63.0));
        }
    }
}

/// The gaps between values are exponential with mean M. A code then has 1 + P bits, and a quotient
/// of 1 / (e^(2^P / M) - 1) on average: 21.05 bits for the basic filter. Sizes are within 1 % of
/// this.
#[test]
fn sizes_are_those_of_exponential_gaps() {
    const ELEMENTS: usize = 50_000;
    for (seed, p, m, bits) in [
        (10, 19, 784_931, Some(21.05)),
        (11, 10, 1_024, None),
        (12, 8, 300, None),
        (13, 3, 40, None),
    ] {
        let set = Set::new(&mut Rng::new(seed), p, m, ELEMENTS);
        let quotient = 1.0 / ((2_f64.powi(p.into()) / f64::from(m)).exp() - 1.0);
        let expected = 1.0 + f64::from(p) + quotient;
        if let Some(bits) = bits {
            assert_within("the basic filter", expected, bits, 0.01);
        }
        let got = float(set.bytes.len() * 8) / float(ELEMENTS);
        assert_within(&format!("bits at P = {p}, M = {m}"), got, expected, expected / 100.0);
    }
}

/// Under a key that differs in one bit, elements match only by chance.
#[test]
fn another_key_is_another_set() {
    const ELEMENTS: usize = 20_000;
    let mut rng = Rng::new(14);
    let params = GcsParams::new(6, 60).expect("parameters");
    let elements: Vec<_> = (0..ELEMENTS).map(|_| rng.array::<25>()).collect();
    let scripts: PreparedScripts = elements.iter().collect();
    let key = SipKey { k0: rng.u64(), k1: rng.u64() };
    let bytes = gcs::encode(params, key, elements.iter().map(<[u8; 25]>::as_slice)).expect("few");
    let mut matcher = Matcher::new();
    let mut found = |key| {
        let filter = GcsFilter::parse(params, key, &bytes, Acceptance::Strict).expect("written");
        matcher.matching(&filter, &scripts).expect("written").len()
    };
    assert_eq!(found(key), ELEMENTS);
    let mean = float(ELEMENTS) / 60.0;
    for bit in [0, 1, 31, 32, 62, 63] {
        for other in
            [SipKey { k0: key.k0 ^ 1 << bit, ..key }, SipKey { k1: key.k1 ^ 1 << bit, ..key }]
        {
            assert_within(&format!("bit {bit}"), float(found(other)), mean, 5.0 * mean.sqrt());
        }
    }
    let swapped = SipKey { k0: key.k1, k1: key.k0 };
    assert_within("swapped", float(found(swapped)), mean, 5.0 * mean.sqrt());
}
