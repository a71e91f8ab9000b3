//! Scans of real headers on every backend, compared with a plain filter and alloy's `BloomFilter`.

use alloy_primitives::{B256, Bloom, BloomInput};
use alloy_rpc_types_eth::BloomFilter;
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::forecast::Forecast;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{CompiledQuery, LogQuery, Semantics};
use chainsieve::eth::scan::{self, QuerySet, Scanner};
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

/// Scans chunks in random order, and inserts queries between them. Each query is answered exactly
/// once for every block from its first block on, and as if it were scanned alone.
#[test]
fn query_sets_answer_like_their_queries() {
    let Some(corpus) = EthCorpus::open() else { return };
    let real = blooms(&corpus);
    let arrays: Vec<[u8; 256]> = real.iter().map(|bloom| bloom.0.0).collect();
    for backend in Backend::available() {
        let mut rng = Rng::new(9);
        let queries = queries(&corpus, 130, 2);
        let first = 1_000_000_u64;
        let end = first + real.len() as u64;
        let mut set = QuerySet::new().with_backend(backend);
        let mut members = Vec::new();
        let mut found = Vec::new();
        let scan = |set: &mut QuerySet, from: u64, to: u64, found: &mut Vec<_>| {
            let index = |block: u64| usize::try_from(block - first).expect("an index");
            let range = index(from)..index(to);
            let hits = set.scan(from, &arrays[range]);
            assert_eq!(hits.len(), hits.iter().count());
            let mut before = None;
            for (block, ids) in hits.iter() {
                assert!(before < Some(block) && (from..to).contains(&block));
                assert!(!ids.is_empty() && ids.windows(2).all(|pair| pair[0] < pair[1]));
                before = Some(block);
                found.extend(ids.iter().map(|id| (block, *id)));
            }
        };
        let mut edges: Vec<u64> = (0..9).map(|_| first + rng.below(real.len()) as u64).collect();
        edges.extend([first, end]);
        edges.sort_unstable();
        let mut chunks: Vec<_> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
        chunks.reverse();
        chunks.swap(1, 4);
        let mut waiting = queries.iter();
        for (from, to) in chunks {
            for (_, compiled) in waiting.by_ref().take(13) {
                let from_block = *rng.pick(&[0, first + 50, from, to, first + 900, end]);
                let id = set.insert(compiled.clone(), from_block);
                assert_eq!(id, members.len());
                members.push(from_block);
            }
            scan(&mut set, from, to, &mut found);
            // When nothing is pending, scanning a chunk again must not repeat a hit.
            if rng.one_in(2) {
                for range in set.pending() {
                    scan(&mut set, range.start, range.end, &mut found);
                }
                assert_eq!(set.pending(), []);
                scan(&mut set, from, to, &mut found);
            }
        }
        for range in set.pending() {
            scan(&mut set, range.start, range.end, &mut found);
        }
        assert_eq!((set.len(), set.pending()), (members.len(), vec![]));
        let mut expected = Vec::new();
        for (id, (from_block, (naive, _))) in members.iter().zip(&queries).enumerate() {
            let passes = by_rival(naive, &real);
            let blocks =
                (first..).zip(passes).filter(|(block, passes)| *passes && block >= from_block);
            expected.extend(blocks.map(|(block, _)| (block, id)));
        }
        found.sort_unstable();
        expected.sort_unstable();
        assert!(expected.len() > 16_000, "{}", expected.len());
        assert_eq!(found, expected, "on {backend:?}");
    }
}

