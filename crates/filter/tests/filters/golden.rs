//! Golden files, and mutated bytes as an attacker would send them.

use std::path::PathBuf;

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

/// Calls `with` with the bytes at an address that is a multiple of eight, like the address of
/// memory-mapped bytes.
pub(crate) fn aligned<T>(bytes: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
    aligned.copy_from_slice(bytes);
    with(aligned)
}
