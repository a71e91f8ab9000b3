//! Ribbon filters: their size relative to the information-theoretic minimum, and their speed
//! compared with `xorf`'s fuse filter of 8 bits at the same rate.

use std::hint::black_box;

use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::{Filter, KeyHasher};
use xorf::Filter as _;

use crate::keys;
use testkit::timer::Report;

const SEED: u64 = 1;

pub(crate) fn run(report: &mut Report) {
    for size in keys::sizes(report) {
        for fpr in [0.01, 1.0 / 256.0, 1.0 / 65536.0] {
            measure(report, size, fpr);
        }
    }
}

fn measure(report: &mut Report, size: usize, fpr: f64) {
    let hashes = keys::present(size);
    let build = || {
        RibbonFilter::build_with_seed(black_box(&hashes), fpr, KeyHasher::xxh3(0), SEED)
            .expect("a filter")
    };
    let name = format!("ribbon at {:.4} %, {size} keys", fpr * 100.0);
    let ribbon = build();
    let bits = ribbon.num_bits() as f64 / size as f64;
    report.value(&format!("{name}, bits per key"), bits, "bits");
    report.value(&format!("{name}, bits relative to the minimum"), bits / -fpr.log2(), "times");
    let is_fuse8 = fpr.to_bits() == (1.0_f64 / 256.0).to_bits();
    let fuse = is_fuse8.then(|| xorf::BinaryFuse8::try_from(&hashes).expect("distinct hashes"));

    let probes = keys::probes(size);
    let mut answers = vec![false; probes];
    let mut present: Vec<_> = hashes.iter().copied().cycle().take(probes).collect();
    present.sort_unstable_by_key(|hash| hash.rotate_left(32));
    for (kind, asked) in [("present", present), ("absent", keys::absent(probes))] {
        ribbon.contains_batch(&asked, &mut answers);
        let hits = answers.iter().filter(|answer| **answer).count();
        let expected = if kind == "present" { 1.0 } else { fpr };
        let rate = hits as f64 / probes as f64;
        assert!((rate / expected - 1.0).abs() < 0.5, "{name}: {rate} of {kind}");
        let one_by_one =
            || black_box(&asked).iter().filter(|hash| ribbon.contains_hash(**hash)).count();
        report.figure(&format!("{name}, {kind}, one by one"), probes, one_by_one);
        let name = format!("{name}, {kind}, batch");
        let mut batch = || ribbon.contains_batch(black_box(&asked), &mut answers);
        match &fuse {
            None => drop(report.figure(&name, probes, batch)),
            Some(fuse) => {
                report.ratio(&format!("{name}, xorf's fuse8"), probes, &mut batch, || {
                    black_box(&asked).iter().filter(|hash| fuse.contains(*hash)).count()
                });
            }
        }
    }
    drop((ribbon, fuse));
    report.figure(&format!("{name}, build"), size, build);
}
