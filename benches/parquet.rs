//! Parquet's Bloom filters: we read what the crate of Apache Arrow writes, and the crate reads what we write.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

use chainsieve_filter::interop::parquet::{HASHER, decode, encode};
use chainsieve_filter::split_block::SplitBlockFilter256;
use chainsieve_filter::{Filter as _, Insert as _};
use parquet::bloom_filter::Sbbf;

#[path = "../crates/filter/tests/filters/key_families.rs"]
#[expect(dead_code, reason = "seeds of other tests")]
mod key_families;

use key_families::Family;

fn keys(family: Family, range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    family.keys(3, range)
}

fn ours(num_blocks: u64, keys: &[Vec<u8>]) -> SplitBlockFilter256 {
    let mut filter = SplitBlockFilter256::with_blocks(num_blocks, HASHER).expect("small");
    for key in keys {
        filter.insert(key).expect("no limit");
    }
    filter
}

fn theirs(num_blocks: u64, keys: &[Vec<u8>]) -> Sbbf {
    let mut filter = Sbbf::new_with_num_of_bytes(usize::try_from(num_blocks * 32).expect("small"));
    for key in keys {
        filter.insert(key.as_slice());
    }
    filter
}

fn bytes_of(filter: &Sbbf) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write(&mut bytes).expect("memory");
    bytes
}

#[test]
fn both_write_the_same_bytes_and_answer_alike() {
    for family in Family::ALL {
        let strangers = keys(family, 1 << 40..(1 << 40) + 5_000);
        for (num_blocks, count) in [(1, 0), (1, 7), (4, 50), (256, 4_000), (4096, 50_000)] {
            let keys = keys(family, 0..count);
            let (ours, theirs) = (ours(num_blocks, &keys), theirs(num_blocks, &keys));
            let bytes = encode(&ours).expect("a power of two");
            assert!(bytes == bytes_of(&theirs), "{family:?}, {count} in {num_blocks}");

            let read_by_them = Sbbf::from_bytes(&bytes).expect("what we wrote");
            let read_by_us = decode(&bytes_of(&theirs)).expect("what they wrote");
            assert!(keys.iter().all(|key| read_by_them.check(key.as_slice())));
            let mut hits = 0;
            for key in keys.iter().chain(&strangers) {
                let expected = theirs.check(key.as_slice());
                assert_eq!(ours.contains(key), expected);
                assert_eq!(read_by_us.contains(key), expected);
                assert_eq!(read_by_them.check(key.as_slice()), expected);
                hits += u64::from(expected);
            }
            assert!(hits >= count && (num_blocks == 1 || hits < count + 2_500));

            // The number of keys is not in the bytes, so it is estimated.
            let error = (read_by_us.len() as f64 - count as f64).abs();
            assert!(error <= 0.02 * count as f64 + 3.0, "{} for {count}", read_by_us.len());
        }
    }
}

/// Parquet's filters have twice the requested rate if they are sized by the formula of classic
/// filters. The test uses a number of keys for which rounding up to a power of two adds almost no
/// space, because more space would hide the difference.
#[test]
fn the_classic_formula_undersizes_and_ours_does_not() {
    let (count, target) = (71_700, 0.001);
    let keys = keys(Family::Random, 0..count);
    let strangers = keys_of_strangers(400_000);
    let mut theirs = Sbbf::new_with_ndv_fpp(count, target).expect("a rate");
    assert_eq!(theirs.num_blocks(), 4096);
    for key in &keys {
        theirs.insert(key.as_slice());
    }
    let measured = |contains: &dyn Fn(&[u8]) -> bool| {
        strangers.iter().filter(|key| contains(key)).count() as f64 / strangers.len() as f64
    };
    let rate = measured(&|key| theirs.check(key));
    assert!((1.9 * target..2.4 * target).contains(&rate), "{rate}");
    // The rate that the filter computes from its bits agrees with the measured rate.
    let read = decode(&bytes_of(&theirs)).expect("what they wrote");
    assert!((read.expected_fpr() / rate - 1.0).abs() < 0.1, "{}", read.expected_fpr());

    let mut sized = SplitBlockFilter256::with_fpr(count, target, HASHER).expect("a size");
    for key in &keys {
        sized.insert(key).expect("no limit");
    }
    let rate = measured(&|key| sized.contains(key));
    assert!((0.85 * target..1.15 * target).contains(&rate), "{rate}");
    assert_eq!(chainsieve_filter::interop::parquet::num_blocks(count, target), Ok(8192));
}

fn keys_of_strangers(count: u64) -> Vec<Vec<u8>> {
    keys(Family::Random, 1 << 40..(1 << 40) + count)
}
