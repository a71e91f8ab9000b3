//! `eth index build`: adds the headers of files or of a provider to an index, and reports the result.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, HeaderBuf, HeaderView, LinkedHeaders};
use chainsieve::eth::index::{Folder, Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::BlockTag;
use chainsieve_provider::{Node, RpcError, Stop};
use chainsieve_report::{
    Exit, Lines, Page, Progress, Reader, Report, bytes, count, duration, float, grouped, json_line,
    note, print_note, span,
};
use serde_json::json;

use super::{SECTION, named, size};
use crate::args::eth::{AddedHeaders, AddingArgs, BuildArgs, LinkedHeaderArgs};
use crate::eth::anchor::Trusted;
use crate::eth::builder;
use crate::eth::headers::{Bounds, for_each_linked};
use crate::exit::stop_on_signals;

/// Maximum time until added blocks are made durable.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of removed blocks that are listed.
const LISTED: usize = 1000;
/// Number of reorganisations of the provider's chain after which the command gives up.
const BRANCHES: u32 = 8;
/// Number of headers that are compared at a time to find the last common block.
const COMPARED: u64 = 64;

/// Builds an index, or adds headers to an existing index.
pub(super) fn run(args: &BuildArgs, json: bool) -> anyhow::Result<Report> {
    let existing = match Index::open(Folder::new(&args.index)) {
        Ok(index) => Some(index.settings().clone()),
        Err(IndexError::NoIndex) => None,
        Err(error) => return Err(error).with_context(|| named(&args.index)),
    };
    let kept = existing.as_ref();
    // An existing index has its label and its columns: what is given must agree with them.
    let label = args.label.as_deref().or(kept.map(Settings::label)).unwrap_or("mainnet");
    let mut settings = Settings::new(label)?;
    if args.block_hashes || kept.is_some_and(Settings::has_block_hashes) {
        settings = settings.with_block_hashes();
    }
    let mut adding = Adding::new(&args.index, settings, &args.adding, json);
    // A new index is created only when the first headers are read, so that an early error leaves no
    // folder behind.
    if existing.is_some() {
        adding.open()?;
    }
    if args.headers.rpc.is_given() {
        return from_provider(adding, &args.headers, args.from.unwrap_or(0));
    }
    from_files(adding, &args.headers.linked)
}

/// Adds headers of files.
fn from_files(mut adding: Adding<'_>, headers: &LinkedHeaderArgs) -> anyhow::Result<Report> {
    Reader::of(&headers.headers)?;
    let bounds = Bounds { from: adding.from(), to: None };
    let read = for_each_linked(headers, bounds, |_| (), |chain, ()| adding.take(chain));
    // Headers that were read before an error are kept.
    let synced = adding.sync();
    read.map_err(|error| adding.failed(error))?;
    synced?;
    adding.report()
}

/// Adds headers from a provider; an empty index starts at block `first`.
fn from_provider(
    mut adding: Adding<'_>,
    headers: &AddedHeaders,
    first: u64,
) -> anyhow::Result<Report> {
    let stop = stop_on_signals()?;
    let (builder, _) = builder(&headers.rpc, vec![headers.rpc.endpoint()?], stop.clone());
    let provider = builder.build()?;
    let node = provider.nodes()[0].clone();
    let chain_id = node.chain_id().with_context(|| node.endpoint().to_string())?;
    let label = adding.settings.label();
    ensure!(
        label != "mainnet" || chain_id == 1,
        "the provider's chain id is {chain_id}, but the index has the label mainnet: for another \
         chain, build an index with another --label"
    );
    let trusted = Trusted::default().bring(&headers.beacon, &headers.rpc, &provider)?;
    let finalized = trusted.finalized();
    let end = finalized.map(|block| BlockTag::Number(block.number));
    if let Some(block) = finalized {
        compare(&node, block)?;
    }
    let to = headers.to.or(end).unwrap_or(BlockTag::Latest);
    let mut source = Source { node, stop, to };
    let fetched = source.fetch(&mut adding, first);
    // Headers that were received before an error are kept.
    let synced = adding.sync();
    fetched.map_err(|error| adding.failed(error))?;
    synced?;
    if adding.last().is_none() {
        bail!("stopped before the first header was received");
    }
    let name = source.node.endpoint();
    let only = format!(
        "the headers were hashed locally, and each is the child of the previous one, but only {name} \
         claims that they are the chain"
    );
    match finalized {
        None => adding.warnings.push(only),
        Some(block) => {
            adding.warnings.extend(trusted.warnings());
            match adding.hash(block.number) {
                Some(hash) if hash == block.hash => {
                    trusted.lines().iter().for_each(|line| print_note(line));
                    if adding.last().is_some_and(|(last, _)| last > block.number) {
                        adding.warnings.push(format!("after block {}, {only}", block.number));
                    }
                }
                Some(hash) => {
                    return Err(Exit::Wrong.error(anyhow!(
                        "{}: {}; blocks of the index are false: build it again",
                        named(adding.path),
                        another(block, hash)
                    )));
                }
                None => adding.warnings.push(format!(
                    "{only}: the index does not reach the finalised block, {}, or has sealed it \
                     without its hash, so that it was not compared",
                    block.number
                )),
            }
        }
    }
    adding.report()
}

/// Compares the provider's chain with the finalised block before anything is added.
fn compare(node: &Node, block: BlockRef) -> anyhow::Result<()> {
    let name = || node.endpoint().to_string();
    let header = node.header_at(BlockTag::Number(block.number)).with_context(name)?;
    match header.map(|header| header.hash()) {
        Some(hash) if hash != block.hash => {
            Err(Exit::Wrong.error(anyhow!("{}: {}", name(), another(block, hash))))
        }
        _ => Ok(()),
    }
}

fn another(block: BlockRef, hash: B256) -> String {
    format!(
        "block {} is {hash}, but the finalised block is {}: another chain than the network's",
        block.number, block.hash
    )
}

/// The reason why the headers ended early.
enum Ended {
    /// The headers do not continue the last block of the index.
    OtherBranch(String),
    /// The user pressed Ctrl-C.
    Stopped,
    Failed(anyhow::Error),
}

impl From<RpcError> for Ended {
    fn from(error: RpcError) -> Self {
        match error.origin() {
            RpcError::Stopped => Self::Stopped,
            _ => Self::Failed(error.into()),
        }
    }
}

struct Source {
    node: Node,
    stop: Stop,
    to: BlockTag,
}

impl Source {
    fn fetch(&mut self, adding: &mut Adding<'_>, first: u64) -> anyhow::Result<()> {
        let mut branches = 0;
        let mut bar = None;
        loop {
            let to = self.target()?;
            self.take_back(adding, to)?;
            let next = adding.last().map_or(first, |(last, _)| last + 1);
            // No header needs to be fetched, because the index already reaches the target.
            if next > to {
                // An empty index whose first block is above the target would stay empty.
                if adding.last().is_none() {
                    bail!(
                        "{}: the last block to add is {to}, but --from is {first}",
                        self.node.endpoint()
                    );
                }
                return Ok(());
            }
            let bar = bar.get_or_insert_with(|| {
                (Progress::counting((to - next).saturating_add(1), "blocks"), next)
            });
            match self.add(adding, next..=to, bar) {
                Ok(()) => return Ok(()),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Stopped) => {
                    let last = adding.last().map_or(0, |(last, _)| last);
                    adding
                        .warnings
                        .push(format!("stopped at block {last}: blocks up to {to} are missing"));
                    return Ok(());
                }
                Err(Ended::OtherBranch(words)) => {
                    branches += 1;
                    let name = self.node.endpoint();
                    ensure!(
                        branches < BRANCHES,
                        "{name}: gave up after {branches} reorganisations: {words}"
                    );
                    print_note(&format!("{name}: {words}: looking for the last common block"));
                }
            }
        }
    }

    /// Returns the number of the last block to fetch.
    fn target(&self) -> anyhow::Result<u64> {
        let name = || self.node.endpoint().to_string();
        let head = |tag| self.node.block(tag).with_context(name);
        match self.to {
            BlockTag::Number(number) => {
                let BlockRef { number: latest, .. } = head(BlockTag::Latest)?;
                ensure!(
                    number <= latest,
                    "{}: the provider's head is block {latest}, but --to is {number}",
                    name()
                );
                Ok(number)
            }
            tag => Ok(head(tag)?.number),
        }
    }

    /// Removes the blocks that are not on the provider's chain.
    fn take_back(&self, adding: &mut Adding<'_>, to: u64) -> anyhow::Result<()> {
        let Some((last, _)) = adding.last() else { return Ok(()) };
        if to < last {
            print_note(&format!(
                "{}: the last block to add is {to}, but the index ends at block {last}",
                self.node.endpoint()
            ));
        }
        let mut end = last.min(to);
        if adding.hash(end).is_none() {
            return Ok(()); // sealed, and nothing is added
        }
        let lowest = loop {
            let lowest = adding.first_known(end);
            let start = end.saturating_sub(COMPARED - 1).max(lowest);
            let theirs = self.hashes(start..=end)?;
            let is_common = |(number, theirs): &(u64, B256)| adding.hash(*number) == Some(*theirs);
            match (start..=end).zip(theirs).filter(is_common).last() {
                // The index and the provider agree on the last block that is compared, so nothing
                // is removed. The head of a provider may be below the end of the index.
                Some((common, _)) if common == last.min(to) => return Ok(()),
                Some((common, _)) => return adding.cut(common),
                None if start == lowest => break lowest,
                None => end = start - 1,
            }
        };
        bail!(
            "{}: block {lowest} differs from that of {}, and lower blocks cannot be removed: the \
             index is of another chain, or the reorganisation is deeper than the unsealed blocks \
             of the index (--confirmations)",
            named(adding.path),
            self.node.endpoint()
        )
    }

    fn hashes(&self, numbers: RangeInclusive<u64>) -> anyhow::Result<Vec<B256>> {
        let mut hashes = Vec::new();
        self.node.headers(numbers, |headers| {
            hashes.extend(headers.iter().map(HeaderBuf::hash));
            Ok::<_, anyhow::Error>(())
        })?;
        Ok(hashes)
    }

    fn add(
        &self,
        adding: &mut Adding<'_>,
        numbers: RangeInclusive<u64>,
        (bar, start): &(Progress, u64),
    ) -> Result<(), Ended> {
        self.node.headers(numbers, |headers| {
            if self.stop.is_set() {
                return Err(Ended::Stopped);
            }
            let views: Vec<_> = headers.iter().map(HeaderBuf::view).collect();
            let mut chain = LinkedHeaders::new();
            let linked = chain.extend(&views);
            linked.map_err(|error| Ended::OtherBranch(error.to_string()))?;
            // The provider's chain was reorganised between two answers. Blocks of the new branch
            // must not follow blocks of the old one in the index.
            if adding.last().is_some_and(|(_, hash)| chain.parent_hash() != Some(hash)) {
                let number = views.first().map_or(0, HeaderView::number);
                return Err(Ended::OtherBranch(format!(
                    "block {number} is not the child of the block before it"
                )));
            }
            adding.take(&chain).map_err(Ended::Failed)?;
            bar.at(adding.last().map_or(0, |(last, _)| last + 1 - start));
            Ok(())
        })
    }
}

