//! Filters from untrusted sources: cut, with flipped bits, with false counts and long runs. The
//! strict reader accepts one form of each set, and the cost of reading is proportional to the
//! number of bytes.

use std::collections::HashMap;

use chainsieve::btc::bip158::{
    Acceptance, DecodedFilter, GcsError, GcsParams, Matcher, PreparedScripts, gcs,
};
use chainsieve::simd::Backend;

use crate::survives;
use testkit::Rng;
use testkit::btc::fixtures;
use testkit::btc::naive_gcs::{Coding, Fault, compact_size};
use testkit::btc::oracle;
use testkit::btc::random_sets::{coding, elements, queries};
use testkit::mutated;
use testkit::vectors::inputs;

/// The parameters of the basic filter, with an arbitrary key.
const BASIC: Coding = Coding { k0: 1, k1: 2, p: 19, m: 784_931 };

/// Returns the largest number of values that the bytes can hold. Each value takes a zero bit and
/// the remainder at least.
fn most_values(coding: Coding, bytes: &[u8]) -> usize {
    bytes.len() * 8 / (usize::from(coding.p) + 1)
}

/// Reads a set in every way, compares the results with a reader written from the BIP, and returns
/// the number of values.
///
/// Memory is limited to the values that the bytes can hold and the working memory of one matcher.
fn read(coding: Coding, bytes: &[u8]) -> Result<usize, Fault> {
    let reading = coding.check_reading(bytes);
    let scripts: PreparedScripts = [&b"a script"[..], &[0x51; 34]].into_iter().collect();
    // A `Vec` of values allocates room for at least four.
    let memory = most_values(coding, bytes).max(4) * 8;
    for backend in Backend::available() {
        for acceptance in [Acceptance::Core, Acceptance::Strict] {
            survives("decode", bytes, 0, memory, || {
                let mut values = Vec::new();
                let filter = coding.parse(bytes, acceptance)?;
                filter.decode_into_on(backend, &mut values)
            })
            .ok();
            survives("matching", bytes, 0, 3 * memory + 70_000, || {
                let filter = coding.parse(bytes, acceptance)?;
                Matcher::new().with_backend(backend).match_any(&filter, &scripts)
            })
            .ok();
            survives("DecodedFilter", bytes, 0, 3 * memory + 70_000, || {
                let filter = coding.parse(bytes, acceptance)?;
                DecodedFilter::decode(&filter).map(drop)
            })
            .ok();
        }
    }
    reading.map(|reading| reading.values.len())
}

/// Returns small sets with several parameters, and the filter of a block.
fn whole_sets() -> Vec<(Coding, Vec<u8>)> {
    let mut rng = Rng::new(0x1580);
    let sets = (0..60).map(|round| {
        let coding = coding(&mut rng);
        let elements = elements(&mut rng, round % 13);
        (coding, coding.encode(&elements))
    });
    let mut sets: Vec<_> = sets.collect();
    let block = fixtures::read("blocks/mainnet_57043.json");
    let block: serde_json::Value = serde_json::from_str(&block).expect("JSON");
    let filter = oracle::from_hex(block["basic_filter"].as_str().expect("hex"));
    sets.push((BASIC, filter));
    sets
}

#[test]
fn cut_at_every_byte_and_lengthened() {
    for (coding, whole) in whole_sets() {
        let count = read(coding, &whole).expect("a set");
        for end in 0..whole.len() {
            let fault = read(coding, &whole[..end]).expect_err("cut");
            let expected = if end == 0 { Fault::CountCut } else { Fault::Cut };
            assert_eq!(fault, expected, "{coding:?} cut at {end}");
        }
        for more in [&[0_u8][..], &[0xff], &[0; 40], &[0xff; 40]] {
            let longer = [&whole[..], more].concat();
            assert_eq!(read(coding, &longer), Err(Fault::Trailing), "{coding:?}");
            for acceptance in [Acceptance::Core, Acceptance::Strict] {
                let error = coding.decode(Backend::best(), &longer, acceptance);
                assert_eq!(error, Err(GcsError::TrailingBytes(more.len())), "{count} values");
            }
        }
    }
}

