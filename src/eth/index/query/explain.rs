//! What a query will read, told from the directory alone.

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

/// What a query reads of an index, and what is to be expected of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The rows, in the order in which they are read: first those that every match needs, the one
    /// with fewest bits first; then those of each clause of several values, the values that most
    /// blocks have first. Single segments may take another order.
    pub rows: Vec<ExplainedRow>,
    /// Sections of 8,192 sealed blocks that the range touches.
    pub sections: u64,
    /// Those of them in which a row that the query needs has no bit: nothing of them is read.
    pub skipped_sections: u64,
    /// Bytes of rows that are read at most. They are fewer where no candidate is left, or every
    /// block has a value of a clause, before all rows are read.
    pub bytes: u64,
    /// Blocks behind the sealed ones, whose filters are tested one by one.
    pub unsealed_blocks: u64,
    /// How many blocks will be candidates by chance if none holds a match, as
    /// [`expected_false`] says it of how full the filters are; of a section that the range only
    /// touches, in proportion.
    pub expected_false: f64,
}

/// A row that a query needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedRow {
    /// The bit of the filters, 0 to 2047, as the Yellow Paper counts them.
    pub position: u16,
    /// The first clause that needs it, of [`CompiledQuery::clauses`].
    pub clause: usize,
    /// Sections in which it is read.
    pub sections: u64,
    /// Sections in which all blocks have the bit, so that there is nothing to read.
    pub full_sections: u64,
    /// Blocks that have the bit, in the sections that are not skipped.
    pub ones: u64,
    /// Blocks of the sections that are not skipped.
    pub of: u64,
    /// Bytes that are read.
    pub bytes: u64,
}

impl ExplainedRow {
    /// The share of blocks that have the bit, 0 to 1; 0 if all sections are skipped.
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
    /// What a query over a range will read, and what is to be expected of it.
    ///
    /// # Errors
    /// Blocks that the index doesn't have, damage, or of the storage.
    ///
    /// # Cost
    /// No row is read: the directory's entries of the query's rows, and 4.5 kB for each section.
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

/// A row of which nothing is known yet.
fn new_row(query: &CompiledQuery, position: u16) -> ExplainedRow {
    let needs = |values: &Vec<[u16; 3]>| {
        values.is_empty() || values.iter().flatten().any(|&of| of & 0x7ff == position)
    };
    // A clause of one value needs the row of every match.
    let single = query.clauses().iter().position(|values| values.len() < 2 && needs(values));
    let clause = single.or_else(|| query.clauses().iter().position(needs)).unwrap_or(0);
    ExplainedRow { position, clause, sections: 0, full_sections: 0, ones: 0, of: 0, bytes: 0 }
}

/// The rows in the order in which they are read.
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
