//! Ethereum: queries over many headers' filters and watches over one, against
//! `alloy_primitives::Bloom` and the `Filter` of `alloy-rpc-types-eth`.
//!
//! `cargo bench --bench eth -- [--quick] [--json FILE] [PART …]`

#[path = "../timer/mod.rs"]
mod timer;

mod scan;
mod watches;

fn main() {
    let mut report = timer::Report::from_args();
    if report.wants("scan") {
        scan::run(&mut report);
    }
    if report.wants("watches") {
        watches::run(&mut report);
    }
    report.finish();
}
