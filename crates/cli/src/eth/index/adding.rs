//! Adds headers to an index, and reports the result.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, anyhow};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Folder, Index, IndexError, Settings, Writer};
use chainsieve_report::{
    Exit, Lines, Page, Reader, Report, bytes, count, duration, float, grouped, json_line, note,
    print_note, span,
};
use serde_json::json;

use super::{SECTION, named, size};
use crate::args::eth::{AddingArgs, LinkedHeaderArgs};
use crate::eth::headers::{Bounds, for_each_linked};

/// Maximum time until added blocks are made durable.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of removed blocks that are listed.
const LISTED: usize = 1000;

/// State of adding headers to an index.
pub(super) struct Adding<'a> {
    pub(super) path: &'a Path,
    pub(super) settings: Settings,
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
    pub(super) warnings: Vec<String>,
}

impl<'a> Adding<'a> {
    pub(super) fn new(
        path: &'a Path,
        settings: Settings,
        args: &'a AddingArgs,
        json: bool,
    ) -> Self {
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
    pub(super) fn open(&mut self) -> anyhow::Result<()> {
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

    pub(super) fn run(mut self, headers: &LinkedHeaderArgs) -> anyhow::Result<Report> {
        Reader::of(&headers.headers)?;
        let bounds = Bounds { from: self.from(), to: None };
        let read = for_each_linked(headers, bounds, |_| (), |chain, ()| self.take(chain));
        // Headers that were read before an error are kept.
        let synced = self.sync();
        read.map_err(|error| self.failed(error))?;
        synced?;
        self.report()
    }

    /// Lists the blocks that were removed before an error, because the command then prints no
    /// report.
    pub(super) fn failed(&self, error: anyhow::Error) -> anyhow::Error {
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

    pub(super) fn take(&mut self, chain: &LinkedHeaders) -> anyhow::Result<()> {
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
            anyhow::bail!(
                "{}: the headers begin at block {number}, and its parent is not in the index: give \
                 the headers from the block on where the branches part",
                named(self.path)
            );
        }
        self.cut(last)
    }

    /// Removes the blocks after block `last`.
    pub(super) fn cut(&mut self, last: u64) -> anyhow::Result<()> {
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
    pub(super) fn last(&self) -> Option<(u64, B256)> {
        let writer = self.writer.as_ref()?;
        Some((*writer.numbers()?.end(), writer.last_hash()?))
    }

    /// Returns the hash of an unsealed block, or of the last sealed one; `None` for other blocks.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        self.writer.as_ref()?.hash(number)
    }

    /// Goes down from block `number` while the hash of the previous block is known, and returns the
    /// block that it reaches.
    pub(super) fn first_known(&self, mut number: u64) -> u64 {
        while number.checked_sub(1).is_some_and(|before| self.hash(before).is_some()) {
            number -= 1;
        }
        number
    }

    /// Makes added and removed blocks durable, and prints a JSON line about these changes.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
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

    pub(super) fn report(self) -> anyhow::Result<Report> {
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
