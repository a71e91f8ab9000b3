//! Split-block filters: their bits against a second implementation of the layout, laws, folding,
//! sizes.

use std::collections::BTreeSet;

use chainsieve_filter::membership::MergeError;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::split_block::{
    Bits256, Bits512, BlockShape, SplitBlockFilter, SplitBlockFilter512,
};
use chainsieve_filter::{Filter, Fold, Insert, KeyHasher, Merge, Portable};
use chainsieve_lanes::simd::Backend;

use crate::model::{Laws, Model};
use testkit::split_mix;

const HASHER: KeyHasher = KeyHasher::xxh3(0);

fn hashes(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|index| split_mix(split_mix(seed).wrapping_add(index))).collect()
}

fn empty<B: BlockShape>(num_blocks: u64) -> SplitBlockFilter<B> {
    SplitBlockFilter::with_blocks(num_blocks, HASHER).expect("small")
}

fn filled<B: BlockShape>(num_blocks: u64, hashes: &[u64]) -> SplitBlockFilter<B> {
    let mut filter = empty(num_blocks);
    filter.insert_batch(hashes).expect("no limit");
    filter
}

/// Returns the positions of the set bits, counted from the first byte of the body.
fn bits<B: BlockShape>(filter: &SplitBlockFilter<B>) -> BTreeSet<u64> {
    let bytes = filter.encode().expect("no secret");
    let body = &bytes[64..bytes.len() - 8];
    let bits = (0..).zip(body).flat_map(|(at, byte)| {
        (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| at * 8 + bit)
    });
    bits.collect()
}

/// Returns the same positions computed from the text of Parquet's specification, with eight words
/// of `word_bits` bits per block.
fn bits_by_the_text(num_blocks: u64, word_bits: u64, hashes: &[u64]) -> BTreeSet<u64> {
    let salts: [u64; 8] = [
        0x47b6_137b,
        0x4497_4d91,
        0x8824_ad5b,
        0xa2b7_289d,
        0x7054_95c7,
        0x2df1_424b,
        0x9efc_4947,
        0x5c6b_fb31,
    ];
    let mut bits = BTreeSet::new();
    for hash in hashes {
        let (high, low) = (hash / (1 << 32), hash % (1 << 32));
        let block = high * num_blocks / (1 << 32);
        for (word, salt) in (0..8).zip(salts) {
            // The upper five or six bits of the 32-bit product.
            let bit = low * salt % (1 << 32) / ((1 << 32) / word_bits);
            bits.insert((block * 8 + word) * word_bits + bit);
        }
    }
    bits
}

#[test]
fn bits_are_where_the_text_says() {
    for num_blocks in [1, 2, 3, 10, 4096] {
        for count in [0, 1, 100] {
            let hashes = hashes(num_blocks, count);
            let expected = bits_by_the_text(num_blocks, 64, &hashes);
            assert_eq!(bits(&filled::<Bits512>(num_blocks, &hashes)), expected);
            let expected = bits_by_the_text(num_blocks, 32, &hashes);
            assert_eq!(bits(&filled::<Bits256>(num_blocks, &hashes)), expected);
        }
    }
    // The extreme values of both halves of the hash.
    let ends = [0, u64::MAX, u64::MAX << 32, u64::from(u32::MAX)];
    assert_eq!(bits(&filled::<Bits512>(5, &ends)), bits_by_the_text(5, 64, &ends));
    assert_eq!(bits(&filled::<Bits256>(5, &ends)), bits_by_the_text(5, 32, &ends));
}

fn every_backend_fills_and_answers_alike<B: BlockShape>() {
    for num_blocks in [1, 2, 3, 7, 1000] {
        for count in (0..60).chain([1000, 4001]) {
            let (keys, others) = (hashes(1, count), hashes(2, count));
            let mut one_by_one = empty::<B>(num_blocks);
            for hash in &keys {
                let was_there = one_by_one.contains_hash(*hash);
                assert_eq!(one_by_one.insert_hash(*hash), Ok(!was_there));
            }
            for backend in Backend::available() {
                let mut filter = empty::<B>(num_blocks);
                filter.insert_batch_on(backend, &keys);
                assert_eq!(filter, one_by_one, "{backend:?}, {count} in {num_blocks} blocks");
                for asked in [&keys, &others] {
                    let mut answers = vec![false; asked.len()];
                    filter.contains_batch_on(backend, asked, &mut answers);
                    let expected: Vec<_> =
                        asked.iter().map(|hash| filter.contains_hash(*hash)).collect();
                    assert_eq!(answers, expected, "{backend:?}, {count} in {num_blocks} blocks");
                }
                assert!(keys.iter().all(|hash| filter.contains_hash(*hash)));
            }
        }
    }
}

