//! Filters of `eth_getLogs`.

mod compiled;

pub use compiled::CompiledQuery;
