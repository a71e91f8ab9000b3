//! xorf: binary fuse filters of 8 and 16 bits.
//!
//! `from_dma` takes the fields in another order than the C library writes them: the adapter reads the
//! header, and writes the fields as xorf has them. Keys are numbers, so the adapter hashes their text
//! by XXH64, as the vectors ask for.
use protocol::{bytes, list, serve};
use serde_json::{Value, json};
use xorf::{BinaryFuse8Ref, BinaryFuse16Ref, Filter, FilterRef};

#[path = "../../protocol.rs"]
mod protocol;

/// The descriptor and the fingerprints of a filter, if its bytes are complete.
fn read(bytes: &[u8], width: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (segment_length, places) = (word(12)?, word(20)?);
    let fields = [segment_length, segment_length.wrapping_sub(1), places].map(u32::to_le_bytes);
    let fingerprints = bytes.get(28..28 + word(24)? as usize * width)?;
    // A new vector begins at an even address, which 16-bit fingerprints need.
    Some(([bytes.get(..8)?, fields.as_flattened()].concat(), fingerprints.to_vec()))
}

fn contains(filter: &impl Filter<u64>, input: &Value) -> Value {
    let hash = |key: &Value| xxhash_rust::xxh64::xxh64(key.as_str().expect("text").as_bytes(), 0);
    json!({ "contains": list(&input["keys"], |key| filter.contains(&hash(key))) })
}

fn main() {
    serve(&[
        ("filter.fuse8", |input| {
            let (fields, cells) = read(&bytes(&input["bytes"]), 1).ok_or("truncated")?;
            Ok(contains(&BinaryFuse8Ref::from_dma(&fields, &cells), input))
        }),
        ("filter.fuse16", |input| {
            let (fields, cells) = read(&bytes(&input["bytes"]), 2).ok_or("truncated")?;
            Ok(contains(&BinaryFuse16Ref::from_dma(&fields, &cells), input))
        }),
    ]);
}
