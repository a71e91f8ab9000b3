//! Golden files, and mutated bytes as an attacker would send them.

use std::fmt::Debug;
use std::path::PathBuf;

use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::{Insert, KeyHasher, Portable};

/// SipHash-1-3 with the key of bytes 0 to 15.
pub(crate) const HASHER: KeyHasher =
    KeyHasher::siphash_1_3([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// Returns the keys of the golden files: the numbers 0 to 99 in eight bytes, little-endian.
pub(crate) fn keys() -> Vec<[u8; 8]> {
    (0..100_u64).map(u64::to_le_bytes).collect()
}

/// Inserts the keys of the golden files.
pub(crate) fn filled<F: Insert>(mut filter: F) -> F {
    for key in keys() {
        filter.insert(&key).expect("room");
    }
    filter
}

/// Checks that a filter is encoded as its golden file, and decoded from it. The test of all golden
/// files asks them for their keys.
#[track_caller]
pub(crate) fn check<F: Portable + PartialEq + Debug>(name: &str, filter: &F) {
    let bytes = compare(name, &filter.encode().expect("no secret"));
    assert_eq!(F::decode(&bytes).as_ref(), Ok(filter));
}

/// Compares the golden file `fixtures/filters/NAME.chsieve` with `made`, and returns its bytes.
///
/// If the file does not exist, it is written and the test fails. Golden files are added by hand,
/// and never changed.
#[track_caller]
pub(crate) fn compare(name: &str, made: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/filters");
    let path = path.join(format!("{name}.chsieve"));
    let Ok(golden) = std::fs::read(&path) else {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, made).expect("written");
        panic!("{name}: the golden file did not exist and was written: check it and add it");
    };
    assert!(golden == made, "{name}: the bytes differ from the golden file");
    golden
}

/// Returns the bytes with a correct checksum, as an attacker would compute it.
pub(crate) fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    mend(&mut bytes);
    bytes
}

/// Corrects the checksum, as an attacker who changes bytes would.
pub(crate) fn mend(bytes: &mut [u8]) {
    let (summed, checksum) = bytes.split_last_chunk_mut::<8>().expect("a checksum");
    *checksum = xxh3(summed).to_le_bytes();
}

/// Returns the XXH3 of the bytes without a seed, computed by the library's own hasher.
fn xxh3(bytes: &[u8]) -> u64 {
    KeyHasher::xxh3(0).hash(bytes)
}

/// Returns the bytes with the parameters replaced by `params`, and with a corrected checksum.
pub(crate) fn with_params(bytes: &[u8], params: [u64; 3]) -> Vec<u8> {
    let word = |bytes: Vec<u8>, (at, param)| with_word(&bytes, at, param);
    [40, 48, 56].into_iter().zip(params).fold(bytes.to_vec(), word)
}

/// Asserts that bytes with these parameters, or with one of these words at its place, are refused because
/// of a parameter or of bits that must be zero; and that `vast` parameters need more bytes.
#[track_caller]
pub(crate) fn refuses<F: Portable + Debug>(
    bytes: &[u8],
    params: &[[u64; 3]],
    words: &[(usize, u64)],
    vast: &[[u64; 3]],
) {
    let of_params = params.iter().map(|params| with_params(bytes, *params));
    let changed = of_params.chain(words.iter().map(|(at, word)| with_word(bytes, *at, *word)));
    for (index, changed) in changed.enumerate() {
        let error = F::decode(&changed).expect_err("changed");
        let named = matches!(error, DecodeError::Parameter { .. } | DecodeError::NotZero(_));
        assert!(named, "change {index}: {error:?}");
    }
    for params in vast {
        let error = F::decode(&with_params(bytes, *params)).expect_err("a few bytes");
        assert!(matches!(error, DecodeError::Truncated { .. }), "{params:?}: {error:?}");
    }
}

/// Returns the bytes with another word at this place, and with a corrected checksum.
pub(crate) fn with_word(bytes: &[u8], at: usize, word: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    mended(bytes)
}

/// Calls `with` with the bytes at an address that is a multiple of eight, like the address of
/// memory-mapped bytes.
pub(crate) fn aligned<T>(bytes: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
    aligned.copy_from_slice(bytes);
    with(aligned)
}