/// State of adding headers to an index.
struct Adding<'a> {
    path: &'a Path,
    settings: Settings,
    args: &'a AddingArgs,
    json: bool,
    writer: Option<Writer<Folder>>,
    lines: Lines,
    started: Instant,
    synced: Instant,
    /// `true` if something changed since the last sync.
    changed: bool,
    unsynced: u64,
    added: u64,
    removed: Vec<(u64, B256)>,
    removed_blocks: u64,
    /// Number of blocks that were sealed when the index was opened.
    sealed_before: u64,
    /// Warnings about the source of the headers.
    warnings: Vec<String>,
}

impl<'a> Adding<'a> {
    fn new(path: &'a Path, settings: Settings, args: &'a AddingArgs, json: bool) -> Self {
        Self {
            path,
            settings,
            args,
            json,
            writer: None,
            lines: Lines::default(),
            started: Instant::now(),
            synced: Instant::now(),
            changed: false,
            unsynced: 0,
            added: 0,
            removed: Vec::new(),
            removed_blocks: 0,
            sealed_before: 0,
            warnings: Vec::new(),
        }
    }

    /// Opens the index for writing, or prepares a new index.
    fn open(&mut self) -> anyhow::Result<()> {
        if !self.path.is_dir() {
            create_folder(self.path).with_context(|| named(self.path))?;
        }
        let writer = Writer::open(Folder::new(self.path), &self.settings);
        let writer = writer.map_err(|error| match error {
            IndexError::OtherHashes { .. } => anyhow!("{error}: leave out --block-hashes"),
            error => anyhow!(error),
        });
        let writer = writer.with_context(|| named(self.path))?;
        if writer.numbers().is_some() {
            self.sealed_before = Index::open(Folder::new(self.path))?.sealed();
        }
        self.writer = Some(writer.with_confirmations(self.args.confirmations));
        Ok(())
    }

