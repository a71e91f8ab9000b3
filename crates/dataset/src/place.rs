//! Where rows and cells come from.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A table of a data set.
///
/// `serde` and `Display` write the name in lower case, for example `logs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Table {
    /// Headers.
    Blocks,
    /// Transactions, which have the fields of receipts in most data sets.
    Transactions,
    /// Receipts, if they are not part of the transactions.
    Receipts,
    /// Logs.
    Logs,
}

impl Table {
    pub(crate) const ALL: [Self; 4] =
        [Self::Blocks, Self::Transactions, Self::Receipts, Self::Logs];

    /// Returns the name, for example `logs`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Transactions => "transactions",
            Self::Receipts => "receipts",
            Self::Logs => "logs",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A row of a file.
///
/// `Display` writes table, file and row, for example `logs, logs_17.parquet, row 3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// The table.
    pub table: Table,
    /// The name that the caller gave to the file.
    pub file: String,
    /// The row of the stream, counted from 0.
    pub row: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, row {}", self.table, self.file, self.row)
    }
}

/// A kind of rows or cells that were found, how many, and where the first one is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Found {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub first: Place,
}

/// Cells that can't be read, by the name of their column: the number of them, and the first one's row.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    pub(crate) by_column: BTreeMap<&'static str, (u64, usize)>,
}

impl Cells {
    pub(crate) fn unreadable(&mut self, column: &'static str, row: usize) {
        self.by_column.entry(column).or_insert((0, row)).0 += 1;
    }
}
