//! Scans of real headers on every backend, compared with a plain filter and alloy's `BloomFilter`.

use alloy_primitives::{B256, Bloom, BloomInput};
use alloy_rpc_types_eth::BloomFilter;
use chainsieve::eth::forecast::Forecast;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{CompiledQuery, LogQuery, Semantics};
use chainsieve::eth::scan::{self, Scanner};
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::eth::corpus::{self, EthCorpus, Format};
use testkit::eth::naive_logs::{NaiveLog, NaiveQuery, bits};
use testkit::eth::query_draws;

/// Returns the bloom of every header in the corpus, four times. Of runs of more than 1,000 headers,
/// whose blooms are mostly empty, only every 20th header is taken.
pub(crate) fn blooms(corpus: &EthCorpus) -> Vec<Bloom> {
    let mut blooms = Vec::new();
    for file in corpus.of(Format::HeaderRows) {
        for row in corpus.rows(file) {
            let rlp = corpus::bytes(&row["rlp"]);
            let header = HeaderView::decode(&rlp).expect("a header");
            blooms.push(Bloom::from(header.logs_bloom().bytes().expect("256 bytes")));
        }
    }
    for file in corpus.of(Format::HeaderRun) {
        let chain = chain(corpus, &file.name);
        let step = if chain.len() > 1_000 { 20 } else { 1 };
        blooms.extend(chain.blooms().iter().step_by(step));
    }
    assert!(blooms.len() > 350, "{}", blooms.len());
    // Repeat the blooms, to have more than a scan tests or transposes at a time.
    blooms.repeat(4)
}

fn chain(corpus: &EthCorpus, name: &str) -> LinkedHeaders {
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&corpus.read(name)).expect("a chain");
    chain
}

/// Draws `count` queries from the logs of several blocks and from absent values. Returns each in
/// plain and in compiled form.
pub(crate) fn queries(
    corpus: &EthCorpus,
    count: usize,
    seed: u64,
) -> Vec<(NaiveQuery, CompiledQuery)> {
    let blocks = corpus.blocks();
    let logs: Vec<Vec<NaiveLog>> = blocks
        .values()
        .map(|block| block.logs().iter().map(NaiveLog::of).collect::<Vec<_>>())
        .filter(|logs| !logs.is_empty())
        .collect();
    let mut rng = Rng::new(seed);
    let draw = |_| {
        let from = rng.below(logs.len());
        let naive = match rng.below(20) {
            // A set too large for testing its values one by one.
            0 => {
                let addresses = (0..rng.below(300)).map(|_| rng.array()).collect();
                NaiveQuery { addresses, positions: Vec::new() }
            }
            _ => query_draws::query(&mut rng, &logs[from]),
        };
        let json = query_draws::json(&mut rng, &naive);
        let query = LogQuery::from_json(&json, Semantics::Geth).expect("a query");
        (naive, query.compile())
    };
    (0..count).map(draw).collect()
}

/// Returns `true` for each bloom that passes alloy's `BloomFilter` of every set.
pub(crate) fn by_rival(query: &NaiveQuery, blooms: &[Bloom]) -> Vec<bool> {
    let of = |value: &[u8]| Bloom::from(BloomInput::Raw(value));
    let mut sets = vec![query.addresses.iter().map(|a| of(a)).collect::<Vec<_>>()];
    sets.extend(query.positions.iter().map(|set| set.iter().map(|t| of(t)).collect()));
    let filters: Vec<_> = sets.into_iter().map(BloomFilter::from).collect();
    blooms.iter().map(|bloom| filters.iter().all(|filter| filter.matches(*bloom))).collect()
}