#[test]
fn every_backend_fills_and_answers_alike_512() {
    every_backend_fills_and_answers_alike::<Bits512>();
}

#[test]
fn every_backend_fills_and_answers_alike_256() {
    every_backend_fills_and_answers_alike::<Bits256>();
}

#[test]
#[should_panic(expected = "an answer for every hash")]
fn a_batch_takes_as_many_answers() {
    empty::<Bits512>(1).contains_batch(&[1, 2], &mut [false]);
}

fn laws<B: BlockShape>(num_blocks: u64, hasher: KeyHasher) -> Laws<SplitBlockFilter<B>> {
    Laws::new(move || SplitBlockFilter::with_blocks(num_blocks, hasher).expect("small"))
        .portable()
        .step("read in place", |filter, _, _| {
            let bytes = filter.encode().expect("no secret");
            let words: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let in_place = bytemuck::cast_slice(&words);
            let view = SplitBlockFilter::<B, &[u64]>::view(in_place).expect("what was written");
            assert_eq!(view.stats(), filter.stats());
            for index in 0..600 {
                let key = Model::key(index);
                assert_eq!(view.contains(&key), filter.contains(&key), "{index}");
            }
        })
}

#[test]
fn sequences_of_operations_lose_no_key() {
    for num_blocks in [1, 7, 64] {
        laws::<Bits512>(num_blocks, KeyHasher::random().with_key_exposed()).merging().run(24);
        laws::<Bits256>(num_blocks, HASHER).merging().run(24);
    }
}

#[test]
fn folding_loses_no_key() {
    fn fold<B: BlockShape>() -> Laws<SplitBlockFilter<B>> {
        laws::<B>(24, HASHER)
            .step("halved", |filter, _, _| {
                let is_even = filter.num_blocks() % 2 == 0;
                let half = filter.folded().expect("memory");
                assert_eq!((half.is_some(), filter.fpr_folded().is_some()), (is_even, is_even));
                if let Some(half) = half {
                    *filter = half;
                }
            })
            .step("folded to a rate", |filter, _, number| {
                let fpr = f64::from(number) / 65_536.0;
                let before = filter.expected_fpr();
                filter.fold_to_fpr(fpr).expect("memory");
                assert!(filter.expected_fpr() <= fpr.max(before));
            })
    }
    fold::<Bits512>().run(48);
    fold::<Bits256>().run(48);
}

/// Checks that a folded filter equals, bit for bit, a filter of the smaller size with the same
/// keys.
fn folding_is_filling_a_smaller_one<B: BlockShape>() {
    let hashes = hashes(11, 3000);
    let mut filter = filled::<B>(360, &hashes);
    for num_blocks in [180, 90, 45] {
        let folded = filter.folded().expect("memory").expect("even");
        assert_eq!(folded, filled::<B>(num_blocks, &hashes));
        assert_eq!(filter.fpr_folded(), Some(folded.expected_fpr()), "{num_blocks}");
        filter = folded;
    }
    assert_eq!((filter.folded(), filter.fpr_folded()), (Ok(None), None), "odd");
}

#[test]
fn folding_is_filling_a_smaller_one_512() {
    folding_is_filling_a_smaller_one::<Bits512>();
}

#[test]
fn folding_is_filling_a_smaller_one_256() {
    folding_is_filling_a_smaller_one::<Bits256>();
}

