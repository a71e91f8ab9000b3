//! Hashes of keys against published values, and secret keys of hashers. Stored filters stay
//! readable only if keys are always hashed in the same way.

use std::hash::Hasher as _;

use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::split_block::SplitBlockFilter512;
use chainsieve_filter::{Filter, Insert, KeyHasher, Merge, Portable};

const MURMUR3: KeyHasher = KeyHasher::new(HashFunction::Murmur3 { seed: 0 });
const XXH64: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });
const FNV: KeyHasher = KeyHasher::new(HashFunction::Fnv1a);

/// The last step of `MurmurHash3_x64_128`, as its author wrote it.
fn fmix64(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[test]
fn fnv_1a_is_that_of_its_authors_and_mixed() {
    // These values are from the test vectors of Fowler, Noll and Vo.
    for (key, value) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(FNV.hash::<u64>(key.as_bytes()), fmix64(value), "{key}");
        assert_eq!(FNV.hash::<u128>(key.as_bytes()), u128::from(fmix64(value)), "{key}");
    }
}

#[test]
fn xxhashes_are_those_of_their_author() {
    for (key, value) in
        [("", 0xef46_db37_51d8_e999), ("a", 0xd24e_c4f1_a98c_6e5b), ("abc", 0x44bc_2cf5_ad77_0999)]
    {
        assert_eq!(XXH64.hash::<u64>(key.as_bytes()), value, "{key}");
    }
    for (key, value) in [("", 0x2d06_8005_38d3_94c2), ("abc", 0x78af_5f94_892f_3950)] {
        assert_eq!(KeyHasher::xxh3(0).hash::<u64>(key.as_bytes()), value, "{key}");
    }
    let wide = 0x99aa_06d3_0147_98d8_6001_c324_468d_497f;
    assert_eq!(KeyHasher::xxh3(0).hash::<u128>(b""), wide);
    assert_ne!(KeyHasher::xxh3(1).hash::<u128>(b""), wide);
}

#[test]
fn murmur3_is_that_of_its_author() {
    for (key, first, second) in [
        ("", 0_u64, 0_u64),
        ("hello", 0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19),
        (
            "The quick brown fox jumps over the lazy dog",
            0xe34b_bc7b_bc07_1b6c,
            0x7a43_3ca9_c49a_9347,
        ),
    ] {
        assert_eq!(MURMUR3.hash::<u64>(key.as_bytes()), first, "{key}");
        let wide = u128::from(second) << 64 | u128::from(first);
        assert_eq!(MURMUR3.hash::<u128>(key.as_bytes()), wide, "{key}");
    }
}

/// The standard library's default hasher is SipHash-1-3 under a key of zeros.
#[test]
fn siphash_1_3_is_that_of_the_standard_library() {
    let key: Vec<u8> = (0..70).collect();
    for len in 0..=key.len() {
        let mut theirs = std::hash::DefaultHasher::new();
        theirs.write(&key[..len]);
        let ours: u64 = KeyHasher::siphash_1_3([0, 0]).hash(&key[..len]);
        assert_eq!(ours, theirs.finish(), "{len} bytes");
        for other in [[1, 0], [0, 1]] {
            assert_ne!(ours, KeyHasher::siphash_1_3(other).hash::<u64>(&key[..len]));
        }
    }
}

/// Printing a filter, in a log or a failed assertion, does not reveal its secret key.
#[test]
fn secret_keys_are_not_printed() {
    let hasher = KeyHasher::random();
    let HashFunction::SipHash13 { key } = hasher.function() else { panic!("{hasher:?}") };
    let mut filter = SplitBlockFilter512::with_blocks(1, hasher).expect("small");
    filter.insert(b"key").expect("no limit");
    let other = SplitBlockFilter512::with_blocks(1, KeyHasher::random()).expect("small");
    let error = filter.encode().expect_err("a secret key");
    let printed = format!("{hasher:?} {filter:#?} {:?} {error}", filter.hasher());
    let merged = format!("{:?}", filter.merge(&other));
    for word in key {
        for text in [word.to_string(), format!("{word:x}"), format!("{word:X}")] {
            assert!(!printed.contains(&text) && !merged.contains(&text), "{printed} {merged}");
        }
    }
    let exposed = hasher.with_key_exposed();
    assert!(format!("{exposed:?}").contains(&key[0].to_string()) && !exposed.is_secret());
    // Two random hashers have different keys.
    assert_ne!(KeyHasher::random(), KeyHasher::random());
}
