//! The command `btc cf build`, and the file that it writes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Transaction};
use chainsieve::btc::bip158::container::{BatchReader, ContainerError, Header, Intact, Writer};
use chainsieve::btc::bip158::{Acceptance, BlockFilter};
use chainsieve_report::blocks::{SourcedBlock, for_each_block};
use chainsieve_report::{
    Exit, Lines, Page, Progress, Reader, Report, UsageError, count, grouped, json_line, named,
};
use serde_json::json;

use super::FilterFiles;
use crate::args::cf::BuildArgs;
use crate::btc::for_each_transaction;

/// Number of filters shown as examples; --json prints all of them.
const MAX_ROWS: u64 = 3;

pub(crate) fn run(args: &BuildArgs, json: bool) -> anyhow::Result<Report> {
    let reader = Reader::of(args.blocks.iter().chain(&args.prev_txs))?;
    let mut build = Build::new(args)?;
    for_each_transaction(&reader, &args.prev_txs, |tx| build.learn(&tx))?;
    let mut lines = Lines::default();
    let progress = Progress::over_files(args.blocks.iter().map(String::as_str));
    let mut before = 0;
    for argument in &args.blocks {
        let mut at = 0;
        for_each_block(argument, |block, source| {
            let text = build.take(args, block, json)?;
            at = source.offset();
            progress.at(before + at);
            Ok(lines.print(&text)?)
        })?;
        before += at;
    }
    drop(progress);
    build.report(args)
}

/// State of a build.
struct Build {
    /// The file that filters are written to.
    target: Option<Target>,
    /// The header of the file; `None` until the first block is read.
    header: Option<Header>,
    /// Scripts of outputs that later blocks may spend.
    created: HashMap<OutPoint, ScriptBuf>,
    last_block: Option<BlockHash>,
    /// The last filter header; `None` if the blocks start above height 0 and the filter header of
    /// the preceding block is unknown.
    filter_header: Option<FilterHeader>,
    first: u32,
    next: u32,
    blocks: u64,
    bytes: u64,
    warnings: Vec<String>,
}

impl Build {
    fn new(args: &BuildArgs) -> anyhow::Result<Self> {
        let mut build = Self {
            target: None,
            header: None,
            created: HashMap::new(),
            last_block: None,
            filter_header: args.previous_header,
            first: 0,
            next: 0,
            blocks: 0,
            bytes: 0,
            warnings: Vec::new(),
        };
        match &args.out {
            None => {}
            Some(path) if args.append => build.go_on(args, path).with_context(|| named(path))?,
            Some(path) => build.target = Some(Target::new(path)?),
        }
        Ok(build)
    }

