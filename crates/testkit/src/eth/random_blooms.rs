//! Random log blooms of consecutive blocks, and queries of them.

use chainsieve::eth::bloom;

use crate::Rng;

/// Returns a random value: half of the values are frequent, the others rare.
fn value(rng: &mut Rng) -> [u16; 3] {
    let number = if rng.below(2) == 0 { rng.below(8) } else { rng.below(4_000) };
    bloom::positions(&number.to_be_bytes())
}

/// Returns random blooms in runs. The blooms of a run are all empty, all sparse, all half full or
/// all dense, but some runs also contain a few blooms with all bits set.
pub fn blooms(rng: &mut Rng, count: usize) -> Vec<[u8; 256]> {
    let mut blooms = Vec::with_capacity(count);
    while blooms.len() < count {
        let kind = rng.below(5);
        let stretch = 1 + rng.below(2 * 8_192);
        let full = rng.below(3) == 0;
        for _ in 0..stretch.min(count - blooms.len()) {
            let mut bloom = [0; 256];
            let words = bloom.as_chunks_mut::<8>().0;
            match kind {
                0 => {}
                // Each bloom gets at most three values.
                1 | 2 => (0..rng.below(4)).for_each(|_| bloom::accrue(&mut bloom, &value(rng))),
                3 => {
                    for word in words {
                        *word = rng.u64().to_le_bytes();
                    }
                    bloom::accrue(&mut bloom, &value(rng));
                }
                _ => words.iter_mut().for_each(|word| {
                    *word = (rng.u64() | rng.u64() | rng.u64() | rng.u64()).to_le_bytes();
                }),
            }
            if full && rng.below(1_000) == 0 {
                bloom = [u8::MAX; 256];
            }
            blooms.push(bloom);
        }
    }
    blooms
}

/// Returns the clauses of a random query, each with the positions of its values.
pub fn clauses(rng: &mut Rng) -> Vec<Vec<[u16; 3]>> {
    let num_clauses = [0, 1, 1, 1, 2, 2, 3, 5, 9][rng.below(9)];
    let clause = |rng: &mut Rng| {
        let count = [0, 1, 1, 1, 1, 1, 1, 2, 2, 3, 10, 10, 1_000][rng.below(13)];
        let mut values: Vec<_> = (0..count).map(|_| value(rng)).collect();
        if rng.below(20) == 0 {
            values.extend((0..2).map(|_| [u16::try_from(rng.below(2048)).expect("small"); 3]));
        }
        values
    };
    (0..num_clauses).map(|_| clause(rng)).collect()
}