    /// Returns the first block whose header is used; earlier headers are skipped.
    fn from(&self) -> Option<u64> {
        let writer = self.writer.as_ref()?;
        let last = *writer.numbers()?.end();
        // Headers of unsealed blocks are compared, because another branch may replace these blocks.
        Some(self.first_known(last) + 1)
    }

    /// Lists the blocks that were removed before an error, because the command then prints no
    /// report.
    fn failed(&self, error: anyhow::Error) -> anyhow::Error {
        let Some((last, _)) = self.last().filter(|_| self.removed_blocks > 0) else {
            return error;
        };
        for (number, hash) in &self.removed {
            print_note(&format!("removed: block {number}, {hash}"));
        }
        let removed = count(self.removed_blocks, "block");
        error.context(format!(
            "{removed} of another branch removed; the index ends at block {last} now"
        ))
    }

    fn take(&mut self, chain: &LinkedHeaders) -> anyhow::Result<()> {
        if self.writer.is_none() {
            self.open()?;
        }
        let appended = match self.append(chain) {
            Err(IndexError::Parent { number, .. }) => {
                self.roll_back(number, chain)?;
                self.append(chain)
            }
            appended => appended,
        };
        appended.with_context(|| named(self.path))?;
        let elapsed = self.started.elapsed().as_secs_f64().max(1e-9);
        note(&format!("{} headers/s", rounded(float(self.added) / elapsed)));
        if self.unsynced >= self.args.sync_every || self.synced.elapsed() >= SYNC_AFTER {
            self.sync()?;
        }
        Ok(())
    }