    /// Prepares to append after the last filter of a file.
    fn go_on(&mut self, args: &BuildArgs, path: &Path) -> anyhow::Result<()> {
        let (target, intact, cut) = Target::append_to(path)?;
        let header = intact.header;
        let magic = args.network.magic().to_bytes();
        ensure!(
            header.network_magic == magic,
            "the filters belong to another network: see --network"
        );
        self.filter_header = Some(header.previous_filter_header);
        FilterFiles::open(path)?.for_each_batch(|_, headers, _| {
            self.filter_header = headers.last().copied().or(self.filter_header);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        self.last_block = intact.last_block;
        self.next = intact.next_height();
        self.first = self.next;
        if cut > 0 {
            let cut = count(cut, "byte");
            self.warnings.push(format!(
                "the file ended within the filter of height {}: its {cut} are replaced",
                grouped(self.next)
            ));
        }
        (self.target, self.header) = (Some(target), Some(header));
        Ok(())
    }

    fn learn(&mut self, tx: &Transaction) {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            self.created.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
        }
    }

    /// Builds the filter of the next block; returns the line to print.
    fn take(
        &mut self,
        args: &BuildArgs,
        SourcedBlock { block, height, prevout_scripts }: SourcedBlock,
        json: bool,
    ) -> anyhow::Result<String> {
        self.start(args, &block, height)?;
        if let Some(last) = self.last_block {
            let previous = block.header.prev_blockhash;
            ensure!(
                previous == last,
                "the block has parent {previous}, but the previous block of the input is {last}"
            );
        }
        let filter = if let Some(scripts) = prevout_scripts {
            BlockFilter::from_prevout_scripts(&block, &scripts)?
        } else {
            let filter = BlockFilter::new(&block, |outpoint| self.created.remove(outpoint))
                .context("give with --prev-txs the transactions whose outputs the blocks spend")?;
            block.txdata.iter().for_each(|tx| self.learn(tx));
            filter
        };
        let elements = filter.gcs(Acceptance::Strict)?.num_elements();
        if let (Some(target), Some(header)) = (&mut self.target, self.header) {
            target.append(header, &filter.block_hash, &filter.content)?;
        }
        self.filter_header = self.filter_header.map(|previous| filter.filter_header(&previous));
        let height = self.next;
        self.next = height.checked_add(1).context("the highest height is 4294967295")?;
        self.last_block = Some(filter.block_hash);
        self.blocks += 1;
        self.bytes += filter.content.len() as u64;
        if json {
            let members = json!({
                "height": height,
                "hash": filter.block_hash.to_string(),
                "elements": elements,
                "bytes": filter.content.len(),
                "filter": hex::encode(&filter.content),
                "filter_hash": filter.filter_hash().to_string(),
                "filter_header": self.filter_header.map(|header| header.to_string()),
            });
            return Ok(json_line("filter", members));
        }
        Ok(match self.blocks {
            ..=MAX_ROWS => {
                let head = "height     elements  bytes    filter header\n";
                let row = format!(
                    "{:<9}  {:<8}  {:<7}  {}\n",
                    grouped(height),
                    grouped(elements),
                    grouped(filter.content.len()),
                    self.header_words()
                );
                if self.blocks == 1 { format!("{head}{row}") } else { row }
            }
            blocks if blocks == MAX_ROWS + 1 => String::from("…\n"),
            _ => String::new(),
        })
    }

    /// Determines the first height and filter header from the first block, and checks the heights
    /// of later blocks.
    fn start(
        &mut self,
        args: &BuildArgs,
        block: &Block,
        height: Option<u32>,
    ) -> anyhow::Result<()> {
        let is_first = block.header.prev_blockhash == BlockHash::all_zeros();
        if self.blocks == 0 && self.header.is_none() {
            let genesis = is_first.then_some(0);
            // BIP34: blocks of version 2 and later start their coinbase with the height.
            let coinbase = || block.bip34_block_height().ok()?.try_into().ok();
            let Some(start) = args.height.or(height).or(genesis).or_else(coinbase) else {
                bail!(UsageError("the height of the first block is unknown: give --height"));
            };
            if start == 0 && self.filter_header.is_none() {
                self.filter_header = Some(FilterHeader::all_zeros());
            }
            if self.filter_header.is_none() && args.out.is_some() {
                bail!(UsageError(
                    "--previous-header is missing: the filter header before the first block"
                ));
            }
            (self.first, self.next) = (start, start);
            self.header = Some(Header {
                network_magic: args.network.magic().to_bytes(),
                start_height: start,
                previous_filter_header: self.filter_header.unwrap_or(FilterHeader::all_zeros()),
            });
        }
        match height {
            Some(height) if height != self.next => {
                bail!("the block has height {height}, expected {}", self.next)
            }
            _ => Ok(()),
        }
    }

    fn header_words(&self) -> String {
        self.filter_header.map_or_else(|| "unknown".into(), |header| header.to_string())
    }

    fn report(self, args: &BuildArgs) -> anyhow::Result<Report> {
        let header = self.header_words();
        ensure!(self.blocks > 0, "the input contains no blocks: no filter was built");
        if let Some(target) = self.target {
            target.finish()?;
        }
        let last = self.next.saturating_sub(1);
        let out = args.out.as_deref().map(named);
        let json = json!({
            "blocks": self.blocks,
            "first": self.first,
            "last": last,
            "bytes": self.bytes,
            "filter_header": self.filter_header.map(|header| header.to_string()),
            "out": out,
        });
        let mut page = Page::default();
        page.line("");
        let heights = format!("height {} to {}", grouped(self.first), grouped(last));
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let mut fields = vec![
            ("filters", format!("{}, {heights}, {}", grouped(self.blocks), count(bytes, "byte"))),
            ("filter header", format!("{header}, height {}", grouped(last))),
        ];
        if let Some(out) = out {
            fields.push(("written to", out));
        }
        page.fields(fields);
        Ok(Report::new(page, json, Exit::Yes).with_warnings(self.warnings).after_lines())
    }
}

/// A file that filters are appended to.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The file does not exist yet.
    New,
    /// The file exists; an incomplete record may follow its intact part.
    Old(File, Intact),
    Open(Writer<BufWriter<File>>),
}