/// After a reorganisation, blocks from the rewound number on are answered again, and earlier blocks
/// are not.
#[test]
fn rewound_blocks_are_answered_again() {
    let Some(corpus) = EthCorpus::open() else { return };
    let arrays: Vec<[u8; 256]> = blooms(&corpus).iter().map(|bloom| bloom.0.0).collect();
    let mut set = QuerySet::new();
    for (_, compiled) in queries(&corpus, 20, 12) {
        set.insert(compiled, 0);
    }
    let hits = |set: &mut QuerySet| {
        let hits = set.scan(5_000, &arrays);
        hits.iter().map(|(block, ids)| (block, ids.to_vec())).collect::<Vec<_>>()
    };
    let all = hits(&mut set);
    assert!(all.len() > 100 && hits(&mut set).is_empty());
    set.rewind(5_100);
    assert_eq!(set.pending(), []);
    let above: Vec<_> = all.iter().filter(|(block, _)| *block >= 5_100).cloned().collect();
    assert!(above.len() < all.len());
    assert_eq!(hits(&mut set), above);
    assert!(hits(&mut set).is_empty());
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

/// In a chain with blooms of another length or of all ones, each such block is a candidate for
/// every query, in scans and in query sets.
#[test]
fn blocks_without_information_are_never_lost() {
    let Some(corpus) = EthCorpus::open() else { return };
    let file = corpus.of(Format::HeaderRun).find(|file| file.name.contains("17686110"));
    let rlp = corpus.read(&file.expect("the run").name);
    let mut headers = Vec::new();
    let mut rest = &rlp[..];
    while !rest.is_empty() {
        let (header, behind) = HeaderView::decode_prefix(rest).expect("a header");
        headers.push(header);
        rest = behind;
    }
    let queries = queries(&corpus, 300, 6);
    // One in three headers keeps its bloom. The others get no bytes, 32 bytes as of a root, one
    // byte too many or too few, all ones, or a single byte.
    let blooms: Vec<Vec<u8>> = headers
        .iter()
        .enumerate()
        .map(|(at, header)| match at % 9 {
            0 => vec![],
            1 => vec![0; 32],
            3 => vec![0; 257],
            4 => vec![0; 255],
            6 => vec![0xff; 256],
            7 => vec![1],
            _ => header.logs_bloom().bytes().expect("256 bytes").to_vec(),
        })
        .collect();
    let mut chain = LinkedHeaders::new();
    let mut parent = None;
    for (header, bloom) in headers.iter().zip(&blooms) {
        let rlp = with_bloom(header, parent, bloom);
        let view = HeaderView::decode(&rlp).expect("a header of any filter");
        assert_eq!(view.logs_bloom(), BloomView::from_wire(bloom));
        let _ = chain.push(&view).expect("linked");
        parent = Some(view.hash());
    }
    let silent: Vec<_> = (0..headers.len()).filter(|at| ![2, 5, 8].contains(&(at % 9))).collect();
    assert_eq!(silent.len(), 11);
    let mut no = 0;
    for (naive, compiled) in &queries {
        for backend in Backend::available() {
            let found = scan::candidates_on(backend, compiled, chain.blooms());
            assert!(silent.iter().all(|at| found.contains(at)), "{naive:?} on {backend:?}");
            no += headers.len() - found.len();
            let mut set = QuerySet::new().with_backend(backend);
            let id = set.insert(compiled.clone(), 0);
            let hits = set.scan(0, chain.blooms());
            let in_set: Vec<_> = hits.iter().map(|(block, ids)| (block, ids.to_vec())).collect();
            let alone: Vec<_> = found.iter().map(|at| (*at as u64, vec![id])).collect();
            assert_eq!(in_set, alone, "{naive:?} on {backend:?}");
        }
    }
    assert!(no > 100, "too few blocks ruled out: {no}");
}

/// Returns the RLP of the header with another bloom and, if given, another parent hash.
fn with_bloom(header: &HeaderView<'_>, parent: Option<B256>, bloom: &[u8]) -> Vec<u8> {
    use alloy_rlp::{Encodable as _, Header};
    let rlp = header.rlp();
    assert_eq!(rlp[0], 0xf9);
    let mut payload = Vec::new();
    parent.unwrap_or(header.parent_hash()).encode(&mut payload);
    payload.extend_from_slice(&rlp[36..189]);
    bloom.encode(&mut payload);
    payload.extend_from_slice(&rlp[448..]);
    let mut out = Vec::new();
    Header { list: true, payload_length: payload.len() }.encode(&mut out);
    out.append(&mut payload);
    out
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
