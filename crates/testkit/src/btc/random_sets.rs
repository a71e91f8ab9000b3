//! Random parameters, sets and queries, weighted towards the cases in which coders fail.

use crate::Rng;
use crate::btc::naive_gcs::Coding;

/// P and M of the basic filter, of other filters in use, and of sets with so high a rate that
/// elements outside the set often match.
const PARAMETERS: [(u8, u32); 11] = [
    (19, 784_931),
    (10, 1_024),
    (8, 300),
    (20, 1 << 20),
    (24, 16_777_259),
    (0, 1),
    (0, 3),
    (1, 2),
    (2, 5),
    (3, 40),
    (32, u32::MAX),
];

pub fn coding(rng: &mut Rng) -> Coding {
    let (p, m) = *rng.pick(&PARAMETERS);
    Coding { k0: rng.u64(), k1: rng.u64(), p, m }
}

/// Returns elements with lengths around multiples of the hash function's word size, and with
/// lengths of common scripts. Some elements occur twice.
pub fn elements(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    const LENGTHS: [usize; 16] = [1, 2, 7, 8, 9, 15, 16, 22, 23, 25, 34, 35, 67, 105, 256, 300];
    let mut elements: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let element = match rng.below(12) {
            0 if !elements.is_empty() => rng.pick(&elements).clone(),
            1 => {
                let length = rng.below(40);
                rng.bytes(length)
            }
            _ => {
                let length = *rng.pick(&LENGTHS);
                rng.bytes(length)
            }
        };
        elements.push(element);
    }
    elements
}

/// Returns up to `most` queries: some of them are in `elements`, the others are random.
pub fn queries(rng: &mut Rng, elements: &[Vec<u8>], most: usize) -> Vec<Vec<u8>> {
    let count = rng.below(most + 1);
    let strangers = self::elements(rng, count);
    let known = rng.below(4);
    strangers
        .into_iter()
        .map(|stranger| {
            let known = !elements.is_empty() && rng.below(4) < known;
            if known { rng.pick(elements).clone() } else { stranger }
        })
        .collect()
}
