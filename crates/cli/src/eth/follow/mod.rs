//! `eth follow`: prints the lines of a follower, and notes and progress for people.

mod indexed;
mod lines;
mod setup;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::follow::{Started, Update};
use chainsieve_provider::{FollowStatus, Following};
use chainsieve_report::{Exit, Page, Report, UsageError, count, duration, grouped, print_note};
use serde_json::{Value, json};

use crate::args::eth::FollowArgs;
use crate::exit::stop_on_signals;
use super::anchor::trusted::{self, Following as FollowingAnchors};
use super::follow::lines::{Format, Lines};
use super::follow::setup::{Setup, in_words_of_follow};
use super::rpc::{Bar, builder, in_words_of_the_command};

/// Minimum number of blocks to link for which a progress bar is shown.
const SHOW: u64 = 8192;

pub(crate) fn run(args: &FollowArgs, json: bool) -> anyhow::Result<Report> {
    let format = match (json, args.csv) {
        (true, true) => {
            return Err(
                UsageError("--csv and --json cannot be used together: choose one format").into()
            );
        }
        (true, false) => Format::Json,
        (false, true) => Format::Csv,
        (false, false) => Format::Text,
    };
    let lines = Lines { format, events: setup::events(&args.abi)? };
    let stop = stop_on_signals()?;
    let (mut builder, bar) = builder(&args.rpc, vec![args.rpc.endpoint()?], stop.clone());
    if args.no_transaction_hashes {
        builder = builder.without_transaction_hashes();
    }
    let provider = builder.semantics(args.query.semantics).build()?;
    let anchors = args.trust.anchor.clone();
    let chain_id = || provider.chain_id().map_err(in_words_of_the_command);
    let chain_id = if args.beacon.is_given() { chain_id()? } else { 0 };
    let beacon = trusted::beacon(&args.beacon, &args.rpc, chain_id, stop.clone(), false)?;
    let following = FollowingAnchors { anchors, beacon };
    let begun = following.begin();
    let provider = provider.with_anchor(following);
    let began = Instant::now();
    let started = begun.and_then(|(brought, light_client)| {
        let Setup { follow, mut warnings } = setup::set_up(args, &provider)?;
        warnings.extend(brought);
        Ok((follow.start().map_err(in_words_of_follow)?, warnings, light_client))
    });
    let (following, warnings, light_client) = match started {
        // If Ctrl-C was pressed before the first line, the requests failed because they were
        // stopped.
        Err(_) if stop.is_set() => return Ok(nothing()),
        started => started?,
    };
    let provider = provider.nodes()[0].endpoint().to_string();
    let mut printer =
        Printer { lines, provider, bar, warnings, light_client, ..Printer::default() };
    for update in following.updates() {
        printer.print(&following, &update.update)?;
        if printer.out.is_closed() {
            // The reader closed the pipe and may not have read this update, so the update is not
            // acknowledged: the next run prints it again.
            break;
        }
        printer.count(&update.update);
        following.acknowledge(&update);
        printer.show_progress(&following);
    }
    let status = following.shutdown().map_err(in_words_of_follow)?;
    Ok(printer.report(&status, began.elapsed()))
}

fn nothing() -> Report {
    let json = json!({
        "blocks": 0,
        "receipts": 0,
        "logs": 0,
        "removed": 0,
        "first": null,
        "last": null,
        "last_hash": null,
        "seconds": 0.0,
        "warnings": ["stopped before the first block"],
    });
    let mut page = Page::default();
    page.line("stopped before the first block");
    Report::new(page, json, Exit::Yes).after_lines()
}

/// Prints updates, and counts what was printed.
#[derive(Default)]
struct Printer {
    lines: Lines,
    out: chainsieve_report::Lines,
    provider: String,
    bar: Bar,
    started: Option<Started>,
    blocks: u64,
    logs: u64,
    removed: u64,
    warnings: Vec<String>,
    /// The light client at the start as JSON; null if there is none.
    light_client: Value,
    /// `true` once the warning about logs outside of receipts was printed.
    is_partial: bool,
}

fn partial(profile: &str) -> String {
    format!(
        "nodes of {profile} may return logs that are in no receipt: eth follow cannot find them"
    )
}

