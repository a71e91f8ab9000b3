//! Benchmarks that compare the membership filters with the packages that users could use instead of
//! them.
//!
//! `cargo bench -p benches --bench filter -- [--once | --quick] [--full] [--json FILE] [PART …]`
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::unchecked_time_subtraction,
    reason = "indices and rates are made from counts below 10^9; clocks never run backward"
)]

mod classic;
mod cuckoo;
mod dynamic;
mod fuse;
mod keys;
mod ribbon;
mod split_block;
mod watch_set;

/// Name of a part, and the function that measures it.
type Part = (&'static str, fn(&mut testkit::timer::Report));

const PARTS: &[Part] = &[
    // Each part has a line of its own, and the lines are sorted.
    ("classic", classic::run),
    ("cuckoo", cuckoo::run),
    ("dynamic", dynamic::run),
    ("fuse", fuse::run),
    ("ribbon", ribbon::run),
    ("split-block", split_block::run),
    ("watch-set", watch_set::run),
];

fn main() {
    let mut report = testkit::timer::Report::from_args();
    for (name, run) in PARTS {
        if report.wants(name) {
            run(&mut report);
        }
    }
    report.finish();
}
