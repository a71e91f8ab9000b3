//! Matching of compact filters, compared with `bitcoin`'s writer, reader, bit stream and SipHash.
//! Every backend gives the same answers, and an error exactly where the filter can't be decoded.

use std::collections::BTreeSet;

use bitcoin::bip158::{BitStreamReader, GcsFilterReader, GcsFilterWriter};
use bitcoin::hashes::siphash24;
use chainsieve::btc::bip158::{
    Acceptance, DecodedFilter, GcsError, GcsFilter, GcsParams, Matcher, PreparedScripts,
};
use chainsieve::hash::SipKey;
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::mutated;

/// A key, parameters and an encoded set, which the library and `bitcoin` both read.
struct Case {
    key: SipKey,
    p: u8,
    m: u32,
    bytes: Vec<u8>,
}

impl Case {
    fn new(rng: &mut Rng, (p, m): (u8, u32), elements: &[Vec<u8>]) -> Self {
        let key = SipKey { k0: rng.u64(), k1: rng.u64() };
        let mut bytes = Vec::new();
        let mut writer = GcsFilterWriter::new(&mut bytes, key.k0, key.k1, m.into(), p);
        for element in elements {
            writer.add_element(element);
        }
        writer.finish().expect("into memory");
        Self { key, p, m, bytes }
    }

    fn filter(&self, acceptance: Acceptance) -> Result<GcsFilter<'_>, GcsError> {
        let params = GcsParams::new(self.p, self.m).expect("within the limits");
        GcsFilter::parse(params, self.key, &self.bytes, acceptance)
    }

    fn reader(&self) -> GcsFilterReader {
        GcsFilterReader::new(self.key.k0, self.key.k1, self.m.into(), self.p)
    }

    /// Returns the values of the `count` codes after the first `skipped` bytes, which hold the
    /// count. Reads bit by bit.
    fn values(&self, skipped: usize, count: u32) -> BTreeSet<u64> {
        let mut codes = &self.bytes[skipped..];
        let mut reader = BitStreamReader::new(&mut codes);
        let mut value = 0;
        let mut next = || {
            let mut quotient = 0;
            while reader.read(1).expect("within the bytes") == 1 {
                quotient += 1;
            }
            value += (quotient << self.p) + reader.read(self.p).expect("within the bytes");
            value
        };
        (0..count).map(|_| next()).collect()
    }
}

/// Returns random scripts, most of them of the usual lengths.
fn scripts(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let length = |rng: &mut Rng| match rng.below(20) {
        0 => rng.below(600),
        1 => 67,
        2 => 35,
        _ => *rng.pick(&[22, 23, 25, 34]),
    };
    (0..count)
        .map(|_| {
            let length = length(rng);
            rng.bytes(length)
        })
        .collect()
}

/// Answers of a backend: any, all, and the matching indices found in two ways.
type Answers = (bool, bool, Vec<usize>, Vec<usize>);

fn answers(
    matcher: &mut Matcher,
    filter: &GcsFilter<'_>,
    set: &PreparedScripts,
) -> Result<Answers, GcsError> {
    let any = matcher.match_any(filter, set)?;
    let all = matcher.match_all(filter, set)?;
    let matching = matcher.matching(filter, set)?;
    Ok((any, all, matching.clone(), matching))
}

fn answers_decoded(
    backend: Backend,
    filter: &GcsFilter<'_>,
    set: &PreparedScripts,
    cut: usize,
) -> Result<Answers, GcsError> {
    let decoded = DecodedFilter::decode(filter)?.with_backend(backend);
    let mut parts = decoded.matching(set, 0..cut);
    parts.extend(decoded.matching(set, cut..set.len()));
    let one_by_one = (0..set.len()).filter(|&i| decoded.may_contain(set.get(i).expect("inside")));
    Ok((decoded.match_any(set), decoded.match_all(set), one_by_one.collect(), parts))
}

