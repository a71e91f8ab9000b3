//! BIP158 against `bitcoin`'s `bip158`: matching, building, decoding and rescanning; and against
//! binary fuse filters of the same blocks.
//!
//! `cargo bench -p benches --bench bip158 -- [--once | --quick] [--json FILE] [PART …]`

mod build;
mod decode;
mod decoded;
mod filters;
mod fuse;
mod matching;
mod rescan;

fn main() {
    let mut report = testkit::timer::Report::from_args();
    if report.wants("match") {
        matching::run(&mut report);
    }
    if report.wants("build") {
        build::run(&mut report);
    }
    if report.wants("decode") {
        decode::run(&mut report);
    }
    if report.wants("decoded") {
        decoded::run(&mut report);
    }
    if report.wants("rescan") {
        rescan::run(&mut report);
    }
    if report.wants("fuse") {
        fuse::run(&mut report);
    }
    report.finish();
}
