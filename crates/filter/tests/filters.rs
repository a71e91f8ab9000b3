//! Membership filters: rates, laws, other implementations' bytes, hostile bytes.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

#[path = "../../../tests/hostile/allocation.rs"]
mod allocation;
#[path = "filters/binomial.rs"]
mod binomial;
#[path = "filters/bloom.rs"]
mod bloom;
#[path = "filters/bloom_bytes.rs"]
mod bloom_bytes;
#[path = "filters/bloom_rates.rs"]
mod bloom_rates;
#[path = "filters/bloom_threads.rs"]
mod bloom_threads;
#[path = "filters/counting.rs"]
mod counting;
#[path = "filters/cuckoo.rs"]
mod cuckoo;
#[path = "filters/cuckoo_bytes.rs"]
mod cuckoo_bytes;
#[path = "filters/cuckoo_rates.rs"]
mod cuckoo_rates;
#[path = "filters/extremes.rs"]
mod extremes;
#[path = "filters/fuse.rs"]
mod fuse;
#[path = "filters/golden.rs"]
mod golden;
#[path = "filters/golden_any.rs"]
mod golden_any;
#[path = "filters/guava.rs"]
mod guava;
#[path = "filters/hashing.rs"]
mod hashing;
#[path = "filters/hostile_any.rs"]
mod hostile_any;
#[path = "filters/key_families.rs"]
mod key_families;
#[path = "filters/model.rs"]
mod model;
#[path = "filters/model_laws.rs"]
mod model_laws;
#[path = "filters/parquet.rs"]
mod parquet_files;
#[path = "filters/ribbon.rs"]
mod ribbon;
#[path = "filters/rolling.rs"]
mod rolling;
#[path = "filters/scalable.rs"]
mod scalable;
#[path = "filters/split_block.rs"]
mod split_block;
#[path = "filters/split_block_bytes.rs"]
mod split_block_bytes;
#[path = "filters/split_block_rates.rs"]
mod split_block_rates;
#[path = "filters/watch_set/mod.rs"]
mod watch_set;
#[path = "filters/xor_singleheader.rs"]
mod xor_singleheader;
