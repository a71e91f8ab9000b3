//! The rows of a block, as they wait for the other tables.

use chainsieve::alloy_primitives::U256;
use chainsieve::eth::columns::{Cell, HeaderRow, LogRow, TransactionRow};

/// Bytes of a cell, which are in the [`Group`] of its row. A range of `usize` would be twice as large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// No column, or a null.
    pub(crate) const NONE: Self = Self { start: u32::MAX, end: 0 };

    pub(crate) fn new(start: usize, end: usize) -> Self {
        match (start.try_into(), end.try_into()) {
            (Ok(start), Ok(end)) => Self { start, end },
            // The table of a block has 4 GiB: its rows are undecided.
            _ => Self::NONE,
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(self.start as usize..self.end as usize)
    }

    fn cell(cell: Cell<Self>, bytes: &[u8]) -> Cell<&[u8]> {
        match cell {
            Cell::NoColumn => Cell::NoColumn,
            Cell::Null => Cell::Null,
            Cell::Value(span) => span.of(bytes).map_or(Cell::NoColumn, Cell::Value),
        }
    }
}

/// The rows of a block in one table.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The bytes of all cells.
    pub(crate) bytes: Vec<u8>,
    pub(crate) headers: Vec<StoredHeader>,
    pub(crate) transactions: Vec<StoredTransaction>,
    pub(crate) logs: Vec<StoredLog>,
    /// File and row of each row.
    pub(crate) places: Vec<(u32, u64)>,
}

impl Group {
    /// Returns the bytes of memory that the group has.
    pub(crate) fn memory(&self) -> usize {
        fn of<T>(rows: &Vec<T>) -> usize {
            rows.capacity() * size_of::<T>()
        }
        size_of::<Self>()
            + of(&self.bytes)
            + of(&self.headers)
            + of(&self.transactions)
            + of(&self.logs)
            + of(&self.places)
    }

    pub(crate) fn rows(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn headers(&self, amsterdam: Amsterdam, is_trusted: bool) -> Vec<HeaderRow<'_>> {
        self.headers.iter().map(|row| row.row(&self.bytes, amsterdam, is_trusted)).collect()
    }

    pub(crate) fn transactions(&self) -> Vec<TransactionRow<'_>> {
        self.transactions.iter().map(|row| row.row(&self.bytes)).collect()
    }

    pub(crate) fn logs(&self) -> Vec<LogRow<'_>> {
        self.logs.iter().map(|row| row.row(&self.bytes)).collect()
    }
}

/// What the caller says of a block's fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amsterdam {
    Precedes,
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) struct StoredHeader {
    pub(crate) hash: Span,
    pub(crate) parent_hash: Span,
    pub(crate) sha3_uncles: Span,
    /// The cell may have the hash of an uncle instead.
    pub(crate) has_doubtful_uncles: bool,
    pub(crate) miner: Span,
    pub(crate) state_root: Span,
    pub(crate) transactions_root: Span,
    pub(crate) receipts_root: Span,
    pub(crate) logs_bloom: Span,
    pub(crate) difficulty: Option<U256>,
    pub(crate) gas_limit: Option<u64>,
    pub(crate) gas_used: Option<u64>,
    pub(crate) timestamp: Option<u64>,
    pub(crate) extra_data: Span,
    pub(crate) mix_hash: Span,
    pub(crate) nonce: Span,
    pub(crate) base_fee_per_gas: Cell<U256>,
    pub(crate) withdrawals_root: Cell<Span>,
    pub(crate) blob_gas_used: Cell<u64>,
    pub(crate) excess_blob_gas: Cell<u64>,
    pub(crate) parent_beacon_block_root: Cell<Span>,
    pub(crate) requests_hash: Cell<Span>,
    pub(crate) block_access_list_hash: Cell<Span>,
    pub(crate) slot_number: Cell<u64>,
    pub(crate) transaction_count: Option<u64>,
}