    fn append(&mut self, chain: &LinkedHeaders) -> Result<(), IndexError> {
        let writer = self.writer.as_mut().expect("opened before");
        let added = writer.append(chain)?;
        self.added += added;
        self.unsynced += added;
        self.changed |= added > 0;
        Ok(())
    }

    /// Removes the blocks of the index that are not on the branch of `chain`. The caller has found
    /// that the parent of block `number` differs from the block of the index at that height.
    fn roll_back(&mut self, number: u64, chain: &LinkedHeaders) -> anyhow::Result<()> {
        let writer = self.writer.as_mut().expect("opened before");
        // Block `number` - 1 is removed, and block `number` - 2 stays.
        let last = number.checked_sub(2).with_context(|| {
            format!("{}: block 0 differs, so the headers are of another chain", named(self.path))
        })?;
        let first = chain.numbers().map_or(number, |numbers| *numbers.start());
        if number == first && writer.hash(last).is_some() {
            bail!(
                "{}: the headers begin at block {number}, and its parent is not in the index: give \
                 the headers from the block on where the branches part",
                named(self.path)
            );
        }
        self.cut(last)
    }

    /// Removes the blocks after block `last`.
    fn cut(&mut self, last: u64) -> anyhow::Result<()> {
        let writer = self.writer.as_mut().expect("opened before");
        let end = writer.numbers().map_or(last, |numbers| *numbers.end());
        let hashes = (last + 1..=end).map_while(|number| Some((number, writer.hash(number)?)));
        let removed: Vec<_> = hashes.take(LISTED).collect();
        self.removed_blocks += writer.roll_back(last).with_context(|| named(self.path))?;
        self.removed.extend(removed);
        self.removed.truncate(LISTED);
        self.changed = true;
        Ok(())
    }

    /// Returns the number and the hash of the last block.
    fn last(&self) -> Option<(u64, B256)> {
        let writer = self.writer.as_ref()?;
        Some((*writer.numbers()?.end(), writer.last_hash()?))
    }

