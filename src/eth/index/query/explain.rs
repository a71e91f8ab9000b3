//! Explanation of a query from the directory of an index: the rows that the query reads, and the
//! expected result.

#![expect(clippy::cast_precision_loss, reason = "counts become shares and sums of estimates")]

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::evaluate::{live, sections_of};
use super::plan::{Plan, plans};
use super::rows::{Access, Row, Rows, Sections, each};
use crate::eth::fill::FillHistogram;
use crate::eth::forecast::expected_false;
use crate::eth::index::error::IndexError;
use crate::eth::index::format::SECTION;
use crate::eth::index::reader::Index;
use crate::eth::index::storage::Storage;
use crate::eth::log_query::CompiledQuery;

/// The rows that a query reads, and the number of false candidates to expect.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The rows in reading order.
    ///
    /// The rows that every match needs come first; among these rows, the row with the fewest set
    /// bits comes first. The rows of each clause of several values follow; in each clause, the
    /// values that most blocks contain come first. The order in a single segment may differ.
    pub rows: Vec<ExplainedRow>,
    /// Number of sections, each of 8,192 sealed blocks, that overlap the range.
    pub sections: u64,
    /// Number of sections in the range that can't contain a candidate, so that no row is read.
    pub skipped_sections: u64,
    /// Upper bound of the bytes of rows that are read.
    ///
    /// A query stops reading rows when no candidate remains. A query skips the remaining values of
    /// a clause once every remaining candidate may contain one of the values already tested.
    pub bytes: u64,
    /// Number of unsealed blocks, whose filters are tested one by one.
    pub unsealed_blocks: u64,
    /// Expected number of blocks that are candidates by chance, if no block contains a match.
    ///
    /// [`expected_false`] computes this number from the fills of the filters. If only a part of a
    /// section is in the range, the same part of the section's expected number is added.
    pub expected_false: f64,
}

/// Statistics of a row that a query needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ExplainedRow {
    /// Bit position in the filters, 0 to 2047, as the Yellow Paper numbers them.
    pub position: u16,
    /// Index of the clause that needs the row, in [`CompiledQuery::clauses`]. If several clauses
    /// need the row, the index is that of the first clause that has only one value. If none of
    /// these clauses has only one value, the index is that of the first clause.
    pub clause: usize,
    /// Number of sections in which the row is read.
    pub sections: u64,
    /// Number of sections in which all blocks have the bit, so that the row is not read.
    pub full_sections: u64,
    /// Number of blocks that have the bit, in the sections that are not skipped.
    pub ones: u64,
    /// Number of blocks in the sections that are not skipped.
    pub of: u64,
    /// Number of bytes of this row that are read.
    pub bytes: u64,
}

impl ExplainedRow {
    /// Returns the share of blocks that have the bit, 0 to 1; 0 if all sections are skipped.
    pub fn density(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.ones as f64 / self.of as f64 }
    }

    fn add(&mut self, row: &Row, live: Sections) {
        let read = live & row.live & !row.full;
        self.sections += u64::from(read.count_ones());
        self.full_sections += u64::from((live & row.full).count_ones());
        self.ones += u64::from(row.ones(live));
        self.of += u64::from(live.count_ones()) * SECTION as u64;
        self.bytes += row.bytes(read);
    }
}

impl<S: Storage> Index<S> {
    /// Returns the rows that a query over a range reads, and the number of false candidates to
    /// expect.
    ///
    /// # Errors
    /// Returns an error if the index does not contain all blocks of the range, if the files are
    /// damaged, or if the storage fails.
    ///
    /// # Cost
    /// Reads the directory entries of the query's rows and 4.5 kB for each section, but no row.
    pub fn explain(
        &self,
        query: &CompiledQuery,
        blocks: RangeInclusive<u64>,
    ) -> Result<Explanation, IndexError> {
        let parts = self.parts(&blocks)?;
        let (positions, plans) = plans(core::slice::from_ref(query));
        let plan = &plans[0];
        let mut rows = Rows::new(&positions);
        let mut explained: Vec<ExplainedRow> =
            positions.iter().map(|&position| new_row(query, position)).collect();
        let (mut sections, mut skipped_sections, mut unsealed_blocks) = (0, 0, 0);
        let (mut fills, mut of_edges) = (FillHistogram::default(), 0.0);
        for part in parts {
            let Some(segment) = part.segment else {
                let blooms = &self.tail().blooms[part.headers];
                fills.add(blooms);
                unsealed_blocks += blooms.len() as u64;
                continue;
            };
            let access = Access::new(&self.segments()[segment])?;
            access.enter(&mut rows)?;
            let asked = sections_of(&part.headers);
            let live = live(&access, &rows, plan, asked)?;
            sections += u64::from(asked.count_ones());
            skipped_sections += u64::from((asked & !live).count_ones());
            for (row, explained) in (0..).zip(&mut explained) {
                explained.add(rows.row(row), live);
            }
            for section in each(asked) {
                let mut of_section = FillHistogram::default();
                let record = access.segment.record(section)?;
                for (ones, &filters) in record.fills.iter().enumerate() {
                    of_section.add_count(ones, u64::from(filters));
                }
                let first = section as usize * SECTION;
                let headers = part.headers.end.min(first + SECTION) - part.headers.start.max(first);
                if headers == SECTION {
                    fills.merge(&of_section);
                } else {
                    let share = headers as f64 / SECTION as f64;
                    of_edges += expected_false(query, &of_section) * share;
                }
            }
        }
        let rows = in_order(plan, &explained);
        let bytes = rows.iter().map(|row| row.bytes).sum();
        Ok(Explanation {
            rows,
            sections,
            skipped_sections,
            bytes,
            unsealed_blocks,
            expected_false: expected_false(query, &fills) + of_edges,
        })
    }
}

/// Returns the statistics of a row before any section is added.
fn new_row(query: &CompiledQuery, position: u16) -> ExplainedRow {
    let needs = |values: &Vec<[u16; 3]>| {
        values.is_empty() || values.iter().flatten().any(|&of| of & 0x7ff == position)
    };
    // A clause of one value makes the row required, so the row is shown under this clause and not
    // under a clause of several values.
    let single = query.clauses().iter().position(|values| values.len() < 2 && needs(values));
    let clause = single.or_else(|| query.clauses().iter().position(needs)).unwrap_or(0);
    ExplainedRow { position, clause, sections: 0, full_sections: 0, ones: 0, of: 0, bytes: 0 }
}

/// Returns the rows in reading order.
fn in_order(plan: &Plan, rows: &[ExplainedRow]) -> Vec<ExplainedRow> {
    let ones = |row: &u16| rows[usize::from(*row)].ones;
    let mut order = plan.required.clone();
    order.sort_by_key(ones);
    for values in &plan.clauses {
        let blocks = |rows: &[u16; 3]| rows.iter().map(|row| ones(row) as f64).product::<f64>();
        let mut values = values.clone();
        values.sort_by(|a, b| blocks(b).total_cmp(&blocks(a)));
        order.extend(values.iter().flatten());
    }
    let mut seen = alloc::vec![false; rows.len()];
    order.retain(|&row| !core::mem::replace(&mut seen[usize::from(row)], true));
    order.iter().map(|&row| rows[usize::from(row)]).collect()
}
