//! The layout of `xor_singleheader`: its own bytes, and the answers of `xorf` for the same cells.

use chainsieve_filter::encoding::{DecodeError, EncodeError};
use chainsieve_filter::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, FuseFingerprint};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::xor_singleheader;
use chainsieve_filter::{Filter, KeyHasher};
use xorf::{DmaSerializable, Filter as _};

use crate::fuse::{field, hashes};

/// The hash function of `pyfusefilter` for text keys.
const PYTHON: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });
/// The start value of the seed generator of `xor_singleheader`.
const SEEDS: u64 = 0x726b_2b9d_438b_9d4d;

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fixtures/filters/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks that the decoded filter finds its keys, and that a filter built here from the same keys
/// and seeds has the same bytes.
fn check<F: FuseFingerprint + std::fmt::Debug>(name: &str, surplus: usize) {
    let theirs = fixture(name);
    let filter = xor_singleheader::decode::<F>(&theirs, PYTHON).expect("their bytes");
    let keys: Vec<String> = (0..100).map(|key| key.to_string()).collect();
    assert_eq!(filter.len(), 100);
    assert!(keys.iter().all(|key| filter.contains(key.as_bytes())));
    let hashes: Vec<u64> = keys.iter().map(|key| PYTHON.hash(key.as_bytes())).collect();
    let ours = BinaryFuse::<F>::build_with_seed(&hashes, PYTHON, SEEDS).expect("a filter");
    assert_eq!(ours, filter);
    let encoded = xor_singleheader::encode(&ours).expect("one shard");
    assert_eq!(encoded, theirs[..theirs.len() - surplus]);
    assert_eq!(xor_singleheader::decode::<F>(&encoded, PYTHON), Ok(filter));
}

#[test]
fn bytes_of_pyfusefilter() {
    check::<u8>("xor_singleheader_fuse8.bin", 0);
    // The length function of xor_singleheader includes a field that is not written.
    check::<u16>("xor_singleheader_fuse16.bin", 4);
}

#[test]
fn bytes_that_lie() {
    let bytes = fixture("xor_singleheader_fuse8.bin");
    let read = |bytes: &[u8]| {
        let read = xor_singleheader::decode::<u8>(bytes, PYTHON);
        if let Ok(filter) = &read {
            assert!(
                hashes(1, 100).iter().filter(|hash| filter.contains_hash(**hash)).count() <= 100
            );
        }
        read
    };
    for len in 0..bytes.len() {
        assert!(matches!(read(&bytes[..len]), Err(DecodeError::Truncated { .. })), "{len}");
    }
    assert!(matches!(read(&[&bytes[..], &[0; 4]].concat()), Err(DecodeError::TooLong { .. })));
    for at in 0..28 {
        for value in 0..=255 {
            let mut changed = bytes.clone();
            changed[at] = value;
            let fine = at < 8 || value == bytes[at] || at == 8 && value <= 192;
            assert_eq!(read(&changed).is_ok(), fine, "byte {at}: {value}");
        }
    }
    // The largest values of the fields, with no cells after them.
    for fields in [[u32::MAX; 5], [1, 1 << 18, (1 << 14) - 3, 0xfff4_0000, 0xfffc_0000]] {
        let mut huge = [0; 28];
        for (place, field) in huge[8..].as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        assert!(read(&huge).is_err());
    }
    let sixteen = fixture("xor_singleheader_fuse16.bin");
    for surplus in [1, 2, 3, 5, 8] {
        let longer = [&sixteen[..sixteen.len() - 4], &vec![0; surplus]].concat();
        assert!(xor_singleheader::decode::<u16>(&longer, PYTHON).is_err(), "{surplus}");
    }
}

#[test]
fn shards_have_no_such_bytes() {
    let filter = BinaryFuse8::build_in_shards(&hashes(1, 100), 2, PYTHON).expect("a filter");
    let error = xor_singleheader::encode(&filter).expect_err("two shards");
    assert_eq!(error, EncodeError::Shards { num_shards: 2 });
}