#[test]
fn folding_to_a_rate_stops_at_the_last_that_keeps_it() {
    let filter = filled::<Bits512>(1 << 10, &hashes(12, 2000));
    for target in [1e-6, 1e-4, 0.001, 0.01, 0.1, 0.5, 1.0] {
        let mut folded = filter.clone();
        let folds = folded.fold_to_fpr(target).expect("memory");
        assert_eq!(folded.num_blocks(), 1024 >> folds);
        assert!(folded.expected_fpr() <= target || folds == 0);
        assert!(folded.num_blocks() == 1 || folded.fpr_folded().expect("even") > target);
    }
    // The mean fill to the eighth power is lower than the real rate. If the mean fill decided, this
    // filter would be folded once more, to a rate above the target.
    let mut filter = filled::<Bits256>(1 << 10, &hashes(13, 8000));
    let folded = filter.folded().expect("memory").expect("even");
    let by_mean_fill = folded.fill().powi(8);
    let target = f64::midpoint(by_mean_fill, folded.expected_fpr());
    assert!(by_mean_fill < target * 0.95 && folded.expected_fpr() > target * 1.05);
    assert_eq!(filter.fold_to_fpr(target), Ok(0));
    let mut empty = empty::<Bits512>(1 << 6 | 1 << 4);
    assert_eq!(empty.fold_to_fpr(1e-9), Ok(4));
    assert_eq!((empty.num_blocks(), empty.fold_to_fpr(f64::NAN)), (5, Ok(0)));
}

#[test]
fn merging_is_filling_with_both() {
    let (ours, theirs) = (hashes(21, 500), hashes(22, 300));
    let mut merged = filled::<Bits512>(33, &ours);
    merged.merge(&filled(33, &theirs)).expect("the same shape");
    assert_eq!(merged, filled(33, &[ours.clone(), theirs].concat()));
    assert_eq!(merged.len(), 800);

    let before = merged.clone();
    let what = "the number of blocks";
    let error = Err(MergeError::Shape { what, ours: 33, theirs: 32 });
    assert_eq!(merged.merge(&filled(32, &ours)), error);
    let other = SplitBlockFilter512::with_blocks(33, KeyHasher::xxh3(1)).expect("small");
    assert_eq!(merged.merge(&other), Err(MergeError::Hasher));
    assert_eq!(merged, before);
}

#[test]
fn sizes_that_are_none() {
    for num_blocks in [0, (1 << 28) + 1, u64::MAX] {
        let error = SplitBlockFilter512::with_blocks(num_blocks, HASHER).map(drop);
        let (what, value, min, max) = ("a number of blocks", num_blocks, 1, 1 << 28);
        assert_eq!(error, Err(BuildError::Parameter { what, value, min, max }));
    }
    let (fpr, layout, best) = (1e-8, "split-block-512", 1e-7);
    let error = SplitBlockFilter512::with_fpr(1000, fpr, HASHER).map(drop);
    assert_eq!(error, Err(BuildError::OutOfReach { fpr, layout, best }));
    for capacity in [u64::MAX, 1 << 40] {
        assert!(SplitBlockFilter512::with_fpr(capacity, 0.01, HASHER).is_err());
    }
    assert_eq!(SplitBlockFilter512::with_fpr(0, 0.01, HASHER).expect("one").num_blocks(), 1);
}

#[test]
fn keys_are_estimated_by_the_bits() {
    for count in [0, 1, 100, 10_000, 30_000] {
        let keys = hashes(31, count);
        let twice = [keys.clone(), keys].concat();
        for filter in
            [filled::<Bits512>(400, &twice).stats(), filled::<Bits256>(800, &twice).stats()]
        {
            let estimate = filter.estimated_len.expect("not full");
            let error = (estimate - count as f64).abs();
            assert!(error <= 0.01 * count as f64 + 1e-9, "{estimate}, not {count}");
            assert_eq!(filter.len, count * 2);
        }
    }
    assert_eq!(filled::<Bits512>(1, &hashes(32, 100_000)).estimated_len(), None);
}

#[test]
#[expect(clippy::float_cmp, reason = "exact")]
fn figures_of_few_keys() {
    let filter = filled::<Bits512>(4, &hashes(41, 1));
    assert_eq!(filter.fill(), 8.0 / 2048.0);
    // A stranger has the block of the key with a probability of one in four. A false positive then
    // needs a match of one bit in 64 in each of the eight words, or equal low halves of the hashes.
    let expected = (64_f64.powi(-8) + 2_f64.powi(-32)) / 4.0;
    assert!((filter.expected_fpr() / expected - 1.0).abs() < 1e-12);
    assert_eq!(filled::<Bits256>(4, &[]).expected_fpr(), 0.0);
    assert_eq!(filled::<Bits256>(1, &hashes(42, 100_000)).expected_fpr(), 1.0);
}
