//! Answers to the areas of membership filters in the formats of other programs.

use chainsieve::simd::Backend;
use chainsieve_filter::fuse::{BinaryFuse, FuseFingerprint};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::split_block::SplitBlockFilter256;
use chainsieve_filter::{Filter, KeyHasher};
use serde_json::{Value, json};

use super::{Handler, Question, Refusal, invalid, same};

pub(super) const AREAS: [(&str, Handler); 3] =
    [("filter.parquet", split_block), ("filter.fuse8", fuse::<u8>), ("filter.fuse16", fuse::<u16>)];

/// The fields of the header of a filter in a Parquet file that follow the length of the bitset: in
/// Thrift's compact protocol, one each of one algorithm, hash function and compression.
const CHOICES: [u8; 12] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0];

/// Writes a filter as a file has it, with these fields in its header after the length.
fn in_file(bitset: &[u8], fields: &[&[u8]]) -> Vec<u8> {
    let mut filter = vec![0x15];
    let mut zigzag = bitset.len() << 1;
    while zigzag >= 0x80 {
        filter.push(zigzag.to_le_bytes()[0] | 0x80);
        zigzag >>= 7;
    }
    filter.push(zigzag.to_le_bytes()[0]);
    filter.extend(fields.concat());
    filter.push(0);
    filter.extend(bitset);
    filter
}

