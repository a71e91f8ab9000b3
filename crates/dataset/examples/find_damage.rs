//! Finds what is wrong with a data set in Parquet files.
//!
//! ```text
//! cargo run --release -p chainsieve-dataset --example find_damage -- [FILE…]
//! ```
//! Without files, it reads two blocks of mainnet, of which one lacks a log. The name of each file says which table
//! it is of. Pass the files of a table in the order of their blocks.

use std::error::Error;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve_dataset::{Dataset, File, Stream};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const EXAMPLE: [&str; 3] = ["blocks", "transactions", "logs_without_one"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ethereum/datasets");
        files.extend(EXAMPLE.map(|table| format!("{folder}/{table}.parquet")));
    }
    let mut data = Dataset::new().profile(ChainProfile::ethereum());
    for path in files {
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let (is_logs, is_blocks) = (name.contains("logs"), name.contains("blocks"));
        let file = File::new(name, move || open(&path));
        data = match (is_logs, is_blocks) {
            (true, _) => data.logs(file),
            (_, true) => data.blocks(file),
            _ => data.transactions(file),
        };
    }
    print!("{}", data.verify().into_summary()?);
    Ok(())
}

/// Opens a file of Parquet as a stream of C.
fn open(path: &str) -> Result<Stream, Box<dyn Error>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path)?)?.build()?;
    let mut exported = FFI_ArrowArrayStream::new(Box::new(reader));
    #[expect(unsafe_code, reason = "the interface is C's")]
    // SAFETY: the struct is valid, and it is not used again.
    let stream = unsafe { Stream::from_raw((&raw mut exported).cast()) };
    Ok(stream)
}