/// The strict reader accepts one encoding of each set: encoding the values again gives the same
/// bytes. Tests flips of each bit, and every string of at most two bytes.
#[test]
fn a_set_has_one_form() {
    let mut seen = HashMap::new();
    let mut taken = 0;
    let mut only_by_core = 0;
    let mut check = |coding: Coding, bytes: Vec<u8>| {
        let Ok(reading) = coding.check_reading(&bytes) else { return };
        let written = coding.encode_values(&reading.values);
        assert_eq!(reading.is_canonical(), !reading.over_range && written == bytes);
        if !reading.is_canonical() {
            only_by_core += 1;
            return;
        }
        taken += 1;
        let (p, m) = (coding.p, coding.m);
        let before = seen.insert((p, m, reading.values.clone()), bytes.clone());
        assert!(before.is_none_or(|before| before == bytes), "{p}, {m}, {:?}", reading.values);
    };
    for (coding, whole) in whole_sets() {
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            check(coding, flipped);
        }
    }
    for (p, m) in [(0, 1), (0, 3), (1, 2), (2, 5), (3, 40), (7, 200)] {
        let coding = Coding { k0: 0, k1: 0, p, m };
        check(coding, Vec::new());
        for first in 0..=u8::MAX {
            check(coding, vec![first]);
            (0..=u8::MAX).for_each(|second| check(coding, vec![first, second]));
        }
    }
    assert!(taken > 2_000 && only_by_core > 2_000, "{taken} taken, {only_by_core} only by Core");
}

#[test]
fn counts_that_lie() {
    let codes = [0x55; 300];
    let over_bytes = |count: u64| [&compact_size(count)[..], &codes].concat();
    let most = (300 * 8 / 20) as u64;
    assert!(matches!(read(BASIC, &over_bytes(1)), Err(Fault::Trailing)));
    for count in [most + 1, 0xfc, 0xfd, 0xffff, 0x1_0000, 0x01ff_ffff, 0x0200_0000] {
        assert_eq!(read(BASIC, &over_bytes(count)), Err(Fault::Cut), "{count}");
    }
    for count in [0x0200_0001, u32::MAX.into(), 1 << 32, u64::MAX] {
        assert_eq!(read(BASIC, &over_bytes(count)), Err(Fault::CountTooLarge), "{count}");
        let error = BASIC.parse(&over_bytes(count), Acceptance::Core).map(drop);
        assert_eq!(error, Err(GcsError::CountTooLarge(count)));
    }
    for count in [0_u64, 1, 0xfc, 0xfd, 0xffff, 0x1_0000, 0xffff_ffff] {
        let bytes = count.to_le_bytes();
        for (marker, size) in [(0xfd, 2), (0xfe, 4), (0xff, 8)] {
            if compact_size(count).len() > size {
                continue;
            }
            let padded = [&[marker], &bytes[..size], &codes].concat();
            assert_eq!(read(BASIC, &padded), Err(Fault::CountNonMinimal), "{count} in {size}");
            let error = BASIC.parse(&padded, Acceptance::Core).map(drop);
            assert_eq!(error, Err(GcsError::CountNonMinimal(count)));
        }
    }
    for cut in [&[][..], &[0xfd], &[0xfd, 0], &[0xfe, 0, 0, 1], &[0xff; 8]] {
        assert_eq!(read(BASIC, cut), Err(Fault::CountCut));
    }
}

/// The largest count in the fewest bytes: 4 MiB of zeros, in which each bit is a value. With one
/// byte less, the bytes can't hold the count.
#[test]
fn the_largest_count() {
    const COUNT: usize = 0x0200_0000;
    let coding = Coding { k0: 1, k1: 2, p: 0, m: 1 };
    let mut bytes = compact_size(COUNT as u64);
    bytes.resize(bytes.len() + COUNT / 8, 0);
    for acceptance in [Acceptance::Core, Acceptance::Strict] {
        let values = survives("the largest count", &bytes, 64, 20_000, || {
            let mut values = Vec::new();
            let filter = coding.parse(&bytes, acceptance).expect("as many values as bits");
            filter.decode_into(&mut values).map(|()| values)
        });
        assert!(values.is_ok_and(|values| values == vec![0; COUNT]));
    }
    bytes.pop();
    let error = coding.parse(&bytes, Acceptance::Core).map(drop);
    let (count, most) = (0x0200_0000, 0x0200_0000 - 8);
    assert_eq!(error, Err(GcsError::CountOverBytes { count, most }));
}

