//! Compares every lane operation of every backend with scalar arithmetic.

mod blocks;
mod long_words;

use testkit::Rng;

use super::{Backend, Kernel, Lanes};

type Sixteen = [u32; 16];

/// Returns values that cover every bit, carries and signs.
fn samples() -> impl Iterator<Item = (Sixteen, Sixteen)> {
    let edges = [0, 1, 7, 8, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xaaaa_aaaa];
    let mut rng = Rng::new(0);
    let mut next = move || rng.u32();
    (0..200).map(move |round| {
        let mut pair = ([0; 16], [0; 16]);
        for lane in 0..16 {
            pair.0[lane] = if round < 64 { edges[(lane + round) % 8] } else { next() };
            pair.1[lane] = if round < 64 { edges[(lane + round / 8) % 8] } else { next() };
        }
        pair
    })
}

/// Defines a test that compares the scalar form and the vector form of one operation.
macro_rules! operation {
    ($name:ident, |$a:ident, $b:ident| $plain:expr, |$lanes:ident| $vector:expr) => {
        #[test]
        fn $name() {
            struct Operation(Sixteen, Sixteen);
            impl Kernel for Operation {
                type Output = Sixteen;
                fn scalar(self) -> Sixteen {
                    core::array::from_fn(|lane| {
                        let ($a, $b) = (self.0[lane], self.1[lane]);
                        let _ = $b;
                        $plain
                    })
                }
                #[inline(always)]
                fn vector<L: Lanes>(self, $lanes: L) -> Sixteen {
                    let ($a, $b) = ($lanes.load(&self.0), $lanes.load(&self.1));
                    let _ = $b;
                    let mut out = [0; 16];
                    $lanes.store($vector, &mut out);
                    out
                }
            }
            for (a, b) in samples() {
                let expected = Operation(a, b).scalar();
                for backend in Backend::available() {
                    let result = backend.run(Operation(a, b));
                    assert_eq!(result, expected, "{backend:?} of {a:x?} and {b:x?}");
                }
            }
        }
    };
}

operation!(add, |a, b| a.wrapping_add(b), |lanes| lanes.add(a, b));
operation!(sub, |a, b| a.wrapping_sub(b), |lanes| lanes.sub(a, b));
operation!(xor, |a, b| a ^ b, |lanes| lanes.xor(a, b));
operation!(and, |a, b| a & b, |lanes| lanes.and(a, b));
operation!(mul, |a, b| a.wrapping_mul(b), |lanes| lanes.mul(a, b));
operation!(mul_high, |a, b| u32::try_from(u64::from(a) * u64::from(b) >> 32).unwrap(), |lanes| {
    lanes.mul_high(a, b)
});
operation!(shl, |a, b| a << 2, |lanes| lanes.shl::<2>(a));
operation!(shr, |a, b| a >> 13, |lanes| lanes.shr::<13>(a));
operation!(shl_each, |a, b| a << (b & 31), |lanes| {
    lanes.shl_each(a, lanes.and(b, lanes.splat(31)))
});
operation!(shr_each, |a, b| a >> (b & 31), |lanes| {
    lanes.shr_each(a, lanes.and(b, lanes.splat(31)))
});
operation!(or, |a, b| a | b, |lanes| lanes.or(a, b));
operation!(swap_bytes, |a, b| a.swap_bytes(), |lanes| lanes.swap_bytes(a));
operation!(rotate_left, |a, b| a.rotate_left(13), |lanes| lanes.rotate_left::<13>(a));

/// The results of operations with masks and of gathers: `(mask, selected, compressed, gathered)`.
struct Masked<'a>(Sixteen, Sixteen, &'a [u8]);

