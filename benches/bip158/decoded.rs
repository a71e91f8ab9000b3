//! A filter decoded once and asked again and again.

use chainsieve::btc::bip158::{DecodedFilter, PreparedScripts};

use crate::filters::{self, Random};
use crate::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for subject in [filters::synthetic(), filters::block()] {
        let decoded = DecodedFilter::decode(&subject.gcs()).expect("a filter");
        for count in [1_000, 10_000, 100_000] {
            let sets = subject.absent(1, count, &mut Random(count as u64));
            let prepared: PreparedScripts = sets[0].iter().collect();
            assert!(!decoded.match_any(&prepared));
            let name = format!("{}, decoded, asked for {count} scripts", subject.name);
            report.figure(&name, count, || decoded.match_any(&prepared));
        }
    }
}