/// Runs of ones: without an end, with a distant end, and of every length around a machine word.
#[test]
fn unary_runs() {
    for p in [0, 1, 19, 31, 32] {
        for m in [1, 784_931, u32::MAX] {
            let coding = Coding { k0: 1, k1: 2, p, m };
            let endless = [&[1][..], &[0xff; 5_000]].concat();
            assert_eq!(read(coding, &endless), Err(Fault::Cut));
            for ones in (0..200_u32).chain([4_000, 65_535, 65_536, 65_537]) {
                let value = u128::from(ones) << p;
                let bytes = coding.encode_values(&[value]);
                assert_eq!(read(coding, &bytes), Ok(1), "{ones} ones, P = {p}");
                let over_range = value >= u128::from(m);
                let strict = coding.decode(Backend::best(), &bytes, Acceptance::Strict);
                assert_eq!(strict.is_err(), over_range, "{ones} ones, P = {p}, M = {m}");
                // Encode the run twice: the second value is twice the first.
                let bytes = coding.encode_values(&[value, 2 * value]);
                assert_eq!(read(coding, &bytes), Ok(2), "{ones} ones twice, P = {p}");
            }
        }
    }
    // One run of a megabyte, and a megabyte of shorter runs.
    for run in [1_000_000, 100, 7] {
        let mut bytes = compact_size((1_000_000 / (run + 3)) as u64);
        while bytes.len() < 1_000_000 {
            bytes.resize(bytes.len() + run, 0xff);
            bytes.extend([0, 0, 0]);
        }
        let _ = read(BASIC, &bytes);
    }
}

/// Every P, with the smallest and the largest M whose codes stay short, and values of M between
/// them.
#[test]
fn every_remainder_width() {
    let mut rng = Rng::new(0x1581);
    for p in 0..=GcsParams::MAX_P {
        let scale = 1_u64 << p;
        let ms = [1, 2, scale - 1, scale, scale + 1, scale * 3 / 2, scale * 40, u32::MAX.into()];
        for m in ms.into_iter().filter(|m| *m > 0 && m >> p < 2_000) {
            let Ok(m) = u32::try_from(m) else { continue };
            let coding = Coding { k0: rng.u64(), k1: rng.u64(), p, m };
            for count in [0, 1, 2, 9, 300] {
                let elements = elements(&mut rng, count);
                let bytes = coding.encode(&elements);
                assert_eq!(coding.written(&elements), bytes, "{coding:?}");
                let mut asked = queries(&mut rng, &elements, 30);
                asked.extend(elements.iter().take(10).cloned());
                let found = coding.check_matching(&bytes, &asked).expect("what was written");
                assert!(found.len() >= elements.len().min(10), "{coding:?}");
                for _ in 0..4 {
                    let bytes = mutated(&mut rng, &bytes);
                    let _ = coding.check_matching(&bytes, &asked);
                }
            }
        }
    }
    for p in [33, 34, 64, 255] {
        assert_eq!(GcsParams::new(p, 1), Err(GcsError::RemainderBits(p)));
    }
    for p in [0, 19, 32] {
        assert_eq!(GcsParams::new(p, 0), Err(GcsError::ZeroM));
        let params = GcsParams::new(p, u32::MAX).expect("the limits");
        assert_eq!((params.p(), params.m()), (p, u32::MAX));
    }
}

/// An M far above 2^P makes the codes extremely long. The encoder rejects such a set before it
/// writes the codes.
#[test]
fn sets_that_would_be_written_without_end() {
    let mut rng = Rng::new(0x1584);
    for (p, m) in [(0, u32::MAX), (1, u32::MAX), (0, 1 << 30)] {
        let coding = Coding { k0: 1, k1: 2, p, m };
        let elements: Vec<_> = (0..20).map(|_| rng.array::<30>()).collect();
        let last = *coding.values(&elements).last().expect("twenty");
        let input = elements.concat();
        let slices = elements.iter().map(<[u8; 30]>::as_slice);
        let written = survives("encode", &input, 40, 0, || {
            gcs::encode(coding.params(), coding.key(), slices).map(drop)
        });
        // The quotients of the deltas add up to the last quotient, except for the borrows of the
        // remainders.
        let Err(GcsError::TooLong(bits)) = written else { panic!("{coding:?}: {written:?}") };
        assert!(bits > gcs::MAX_ENCODED_BITS && bits.abs_diff(last >> p) <= 20 * 2, "{coding:?}");
    }
}

#[test]
fn mutated_filters() {
    let mut rng = Rng::new(0x1583);
    let sets = inputs("gcs.decode").into_iter().map(|input| {
        let key = oracle::from_hex(input["key"].as_str().expect("hex"));
        let half = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("8 bytes"));
        let p = u8::try_from(input["p"].as_u64().expect("a number")).expect("a byte");
        let m = u32::try_from(input["m"].as_u64().expect("a number")).expect("32 bits");
        let encoded = oracle::from_hex(input["encoded"].as_str().expect("hex"));
        (Coding { k0: half(0), k1: half(8), p, m }, encoded)
    });
    let sets: Vec<_> = sets.collect();
    assert!(sets.len() > 100, "{}", sets.len());
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let (coding, whole) = rng.pick(&sets).clone();
        match read(coding, &mutated(&mut rng, &whole)) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 1_000 && refused > 5_000, "{taken} taken, {refused} refused");
}