#[test]
fn the_same_scripts_match() {
    let mut rng = Rng::new(158);
    // The parameters range from one possible value per element, where many hashes collide, to those
    // of the basic filter.
    let params = [(19, 784_931), (19, 784_931), (0, 1), (3, 7), (1, 40), (32, u32::MAX)];
    let (mut some, mut none, mut every, mut doubled) = (0, 0, 0, 0);
    for round in 0..240 {
        let params = params[round % params.len()];
        let num_elements = *rng.pick(&[0, 1, 2, 7, 60, 500, 3_000]);
        let elements = scripts(&mut rng, num_elements);
        let case = Case::new(&mut rng, params, &elements);
        let filter = case.filter(Acceptance::Strict).expect("as bitcoin wrote it");
        let skipped = if filter.num_elements() < 0xfd { 1 } else { 3 };
        let values = case.values(skipped, filter.num_elements());
        doubled += usize::from(values.len() < filter.num_elements() as usize);

        let mut asked = PreparedScripts::new();
        let num_asked = *rng.pick(&[0, 1, 2, 7, 8, 9, 17, 100, 255, 256, 257, 1_000, 6_000]);
        // Percentage of queries that are in the set. Some of these queries repeat.
        let there = *rng.pick(&[0, 1, 50, 100]);
        for script in scripts(&mut rng, num_asked) {
            let present = !elements.is_empty() && rng.below(100) < there;
            asked.push(if present { &elements[rng.below(elements.len())] } else { &script });
        }

        let value = |script: &[u8]| {
            let hash = siphash24::Hash::hash_to_u64_with_keys(case.key.k0, case.key.k1, script);
            u64::try_from(u128::from(hash) * u128::from(filter.range()) >> 64).expect("64 bits")
        };
        let matching: Vec<usize> = (0..)
            .zip(asked.iter())
            .filter(|(_, s)| values.contains(&value(s)))
            .map(|(i, _)| i)
            .collect();
        let reader = case.reader();
        let any = reader.match_any(&mut &case.bytes[..], asked.iter()).expect("a filter");
        let all = reader.match_all(&mut &case.bytes[..], asked.iter()).expect("a filter");
        assert_eq!((any, all), (!matching.is_empty(), matching.len() == asked.len()));
        some += usize::from(any);
        none += usize::from(!any);
        every += usize::from(all && any);

        let expected = (any, all, matching.clone(), matching);
        for backend in Backend::available() {
            let mut matcher = Matcher::new().with_backend(backend);
            let found = answers(&mut matcher, &filter, &asked);
            assert_eq!(found, Ok(expected.clone()), "round {round}, {backend:?}");
            let cut = rng.below(asked.len() + 1);
            let found = answers_decoded(backend, &filter, &asked, cut);
            assert_eq!(found, Ok(expected.clone()), "round {round}, {backend:?}, decoded");
        }
    }
    assert!(
        some > 50 && none > 50 && every > 20 && doubled > 20,
        "{some} {none} {every} {doubled}"
    );
}

/// Core accepts values above the range. Such values match nothing.
#[test]
fn values_past_the_range_match_nothing() {
    let mut rng = Rng::new(159);
    let mut matches = 0;
    for round in 0..40 {
        let elements = scripts(&mut rng, 300);
        let mut case = Case::new(&mut rng, (9, 1_000), &elements);
        case.m = *rng.pick(&[1, 20, 700]);
        assert!(
            Matcher::new()
                .with_backend(Backend::SCALAR)
                .match_any(
                    &case.filter(Acceptance::Strict).expect("a count"),
                    &PreparedScripts::new()
                )
                .is_err()
        );
        let filter = case.filter(Acceptance::Core).expect("a count");
        let asked = scripts(&mut rng, *[5, 2_000].get(round % 2).expect("one of two"));
        let expected: Vec<usize> = (0..asked.len())
            .filter(|&i| {
                let one = asked[i..=i].iter().map(Vec::as_slice);
                case.reader().match_any(&mut &case.bytes[..], one).expect("a filter")
            })
            .collect();
        matches += expected.len();
        let asked: PreparedScripts = asked.iter().collect();
        for backend in Backend::available() {
            let found = Matcher::new().with_backend(backend).matching(&filter, &asked);
            assert_eq!(found.as_ref(), Ok(&expected), "round {round}, {backend:?}");
            let found = answers_decoded(backend, &filter, &asked, 3);
            assert_eq!(found.map(|(_, _, _, found)| found), Ok(expected.clone()));
        }
    }
    assert!(matches > 20, "{matches}");
}

/// Matching a damaged filter is an error, even if the part before the damage would decide the
/// question.
#[test]
fn damaged_filters_give_no_answer() {
    let mut rng = Rng::new(160);
    let elements = scripts(&mut rng, 40);
    let (mut readable, mut errors) = (0, 0);
    let present: PreparedScripts = elements.iter().collect();
    let absent: PreparedScripts = scripts(&mut rng, 40).iter().collect();
    let whole = Case::new(&mut rng, (19, 784_931), &elements);
    let cut = (0..whole.bytes.len()).map(|end| whole.bytes[..end].to_vec()).collect::<Vec<_>>();
    let damaged = (0..3_000).map(|_| mutated(&mut rng, &whole.bytes)).collect::<Vec<_>>();
    for bytes in cut.into_iter().chain(damaged) {
        let case = Case { bytes, ..whole };
        for acceptance in [Acceptance::Strict, Acceptance::Core] {
            let Ok(filter) = case.filter(acceptance) else { continue };
            let mut values = Vec::new();
            let decoded = filter.decode_into_on(Backend::SCALAR, &mut values);
            *if decoded.is_ok() { &mut readable } else { &mut errors } += 1;
            for backend in Backend::available() {
                let mut matcher = Matcher::new().with_backend(backend);
                for set in [&present, &absent, &PreparedScripts::new()] {
                    let found = answers(&mut matcher, &filter, set);
                    assert_eq!(found.clone().err(), decoded.err(), "{backend:?}");
                    let again = answers_decoded(backend, &filter, set, set.len() / 2);
                    assert_eq!(again, found, "{backend:?}");
                    // A new matcher gives the same result, so the used one kept no answer of an
                    // earlier filter.
                    let found = answers(&mut Matcher::new().with_backend(backend), &filter, set);
                    assert_eq!(again, found, "{backend:?}");
                }
            }
        }
    }
    assert!(readable > 500 && errors > 500, "{readable} {errors}");
}
