//! Filters that are decoded once and queried many times.

use std::hint::black_box;

use chainsieve::btc::bip158::{DecodedFilter, PreparedScripts};
use chainsieve::simd::Backend;

use crate::filters::{self, Family, Filter};
use testkit::Rng;
use testkit::timer::Report;

/// Number of scripts that a wallet adds when it finds its last scripts used.
const ADDED: usize = 20;

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        for (count, questions) in [(1_000, 16), (10_000, 4), (100_000, 1)] {
            absent(report, &family, count, questions);
        }
        recovery(report, &family);
    }
}

/// Measures absent scripts, per script, compared with `bitcoin`, which reads the bytes each time.
fn absent(report: &mut Report, family: &Family, count: usize, questions: usize) {
    let mut random = Rng::new(count as u64);
    let questions = family.absent(questions, || filters::scripts(&mut random, count));
    let per = count * questions.len();
    let mut decoded: Vec<DecodedFilter> = questions.iter().map(|q| decode(q.filter)).collect();
    let alone = || {
        let asked = questions.iter().zip(&decoded);
        asked.flat_map(|(q, decoded)| q.scripts.iter().filter(|s| decoded.may_contain(s))).count()
    };
    assert_eq!(alone(), 0, "none is there");
    let name = format!("{}, decoded, each of {count} scripts alone", family.name);
    report.figure(&name, per, alone);
    for backend in Backend::available() {
        decoded = decoded.into_iter().map(|decoded| decoded.with_backend(backend)).collect();
        let ours = || {
            let asked = questions.iter().zip(&decoded);
            asked.filter(|(question, decoded)| decoded.match_any(&question.prepared)).count()
        };
        let peer = || questions.iter().filter(|q| q.filter.peer_matches(&q.scripts)).count();
        assert_eq!((ours(), peer()), (0, 0), "none is there");
        let name = format!("{}, decoded, per script of {count}, {backend:?}", family.name);
        report.ratio(&name, per, ours, peer);
    }
}

/// Measures a set of scripts that grows. The filter is queried for the new scripts alone.
fn recovery(report: &mut Report, family: &Family) {
    let mut random = Rng::new(452);
    let questions = family.absent(16, || filters::scripts(&mut random, ADDED));
    let decoded: Vec<DecodedFilter> = questions.iter().map(|q| decode(q.filter)).collect();
    for backend in Backend::available() {
        let mut set: PreparedScripts = filters::scripts(&mut random, 1_000).iter().collect();
        let mut ours = || {
            let mut matching = 0;
            for (question, decoded) in questions.iter().zip(&decoded) {
                let start = set.len();
                set.extend(black_box(&question.scripts));
                matching += decoded.matching(&set, start..set.len()).len();
            }
            matching
        };
        let peer = || questions.iter().filter(|q| q.filter.peer_matches(&q.scripts)).count();
        assert_eq!((ours(), peer()), (0, 0), "none is there");
        let name = format!("{}, decoded, {ADDED} scripts more, {backend:?}", family.name);
        report.ratio(&name, questions.len(), ours, peer);
    }
}

fn decode(filter: &Filter) -> DecodedFilter {
    DecodedFilter::decode(&filter.gcs()).expect("a filter")
}
