//! All values of a filter, against `bitcoin`'s reader on its way to the last one. Bitcoin Core's
//! own bench `GCSFilterDecode` gives 25.4 ns a value, on another machine.

use chainsieve::simd::Backend;

use crate::filters::{self, Random, Subject};
use crate::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for subject in [filters::synthetic(), filters::block()] {
        let filter = subject.gcs();
        let count = filter.num_elements() as usize;
        for backend in Backend::available() {
            let mut values = Vec::new();
            filter.decode_into(backend, &mut values).expect("a filter");
            assert!(values.is_sorted() && values.len() == count, "all values");
            let behind = [script_behind(&subject, values[count - 1])];
            let ours = || filter.decode_into(backend, &mut values).expect("a filter");
            let peer = || subject.peer_matches(&behind);
            assert!(!peer(), "none is there");
            let name = format!("{}, decoded, per value, {backend:?}", subject.name);
            report.ratio(&name, count, ours, peer);
        }
    }
}

/// A script with a value after `last`: bitcoin reads all the others before it answers.
fn script_behind(subject: &Subject, last: u64) -> Vec<u8> {
    let mut random = Random(19);
    loop {
        let script = random.taproot();
        if subject.gcs().value(&script) > last {
            return script;
        }
    }
}
