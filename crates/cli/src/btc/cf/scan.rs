//! The command `btc cf scan`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::btc::bip158::scan::{
    Candidate, CandidateReason, FilterScan, ScanCursor, ScanError, Wallets,
};
use chainsieve::btc::descriptors::{descriptor_scripts, is_ranged};
use chainsieve_report::args::network_name;
use chainsieve_report::{
    Exit, Lines, Page, Progress, Reader, Report, UsageError, count, grouped, json_line,
};
use serde::Serialize;
use serde_json::json;

use super::{BlockHashes, FilterFiles};
use crate::args::Range;
use crate::args::cf::{HeaderAt, ScanArgs};
use crate::btc::watch::{self, WatchedScript};

pub(crate) fn run(args: &ScanArgs, json: bool) -> anyhow::Result<Report> {
    if let (Some(from), Some(to)) = (args.birthday, args.to)
        && from > to
    {
        bail!(UsageError("--birthday is greater than --to"));
    }
    let reader = Reader::of(args.watch.items.iter())?;
    // The gap limit applies from the first index on, so the range contains at least this many
    // indices. Otherwise, a script after --range but within the gap limit would be missed.
    let range = args.watch.range.0.clone();
    let end =
        args.gap_limit.map_or(0, |gap| range.start().saturating_add(gap - 1).min(HARDENED - 1));
    let range = Range(*range.start()..=end.max(*range.end()));
    let scripts = watch::scripts(&args.watch, &range, &reader)?;
    if scripts.is_empty() {
        bail!(UsageError("nothing to search for: give items, --file or -; see --help"));
    }
    if let Some(threads) = args.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into());
        pool.build_global().context("--threads")?;
    }
    let blocks =
        BlockHashes::read(&args.blocks, args.birthday.unwrap_or(0)..=args.to.unwrap_or(u32::MAX))?;
    let mut files = FilterFiles::open(&args.filters)?.of_blocks(blocks);
    let network = args.watch.network;
    ensure!(
        files.header().network_magic == network.magic().to_bytes(),
        "the filters do not belong to network {}: see --network",
        network_name(network)
    );
    let start = files.header().start_height;
    let from = args.birthday.unwrap_or(start);
    ensure!(from >= start, "--birthday is {from}, but the filters start at height {start}");
    let mut look = Look::new(args, scripts, start)?;
    look.over(&mut files, json)?;
    look.report(json)
}

/// A scan and its results so far.
struct Look<'a> {
    args: &'a ScanArgs,
    scan: FilterScan,
    watched: SearchedScripts,
    /// The first height that was read.
    first: Option<u32>,
    /// The height after the last height that was read.
    next: u32,
    filter_header: Option<FilterHeader>,
    /// Heights at which the filter header that the user gave equals the computed filter header.
    compared: Vec<u32>,
    hits: u64,
    /// The heights of the blocks that were hits.
    candidates: BTreeSet<u32>,
    /// The filter headers at the ends of the batches that were read.
    read: BTreeMap<u32, FilterHeader>,
    /// Number of passes over the filters.
    passes: u32,
    /// The indices and heights that were not searched, because the filters cannot be read again.
    unsearched: Vec<Unsearched>,
    damage: Option<String>,
    warnings: Vec<String>,
    started: Instant,
}

/// Indices of a descriptor, and heights at which not all of these indices were searched for.
#[derive(Debug, Clone, Serialize)]
struct Unsearched {
    item: String,
    first_index: u32,
    last_index: u32,
    first: u32,
    last: u32,
}

/// The scripts, by their index in the scan.
struct SearchedScripts {
    wallet: usize,
    scripts: Vec<WatchedScript>,
    /// The next index to derive, for each ranged descriptor.
    ranged: HashMap<String, u32>,
    gap_limit: Option<u32>,
    /// For each ranged descriptor: the first index that the first pass added after its first
    /// filter, and the highest height that was searched before all added indices were known.
    late: BTreeMap<String, (u32, u32)>,
}

