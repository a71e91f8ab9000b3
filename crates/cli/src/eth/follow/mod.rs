//! `eth follow`: prints the lines of a follower, and notes and progress for people.

mod lines;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::{Fault, News, StartError, Started};
use chainsieve::eth::header::BlockRef;
use chainsieve_provider::{
    EventDecoder, FollowBuilder, FollowError, FollowStatus, Following, Provider,
};
use chainsieve_report::{
    Exit, Page, Report, UsageError, count, duration, grouped, named, print_note,
};
use serde_json::{Value, json};

use super::anchor::{self, Following as FollowingAnchors};
use super::follow::lines::{Format, Lines};
use super::{Bar, builder, in_words_of_the_command, index, query};
use crate::args::eth::FollowArgs;
use crate::exit::{of_fault, stop_on_signals};

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
    let lines = Lines { format, events: events(&args.abi)? };
    let stop = stop_on_signals()?;
    let (mut builder, bar) = builder(&args.rpc, vec![args.rpc.endpoint()?], stop.clone());
    if args.no_transaction_hashes {
        builder = builder.without_transaction_hashes();
    }
    let provider = builder.semantics(args.query.semantics).build()?;
    let anchors = args.trust.anchor.clone();
    let chain_id = || provider.chain_id().map_err(in_words_of_the_command);
    let chain_id = if args.beacon.is_given() { chain_id()? } else { 0 };
    let beacon = anchor::beacon(&args.beacon, &args.rpc, chain_id, stop.clone(), false)?;
    let following = FollowingAnchors { anchors, beacon };
    let begun = following.begin();
    let provider = provider.with_anchor(following);
    let began = Instant::now();
    let started = begun.and_then(|(brought, light_client)| {
        let Setup { follow, mut warnings } = set_up(args, &provider)?;
        warnings.extend(brought);
        Ok((
            follow.start().map_err(|error| in_words_of_follow(args, error))?,
            warnings,
            light_client,
        ))
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
        printer.print(&following, &update.news)?;
        if printer.out.is_closed() {
            // The reader closed the pipe and may not have read this update, so the update is not
            // acknowledged: the next run prints it again.
            break;
        }
        printer.count(&update.news);
        following.acknowledge(&update);
        printer.show_progress(&following);
    }
    let status = following.shutdown().map_err(|error| in_words_of_follow(args, error))?;
    Ok(printer.report(&status, began.elapsed()))
}

