//! Keccak-256 as Ethereum uses it: the padding of the Keccak submission, not that of SHA-3.
//!
//! Single messages are hashed by `tiny-keccak`, which is also the scalar version of the batch
//! function. With one message in each lane, four or eight permutations together cost little more
//! than one.
//!
//! Source: Yellow Paper, appendix B; The Keccak reference, version 3.0.

#![expect(
    clippy::needless_range_loop,
    reason = "in a loop over lanes, closures would not inline into functions with CPU features"
)]

use alloc::vec::Vec;

use tiny_keccak::{Hasher as _, Keccak, keccakf};

use crate::simd::{Backend, Kernel, Lanes};

/// Returns the Keccak-256 hash of `bytes`.
#[inline]
pub fn keccak256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    let mut keccak = Keccak::v256();
    keccak.update(bytes);
    keccak.finalize(&mut hash);
    hash
}

/// Returns the Keccak-256 hash of each message, in order.
///
/// # Cost
/// Time in proportion to the bytes of the messages, plus a sort of the messages by length.
/// Allocates the hashes and 16 bytes more for each message.
pub fn keccak256_each(backend: Backend, messages: &[&[u8]]) -> Vec<[u8; 32]> {
    backend.run(HashEach { messages })
}

/// Bytes of a message that one permutation absorbs: Keccak's rate for hashes of 256 bits.
const BLOCK: usize = 136;

/// Number of busy lanes below which it is faster to hash one message after the other. On Zen 5, a
/// permutation of four lanes takes 1.3 times as long as a scalar permutation. A permutation of
/// eight lanes takes about as long as a scalar permutation.
const BUSY_LANES: usize = 2;

struct HashEach<'a> {
    messages: &'a [&'a [u8]],
}

/// A message that is being hashed in a lane.
#[derive(Clone, Copy)]
struct Underway<'a> {
    message: usize,
    /// The bytes that are not absorbed yet. If `rest` is shorter than a block, the next block is
    /// the last block, and contains the padding.
    rest: &'a [u8],
}