impl Kernel for Masked<'_> {
    type Output = (u16, Sixteen, Vec<u32>, Sixteen);

    fn scalar(self) -> Self::Output {
        let Self(a, b, bytes) = self;
        let lanes = 0..16;
        let is_set = |lane: usize| a[lane] >> (b[lane] & 31) & 1 != 0;
        let mask = lanes.clone().map(|lane| u16::from(is_set(lane)) << lane).sum();
        let select = core::array::from_fn(|lane| if is_set(lane) { a[lane] } else { b[lane] });
        let compressed = lanes.filter(|&lane| is_set(lane)).map(|lane| a[lane]).collect();
        let gathered = core::array::from_fn(|lane| {
            let offset = (a[lane] as usize).min(bytes.len() - 4);
            u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
        });
        (mask, select, compressed, gathered)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let (a, b) = (lanes.load(&self.0), lanes.load(&self.1));
        let mask = lanes.test_bit(a, lanes.and(b, lanes.splat(31)));
        let (mut selected, mut compressed, mut gathered) = ([0; 16], [0; 16], [0; 16]);
        lanes.store(lanes.select(mask, a, b), &mut selected);
        lanes.compress(mask, a, &mut compressed);
        lanes.store(lanes.gather(self.2, a), &mut gathered);
        (mask, selected, compressed[..mask.count_ones() as usize].to_vec(), gathered)
    }
}

#[test]
fn masks_and_gathers() {
    let bytes: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_mul(167)).collect();
    for (mut a, b) in samples() {
        for length in [4, 5, 7, 64, 256] {
            let bytes = &bytes[..length];
            // Usually, half of the offsets are inside the bytes, and half are past the end.
            a.iter_mut().step_by(2).for_each(|offset| *offset %= 256);
            let expected = Masked(a, b, bytes).scalar();
            for backend in Backend::available() {
                assert_eq!(backend.run(Masked(a, b, bytes)), expected, "{backend:?}");
            }
        }
    }
}

#[test]
fn fewer_than_four_bytes_are_not_gathered_from() {
    for backend in Backend::available().filter(|&backend| backend != Backend::SCALAR) {
        let gather = || backend.run(Masked([0; 16], [0; 16], &[1, 2, 3]));
        assert!(std::panic::catch_unwind(gather).is_err(), "{backend:?}");
    }
}

/// Loads the words of sixteen 16-byte blocks.
struct Transpose<'a>(&'a [[u8; 16]; 16]);

impl Kernel for Transpose<'_> {
    type Output = [Sixteen; 4];

    fn scalar(self) -> [Sixteen; 4] {
        core::array::from_fn(|word| {
            core::array::from_fn(|lane| {
                let bytes = self.0[lane % 4 * 4 + lane / 4][word * 4..][..4].try_into();
                u32::from_le_bytes(bytes.unwrap())
            })
        })
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> [Sixteen; 4] {
        let words = lanes.transpose(self.0);
        let mut rows = [[0; 16]; 4];
        for (word, row) in words.iter().zip(&mut rows) {
            lanes.store(*word, row);
        }
        rows
    }
}

#[test]
fn transpose() {
    // All 256 bytes are different.
    let mut quads = [[0; 16]; 16];
    for (byte, value) in quads.as_flattened_mut().iter_mut().zip(0..=255) {
        *byte = value;
    }
    let expected = Transpose(&quads).scalar();
    for backend in Backend::available() {
        assert_eq!(backend.run(Transpose(&quads)), expected, "{backend:?}");
    }
}

/// Defines a test of one operation with three inputs on 64-bit lanes, in its scalar and its vector
/// form. The vector form returns the first `LANES` results.
macro_rules! operation_64 {
    ($name:ident, |$a:ident, $b:ident, $c:ident| $plain:expr, |$lanes:ident| $vector:expr) => {
        #[test]
        fn $name() {
            struct Operation([[u64; 8]; 3]);
            impl Kernel for Operation {
                type Output = Vec<u64>;
                fn scalar(self) -> Vec<u64> {
                    let [a, b, c] = self.0;
                    let inputs = a.into_iter().zip(b).zip(c);
                    inputs.map(|(($a, $b), $c)| [$a, $b, $c, $plain][3]).collect()
                }
                #[inline(always)]
                fn vector<L: Lanes>(self, $lanes: L) -> Vec<u64> {
                    let [$a, $b, $c] = &self.0;
                    let ($a, $b, $c) = ($lanes.load_64($a), $lanes.load_64($b), $lanes.load_64($c));
                    let mut out = [0; 8];
                    $lanes.store_64([$a, $b, $c, $vector][3], &mut out);
                    out[..L::LANES].to_vec()
                }
            }
            for (low, high) in samples() {
                let pair = |i: usize| u64::from(high[i % 16]) << 32 | u64::from(low[i * 7 % 16]);
                let inputs = [0, 3, 8].map(|at| core::array::from_fn(|lane| pair(at + lane)));
                let expected = Operation(inputs).scalar();
                for backend in Backend::available() {
                    let result = backend.run(Operation(inputs));
                    assert!(matches!(result.len(), 4 | 8), "{backend:?}");
                    assert_eq!(result, expected[..result.len()], "{backend:?} of {inputs:x?}");
                }
            }
        }
    };
}