impl<'a> Look<'a> {
    fn new(args: &'a ScanArgs, scripts: Vec<WatchedScript>, start: u32) -> anyhow::Result<Self> {
        // Filters before --birthday are read to compute the filter headers, but are not searched.
        let mut scan = FilterScan::new(ScanCursor::at(start));
        let wallet = scan.wallets_mut().add(args.birthday.unwrap_or(start));
        scan.wallets_mut().extend(wallet, scripts.iter().map(|watched| &watched.script));
        let mut ranged = HashMap::new();
        for watched in &scripts {
            if let Some(index) = watched.index
                && is_ranged(&watched.item).unwrap_or(false)
            {
                let next: &mut u32 = ranged.entry(watched.item.clone()).or_default();
                *next = (*next).max(index + 1);
            }
        }
        if args.gap_limit.is_some() && ranged.is_empty() {
            bail!(UsageError("--gap-limit needs a ranged descriptor"));
        }
        let (gap_limit, late) = (args.gap_limit, BTreeMap::new());
        let watched = SearchedScripts { wallet, scripts, ranged, gap_limit, late };
        Ok(Self {
            args,
            scan,
            watched,
            first: None,
            next: 0,
            filter_header: None,
            compared: Vec::new(),
            hits: 0,
            candidates: BTreeSet::new(),
            read: BTreeMap::new(),
            passes: 1,
            unsearched: Vec::new(),
            damage: None,
            warnings: Vec::new(),
            started: Instant::now(),
        })
    }

    fn over(&mut self, files: &mut FilterFiles, json: bool) -> anyhow::Result<()> {
        let mut lines = Lines::default();
        self.search(files, json, &mut lines)?;
        // The gap limit is a rule about indices: a script that was added may have been paid in a
        // block before the one that led to it. Each pass may add more scripts.
        while let Some(heights) = self.scan.missed().filter(|_| !lines.is_closed()) {
            if !files.are_rereadable() {
                self.unsearched = self.watched.unsearched(heights.start);
                break;
            }
            self.passes += 1;
            self.search_again(files, json, &mut lines)?;
        }
        Ok(())
    }

