//! Double SHA-256 of many messages at once: Bitcoin's transaction ids and merkle nodes.
//!
//! Single messages are hashed by `bitcoin_hashes`, which is also the scalar version of the batch
//! function. With messages in lanes, sixteen compressions cost little more than one compression by
//! the CPU's SHA instructions.
//!
//! Source: FIPS 180-4.

#![expect(
    clippy::needless_range_loop,
    reason = "in a loop over lanes, closures would not inline into functions with CPU features"
)]

use alloc::vec::Vec;

use bitcoin_hashes::{Hash as _, HashEngine as _, sha256d};

use crate::simd::{Backend, Kernel, Lanes};

/// A message as the concatenation of three parts; each part may be empty.
pub type Message<'a> = [&'a [u8]; 3];

/// Returns the double SHA-256 of each message, in order.
///
/// # Cost
/// Time in proportion to the bytes of the messages, plus a sort of the messages by length.
/// Allocates the hashes and 24 bytes more for each message.
pub fn sha256d_each(backend: Backend, messages: &[Message<'_>]) -> Vec<[u8; 32]> {
    backend.run(HashEach { messages })
}

struct HashEach<'a> {
    messages: &'a [Message<'a>],
}

impl Kernel for HashEach<'_> {
    type Output = Vec<[u8; 32]>;

    fn scalar(self) -> Vec<[u8; 32]> {
        self.messages.iter().map(hash_one).collect()
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Vec<[u8; 32]> {
        let mut hashes = alloc::vec![[0; 32]; self.messages.len()];
        // Sort the longest messages last, and take messages from the end, so that all lanes finish
        // at about the same time.
        let mut waiting: Vec<(usize, usize)> =
            self.messages.iter().map(num_blocks).zip(0..).collect();
        waiting.sort_unstable();
        let mut total: usize = waiting.iter().map(|(blocks, _)| blocks).sum();
        // A message that is much longer than all others is hashed alone, because most lanes would
        // be empty at its end.
        while let Some(&(blocks, i)) = waiting.last()
            && blocks * BUSY_LANES > total
        {
            hashes[i] = hash_one(&self.messages[i]);
            total -= blocks;
            waiting.pop();
        }
        let order: Vec<usize> = waiting.iter().map(|&(_, i)| i).collect();
        self.first_hashes(lanes, waiting, &mut hashes);
        for group in order.chunks(16) {
            second_hashes(lanes, group, &mut hashes);
        }
        hashes
    }
}

/// Number of busy lanes below which it is faster to hash one message after the other.
const BUSY_LANES: usize = 13;

/// A message that is being hashed in a lane.
#[derive(Clone, Copy)]
struct Underway {
    message: usize,
    next_block: usize,
    num_blocks: usize,
}

impl HashEach<'_> {
    /// Writes the first of the two hashes of each message. Takes the messages from the end of
    /// `waiting`.
    #[inline(always)]
    fn first_hashes<L: Lanes>(
        &self,
        lanes: L,
        mut waiting: Vec<(usize, usize)>,
        hashes: &mut [[u8; 32]],
    ) {
        let mut underway: [Option<Underway>; 16] = [None; 16];
        let mut states = [[0; 16]; 8];
        let mut quads = [[[0; 16]; 16]; 4];
        loop {
            let mut busy = false;
            for lane in 0..16 {
                if underway[lane].is_none()
                    && let Some((num_blocks, message)) = waiting.pop()
                {
                    underway[lane] = Some(Underway { message, next_block: 0, num_blocks });
                    set_column(&mut states, lane, &INITIAL);
                }
                let Some(this) = &mut underway[lane] else { continue };
                busy = true;
                let block = block(&self.messages[this.message], this.next_block);
                for (quad, bytes) in quads.iter_mut().zip(block.as_chunks::<16>().0) {
                    quad[lane % 4 * 4 + lane / 4] = *bytes;
                }
                this.next_block += 1;
            }
            if !busy {
                return;
            }
            let zero = lanes.splat(0);
            let (mut words, mut state) = ([zero; 16], [zero; 8]);
            for (quad, words) in quads.iter().zip(words.as_chunks_mut::<4>().0) {
                let quad = lanes.transpose(quad);
                for word in 0..4 {
                    words[word] = lanes.swap_bytes(quad[word]);
                }
            }
            for word in 0..8 {
                state[word] = lanes.load(&states[word]);
            }
            let state = compress(lanes, &state, &mut words);
            for word in 0..8 {
                lanes.store(state[word], &mut states[word]);
            }
            for lane in 0..16 {
                if let Some(this) = underway[lane]
                    && this.next_block == this.num_blocks
                {
                    hashes[this.message] = column(&states, lane);
                    underway[lane] = None;
                }
            }
        }
    }
}

