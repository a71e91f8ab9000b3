//! BIP37 against a plain loop over crate `mur3` (as fast as Bitcoin Core's own code), against
//! crate `chain-gang`, and against `bitcoin`'s merkle blocks.
//!
//! `cargo bench --bench bip37 -- [--quick] [--json FILE] [PART …]`

#[path = "../timer/mod.rs"]
mod timer;

mod bank;
mod block;
mod element;
mod plain;

fn main() {
    let mut report = timer::Report::from_args();
    if report.wants("element") {
        element::run(&mut report);
    }
    if report.wants("block") {
        block::run(&mut report);
    }
    if report.wants("bank") {
        bank::run(&mut report);
    }
    report.finish();
}

/// A mainnet block of the corpus that `CHAINSIEVE_CORPUS` names.
fn corpus_block(height: u32) -> Vec<u8> {
    let corpus = std::env::var_os("CHAINSIEVE_CORPUS").unwrap_or_else(|| "../shared/corpus".into());
    let file =
        std::path::Path::new(&corpus).join(format!("bitcoin/mainnet/blocks/block_{height}.raw"));
    std::fs::read(&file).unwrap_or_else(|error| {
        panic!("{}: {error} (CHAINSIEVE_CORPUS names the folder of the corpus)", file.display())
    })
}
