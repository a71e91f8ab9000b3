//! All values of filters, against `bitcoin`'s reader on its way to the last one. Bitcoin Core's own
//! bench `GCSFilterDecode` gives 25.4 ns a value, on another machine.

use chainsieve::simd::Backend;

use crate::filters::{self, Filter, Random};
use crate::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        let count = family.filters.iter().map(|filter| filter.gcs().num_elements() as usize).sum();
        for backend in Backend::available() {
            let mut values = Vec::new();
            let mut behind = Vec::new();
            for filter in &family.filters {
                filter.gcs().decode_into(backend, &mut values).expect("a filter");
                assert!(values.is_sorted(), "ascending");
                assert_eq!(values.len(), filter.gcs().num_elements() as usize, "all values");
                behind.push([script_behind(filter, *values.last().expect("elements"))]);
            }
            let ours = || {
                for filter in &family.filters {
                    filter.gcs().decode_into(backend, &mut values).expect("a filter");
                }
            };
            let peer = || {
                for (filter, behind) in family.filters.iter().zip(&behind) {
                    assert!(!filter.peer_matches(behind), "none is there");
                }
            };
            let name = format!("{}, decoded, per value, {backend:?}", family.name);
            report.ratio(&name, count, ours, peer);
        }
    }
}

/// A script with a value after `last`: bitcoin reads all the others before it answers.
fn script_behind(filter: &Filter, last: u64) -> Vec<u8> {
    let mut random = Random(19);
    loop {
        let script = random.taproot();
        if filter.gcs().value(&script) > last {
            return script;
        }
    }
}
