//! The command `btc cf build`.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Transaction};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::{Acceptance, BlockFilter};
use chainsieve::btc::bip158::container::Header;
use chainsieve_report::{Exit, Lines, Page, Progress, Reader, Report, UsageError, count, grouped, json_line, named};
use chainsieve_report::blocks::{SourcedBlock, for_each_block};
use serde_json::json;

use crate::args::cf::BuildArgs;
use crate::btc::for_each_transaction;
use super::files::FilterFiles;
use super::target::Target;

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
                "{cut} of an incomplete filter are replaced, from height {} on",
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
            "warnings": self.warnings,
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
        page.warnings(&self.warnings);
        Ok(Report::new(page, json, Exit::Yes).after_lines())
    }
}