    /// Returns the hash of an unsealed block, or of the last sealed one; `None` for other blocks.
    fn hash(&self, number: u64) -> Option<B256> {
        self.writer.as_ref()?.hash(number)
    }

    /// Goes down from block `number` while the hash of the previous block is known, and returns the
    /// block that it reaches.
    fn first_known(&self, mut number: u64) -> u64 {
        while number.checked_sub(1).is_some_and(|before| self.hash(before).is_some()) {
            number -= 1;
        }
        number
    }

    /// Makes added and removed blocks durable, and prints a JSON line about these changes.
    fn sync(&mut self) -> anyhow::Result<()> {
        self.synced = Instant::now();
        let Some(writer) = self.writer.as_mut().filter(|_| self.changed) else { return Ok(()) };
        writer.sync().with_context(|| named(self.path))?;
        self.changed = false;
        self.unsynced = 0;
        if let (true, Some(numbers), Some(hash)) = (self.json, writer.numbers(), writer.last_hash())
        {
            let members = json!({ "number": numbers.end(), "hash": hash });
            self.lines.print(&json_line("synced", members))?;
        }
        Ok(())
    }

    fn report(self) -> anyhow::Result<Report> {
        let elapsed = self.started.elapsed();
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let speed = float(self.added) / seconds;
        let index = super::open(self.path)?;
        let (first, last) = super::numbers(&index).into_inner();
        let (_, last_hash) = index.next_known_hash(last).with_context(|| named(self.path))?;
        let blocks = last - first + 1;
        let size = size(self.path)?;
        let per_header = float(size) / float(blocks);
        let sealed = index.sealed();
        let sealed_now = (sealed - self.sealed_before.min(sealed)) / SECTION;
        let mut warnings = self.warnings;
        if self.added == 0 && self.removed_blocks == 0 && warnings.is_empty() {
            warnings.push(format!(
                "nothing was added: the index ends at block {}, and no header is of a later block. \
                 Sealed blocks are not compared; to compare them, use `chainsieve eth index verify`",
                grouped(last)
            ));
        }
        let json = json!({
            "label": index.settings().label(),
            "added": self.added,
            "removed": self.removed.iter()
                .map(|(number, hash)| json!({ "number": number, "hash": hash }))
                .collect::<Vec<_>>(),
            "removed_blocks": self.removed_blocks,
            "first": first,
            "last": last,
            "last_hash": last_hash,
            "sealed_sections": sealed_now,
            "seconds": seconds,
            "headers_per_second": speed,
            "bytes": size,
            "bytes_per_header": per_header,
            "block_hashes": index.settings().has_block_hashes(),
        });
        let mut page = Page::default();
        for (number, hash) in &self.removed {
            page.line(format!("removed  {:<11}  {hash}", grouped(*number)));
        }
        let added = format!(
            "{} ({} headers/s, {})",
            count(self.added, "block"),
            rounded(speed),
            duration(elapsed)
        );
        let segments = index.segment_files().len();
        let sealed_text = match sealed / SECTION {
            0 => "nothing".into(),
            sections => format!(
                "{} of 8,192 blocks ({} new), in {}",
                count(sections, "section"),
                grouped(sealed_now),
                count(segments, "segment")
            ),
        };
        let unsealed = blocks - sealed;
        let mut fields = vec![("added", added)];
        if self.removed_blocks > 0 {
            fields.push((
                "removed",
                format!("{} of another branch", count(self.removed_blocks, "block")),
            ));
        }
        fields.extend([
            ("blocks", span(first, last, blocks)),
            ("last hash", last_hash.to_string()),
            ("sealed", format!("{sealed_text}; {} unsealed", count(unsealed, "block"))),
            ("size", format!("{}, {per_header:.1} bytes per header", bytes(float(size)))),
        ]);
        page.fields(fields);
        Ok(Report::new(page, json, Exit::Yes).with_warnings(warnings).after_lines())
    }
}

/// Formats a number with three significant digits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
fn rounded(number: f64) -> String {
    let unit = 10_f64.powf((number.max(1.0).log10().floor() - 2.0).max(0.0));
    grouped(((number / unit).round() * unit) as u64)
}

/// Creates a folder and syncs its parent, so that the folder survives a power cut, like its files.
fn create_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if cfg!(unix) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
