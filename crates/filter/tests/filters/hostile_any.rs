//! Hostile bytes for every kind of filter. Decoding returns a suitable error or a usable filter.
//! Decoding never panics, and its memory is in proportion to the bytes.

use chainsieve_filter::bloom::{
    BloomFilter, BloomFilterRef, CompressedBloomFilter, OpenedBloomFilter,
};
use chainsieve_filter::count_min::{CountMin, UpdateRule};
use chainsieve_filter::cuckoo::{
    CuckooFilter8, CuckooFilter8Ref, CuckooFilter12, CuckooFilter12Ref, CuckooFilter16,
    CuckooFilter16Ref,
};
use chainsieve_filter::encoding::{DecodeError, EncodeError};
use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse8Ref, BinaryFuse16, BinaryFuse16Ref};
use chainsieve_filter::hashing::KeyHash as _;
use chainsieve_filter::membership::Stats;
use chainsieve_filter::ribbon::{RibbonFilter, RibbonFilterRef};
use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::split_block::{
    SplitBlockFilter256, SplitBlockFilter256Ref, SplitBlockFilter512, SplitBlockFilter512Ref,
};
use chainsieve_filter::textbook::{
    CountingBloomFilter, PartitionedBloomFilter, PartitionedBloomFilterRef,
};
use chainsieve_filter::{AnyFilter, Filter, Insert, KeyHasher, Kind, Remove as _};

use crate::golden::{aligned, mended, with_word};
use testkit::allocation::requested_by;
use testkit::split_mix;

const HEADER: usize = 64;
const CHECKSUM: usize = 8;
/// Memory that a decoder may request in addition to its limit per byte.
const FEW_BYTES: usize = 64 << 10;

/// A filter whose bytes are damaged by the tests.
struct Victim {
    kind: Kind,
    bytes: Vec<u8>,
}

/// Returns the filter with all keys inserted.
fn filled<F: Insert>(mut filter: F, keys: &[[u8; 8]]) -> AnyFilter
where
    AnyFilter: From<F>,
{
    for key in keys {
        filter.insert(key).expect("room");
    }
    filter.into()
}

/// Returns one small filter of every kind.
fn filters(hasher: KeyHasher) -> Vec<AnyFilter> {
    let keys: Vec<[u8; 8]> = (0..70_u64).map(u64::to_le_bytes).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
    let sparse = <BloomFilter>::with_bits(2048, 2, hasher).expect("a filter");
    let AnyFilter::Bloom(sparse) = filled(sparse, &keys) else { unreachable!("a Bloom filter") };
    let coded = OpenedBloomFilter::of(CompressedBloomFilter::of(&sparse)).expect("opened");
    let wide = BloomFilter::<u128>::with_fpr(70, 0.01, hasher).expect("a filter");
    let partitioned = PartitionedBloomFilter::<u64>::with_fpr(70, 0.01, hasher).expect("a filter");
    let sharded = BinaryFuse8::build_in_shards(&hashes, 3, hasher).expect("built");
    vec![
        sparse.into(),
        filled(wide, &keys),
        filled(partitioned, &keys),
        filled(SplitBlockFilter512::with_blocks(2, hasher).expect("a filter"), &keys),
        filled(SplitBlockFilter256::with_blocks(3, hasher).expect("a filter"), &keys),
        filled(CountingBloomFilter::with_fpr(70, 0.03, hasher).expect("a filter"), &keys),
        filled(ScalableBloomFilter::with_fpr(10, 0.03, hasher).expect("a filter"), &keys),
        filled(RollingBloomFilter::with_fpr(40, 0.03, hasher).expect("a filter"), &keys),
        coded.into(),
        filled(CuckooFilter8::with_capacity(80, hasher).expect("a filter"), &keys),
        filled(CuckooFilter12::with_capacity(80, hasher).expect("a filter"), &keys),
        filled(CuckooFilter16::with_capacity(80, hasher).expect("a filter"), &keys),
        sharded.into(),
        BinaryFuse16::build(&hashes, hasher).expect("built").into(),
        RibbonFilter::build(&hashes, 0.01, hasher).expect("built").into(),
        filled(CountMin::with_size(61, 3, UpdateRule::Plain, hasher).expect("a sketch"), &keys),
    ]
}

