//! Operations on blocks of bits: shifts of 64-bit words, and operations on both halves of sixteen
//! lanes at once.

use super::super::{Backend, Kernel, Lanes};
use super::samples;

/// Eight 64-bit words, each shifted left by the count of the same lane, up to 127.
struct Shift([u64; 8], [u64; 8]);

impl Kernel for Shift {
    type Output = [u64; 8];

    fn scalar(self) -> [u64; 8] {
        core::array::from_fn(|lane| {
            self.0[lane].checked_shl(u32::try_from(self.1[lane]).unwrap()).unwrap_or(0)
        })
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> [u64; 8] {
        let mut out = [0; 8];
        let shifted = lanes.shl_each_long(lanes.load_long(&self.0), lanes.load_long(&self.1));
        lanes.store_long(shifted, &mut out);
        out
    }
}

/// Loads two halves of four 64-bit words, and fills each half of a second vector with one `u32`.
/// Returns `true` for each half of the first array whose set bits are all set in the same half of
/// the second array.
struct Halves([u64; 8], [u64; 8], [u32; 2]);

impl Kernel for Halves {
    type Output = ([u64; 8], [u32; 16], [bool; 2]);

    fn scalar(self) -> Self::Output {
        let Self(a, of, [first, second]) = self;
        let splat = core::array::from_fn(|lane| if lane < 8 { first } else { second });
        let is_subset = |half: usize| (half * 4..half * 4 + 4).all(|at| a[at] & !of[at] == 0);
        (a, splat, [is_subset(0), is_subset(1)])
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let halves = |words: &[u64; 8]| {
            let [first, second] = words.as_chunks::<4>().0 else { unreachable!("twice 4 is 8") };
            lanes.load_long_halves(first, second)
        };
        let (mut loaded, mut splat) = ([0; 8], [0; 16]);
        let a = halves(&self.0);
        lanes.store_long(a, &mut loaded);
        lanes.store(lanes.splat_halves(self.2[0], self.2[1]), &mut splat);
        (loaded, splat, lanes.are_subsets(a, halves(&self.1)))
    }
}

#[test]
fn long_words_shifted() {
    for (a, b) in samples() {
        let long = core::array::from_fn(|lane| u64::from(a[lane]) << 32 | u64::from(b[lane]));
        let counts = core::array::from_fn(|lane| u64::from(b[lane + 8] & 127));
        let expected = Shift(long, counts).scalar();
        for backend in Backend::available() {
            assert_eq!(backend.run(Shift(long, counts)), expected, "{backend:?} {counts:?}");
        }
    }
}

#[test]
fn two_halves() {
    let mut seen = [0; 4];
    for (round, (a, b)) in samples().enumerate() {
        let a: [u64; 8] =
            core::array::from_fn(|lane| u64::from(a[lane]) << 32 | u64::from(a[lane + 8]));
        let mut of = core::array::from_fn(|lane| a[lane] | u64::from(b[lane]));
        // The four rounds of a cycle remove one bit from neither half, from one half, from the
        // other half, or from both.
        for half in 0..2 {
            let at = half * 4 + round / 4 % 4;
            if round >> half & 1 != 0 && a[at] != 0 {
                of[at] &= !(1 << a[at].ilog2());
            }
        }
        let halves = || Halves(a, of, [b[0], b[9]]);
        let expected = halves().scalar();
        seen[usize::from(expected.2[0]) * 2 + usize::from(expected.2[1])] += 1;
        for backend in Backend::available() {
            assert_eq!(backend.run(halves()), expected, "{backend:?}");
        }
    }
    assert!(seen.iter().all(|&times| times > 20), "{seen:?}");
}
