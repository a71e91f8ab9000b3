//! `eth …`.

mod headers;

use clap::Subcommand;

pub(crate) use headers::{Buckets, HeaderArgs, HeaderFormat, StatsArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum EthCommand {
    /// Decode headers: hash, layout, every field, how full the filter of logs is
    Header(HeaderArgs),
    /// How full the filters of a chain are, and what that costs a query
    Stats(StatsArgs),
}
