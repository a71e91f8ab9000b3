//! Arguments of `eth anchor …`, and of the beacon nodes for every command that uses them.

use std::path::PathBuf;

use chainsieve::alloy_primitives::B256;
use chainsieve_provider::Endpoint;
use chainsieve_report::args::{self, Secret, count};
use chainsieve_report::calendar;
use clap::{Arg, Args, Subcommand};

use crate::args::folder;
use crate::eth::query::hash;
use crate::eth::{RpcArgs, endpoint};

/// Help text about a light client, for commands that take anchors from it.
macro_rules! beacon_help {
    () => {
        "\
With --beacon and --checkpoint, or with --data of `eth anchor sync`, the anchor comes from a light client: the
newest finalised block, signed by two thirds of a sync committee, which follows from a checkpoint of yours. The
range then ends at that block unless --to or --unfinalized is given; later blocks are not anchored. A block far
below the anchor is linked to it by the history contract (EIP-2935), if the provider serves eth_getProof;
otherwise all headers in between are fetched. With --data and without --beacon, the folder is used as it is.
The beacon nodes and the provider are not trusted. See `eth anchor sync --help` for checkpoints, and for what a sync
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
    /// Beacon nodes are not trusted: their answers are proven from --checkpoint. Every node is
    /// asked, so that a single node cannot hide newer blocks. URLs are secrets: only the host is
    /// ever shown
    #[arg(long, value_name = "URL")]
    pub(crate) beacon: Vec<Secret>,
    /// An HTTP header for the beacon nodes, 'Name: value'; may be given again
    ///
    /// The header is never shown. It is sent to every beacon node
    #[arg(long, value_name = "HEADER", requires = "beacon", hide_short_help = true)]
    pub(crate) beacon_header: Vec<Secret>,
    /// The folder in which `eth anchor sync` keeps its light client
    #[arg(long, value_name = "DIR", value_parser = folder)]
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

#[derive(Debug, Subcommand)]
pub(crate) enum AnchorCommand {
    /// Follow the beacon chain from a checkpoint to its newest finalised block, and keep the state
    Sync(Box<SyncAnchorArgs>),
    /// Prove that a block of any age is on the chain of the newest finalised block
    Header(Box<HeaderAnchorArgs>),
    /// Verify answers of beacon nodes, offline: from a checkpoint to a finalised execution block
    Verify(VerifyAnchorArgs),
}

/// Help text about checkpoints, for every command that starts from one.
macro_rules! checkpoint_help {
    () => {
        "\
A checkpoint is the root of a finalised beacon block, preferably of the first block of an epoch. Everything
else is proven from the checkpoint, so it must come from sources that you trust, and no default is built in.
Take it from a beacon node of your own (/eth/v1/beacon/headers/finalized, or the root that the node prints),
from public checkpoint pages and explorers, or from a friend who runs a node. Compare at least two or three
sources that do not copy from each other: pages of one operator, or behind one provider, count as one source.
A checkpoint should be younger than the weak-subjectivity period: 15.7 days on mainnet, 27 hours on Sepolia
and Hoodi. An older checkpoint is a risk: validators of that time may have withdrawn their stake, and can then
sign another chain at no cost."
    };
}

/// The block from which everything is proven.
#[derive(Debug, Args)]
#[command(next_help_heading = "What you trust")]
pub(crate) struct CheckpointArgs {
    /// The root of a finalised beacon block, from sources that you trust
    ///
    /// Ask a beacon node of your own, or compare at least two or three independent sources: public
    /// checkpoint pages, explorers, a friend with a node. No default is built in
    #[arg(long, value_name = "ROOT", value_parser = hash)]
    pub(crate) checkpoint: Option<B256>,
}

const NETWORK: &str = "\
The beacon chain: mainnet, sepolia, hoodi, or a JSON file that describes another chain

Members of the file: name, preset (mainnet | minimal), genesis_time, genesis_validators_root,
forks[{name, version, epoch (null if not scheduled)}] from phase0 on; optional: seconds_per_slot,
blob_schedule[{epoch, max_blobs_per_block}], max_blobs_per_block_electra, weak_subjectivity_epochs";

/// The beacon chain.
#[derive(Debug, Args)]
#[command(next_help_heading = "What you trust")]
pub(crate) struct NetworkArgs {
    /// The beacon chain: mainnet, sepolia, hoodi, or a JSON file that describes another chain
    #[arg(long, value_name = "NETWORK", default_value = "mainnet", long_help = NETWORK)]
    pub(crate) network: String,
}

const VERIFY_HELP: &str = concat!(
    "\
Exit codes: 0 proven: the execution block follows from the checkpoint
            3 wrong: the bootstrap does not fit the checkpoint, or an update is refused
            4 not decided: --checkpoint or an update is missing, or no execution block is bound
            5 malformed input, or an I/O error

The files are answers of /eth/v1/beacon/light_client/ of any beacon node: one bootstrap, and any number of
updates, of lists of updates, of finality updates and of optimistic updates. The source of the files need not
be trusted. A file is a JSON object with version and data, or a list of such objects.

The order of the files does not matter: the bootstrap is read first, then the updates in the order of the slots
in which they were signed; of updates of one slot, the update with the most contents is read first. The sync
committee of each period must be known before its signatures count, so an update for each period in between is
needed. An update that is older than the finalised block is not needed, and its signature is not checked. No
update is forced (a light client may force an update that is not final after a long time without finality).

",
    checkpoint_help!(),
    "

The proof shows that at least two thirds of a sync committee signed a header whose state calls the block
finalised. This is less than full consensus: no attestations are counted, and members of a sync committee are
not slashed for a false signature. After a fork that the network's schedule lacks, every update seems wrong.
From Gloas on, a beacon block binds the last execution block before it, by hash: `lags` is then true."
);

/// Parses a time: seconds since 1970, or a day, which means its first second in UTC.
fn time(text: &str) -> Result<u64, &'static str> {
    let day = || calendar::day_start(text).map(u64::from);
    args::number(text).or_else(day).ok_or("neither seconds since 1970 nor a day, YYYY-MM-DD")
}

/// Verify answers of beacon nodes, offline: from a checkpoint to a finalised execution block.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP)]
pub(crate) struct VerifyAnchorArgs {
    /// A bootstrap and updates: files of JSON, or - for standard input
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<String>,
    /// The time of the check: seconds since 1970, or a day [default: now]
    ///
    /// The age of the checkpoint is counted up to this time, and a signature of a later slot is not
    /// accepted. A day, YYYY-MM-DD, means its first second in UTC
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) at: Option<u64>,
    #[command(flatten)]
    pub(crate) checkpoint: CheckpointArgs,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

const SYNC_HELP: &str = concat!(
    "\
Exit codes: 0 the light client is as new as the newest answer of a beacon node; without --beacon: the light
              client is shown
            3 no beacon node has a bootstrap that fits the checkpoint, and at least one node is proven wrong
            5 no beacon node can be reached or has the checkpoint; or --data cannot be used, or, without
              --beacon, has no light client

The first run needs --checkpoint. A later run continues from --data, even weeks later. The folder stays intact
if the command is killed at any time. With several --beacon, each node is asked in each round: a false answer is
refused and noted, and one honest node is enough to learn of blocks that another node hides. Only the
checkpoint is trusted. To start from another checkpoint, give --restart. Without --beacon, no request is sent,
and the light client in the folder is shown; the folder may be in use.

",
    checkpoint_help!(),
    "

With --watch, the beacon nodes are asked every two minutes until Ctrl-C, and a line is printed for each newer
finalised block.

With --optimistic, each round also asks for the newest signed block, and --watch prints a line when that block
changes. This block is usually a few slots old. It is not final: it may leave the chain again, and no command
takes it as an anchor. The line says how many members of the sync committee signed the block; right after a
start, one signature is enough."
);

/// Follow the beacon chain from a checkpoint to its newest finalised block, and keep the state.
#[derive(Debug, Args)]
#[command(
    after_long_help = SYNC_HELP,
    mut_arg("data", default_folder),
    mut_arg("checkpoint", |arg| arg.requires("beacon")),
    mut_arg("timeout", |arg| arg.requires("beacon")),
    mut_arg("retries", |arg| arg.requires("beacon"))
)]
pub(crate) struct SyncAnchorArgs {
    /// Start from --checkpoint again, and replace the light client in the folder
    #[arg(long, requires_all = ["checkpoint", "beacon"])]
    pub(crate) restart: bool,
    /// Continue until Ctrl-C, and print each newer finalised block
    #[arg(long, requires = "beacon")]
    pub(crate) watch: bool,
    /// Also ask for the newest signed block, which is newer than the finalised block, but not final
    #[arg(long, requires = "beacon")]
    pub(crate) optimistic: bool,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
    #[command(flatten)]
    pub(crate) limits: BeaconLimits,
}

