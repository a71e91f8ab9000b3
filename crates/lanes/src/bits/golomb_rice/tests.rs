//! Compares the sums of every backend with codes that are decoded bit by bit.

use alloc::vec::Vec;

use super::lockstep::Plan;
use super::{LANE_CHAINS_FROM, PLAIN_CHAINS_FROM, code_bits, put, sums};
use crate::bits::bit_stream::BitWriter;
use crate::simd::Backend;
use testkit::Rng;

/// Returns the differences between `count` sorted numbers below `count * m`, as a filter encodes
/// them.
fn distances(random: &mut Rng, count: u64, m: u64) -> Vec<u64> {
    let mut values: Vec<u64> = (0..count).map(|_| random.u64() % (count * m)).collect();
    values.sort_unstable();
    let before = [0].into_iter().chain(values.iter().copied());
    before.zip(&values).map(|(before, value)| value - before).collect()
}

fn encode(values: &[u64], p: u8) -> Vec<u8> {
    let mut writer = BitWriter::default();
    for value in values {
        put(&mut writer, *value, p);
    }
    let bytes = writer.finish();
    let bits: u64 = values.iter().map(|value| code_bits(*value, p)).sum();
    assert_eq!(bytes.len() as u64, bits.div_ceil(8));
    bytes
}

/// Decodes the codes as their definition says, one bit at a time.
fn bit_by_bit(codes: &[u8], p: u8, count: usize) -> (Vec<u64>, Option<u64>) {
    let mut bits = codes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1));
    let mut position = 0;
    let mut next = || {
        position += 1;
        bits.next().map(u64::from)
    };
    let mut sums = Vec::new();
    let mut sum = 0_u128;
    while sums.len() < count {
        let mut code = || {
            let mut quotient = 0;
            while next()? == 1 {
                quotient += 1;
            }
            (0..p).try_fold(quotient, |value, _| Some(value << 1 | u128::from(next()?)))
        };
        let Some(value) = code() else { return (sums, None) };
        sum = (sum + value).min(u64::MAX.into());
        sums.push(u64::try_from(sum).unwrap());
    }
    (sums, Some(position))
}

/// Compares all backends, with an output vector that holds old entries. Returns `true` if the bytes
/// contain all `count` codes.
fn check(codes: &[u8], p: u8, count: usize, what: &str) -> bool {
    let (expected, end) = bit_by_bit(codes, p, count);
    for backend in Backend::available() {
        let mut found = alloc::vec![7; count / 2];
        assert_eq!(sums(backend, codes, p, count, &mut found), end, "{what}, {backend:?}");
        assert!(found == expected, "{what}, {backend:?}");
    }
    end.is_some()
}

#[test]
fn sets_of_all_sizes_and_parameters() {
    let mut random = Rng::new(1);
    for (p, m) in [(19, 784_931), (0, 1), (1, 3), (8, 300), (19, 100), (19, 8_000_000)]
        .into_iter()
        .chain([(20, 1 << 20), (22, 6_000_000), (24, 1 << 24), (25, 1 << 25), (32, 1 << 32)])
    {
        for count in [0, 1, 2, 3, 50, 400, 599, 600, 601, 1_000, 1_100, 1_101, 5_000, 5_003, 20_000]
        {
            let distances = distances(&mut random, count, m);
            let codes = encode(&distances, p);
            let what = alloc::format!("p {p}, m {m}, {count} values");
            assert!(check(&codes, p, distances.len(), &what));
            // The check also runs with a `count` that is below the number of codes in the bytes.
            for part in [distances.len() * 15 / 16, distances.len() * 9 / 10] {
                assert!(check(&codes, p, part, &what));
            }
            let (found, _) = bit_by_bit(&codes, p, distances.len());
            let sum = |sum: &mut u64, distance: &u64| {
                *sum += distance;
                Some(*sum)
            };
            assert!(distances.iter().scan(0, sum).eq(found), "{what}: not what was encoded");
        }
    }
}

#[test]
fn bytes_of_any_kind() {
    let mut random = Rng::new(3);
    for p in [0, 3, 15, 19, 21, 24, 32] {
        for round in 0..20 {
            let ones = random.u64() % 5;
            let length = random.u64() % 6_000;
            let byte = |_: u64| {
                let a = random.u64();
                let b = random.u64();
                // The streams range from nearly all ones to nearly all zeros.
                [a, a | b, a & b, a | b | b >> 32, a & b & b >> 32][usize::try_from(ones).unwrap()]
                    .to_le_bytes()[0]
            };
            let codes: Vec<u8> = (0..length).map(byte).collect();
            let most = codes.len() as u64 * 8 / (u64::from(p) + 1);
            for share in [1, 2, 3] {
                let count = usize::try_from(most * share / 3).unwrap();
                check(&codes, p, count, &alloc::format!("p {p}, round {round}, {count} values"));
            }
        }
    }
}

/// Streams on which a parser that starts inside a code never reaches the end of a true code.
#[test]
fn streams_on_which_parsers_never_meet() {
    let count = 4_000;
    for (p, value) in [(19, 0), (19, 1), (19, 0x2_aaaa), (19, 0x7_fffe), (20, 3 << 20), (15, 1)] {
        let mut values = alloc::vec![value; count];
        let codes = encode(&values, p);
        assert!(check(&codes, p, count, "one value over and over"));
        // The parsers synchronise at one position only.
        values[count / 2] ^= 0x155;
        assert!(check(&encode(&values, p), p, count, "the same value, except for one value"));
    }
    for byte in [0x00, 0xff, 0x55, 0xaa, 0x0f, 0x7f, 0xfe] {
        let codes = [byte; 10_000];
        check(&codes, 19, count, "one byte over and over");
        check(&codes, 19, 3_500, "one byte over and over");
    }
}

/// Bounds the work on a stream where the parsers never synchronise. Four parsers take as long as
/// one parser takes for two fifths of all codes, and sixteen parsers as long as one takes for a
/// sixth of them. After the failed attempt, one parser reads all codes again.
#[test]
fn parsers_read_little_more_than_there_is() {
    let all = alloc::vec![0; 30_000 * 21 / 8 + 1];
    for (chains, from, most) in [(4, PLAIN_CHAINS_FROM, 1.4), (16, LANE_CHAINS_FROM, 2.1)] {
        for count in from..30_000 {
            let plan = Plan::new(chains, &all[..=count * 21 / 8], count).unwrap();
            let read = f64::from(u32::try_from(plan.each * chains).unwrap());
            let of = f64::from(u32::try_from(count).unwrap());
            assert!((0.99..=most).contains(&(read / of)), "{chains} parsers read {read} of {of}");
        }
    }
}
