//! Ethereum: hashes, headers, receipts, queries over blooms and signatures of sync committees,
//! compared with the usual alternatives.
//!
//! `cargo bench -p benches --bench eth -- [--once | --quick] [--json FILE] [PART …]`

mod anchors;
mod columns;
mod headers;
mod keccak;
mod query_sets;
mod receipts;
mod scan;
mod sync_committee;

fn main() {
    let mut report = testkit::timer::Report::from_args();
    if report.wants("keccak") {
        keccak::run(&mut report);
    }
    if report.wants("headers") {
        headers::run(&mut report);
    }
    if report.wants("anchors") {
        anchors::run(&mut report);
    }
    if report.wants("receipts") {
        receipts::run(&mut report);
    }
    if report.wants("columns") {
        columns::run(&mut report);
    }
    if report.wants("scan") {
        scan::run(&mut report);
    }
    if report.wants("query_sets") {
        query_sets::run(&mut report);
    }
    if report.wants("sync_committee") {
        sync_committee::run(&mut report);
    }
    report.finish();
}
