//! parquet, Apache Arrow's crate: `bloom_filter::Sbbf`.
use parquet::bloom_filter::Sbbf;
use protocol::{bytes, serve};
use serde_json::json;

#[path = "../../protocol.rs"]
mod protocol;

fn main() {
    serve(&[("filter.parquet", |input| {
        let filter = Sbbf::new(&bytes(&input["bitset"]));
        Ok(json!({ "contains": filter.check(bytes(&input["data"]).as_slice()) }))
    })]);
}
