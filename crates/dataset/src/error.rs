//! What ends a verification.

use crate::place::{Place, Table};

/// Why a verification can't go on. Nothing that a file contains causes one, except its order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row comes after rows of later blocks, although the tables are read in the order of blocks. Verdicts of
    /// its block, if there are any, lack the row, so all verdicts of this verification are void.
    #[error(
        "{place}: block {number} comes after block {after}. Sort the table, for example with \
         `SELECT * FROM {} ORDER BY {}`, or pass all rows with `Order::Any` and a buffer that has room for them",
        place.table, order_by(place.table)
    )]
    OutOfOrder {
        /// The row.
        place: Place,
        /// Number of its block.
        number: u64,
        /// The later block that came before.
        after: u64,
    },
    /// The rows that wait for their block need more memory than the buffer may have.
    #[error(
        "{table}: rows that wait for the rest of their blocks need more than {limit} bytes{}. Sort the tables, \
         for example with `SELECT * FROM {table} ORDER BY {}`, and pass `Order::Blocks`; or pass files of \
         ascending blocks with `Order::Files`; or allow more with `buffer`",
        reason(unsorted.as_ref()), order_by(*table)
    )]
    BufferFull {
        /// The table with most of these rows.
        table: Table,
        /// The bytes that the buffer may have.
        limit: usize,
        /// The first row that comes after one of a later block, if there is one.
        unsorted: Option<Place>,
    },
    /// The headers of a file can't be decoded.
    #[error("headers, byte {offset}: {reason}")]
    Headers {
        /// Where the first header that can't be decoded begins.
        offset: usize,
        /// What is wrong with it.
        reason: String,
    },
}

fn order_by(table: Table) -> &'static str {
    match table {
        Table::Blocks => "number",
        Table::Transactions | Table::Receipts => "block_number, transaction_index",
        Table::Logs => "block_number, log_index",
    }
}

fn reason(unsorted: Option<&Place>) -> String {
    unsorted.map_or_else(String::new, |place| format!(" (not sorted by block: {place})"))
}