operation_64!(splat_64, |a, b, c| 0x0123_4567_89ab_cdef, |lanes| {
    lanes.splat_64(0x0123_4567_89ab_cdef)
});
operation_64!(xor_64, |a, b, c| a ^ b, |lanes| lanes.xor_64(a, b));
operation_64!(and_64, |a, b, c| a & b, |lanes| lanes.and_64(a, b));
operation_64!(xor3_64, |a, b, c| a ^ b ^ c, |lanes| lanes.xor3_64(a, b, c));
operation_64!(xor_and_not_64, |a, b, c| a ^ (!b & c), |lanes| lanes.xor_and_not_64(a, b, c));
operation_64!(rotate_left_64_1, |a, b, c| a.rotate_left(1), |lanes| lanes.rotate_left_64::<1>(a));
operation_64!(rotate_left_64_8, |a, b, c| a.rotate_left(8), |lanes| lanes.rotate_left_64::<8>(a));
operation_64!(rotate_left_64_36, |a, b, c| a.rotate_left(36), |lanes| {
    lanes.rotate_left_64::<36>(a)
});
operation_64!(rotate_left_64_63, |a, b, c| a.rotate_left(63), |lanes| {
    lanes.rotate_left_64::<63>(a)
});
operation_64!(add_64, |a, b, c| a.wrapping_add(b), |lanes| lanes.add_64(a, b));
operation_64!(shr_each_64, |a, b, c| a >> (b & 63), |lanes| {
    lanes.shr_each_64(a, lanes.and_64(b, lanes.splat_64(63)))
});
operation_64!(mul_low_halves_64, |a, b, c| (a & 0xffff_ffff) * (b & 0xffff_ffff), |lanes| {
    lanes.mul_low_halves_64(a, b)
});
operation_64!(
    mul_high_64,
    |a, b, c| u64::try_from(u128::from(a) * u128::from(b) >> 64).unwrap(),
    |lanes| lanes.mul_high_64(a, b)
);
operation_64!(test_bit_64, |a, b, c| a >> (b & 63) & 1, |lanes| {
    let mask = lanes.test_bit_64(a, lanes.and_64(b, lanes.splat_64(63)));
    lanes.load_64(&core::array::from_fn(|lane| u64::from(mask >> lane & 1)))
});
operation_64!(sub_64, |a, b, c| a.wrapping_sub(b), |lanes| lanes.sub_64(a, b));
operation_64!(or_64, |a, b, c| a | b, |lanes| lanes.or_64(a, b));
operation_64!(shl_each_64, |a, b, c| a.unbounded_shl(u32::try_from(b & 127).unwrap()), |lanes| {
    lanes.shl_each_64(a, lanes.and_64(b, lanes.splat_64(127)))
});
operation_64!(leading_zeros_64, |a, b, c| (a >> (b & 63)).leading_zeros().into(), |lanes| {
    let count = lanes.and_64(b, lanes.splat_64(63));
    lanes.leading_zeros_64(lanes.shr_each_64(a, count))
});
operation_64!(leading_zeros_64_of_zero, |a, b, c| 64, |lanes| {
    lanes.leading_zeros_64(lanes.splat_64(0))
});

/// Big-endian words, loaded from bytes at any offsets.
struct BigEndian<'a>(&'a [u64; 8], &'a [u8]);

