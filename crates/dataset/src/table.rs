//! The rows of a table, as its streams give them, grouped by block.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use arrow_array::RecordBatch;

use crate::cells::Encoding;
use crate::error::Error;
use crate::file::File;
use crate::place::{Cells, Found, Place, Table};
use crate::rows::Group;
use crate::schema::{Columns, Names};
use crate::stream::Reader;
use crate::summary::UnreadableFile;

/// Rows that are read at a time: a batch may be a whole table.
const ROWS: usize = 4_096;

/// How far the order of the rows can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reliance {
    Nothing,
    Files,
    Blocks,
}

/// A table that is read.
#[derive(Debug)]
pub(crate) struct TableReader {
    pub(crate) table: Table,
    files: VecDeque<File>,
    names: Vec<String>,
    open: Option<Open>,
    /// The rows that wait for their block to be verified.
    pub(crate) pending: BTreeMap<u64, Group>,
    /// Bytes of memory of the rows that wait.
    pub(crate) memory: usize,
    /// A row, or a file without rows, could be read: the data set has the table. Rows that can't be assigned to
    /// blocks do not show that blocks lack rows.
    pub(crate) is_there: bool,
    /// Block of the last row.
    last: Option<u64>,
    /// Last block of the files that were read to their end.
    last_of_files: Option<u64>,
    /// Last block of the file that is read.
    last_of_file: Option<u64>,
    /// The first row that precedes the row before it, and the later block.
    pub(crate) descent: Option<(Place, u64, u64)>,
    /// The first row that precedes an earlier file, and the later block.
    file_descent: Option<(Place, u64, u64)>,
    pub(crate) findings: Findings,
}

/// What was found beside the rows of blocks.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: u64,
    pub(crate) unreadable: Vec<UnreadableFile>,
    pub(crate) unplaced: Option<Found>,
    pub(crate) outside: Option<Found>,
    pub(crate) cells: BTreeMap<&'static str, Found>,
}

