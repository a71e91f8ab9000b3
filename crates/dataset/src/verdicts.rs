//! Verification of a data set, block by block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Deref;

use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Check, Grade, HeaderRow, LogRow, Row, TransactionRow, anchor,
    verify,
};
use chainsieve::eth::header::HeaderBuf;
use serde::Serialize;

use crate::dataset::{Dataset, Order};
use crate::error::Error;
use crate::place::{Place, Table};
use crate::rows::{Amsterdam, Group};
use crate::summary::{Summary, Tally};
use crate::table::{Reliance, TableReader};

/// Blocks that are verified together, so that their hashes are computed several at a time.
const BLOCKS: usize = 64;
/// Rows that are verified together, at least those of one block.
const ROWS: usize = 8_192;
/// Verdicts that wait for an anchor above them.
const WAITING: usize = 65_536;

/// What the rows of a block show, with the row that shows it.
///
/// It dereferences to the [`BlockVerdict`] of the kernel.
///
/// # JSON
/// `serde` writes an object with the fields of the verdict, and `place`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// What the columns of the block show. The rows of its faults are counted within the block.
    #[serde(flatten)]
    pub block: BlockVerdict,
    /// The first row that fails a check, if a check is about a row.
    pub place: Option<Place>,
    /// No table has a row of the block.
    pub is_absent: bool,
}

impl Deref for Verdict {
    type Target = BlockVerdict;

    fn deref(&self) -> &BlockVerdict {
        &self.block
    }
}

/// Writes the verdict of the block and the place of the first row that fails a check.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.block)?;
        match &self.place {
            Some(place) => write!(f, " ({place})"),
            None if self.is_absent => f.write_str(" (no row of the block)"),
            None => Ok(()),
        }
    }
}

/// The verdicts of a data set, ascending by block.
///
/// After an [`Error`], nothing follows. Dropping it ends the verification.
#[derive(Debug)]
#[must_use = "nothing is read before the first verdict is asked for"]
pub struct Verdicts {
    dataset: Dataset,
    tables: [TableReader; 4],
    reliance: Reliance,
    /// The next block of the range that the caller stated; `None` if there is no further one.
    next: Option<u64>,
    previous: Option<Work>,
    /// Verdicts that wait for an anchor, and what else they have.
    waiting: Vec<BlockVerdict>,
    waiting_places: Vec<(Option<Place>, bool)>,
    ready: VecDeque<Verdict>,
    tally: Tally,
    has_ended: bool,
}

/// The rows of a block.
#[derive(Debug)]
struct Work {
    number: u64,
    groups: [Group; 4],
    trusted: Option<HeaderBuf>,
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").finish_non_exhaustive()
    }
}

impl Iterator for Verdicts {
    type Item = Result<Verdict, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(verdict) = self.ready.pop_front() {
                return Some(Ok(verdict));
            } else if self.has_ended {
                return None;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.has_ended = true;
                    self.release(0);
                    self.tally.is_whole = true;
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Verdicts {
    pub(crate) fn new(mut dataset: Dataset) -> Self {
        let files = std::mem::take(&mut dataset.files);
        let mut files = Table::ALL.into_iter().zip(files);
        let tables = std::array::from_fn(|_| {
            let (table, files) = files.next().expect("four tables");
            TableReader::new(table, files)
        });
        let reliance = match dataset.order {
            Order::Detect | Order::Any => Reliance::Nothing,
            Order::Files => Reliance::Files,
            Order::Blocks => Reliance::Blocks,
        };
        let next = dataset.range.as_ref().filter(|range| !range.is_empty());
        let next = next.map(|range| *range.start());
        let tally = Tally::new(dataset.anchors.iter().map(|anchor| anchor.number).collect());
        Self {
            dataset,
            tables,
            reliance,
            next,
            previous: None,
            waiting: Vec::new(),
            waiting_places: Vec::new(),
            ready: VecDeque::new(),
            tally,
            has_ended: false,
        }
    }

    /// Verifies what is left, and returns the summary of all blocks.
    ///
    /// # Errors
    /// Returns the error that ends the verification.
    pub fn into_summary(mut self) -> Result<Summary, Error> {
        for verdict in &mut self {
            verdict?;
        }
        Ok(self.summary())
    }

    /// Returns the summary of the blocks whose verdicts were returned or wait to be, and of the rows that were
    /// read so far.
    pub fn summary(&self) -> Summary {
        self.tally.summary(&self.tables)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.tally.is_whole
    }

    /// Verifies some blocks. Returns `false` if there are no more.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            let below = self.complete_below();
            let numbers = self.complete_blocks(below);
            if !numbers.is_empty() {
                self.judge(&numbers);
                return Ok(true);
            }
            // The table that is behind the others goes on, so that few rows wait.
            let behind = self.tables.iter_mut().filter(|table| !table.is_done());
            let Some(table) = behind.min_by_key(|table| table.position()) else {
                return Ok(false);
            };
            let before = table.findings.rows;
            table.pull(self.reliance, self.dataset.range.as_ref())?;
            self.dataset.progress.add(table.findings.rows - before, 0);
            self.check_buffer()?;
        }
    }

