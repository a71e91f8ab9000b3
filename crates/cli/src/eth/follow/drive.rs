//! What the machine wants, asked of a provider; what it has ready, printed and noted.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log_query::BlockTag;

use super::blocks::Point;
use super::fault::Refused;
use super::indexed::Indexed;
use super::lines;
use super::machine::Machine;
use super::messages::{Batch, STRETCH, Seen, Want};
use super::node::{Failed, Node, Receipts};
use super::state::{self, StateFile, Subject};
use crate::output::{self, Lines, grouped};
use crate::progress::Progress;
use crate::stop::Stop;

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Without logs to print, the state is written after so long.
const SAVE_AFTER: Duration = Duration::from_secs(2);
/// How often the provider is asked which block is final.
const FINALITY: Duration = Duration::from_secs(12);

/// How it goes on.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pub(super) once: bool,
    pub(super) poll: Duration,
    /// Tries of what a provider answers, and not rightly, before it ends the command.
    pub(super) tries: u32,
    pub(super) json: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) blocks: u64,
    pub(super) logs: u64,
    pub(super) removed: u64,
}

pub(super) struct Driver<N> {
    pub(super) node: N,
    pub(super) machine: Machine,
    pub(super) pace: Pace,
    pub(super) state: Option<StateFile>,
    pub(super) subject: Subject,
    /// What says which blocks of the past are candidates.
    pub(super) index: Option<Indexed>,
    pub(super) stop: Stop,
    pub(super) lines: Lines,
    pub(super) counts: Counts,
    progress: Progress,
    /// When the head is asked for next, and whether the last answer was of use.
    poll_at: Instant,
    seen: bool,
    finality_at: Option<Instant>,
    saved_at: Instant,
    unsaved: bool,
    /// Failures in a row, of any kind, and of answers.
    failures: u32,
    wrong_answers: u32,
    /// Failures with receipts of a block.
    of_block: BTreeMap<B256, u32>,
    lag_noted: bool,
}

impl<N: Node> Driver<N> {
    pub(super) fn new(
        node: N,
        machine: Machine,
        pace: Pace,
        state: Option<StateFile>,
        subject: Subject,
        stop: Stop,
    ) -> Self {
        let now = Instant::now();
        Self {
            node,
            machine,
            pace,
            state,
            subject,
            index: None,
            stop,
            lines: Lines::default(),
            counts: Counts::default(),
            progress: Progress::hidden(),
            poll_at: now,
            seen: false,
            finality_at: Some(now),
            saved_at: now,
            unsaved: false,
            failures: 0,
            wrong_answers: 0,
            of_block: BTreeMap::new(),
            lag_noted: false,
        }
    }

