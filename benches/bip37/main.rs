//! BIP37 against a plain loop over crate `mur3` (as fast as Bitcoin Core's own code), against
//! crate `chain-gang`, and against `bitcoin`'s merkle blocks.
//!
//! `cargo bench -p benches --bench bip37 -- [--once | --quick] [--json FILE] [PART …]`

mod block;
mod element;
mod merkle;
mod plain;

fn main() {
    let mut report = testkit::timer::Report::from_args();
    if report.wants("element") {
        element::run(&mut report);
    }
    if report.wants("block") {
        block::run(&mut report);
    }
    if report.wants("merkle") {
        merkle::run(&mut report);
    }
    report.finish();
}

/// Returns the heights and the bytes of mainnet blocks, from the corpus that `CHAINSIEVE_CORPUS`
/// names, or of a small block of the fixtures if there is no corpus.
fn blocks(heights: &[u32]) -> Vec<(u32, Vec<u8>)> {
    let Some(corpus) = std::env::var_os("CHAINSIEVE_CORPUS") else {
        println!("# CHAINSIEVE_CORPUS is not set: a small block of the fixtures instead");
        return vec![(757_753, fixture_block())];
    };
    let read = |height: &u32| {
        let name = format!("bitcoin/mainnet/blocks/block_{height}.raw");
        let file = std::path::Path::new(&corpus).join(name);
        let raw =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (*height, raw)
    };
    heights.iter().map(read).collect()
}

fn fixture_block() -> Vec<u8> {
    let fixture = include_str!("../../fixtures/bitcoin/blocks/mainnet_757753.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).expect("a fixture");
    hex::decode(fixture["block"].as_str().expect("a block")).expect("hex")
}
