//! Golden files, and bytes as a liar would send them.

use std::path::PathBuf;

use chainsieve_filter::encoding::DecodeError;

/// The golden file `fixtures/filters/NAME.chsieve`, which must be what was made now.
///
/// A file that is not there yet is written, and the test fails: files of a format are added by
/// hand, never changed.
#[track_caller]
pub(crate) fn compare(name: &str, made: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/filters");
    let path = path.join(format!("{name}.chsieve"));
    let Ok(golden) = std::fs::read(&path) else {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, made).expect("written");
        panic!("{name}: written anew, look at it and add it");
    };
    assert!(golden == made, "{name}: other bytes than in the golden file");
    golden
}

/// Puts the checksum right, as whoever changes bytes would.
pub(crate) fn mend(bytes: &mut [u8]) {
    let (summed, checksum) = bytes.split_last_chunk_mut::<8>().expect("a checksum");
    *checksum = xxh3(summed).to_le_bytes();
}

/// XXH3 without seed, through the library's own hasher.
fn xxh3(bytes: &[u8]) -> u64 {
    chainsieve_filter::KeyHasher::xxh3(0).hash(bytes)
}

/// With other parameters, checksum mended.
pub(crate) fn with_params(bytes: &[u8], params: [u64; 3]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, param) in bytes[40..64].as_chunks_mut::<8>().0.iter_mut().zip(params) {
        *place = param.to_le_bytes();
    }
    mend(&mut bytes);
    bytes
}

/// Decodes what is left of `bytes` after each cut, and what becomes of them by a change of each
/// byte: no panic, and an error wherever the length can't be right or the checksum is wrong.
#[track_caller]
pub(crate) fn mutants(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<(), DecodeError>) {
    assert_eq!(decode(bytes), Ok(()), "the bytes as they are");
    for len in 0..bytes.len() {
        let error = decode(&bytes[..len]).expect_err("cut off");
        assert!(matches!(error, DecodeError::Truncated { .. }), "cut at {len}: {error}");
    }
    let longer = [bytes, &[0]].concat();
    assert!(matches!(decode(&longer), Err(DecodeError::TooLong { .. })), "a byte behind the end");
    let mut changed = bytes.to_vec();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            changed[at] ^= flip;
            assert!(decode(&changed).is_err(), "byte {at} changed by {flip:#x}");
            if at < bytes.len() - 8 {
                mend(&mut changed);
                // Another filter may come of it; the caller looks at what does.
                let _ = decode(&changed);
                changed[bytes.len() - 8..].copy_from_slice(&bytes[bytes.len() - 8..]);
            }
            changed[at] ^= flip;
        }
    }
    assert_eq!(decode(&changed), Ok(()), "as they were");
}
