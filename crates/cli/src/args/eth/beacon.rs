//! Arguments that name a light client of the beacon chain, for every command that uses one.

use std::path::PathBuf;

use chainsieve_provider::Endpoint;
use clap::{Arg, Args};

use super::anchor::{CheckpointArgs, NetworkArgs};
use super::rpc::endpoint;
use crate::args::number::count;
use crate::eth::rpc::Secret;

/// Help text about a light client, for commands that take anchors from it.
macro_rules! beacon_help {
    () => {
        "\
With --beacon and --checkpoint, or with --data of `eth anchor sync`, the anchor comes from a light client: the
newest finalised block, signed by two thirds of a sync committee, which follows from a checkpoint of yours. The
range then ends at that block unless --to or --unfinalized says otherwise; what comes after it is not anchored. A
block far below it is linked to it by the history contract (EIP-2935), if the provider serves eth_getProof;
otherwise all headers in between are fetched. With --data and without --beacon, the folder is used as it is.
Neither beacon node nor provider is trusted. See `eth anchor sync --help` for checkpoints, and for what a sync
committee does not prove."
    };
}
pub(super) use beacon_help;

/// Makes the arguments of a light client need a provider.
pub(super) fn needs_rpc(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "beacon" | "data" | "checkpoint" => arg.requires("rpc"),
        _ => arg,
    }
}

/// The servers of a light client, and the folder of its state.
#[derive(Debug, Args)]
#[command(next_help_heading = "What you trust")]
pub(crate) struct BeaconArgs {
    /// The URL of a beacon node (http or https), or @FILE that contains it; may be given again
    ///
    /// Beacon nodes are not trusted: what they send is proven from --checkpoint. Each is asked, so
    /// that none can hide newer blocks. URLs are secrets: only the host is ever shown
    #[arg(long, value_name = "URL")]
    pub(crate) beacon: Vec<Secret>,
    /// An HTTP header for the beacon nodes, 'Name: value'; may be given again
    ///
    /// The header is never shown. It is sent to each of them
    #[arg(long, value_name = "HEADER", requires = "beacon", hide_short_help = true)]
    pub(crate) beacon_header: Vec<Secret>,
    /// The folder in which `eth anchor sync` keeps its light client
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

impl BeaconArgs {
    /// Returns `true` if a light client is asked for.
    pub(crate) fn is_given(&self) -> bool {
        !self.beacon.is_empty() || self.data.is_some() || self.checkpoint.checkpoint.is_some()
    }

    pub(crate) fn endpoints(&self) -> anyhow::Result<Vec<Endpoint>> {
        let flags = ["--beacon", "--beacon-header"];
        self.beacon.iter().map(|url| endpoint(flags, url, &self.beacon_header)).collect()
    }
}

/// Limits of requests to beacon nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "The beacon nodes")]
pub(crate) struct BeaconLimits {
    /// Seconds to wait for a response
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=3600_u64))]
    pub(crate) timeout: u64,
    /// Number of times that a failed request is retried, with increasing waits
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = count(0..=100_u32))]
    pub(crate) retries: u32,
}
