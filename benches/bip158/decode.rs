//! Decoding all values of filters, compared with `bitcoin`'s reader, which reads up to the last
//! value. Bitcoin Core's own bench `GCSFilterDecode` gives 25.4 ns a value, on another machine.

use chainsieve::simd::Backend;

use crate::filters::{self, Filter};
use testkit::Rng;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for family in [filters::synthetic(), filters::block()] {
        let mut random = Rng::new(19);
        let mut values = Vec::new();
        let questions: Vec<(&Filter, Vec<Vec<u8>>)> = family
            .filters()
            .map(|filter| {
                filter.gcs().decode_into_on(Backend::SCALAR, &mut values).expect("a filter");
                let last = *values.last().expect("not empty");
                (filter, vec![script_behind(filter, last, &mut random)])
            })
            .collect();
        let per = questions.iter().map(|(filter, _)| filter.gcs().num_elements() as usize).sum();
        for backend in Backend::available() {
            let mut ours = || {
                for (filter, _) in &questions {
                    filter.gcs().decode_into_on(backend, &mut values).expect("a filter");
                    assert_eq!(values.len(), filter.gcs().num_elements() as usize);
                }
            };
            let peer = || questions.iter().filter(|(f, behind)| f.peer_matches(behind)).count();
            assert_eq!(peer(), 0, "none is there");
            ours();
            let name = format!("{}, decoded, per value, {backend:?}", family.name);
            report.ratio(&name, per, ours, peer);
        }
    }
}

/// Returns a script whose value is after `last`, so that `bitcoin` reads all values before it
/// answers.
fn script_behind(filter: &Filter, last: u64, random: &mut Rng) -> Vec<u8> {
    loop {
        let script = filters::taproot(random);
        if filter.gcs().value(&script) > last {
            return script;
        }
    }
}
