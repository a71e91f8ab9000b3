//! Encodings of split-block filters: golden files and malformed bytes.

use crate::golden::{HASHER, check, filled, with_word};
use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::split_block::{
    Bits256, BlockShape, SplitBlockFilter, SplitBlockFilter256, SplitBlockFilter512,
};
use chainsieve_filter::{KeyHasher, Portable};
use xxhash_rust::xxh3::xxh3_64;

fn golden<B: BlockShape>(num_blocks: u64, hasher: KeyHasher) -> SplitBlockFilter<B> {
    filled(SplitBlockFilter::with_blocks(num_blocks, hasher).expect("small"))
}

fn golden_512() -> SplitBlockFilter512 {
    golden(3, HASHER)
}

fn golden_256() -> SplitBlockFilter256 {
    golden(5, chainsieve_filter::interop::parquet::HASHER)
}

#[test]
fn golden_files() {
    check("split_block_512", &golden_512());
    check("split_block_256", &golden_256());
}

/// Compares the header with the documentation, byte by byte.
#[test]
fn the_header_is_as_documented() {
    let bytes = golden_512().encode().expect("no secret");
    assert_eq!(bytes.len(), 64 + 3 * 64 + 8);
    assert_eq!(bytes[..8], *b"CHSIEVEF");
    assert_eq!(bytes[8..16], [1, 0, 4, 1, 0, 0, 0, 0]);
    let key: Vec<u8> = (0..16).collect();
    assert_eq!(bytes[16..32], key);
    let numbers: [u64; 4] = [100, 3, 0, 0];
    assert_eq!(bytes[32..64], *numbers.map(u64::to_le_bytes).as_flattened());
    assert_eq!(bytes[64 + 192..], xxh3_64(&bytes[..64 + 192]).to_le_bytes());
}

#[test]
fn parameters_that_no_filter_has() {
    let bytes = golden_512().encode().expect("no secret");
    let with = |at: usize, value: u64| {
        SplitBlockFilter512::decode(&with_word(&bytes, at, value)).expect_err("no filter")
    };
    for num_blocks in [0, (1 << 28) + 1, 1 << 61, u64::MAX / 64, u64::MAX] {
        let (what, value) = ("the number of blocks", num_blocks);
        let limit = "from 1 to 2^28";
        assert_eq!(with(40, num_blocks), DecodeError::Parameter { what, value, limit });
    }
    let needed = 72 + (1 << 28) * 64;
    assert_eq!(with(40, 1 << 28), DecodeError::Truncated { found: 264, needed });
    assert_eq!(with(40, 2), DecodeError::TooLong { found: 264, expected: 200 });
    assert_eq!(with(48, 1), DecodeError::NotZero("bytes 48 to 63"));
    assert_eq!(with(56, 1 << 63), DecodeError::NotZero("bytes 48 to 63"));
    // 100 keys set at least 60 bits in this filter.
    let (what, limit) = ("the number of keys", "a number that can have set these bits");
    for value in [0, 1, 7] {
        assert_eq!(with(32, value), DecodeError::Parameter { what, value, limit });
    }
    let error = SplitBlockFilter256::decode(&bytes).map(drop);
    let (found, expected) = ("split-block-512", "split-block-256");
    assert_eq!(error, Err(DecodeError::OtherKind { found, expected }));
    assert!(golden::<Bits256>(6, KeyHasher::xxh3(0)).encode().is_ok());
}

#[test]
fn bytes_that_are_not_aligned_are_not_read_in_place() {
    let bytes = golden_512().encode().expect("no secret");
    let mut shifted = vec![0_u64; bytes.len() / 8 + 1];
    let shifted = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut shifted)[1..=bytes.len()];
    shifted.copy_from_slice(&bytes);
    let view = SplitBlockFilter512::<&[u64]>::view(shifted).map(drop);
    assert_eq!(view, Err(DecodeError::NotInPlace));
    assert_eq!(SplitBlockFilter512::decode(shifted), Ok(golden_512()));
}

/// A filter without set bits is refused if it claims to have keys.
#[test]
fn keys_without_bits_are_refused() {
    let empty = SplitBlockFilter512::with_blocks(2, KeyHasher::xxh3(7)).expect("small");
    let bytes = empty.encode().expect("no secret");
    assert_eq!(SplitBlockFilter512::decode(&bytes), Ok(empty));
    for len in [1, u64::MAX] {
        let error = SplitBlockFilter512::decode(&with_word(&bytes, 32, len));
        assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{len}: {error:?}");
    }
}