impl Kernel for BigEndian<'_> {
    type Output = Vec<u64>;

    fn scalar(self) -> Vec<u64> {
        let word = |offset: &u64| {
            let last = self.1.len() - 8;
            let offset = usize::try_from(*offset).unwrap().min(last);
            u64::from_be_bytes(self.1[offset..offset + 8].try_into().unwrap())
        };
        self.0.iter().map(word).collect()
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Vec<u64> {
        let mut words = [0; 8];
        lanes.store_64(lanes.gather_big_endian_64(self.1, lanes.load_64(self.0)), &mut words);
        words[..L::LANES].to_vec()
    }
}

#[test]
fn big_endian_words() {
    let bytes: Vec<u8> = (0..100).map(|i: u8| i.wrapping_mul(151)).collect();
    for length in 8..bytes.len() {
        let last = length as u64 - 8;
        for first in [0, 1, last.saturating_sub(9), last, last + 1, u64::MAX - 7, 1 << 63] {
            let offsets = core::array::from_fn(|i| first.wrapping_add(i as u64));
            let expected = BigEndian(&offsets, &bytes[..length]).scalar();
            for backend in Backend::available() {
                let words = backend.run(BigEndian(&offsets, &bytes[..length]));
                assert_eq!(words, expected[..words.len()], "{backend:?}, {first} of {length}");
            }
        }
    }
}

#[test]
fn fewer_than_eight_bytes_are_not_gathered_from() {
    for backend in Backend::available() {
        let gather = || backend.run(BigEndian(&[0; 8], &[0; 7]));
        assert!(std::panic::catch_unwind(gather).is_err(), "{backend:?}");
    }
}

/// Words gathered at any indices, and words of a slice copied to another slice.
struct Slices<'a>(&'a [u64; 8], &'a [u64]);

impl Kernel for Slices<'_> {
    type Output = (Vec<u64>, Vec<u64>);

    fn scalar(self) -> Self::Output {
        let word = |index: &u64| self.1[usize::try_from(*index).unwrap() % self.1.len()];
        (self.0.iter().map(word).collect(), self.0.to_vec())
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let (mut gathered, mut moved) = ([0; 8], [0; 8]);
        lanes.store_64(lanes.gather_64(self.1, lanes.load_64(self.0)), &mut gathered);
        let mut part = 0;
        while part < 8 {
            lanes.store_slice_64(lanes.load_slice_64(&self.0[part..]), &mut moved[part..]);
            part += L::LANES;
        }
        (gathered[..L::LANES].to_vec(), moved.to_vec())
    }
}

#[test]
fn slices_of_words() {
    let words: Vec<u64> = (0..256).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for (a, b) in samples() {
        let indices = core::array::from_fn(|i| u64::from(a[i]) << 32 | u64::from(b[i + 8]));
        for count in [1, 2, 64, 256] {
            let expected = Slices(&indices, &words[..count]).scalar();
            for backend in Backend::available() {
                let (gathered, moved) = backend.run(Slices(&indices, &words[..count]));
                assert!(matches!(gathered.len(), 4 | 8), "{backend:?}");
                assert_eq!(gathered, expected.0[..gathered.len()], "{backend:?}");
                assert_eq!(moved, expected.1, "{backend:?}");
            }
        }
    }
}

#[test]
fn words_that_are_no_power_of_two_are_not_gathered_from() {
    for backend in Backend::available().filter(|&backend| backend != Backend::SCALAR) {
        for count in [0, 3] {
            let gather = || backend.run(Slices(&[0; 8], &[1, 2, 3][..count]));
            assert!(std::panic::catch_unwind(gather).is_err(), "{backend:?}");
        }
    }
}

/// Transposes the words of the first `LANES` rows.
struct Transpose64<'a>(&'a [[u8; 64]; 8]);

impl Kernel for Transpose64<'_> {
    type Output = [Vec<u64>; 8];

    fn scalar(self) -> Self::Output {
        core::array::from_fn(|word| {
            let word = |row: &[u8; 64]| u64::from_le_bytes(row.as_chunks().0[word]);
            self.0.iter().map(word).collect()
        })
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let [a, b, c, d, e, f, g, h] = self.0;
        let words = lanes.transpose_64([a, b, c, d, e, f, g, h]);
        let mut columns = [const { Vec::new() }; 8];
        for (word, column) in words.iter().zip(&mut columns) {
            let mut lane = [0; 8];
            lanes.store_64(*word, &mut lane);
            *column = lane[..L::LANES].to_vec();
        }
        columns
    }
}

