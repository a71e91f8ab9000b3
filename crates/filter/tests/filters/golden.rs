//! Golden files, and mutated bytes as an attacker would send them.

use std::path::PathBuf;

use chainsieve_filter::encoding::DecodeError;

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

/// Corrects the checksum, as an attacker who changes bytes would.
pub(crate) fn mend(bytes: &mut [u8]) {
    let (summed, checksum) = bytes.split_last_chunk_mut::<8>().expect("a checksum");
    *checksum = xxh3(summed).to_le_bytes();
}

/// Returns the XXH3 of the bytes without a seed, computed by the library's own hasher.
fn xxh3(bytes: &[u8]) -> u64 {
    chainsieve_filter::KeyHasher::xxh3(0).hash(bytes)
}

/// Returns the bytes with the parameters replaced by `params`, and with a corrected checksum.
pub(crate) fn with_params(bytes: &[u8], params: [u64; 3]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, param) in bytes[40..64].as_chunks_mut::<8>().0.iter_mut().zip(params) {
        *place = param.to_le_bytes();
    }
    mend(&mut bytes);
    bytes
}

/// Decodes `bytes` cut off after every length, and also with every single byte changed. Checks that
/// nothing panics, and that a wrong length or a wrong checksum is always an error.
#[track_caller]
pub(crate) fn mutants(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<(), DecodeError>) {
    assert_eq!(decode(bytes), Ok(()), "the bytes as they are");
    for len in 0..bytes.len() {
        let error = decode(&bytes[..len]).expect_err("cut off");
        assert!(matches!(error, DecodeError::Truncated { .. }), "cut at {len}: {error}");
    }
    let longer = [bytes, &[0]].concat();
    assert!(matches!(decode(&longer), Err(DecodeError::TooLong { .. })), "one trailing byte");
    let mut changed = bytes.to_vec();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            changed[at] ^= flip;
            assert!(decode(&changed).is_err(), "byte {at} changed by {flip:#x}");
            if at < bytes.len() - 8 {
                mend(&mut changed);
                // The result may be a different, valid filter; the caller's `decode` checks that
                // filter.
                let _ = decode(&changed);
                changed[bytes.len() - 8..].copy_from_slice(&bytes[bytes.len() - 8..]);
            }
            changed[at] ^= flip;
        }
    }
    assert_eq!(decode(&changed), Ok(()), "as they were");
}
