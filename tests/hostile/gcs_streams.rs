//! Long streams of codes that mislead a reader which starts in the middle.
//!
//! Some have a period, so that such a reader never finds the start of a code. Some have runs as
//! long as a machine word. Some have only short codes, only long codes, or one code with most of
//! the bits. Streams are also cut, changed and given wrong counts.

use chainsieve::btc::bip158::Acceptance;
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::btc::naive_gcs::{Coding, compact_size};
use testkit::mutated;

/// Returns the deltas of 200 to 5,000 codes, most of them with small quotients.
fn deltas(rng: &mut Rng, p: u8) -> Vec<u64> {
    let most = *rng.pick(&[900, 1_500, 2_500, 5_000]);
    let count = 200 + rng.below(most - 199);
    let width = 1_u64 << p;
    let quotient = |rng: &mut Rng| match rng.below(12) {
        0..6 => 0,
        6..9 => 1,
        9 | 10 => rng.below(5) as u64,
        _ => rng.below(20) as u64,
    };
    let by_chance = |rng: &mut Rng| quotient(rng) * width + rng.u64() % width;
    let mut deltas: Vec<u64> = match rng.below(6) {
        0 => {
            let of_bits = *rng.pick(&[0, u64::MAX, 0x5555_5555_5555_5555, 0x0f0f_0f0f_0f0f_0f0f]);
            let delta = *rng.pick(&[0, 1, 2]) * width + of_bits % width;
            vec![delta; count]
        }
        1 => {
            let period: Vec<_> = (0..2 + rng.below(9)).map(|_| by_chance(rng)).collect();
            period.into_iter().cycle().take(count).collect()
        }
        // Remainders of ones look like quotients. Remainders of zeros look like codes.
        2 => (0..count).map(|_| quotient(rng) * width + *rng.pick(&[0, width - 1])).collect(),
        _ => (0..count).map(|_| by_chance(rng)).collect(),
    };
    for _ in 0..rng.below(6) {
        let ones = match rng.below(50) as u64 {
            0 => 200,
            1 => 3_000,
            // A window of 64 bits no longer contains the whole code.
            most => 18 + most,
        };
        let at = rng.below(count);
        deltas[at] = ones * width + rng.u64() % width;
    }
    if rng.one_in(4) {
        // Fill one range with equal deltas.
        let start = rng.below(count);
        let end = (start + rng.below(400)).min(count);
        let delta = by_chance(rng);
        deltas[start..end].fill(delta);
    }
    deltas
}

fn written(coding: Coding, deltas: &[u64]) -> Vec<u8> {
    let sum = |sum: &mut u128, delta: &u64| {
        *sum += u128::from(*delta);
        Some(*sum)
    };
    let values: Vec<_> = deltas.iter().scan(0, sum).collect();
    coding.encode_values(&values)
}

#[test]
fn whole_streams() {
    let mut rng = Rng::new(0x5e7);
    let mut canonical = 0;
    for round in 0..2_000 {
        let p = if round % 3 > 0 { 19 } else { u8::try_from(rng.below(27)).expect("small") };
        let m = *rng.pick(&[(1 << p) / 2 + 1, (1 << p) * 3 / 2, 8 << p]);
        let coding = Coding { k0: 1, k1: 2, p, m };
        let deltas = deltas(&mut rng, p);
        let bytes = written(coding, &deltas);
        let reading = coding.check_reading(&bytes).expect("what was written");
        assert_eq!(reading.values.len(), deltas.len());
        canonical += usize::from(reading.is_canonical());
        // Decoding into a used list, longer or shorter, gives the same values.
        if round % 10 == 0 {
            let filter = coding.parse(&bytes, Acceptance::Core).expect("a set");
            for backend in Backend::available() {
                let mut used = rng.pick(&[vec![], vec![u64::MAX; 40], vec![9; 9_000]]).clone();
                filter.decode_into_on(backend, &mut used).expect("a set");
                assert!(used.iter().map(|v| u128::from(*v)).eq(reading.values.iter().copied()));
            }
        }
    }
    assert!((400..1_900).contains(&canonical), "{canonical} canonical");
}