#[test]
fn transpose_64() {
    // All 64 words are different.
    let mut rows = [[0; 64]; 8];
    for (at, byte) in rows.as_flattened_mut().iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).unwrap();
    }
    let expected = Transpose64(&rows).scalar();
    for backend in Backend::available() {
        for (column, expected) in backend.run(Transpose64(&rows)).iter().zip(&expected) {
            assert!(matches!(column.len(), 4 | 8), "{backend:?}");
            assert_eq!(column[..], expected[..column.len()], "{backend:?}");
        }
    }
}

/// Transposes rows and columns, looks up each word in a table, and compares rows as sets of bits.
struct Wide<'a>(&'a [Sixteen; 16], &'a [u8; 256]);

impl Kernel for Wide<'_> {
    type Output = ([Sixteen; 16], [Sixteen; 16], u16, Sixteen);

    fn scalar(self) -> Self::Output {
        let Self(rows, bytes) = self;
        let columns = core::array::from_fn(|column| core::array::from_fn(|row| rows[row][column]));
        let looked_up = rows.map(|row| {
            row.map(|lane| {
                let at = (lane & 63) as usize * 4;
                u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
            })
        });
        let subsets = (0..15).map(|row: usize| {
            let subset = rows[row].iter().zip(&rows[row + 1]).all(|(a, of)| a & !of == 0);
            u16::from(subset) << row
        });
        let words = core::array::from_fn(|lane| {
            u32::from_le_bytes(bytes[lane * 4 + 64..][..4].try_into().unwrap())
        });
        (columns, looked_up, subsets.sum(), words)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let mut rows = [lanes.splat(0); 16];
        for (row, from) in rows.iter_mut().zip(self.0) {
            *row = lanes.load(from);
        }
        let (mut columns, mut looked_up, mut subsets) = ([[0; 16]; 16], [[0; 16]; 16], 0);
        for (column, to) in lanes.transpose_words(rows).iter().zip(&mut columns) {
            lanes.store(*column, to);
        }
        let table = lanes.table(self.1);
        for (row, to) in rows.iter().zip(&mut looked_up) {
            lanes.store(lanes.look_up(table, *row), to);
        }
        for row in 0..15 {
            subsets |= u16::from(lanes.is_subset(rows[row], rows[row + 1])) << row;
        }
        let mut words = [0; 16];
        lanes.store(lanes.load_bytes(self.1[64..128].try_into().unwrap()), &mut words);
        (columns, looked_up, subsets, words)
    }
}

#[test]
fn words_in_rows_and_tables() {
    let bytes: [u8; 256] = core::array::from_fn(|i| u8::try_from(i).unwrap().wrapping_mul(167));
    let samples: Vec<Sixteen> = samples().flat_map(|(a, b)| [a, b]).collect();
    let mut subsets = 0;
    for rows in samples.chunks_exact(16) {
        let mut rows: [Sixteen; 16] = rows.try_into().unwrap();
        // Rows 3 and 9 contain all bits of the previous row. Row 11 contains all bits of row 10
        // except the highest bit of the last lane.
        rows[3] = core::array::from_fn(|lane| rows[3][lane] | rows[2][lane]);
        rows[9] = core::array::from_fn(|lane| rows[9][lane] | rows[8][lane]);
        rows[11] = rows[10];
        (rows[10][15], rows[11][15]) = (rows[10][15] | 1 << 31, rows[11][15] & !(1 << 31));
        let expected = Wide(&rows, &bytes).scalar();
        subsets |= expected.2;
        assert_eq!(expected.2 & 1 << 10, 0);
        for backend in Backend::available() {
            assert_eq!(backend.run(Wide(&rows, &bytes)), expected, "{backend:?}");
        }
    }
    assert_eq!(subsets & (1 << 2 | 1 << 8), 1 << 2 | 1 << 8);
}