    /// Returns the first block of which more rows may come; `None` if no more rows come.
    fn complete_below(&self) -> Option<u64> {
        self.tables.iter().filter_map(|table| table.complete_below(self.reliance)).min()
    }

    /// Takes the next blocks whose rows are complete.
    fn complete_blocks(&mut self, below: Option<u64>) -> Vec<u64> {
        let is_complete = |number: u64| below.is_none_or(|below| number < below);
        let mut numbers = Vec::new();
        if let Some(range) = &self.dataset.range {
            let mut rows = 0;
            while let Some(next) = self.next.filter(|next| is_complete(*next))
                && numbers.len() < BLOCKS
                && rows < ROWS
            {
                numbers.push(next);
                rows += self.rows(next);
                self.next = next.checked_add(1).filter(|next| next <= range.end());
            }
            return numbers;
        }
        let mut waiting = BTreeSet::new();
        for table in &self.tables {
            let keys = table.pending.keys().copied().take_while(|number| is_complete(*number));
            waiting.extend(keys.take(BLOCKS));
        }
        let mut rows = 0;
        for number in waiting.into_iter().take(BLOCKS) {
            if rows >= ROWS {
                break;
            }
            rows += self.rows(number);
            numbers.push(number);
        }
        numbers
    }

    fn rows(&self, number: u64) -> usize {
        self.tables.iter().filter_map(|table| Some(table.pending.get(&number)?.rows())).sum()
    }

    fn check_buffer(&mut self) -> Result<(), Error> {
        let memory: usize = self.tables.iter().map(|table| table.memory).sum();
        self.tally.memory = self.tally.memory.max(memory as u64);
        if memory <= self.dataset.buffer {
            return Ok(());
        }
        if self.reliance == Reliance::Nothing && self.dataset.order == Order::Detect {
            for reliance in [Reliance::Blocks, Reliance::Files] {
                if self.tables.iter().all(|table| table.is_in_order(reliance)) {
                    self.reliance = reliance;
                    return Ok(());
                }
            }
        } else if let Some(below) = self.complete_below()
            && self.tables.iter().any(|table| table.pending.keys().any(|number| *number < below))
        {
            return Ok(()); // blocks that are complete make room
        }
        let tables = self.tables.iter();
        let largest = tables.max_by_key(|table| table.memory).expect("four tables");
        let unsorted = self.tables.iter().find_map(|table| table.descent.clone());
        Err(Error::BufferFull {
            table: largest.table,
            limit: self.dataset.buffer,
            unsorted: unsorted.map(|(place, _, _)| place),
        })
    }

    fn amsterdam(&self, number: u64) -> Amsterdam {
        match self.dataset.amsterdam_since {
            Some(first) if number < first => Amsterdam::Precedes,
            _ => Amsterdam::Unknown,
        }
    }