/// A file that is read.
struct Open {
    reader: Reader,
    names: Names,
    encoding: Encoding,
    /// A batch, its columns and its next row.
    batch: Option<(RecordBatch, Columns, usize)>,
    /// Number of rows of the earlier batches.
    rows: u64,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl TableReader {
    pub(crate) fn new(table: Table, files: Vec<File>) -> Self {
        Self {
            table,
            files: files.into(),
            names: Vec::new(),
            open: None,
            pending: BTreeMap::new(),
            memory: 0,
            is_there: false,
            last: None,
            last_of_files: None,
            last_of_file: None,
            descent: None,
            file_descent: None,
            findings: Findings::default(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.open.is_none() && self.files.is_empty()
    }

    /// Returns the block up to which the table was read, for tables that are read side by side.
    pub(crate) fn position(&self) -> Option<u64> {
        self.last
    }

    /// Returns the first block of which more rows may come; `None` if no more rows come.
    pub(crate) fn complete_below(&self, reliance: Reliance) -> Option<u64> {
        if self.is_done() {
            return None;
        }
        Some(match reliance {
            Reliance::Nothing => 0,
            Reliance::Blocks => self.last.unwrap_or(0),
            Reliance::Files => self.last_of_files.map_or(0, |last| last.saturating_add(1)),
        })
    }

    /// Returns `true` if the rows read so far are in this order.
    pub(crate) fn is_in_order(&self, reliance: Reliance) -> bool {
        match reliance {
            Reliance::Nothing => true,
            Reliance::Blocks => self.descent.is_none(),
            Reliance::Files => {
                self.file_descent.is_none() && (self.is_done() || self.last_of_files.is_some())
            }
        }
    }

    pub(crate) fn take(&mut self, number: u64) -> Group {
        let group = self.pending.remove(&number).unwrap_or_default();
        if group.rows() > 0 {
            self.memory -= group.memory();
        }
        group
    }

    pub(crate) fn place(&self, group: &Group, row: usize) -> Option<Place> {
        let (file, row) = *group.places.get(row)?;
        Some(self.place_of(file, row))
    }

    fn place_of(&self, file: u32, row: u64) -> Place {
        let file = self.names.get(file as usize).cloned().unwrap_or_default();
        Place { table: self.table, file, row }
    }

    /// Reads some rows.
    pub(crate) fn pull(
        &mut self,
        reliance: Reliance,
        range: Option<&RangeInclusive<u64>>,
    ) -> Result<(), Error> {
        let Some(mut open) = self.open.take() else {
            self.open_next();
            return Ok(());
        };
        if open.batch.is_none() {
            match self.next_batch(&mut open) {
                Ok(true) => {}
                Ok(false) => {
                    // A file without rows is a statement, too.
                    self.is_there |= open.rows == 0;
                    self.last_of_files = self.last_of_files.max(self.last_of_file.take());
                    return Ok(());
                }
                Err(error) => {
                    // The rows before the error are in the data set.
                    self.unreadable(error, open.rows);
                    self.last_of_files = self.last_of_files.max(self.last_of_file.take());
                    return Ok(());
                }
            }
        }
        let Some((batch, columns, start)) = open.batch.take() else { return Ok(()) };
        let end = batch.num_rows().min(start + ROWS);
        let mut cells = Cells::default();
        for row in start..end {
            self.add(&open, &columns, row, reliance, range, &mut cells)?;
        }
        for (column, (count, row)) in cells.by_column {
            let first = self.place_of(self.file(), open.rows + row as u64);
            self.findings.cells.entry(column).or_insert(Found { count: 0, first }).count += count;
        }
        self.findings.rows += (end - start) as u64;
        if end < batch.num_rows() {
            open.batch = Some((batch, columns, end));
        } else {
            open.rows += batch.num_rows() as u64;
        }
        self.open = Some(open);
        Ok(())
    }

    fn open_next(&mut self) {
        let Some(file) = self.files.pop_front() else { return };
        let (name, stream) = file.open();
        self.names.push(name);
        let opened = stream.and_then(|stream| {
            let reader = stream.open()?;
            let names = Names::new(&reader.names());
            names.check(self.table)?;
            Ok(Open { reader, names, encoding: Encoding::default(), batch: None, rows: 0 })
        });
        match opened {
            Ok(open) => self.open = Some(open),
            Err(error) => self.unreadable(error, 0),
        }
    }

    fn next_batch(&self, open: &mut Open) -> Result<bool, String> {
        let Some(batch) = open.reader.next().transpose()? else { return Ok(false) };
        let columns = Columns::new(self.table, &open.names, &batch, &mut open.encoding)?;
        open.batch = Some((batch, columns, 0));
        Ok(true)
    }

    fn unreadable(&mut self, error: String, rows: u64) {
        let file = self.names.last().cloned().unwrap_or_default();
        self.findings.unreadable.push(UnreadableFile { table: self.table, file, error, rows });
    }

    fn file(&self) -> u32 {
        u32::try_from(self.names.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn add(
        &mut self,
        open: &Open,
        columns: &Columns,
        row: usize,
        reliance: Reliance,
        range: Option<&RangeInclusive<u64>>,
        cells: &mut Cells,
    ) -> Result<(), Error> {
        let at = (self.file(), open.rows + row as u64);
        let Some(number) = columns.number(row, open.encoding) else {
            let first = self.place_of(at.0, at.1);
            self.findings.unplaced.get_or_insert(Found { count: 0, first }).count += 1;
            return Ok(());
        };
        self.is_there = true;
        if let Some(last) = self.last.filter(|last| number < *last)
            && self.descent.is_none()
        {
            self.descent = Some((self.place_of(at.0, at.1), number, last));
        }
        if let Some(last) = self.last_of_files.filter(|last| number <= *last)
            && self.file_descent.is_none()
        {
            self.file_descent = Some((self.place_of(at.0, at.1), number, last));
        }
        let descent = match reliance {
            Reliance::Nothing => None,
            Reliance::Files => self.file_descent.clone(),
            Reliance::Blocks => self.descent.clone(),
        };
        if let Some((place, number, after)) = descent {
            return Err(Error::OutOfOrder { place, number, after });
        }
        self.last = Some(number);
        self.last_of_file = self.last_of_file.max(Some(number));
        if range.is_some_and(|range| !range.contains(&number)) {
            let first = self.place_of(at.0, at.1);
            self.findings.outside.get_or_insert(Found { count: 0, first }).count += 1;
            return Ok(());
        }
        let group = self.pending.entry(number).or_default();
        let before = if group.rows() > 0 { group.memory() } else { 0 };
        columns.add(row, open.encoding, cells, group);
        group.places.push(at);
        self.memory += group.memory() - before;
        Ok(())
    }
}
