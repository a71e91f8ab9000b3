//! Encoding sets of raw elements, and building the filter of a block, compared with `bitcoin`'s
//! writers.

use std::cell::Cell;
use std::hint::black_box;

use bitcoin::bip158::GcsFilterWriter;
use bitcoin::consensus::deserialize;
use bitcoin::{Block, OutPoint};
use chainsieve::btc::bip158::BlockFilter;
use chainsieve::btc::bip158::gcs::{self, GcsParams};
use chainsieve::hash::SipKey;
use chainsieve::simd::Backend;

use crate::filters;
use testkit::Rng;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    elements(report, 5_000);
    block(report);
}

/// Measures the encoding of raw elements, all of them different.
fn elements(report: &mut Report, count: usize) {
    let key = SipKey { k0: 158, k1: 157 };
    let sets: Vec<_> = (0..16).map(|seed| filters::scripts(&mut Rng::new(seed), count)).collect();
    let peer = || {
        let write = |set: &Vec<Vec<u8>>| {
            let mut bytes = Vec::new();
            let mut writer = GcsFilterWriter::new(&mut bytes, key.k0, key.k1, 784_931, 19);
            for element in set {
                writer.add_element(element);
            }
            writer.finish().expect("a vector takes all");
            bytes
        };
        black_box(&sets).iter().map(write).collect::<Vec<_>>()
    };
    for backend in Backend::available() {
        let ours = || {
            let encode = |set: &Vec<Vec<u8>>| {
                let elements = set.iter().map(Vec::as_slice);
                gcs::encode_on(backend, GcsParams::BASIC, key, elements).expect("few")
            };
            black_box(&sets).iter().map(encode).collect::<Vec<_>>()
        };
        assert_eq!(ours(), peer(), "the same bytes");
        let name = format!("{count} elements, encoded, per element, {backend:?}");
        report.ratio(&name, sets.len() * count, ours, peer);
    }
}

/// Measures building the filter of a block. The scripts that the block spends are made up.
fn block(report: &mut Report) {
    let (height, raw) = filters::raw_block();
    let block: Block = deserialize(&raw).expect("a block");
    let spent = filters::spent_scripts(&block, height.into());
    // `bitcoin` asks for the scripts in the order of the inputs.
    let build = |block: &Block| {
        let next = Cell::new(0);
        let script = |_: &OutPoint| {
            next.set(next.get() + 1);
            Ok(spent[next.get() - 1].as_script())
        };
        bitcoin::bip158::BlockFilter::new_script_filter(block, script).expect("all are known")
    };
    let from_block = || BlockFilter::from_prevout_scripts(&block, &spent).expect("as many");
    let from_raw = || BlockFilter::from_raw_block(&raw, &spent).expect("a block");
    let (ours, peer) = (from_block(), build(&block));
    assert_eq!((&ours.content, ours.clone()), (&peer.content, from_raw()), "the same filter");
    let name = format!("block {height}, filter built");
    report.ratio(&name, 1, from_block, || build(black_box(&block)));
    report.ratio(&format!("{name} from bytes"), 1, from_raw, || {
        build(&deserialize(black_box(&raw)).expect("a block"))
    });
}
