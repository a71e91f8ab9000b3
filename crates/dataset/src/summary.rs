//! What the verdicts of a data set show together.

use std::collections::BTreeMap;
use std::fmt;

use chainsieve::eth::columns::{Grade, HeaderBasis};
use serde::Serialize;

use crate::place::{Found, Table};
use crate::table::TableReader;
use crate::verdicts::Verdict;

/// Entries of each list in a summary: a set with more of them has something else to repair first.
const ENTRIES: usize = 1_000;

/// What the verdicts of a data set show together.
///
/// Each list has at most 1,000 entries, and `left_out` counts the others.
///
/// # JSON
/// `serde` writes an object with the fields of this struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// All files were read. If not, the verification was ended, or is going on.
    pub is_whole: bool,
    /// Number of blocks with a verdict.
    pub blocks: u64,
    /// Number of rows that were read.
    pub rows: u64,
    /// Number of blocks of each grade.
    pub grades: Grades,
    /// Blocks one after another with the same grade and basis.
    pub ranges: Vec<Range>,
    /// Blocks without a row in any table: between others, or of the range that the caller stated.
    pub gaps: Vec<Gap>,
    /// Headers one after another that are recomputed or trusted, each linked to the next by its parent hash.
    pub runs: Vec<Run>,
    /// Number of blocks whose headers are tied to an anchor, or to a trusted header, by links.
    pub anchored: u64,
    /// Numbers of the anchors whose block is not in the data set.
    pub absent_anchors: Vec<u64>,
    /// The blocks that are wrong.
    pub wrong: Vec<Verdict>,
    /// Columns that checks lack, with the number of blocks.
    pub missing: BTreeMap<&'static str, u64>,
    /// Files that can't be read, or not to their end. The verdicts are those of the rows that remain.
    pub unreadable: Vec<UnreadableFile>,
    /// Rows whose number of a block can't be read. They are left out.
    pub unplaced: Vec<Found>,
    /// Rows of blocks that are not in the range that the caller stated. They are left out.
    pub outside: Vec<Found>,
    /// Cells that can't be read as what their column has, by column. The checks that need them are undecided.
    pub cells: BTreeMap<&'static str, Found>,
    /// The largest number of bytes of rows that waited for the rest of their blocks.
    pub buffered: u64,
    /// Number of entries that the lists do not have.
    pub left_out: u64,
}

/// Number of blocks of each grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[expect(missing_docs, reason = "the grades have their own documentation")]
#[non_exhaustive]
pub struct Grades {
    pub complete: u64,
    pub consistent: u64,
    pub bloom: u64,
    pub indices: u64,
    pub undecided: u64,
    pub wrong: u64,
}

/// Blocks one after another with the same grade and basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Range {
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
    /// The grade of each of them.
    pub grade: Grade,
    /// What each header rests on.
    pub header: HeaderBasis,
}

/// Blocks without any row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gap {
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
}

/// Linked headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
    /// The headers up to this block are tied to an anchor or to a trusted header.
    pub anchored_to: Option<u64>,
}

/// A file that can't be read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableFile {
    /// The table.
    pub table: Table,
    /// The name that the caller gave to the file.
    pub file: String,
    /// What is wrong, in the words of its reader.
    pub error: String,
    /// Number of rows that were read.
    pub rows: u64,
}

/// Adds up verdicts.
pub(crate) struct Tally {
    pub(crate) is_whole: bool,
    pub(crate) memory: u64,
    blocks: u64,
    grades: Grades,
    ranges: Vec<Range>,
    gaps: Vec<Gap>,
    runs: Vec<Run>,
    /// Anchored blocks of runs that the list does not have.
    anchored: u64,
    anchors: Vec<u64>,
    wrong: Vec<Verdict>,
    missing: BTreeMap<&'static str, u64>,
    left_out: u64,
    last: Option<Verdict>,
}

impl Tally {
    pub(crate) fn new(anchors: Vec<u64>) -> Self {
        Self {
            is_whole: false,
            memory: 0,
            blocks: 0,
            grades: Grades::default(),
            ranges: Vec::new(),
            gaps: Vec::new(),
            runs: Vec::new(),
            anchored: 0,
            anchors,
            wrong: Vec::new(),
            missing: BTreeMap::new(),
            left_out: 0,
            last: None,
        }
    }

    pub(crate) fn add(&mut self, verdict: &Verdict) {
        let number = verdict.number;
        self.blocks += 1;
        let grades = &mut self.grades;
        *match verdict.grade {
            Grade::Complete => &mut grades.complete,
            Grade::Consistent => &mut grades.consistent,
            Grade::Bloom => &mut grades.bloom,
            Grade::Indices => &mut grades.indices,
            Grade::Undecided => &mut grades.undecided,
            Grade::Wrong => &mut grades.wrong,
        } += 1;
        let mut columns: Vec<_> = verdict.missing.iter().map(|missing| missing.column).collect();
        columns.sort_unstable();
        columns.dedup();
        for column in columns {
            *self.missing.entry(column).or_default() += 1;
        }
        self.anchors.retain(|anchor| *anchor != number || verdict.is_absent);

        let last = self.last.take();
        let follows = last.as_ref().filter(|last| last.number.checked_add(1) == Some(number));
        if let Some(last) = last.as_ref().filter(|_| follows.is_none()) {
            self.add_gap(last.number.saturating_add(1), number.saturating_sub(1));
        }
        if verdict.is_absent {
            self.add_gap(number, number);
        }
        let is_same = follows
            .is_some_and(|last| last.grade == verdict.grade && last.header == verdict.header);
        match self.ranges.last_mut().filter(|_| is_same) {
            // A full list has not the last block in its last range.
            Some(range) if range.last.checked_add(1) == Some(number) => range.last = number,
            _ => {
                let Verdict { block, .. } = verdict;
                let range =
                    Range { first: number, last: number, grade: block.grade, header: block.header };
                push(&mut self.ranges, range, &mut self.left_out);
            }
        }
        self.add_to_run(follows, verdict);
        if verdict.grade == Grade::Wrong {
            if self.wrong.len() < ENTRIES {
                self.wrong.push(verdict.clone());
            } else {
                self.left_out += 1;
            }
        }
        self.last = Some(verdict.clone());
    }