    /// Verifies blocks whose rows are complete, together with the block before them.
    fn judge(&mut self, numbers: &[u64]) {
        let previous = self.previous.take();
        let previous =
            previous.filter(|previous| previous.number.checked_add(1) == Some(numbers[0]));
        let skipped = usize::from(previous.is_some());
        let mut work: Vec<_> = previous.into_iter().collect();
        for &number in numbers {
            let trusted = self.dataset.headers.as_mut().and_then(|headers| headers(number));
            let groups = std::array::from_fn(|table| self.tables[table].take(number));
            work.push(Work { number, groups, trusted });
        }
        let rows: Vec<_> = work
            .iter()
            .enumerate()
            .map(|(at, block)| {
                let is_there = std::array::from_fn(|table| self.tables[table].is_there);
                let amsterdam = self.amsterdam(block.number);
                // Of the block before, only the header counts here: it may be the parent.
                block.rows(is_there, amsterdam, at < skipped)
            })
            .collect();
        let columns: Vec<_> = work
            .iter()
            .zip(&rows)
            .map(|(block, rows)| rows.columns(block, self.dataset.is_filtered))
            .collect();
        let profile = self.dataset.profile.as_ref();
        let mut verdicts = verify(&columns, profile);
        for at in skipped..work.len() {
            let has_other_hash = |verdict: &BlockVerdict| {
                verdict.faults.iter().any(|fault| fault.check == Check::HeaderHash)
            };
            let stored = &work[at].groups[Table::Blocks as usize].headers;
            if !stored.iter().any(|row| row.has_doubtful_uncles) || !has_other_hash(&verdicts[at]) {
                continue;
            }
            // The doubtful value may be the reason.
            let mut headers = rows[at].headers.clone().unwrap_or_default();
            for (row, stored) in headers.iter_mut().zip(stored) {
                row.sha3_uncles = row.sha3_uncles.filter(|_| !stored.has_doubtful_uncles);
            }
            // The blocks beside it show something of it, too.
            let first = at.saturating_sub(1);
            let mut around = columns[first..columns.len().min(at + 2)].to_vec();
            around[at - first].headers = Some(&headers);
            verdicts[at] = verify(&around, profile).swap_remove(at - first);
        }
        // The first block after may have a trusted header that names another parent.
        if let (1, Some(waiting)) = (skipped, self.waiting.last_mut()) {
            let shown = verdicts[0].faults.iter().filter(|fault| fault.check == Check::Anchor);
            let before = waiting.faults.len();
            waiting.faults.extend(shown.cloned());
            if waiting.faults.len() > before {
                waiting.grade = Grade::Wrong;
            }
        }
        for (block, verdict) in work.iter().zip(verdicts).skip(skipped) {
            let place = verdict.faults.iter().find_map(|fault| self.place(block, fault.row?));
            let is_absent = block.groups.iter().all(|group| group.rows() == 0);
            self.waiting_places.push((place, is_absent));
            self.waiting.push(verdict);
        }
        self.dataset.progress.add(0, numbers.len() as u64);
        self.previous = work.pop();
        self.tie(numbers);
    }

    fn place(&self, block: &Work, row: Row) -> Option<Place> {
        let (table, row) = match row {
            Row::Headers(row) => (Table::Blocks, row),
            // Without a table of transactions, the receipts stand for it.
            Row::Transactions(row) if !self.tables[Table::Transactions as usize].is_there => {
                (Table::Receipts, row)
            }
            Row::Transactions(row) => (Table::Transactions, row),
            Row::Logs(row) => (Table::Logs, row),
        };
        self.tables[table as usize].place(&block.groups[table as usize], row)
    }

