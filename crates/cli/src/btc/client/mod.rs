//! The commands that run the light client, `btc sync` and `btc watch`.

mod lines;
mod run;

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::watch::{Kind, Watched, read_items};
use crate::args::cf::HeaderAt;
use crate::args::client::{PeerArgs, SyncArgs, TrustArgs, WatchLiveArgs};
use crate::args::{WatchArgs, platform_folder};
use crate::exit::stop_on_signals;
use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::Network;
use chainsieve::btc::client::OpenError;
use chainsieve_client::{
    Birthday, Builder, Client, Finding, Folder, History, Item, NetworkParams, News, Protocol,
    StartError, Status, StorageError, Update, Wallet, WalletId,
};
use chainsieve_report::args::network_name;
use chainsieve_report::{
    Exit, Page, Reader, Report, UsageError, count, grouped, named, print_log, print_note, shorten,
};
use lines::Printer;
use run::{Ended, drive, grades_in_words, warnings, work_hex};

/// Maximum number of disputes that the report lists.
const MAX_DISPUTES: usize = 1_000;

/// Disputes between peers, as text.
#[derive(Default)]
struct Disputes(Vec<String>);

impl run::Reader for Disputes {
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
    let mut json = run::json(&ended, network);
    json["headers_only"] = args.headers_only.into();
    json["from"] = ended.status.first.into();
    json["disputes"] = disputes.0.as_slice().into();
    let mut fields = run::fields(&ended);
    fields.push(("work", work_hex(&ended.status.progress)));
    fields.extend(grades_in_words(&ended.grades).into_iter().map(|words| ("filters", words)));
    fields.extend(disputes.0.into_iter().map(|text| ("dispute", text)));
    fields.extend(ended.false_filters.texts().map(|text| ("false filter", text)));
    let report = Report::new(Page::of_fields(fields), json, ended.exit());
    Ok(report.with_warnings(warnings(&ended, network)))
}

/// A run of `watch`.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    args: &'a WatchLiveArgs,
    first: Birthday,
    /// `true` if past blocks are scanned again, with `--from`.
    is_rescan: bool,
}

pub(crate) fn watch(args: &WatchLiveArgs, json: bool) -> anyhow::Result<Report> {
    if let (Some(Birthday::Height(from)), Some(to)) = (args.from, args.to)
        && from > to
    {
        bail!(UsageError("--from is greater than --to"));
    }
    let first = args.from.unwrap_or(args.birthday);
    Job { args, first, is_rescan: args.from.is_some() }.run(json)
}

/// Returns `true` if earlier runs of `watch` have a folder, but the folder `name` of this run does
/// not exist.
fn is_other_set(data: &Path, name: &str, protocol: Protocol) -> bool {
    let prefix = format!("watch-{protocol}-");
    let is_earlier = |entry: DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    // A folder that cannot be read is an error of the storage later.
    let mut entries = fs::read_dir(data).into_iter().flatten().flatten();
    !data.join(name).exists() && entries.any(is_earlier)
}

impl Job<'_> {
    fn run(self, json: bool) -> anyhow::Result<Report> {
        let protocol = self.args.protocol;
        if protocol == Protocol::Bip37 && !self.args.trust.checkpoint.is_empty() {
            bail!(UsageError("--checkpoint is for --protocol bip157"));
        }
        // A birthday is a block before which no item was used. The first block of a rescan is no
        // birthday: an item may have been used before it.
        let is_complete = !self.is_rescan || self.first == Birthday::Height(0);
        let history = if is_complete { History::Complete } else { History::Unknown };
        let (items, gap) = (&self.args.watch, self.args.gap_limit);
        let (wallet, names) = wallet_of(items, gap, protocol, self.first, history)?;
        let network = self.args.watch.network;
        let chain = chain(&self.args.peers, network)?;
        // From here on, Ctrl-C ends the run and the state is stored; it does not kill the process.
        stop_on_signals()?;
        // The folder's name contains the digest of the items, so a run with other items starts from
        // the beginning.
        let mut id = hex::encode(wallet.digest());
        id.truncate(16);
        let name = self.folder(protocol, &id);
        let id = WalletId(id);
        let data = data_folder(&self.args.peers, &chain)?;
        if !self.is_rescan && is_other_set(&data, &name, protocol) {
            print_note(
                "no earlier run in --data had exactly these items, this birthday and this gap limit: \
                 the scan begins at the birthday",
            );
        }
        let mut builder = builder(&self.args.peers, chain, &data, Some(&name))?
            .protocol(protocol)
            .false_positive_rate(self.args.fpr)
            .wallet(id.clone(), wallet);
        if let Some(last) = self.args.to {
            builder = builder.end_at(last);
        }
        let client = start(trusting(builder, &self.args.trust), &data, network)?;
        let mut printer = Printer::new(id, names, network, json);
        let ended = drive(client, &self.args.peers, self.args.once, &mut printer)?;
        Ok(self.report(&ended, &printer))
    }

    /// Returns the name of the folder for the state of these items.
    fn folder(&self, protocol: Protocol, digest: &str) -> String {
        let kind = if self.is_rescan { "rescan" } else { "watch" };
        let first = birthday_name(self.first);
        let last = self.args.to.map(|last| format!("-{last}")).unwrap_or_default();
        format!("{kind}-{protocol}-{first}{last}-{digest}")
    }

    fn report(&self, ended: &Ended, printer: &Printer) -> Report {
        let mut warnings = warnings(ended, self.args.watch.network);
        let progress = &ended.status.progress;
        let tip = progress.tip;
        // A day beyond the chain's end is resolved to a block of the chain.
        let from = match self.args.from {
            Some(Birthday::Height(from)) => Some(from),
            _ => None,
        };
        let beyond = self.args.to.or(from).filter(|wanted| *wanted > tip.height);
        if let Some(wanted) = beyond {
            warnings.push(format!(
                "the chain ends at height {}: blocks up to height {wanted} were not all searched",
                tip.height
            ));
        }
        let exit = match ended.exit() {
            Exit::Yes if beyond.is_some() => Exit::Undecided,
            exit => exit,
        };
        let mut fields = run::fields(ended);
        fields.extend([
            (
                "answered to",
                progress.settled_to.map_or("nothing".into(), |height| {
                    let next =
                        if self.args.to.is_some() { "" } else { "; the next run continues there" };
                    format!("height {}{next}", grouped(height))
                }),
            ),
            (
                "hits",
                format!(
                    "{}; {} printed again, {} withdrawn",
                    count(printer.hits, "new hit"),
                    grouped(printer.again),
                    grouped(printer.withdrawn)
                ),
            ),
        ]);
        fields.extend(grades_in_words(&ended.grades).into_iter().map(|words| ("grades", words)));
        let mut json = run::json(ended, self.args.watch.network);
        json["protocol"] = self.args.protocol.name().into();
        json["birthday"] = ended.status.first.into();
        json["hits"] = printer.hits.into();
        json["again"] = printer.again.into();
        json["withdrawn"] = printer.withdrawn.into();
        let report = Report::new(Page::of_fields(fields), json, exit);
        report.with_warnings(warnings).after_lines()
    }
}