    fn add_gap(&mut self, first: u64, last: u64) {
        match self.gaps.last_mut() {
            Some(gap) if gap.last.checked_add(1) == Some(first) => gap.last = last,
            _ => push(&mut self.gaps, Gap { first, last }, &mut self.left_out),
        }
    }

    fn add_to_run(&mut self, follows: Option<&Verdict>, verdict: &Verdict) {
        let is_proven =
            |verdict: &Verdict| verdict.header != HeaderBasis::Unproven && verdict.hash.is_some();
        if !is_proven(verdict) {
            return;
        }
        let is_tied = matches!(verdict.header, HeaderBasis::Anchored | HeaderBasis::Trusted);
        let anchored_to = is_tied.then_some(verdict.number);
        let is_linked =
            follows.is_some_and(|last| is_proven(last) && last.hash == verdict.parent_hash);
        if let Some(run) = self.runs.last_mut().filter(|_| is_linked)
            && run.last.checked_add(1) == Some(verdict.number)
        {
            run.last = verdict.number;
            run.anchored_to = anchored_to.or(run.anchored_to);
        } else if self.runs.len() < ENTRIES {
            let number = verdict.number;
            self.runs.push(Run { first: number, last: number, anchored_to });
        } else {
            self.anchored += u64::from(is_tied);
            self.left_out += u64::from(!is_linked);
        }
    }

    pub(crate) fn summary(&self, tables: &[TableReader]) -> Summary {
        let of_runs: u64 =
            self.runs.iter().filter_map(|run| Some(run.anchored_to? - run.first + 1)).sum();
        let findings = || tables.iter().map(|table| &table.findings);
        let mut cells = BTreeMap::<_, Found>::new();
        for (column, found) in findings().flat_map(|findings| &findings.cells) {
            let of_column =
                cells.entry(*column).or_insert_with(|| Found { count: 0, ..found.clone() });
            of_column.count += found.count;
        }
        let mut left_out = self.left_out;
        let mut unreadable = Vec::new();
        for file in findings().flat_map(|findings| &findings.unreadable) {
            push(&mut unreadable, file.clone(), &mut left_out);
        }
        Summary {
            is_whole: self.is_whole,
            blocks: self.blocks,
            rows: findings().map(|findings| findings.rows).sum(),
            grades: self.grades,
            ranges: self.ranges.clone(),
            gaps: self.gaps.clone(),
            runs: self.runs.clone(),
            anchored: self.anchored + of_runs,
            absent_anchors: self.anchors.clone(),
            wrong: self.wrong.clone(),
            missing: self.missing.clone(),
            unreadable,
            unplaced: findings().filter_map(|findings| findings.unplaced.clone()).collect(),
            outside: findings().filter_map(|findings| findings.outside.clone()).collect(),
            cells,
            buffered: self.memory,
            left_out,
        }
    }
}

fn push<T>(list: &mut Vec<T>, entry: T, left_out: &mut u64) {
    if list.len() < ENTRIES { list.push(entry) } else { *left_out += 1 }
}

/// Writes a page for people.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, rows, grades, .. } = self;
        write!(f, "{blocks} blocks, {rows} rows: {} complete", grades.complete)?;
        for (name, count) in [
            ("consistent", grades.consistent),
            ("bloom", grades.bloom),
            ("indices", grades.indices),
            ("undecided", grades.undecided),
            ("wrong", grades.wrong),
        ] {
            if count > 0 {
                write!(f, ", {count} {name}")?;
            }
        }
        writeln!(f)?;
        if !self.is_whole {
            writeln!(f, "not all files were read")?;
        }
        for UnreadableFile { table, file, error, rows } in &self.unreadable {
            writeln!(f, "unreadable: {table}, {file}, after {rows} rows: {error}")?;
        }
        for Gap { first, last } in &self.gaps {
            writeln!(f, "no rows: blocks {first} to {last}")?;
        }
        for Range { first, last, grade, header } in &self.ranges {
            if *grade != Grade::Wrong {
                writeln!(f, "blocks {first} to {last}: {grade}, header {header}")?;
            }
        }
        for verdict in &self.wrong {
            writeln!(f, "{verdict}")?;
        }
        for (column, count) in &self.missing {
            writeln!(f, "missing: {column} in {count} blocks")?;
        }
        for (column, found) in &self.cells {
            writeln!(f, "unreadable cells: {column}: {}, first {}", found.count, found.first)?;
        }
        for found in &self.unplaced {
            writeln!(f, "rows without a readable block: {}, first {}", found.count, found.first)?;
        }
        for found in &self.outside {
            writeln!(f, "rows of other blocks: {}, first {}", found.count, found.first)?;
        }
        if self.anchored > 0 {
            writeln!(f, "{} headers are tied to a trusted one", self.anchored)?;
        }
        for number in &self.absent_anchors {
            writeln!(f, "the anchor {number} is not in the data set")?;
        }
        if self.left_out > 0 {
            writeln!(f, "{} further entries are left out", self.left_out)?;
        }
        Ok(())
    }
}
