//! `btc sync`, and the code that it shares with `btc watch`: commands that run the light client.

mod drive;
mod lines;
mod summary;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::drive::{Reader, drive};
use super::client::summary::{grades_in_words, warnings, work_hex};
use crate::args::cf::HeaderAt;
use crate::args::client::{PeerArgs, SyncArgs, TrustArgs};
use crate::args::platform_folder;
use crate::exit::stop_on_signals;
use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::Network;
use chainsieve::btc::client::OpenError;
use chainsieve_client::{
    Birthday, Builder, Client, Finding, Folder, NetworkParams, News, Protocol, StartError, Status,
    StorageError, Update,
};
use chainsieve_report::args::network_name;
use chainsieve_report::{Page, Report, UsageError, named, print_log, shorten};

pub(crate) use watch::watch;

/// Maximum number of disputes that the report lists.
const MAX_DISPUTES: usize = 1_000;

/// Disputes between peers, as text.
#[derive(Default)]
struct Disputes(Vec<String>);

impl Reader for Disputes {
    fn take(&mut self, update: Update, _: &Status, _: &Client) -> anyhow::Result<Vec<Update>> {
        match &update.news {
            // The log line about the ban and the report name it.
            News::Finding(Finding::FalseFilter { .. }) => {}
            News::Finding(finding) => {
                let text = finding.to_string();
                print_log(&text);
                if finding.at().is_some() && self.0.len() < MAX_DISPUTES {
                    self.0.push(text);
                }
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn is_closed(&self) -> bool {
        false
    }
}

pub(crate) fn sync(args: &SyncArgs) -> anyhow::Result<Report> {
    let network = args.network;
    let chain = chain(&args.peers, network)?;
    // From here on, Ctrl-C ends the run and the state is stored; it does not kill the process.
    stop_on_signals()?;
    let data = data_folder(&args.peers, &chain)?;
    let client = if args.headers_only {
        builder(&args.peers, chain, &data, None)?.protocol(Protocol::HeadersOnly)
    } else {
        let name = format!("filters-{}", birthday_name(args.birthday));
        let builder = builder(&args.peers, chain, &data, Some(&name))?.start_at(args.birthday);
        trusting(builder, &args.trust)
    };
    let client = start(client, &data, network)?;
    let mut disputes = Disputes::default();
    let ended = drive(client, &args.peers, true, &mut disputes)?;
    let mut json = summary::json(&ended, network);
    json["headers_only"] = args.headers_only.into();
    json["from"] = ended.status.first.into();
    json["disputes"] = disputes.0.as_slice().into();
    let mut fields = summary::fields(&ended);
    fields.push(("work", work_hex(&ended.status.progress)));
    fields.extend(grades_in_words(&ended.grades).into_iter().map(|words| ("filters", words)));
    fields.extend(disputes.0.into_iter().map(|text| ("dispute", text)));
    fields.extend(ended.false_filters.texts().map(|text| ("false filter", text)));
    let report = Report::new(Page::of_fields(fields), json, ended.exit());
    Ok(report.with_warnings(warnings(&ended, network)))
}

/// Returns the chain of the network, or the custom signet that the arguments describe.
fn chain(args: &PeerArgs, network: Network) -> anyhow::Result<NetworkParams> {
    let Some(challenge) = &args.signet_challenge else { return Ok(network.into()) };
    if network != Network::Signet {
        bail!(UsageError("--signet-challenge is for --network signet"));
    }
    let mut chain = NetworkParams::signet(challenge);
    chain.block_time = args.signet_block_time;
    Ok(chain)
}

/// Returns the builder of a client. Headers are stored in the folder `data`, everything else in its
/// subfolder `name`, if there is one.
fn builder(
    args: &PeerArgs,
    chain: NetworkParams,
    data: &Path,
    name: Option<&str>,
) -> anyhow::Result<Builder> {
    let folder = match name {
        Some(name) => Folder::open_within(data, name),
        None => Folder::open(data),
    };
    let mut builder = Builder::new(chain)
        .storage(folder.map_err(|error| data_error(data, error))?)
        .max_peers(args.max_peers.into())
        .timeout(Duration::from_secs(args.timeout.into()))
        .log(|note| print_log(&note.to_string()));
    for peer in &args.peer {
        builder = builder.peer(peer);
    }
    if let Some(work) = args.minimum_work {
        builder = builder.minimum_work(work);
    }
    Ok(builder)
}

/// Sets the checkpoints and the rate of spot audits.
fn trusting(mut builder: Builder, trust: &TrustArgs) -> Builder {
    for HeaderAt { height, header } in &trust.checkpoint {
        builder = builder.checkpoint(*height, *header);
    }
    builder.spot_audits(trust.spot_audits)
}

fn start(builder: Builder, data: &Path, network: Network) -> anyhow::Result<Client> {
    builder.start().map_err(|error| match error {
        StartError::Peer { peer, cause } => anyhow!("--peer {}: {cause}", shorten(&peer)),
        StartError::NobodyToCall => {
            anyhow::Error::from(UsageError("this network has no DNS seeds: give a --peer"))
                .context(network.to_string())
        }
        StartError::Storage(error) => data_error(data, error),
        StartError::Checkpoint(error) => anyhow!(error).context("--checkpoint"),
        StartError::Open(error @ OpenError::Network { .. }) => {
            anyhow!("--data {}: {error}: see --network", named(data))
        }
        StartError::Open(error) => anyhow!(error).context(format!("--data {}", named(data))),
        error => error.into(),
    })
}

/// Returns `--data`, or the chain's folder in the platform's data folder, created if missing.
fn data_folder(args: &PeerArgs, chain: &NetworkParams) -> anyhow::Result<PathBuf> {
    if let Some(data) = &args.data {
        return Ok(data.clone());
    }
    let mut name = network_name(chain.network);
    // Custom signets have a folder each, since the client refuses the headers of another signet.
    if chain.magic != chain.network.magic() {
        name = format!("{name}_{}", chain.magic);
    }
    let data = platform_folder()?.join(name);
    fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    Ok(data)
}

fn data_error(data: &Path, error: StorageError) -> anyhow::Error {
    let data = format!("--data {}", named(data));
    if error.operation == "lock" {
        // Locking concerns the whole folder, so the error need not name a file in it.
        return anyhow!("{data}: {}", error.message);
    }
    anyhow!(error).context(data)
}

/// Returns a birthday as a part of a folder's name.
fn birthday_name(birthday: Birthday) -> String {
    match birthday {
        Birthday::Height(height) => height.to_string(),
        Birthday::Time(seconds) => format!("t{seconds}"),
    }
}