    fn search(
        &mut self,
        files: &mut FilterFiles,
        json: bool,
        lines: &mut Lines,
    ) -> anyhow::Result<()> {
        let to = self.args.to.unwrap_or(u32::MAX);
        let progress = Progress::over(files.bytes());
        self.damage = files.for_each_batch(|batch, headers, bytes| {
            let items = || batch.iter().copied().take_while(|item| item.height <= to);
            let text = self.step(json, |scan, found| scan.par_scan(items(), found))?;
            for (item, header) in items().zip(headers) {
                self.first.get_or_insert(item.height);
                self.next = item.height + 1;
                self.filter_header = Some(*header);
                self.compare(item.height, header)?;
            }
            self.read
                .extend(batch.iter().zip(headers).next_back().map(|(it, end)| (it.height, *end)));
            progress.at(bytes);
            lines.print(&text)?;
            let is_last = self.next > to || lines.is_closed();
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(())
    }

    /// Reads the filters again, and matches them with the scripts that were added after them.
    fn search_again(
        &mut self,
        files: &mut FilterFiles,
        json: bool,
        lines: &mut Lines,
    ) -> anyhow::Result<()> {
        let progress = Progress::over(files.bytes());
        let end = self.scan.cursor().next_height;
        let start = self.scan.missed().map_or(end, |heights| heights.start);
        let mut is_done = false;
        files.for_each_batch(|batch, headers, bytes| {
            // The filters were compared with --header in the first pass. The same filters must be
            // read now: the header at the end of a batch commits to all filters before it.
            for (item, header) in batch.iter().zip(headers) {
                ensure!(
                    self.read.get(&item.height).is_none_or(|read| read == header),
                    "the filters up to height {} have changed since they were first read",
                    grouped(item.height)
                );
            }
            let items = batch.iter().copied().filter(|item| (start..end).contains(&item.height));
            let text = self.step(json, |scan, found| scan.par_scan_missed(items, found))?;
            progress.at(bytes);
            lines.print(&text)?;
            let next = batch.last().map_or(0, |item| item.height + 1);
            // The pass goes on after this batch, or the rest belongs to the next pass.
            let goes_on = self.scan.missed().is_some_and(|heights| heights.start >= next);
            is_done = !goes_on || lines.is_closed();
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        ensure!(is_done, "the filters have changed since they were first read: some are missing");
        Ok(())
    }

    /// Runs a part of a pass and returns the lines of its hits.
    fn step(
        &mut self,
        json: bool,
        scan: impl FnOnce(
            &mut FilterScan,
            &mut dyn FnMut(Candidate, &mut Wallets) -> ControlFlow<anyhow::Error>,
        ) -> Result<ControlFlow<anyhow::Error>, ScanError>,
    ) -> anyhow::Result<String> {
        let mut text = String::new();
        let Self { watched, hits, candidates, passes, .. } = self;
        let outcome = scan(&mut self.scan, &mut |candidate, wallets| {
            if *hits == 0 && !json {
                text += HEAD;
            }
            *hits += 1;
            candidates.insert(candidate.height);
            text += &watched.line(&candidate, json);
            match watched.extend(&candidate, wallets, *passes) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        match outcome {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(text),
        }
    }

    /// Compares a computed filter header with the trusted filter headers of its height.
    fn compare(&mut self, height: u32, computed: &FilterHeader) -> anyhow::Result<()> {
        for HeaderAt { header, .. } in
            self.args.header.iter().filter(|given| given.height == height)
        {
            if header != computed {
                return Err(Exit::Wrong.error(anyhow!(
                    "filter header of height {height}: computed {computed}, trusted {header}: the \
                     filters up to this height prove nothing, so neither the hits printed above nor \
                     the absence of hits is reliable"
                )));
            }
            self.compared.push(height);
        }
        Ok(())
    }

    /// Adds warnings about heights that were not searched or not compared. `last` is the last
    /// height that was read, and `compared_to` is the highest height with a `--header`.
    fn warn(&mut self, last: u32, compared_to: Option<u32>) {
        let searched = |damage| format!("{damage}; nothing after the damage was searched");
        self.warnings.extend(self.damage.iter().map(searched));
        if let Some(to) = self.args.to.filter(|&to| to > last) {
            self.warnings.push(format!("the filters end at height {last}, but --to is {to}"));
        }
        let missed: Vec<_> = self
            .args
            .header
            .iter()
            .filter(|given| !self.compared.contains(&given.height))
            .collect();
        for HeaderAt { height, .. } in missed {
            self.warnings.push(format!(
                "--header: the file has no filter of height {height} to compare with"
            ));
        }
        match compared_to {
            None => self.warnings.push(String::from(
                "a \"no\" is only as reliable as the source of the filters: compare them with a filter \
                 header that you trust (--header)",
            )),
            Some(height) if height < last => self
                .warnings
                .push(format!("filters after height {height} were not compared with a --header")),
            Some(_) if self.args.blocks.block_headers.is_none() => self.warnings.push(String::from(
                "filter headers do not commit to block hashes, and with a false block hash a filter \
                 matches nothing: --block-headers compares them",
            )),
            Some(_) => {}
        }
        for it in &self.unsearched {
            self.warnings.push(format!(
                "{}: not all filters of height {} to {} were searched for index {} to {}, because a \
                 pipe cannot be read again: give a file, or a larger --range",
                words(&it.item, None, None),
                grouped(it.first),
                grouped(it.last),
                it.first_index,
                it.last_index
            ));
        }
    }

    fn report(mut self, json: bool) -> anyhow::Result<Report> {
        let Some(first) = self.first else {
            bail!(self.damage.unwrap_or_else(|| "the file contains no filters".into()));
        };
        let (first, last) = (first.max(self.args.birthday.unwrap_or(first)), self.next - 1);
        ensure!(
            first <= last,
            "the filters end at height {last}, before --birthday {first}{}{}",
            if self.damage.is_some() { "; " } else { "" },
            self.damage.as_deref().unwrap_or_default()
        );
        let compared_to = self.compared.iter().max().copied();
        self.warn(last, compared_to);
        let statistics = *self.scan.statistics();
        let header = self.filter_header.map(|header| header.to_string()).unwrap_or_default();
        let seconds = self.started.elapsed().as_secs_f64();
        let record = json!({
            "filters": statistics.filters,
            "first": first,
            "last": last,
            "bytes": statistics.bytes,
            "hits": self.hits,
            "scripts": self.watched.scripts.len(),
            "expected_by_chance": statistics.expected_false(),
            "filter_header": header,
            "compared_to": compared_to,
            "passes": self.passes,
            "unsearched": self.unsearched,
            "seconds": seconds,
            "damage": self.damage,
        });
        let mut page = Page::default();
        if self.hits > 0 && !json {
            page.line("");
        }
        let bytes = usize::try_from(statistics.bytes).unwrap_or(usize::MAX);
        let mut fields = vec![
            (
                "filters",
                format!(
                    "{}, height {} to {}, {}",
                    grouped(statistics.filters),
                    grouped(first),
                    grouped(last),
                    count(bytes, "byte")
                ),
            ),
            ("scripts", grouped(self.watched.scripts.len())),
            (
                "candidates",
                format!(
                    "{}; about {:.2} scripts expected by chance",
                    grouped(self.candidates.len()),
                    statistics.expected_false()
                ),
            ),
            (
                "filter header",
                match compared_to {
                    Some(height) if height >= last => format!("{header}, equal to --header"),
                    _ => format!("{header} at height {}", grouped(last)),
                },
            ),
        ];
        if self.passes > 1 {
            let again = grouped(statistics.repeated);
            let times = count(self.passes - 1, "time");
            fields
                .insert(1, ("read again", format!("{times}; {again} matched with added scripts")));
        }
        page.fields(fields);
        let exit = match self.damage {
            Some(_) => Exit::Failed,
            // A filter header that the user trusts was not compared with any filter, or an added
            // script was not searched for in all filters.
            None if self.compared.len() < self.args.header.len() || !self.unsearched.is_empty() => {
                Exit::Undecided
            }
            None => Exit::from(self.hits > 0),
        };
        Ok(Report::new(page, record, exit).with_warnings(self.warnings).after_lines())
    }
}

const HEAD: &str =
    "height     block                                                             why\n";

impl SearchedScripts {
    fn line(&self, candidate: &Candidate, json: bool) -> String {
        let Candidate { height, block_hash, reason } = candidate;
        let found: Vec<&WatchedScript> = match reason {
            CandidateReason::Scripts { indices, .. } => {
                indices.iter().filter_map(|&index| self.scripts.get(index)).collect()
            }
            CandidateReason::NoAnswer(_) => Vec::new(),
        };
        if json {
            let mut members = json!({ "height": height, "hash": block_hash.to_string() });
            let kind = match reason {
                CandidateReason::NoAnswer(why) => {
                    members["why"] = why.to_string().into();
                    "candidate"
                }
                CandidateReason::Scripts { .. } => {
                    let script = |watched: &&WatchedScript| {
                        json!({
                            "item": watched.item,
                            "path": watched.path,
                            "index": watched.index,
                            "script": hex::encode(&watched.script),
                        })
                    };
                    members["scripts"] = found.iter().map(script).collect();
                    "hit"
                }
            };
            return json_line(kind, members);
        }
        let why = match reason {
            CandidateReason::NoAnswer(why) => format!("the filter cannot be decoded: {why}"),
            CandidateReason::Scripts { .. } => {
                let words =
                    found.iter().map(|it| words(&it.item, it.path, it.index)).collect::<Vec<_>>();
                words.join(", ")
            }
        };
        format!("{:<9}  {block_hash}  {why}\n", grouped(*height))
    }

    /// Returns what the first pass did not search from height `first` on.
    fn unsearched(&self, first: u32) -> Vec<Unsearched> {
        let late = self.late.iter().filter(|(_, (_, last))| *last >= first);
        let unsearched = late.map(|(item, &(first_index, last))| Unsearched {
            item: item.clone(),
            first_index,
            last_index: self.ranged.get(item).map_or(first_index, |next| next - 1),
            first,
            last,
        });
        unsearched.collect()
    }

    /// Derives more scripts of a ranged descriptor, up to the gap limit after the index that was
    /// found.
    fn extend(
        &mut self,
        candidate: &Candidate,
        wallets: &mut Wallets,
        pass: u32,
    ) -> anyhow::Result<()> {
        let (Some(gap), CandidateReason::Scripts { indices, .. }) =
            (self.gap_limit, &candidate.reason)
        else {
            return Ok(());
        };
        for &index in indices {
            let Some(WatchedScript { item, index: Some(index), .. }) = self.scripts.get(index)
            else {
                continue;
            };
            let item = item.clone();
            let end = index.saturating_add(gap).min(HARDENED - 1);
            let Some(next) = self.ranged.get_mut(&item).filter(|next| **next <= end) else {
                continue;
            };
            if pass == 1
                && let Some(height) = candidate.height.checked_sub(1)
            {
                let late = self.late.entry(item.clone()).or_insert((*next, height));
                late.1 = height;
            }
            for derived in descriptor_scripts(&item, *next..=end)? {
                wallets.push(self.wallet, derived.script.as_bytes());
                self.scripts.push(WatchedScript {
                    item: item.clone(),
                    path: Some(derived.path),
                    index: derived.index,
                    script: derived.script,
                });
            }
            *next = end + 1;
        }
        Ok(())
    }
}

/// First hardened index (BIP32).
pub(crate) const HARDENED: u32 = 1 << 31;

/// Returns a short name of a script's item. A long descriptor is shortened to its two ends, which
/// distinguish it from others.
pub(crate) fn words(item: &str, path: Option<u32>, index: Option<u32>) -> String {
    let start = |length| item.char_indices().nth(length).map_or(item.len(), |(end, _)| end);
    let short = match item.char_indices().rev().nth(19) {
        _ if start(44) == item.len() => item.to_owned(),
        Some((end, _)) if path.is_some() => {
            format!("{}…{}", &item[..start(24)], &item[end..])
        }
        _ => format!("{}…", &item[..start(44)]),
    };
    let path = path.filter(|_| item.contains(';')).map(|path| format!(" path {path}"));
    let index = index.map(|index| format!(" index {index}"));
    [Some(short), path, index].into_iter().flatten().collect()
}