impl StoredHeader {
    fn row<'a>(&self, bytes: &'a [u8], amsterdam: Amsterdam, is_trusted: bool) -> HeaderRow<'a> {
        // A null in a column of an earlier fork shows that the block precedes the later forks, too.
        let precedes = amsterdam == Amsterdam::Precedes
            || self.base_fee_per_gas == Cell::Null
            || self.withdrawals_root == Cell::Null
            || self.requests_hash == Cell::Null;
        // A trusted header has the true value, so a doubtful one is not compared with it.
        let is_left_out = self.has_doubtful_uncles && is_trusted;
        HeaderRow {
            hash: self.hash.of(bytes),
            parent_hash: self.parent_hash.of(bytes),
            sha3_uncles: self.sha3_uncles.of(bytes).filter(|_| !is_left_out),
            miner: self.miner.of(bytes),
            state_root: self.state_root.of(bytes),
            transactions_root: self.transactions_root.of(bytes),
            receipts_root: self.receipts_root.of(bytes),
            logs_bloom: self.logs_bloom.of(bytes),
            difficulty: self.difficulty,
            gas_limit: self.gas_limit,
            gas_used: self.gas_used,
            timestamp: self.timestamp,
            extra_data: self.extra_data.of(bytes),
            mix_hash: self.mix_hash.of(bytes),
            nonce: self.nonce.of(bytes),
            base_fee_per_gas: self.base_fee_per_gas,
            withdrawals_root: Span::cell(self.withdrawals_root, bytes),
            blob_gas_used: self.blob_gas_used,
            excess_blob_gas: self.excess_blob_gas,
            parent_beacon_block_root: Span::cell(self.parent_beacon_block_root, bytes),
            requests_hash: Span::cell(self.requests_hash, bytes),
            block_access_list_hash: or_null(
                Span::cell(self.block_access_list_hash, bytes),
                precedes,
            ),
            slot_number: or_null(self.slot_number, precedes),
            transaction_count: self.transaction_count,
        }
    }
}

/// A field that the table lacks is null if its fork has not come.
fn or_null<T>(cell: Cell<T>, precedes: bool) -> Cell<T> {
    if precedes && matches!(cell, Cell::NoColumn) { Cell::Null } else { cell }
}

#[derive(Debug, Clone)]
pub(crate) struct StoredTransaction {
    pub(crate) index: Option<u64>,
    pub(crate) hash: Span,
    pub(crate) block_hash: Span,
    pub(crate) kind: Option<u8>,
    pub(crate) status: Option<bool>,
    pub(crate) root: Span,
    pub(crate) cumulative_gas_used: Option<u64>,
    pub(crate) gas_used: Option<u64>,
    pub(crate) deposit_nonce: Option<u64>,
    pub(crate) deposit_receipt_version: Option<u64>,
}

impl StoredTransaction {
    fn row<'a>(&self, bytes: &'a [u8]) -> TransactionRow<'a> {
        TransactionRow {
            transaction_index: self.index,
            hash: self.hash.of(bytes),
            block_hash: self.block_hash.of(bytes),
            receipt_type: self.kind,
            status: self.status,
            root: self.root.of(bytes),
            cumulative_gas_used: self.cumulative_gas_used,
            gas_used: self.gas_used,
            deposit_nonce: self.deposit_nonce,
            deposit_receipt_version: self.deposit_receipt_version,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct StoredLog {
    pub(crate) transaction_index: Option<u64>,
    pub(crate) log_index: Option<u64>,
    pub(crate) transaction_hash: Span,
    pub(crate) block_hash: Span,
    pub(crate) address: Span,
    /// `None` if the table lacks the columns, or if a cell can't be read.
    pub(crate) topics: Option<[Span; 4]>,
    pub(crate) data: Span,
    pub(crate) is_removed: bool,
}

impl StoredLog {
    fn row<'a>(&self, bytes: &'a [u8]) -> LogRow<'a> {
        LogRow {
            transaction_index: self.transaction_index,
            log_index: self.log_index,
            transaction_hash: self.transaction_hash.of(bytes),
            block_hash: self.block_hash.of(bytes),
            address: self.address.of(bytes),
            topics: self.topics.map(|topics| topics.map(|topic| topic.of(bytes))),
            data: self.data.of(bytes),
            is_removed: self.is_removed,
        }
    }
}