#[test]
fn candidates_on_every_backend() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut rng = Rng::new(3);
    let mut real = blooms(&corpus);
    assert_eq!(real.iter().filter(|bloom| **bloom == Bloom::repeat_byte(0xff)).count(), 8);
    // Shuffle the blooms, so that every lane meets every kind.
    for at in (1..real.len()).rev() {
        real.swap(at, rng.below(at + 1));
    }
    let arrays: Vec<[u8; 256]> = real.iter().map(|bloom| bloom.0.0).collect();
    let (mut selective, mut total) = (0, 0);
    for (at, (naive, compiled)) in queries(&corpus, 1_000, 1).into_iter().enumerate() {
        let passes = by_rival(&naive, &real);
        if at % 10 == 0 {
            let plain: Vec<_> = real.iter().map(|bloom| naive.passes(bloom)).collect();
            assert_eq!(plain, passes, "{naive:?}");
        }
        // Scan a random range, with lengths around the batch sizes and lengths of 0 and 1.
        let length =
            *rng.pick(&[0, 1, 7, 63, 64, 65, 511, 512, 513, 600, 1_023, 1_024, 1_025, real.len()]);
        let start = rng.below(real.len() - length + 1);
        let expected: Vec<_> = (0..length).filter(|index| passes[start + index]).collect();
        let stretch = &arrays[start..start + length];
        for backend in Backend::available() {
            let found = scan::candidates_on(backend, &compiled, stretch);
            assert_eq!(found, expected, "{naive:?} on {backend:?}, {start}+{length}");
            let unordered =
                Scanner::ordered_by_on(backend, &compiled, &[[0; 256]; 0]).candidates(stretch);
            assert_eq!(unordered, expected, "{naive:?} on {backend:?}");
            assert_eq!(
                Scanner::ordered_by_on(backend, &compiled, stretch).par_candidates(stretch),
                expected,
                "{naive:?}"
            );
            let elsewhere = Scanner::ordered_by_on(backend, &compiled, &arrays);
            assert_eq!(elsewhere.candidates(stretch), expected, "{naive:?} on {backend:?}");
        }
        selective += usize::from(!expected.is_empty() && expected.len() < length);
        total += expected.len();
    }
    println!("{selective} queries select, {total} candidates");
    assert!(selective > 300, "{selective}");
}

/// A value at two positions of a query counts as three bits, not six.
#[test]
fn bits_that_coincide_are_forecast_once() {
    let Some(corpus) = EthCorpus::open() else { return };
    let file = corpus.of(Format::HeaderRun).find(|file| file.name.contains("17686110"));
    let chain = chain(&corpus, &file.expect("the run").name);
    let absent = B256::repeat_byte(0x5a);
    let once = LogQuery::new().topic0(absent);
    let expected = |query: &LogQuery| {
        let mut forecast = Forecast::new(query.compile());
        forecast.add(&chain);
        forecast.expected_false()
    };
    let twice = expected(&once.clone().topic1(absent));
    assert!(twice > 0.1 && (twice - expected(&once)).abs() < 1e-9, "{twice}");
}

/// A forecast counts candidates exactly. The expected number of false candidates is the sum over
/// all blooms of the fill to the power of the query's distinct bits.
#[test]
fn forecasts_of_real_runs() {
    let Some(corpus) = EthCorpus::open() else { return };
    let runs: Vec<_> =
        corpus.of(Format::HeaderRun).map(|file| chain(&corpus, &file.name)).collect();
    let blooms: Vec<Bloom> = runs.iter().flat_map(LinkedHeaders::blooms).copied().collect();
    let ones = |bloom: &Bloom| bloom.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let mut compared = 0;
    for (naive, compiled) in queries(&corpus, 60, 8) {
        let mut forecast = Forecast::new(compiled.clone());
        for chain in &runs {
            forecast.add(chain);
        }
        assert_eq!(forecast.blocks(), blooms.len() as u64);
        let passes = by_rival(&naive, &blooms);
        let candidates = passes.iter().filter(|passes| **passes).count() as u64;
        assert_eq!(forecast.candidates(), candidates, "{naive:?}");

        let mut sets: Vec<Vec<&[u8]>> = vec![naive.addresses.iter().map(|a| &a[..]).collect()];
        sets.extend(naive.positions.iter().map(|set| set.iter().map(|t| &t[..]).collect()));
        sets.retain(|set| !set.is_empty());
        assert_eq!(forecast.clauses().len(), sets.len(), "{naive:?}");
        for (clause, set) in forecast.clauses().iter().zip(&sets) {
            let one = |bloom: &&Bloom| {
                set.iter().any(|v| bits(v).iter().all(|(byte, mask)| bloom[*byte] & mask != 0))
            };
            let passed = blooms.iter().filter(one).count();
            assert_eq!(clause.candidates(), passed as u64, "{naive:?}");
            assert_eq!(clause.selects_nothing(), passed * 10 >= blooms.len() * 9, "{naive:?}");
        }
        if sets.iter().all(|set| set.len() == 1) {
            let mut all: Vec<_> = sets.iter().flat_map(|set| bits(set[0])).collect();
            all.sort_unstable();
            all.dedup();
            let distinct = i32::try_from(all.len()).expect("at most 15");
            let share = |bloom: &Bloom| (f64::from(ones(bloom)) / 2048.0).powi(distinct);
            let expected: f64 = blooms.iter().map(share).sum();
            let ratio = (forecast.expected_false() + 1e-12) / (expected + 1e-12);
            assert!((ratio - 1.0).abs() < 1e-6, "{naive:?}: {ratio}");
            compared += 1;
        }
    }
    assert!(compared >= 5, "{compared}");
}