    /// Goes on until it is stopped, or everything is printed.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let ended = self.follow();
        // What was printed is noted, however it ended.
        let saved = if self.unsaved { self.save(None) } else { Ok(()) };
        ended.and(saved)
    }

    fn follow(&mut self) -> anyhow::Result<()> {
        while !self.is_over() {
            self.print()?;
            if self.is_over() {
                break;
            }
            if Instant::now() >= self.poll_at {
                self.poll()?;
            }
            match self.machine.want() {
                Want::End => break,
                Want::Headers(numbers) => self.headers(numbers)?,
                Want::Index(numbers) => self.indexed(numbers)?,
                Want::Header(at) => self.header(at)?,
                Want::Check(number) => self.check(number)?,
                Want::Receipts(blocks) => self.receipts(&blocks)?,
                Want::Head if self.seen && self.pace.once => break,
                Want::Head => {
                    self.progress = Progress::hidden();
                    self.seen = false;
                    let now = Instant::now();
                    self.stop.wait_timeout(self.poll_at.saturating_duration_since(now));
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.is_set() || self.lines.is_closed()
    }

    /// Prints what is ready. Before, the state says that it may be printed, and after, that it is.
    fn print(&mut self) -> anyhow::Result<()> {
        if let Some(anchor) = self.machine.take_anchored() {
            self.put(&lines::anchored(anchor, self.pace.json))?;
        }
        while let Some(batch) = self.machine.batch() {
            let (text, logs) = lines::of_batch(&self.machine, batch, self.pace.json);
            let matters = logs > 0 || batch == Batch::Reorg;
            if matters {
                self.save(Some(batch))?;
            }
            self.put(&text)?;
            if self.lines.is_closed() {
                return Ok(());
            }
            self.machine.settle(batch);
            match batch {
                Batch::Reorg => self.counts.removed += logs,
                Batch::Blocks(count) => {
                    self.counts.blocks += count as u64;
                    self.counts.logs += logs;
                }
            }
            self.unsaved = true;
            if matters || self.saved_at.elapsed() >= SAVE_AFTER {
                self.save(None)?;
            }
        }
        if let Some(last) = self.machine.blocks().last_printed() {
            let start = self.machine.rules().start;
            self.progress.at(last.number.saturating_sub(start).saturating_add(1));
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        let lines = &mut self.lines;
        self.progress.suspend(|| lines.print(text)).context("standard output")
    }

    fn save(&mut self, batch: Option<Batch>) -> anyhow::Result<()> {
        if let Some(state) = &self.state {
            state.write(&state::text(&self.machine, &self.subject, batch)?)?;
        }
        self.saved_at = Instant::now();
        // Of a batch that is only partly out, what was written before it is all that is known.
        self.unsaved = false;
        Ok(())
    }

    fn poll(&mut self) -> anyhow::Result<()> {
        self.poll_at = Instant::now() + self.pace.poll;
        let head = match self.node.head(BlockTag::Latest) {
            Ok(head) => head,
            Err(failed) => return self.failed("its head", failed),
        };
        let before = self.machine.head();
        self.seen = true;
        match self.machine.on_head(head) {
            Seen::Ahead => self.lag_noted = false,
            Seen::Behind => {
                if !std::mem::replace(&mut self.lag_noted, true) {
                    let last = self.machine.blocks().last().map_or(0, |last| last.number);
                    self.note(&format!(
                        "its head is block {}, behind block {} that it gave before: it lags",
                        grouped(head.number),
                        grouped(last)
                    ));
                }
            }
            Seen::Other => self.note(&format!(
                "block {} is another now, {}: a reorganisation",
                grouped(head.number),
                head.hash
            )),
        }
        self.show_progress(head);
        if before != Some(head) && self.finality_at.is_some_and(|at| Instant::now() >= at) {
            match self.node.head(BlockTag::Finalized) {
                Ok(finalized) => {
                    self.finality_at = Some(Instant::now() + FINALITY.min(self.pace.poll * 4));
                    self.machine.on_finalized(finalized);
                }
                Err(failed) if failed.transient => {}
                Err(failed) => {
                    self.finality_at = None;
                    self.note(&format!("it does not say which block is final: {:#}", failed.error));
                }
            }
        }
        Ok(())
    }

    fn headers(&mut self, numbers: RangeInclusive<u64>) -> anyhow::Result<()> {
        let mut refused = None;
        let machine = &mut self.machine;
        let before = machine.next_number();
        let asked = self.node.headers(numbers, &mut |headers| {
            machine.on_headers(headers).map_err(|error| {
                refused = Some(error);
                anyhow!("refused")
            })
        });
        let came = self.machine.next_number() > before;
        match (refused, asked) {
            (Some(refused), _) => self.refused("headers", refused),
            (None, Err(failed)) => {
                // What it called its head may be gone.
                self.machine.forget_head();
                self.failed("headers", failed)
            }
            (None, Ok(())) => {
                if came {
                    self.went_well();
                }
                Ok(())
            }
        }
    }

    /// Candidates out of the index, and their headers.
    fn indexed(&mut self, numbers: RangeInclusive<u64>) -> anyhow::Result<()> {
        let index = self.index.as_mut().context("there is no index")?;
        let (candidates, end) = index.candidates(numbers)?;
        let mut headers = Vec::with_capacity(candidates.len());
        match self.node.headers_by_hash(&candidates, &mut headers) {
            Ok(()) => {
                self.machine.on_index(&headers, end);
                self.went_well();
                Ok(())
            }
            Err(failed) => self.failed("headers by their hashes", failed),
        }
    }

    /// A header of a branch.
    fn header(&mut self, at: Point) -> anyhow::Result<()> {
        match self.node.header(at) {
            Ok(Some(header)) => match self.machine.on_header(&header) {
                Ok(()) => Ok(()),
                Err(refused) => self.refused("a header", refused),
            },
            Ok(None) => {
                self.machine.forget_head();
                let what = format!("block {}, {}", grouped(at.number), at.hash);
                let error = anyhow!("it does not have {what}, which its own branch holds");
                self.failed("a header by its hash", Failed { error, transient: false })
            }
            Err(failed) => {
                self.machine.forget_head();
                self.failed("a header by its hash", failed)
            }
        }
    }

    /// The header of a block whose receipts don't come.
    fn check(&mut self, number: u64) -> anyhow::Result<()> {
        let mut found = None;
        let asked = self.node.headers(number..=number, &mut |headers| {
            found = headers.first().cloned();
            Ok(())
        });
        let checked = match (asked, &found) {
            (Err(failed), _) => {
                self.machine.forget_head();
                return self.failed("a header", failed);
            }
            (Ok(()), Some(header)) => self.machine.on_check(header),
            (Ok(()), None) => Ok(()),
        };
        checked.or_else(|refused| self.refused("a header", refused))
    }

    fn receipts(&mut self, blocks: &[Point]) -> anyhow::Result<()> {
        let machine = &mut self.machine;
        let mut bad: Vec<(Point, String, bool)> = Vec::new();
        let mut fault = None;
        let mut well = 0;
        let stop = self.stop.clone();
        let asked = self.node.receipts(blocks, &mut |at, receipts| {
            if stop.is_set() {
                bail!("stopped");
            }
            match taken(machine, at, receipts) {
                Taken::Well => well += 1,
                Taken::Bad { error, transient } => bad.push((at, error, transient)),
                Taken::Fault(error) => {
                    fault = Some(error);
                    bail!("a fault");
                }
            }
            Ok(())
        });
        if let Some(error) = fault {
            return Err(error.context(self.node.name()));
        }
        if self.stop.is_set() {
            return Ok(());
        }
        asked?;
        if well > 0 {
            self.went_well();
        }
        let Some((at, error, transient)) = bad.into_iter().next() else {
            self.of_block.clear();
            return Ok(());
        };
        self.bad_receipts(at, error, transient)
    }

    /// Receipts that did not come or are not the block's: by other ways, and else later.
    fn bad_receipts(&mut self, at: Point, error: String, transient: bool) -> anyhow::Result<()> {
        let what = format!("receipts of block {}, {}", grouped(at.number), at.hash);
        if transient {
            let failed = Failed { error: anyhow!(error), transient };
            return self.failed(&what, failed);
        }
        let tries = self.of_block.entry(at.hash).or_default();
        *tries += 1;
        let tries = *tries;
        let machine = &mut self.machine;
        let (mut found, mut fault, mut words) = (None, None, error.clone());
        if tries > 1 {
            // It may be that way of asking.
            self.node.receipts_by_every_way(at, &mut |way, receipts| {
                match taken(machine, at, receipts) {
                    Taken::Well => found = Some(way.to_owned()),
                    Taken::Bad { error, .. } => words = format!("{error} ({way})"),
                    Taken::Fault(error) => fault = Some(error),
                }
                found.is_some() || fault.is_some()
            });
        }
        if let Some(error) = fault {
            return Err(error.context(self.node.name()));
        }
        if let Some(way) = found {
            self.note(&format!("{what}: {error}; {way} gave them"));
            self.went_well();
            return Ok(());
        }
        if tries >= self.pace.tries {
            bail!(
                "{}: {what}: {words}, {tries} times: logs of this block can't be had",
                self.node.name()
            );
        }
        self.wait(&what, &words);
        self.machine.doubt(at);
        Ok(())
    }

    fn refused(&mut self, what: &str, refused: Refused) -> anyhow::Result<()> {
        match refused {
            Refused::Fault(fault) => Err(anyhow!("{}: {fault}", self.node.name())),
            Refused::Answer(words) => {
                self.machine.forget_head();
                self.failed(what, Failed { error: anyhow!(words), transient: false })
            }
        }
    }

    /// Says what went wrong, and waits.
    fn failed(&mut self, what: &str, failed: Failed) -> anyhow::Result<()> {
        if self.stop.is_set() {
            return Ok(());
        }
        let Failed { error, transient } = failed;
        if !transient {
            self.wrong_answers += 1;
        }
        let too_often = self.wrong_answers >= self.pace.tries
            || (self.pace.once && self.failures + 1 >= self.pace.tries);
        if too_often {
            let tries = self.failures + 1;
            return Err(
                error.context(format!("{}: {what}, {tries} times in a row", self.node.name()))
            );
        }
        self.wait(what, &format!("{error:#}"));
        Ok(())
    }

    fn wait(&mut self, what: &str, why: &str) {
        let doubled = 1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        let wait = self.pace.poll.saturating_mul(doubled).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        self.seen = false;
        let again = output::duration(wait);
        self.note(&format!("{what}: {why}; again in {again}"));
        self.stop.wait_timeout(wait);
        self.poll_at = Instant::now();
    }

    fn went_well(&mut self) {
        self.failures = 0;
        self.wrong_answers = 0;
    }

    /// A line on standard error, above the bar.
    fn note(&self, text: &str) {
        let text = format!("{}: {text}", self.node.name());
        self.progress.suspend(|| output::print_note(&text));
    }

    fn show_progress(&mut self, head: Point) {
        let last = head.number.min(self.machine.rules().to.unwrap_or(u64::MAX));
        let left = last.saturating_sub(self.machine.next_number());
        if left > STRETCH && !self.progress.is_shown() {
            let start = self.machine.rules().start;
            self.progress =
                Progress::counting(last.saturating_sub(start).saturating_add(1), "blocks");
        }
    }
}

/// What became of receipts.
enum Taken {
    Well,
    Bad { error: String, transient: bool },
    Fault(anyhow::Error),
}

fn taken(machine: &mut Machine, at: Point, receipts: Receipts) -> Taken {
    let receipts = match receipts {
        Ok(Some(receipts)) => receipts,
        Ok(None) => {
            return Taken::Bad { error: "it does not have them".into(), transient: false };
        }
        Err(Failed { error, transient }) => {
            return Taken::Bad { error: format!("{error:#}"), transient };
        }
    };
    match machine.on_receipts(at, &receipts) {
        Ok(()) => Taken::Well,
        Err(Refused::Answer(error)) => {
            Taken::Bad { error: format!("not the block's: {error}"), transient: false }
        }
        Err(Refused::Fault(fault)) => Taken::Fault(anyhow!("{fault}")),
    }
}
