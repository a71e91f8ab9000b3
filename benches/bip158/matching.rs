//! One filter asked for scripts that it does not contain.

use std::hint::black_box;

use chainsieve::btc::bip158::{Matcher, PreparedScripts};
use chainsieve::simd::Backend;

use crate::filters::{self, Random, Subject};
use crate::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for subject in [filters::synthetic(), filters::block()] {
        // Few scripts fall early or late into bitcoin's walk, so many sets of them count.
        let cells = if report.is_quick() {
            [(1, 100), (10, 100), (100, 10), (1_000, 1), (10_000, 1), (100_000, 1)]
        } else {
            [(1, 1_000), (10, 1_000), (100, 100), (1_000, 10), (10_000, 1), (100_000, 1)]
        };
        for (count, sets) in cells {
            absent(report, &subject, count, sets);
        }
        for count in [100, 1_000] {
            fresh(report, &subject, count);
        }
    }
}

/// `match_any` of sets that the filter does not contain, prepared before.
fn absent(report: &mut Report, subject: &Subject, count: usize, sets: usize) {
    let sets = subject.absent(sets, count, &mut Random(count as u64));
    let prepared: Vec<PreparedScripts> = sets.iter().map(|set| set.iter().collect()).collect();
    let filter = subject.gcs();
    for backend in Backend::available() {
        let mut matcher = Matcher::new(backend);
        let mut ours = || {
            let asked = prepared.iter();
            asked.filter(|set| matcher.match_any(&filter, set).expect("a filter")).count()
        };
        let peer = || sets.iter().filter(|set| subject.peer_matches(set)).count();
        assert_eq!((ours(), peer()), (0, 0), "none is there");
        let name = format!("{}, match_any of {count} absent scripts, {backend:?}", subject.name);
        report.ratio(&name, sets.len(), ours, peer);
    }
}

/// P2TR scripts new for this block, as a silent payments wallet has them: prepared and asked.
fn fresh(report: &mut Report, subject: &Subject, count: usize) {
    let mut random = Random(352);
    let scripts: Vec<Vec<u8>> = (0..count).map(|_| random.taproot()).collect();
    let filter = subject.gcs();
    for backend in Backend::available() {
        let mut matcher = Matcher::new(backend);
        let mut ours = || {
            let prepared: PreparedScripts = black_box(&scripts).iter().collect();
            matcher.match_any(&filter, &prepared).expect("a filter")
        };
        let peer = || subject.peer_matches(black_box(&scripts));
        assert_eq!((ours(), peer()), (false, false), "none is there");
        let name = format!("{}, {count} scripts new for it, {backend:?}", subject.name);
        report.ratio(&name, 1, ours, peer);
    }
}
