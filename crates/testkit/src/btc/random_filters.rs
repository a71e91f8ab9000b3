//! Random BIP37 filters of every size, fill and number of hash functions, some with elements of a
//! block.

use crate::Rng;
use crate::btc::oracle::TestBlock;
use crate::btc::slow_bip37::script::non_empty_pushes;
use crate::btc::slow_bip37::{SlowFilter, outpoint_bytes};

/// Flags to test: each update mode, the value that Core masks to "no update", and a reserved bit.
pub const FLAGS: [u8; 5] = [0, 1, 2, 3, 0x81];

/// Returns each element of the block's transactions with a chance of one in `n`: ids, output data,
/// outpoints, input data.
pub fn elements(rng: &mut Rng, block: &TestBlock, n: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for tx in &block.block.txdata {
        let mut add = |element: &[u8]| {
            if rng.one_in(n) {
                all.push(element.to_vec());
            }
        };
        add(tx.compute_txid().as_ref());
        for output in &tx.output {
            non_empty_pushes(output.script_pubkey.as_bytes()).into_iter().for_each(&mut add);
        }
        for input in &tx.input {
            add(&outpoint_bytes(&input.previous_output));
            non_empty_pushes(input.script_sig.as_bytes()).into_iter().for_each(&mut add);
        }
    }
    all
}

/// Returns named filters with flags 0 for this block, with sizes from zero to the limit.
pub fn filters(rng: &mut Rng, block: &TestBlock) -> Vec<(&'static str, SlowFilter)> {
    let transactions = block.block.txdata.len();
    let few = elements(rng, block, 3 + transactions);
    let many = elements(rng, block, 3 + transactions / 40);
    let holding = |rng: &mut Rng, size: usize, hash_funcs: u32, elements: &[Vec<u8>]| {
        let tweak = rng.u32();
        let mut filter = SlowFilter { data: vec![0; size], hash_funcs, tweak, flags: 0 };
        for element in elements {
            filter.insert(element);
        }
        filter
    };
    let random = |rng: &mut Rng, size: usize, hash_funcs: u32| {
        let (data, tweak) = (rng.bytes(size), rng.u32());
        SlowFilter { data, hash_funcs, tweak, flags: 0 }
    };
    vec![
        ("no data", random(rng, 0, 5)),
        ("no hash functions", random(rng, 9, 0)),
        ("all ones", SlowFilter { data: vec![0xff; 11], ..random(rng, 0, 7) }),
        ("all zeros", holding(rng, 300, 4, &[])),
        ("1 byte, 1 function", random(rng, 1, 1)),
        ("1 byte with one element, 1 function", holding(rng, 1, 1, &few[..few.len().min(1)])),
        ("3 bytes, 50 functions", holding(rng, 3, 50, &few[..few.len().min(1)])),
        ("half full, 7 bytes, 8 functions", random(rng, 7, 8)),
        ("a few elements, 61 bytes, 12 functions", holding(rng, 61, 12, &few)),
        ("some elements, 2,396 bytes, 13 functions", holding(rng, 2_396, 13, &many)),
        ("half full, 36,000 bytes, 1 function", random(rng, 36_000, 1)),
        ("half full, 36,000 bytes, 10 functions", random(rng, 36_000, 10)),
        ("half full, 36,000 bytes, 17 functions", random(rng, 36_000, 17)),
        ("some elements, 36,000 bytes, 50 functions", holding(rng, 36_000, 50, &many)),
        ("some elements, 32,768 bytes, 11 functions", holding(rng, 32_768, 11, &many)),
    ]
}
