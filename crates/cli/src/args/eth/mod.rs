//! Arguments of `eth …`. Those that several commands have stand beside what reads them: `eth` has the provider's,
//! `eth::query` those of a query.

mod anchor;
mod audit;
mod follow;
mod index;
mod scan;

use clap::Subcommand;

use crate::exit::EXIT_CODES;

pub(crate) use anchor::{
    AnchorCommand, BeaconArgs, HeaderAnchorArgs, NetworkArgs, SyncAnchorArgs, VerifyAnchorArgs,
};
pub(crate) use audit::{AuditArgs, VerifyCertificateArgs};
pub(crate) use follow::{FollowArgs, ServeArgs, Unverified};
pub(crate) use index::{
    AddedHeaders, AddingArgs, BuildArgs, IndexCommand, InfoArgs, QueryIndexArgs, VerifyIndexArgs,
};
pub(crate) use scan::{
    Buckets, ForecastArgs, HeaderFormat, HeadersArgs, LinkedHeaderArgs, ScanArgs, StatsArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum EthCommand {
    /// Derive a trusted block hash: from a checkpoint to a finalised block
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Anchor(AnchorCommand),
    /// Prove whether an answer of eth_getLogs is complete and correct
    Audit(Box<AuditArgs>),
    /// Verify a certificate that `eth audit` wrote
    VerifyCertificate(Box<VerifyCertificateArgs>),
    /// Find the blocks that may contain logs of a query
    Scan(Box<ScanArgs>),
    /// Follow the logs of a query: first in past blocks, then in new blocks
    Follow(Box<FollowArgs>),
    /// Serve JSON-RPC whose answers are proven, between clients and nodes that are not trusted
    Serve(Box<ServeArgs>),
    /// Estimate the cost of a query before anything is fetched
    Forecast(Box<ForecastArgs>),
    /// Decode headers: hash, layout, every field, and the fill of the log filter
    #[command(after_long_help = scan::HEADER_HELP)]
    Header(HeadersArgs),
    /// Show the fill of a chain's log filters, and the false-positive rates that follow from it
    Stats(StatsArgs),
    /// Index a chain's log filters on disk, to answer queries in milliseconds
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Index(Box<IndexCommand>),
}
