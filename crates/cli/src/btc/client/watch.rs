//! The command `btc watch`.

use std::fs::{self, DirEntry};
use std::path::Path;

use anyhow::bail;
use chainsieve_client::{Birthday, History, Protocol, WalletId};
use chainsieve_report::{Exit, Page, Report, UsageError, count, grouped, print_note};
use chainsieve_report::args::network_name;
use serde_json::{Value, json};

use crate::args::client::WatchLiveArgs;
use crate::exit::stop_on_signals;
use super::{birthday_name, builder, chain, data_folder, items, start, trusting};
use super::drive::{Ended, drive};
use super::lines::Printer;
use super::summary::{graded_json, grades_in_words, peers_json, tip_json, warnings, work_hex};

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

/// Returns `true` if earlier runs of `watch` have a folder, and this run, whose folder is `name`, has
/// none.
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
        let (wallet, names) = items::read(items, gap, protocol, self.first, history)?;
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
        let fields = [
            ("ended", ended.ending.name().replace('_', " ")),
            ("tip", format!("{} at height {}", tip.hash, grouped(tip.height))),
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
        ];
        let grades = grades_in_words(&ended.grades).into_iter().map(|words| ("grades", words));
        let mut page = Page::default();
        page.fields(fields.into_iter().chain(grades).collect());
        page.warnings(&warnings);
        let json = self.end_json(ended, printer, &warnings);
        Report::new(page, json, exit).after_lines()
    }

    fn end_json(&self, ended: &Ended, printer: &Printer, warnings: &[String]) -> Value {
        let progress = &ended.status.progress;
        json!({
            "ended": ended.ending.name(),
            "network": network_name(self.args.watch.network),
            "protocol": self.args.protocol.name(),
            "tip": tip_json(ended),
            "work": work_hex(progress),
            "birthday": ended.status.first,
            "answered_to": progress.settled_to,
            "grades": ended.grades.iter().map(graded_json).collect::<Vec<_>>(),
            "hits": printer.hits,
            "again": printer.again,
            "withdrawn": printer.withdrawn,
            "false_filters": ended.false_filters.json(),
            "peers": peers_json(&ended.status.peers),
            "warnings": warnings,
        })
    }
}
