//! Tests of membership filters: rates, laws, other implementations' bytes, hostile bytes.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

mod bloom;
mod bloom_bytes;
mod bloom_rates;
mod bloom_threads;
mod costs;
mod count_min;
mod counting;
mod cuckoo;
mod cuckoo_bytes;
mod cuckoo_rates;
mod extremes;
mod fuse;
mod golden;
mod golden_any;
mod guava;
mod hashing;
mod hostile_any;
mod key_families;
mod model;
mod model_laws;
mod names;
mod parquet_files;
mod ribbon;
mod rolling;
mod scalable;
mod split_block;
mod split_block_bytes;
mod split_block_rates;
mod watch_set;
mod xor_singleheader;

use testkit::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
