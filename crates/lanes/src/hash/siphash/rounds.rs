//! SipHash states: a state of one message, and a state with one message in each lane.

#![expect(
    clippy::needless_range_loop,
    reason = "in a loop over registers, closures would not inline into functions with CPU features"
)]

use super::SipKey;
use crate::simd::Lanes;

/// The ASCII bytes of "somepseudorandomlygeneratedbytes", big-endian.
const INITIAL: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

/// State of one hash in progress.
#[derive(Clone, Copy)]
pub(super) struct State([u64; 4]);

impl State {
    #[inline(always)]
    pub(super) fn new(key: SipKey) -> Self {
        let [a, b, c, d] = INITIAL;
        Self([key.k0 ^ a, key.k1 ^ b, key.k0 ^ c, key.k1 ^ d])
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }

    #[inline(always)]
    pub(super) fn compress(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    #[inline(always)]
    pub(super) fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [v0, v1, v2, v3] = self.0;
        v0 ^ v1 ^ v2 ^ v3
    }
}

/// States of hashes in progress, one in each lane.
#[derive(Clone, Copy)]
pub(super) struct LaneStates<L: Lanes>([L::W; 4]);

impl<L: Lanes> LaneStates<L> {
    #[inline(always)]
    pub(super) fn new(lanes: L, key: SipKey) -> Self {
        let [v0, v1, v2, v3] = State::new(key).0;
        Self([lanes.splat_64(v0), lanes.splat_64(v1), lanes.splat_64(v2), lanes.splat_64(v3)])
    }

    #[inline(always)]
    fn round(&mut self, lanes: L) {
        let [v0, v1, v2, v3] = self.0;
        let v0 = lanes.add_64(v0, v1);
        let v2 = lanes.add_64(v2, v3);
        let v1 = lanes.xor_64(lanes.rotate_left_64::<13>(v1), v0);
        let v3 = lanes.xor_64(lanes.rotate_left_64::<16>(v3), v2);
        let v0 = lanes.add_64(lanes.rotate_left_64::<32>(v0), v3);
        let v2 = lanes.add_64(v2, v1);
        let v1 = lanes.xor_64(lanes.rotate_left_64::<17>(v1), v2);
        let v3 = lanes.xor_64(lanes.rotate_left_64::<21>(v3), v0);
        let v2 = lanes.rotate_left_64::<32>(v2);
        self.0 = [v0, v1, v2, v3];
    }

    /// Absorbs one word in each lane of each state.
    #[inline(always)]
    pub(super) fn compress<const N: usize>(lanes: L, states: &mut [Self; N], words: &[L::W; N]) {
        for i in 0..N {
            states[i].0[3] = lanes.xor_64(states[i].0[3], words[i]);
        }
        Self::rounds::<N, 2>(lanes, states);
        for i in 0..N {
            states[i].0[0] = lanes.xor_64(states[i].0[0], words[i]);
        }
    }

    #[inline(always)]
    fn rounds<const N: usize, const ROUNDS: usize>(lanes: L, states: &mut [Self; N]) {
        for _ in 0..ROUNDS {
            for i in 0..N {
                states[i].round(lanes);
            }
        }
    }

    #[inline(always)]
    pub(super) fn finish<const N: usize>(lanes: L, mut states: [Self; N]) -> [L::W; N] {
        let mut hashes = [lanes.splat_64(0xff); N];
        for i in 0..N {
            states[i].0[2] = lanes.xor_64(states[i].0[2], hashes[i]);
        }
        Self::rounds::<N, 4>(lanes, &mut states);
        for i in 0..N {
            hashes[i] = states[i].hash(lanes);
        }
        hashes
    }

    #[inline(always)]
    fn hash(self, lanes: L) -> L::W {
        let [v0, v1, v2, v3] = self.0;
        lanes.xor_64(lanes.xor3_64(v0, v1, v2), v3)
    }
}