/// Returns one small filter of every kind. The tests change each byte of these filters.
fn victims() -> Vec<Victim> {
    let filters = filters(KeyHasher::siphash_1_3([1, 2]));
    let victim = |filter: AnyFilter| Victim {
        kind: filter.kind(),
        bytes: filter.encode().expect("no secret"),
    };
    let victims: Vec<Victim> = filters.into_iter().map(victim).collect();
    let kinds: Vec<Kind> = victims.iter().map(|victim| victim.kind).collect();
    assert_eq!(kinds, Kind::ALL);
    victims
}

/// The figures of a filter, and its answers for a hundred keys.
type Answers = (Stats, Vec<bool>);

/// Queries a view of the bytes. Returns `None` if filters of this kind have no views.
fn viewed(kind: Kind, bytes: &[u8]) -> Option<Result<Answers, DecodeError>> {
    fn of<F: Filter>(view: Result<F, DecodeError>) -> Result<Answers, DecodeError> {
        view.map(|view| {
            let hash = |key: &Vec<u8>| F::Hash::of(view.hasher(), key);
            let hashes: Vec<_> = asked().iter().map(hash).collect();
            let mut answers = vec![false; hashes.len()];
            view.contains_batch(&hashes, &mut answers);
            (view.stats(), answers)
        })
    }
    let answers = match kind {
        Kind::Bloom => of(BloomFilterRef::<u64>::view(bytes)),
        Kind::WideBloom => of(BloomFilterRef::<u128>::view(bytes)),
        Kind::Partitioned => of(PartitionedBloomFilterRef::<u64>::view(bytes)),
        Kind::SplitBlock512 => of(SplitBlockFilter512Ref::view(bytes)),
        Kind::SplitBlock256 => of(SplitBlockFilter256Ref::view(bytes)),
        Kind::Cuckoo8 => of(CuckooFilter8Ref::view(bytes)),
        Kind::Cuckoo12 => of(CuckooFilter12Ref::view(bytes)),
        Kind::Cuckoo16 => of(CuckooFilter16Ref::view(bytes)),
        Kind::Fuse8 => of(BinaryFuse8Ref::view(bytes)),
        Kind::Fuse16 => of(BinaryFuse16Ref::view(bytes)),
        Kind::Ribbon => of(RibbonFilterRef::view(bytes)),
        _ => return None,
    };
    Some(answers)
}

fn asked() -> Vec<Vec<u8>> {
    (0..100_u64).map(|key| split_mix(key).to_le_bytes().into()).collect()
}

/// Inserts keys into a decoded filter, as its owner would. A key that is inserted is found.
fn grows<F: Insert>(mut filter: F) -> F {
    for key in 0..20_u64 {
        if filter.insert(&key.to_le_bytes()).is_ok() {
            assert!(filter.contains(&key.to_le_bytes()));
        }
    }
    filter
}

/// Changes a decoded filter in the ways that its kind has.
fn change(filter: AnyFilter) {
    match filter {
        AnyFilter::Bloom(filter) => drop(grows(filter)),
        AnyFilter::WideBloom(filter) => drop(grows(filter)),
        AnyFilter::Partitioned(filter) => drop(grows(filter)),
        AnyFilter::SplitBlock512(filter) => drop(grows(filter)),
        AnyFilter::SplitBlock256(filter) => drop(grows(filter)),
        AnyFilter::Counting(filter) => {
            let mut filter = grows(filter);
            filter.remove_known_key(&0_u64.to_le_bytes()).expect("just inserted");
        }
        AnyFilter::Scalable(filter) => drop(grows(filter)),
        AnyFilter::Rolling(filter) => grows(filter).rotate(),
        AnyFilter::CountMin(filter) => assert!(grows(filter).add(b"key", 3) >= 3),
        AnyFilter::Compressed(filter) => {
            let opened = filter.opened();
            assert_eq!(
                CompressedBloomFilter::of(opened).open(opened.num_bits()).as_ref(),
                Ok(opened)
            );
        }
        AnyFilter::Cuckoo8(filter) => drop(grows(filter)),
        AnyFilter::Cuckoo12(filter) => drop(grows(filter)),
        AnyFilter::Cuckoo16(filter) => drop(grows(filter)),
        _ => {}
    }
}

