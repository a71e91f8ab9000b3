//! Arguments of `eth …`, and of the provider for every command that uses one.

mod anchor;
mod audit;
mod follow;
mod index;
pub(crate) mod query;
mod scan;

use anyhow::{Context as _, bail};
use chainsieve_provider::Endpoint;
use chainsieve_report::UsageError;
use chainsieve_report::args::{Secret, count};
use clap::{Args, Subcommand};

use crate::exit::EXIT_CODES;

pub(crate) use anchor::{
    AnchorCommand, BeaconArgs, HeaderAnchorArgs, NetworkArgs, SyncAnchorArgs, VerifyAnchorArgs,
};
pub(crate) use audit::{AuditArgs, VerifyCertificateArgs};
pub(crate) use follow::{FollowArgs, ServeArgs, Unverified};
pub(crate) use index::{
    AddedHeaders, AddingArgs, BuildArgs, IndexCommand, InfoArgs, QueryIndexArgs, VerifyIndexArgs,
};
pub(crate) use query::QueryArgs;
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

/// A provider, and the limits of requests to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The provider")]
pub(crate) struct RpcArgs {
    /// The URL of a node's JSON-RPC (http or https), or @FILE that contains it
    ///
    /// URLs are secrets: only the host is ever shown. Requests use the proxy of the environment, if
    /// there is one, except requests to this machine.
    ///
    /// [default: the environment variable `ETH_RPC_URL`, unless headers are given]
    #[arg(long, value_name = "URL")]
    pub(crate) rpc: Vec<Secret>,
    /// An HTTP header for the provider, 'Name: value'
    ///
    /// The header is never shown. May be given again
    #[arg(long, value_name = "HEADER", requires = "rpc")]
    pub(crate) rpc_header: Vec<Secret>,
    /// Seconds to wait for a response
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = count(1..=3600_u64),
        hide_short_help = true
    )]
    pub(crate) timeout: u64,
    /// Number of times that a failed request is retried, with increasing waits
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 5,
        value_parser = count(0..=100_u32),
        hide_short_help = true
    )]
    pub(crate) retries: u32,
    /// Maximum number of calls in one batch request; fewer if the provider accepts fewer
    #[arg(
        long,
        value_name = "CALLS",
        default_value_t = 100,
        value_parser = count(1..=1_000_usize),
        hide_short_help = true
    )]
    pub(crate) batch: usize,
    /// Number of requests in flight at the same time; a response may have at most 256 MiB
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 4,
        value_parser = count(1..=64_usize),
        hide_short_help = true
    )]
    pub(crate) parallel: usize,
    /// Maximum number of blocks in one eth_getLogs [default: learnt from the provider]
    #[arg(long, value_name = "BLOCKS", value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) rpc_log_range: Option<u64>,
}

impl RpcArgs {
    /// Returns `true` if a provider was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.rpc.is_empty()
    }

    /// Returns the provider of a command that takes exactly one.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [url] => with_headers(url, &self.rpc_header),
            _ => bail!(UsageError("--rpc is given more than once")),
        }
    }

    /// Returns any number of providers. HTTP headers may be given only if there is one provider,
    /// because the key of one provider must not reach another.
    pub(crate) fn any_number(&self) -> anyhow::Result<Vec<Endpoint>> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [_] => Ok(vec![self.endpoint()?]),
            _ if !self.rpc_header.is_empty() => {
                bail!(UsageError(
                    "--rpc-header with more than one --rpc: the header would be sent to each provider"
                ))
            }
            urls => urls.iter().map(|url| with_headers(url, &[])).collect(),
        }
    }

    /// Returns one provider or two; `headers_of_second` are the HTTP headers of the second
    /// provider.
    pub(crate) fn endpoints(&self, headers_of_second: &[Secret]) -> anyhow::Result<Vec<Endpoint>> {
        match self.rpc.as_slice() {
            [] => bail!(MISSING),
            [_] if !headers_of_second.is_empty() => {
                bail!(UsageError("--rpc2-header without a second --rpc"))
            }
            [_] => Ok(vec![self.endpoint()?]),
            [first, second] => Ok(vec![
                with_headers(first, &self.rpc_header)?,
                with_headers(second, headers_of_second)?,
            ]),
            _ => bail!(UsageError("--rpc is given more than twice")),
        }
    }
}

const MISSING: UsageError = UsageError("--rpc is missing: give the URL of a provider");

/// Returns a provider with its HTTP headers.
fn with_headers(url: &Secret, headers: &[Secret]) -> anyhow::Result<Endpoint> {
    endpoint(["--rpc", "--rpc-header"], url, headers)
}

/// Returns an endpoint with its HTTP headers; `flags` name the URL and a header. No error contains the
/// URL or a header, because either may contain a key.
pub(super) fn endpoint(
    flags: [&'static str; 2],
    url: &Secret,
    headers: &[Secret],
) -> anyhow::Result<Endpoint> {
    let [flag, header_flag] = flags;
    let url = url.or_of_file(flag)?;
    let mut endpoint =
        Endpoint::new(&url).map_err(|error| UsageError(error.as_str())).context(flag)?;
    for header in headers {
        let with_header = endpoint.with_header(&header.0);
        endpoint = with_header.map_err(|error| UsageError(error.as_str())).context(header_flag)?;
    }
    Ok(endpoint)
}
