//! parquet, Apache Arrow's crate: `bloom_filter::Sbbf`.
use parquet::bloom_filter::Sbbf;
use protocol::{bytes, serve};
use serde_json::json;

#[path = "../../protocol.rs"]
mod protocol;

fn main() {
    serve(&[
        ("filter.parquet", |input| {
            let filter = Sbbf::new(&bytes(&input["bitset"]));
            Ok(json!({ "contains": filter.check(bytes(&input["data"]).as_slice()) }))
        }),
        ("filter.parquet_file", |input| {
            let mut bitset = Vec::new();
            Sbbf::from_bytes(&bytes(&input["file"]))?.write_bitset(&mut bitset)?;
            Ok(json!({ "bitset": hex::encode(bitset) }))
        }),
    ]);
}