    /// Ties the verdicts that wait to the anchors that were reached, and releases them if no anchor is above, or
    /// if too many wait.
    fn tie(&mut self, numbers: &[u64]) {
        let last = numbers[numbers.len() - 1];
        for trusted in &self.dataset.anchors {
            if numbers.contains(&trusted.number) {
                anchor(&mut self.waiting, *trusted);
            }
        }
        let is_anchor_above = self.dataset.anchors.iter().any(|anchor| anchor.number > last);
        if !is_anchor_above || self.waiting.len() >= WAITING {
            // The next block may show something of the last one.
            self.release(1);
        }
    }

    /// Releases the verdicts that wait, except the last `kept` ones.
    fn release(&mut self, kept: usize) {
        let count = self.waiting.len().saturating_sub(kept);
        let places = self.waiting_places.drain(..count);
        for (block, (place, is_absent)) in self.waiting.drain(..count).zip(places) {
            let verdict = Verdict { block, place, is_absent };
            self.tally.add(&verdict);
            self.ready.push_back(verdict);
        }
    }
}

/// The rows of a block, as the kernel takes them.
struct KernelRows<'a> {
    headers: Option<Vec<HeaderRow<'a>>>,
    transactions: Option<Vec<TransactionRow<'a>>>,
    logs: Option<Vec<LogRow<'a>>>,
}

impl Work {
    fn rows(
        &self,
        is_there: [bool; 4],
        amsterdam: Amsterdam,
        is_header_only: bool,
    ) -> KernelRows<'_> {
        let of =
            |table: Table| Some(&self.groups[table as usize]).filter(|_| is_there[table as usize]);
        let headers = of(Table::Blocks).map(|it| it.headers(amsterdam, self.trusted.is_some()));
        if is_header_only {
            return KernelRows { headers, transactions: None, logs: None };
        }
        let transactions = match (of(Table::Transactions), of(Table::Receipts)) {
            (Some(transactions), Some(receipts)) => Some(joined(transactions, receipts)),
            (one, other) => one.or(other).map(Group::transactions),
        };
        KernelRows { headers, transactions, logs: of(Table::Logs).map(Group::logs) }
    }
}

impl KernelRows<'_> {
    fn columns<'a>(&'a self, block: &'a Work, is_filtered: bool) -> BlockColumns<'a> {
        BlockColumns {
            number: block.number,
            headers: self.headers.as_deref(),
            transactions: self.transactions.as_deref(),
            logs: self.logs.as_deref(),
            trusted: block.trusted.as_ref(),
            is_filtered,
        }
    }
}

/// Adds the columns of receipts to the rows of transactions.
fn joined<'a>(transactions: &'a Group, receipts: &'a Group) -> Vec<TransactionRow<'a>> {
    let mut rows = transactions.transactions();
    let (mut by_index, mut by_hash) = (BTreeMap::new(), BTreeMap::new());
    // Of receipts that contradict each other, none counts.
    let mut insert = |row: TransactionRow<'a>| {
        if let Some(index) = row.transaction_index {
            let known = by_index.entry(index).or_insert(Some(row));
            *known = known.filter(|known| *known == row);
        } else if let Some(hash) = row.hash {
            let known = by_hash.entry(hash).or_insert(Some(row));
            *known = known.filter(|known| *known == row);
        }
    };
    receipts.transactions().into_iter().for_each(&mut insert);
    for row in &mut rows {
        let by_index = row.transaction_index.and_then(|index| by_index.get(&index));
        let receipt = by_index.or_else(|| by_hash.get(row.hash?));
        let Some(receipt) = receipt.copied().flatten() else { continue };
        row.receipt_type = row.receipt_type.or(receipt.receipt_type);
        row.status = receipt.status.or(row.status);
        row.root = receipt.root.or(row.root);
        row.cumulative_gas_used = receipt.cumulative_gas_used.or(row.cumulative_gas_used);
        row.gas_used = receipt.gas_used.or(row.gas_used);
        row.deposit_nonce = receipt.deposit_nonce.or(row.deposit_nonce);
        row.deposit_receipt_version =
            receipt.deposit_receipt_version.or(row.deposit_receipt_version);
    }
    rows
}
