//! A gate before each sorted segment of an index (a log-structured merge tree): segments that can't
//! contain a key are not read.
//!
//! `cargo run --example segment_gate`
#![expect(clippy::cast_precision_loss, reason = "counts become an average")]

use std::error::Error;

use chainsieve_filter::split_block::SplitBlockFilter512;
use chainsieve_filter::{Filter, Insert, KeyHasher};

/// Number of segments, and number of keys in each.
const SEGMENTS: u64 = 20;
const KEYS: u64 = 5_000;

/// A sorted file on disk, and its gate, which stays in memory.
struct Segment {
    txids: Vec<[u8; 32]>,
    gate: SplitBlockFilter512,
}

fn txid(number: u64) -> [u8; 32] {
    let half = |seed| KeyHasher::xxh3(seed).hash::<u128>(&number.to_le_bytes()).to_le_bytes();
    let mut txid = [0; 32];
    txid.as_chunks_mut::<16>().0.copy_from_slice(&[half(1), half(2)]);
    txid
}

fn main() -> Result<(), Box<dyn Error>> {
    // An explicit key gives the same figures each time. Use `KeyHasher::random()` for gates that
    // are queried with keys of strangers.
    let hasher = KeyHasher::siphash_1_3([1, 2]);
    let segments = (0..SEGMENTS).map(|segment| -> Result<Segment, Box<dyn Error>> {
        let mut gate = SplitBlockFilter512::with_fpr(KEYS, 0.01, hasher)?;
        let mut txids: Vec<_> = (0..KEYS).map(|key| txid(segment * KEYS + key)).collect();
        txids.iter().try_for_each(|txid| gate.insert(txid).map(drop))?;
        txids.sort_unstable();
        Ok(Segment { txids, gate })
    });
    let segments: Vec<_> = segments.collect::<Result<_, _>>()?;
    let gate_bits: u64 = segments.iter().map(|segment| segment.gate.num_bits()).sum();
    let bits_each = gate_bits as f64 / (SEGMENTS * KEYS) as f64;
    println!("{SEGMENTS} segments of {KEYS} keys, gates of {bits_each:.1} bits a key");

    // Every second key is in no segment. One hash serves the gates of all segments.
    let (mut reads, mut gated_reads, mut found) = (0_u64, 0_u64, 0_u64);
    for number in (0..2 * SEGMENTS * KEYS).step_by(20) {
        let txid = txid(number);
        let hash = hasher.hash(&txid);
        // Search the newest segment first, until the key is found.
        let mut exact = None;
        for (place, segment) in segments.iter().enumerate().rev() {
            reads += 1;
            if segment.txids.binary_search(&txid).is_ok() {
                exact = Some(place);
                break;
            }
        }
        let gated = segments.iter().rposition(|segment| {
            let may_be_here = segment.gate.contains_hash(hash);
            gated_reads += u64::from(may_be_here);
            may_be_here && segment.txids.binary_search(&txid).is_ok()
        });
        assert_eq!(gated, exact, "the gates change no answer");
        found += u64::from(gated.is_some());
    }
    println!("10000 keys asked for, {found} found, the same with gates and without");
    let share = 100.0 * gated_reads as f64 / reads as f64;
    println!("segments read: {reads} without gates, {gated_reads} with: {share:.1} %");
    Ok(())
}
