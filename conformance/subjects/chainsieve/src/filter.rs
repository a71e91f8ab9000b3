//! Answers to the areas of membership filters in the formats of other programs.

use chainsieve::simd::Backend;
use chainsieve_filter::encoding::EncodeError;
use chainsieve_filter::fuse::{BinaryFuse, FuseFingerprint};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::{Filter, KeyHasher};
use serde_json::{Value, json};

use crate::{Handler, Question, Refusal, invalid, same};

pub(super) const AREAS: [(&str, Handler); 4] = [
    ("filter.parquet", split_block),
    ("filter.parquet_file", parquet_file),
    ("filter.fuse8", fuse::<u8>),
    ("filter.fuse16", fuse::<u16>),
];

/// Writes a filter as a Parquet file has it. The header is in Thrift's compact protocol: the length,
/// and one each of one algorithm, hash function and compression.
fn in_file(bitset: &[u8]) -> Vec<u8> {
    let mut filter = vec![0x15];
    let mut zigzag = bitset.len() << 1;
    while zigzag >= 0x80 {
        filter.push(zigzag.to_le_bytes()[0] | 0x80);
        zigzag >>= 7;
    }
    filter.push(zigzag.to_le_bytes()[0]);
    filter.extend([0x1c, 0x1c, 0, 0].repeat(3));
    filter.push(0);
    filter.extend(bitset);
    filter
}

fn parquet_file(question: &Question<'_>) -> Result<Value, Refusal> {
    let file = question.bytes("file")?;
    let decoded = parquet::decode(&file);
    // A filter with something behind it is read alike.
    let longer = [file.as_slice(), &[7]].concat();
    if let Ok(filter) = &decoded {
        let prefix = parquet::decode_prefix(&longer).map_err(invalid)?;
        same("decode_prefix", &prefix, &(filter.clone(), &longer[file.len()..]))?;
    }
    let decoded = decoded.map_err(invalid)?;
    let written = parquet::encode(&decoded).map_err(invalid)?;
    let bitset = written.len() - 32 * usize::try_from(decoded.num_blocks()).map_err(invalid)?;
    Ok(json!({ "bitset": hex::encode(&written[bitset..]) }))
}

fn split_block(question: &Question<'_>) -> Result<Value, Refusal> {
    let bitset = question.bytes("bitset")?;
    let file = in_file(&bitset);
    let decoded = parquet::decode(&file).map_err(invalid)?;
    // The library reads each number of blocks, and writes those that all readers accept.
    let blocks = bitset.len() as u64 / 32;
    let written =
        if blocks.is_power_of_two() { Ok(&file) } else { Err(&EncodeError::ParquetBlocks(blocks)) };
    same("encode", &parquet::encode(&decoded).as_ref(), &written)?;
    let contains = decoded.contains(&question.bytes("data")?);
    // A key sets at most eight bits. How many keys there were is an estimate.
    let ones: u32 = bitset.iter().map(|byte| byte.count_ones()).sum();
    let is_possible =
        decoded.len() >= u64::from(ones.div_ceil(8)) && (decoded.len() == 0) == (ones == 0);
    same("len", &is_possible, &true)?;
    let bits = 8 * bitset.len() as u64;
    same("num_bits", &decoded.num_bits(), &bits)?;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (fill, bits) = (f64::from(ones) / bits as f64, bits as f64);
    same("fill", &decoded.fill(), &fill)?;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let error = decoded.len() as f64 + bits / 8.0 * (1.0 - fill).ln();
    same("len", &(ones == 0 || fill > 0.99 || error.abs() < 2.0), &true)?;
    // One hash is asked alone; a batch of others takes the vectors of each backend.
    let hash: u64 = decoded.hasher().hash(&question.bytes("data")?);
    let hashes: Vec<_> = (0..64).map(|turn| hash.rotate_left(turn)).collect();
    let each: Vec<_> = hashes.iter().map(|&hash| decoded.contains_hash(hash)).collect();
    same("contains_hash", &each[0], &contains)?;
    for backend in Backend::available() {
        let mut batch = vec![false; hashes.len()];
        decoded.contains_batch_on(backend, &hashes, &mut batch);
        same(backend.name(), &batch, &each)?;
    }
    Ok(json!({ "contains": contains }))
}

/// How other programs hash the text of a key.
const TEXT: KeyHasher = KeyHasher::new(HashFunction::Xxh64 { seed: 0 });

fn fuse<F: FuseFingerprint>(question: &Question<'_>) -> Result<Value, Refusal> {
    let bytes = question.bytes("bytes")?;
    let filter: BinaryFuse<F> = xor_singleheader::decode(&bytes, TEXT).map_err(invalid)?;
    // Encoding leaves the bytes out that some writers add at the end.
    let encoded = xor_singleheader::encode(&filter).map_err(invalid)?;
    let surplus = bytes.strip_prefix(encoded.as_slice()).map(<[u8]>::len);
    same("encode", &matches!(surplus, Some(0 | 4)), &true)?;
    let keys = question.list("keys", Value::as_str)?;
    let hashes: Vec<_> = keys.iter().map(|key| TEXT.hash(key.as_bytes())).collect();
    let mut contains = vec![false; keys.len()];
    filter.contains_batch(&hashes, &mut contains);
    let each: Vec<_> = hashes.iter().map(|&hash| filter.contains_hash(hash)).collect();
    same("contains_hash", &each, &contains)?;
    Ok(json!({ "contains": contains }))
}
