//! The `eth anchor` commands.

mod client;
mod header;
mod objects;
pub(crate) mod show;
mod sync;
pub(crate) mod trusted;
mod verify;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use chainsieve::eth::anchor::network::Network;
use chainsieve_report::{Report, UsageError, named};

use crate::args::eth::{AnchorCommand, NetworkArgs};

pub(crate) fn run(command: &AnchorCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        AnchorCommand::Sync(args) => sync::run(args, json),
        AnchorCommand::Header(args) => header::run(args),
        AnchorCommand::Verify(args) => verify::run(args),
    }
}

/// Returns the network that `--network` names or describes.
fn network(args: &NetworkArgs) -> anyhow::Result<Network> {
    let name = args.network.as_str();
    if let Some(network) = Network::named(name) {
        return Ok(network);
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(UsageError("--network is neither mainnet, sepolia, hoodi nor a file").into());
    }
    let what = || format!("network, {}", named(path));
    let text = fs::read_to_string(path).with_context(what)?;
    serde_json::from_str(&text).with_context(what)
}

/// Returns the time of the check: `--at`, or the system's clock.
fn now(at: Option<u64>) -> anyhow::Result<Duration> {
    at.map_or_else(
        || SystemTime::UNIX_EPOCH.elapsed().context("the system's clock is before 1970"),
        |seconds| Ok(Duration::from_secs(seconds)),
    )
}