impl Target {
    /// Returns a target for a file that must not exist yet.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        // A link whose target is missing is treated as an existing file.
        ensure!(
            path.symlink_metadata().is_err(),
            "{}: the file exists; --append continues after its last filter",
            named(path)
        );
        Ok(Self { path: path.to_owned(), state: State::New })
    }

    /// Opens a file with filters. Also returns the intact part of the file, and the number of bytes
    /// of an incomplete last record. The first filter that is appended overwrites this record.
    ///
    /// Only an incomplete last record may follow the intact part. Any other bytes after this part
    /// are a damaged record: to truncate the file there would delete the records after the damage.
    pub(crate) fn append_to(path: &Path) -> anyhow::Result<(Self, Intact, u64)> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        lock(&file)?;
        let (intact, damage) = BatchReader::new(BufReader::new(&file))?.recover()?;
        let behind = file.metadata()?.len().saturating_sub(intact.bytes);
        let cut = match damage {
            None => 0,
            Some(ContainerError::RecordTruncated { .. }) => behind,
            Some(damage) => bail!(
                "{damage}; {} precede the damage; the {} after them are kept: to discard these \
                 bytes, truncate the file to {} bytes first",
                count(intact.records, "intact filter"),
                count(behind, "byte"),
                intact.bytes
            ),
        };
        Ok((Self { path: path.to_owned(), state: State::Old(file, intact) }, intact, cut))
    }

    /// Appends a filter and flushes it to the file; a new file starts with `header`.
    pub(crate) fn append(
        &mut self,
        header: Header,
        block_hash: &BlockHash,
        content: &[u8],
    ) -> anyhow::Result<()> {
        let path = &self.path;
        let writer = match &mut self.state {
            State::Open(writer) => writer,
            State::New => {
                let file = File::create_new(path).with_context(|| named(path))?;
                lock(&file).with_context(|| named(path))?;
                self.state = State::Open(Writer::create(BufWriter::new(file), header)?);
                return self.append(header, block_hash, content);
            }
            State::Old(file, intact) => {
                file.set_len(intact.bytes).with_context(|| named(path))?;
                let writer = Writer::resume(BufWriter::new(file.try_clone()?), *intact);
                self.state = State::Open(writer);
                return self.append(header, block_hash, content);
            }
        };
        writer
            .append(block_hash, content)
            .and_then(|()| writer.flush())
            .with_context(|| named(path))
    }

    /// Syncs the file to the disk.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if let State::Open(writer) = self.state {
            let file = writer.finish()?.into_inner().map_err(|error| anyhow!(error.to_string()))?;
            file.sync_all().with_context(|| named(&self.path))?;
        }
        Ok(())
    }
}

/// Locks the file: two processes that append at once would damage it. Where the system cannot lock
/// files, the file stays unlocked.
fn lock(file: &File) -> anyhow::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another process is appending to the file"),
        Err(TryLockError::Error(_)) | Ok(()) => Ok(()),
    }
}