/// Fields that no version of the format has: a reader must pass over them. One of each type, numbers
/// and lists of more than one byte, and structs and lists as deep as the library reads them.
fn unknown_fields() -> Vec<u8> {
    let mut fields = vec![0x11, 0x12, 0x13, 0x7f, 0x14, 0x80, 0x01, 0x15, 0x02];
    fields.extend([0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    fields.extend([0x17, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 3, b'a', b'b', b'c', 0x18, 0]);
    fields.extend([0x19, 0x31, 1, 2, 1, 0x19, 0xf5, 16]);
    fields.extend([2; 16]);
    fields.extend([0x1a, 0x23, 1, 2, 0x1b, 2, 0x58, 2, 1, b'a', 4, 1, b'b', 0x1b, 0]);
    fields.extend([0x1c, 0x15, 2, 0, 0x05, 0xd0, 0x0f, 2]);
    for _ in 0..2 {
        fields.extend(structs(15));
        fields.extend(lists(15));
    }
    fields
}

fn structs(depth: usize) -> Vec<u8> {
    [[0x1c].repeat(depth), [0].repeat(depth)].concat()
}

fn lists(depth: usize) -> Vec<u8> {
    [[0x19].repeat(depth), vec![0x03]].concat()
}

/// Reads the filter from headers that other writers may have written, and from such that no reader
/// may accept.
fn other_headers(bitset: &[u8], filter: &SplitBlockFilter256) -> Result<(), Refusal> {
    let (length, unknown) = (bitset.len(), unknown_fields());
    let read = |fields: &[&[u8]]| parquet::decode(&in_file(bitset, fields)).ok();
    same("unknown fields", &read(&[&CHOICES, &unknown]).as_ref(), &Some(filter))?;
    let malformed: [&[u8]; 11] = [
        &structs(16),
        &lists(16),
        &[lists(1), structs(16)].concat(),
        &[structs(1), lists(16)].concat(),
        // An unknown type, a number of more than 32 bits and one of more than 64, and a field
        // number of more than 16 bits.
        &[0x1d],
        &[0x19, 0x1d, 0],
        &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        &[0x16, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
        &[0x05, 0x80, 0x80, 0x04, 2],
        // The length again, with 33 bits; and without bits.
        &[0x05, 0x02, 0x80, 0x80, 0x80, 0x80, 0x10],
        &[0x05, 0x02, 0x00],
    ];
    for fields in malformed {
        same("malformed header", &read(&[&CHOICES, fields]), &None)?;
    }
    // A choice is missing, is made twice, or is another.
    for choices in 0..3 {
        let mut without = CHOICES.to_vec();
        without.splice(4 * choices..4 * choices + 4, [0x10 | 0x01]);
        let mut twice = CHOICES.to_vec();
        twice.splice(4 * choices + 2..4 * choices + 2, [0, 0x1c]);
        let mut other = CHOICES.to_vec();
        other[4 * choices + 1] = 0x2c;
        for fields in [without, twice, other] {
            same("choices", &read(&[&fields]), &None)?;
        }
    }
    let whole = in_file(bitset, &[&CHOICES, &unknown]);
    for end in 0..whole.len() - length {
        let read = parquet::decode(&whole[..end]).map_err(|error| error.to_string());
        let expected = format!("the header ends after {end} bytes, inside a value");
        same("cut header", &read, &Err(expected))?;
    }
    same("cut bitset", &parquet::decode(&whole[..whole.len() - 1]).ok(), &None)?;
    same("trailing byte", &parquet::decode(&[whole.as_slice(), &[0]].concat()).ok(), &None)?;
    let prefix = parquet::decode_prefix(&[whole.as_slice(), &[7]].concat())
        .ok()
        .map(|read| (read.0, read.1.to_vec()));
    same("decode_prefix", &prefix, &Some((filter.clone(), vec![7])))
}

fn split_block(question: &Question<'_>) -> Result<Value, Refusal> {
    let bitset = question.bytes("bitset")?;
    let file = in_file(&bitset, &[&CHOICES]);
    let decoded = parquet::decode(&file).map_err(invalid)?;
    same("encode", &parquet::encode(&decoded).as_ref(), &Ok(&file))?;
    other_headers(&bitset, &decoded)?;
    let contains = decoded.contains(&question.bytes("data")?);
    // A key sets at most eight bits. How many keys there were is an estimate.
    let ones: u32 = bitset.iter().map(|byte| byte.count_ones()).sum();
    let is_possible =
        decoded.len() >= u64::from(ones.div_ceil(8)) && (decoded.len() == 0) == (ones == 0);
    same("len", &is_possible, &true)?;
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

/// Reads filters whose header contradicts itself or their length: no reader may accept them.
fn other_shapes<F: FuseFingerprint>(bytes: &[u8]) -> Result<(), Refusal> {
    let refused = |bytes: &[u8]| {
        let read = xor_singleheader::decode::<F>(bytes, TEXT).map(drop).ok();
        same("a filter of another shape", &read, &None)
    };
    // The number of keys, which may be smaller, then four fields of the shape.
    for at in [12, 16, 20, 24] {
        for add in [1, 0xff] {
            let mut other = bytes.to_vec();
            other[at] = other[at].wrapping_add(add);
            refused(&other)?;
        }
    }
    let mut many = bytes.to_vec();
    many[8..12].copy_from_slice(&[0xff; 4]);
    refused(&many)?;
    // Each key has a cell of its own: as many keys as cells are possible.
    many.copy_within(24..28, 8);
    let is_read = xor_singleheader::decode::<F>(&many, TEXT).is_ok();
    same("as many keys as cells", &is_read, &true)?;
    for end in [0, 27, 28, bytes.len() - 5] {
        refused(&bytes[..end])?;
    }
    refused(&[bytes, &[0]].concat())?;
    // The length of a segment is a power of two, and there is at least one segment.
    for (length, count) in [(3_u32, 1_u32), (0, 1), (4, 0), (1 << 31, 1)] {
        let mut other = bytes[..12].to_vec();
        let first = length.wrapping_mul(count);
        let cells = first.wrapping_add(length.wrapping_mul(2));
        for field in [length, count, first, cells] {
            other.extend(field.to_le_bytes());
        }
        other[8..12].fill(0);
        other.resize(28 + (cells as usize).min(64) * size_of::<F>(), 0);
        refused(&other)?;
    }
    Ok(())
}

fn fuse<F: FuseFingerprint>(question: &Question<'_>) -> Result<Value, Refusal> {
    let bytes = question.bytes("bytes")?;
    let filter: BinaryFuse<F> = xor_singleheader::decode(&bytes, TEXT).map_err(invalid)?;
    // Encoding leaves the bytes out that some writers add at the end.
    let encoded = xor_singleheader::encode(&filter).map_err(invalid)?;
    same("encode", &bytes.get(..encoded.len()), &Some(encoded.as_slice()))?;
    other_shapes::<F>(&bytes)?;
    let keys = question.list("keys", Value::as_str)?;
    let hashes: Vec<_> = keys.iter().map(|key| TEXT.hash(key.as_bytes())).collect();
    let mut contains = vec![false; keys.len()];
    filter.contains_batch(&hashes, &mut contains);
    let each: Vec<_> = hashes.iter().map(|&hash| filter.contains_hash(hash)).collect();
    same("contains_hash", &each, &contains)?;
    Ok(json!({ "contains": contains }))
}