/// Decodes the bytes within a limit of memory, calls every query of the filter, and changes a copy
/// of it. A view over the same bytes must give the same result. Returns the filter or the error.
#[track_caller]
fn survives(bytes: &[u8], why: &str) -> Result<AnyFilter, DecodeError> {
    let (decoded, requested) = requested_by(|| AnyFilter::decode(bytes));
    let limit = 40 * bytes.len() + FEW_BYTES;
    assert!(requested <= limit, "{why}: {requested} bytes requested for {} bytes", bytes.len());
    let view = Kind::of(bytes).ok().and_then(|kind| aligned(bytes, |bytes| viewed(kind, bytes)));
    if let (Err(error), Some(view)) = (&decoded, &view) {
        assert_eq!(view.as_ref().err(), Some(error), "{why}: another error of the view");
    }
    let filter = decoded?;
    let stats = filter.stats();
    let kind = filter.kind();
    assert!((0.0..=1.0).contains(&stats.fill), "{why}, {kind:?}: fill {}", stats.fill);
    assert!((0.0..=1.0).contains(&stats.expected_fpr), "{why}, {kind:?}: {}", stats.expected_fpr);
    assert!(stats.estimated_len.is_none_or(|len| len >= 0.0), "{why}, {kind:?}");
    assert!(!filter.params().is_empty(), "{why}, {kind:?}");
    let keys = asked();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut answers = vec![false; keys.len()];
    filter.contains_batch(&keys, &mut answers);
    for (key, answer) in keys.iter().zip(&answers) {
        assert_eq!(filter.contains(key), *answer, "{why}, {kind:?}");
    }
    if let Some(view) = view {
        assert_eq!(view, Ok((stats, answers)), "{why}, {kind:?}: other answers of the view");
    }
    let again = filter.encode().expect("a decoded filter has no secret key");
    assert_eq!(again, bytes, "{why}, {kind:?}: one encoding for each filter");
    change(filter.clone());
    Ok(filter)
}

#[test]
fn every_cut_and_every_byte_too_many_is_an_error() {
    for Victim { kind, bytes } in victims() {
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            let error = AnyFilter::decode(cut).expect_err("a cut");
            assert!(matches!(error, DecodeError::Truncated { .. }), "{kind:?} at {end}: {error}");
            if end >= HEADER + CHECKSUM {
                let result = survives(&mended(cut.to_vec()), kind.name());
                assert!(result.is_err(), "{kind:?} at {end}");
            }
        }
        for more in [1, 7, 8, 64] {
            let long = [&bytes[..], &vec![0; more]].concat();
            let error = survives(&long, kind.name()).expect_err("too long");
            assert!(matches!(error, DecodeError::TooLong { .. }), "{kind:?}: {error}");
            assert!(survives(&mended(long), kind.name()).is_err(), "{kind:?}");
        }
    }
}

