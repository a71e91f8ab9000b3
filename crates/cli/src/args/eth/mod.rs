//! `eth …`.

mod audit;
mod follow;
mod headers;
mod index;
pub(crate) mod query;
pub(crate) mod rpc;
mod scan;

use clap::Subcommand;

use crate::exit::EXIT_CODES;

pub(crate) use audit::{AuditArgs, TrustArgs, VerifyCertificateArgs};
pub(crate) use follow::FollowArgs;
pub(crate) use headers::{Buckets, HeaderFormat, HeadersArgs, StatsArgs};
pub(crate) use index::{
    AddedHeaders, AddingArgs, AppendArgs, BuildArgs, ExplainArgs, IndexCommand, InfoArgs,
    QueryIndexArgs, VerifyIndexArgs,
};
pub(crate) use query::QueryArgs;
pub(crate) use rpc::RpcArgs;
pub(crate) use scan::{ForecastArgs, LinkedHeaders, ScanArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum EthCommand {
    /// Whether an answer of eth_getLogs is complete and true
    Audit(Box<AuditArgs>),
    /// Prove the result of a certificate anew
    VerifyCertificate(Box<VerifyCertificateArgs>),
    /// Find the blocks that may have logs of a query
    Scan(Box<ScanArgs>),
    /// Follow the logs of a query through the past, and then live
    Follow(Box<FollowArgs>),
    /// What a query will cost, before anything is fetched
    Forecast(Box<ForecastArgs>),
    /// Decode headers: hash, layout, every field, how full the filter of logs is
    #[command(after_long_help = headers::HEADER_HELP)]
    Header(HeadersArgs),
    /// How full the filters of a chain are, and what that costs a query
    Stats(StatsArgs),
    /// The filters of a chain on disk, turned on their side: a query in milliseconds
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Index(IndexCommand),
}