#[test]
fn damaged_streams() {
    let mut rng = Rng::new(0x5e8);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let p = *rng.pick(&[0, 4, 10, 19, 19, 19, 19, 24]);
        let coding = Coding { k0: 1, k1: 2, p, m: 3 << p >> 1 | 1 };
        let deltas = deltas(&mut rng, p);
        let mut bytes = written(coding, &deltas);
        match rng.below(4) {
            0 => bytes = mutated(&mut rng, &bytes),
            1 => {
                // Damage near the end, where a reader that loads many bytes may read past the end.
                let at = bytes.len() - 1 - rng.below(24);
                bytes[at] ^= 1 << rng.below(8);
            }
            2 => {
                let at = 5 + rng.below(bytes.len() - 5);
                bytes[at] = *rng.pick(&[0, 0xff]);
            }
            _ => {
                // Claim more or fewer codes than there are.
                let counted = compact_size(deltas.len() as u64).len();
                let count = deltas.len() + 3 - rng.below(7);
                bytes.splice(..counted, compact_size(count as u64));
            }
        }
        match coding.check_reading(&bytes) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 300 && refused > 300, "{taken} taken, {refused} refused");
}

/// Ranges of short and of long codes. Readers that start at equal distances in bits are at unequal
/// distances in codes, so they may not meet, or may run into the end.
#[test]
fn uneven_streams() {
    const P: u8 = 19;
    let mut rng = Rng::new(0x5eb);
    let coding = Coding { k0: 1, k1: 2, p: P, m: u32::MAX };
    for round in 0..500 {
        let count = *rng.pick(&[650, 1_200, 2_500, 6_000, 20_000]) + rng.below(40);
        let count = if round % 5 == 0 { count } else { count.min(6_000) };
        let mut deltas = Vec::new();
        while deltas.len() < count {
            let quotient = *rng.pick(&[0, 0, 1, 2, 4, 6]);
            let stretch = 1 + rng.below(count / 2);
            // All codes of the range have one length, or two.
            let spread = 1 + rng.below(2) as u64;
            let delta = |rng: &mut Rng| {
                let ones = quotient + rng.u64() % spread;
                ones << P | rng.u64() % (1 << P)
            };
            deltas.extend((0..stretch).map(|_| delta(&mut rng)));
        }
        deltas.truncate(count);
        let bytes = written(coding, &deltas);
        let reading = coding.check_reading(&bytes).expect("what was written");
        assert!(reading.values.len() == count && reading.is_canonical());
    }
}

/// Random bits are a stream too, with the right count or with a count that is wrong by one.
#[test]
fn streams_by_chance() {
    let mut rng = Rng::new(0x5e9);
    for round in 0..600 {
        let p = *rng.pick(&[0, 2, 12, 19, 19, 19, 24, 32]);
        let coding = Coding { k0: 1, k1: 2, p, m: u32::MAX >> (32 - p).min(31) };
        let length = 600 + rng.below(9_000);
        let mut codes = rng.bytes(length);
        if round % 4 == 0 {
            // Make ones rare or common.
            let other = rng.bytes(length);
            let rare = round % 8 == 0;
            let thin = |(byte, other): (&mut u8, u8)| {
                *byte = if rare { *byte & other } else { *byte | other };
            };
            codes.iter_mut().zip(other).for_each(thin);
        }
        let counted = |count: u64| [&compact_size(count)[..], &codes].concat();
        let (_, values) = coding.prefix(&counted(1 << 25)).expect("a count");
        let whole = values.len() as u64;
        for count in [whole - 1, whole, whole + 1] {
            let reading = coding.check_reading(&counted(count));
            assert!(reading.is_err() || count <= whole);
        }
    }
}

/// Every count around those at which a reader changes its method.
#[test]
fn every_count() {
    let mut rng = Rng::new(0x5ea);
    for count in
        (300..600).step_by(9).chain(590..650).chain(1_090..1_180).chain((650..3_000).step_by(97))
    {
        let coding = Coding { k0: rng.u64(), k1: rng.u64(), p: 19, m: 784_931 };
        let elements: Vec<_> = (0..count).map(|_| rng.array::<22>()).collect();
        let bytes = coding.written(&elements);
        let reading = coding.check_reading(&bytes).expect("what was written");
        assert!(coding.values(&elements).into_iter().map(u128::from).eq(reading.values));
        let zeros = coding.encode_values(&vec![0; count]);
        assert!(coding.check_reading(&zeros).is_ok_and(|reading| reading.is_canonical()));
    }
}