#[test]
fn every_byte_of_the_header_may_be_anything() {
    for Victim { kind, bytes } in victims() {
        for at in 0..HEADER {
            for change in [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x0f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                let why = format!("{kind:?}, byte {at} ^ {change:#x}");
                let error = AnyFilter::decode(&bytes).err();
                assert!(error.is_some(), "{why}: the checksum no longer fits");
                let result = survives(&mended(bytes), &why);
                match at {
                    0..8 => assert_eq!(result.err(), Some(DecodeError::Magic), "{why}"),
                    8..10 => {
                        assert!(matches!(result, Err(DecodeError::Version(_))), "{why}");
                    }
                    12..16 => assert!(matches!(result, Err(DecodeError::NotZero(_))), "{why}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn every_byte_of_the_body_is_under_the_checksum() {
    for Victim { kind, bytes } in victims() {
        for (at, change) in
            (HEADER..bytes.len()).flat_map(|at| [1, 0x10, 0x80, 0xff].map(|to| (at, to)))
        {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            let error = AnyFilter::decode(&bytes).expect_err("changed");
            assert_eq!(error, DecodeError::Checksum, "{kind:?} at {at}");
            let _ = survives(&mended(bytes), &format!("{kind:?}, byte {at} ^ {change:#x}"));
        }
    }
}

#[test]
fn bodies_may_be_anything() {
    for Victim { kind, bytes } in victims() {
        for seed in 0..40 {
            let mut bytes = bytes.clone();
            let end = bytes.len() - CHECKSUM;
            for (at, byte) in (0..).zip(&mut bytes[HEADER..end]) {
                *byte = match seed {
                    0 => 0,
                    1 => u8::MAX,
                    2 => 0x55,
                    _ => split_mix(split_mix(seed) ^ at).to_le_bytes()[0],
                };
            }
            let _ = survives(&mended(bytes), &format!("{kind:?}, body {seed}"));
        }
    }
}

/// Counts and parameters far from what the length allows: no multiplication overflows, and no
/// memory is allocated for them.
#[test]
fn parameters_may_be_anything() {
    let mut extremes: Vec<u64> = (0..64)
        .flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power + 1]
        })
        .collect();
    extremes.extend([u64::MAX, u64::MAX - 1, u64::MAX / 3, u64::MAX / 5, 64 * 7, 1000]);
    for Victim { kind, bytes } in victims() {
        for field in [16, 24, 32, 40, 48, 56] {
            for value in &extremes {
                let bytes = with_word(&bytes, field, *value);
                let _ = survives(&bytes, &format!("{kind:?}, {value:#x} at {field}"));
            }
        }
        // Several parameters are changed at once, in filters with bodies of a few words.
        for seed in 0..600_u64 {
            let words = usize::from(split_mix(seed).to_le_bytes()[0] % 20);
            let mut bytes = bytes[..HEADER].to_vec();
            for (index, field) in (0..).zip([32, 40, 48, 56]) {
                let choice = split_mix(seed * 8 + index);
                if !choice.is_multiple_of(3) {
                    let value = extremes[usize::from(choice.to_le_bytes()[1]) % extremes.len()];
                    bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            bytes.resize(HEADER + words * 8 + CHECKSUM, 0xa5);
            let _ = survives(&mended(bytes), &format!("{kind:?}, seed {seed}"));
        }
    }
}

#[test]
fn a_header_alone_of_every_kind_and_function() {
    for kind in 0..=u8::MAX {
        for function in 0..=u8::MAX {
            let mut bytes = b"CHSIEVEF\x01\x00".to_vec();
            bytes.extend([kind, function]);
            bytes.resize(HEADER + CHECKSUM, 0);
            let result = survives(&mended(bytes), &format!("kind {kind}, function {function}"));
            let known_kind = Kind::ALL.iter().any(|known| *known as u8 == kind);
            match result {
                Err(DecodeError::Kind(found)) => assert!(found == kind && !known_kind),
                Err(DecodeError::HashFunction(found)) => {
                    assert!(found == function && known_kind && !(1..=5).contains(&function));
                }
                _ => assert!(known_kind && (1..=5).contains(&function)),
            }
        }
    }
}

/// No kind of filter writes a hash key that was drawn at random, unless the key is exposed.
#[test]
fn secret_keys_stay_inside() {
    for filter in filters(KeyHasher::random()) {
        assert_eq!(filter.encode(), Err(EncodeError::SecretKey), "{:?}", filter.kind());
    }
    for filter in filters(KeyHasher::random().with_key_exposed()) {
        let bytes = filter.encode().expect("an exposed key");
        assert_eq!(AnyFilter::decode(&bytes).expect("our own bytes").encode(), Ok(bytes));
    }
}