fn nothing() -> Report {
    let why = "stopped before the first block";
    let nothing = Printer { warnings: vec![why.into()], ..Printer::default() };
    let mut page = Page::default();
    page.line(why);
    Report::new(page, nothing.json(0, None, Duration::ZERO), Exit::Yes).after_lines()
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
    fn print(&mut self, following: &Following, update: &News) -> anyhow::Result<()> {
        let from = self.started.as_ref().map_or(0, |started| started.from);
        let text = match update {
            News::Started(started) => return self.start(following, started),
            News::Anchored(anchor) => self.lines.of_anchor(*anchor),
            News::Removed(removed) => self.lines.of_removed(removed),
            News::Blocks(blocks) => {
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

    fn count(&mut self, update: &News) {
        match update {
            News::Removed(removed) => self.removed += removed.logs.len() as u64,
            News::Blocks(blocks) => {
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
        let last = status.last.filter(|last| last.number >= started.from);
        let blocks = count(self.blocks, "block");
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
        // With CSV on standard output, the page is written to standard error.
        let payload = (self.lines.format == Format::Csv).then(String::new);
        let json = self.json(status.verified, last, elapsed);
        Report::new(Page::of_fields(fields), json, Exit::Yes).with_payload(payload).after_lines()
    }

    /// `last` is the last block that was printed.
    fn json(&self, receipts: u64, last: Option<BlockRef>, elapsed: Duration) -> Value {
        json!({
            "blocks": self.blocks,
            "receipts": receipts,
            "logs": self.logs,
            "removed": self.removed,
            "first": last.and(self.started.as_ref()).map(|started| started.from),
            "last": last.map(|last| last.number),
            "last_hash": last.map(|last| last.hash),
            "seconds": elapsed.as_secs_f64(),
            "warnings": self.warnings,
        })
    }
}

/// Reads the events of ABI files.
pub(super) fn events(paths: &[PathBuf]) -> anyhow::Result<Option<EventDecoder>> {
    let mut events = None;
    for path in paths {
        let text = fs::read_to_string(path).with_context(|| format!("--abi, {}", named(path)))?;
        let so_far: EventDecoder = events.unwrap_or_default();
        let added = so_far.json_abi(&text).with_context(|| format!("--abi, {}", named(path)))?;
        events = Some(added);
    }
    Ok(events)
}

/// A follower that is configured but not started, and the warnings so far.
pub(super) struct Setup {
    pub(super) follow: FollowBuilder,
    pub(super) warnings: Vec<String>,
}

pub(super) fn set_up(args: &FollowArgs, provider: &Provider) -> anyhow::Result<Setup> {
    let query = query::of_args(&args.query, [])?;
    let chain_id = provider.chain_id().map_err(in_words_of_the_command)?;
    let mut warnings = Vec::new();
    let profile = chain_profile(args, chain_id, &mut warnings)?;
    // Receipts prove logs only for the headers that the provider sends, and the provider could have
    // invented these headers.
    if args.trust.anchor.is_empty() && !args.beacon.is_given() {
        warnings.push(format!(
            "no --anchor: nothing is authenticated, and only {} claims that these blocks are the \
             chain. Give --anchor the hash of a block that you trust, or --beacon and --checkpoint",
            provider.nodes()[0].endpoint()
        ));
    }
    // For a query that matches every log, the filters of headers exclude no block.
    if query.compile().matches_everything() {
        warnings
            .push(String::from("the query matches every log: receipts of every block are fetched"));
    }
    let mut follow = provider
        .with_profile(profile)
        .follow(&query)
        .confirmations(args.confirmations)
        .keep(usize::try_from(args.keep).unwrap_or(usize::MAX))
        .poll(Duration::from_secs_f64(args.poll))
        .tries(args.rpc.retries.saturating_mul(2).saturating_add(2));
    if let Some(path) = &args.cursor {
        follow = follow.cursor_file(path);
    }
    if let Some(path) = &args.index {
        follow = follow.index(index::open(path)?);
    }
    if args.once {
        follow = follow.once();
    }
    Ok(Setup { follow, warnings })
}

/// Converts an error of a follower to one that names the arguments of the command.
pub(super) fn in_words_of_follow(args: &FollowArgs, error: FollowError) -> anyhow::Error {
    let other = "give another file";
    let error = match error {
        FollowError::Start(error) => error,
        FollowError::Fetch(error) => return in_words_of_the_command(error),
        // A path may be a URL that was given in the wrong place.
        FollowError::Cursor(error) => {
            return anyhow!("cursor, {}: {}", named(error.path()), error.reason());
        }
        FollowError::Index(why) => {
            let name = args.index.as_deref().map(index::named).unwrap_or_default();
            return anyhow!("{name}: {why}");
        }
        FollowError::Fault { node, fault } => {
            let advice = match *fault {
                Fault::Unsound { .. } | Fault::IndexUnsound(_) => {
                    "; to state what the filters of this chain prove, give --assume-bloom"
                }
                _ => "",
            };
            return of_fault(&fault).error(anyhow!("{node}: {fault}{advice}"));
        }
        error => return error.into(),
    };
    match error {
        StartError::OneBlock(_) => {
            UsageError("a query for one blockHash cannot be followed: query a range, with --from")
                .into()
        }
        StartError::End(_) => {
            UsageError("toBlock must be a number or latest: safe and finalized blocks change")
                .into()
        }
        StartError::OtherChain { cursor, chain } => {
            anyhow!(
                "--cursor belongs to chain {cursor}, but the provider serves chain {chain}: {other}"
            )
        }
        StartError::OtherQuery(query) => anyhow!("--cursor belongs to the query {query}: {other}"),
        StartError::OtherSemantics(rules) => {
            anyhow!("--cursor belongs to a query with --semantics {rules:?}: {other}")
        }
        StartError::OtherStart { cursor, from } => {
            anyhow!("--cursor begins at block {cursor}, but --from is {from}: {other}")
        }
        other => other.into(),
    }
}

fn chain_profile(
    args: &FollowArgs,
    chain_id: u64,
    warnings: &mut Vec<String>,
) -> anyhow::Result<ChainProfile> {
    // The user's statements about the chain take precedence over the known profiles. A `--chain`
    // that contradicts the provider's chain id is an error.
    if args.trust.names_chain() {
        return args.trust.profile_of(chain_id);
    }
    Ok(ChainProfile::of_chain_id(chain_id).unwrap_or_else(|| {
        warnings.push(format!(
            "chain {chain_id} is unknown to this command: its filters are ignored, and the receipts \
             of every block are fetched. To use the filters, give --assume-bloom"
        ));
        let name = format!("chain {chain_id}");
        // The chain is unknown, so the weakest assumptions are made: they cost more requests, but
        // no log is missed.
        let (bloom, scope) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
        ChainProfile::assumed(name, bloom, scope)
    }))
}