/// Converts the descriptor of `xorf` (seed, length, mask, first positions) and its cells to our
/// filter.
fn from_xorf<F: FuseFingerprint>(keys: u32, descriptor: &[u8], cells: &[u8]) -> BinaryFuse<F> {
    let (length, places) = (field(descriptor, 8), field(descriptor, 16));
    assert_eq!(field(descriptor, 12), length - 1, "the mask");
    let count = few((cells.len() / size_of::<F>()) as u64);
    let mut bytes = descriptor[..8].to_vec();
    for field in [keys, length, places / length, places, count] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(cells);
    xor_singleheader::decode(&bytes, PYTHON).expect("the same layout")
}

fn few(count: u64) -> u32 {
    count.try_into().expect("few")
}

/// Returns our filter as `xorf`'s descriptor and cells.
fn to_xorf<F: FuseFingerprint>(filter: &BinaryFuse<F>) -> (Vec<u8>, Vec<u8>) {
    let bytes = xor_singleheader::encode(filter).expect("one shard");
    let length = field(&bytes, 12);
    let mut descriptor = bytes[..8].to_vec();
    descriptor.extend(length.to_le_bytes());
    descriptor.extend((length - 1).to_le_bytes());
    descriptor.extend(&bytes[20..24]);
    (descriptor, bytes[28..].to_vec())
}

macro_rules! against_xorf {
    ($ours:ty, $theirs:ident, $reference:ident) => {
        for count in [1, 2, 3, 10, 100, 1000, 5000, 11_500, 60_000] {
            let keys = hashes(count, count);
            let strangers = hashes(count ^ 1 << 60, 100_000);
            let all = || keys.iter().chain(&strangers);

            // Read their filter with our code.
            let theirs = xorf::$theirs::try_from(&keys[..]).expect("distinct");
            let mut descriptor = [0; xorf::$theirs::DESCRIPTOR_LEN];
            theirs.dma_copy_descriptor_to(&mut descriptor);
            let ours: $ours = from_xorf(few(count), &descriptor, theirs.dma_fingerprints());
            assert!(all().all(|hash| ours.contains_hash(*hash) == theirs.contains(hash)));

            // Read our filter with their code.
            let ours = <$ours>::build_with_seed(&keys, PYTHON, count).expect("a filter");
            let (descriptor, cells) = to_xorf(&ours);
            // The code of xor_singleheader requires aligned cells.
            let mut aligned = vec![0_u64; cells.len().div_ceil(8)];
            let aligned = &mut bytemuck::cast_slice_mut(&mut aligned)[..cells.len()];
            aligned.copy_from_slice(&cells);
            let theirs =
                <xorf::$reference<'_> as xorf::FilterRef<'_, u64>>::from_dma(&descriptor, aligned);
            assert!(keys.iter().all(|hash| theirs.contains(hash)));
            assert!(all().all(|hash| ours.contains_hash(*hash) == theirs.contains(hash)));
        }
    };
}

#[test]
fn answers_of_xorf() {
    against_xorf!(BinaryFuse8, BinaryFuse8, BinaryFuse8Ref);
    against_xorf!(BinaryFuse16, BinaryFuse16, BinaryFuse16Ref);
}

/// A filter that is built with the first seed of `xorf` has the same seed and shape, if both
/// libraries choose the same segments for its size.
#[test]
fn shapes_of_xorf() {
    let keys = hashes(1, 1000);
    let theirs = xorf::BinaryFuse16::try_from(&keys[..]).expect("distinct");
    let ours = BinaryFuse16::build_with_seed(&keys, PYTHON, 1).expect("a filter");
    let mut descriptor = [0; xorf::BinaryFuse16::DESCRIPTOR_LEN];
    theirs.dma_copy_descriptor_to(&mut descriptor);
    let (ours, cells) = to_xorf(&ours);
    assert_eq!((ours, cells.len()), (descriptor.to_vec(), theirs.dma_fingerprints().len()));
}
