//! Plans of queries: the rows that each query needs.

use alloc::vec::Vec;

use crate::eth::bloom::{BITS, BitPositions};
use crate::eth::log_query::CompiledQuery;

/// The three rows of a value, as indices into the sorted rows of all queries of a pass.
pub(super) type ValueRows = [u16; 3];

/// A query, expressed by the rows that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// The rows that every match needs.
    pub(super) required: Vec<u16>,
    /// Clauses of several values. A clause is left out if every filter with all required bits
    /// passes it.
    pub(super) clauses: Vec<Vec<ValueRows>>,
    /// `true` if a clause has no value: only filters with all bits set pass, so all rows are
    /// required.
    pub(super) impossible: bool,
}

/// Returns the sorted positions of all rows that the queries need, and the plan of each query.
pub(super) fn plans(queries: &[CompiledQuery]) -> (Vec<u16>, Vec<Plan>) {
    let mut positions: Vec<u16> = Vec::new();
    let all = 0..u16::try_from(BITS).expect("2,048");
    for query in queries {
        if query.clauses().iter().any(Vec::is_empty) {
            positions.extend(all.clone());
        } else {
            positions.extend(query.clauses().iter().flatten().flatten().copied().map(in_filter));
        }
        positions.sort_unstable();
        positions.dedup();
    }
    let row = |position: &u16| {
        let at = positions.binary_search(&in_filter(*position)).expect("one of all");
        u16::try_from(at).expect("below 2,048")
    };
    let plan = |query: &CompiledQuery| {
        let impossible = query.clauses().iter().any(Vec::is_empty);
        if impossible {
            let required = all.clone().map(|position| row(&position)).collect();
            return Plan { required, clauses: Vec::new(), impossible };
        }
        let single = |values: &&Vec<_>| values.len() == 1;
        let required = distinct(query.clauses().iter().filter(single).flatten().flatten().map(row));
        let mut clauses = Vec::new();
        for values in query.clauses().iter().filter(|values| !single(values)) {
            let value = |value: &BitPositions| {
                let mut rows = value.each_ref().map(row);
                rows.sort_unstable();
                rows
            };
            let mut values: Vec<_> = values.iter().map(value).collect();
            values.sort_unstable();
            values.dedup();
            let required = |row: &u16| required.binary_search(row).is_ok();
            if !values.iter().any(|rows| rows.iter().all(required)) {
                clauses.push(values);
            }
        }
        Plan { required, clauses, impossible }
    };
    let plans = queries.iter().map(plan).collect();
    (positions, plans)
}

/// Reduces a position to its lowest eleven bits, because a filter has 2,048 bits.
fn in_filter(position: u16) -> u16 {
    position & 0x7ff
}

fn distinct(rows: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut rows: Vec<u16> = rows.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}