impl Printer {
    fn print(&mut self, following: &Following, update: &Update) -> anyhow::Result<()> {
        let from = self.started.as_ref().map_or(0, |started| started.from);
        let text = match update {
            Update::Started(started) => return self.start(following, started),
            Update::Anchored(anchor) => self.lines.of_anchor(*anchor),
            Update::Removed(removed) => self.lines.of_removed(removed),
            Update::Blocks(blocks) => {
                if !blocks.every_log && blocks.last.number >= from && !self.is_partial {
                    self.is_partial = true;
                    let warning = partial(following.config().profile.name());
                    print_note(&warning);
                    self.warnings.push(warning);
                }
                self.lines.of_blocks(blocks, from)
            }
            other => bail!("unknown kind of update: {other:?}"),
        };
        self.put(&text)
    }

    fn count(&mut self, update: &Update) {
        match update {
            Update::Removed(removed) => self.removed += removed.logs.len() as u64,
            Update::Blocks(blocks) => {
                self.blocks += blocks.blocks as u64;
                self.logs += blocks.logs.len() as u64;
            }
            _ => {}
        }
    }

    fn start(&mut self, following: &Following, started: &Started) -> anyhow::Result<()> {
        let config = following.config();
        self.warnings.extend(self.bar.take_kept());
        // If, by the profile, the receipts of the first block do not contain every log, the first
        // line already contains the warning.
        if config.profile.at(started.from).receipts == ReceiptsScope::NotEveryLog {
            self.is_partial = true;
            self.warnings.push(partial(config.profile.name()));
        }
        if self.lines.format == Format::Json {
            let (provider, light_client) = (&self.provider, &self.light_client);
            let text = lines::of_start(started, config, provider, light_client, &self.warnings);
            self.put(&text)?;
        } else {
            if self.lines.format == Format::Csv {
                self.put(lines::COLUMNS)?;
            }
            print_note(&format!("{}: {}", self.provider, lines::note_of_start(started, config)));
            self.warnings.iter().for_each(|warning| print_note(warning));
        }
        self.started = Some(started.clone());
        Ok(())
    }

    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        self.out.print(text).context("standard output")
    }

    /// Shows a progress bar while many past blocks still have to be processed.
    fn show_progress(&self, following: &Following) {
        let status = following.status();
        let (Some(head), Some(started)) = (status.head, &self.started) else { return };
        let last = head.number.min(started.to.unwrap_or(u64::MAX));
        let next = status.next.unwrap_or(last);
        if last.saturating_sub(next) > SHOW || self.bar.is_shown() {
            let done = next.saturating_sub(started.start);
            self.bar.show("blocks", done, last.saturating_sub(started.start).saturating_add(1));
        }
    }

    fn report(&self, status: &FollowStatus, elapsed: Duration) -> Report {
        let Some(started) = &self.started else { return nothing() };
        let from = started.from;
        let last = status.last.filter(|last| last.number >= from);
        let json = json!({
            "blocks": self.blocks,
            "receipts": status.verified,
            "logs": self.logs,
            "removed": self.removed,
            "first": last.map(|_| from),
            "last": last.map(|last| last.number),
            "last_hash": last.map(|last| last.hash),
            "seconds": elapsed.as_secs_f64(),
            "warnings": self.warnings,
        });
        let blocks = count(self.blocks, "block");
        let mut page = Page::default();
        let removed = match self.removed {
            0 => String::new(),
            removed => format!(", and {} removed by reorganisations", grouped(removed)),
        };
        let mut fields = vec![
            ("logs", format!("{}{removed}", grouped(self.logs))),
            (
                "blocks",
                format!(
                    "{blocks} linked, receipts of {} verified, {}",
                    grouped(status.verified),
                    duration(elapsed)
                ),
            ),
        ];
        if let Some(last) = last {
            fields.push(("up to", format!("block {}, {}", grouped(last.number), last.hash)));
        }
        page.fields(fields);
        // With CSV on standard output, the page is written to standard error.
        let payload = (self.lines.format == Format::Csv).then(String::new);
        Report::new(page, json, Exit::Yes).with_payload(payload).after_lines()
    }
}