/// Replaces the first hashes of up to sixteen messages by their double hashes.
#[inline(always)]
fn second_hashes<L: Lanes>(lanes: L, group: &[usize], hashes: &mut [[u8; 32]]) {
    let mut states = [[0; 16]; 8];
    for (lane, &i) in group.iter().enumerate() {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(hashes[i].as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        set_column(&mut states, lane, &words);
    }
    let zero = lanes.splat(0);
    let (mut words, mut initial) = ([zero; 16], [zero; 8]);
    for word in 0..8 {
        words[word] = lanes.load(&states[word]);
        initial[word] = lanes.splat(INITIAL[word]);
    }
    // The padding of a 32-byte message: one bit that is set, then zeros, and the message length
    // (256 bits).
    words[8] = lanes.splat(0x8000_0000);
    words[15] = lanes.splat(256);
    let state = compress(lanes, &initial, &mut words);
    for word in 0..8 {
        lanes.store(state[word], &mut states[word]);
    }
    for (lane, &i) in group.iter().enumerate() {
        hashes[i] = column(&states, lane);
    }
}

fn set_column(states: &mut [[u32; 16]; 8], lane: usize, words: &[u32; 8]) {
    for (state, word) in states.iter_mut().zip(words) {
        state[lane] = *word;
    }
}

fn column(states: &[[u32; 16]; 8], lane: usize) -> [u8; 32] {
    let mut hash = [0; 32];
    for (bytes, state) in hash.as_chunks_mut::<4>().0.iter_mut().zip(states) {
        *bytes = state[lane].to_be_bytes();
    }
    hash
}

fn hash_one(message: &Message<'_>) -> [u8; 32] {
    let mut engine = sha256d::Hash::engine();
    for part in message {
        engine.input(part);
    }
    sha256d::Hash::from_engine(engine).to_byte_array()
}

fn length(message: &Message<'_>) -> usize {
    message[0].len() + message[1].len() + message[2].len()
}

/// Returns the number of 64-byte blocks of the padded message. The padding has at least nine bytes:
/// one byte 0x80, and eight bytes with the length.
fn num_blocks(message: &Message<'_>) -> usize {
    (length(message) + 9).div_ceil(64)
}

/// Returns block `index` of the padded message.
#[inline(always)]
fn block(message: &Message<'_>, index: usize) -> [u8; 64] {
    let start = index * 64;
    let mut part_start = 0;
    for part in message {
        // The common case: the whole block is within one part.
        if let Some(block) =
            start.checked_sub(part_start).and_then(|at| part.get(at..)?.first_chunk())
        {
            return *block;
        }
        part_start += part.len();
    }
    assemble(message, start)
}

/// Returns a block that contains bytes of several parts or of the padding.
#[cold]
fn assemble(message: &Message<'_>, start: usize) -> [u8; 64] {
    let mut block = [0; 64];
    let mut part_start = 0;
    for part in message {
        let from = start.saturating_sub(part_start);
        let to = (start + 64).saturating_sub(part_start).min(part.len());
        if from < to {
            block[part_start + from - start..][..to - from].copy_from_slice(&part[from..to]);
        }
        part_start += part.len();
    }
    if let Some(end) = part_start.checked_sub(start).and_then(|end| block.get_mut(end)) {
        *end = 0x80;
    }
    if part_start + 9 <= start + 64 {
        block[56..].copy_from_slice(&(part_start as u64 * 8).to_be_bytes());
    }
    block
}

/// Returns the XOR of `x` rotated left by three counts.
#[inline(always)]
fn sigma<L: Lanes, const A: u32, const B: u32, const C: u32>(lanes: L, x: L::V) -> L::V {
    let (a, b) = (lanes.rotate_left::<A>(x), lanes.rotate_left::<B>(x));
    lanes.xor(lanes.xor(a, b), lanes.rotate_left::<C>(x))
}

/// SHA-256's compression function, lane by lane. Overwrites the message words.
#[inline(always)]
fn compress<L: Lanes>(lanes: L, state: &[L::V; 8], w: &mut [L::V; 16]) -> [L::V; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    // Rounds and schedule use fixed indices, so that the words stay in registers.
    macro_rules! round {
        ($k:ident, $t:literal, $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {
            // Rotations right by 6, 11 and 25, and by 2, 13 and 22.
            let sum = lanes.add($h, sigma::<L, 26, 21, 7>(lanes, $e));
            let choice = lanes.xor($g, lanes.and($e, lanes.xor($f, $g)));
            let constant = lanes.add(w[$t], lanes.splat($k[$t]));
            let sum = lanes.add(lanes.add(sum, choice), constant);
            let majority = lanes.xor(lanes.and($a, $b), lanes.and($c, lanes.xor($a, $b)));
            $d = lanes.add($d, sum);
            $h = lanes.add(lanes.add(sum, majority), sigma::<L, 30, 19, 10>(lanes, $a));
        };
    }
    macro_rules! schedule {
        ($($i:literal),*) => {$(
            // Rotations right by 7 and 18 with a shift by 3, and by 17 and 19 with a shift by 10.
            let x = w[($i + 1) % 16];
            let s0 = lanes.xor(lanes.rotate_left::<25>(x), lanes.rotate_left::<14>(x));
            let s0 = lanes.xor(s0, lanes.shr::<3>(x));
            let x = w[($i + 14) % 16];
            let s1 = lanes.xor(lanes.rotate_left::<15>(x), lanes.rotate_left::<13>(x));
            let s1 = lanes.xor(s1, lanes.shr::<10>(x));
            w[$i] = lanes.add(lanes.add(w[$i], s0), lanes.add(w[($i + 9) % 16], s1));
        )*};
    }
    for (sixteen, k) in K.as_chunks::<16>().0.iter().enumerate() {
        if sixteen > 0 {
            schedule!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        }
        round!(k, 0, a b c d e f g h);
        round!(k, 1, h a b c d e f g);
        round!(k, 2, g h a b c d e f);
        round!(k, 3, f g h a b c d e);
        round!(k, 4, e f g h a b c d);
        round!(k, 5, d e f g h a b c);
        round!(k, 6, c d e f g h a b);
        round!(k, 7, b c d e f g h a);
        round!(k, 8, a b c d e f g h);
        round!(k, 9, h a b c d e f g);
        round!(k, 10, g h a b c d e f);
        round!(k, 11, f g h a b c d e);
        round!(k, 12, e f g h a b c d);
        round!(k, 13, d e f g h a b c);
        round!(k, 14, c d e f g h a b);
        round!(k, 15, b c d e f g h a);
    }
    let [sa, sb, sc, sd, se, sf, sg, sh] = *state;
    [
        lanes.add(sa, a),
        lanes.add(sb, b),
        lanes.add(sc, c),
        lanes.add(sd, d),
        lanes.add(se, e),
        lanes.add(sf, f),
        lanes.add(sg, g),
        lanes.add(sh, h),
    ]
}

/// Initial hash value: FIPS 180-4, section 5.3.3.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Round constants: FIPS 180-4, section 4.2.2.
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

#[cfg(test)]
mod tests {
    use super::{Message, sha256d_each};
    use crate::simd::Backend;

    /// Compares every backend with `bitcoin_hashes`, at every length around the block boundaries,
    /// with messages cut into parts at different positions.
    #[test]
    fn lengths_and_parts() {
        let bytes: Vec<u8> = (0..=255).cycle().take(700).map(|byte: u8| byte ^ 0x5a).collect();
        let messages: Vec<Message<'_>> = (0..300)
            .map(|i| {
                let length = i % 200 + i / 200 * 130;
                let (first, rest) = bytes[i..i + length].split_at(length * (i % 7) / 6);
                let (second, third) = rest.split_at(rest.len() * (i % 5) / 4);
                [first, second, third]
            })
            .collect();
        for count in [0, 1, 11, 12, 13, 15, 16, 17, 31, 32, 33, 300] {
            let expected = sha256d_each(Backend::SCALAR, &messages[..count]);
            for backend in Backend::available() {
                assert_eq!(sha256d_each(backend, &messages[..count]), expected, "{backend:?}");
            }
        }
    }
}
