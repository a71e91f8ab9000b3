//! Random damage to bytes.

use crate::Rng;

/// Returns a copy that is changed in one to four positions: flipped bits, changed bytes, cuts,
/// repeated parts.
pub fn mutated(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = *rng.pick(&[0, 1, 0x4c, 0x4d, 0x4e, 0x7f, 0x80, 0xfd, 0xfe, 0xff]),
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            4 => bytes.insert(at, rng.array::<1>()[0]),
            5 => {
                let end = (at + 1 + rng.below(8)).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            _ => {
                let copy = bytes[at..(at + 40).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}
