//! The command `btc watch`, and the wallet of its items.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::path::Path;

use super::drive::{Ended, drive};
use super::lines::Printer;
use super::summary::{self, grades_in_words, warnings};
use super::{birthday_name, builder, chain, data_folder, start, trusting};
use crate::args::WatchArgs;
use crate::args::client::WatchLiveArgs;
use crate::btc::watch::{Kind, Watched, read_items};
use crate::exit::stop_on_signals;
use anyhow::bail;
use chainsieve_client::{Birthday, History, Item, Protocol, Wallet, WalletId};
use chainsieve_report::{Exit, Page, Reader, Report, UsageError, count, grouped, print_note};

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
        let mut fields = summary::fields(ended);
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
        let mut json = summary::json(ended, self.args.watch.network);
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
