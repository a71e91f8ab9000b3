//! A filter decoded once and asked again and again.

use std::hint::black_box;

use chainsieve::btc::bip158::{DecodedFilter, PreparedScripts};
use chainsieve::simd::Backend;

use crate::filters::{self, Random, Subject};
use crate::timer::Report;

/// What a wallet adds when it finds its last scripts used.
const ADDED: usize = 20;

pub(crate) fn run(report: &mut Report) {
    for subject in [filters::synthetic(), filters::block()] {
        for count in [1_000, 10_000, 100_000] {
            absent(report, &subject, count);
        }
        recovery(report, &subject);
    }
}

/// Scripts that the filter does not contain, per script, against `bitcoin` from the bytes.
fn absent(report: &mut Report, subject: &Subject, count: usize) {
    let sets = subject.absent(1, count, &mut Random(count as u64));
    let prepared: PreparedScripts = sets[0].iter().collect();
    let alone = decoded(subject);
    let name = format!("{}, decoded, each of {count} scripts alone", subject.name);
    report.figure(&name, count, || sets[0].iter().filter(|s| alone.may_contain(s)).count());
    for backend in Backend::available() {
        let decoded = decoded(subject).with_backend(backend);
        let (ours, peer) = (|| decoded.match_any(&prepared), || subject.peer_matches(&sets[0]));
        assert_eq!((ours(), peer()), (false, false), "none is there");
        let name = format!("{}, decoded, per script of {count}, {backend:?}", subject.name);
        report.ratio(&name, count, ours, peer);
    }
}

/// A set that grows by some scripts, which alone the filter is asked for.
fn recovery(report: &mut Report, subject: &Subject) {
    let scripts = subject.absent(1, 1_000 + ADDED, &mut Random(452)).remove(0);
    let (before, added) = scripts.split_at(1_000);
    for backend in Backend::available() {
        let decoded = decoded(subject).with_backend(backend);
        let mut set: PreparedScripts = before.iter().collect();
        let mut ours = || {
            let start = set.len();
            set.extend(black_box(added));
            decoded.matching(&set, start..set.len()).len()
        };
        let peer = || subject.peer_matches(black_box(added));
        assert_eq!((ours(), peer()), (0, false), "none is there");
        let name = format!("{}, decoded, {ADDED} scripts more, {backend:?}", subject.name);
        report.ratio(&name, 1, ours, peer);
    }
}

fn decoded(subject: &Subject) -> DecodedFilter {
    DecodedFilter::decode(&subject.gcs()).expect("a filter")
}
