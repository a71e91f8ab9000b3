//! The bit-sliced index of a whole chain: the speed of building and querying, and the size.
//!
//! `cargo bench -p benches --bench index -- [--once | --quick | --full] [--json FILE] [PART …]`
//!
//! | part | what |
//! |---|---|
//! | `query` | queries in a running process, to a bitmap and a count, against alloy's `Bloom::contains` and against reading the rows needed |
//! | `cold` | the same queries with nothing of the index in memory, and the bytes that they read |
//! | `open` | opening |
//! | `size` | size on disk against that of the blooms, for a chain like mainnet and for a sparse one |
//! | `build` | building rows, and the bytes of a segment, in memory from blooms in memory, against copying the blooms |
//!
//! The chain is made up ([`blooms`]). The chain has 2,000,000 blocks, 300,000 with
//! `--quick` and `--once`, and 26,500,000 with `--full`, as many as mainnet. With `--full` the bench takes 6.8 GB of memory and
//! some more for the cache of files, 6 GB of disk and a few minutes.
//!
//! The index is built in the system's folder for temporary files and removed at the end. If
//! `CHAINSIEVE_BENCH_FOLDER` names a folder, the index is kept there and used again the next time.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares of what is counted, and a made-up chain"
)]

mod blooms;
mod build;
mod cold;
mod mapped;
mod query;
mod store;

use blooms::Chain;
use store::Store;
use testkit::timer::Report;

fn main() {
    let mut report = Report::from_args();
    let blocks = match (report.is_quick(), report.is_full()) {
        (true, _) => 300_000,
        (_, true) => 26_500_000,
        _ => 2_000_000,
    };
    let chain = Chain::mainnet(blocks);
    let started = std::time::Instant::now();
    let filters = chain.filters();
    println!("# {blocks} filters made up in {:.1} s", started.elapsed().as_secs_f64());
    blooms::describe(&chain, &filters);
    if report.wants("build") {
        build::run(&mut report, &filters);
    }
    if !["query", "size", "open", "cold"].iter().any(|part| report.wants(part)) {
        return report.finish();
    }
    let store = Store::open("mainnet", &filters);
    if report.wants("query") {
        query::run(&mut report, &chain, &filters, &store);
    }
    if report.wants("size") {
        size(&mut report, "like mainnet", &store, &filters);
        let sparse = Chain::sparse(blocks.min(1_000_000)).filters();
        size(&mut report, "sparse", &Store::open("sparse", &sparse), &sparse);
    }
    drop(filters);
    if report.wants("open") {
        report.figure("open", 1, || store.index());
    }
    if report.wants("cold") {
        cold::run(&mut report, &chain, &store);
    }
    report.finish();
}

/// Reports the size on disk against that of the blooms, and the speed of writing.
fn size(report: &mut Report, name: &str, store: &Store, filters: &[blooms::Filter]) {
    let raw = (filters.len() * 256) as f64;
    let ratio = store.size() as f64 / raw;
    report.value(&format!("size of a chain {name}"), ratio, "times its filters");
    if let Some(built) = &store.built {
        let speed = |time: std::time::Duration| raw / time.as_secs_f64() / 1e9;
        report.value(
            &format!("headers of a chain {name} verified"),
            filters.len() as f64 / built.verified.as_secs_f64() / 1e6,
            "million a second",
        );
        report.value(
            &format!("index of a chain {name} written, durable"),
            speed(built.written),
            "GB/s of filters",
        );
    }
}