/// Returns a wallet of all items of the command line, and the items as they were typed.
fn wallet_of(
    args: &WatchArgs,
    gap: u32,
    protocol: Protocol,
    birthday: Birthday,
    history: History,
) -> anyhow::Result<(Wallet, Vec<String>)> {
    let reader = Reader::of(args.items.iter())?;
    let empty = Wallet { history, gap, ..Wallet::new(birthday, Vec::new()) };
    let read = read_items(args, &reader, |kind, text| {
        let item = item(kind, text, args, protocol)?;
        let alone = Wallet { items: vec![item], ..empty.clone() };
        if let Err(error) = alone.check(protocol) {
            return Err(match kind {
                // Errors do not show the descriptor: it may contain a private key.
                Kind::Descriptor => error.cause.into(),
                kind => anyhow::Error::from(error.cause).context(kind.item(text)),
            });
        }
        Ok(alone.items.into_iter().map(|item| (item, text.to_owned())).collect())
    })?;
    // An empty file or input is most likely a mistake: a run without items would never find
    // anything.
    if read.is_empty() {
        bail!(UsageError("nothing to watch: give items, --file or -; see --help"));
    }
    // Two different texts may mean the same item, and a client accepts an item only once.
    let mut known = HashSet::new();
    let distinct = read.into_iter().filter(|(item, _)| known.insert(item.clone()));
    let (items, names) = distinct.unzip();
    Ok((Wallet { items, ..empty }, names))
}

fn item(kind: Kind, text: &str, args: &WatchArgs, protocol: Protocol) -> anyhow::Result<Item> {
    Ok(match Watched::parse(kind, text, args.network)? {
        Watched::Script(script) => Item::Script(script),
        Watched::Key(key) => Item::Key(key),
        Watched::Descriptor => Item::Descriptor(text.to_owned(), args.range.0.clone()),
        Watched::Coin(_, None) if protocol == Protocol::Bip157 => bail!(
            "{}: a compact filter contains whole scripts only: write outpoint:TXID:VOUT=SCRIPT (hex or \
             an address), or use --protocol bip37",
            kind.item(text)
        ),
        Watched::Coin(outpoint, script) => Item::Coin { outpoint, script },
        Watched::Txid(_) | Watched::Data(_) => bail!(
            "{}: this is not a script, key, descriptor or coin: give a script or an address",
            kind.item(text)
        ),
    })
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

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin::{Network, ScriptBuf};

    use super::*;
    use crate::args::Range;

    /// The transaction of Bitcoin's genesis block. Any txid would do.
    const TXID: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

    #[test]
    fn coins_with_and_without_their_script() {
        let args = WatchArgs {
            items: Vec::new(),
            file: Vec::new(),
            range: Range(0..=0),
            network: Network::Regtest,
        };
        let read = |text: &str, protocol| item(Kind::Outpoint, text, &args, protocol);
        let (bip37, bip157) = (Protocol::Bip37, Protocol::Bip157);
        let script = format!("0014{}", "07".repeat(20));
        let hex = read(&format!("{TXID}:1={script}"), bip157).unwrap();
        let address =
            read(&format!("{TXID}:1 = bcrt1qqurswpc8qurswpc8qurswpc8qurswpc8dxm0gk"), bip157);
        assert_eq!(hex, address.unwrap());
        let outpoint = format!("{TXID}:1").parse().unwrap();
        let script = Some(ScriptBuf::from_hex(&script).unwrap());
        assert_eq!(hex, Item::Coin { outpoint, script });
        let bare = read(&format!("{TXID}:1"), bip37).unwrap();
        assert_eq!(bare, Item::Coin { outpoint, script: None });
        let error = read(&format!("{TXID}:1"), bip157).unwrap_err().to_string();
        assert!(error.contains("outpoint:TXID:VOUT=SCRIPT"), "{error}");
        for bad in ["", ":", "1", "x=00", "4a:1=00"] {
            assert!(read(bad, bip37).is_err(), "{bad}");
        }
        for bad in ["001", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT", "tb1q", "zz"] {
            assert!(read(&format!("{TXID}:1={bad}"), bip37).is_err(), "{bad}");
        }
    }
}
