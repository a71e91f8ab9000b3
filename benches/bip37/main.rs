//! BIP37 against a plain loop over crate `mur3` (as fast as Bitcoin Core's own code), against
//! crate `chain-gang`, and against `bitcoin`'s merkle blocks.
//!
//! `cargo bench --bench bip37 -- [--quick] [--json FILE]`

#[path = "../timer/mod.rs"]
mod timer;

mod element;
mod plain;

fn main() {
    let mut report = timer::Report::from_args();
    element::run(&mut report);
    report.finish();
}