impl Kernel for HashEach<'_> {
    type Output = Vec<[u8; 32]>;

    fn scalar(self) -> Vec<[u8; 32]> {
        self.messages.iter().map(|message| keccak256(message)).collect()
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Vec<[u8; 32]> {
        if self.messages.len() < BUSY_LANES {
            return self.scalar();
        }
        // Sort the longest messages last, and take messages from the end, so that all lanes finish
        // at about the same time.
        let mut waiting: Vec<(usize, usize)> =
            self.messages.iter().map(|message| message.len() / BLOCK).zip(0..).collect();
        waiting.sort_unstable();

        let mut hashes = alloc::vec![[0; 32]; self.messages.len()];
        let mut underway: [Option<Underway<'_>>; 8] = [None; 8];
        let mut states = [[0; 8]; 25];
        let mut padded = [[0; BLOCK]; 8];
        loop {
            // Lanes that start a new message this round get 0 here, which clears their old state.
            let mut busy = 0;
            let mut keep = [u64::MAX; 8];
            for lane in 0..L::LANES {
                if underway[lane].is_none()
                    && let Some((_, message)) = waiting.pop()
                {
                    underway[lane] = Some(Underway { message, rest: self.messages[message] });
                    keep[lane] = 0;
                }
                let Some(Underway { rest, .. }) = underway[lane] else { continue };
                busy += 1;
                if rest.len() < BLOCK {
                    pad(rest, &mut padded[lane]);
                }
            }
            // Too few lanes have work left: finish their messages one by one.
            if busy < BUSY_LANES {
                for lane in 0..L::LANES {
                    if let Some(Underway { message, rest }) = underway[lane] {
                        let state = if keep[lane] == 0 { [0; 25] } else { column(&states, lane) };
                        hashes[message] = finish(state, rest);
                    }
                }
                return hashes;
            }
            let mut blocks = [&padded[0]; 8];
            for lane in 0..L::LANES {
                let Some(Underway { rest, .. }) = underway[lane] else { continue };
                blocks[lane] = rest.first_chunk().unwrap_or(&padded[lane]);
            }
            absorb(lanes, &mut states, &keep, blocks);
            for lane in 0..L::LANES {
                let Some(Underway { message, rest }) = &mut underway[lane] else { continue };
                if let Some(behind) = rest.get(BLOCK..) {
                    *rest = behind;
                } else {
                    hashes[*message] = hash_of(&column(&states, lane));
                    underway[lane] = None;
                }
            }
        }
    }
}

/// Writes the last block of a message: the last bytes of the message, which are fewer than a block,
/// and the padding.
#[inline(always)]
fn pad(rest: &[u8], block: &mut [u8; BLOCK]) {
    *block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x01;
    block[BLOCK - 1] |= 0x80;
}

/// Returns the first `N` words of a lane's state.
#[inline(always)]
fn column<const N: usize>(states: &[[u64; 8]; 25], lane: usize) -> [u64; N] {
    let mut words = [0; N];
    for (word, state) in words.iter_mut().zip(states) {
        *word = state[lane];
    }
    words
}

#[inline(always)]
fn hash_of(words: &[u64; 4]) -> [u8; 32] {
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    hash
}

/// Hashes the bytes `rest`, which are not in the state yet, and returns the hash of the message.
#[cold]
fn finish(mut state: [u64; 25], mut rest: &[u8]) -> [u8; 32] {
    let mut absorb = |block: &[u8; BLOCK]| {
        for (word, bytes) in state.iter_mut().zip(block.as_chunks::<8>().0) {
            *word ^= u64::from_le_bytes(*bytes);
        }
        keccakf(&mut state);
    };
    while let Some((block, behind)) = rest.split_first_chunk() {
        absorb(block);
        rest = behind;
    }
    let mut last = [0; BLOCK];
    pad(rest, &mut last);
    absorb(&last);
    let [a, b, c, d, ..] = state;
    hash_of(&[a, b, c, d])
}

/// Absorbs a block in each lane. Lanes with 0 in `keep` start from a zero state.
#[inline(always)]
fn absorb<L: Lanes>(
    lanes: L,
    states: &mut [[u64; 8]; 25],
    keep: &[u64; 8],
    blocks: [&[u8; BLOCK]; 8],
) {
    let keep = lanes.load_64(keep);
    let mut state = [keep; 25];
    for word in 0..25 {
        state[word] = lanes.and_64(lanes.load_64(&states[word]), keep);
    }
    // A block has seventeen words. Sixteen of them are transposed, eight at a time.
    let mut last = [0; 8];
    let mut rows = [[&[0; 64]; 8]; 2];
    for lane in 0..L::LANES {
        let ([low, high], rest) = blocks[lane].as_chunks::<64>() else { continue };
        (rows[0][lane], rows[1][lane]) = (low, high);
        last[lane] = rest.try_into().map_or(0, u64::from_le_bytes);
    }
    state[16] = lanes.xor_64(state[16], lanes.load_64(&last));
    for eight in 0..2 {
        let words = lanes.transpose_64(rows[eight]);
        for word in 0..8 {
            state[eight * 8 + word] = lanes.xor_64(state[eight * 8 + word], words[word]);
        }
    }
    let state = permute(lanes, state);
    for word in 0..25 {
        lanes.store_64(state[word], &mut states[word]);
    }
}

/// The permutation `Keccak-f[1600]`, lane by lane: word `x + 5 * y` of the state is at column x,
/// row y.
#[inline(always)]
fn permute<L: Lanes>(lanes: L, mut state: [L::W; 25]) -> [L::W; 25] {
    // The registers that a round writes are not those that it reads. So two rounds per iteration
    // are faster than one.
    for pair in ROUND_CONSTANTS.as_chunks::<2>().0 {
        state = round(lanes, round(lanes, state, pair[0]), pair[1]);
    }
    state
}

/// One round of the permutation, with fixed indices, so that the words stay in registers.
#[inline(always)]
fn round<L: Lanes>(lanes: L, a: [L::W; 25], constant: u64) -> [L::W; 25] {
    // Step theta: each word is combined with the parities of two columns.
    macro_rules! parity {
        ($x:literal) => {
            lanes.xor3_64(lanes.xor3_64(a[$x], a[$x + 5], a[$x + 10]), a[$x + 15], a[$x + 20])
        };
    }
    let c = [parity!(0), parity!(1), parity!(2), parity!(3), parity!(4)];
    macro_rules! effect {
        ($left:literal, $right:literal) => {
            lanes.xor_64(c[$left], lanes.rotate_left_64::<1>(c[$right]))
        };
    }
    let d = [effect!(4, 1), effect!(0, 2), effect!(1, 3), effect!(2, 4), effect!(3, 0)];

    // Steps rho and pi: each word is rotated and moved to its new position. Step chi: each word is
    // combined with the next two of its row.
    macro_rules! moved {
        ($from:literal) => {
            lanes.xor_64(a[$from], d[$from % 5])
        };
        ($from:literal, $bits:literal) => {
            lanes.rotate_left_64::<$bits>(moved!($from))
        };
    }
    macro_rules! row {
        ($($from:literal $(<< $bits:literal)?),*) => {{
            let b = [$(moved!($from $(, $bits)?)),*];
            [
                lanes.xor_and_not_64(b[0], b[1], b[2]),
                lanes.xor_and_not_64(b[1], b[2], b[3]),
                lanes.xor_and_not_64(b[2], b[3], b[4]),
                lanes.xor_and_not_64(b[3], b[4], b[0]),
                lanes.xor_and_not_64(b[4], b[0], b[1]),
            ]
        }};
    }
    let [r0, a1, a2, a3, a4] = row!(0, 6 << 44, 12 << 43, 18 << 21, 24 << 14);
    let [a5, a6, a7, a8, a9] = row!(3 << 28, 9 << 20, 10 << 3, 16 << 45, 22 << 61);
    let [b0, b1, b2, b3, b4] = row!(1 << 1, 7 << 6, 13 << 25, 19 << 8, 20 << 18);
    let [b5, b6, b7, b8, b9] = row!(4 << 27, 5 << 36, 11 << 10, 17 << 15, 23 << 56);
    let [c0, c1, c2, c3, c4] = row!(2 << 62, 8 << 55, 14 << 39, 15 << 41, 21 << 2);
    // Step iota: add the round constant.
    let a0 = lanes.xor_64(r0, lanes.splat_64(constant));
    [
        a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
        c3, c4,
    ]
}

/// Round constants of step iota: The Keccak reference, section 1.2.
#[rustfmt::skip]
static ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001, 0x0000_0000_0000_8082, 0x8000_0000_0000_808a, 0x8000_0000_8000_8000,
    0x0000_0000_0000_808b, 0x0000_0000_8000_0001, 0x8000_0000_8000_8081, 0x8000_0000_0000_8009,
    0x0000_0000_0000_008a, 0x0000_0000_0000_0088, 0x0000_0000_8000_8009, 0x0000_0000_8000_000a,
    0x0000_0000_8000_808b, 0x8000_0000_0000_008b, 0x8000_0000_0000_8089, 0x8000_0000_0000_8003,
    0x8000_0000_0000_8002, 0x8000_0000_0000_0080, 0x0000_0000_0000_800a, 0x8000_0000_8000_000a,
    0x8000_0000_8000_8081, 0x8000_0000_0000_8080, 0x0000_0000_8000_0001, 0x8000_0000_8000_8008,
];

#[cfg(test)]
mod tests;
