//! Matching filters against scripts that they do not contain.

use std::hint::black_box;

use chainsieve::btc::bip158::{Matcher, PreparedScripts};
use chainsieve::simd::Backend;

use crate::filters::{self, Family};
use testkit::Rng;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        // With few scripts, `bitcoin`'s walk ends early or late by chance, so measure many queries.
        let cells = if report.is_quick() {
            [(1, 128), (10, 128), (100, 32), (1_000, 16), (10_000, 4), (100_000, 1)]
        } else {
            [(1, 1_024), (10, 1_024), (100, 128), (1_000, 64), (10_000, 16), (100_000, 4)]
        };
        for (count, questions) in cells {
            absent(report, &family, count, questions);
        }
        for count in [100, 1_000] {
            fresh(report, &family, count);
        }
        // With a single filter, the CPU learns the branches of `bitcoin`'s reader.
        absent(report, &family.into_first(), 1, cells[0].1);
    }
}

/// Measures `match_any` of scripts that were prepared before.
fn absent(report: &mut Report, family: &Family, count: usize, questions: usize) {
    let mut random = Rng::new(count as u64);
    let questions = family.absent(questions, || filters::scripts(&mut random, count));
    for backend in Backend::available() {
        let mut matcher = Matcher::new().with_backend(backend);
        let mut ours = || {
            let matches = questions.iter().filter(|question| {
                let filter = question.filter.gcs();
                matcher.match_any(&filter, &question.prepared).expect("a filter")
            });
            matches.count()
        };
        let peer = || questions.iter().filter(|q| q.filter.peer_matches(&q.scripts)).count();
        assert_eq!((ours(), peer()), (0, 0), "none is there");
        let name = format!("{}, match_any of {count} absent scripts, {backend:?}", family.name);
        report.ratio(&name, questions.len(), ours, peer);
    }
}

/// Measures preparing and matching P2TR scripts that are new for each block, as in a silent
/// payments wallet.
fn fresh(report: &mut Report, family: &Family, count: usize) {
    let mut random = Rng::new(352);
    let questions =
        family.absent(64, || (0..count).map(|_| filters::taproot(&mut random)).collect());
    for backend in Backend::available() {
        let mut matcher = Matcher::new().with_backend(backend);
        let mut prepared = PreparedScripts::new();
        let mut ours = || {
            let matches = questions.iter().filter(|question| {
                prepared.clear();
                prepared.extend(black_box(&question.scripts));
                matcher.match_any(&question.filter.gcs(), &prepared).expect("a filter")
            });
            matches.count()
        };
        let peer = || questions.iter().filter(|q| q.filter.peer_matches(&q.scripts)).count();
        assert_eq!((ours(), peer()), (0, 0), "none is there");
        let name = format!("{}, {count} scripts new for each, {backend:?}", family.name);
        report.ratio(&name, questions.len(), ours, peer);
    }
}