fn default_folder(data: Arg) -> Arg {
    data.help(
        "The folder of the light client, created if missing [default: a folder for each network in \
         the platform's data folder]",
    )
}

const HEADER_HELP: &str = "\
Exit codes: 0 proven: the block is an ancestor of the newest finalised block, or is that block
            3 wrong: the header is that of another block with this number, or a link is false
            4 not decided: the block is not final yet, or no source leads to it
            5 malformed input, an I/O error, or an unreachable provider

The light client comes from --data, or from --checkpoint and --beacon: then it is only kept if --data is given.
With --beacon, the light client is advanced first.
The block is linked to the finalised block in the cheapest way that the sources allow:
  parent hashes      all headers in between, from --rpc
  history contract   EIP-2935: eth_getProof of --rpc proves any of the last 8,191 block hashes
  several such steps for blocks further back, if --rpc serves the state of old blocks (an archive node)
  header proof       on mainnet, from an ere archive (--archive); from Capella on, the proof needs the list
                     of historical summaries, which Lodestar and Nimbus serve (--beacon)
Every link is verified. With --out, the links are written to a file: everyone who trusts the same finalised
block can verify the links again, with this command and without any source.";

/// Prove that a block of any age is on the chain of the newest finalised block.
#[derive(Debug, Args)]
#[command(after_long_help = HEADER_HELP, mut_arg("data", default_folder))]
pub(crate) struct HeaderAnchorArgs {
    /// The number of a block; or a header in RLP, JSON or hex (- for standard input); or a file of
    /// links that --out wrote
    #[arg(value_name = "NUMBER|FILE")]
    pub(crate) block: String,
    /// An ere archive with proofs of headers; may be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: Vec<PathBuf>,
    /// Maximum number of headers that are fetched to reach the block by parent hashes
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 8_191,
        value_parser = args::count(0..=u64::MAX),
        hide_short_help = true
    )]
    pub(crate) max_headers: u64,
    /// Write the links to this file, for others to verify
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: crate::args::OverwriteArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
}
