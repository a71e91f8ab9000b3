//! The rows of a block: those that are its own, in the order of the block, with whole indices.

use alloc::vec::Vec;
use core::cmp::Ordering;

use alloy_primitives::B256;

use super::verdict::{BlockVerdict, Check, Row};
use super::{BlockColumns, LogRow, TransactionRow};

/// The rows of a block that are verified, each once, in the order of the block.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    /// `None` if the data set does not have the table.
    pub(super) transactions: Option<Vec<(usize, &'a TransactionRow<'a>)>>,
    /// `None` if the data set does not have the table.
    pub(super) logs: Option<Vec<(usize, &'a LogRow<'a>)>>,
    /// Transactions are numbered from 0 on, so each is at its index.
    pub(super) has_whole_transactions: bool,
    /// No index is missing, as far as there are indices.
    pub(super) has_whole_indices: bool,
}

impl<'a> Rows<'a> {
    /// `commits` is `true` if the header commits to all rows of the block, so that they are numbered by
    /// their receipts. `is_trusted` is `true` if the hash of the block is that of a trusted header.
    pub(super) fn of(
        block: &BlockColumns<'a>,
        commits: bool,
        is_trusted: bool,
        verdict: &mut BlockVerdict,
    ) -> Self {
        let hash = verdict.hash;
        // Some chains do not hash the encoding of a header. But a source does not contradict itself.
        let is_hash = commits || !is_trusted;
        let is_own = |named: Option<&[u8]>| {
            named.is_none_or(|named| hash.is_none_or(|hash| named == &hash[..]))
        };
        let transactions = block.transactions.map(|rows| {
            let mut rows: Vec<_> = rows.iter().enumerate().collect();
            keep_own(&mut rows, |row| is_own(row.block_hash), Row::Transactions, is_hash, verdict);
            let key = |row: &TransactionRow<'_>| (row.transaction_index, row.transaction_index);
            sort_distinct(&mut rows, key, true, Row::Transactions, verdict);
            rows
        });
        let logs = block.logs.map(|rows| {
            if let Some(removed) = rows.iter().position(|row| row.is_removed) {
                verdict.fault(Check::Removed, Some(Row::Logs(removed)));
            }
            let mut rows: Vec<_> = rows.iter().enumerate().collect();
            rows.retain(|(_, row)| !row.is_removed);
            keep_own(&mut rows, |row| is_own(row.block_hash), Row::Logs, is_hash, verdict);
            let key = |row: &LogRow<'_>| (row.transaction_index, row.log_index);
            sort_distinct(&mut rows, key, commits, Row::Logs, verdict);
            // The place of a log of an unknown transaction is only in its own index.
            if rows.iter().any(|(_, row)| row.transaction_index.is_none()) {
                rows.sort_by_key(|(_, row)| row.log_index);
            }
            rows
        });
        let mut rows = Self { transactions, logs, ..Self::default() };
        if hash.is_none() {
            rows.check_block_hash(verdict);
        }
        rows.check_indices(block.is_filtered, commits, verdict);
        rows.check_cells(commits, verdict);
        rows
    }

    /// Returns `true` if there is no row at all.
    pub(super) fn is_empty(&self) -> bool {
        self.transactions.iter().flatten().next().is_none()
            && self.logs.iter().flatten().next().is_none()
    }

    /// Rows of a block without a hash must at least name one block.
    fn check_block_hash(&self, verdict: &mut BlockVerdict) {
        let transactions = self.transactions.iter().flatten().map(|(_, row)| row.block_hash);
        let logs = self.logs.iter().flatten().map(|(_, row)| row.block_hash);
        let mut named = transactions.chain(logs).flatten();
        let Some(first) = named.next() else { return };
        if named.any(|other| other != first) {
            verdict.fault(Check::BlockHash, None);
        } else {
            verdict.named_by_rows = B256::try_from(first).ok();
        }
    }

    fn check_indices(&mut self, is_filtered: bool, commits: bool, verdict: &mut BlockVerdict) {
        let gap = |verdict: &mut BlockVerdict, check, row| {
            if is_filtered {
                verdict.lacks(check, "rows");
            } else {
                verdict.fault_if(commits, check, Some(row), None);
            }
        };
        self.has_whole_indices = true;
        if let Some(rows) = &self.transactions {
            let is_numbered = rows.iter().all(|(_, row)| row.transaction_index.is_some());
            let first = first_gap(rows, |row| row.transaction_index);
            if let Some(row) = first {
                gap(verdict, Check::TransactionIndex, Row::Transactions(row));
            } else if !is_numbered {
                verdict.lacks(Check::TransactionIndex, "transactions.transaction_index");
            }
            // Rows without an index are taken as ordered.
            self.has_whole_transactions = first.is_none() || !is_numbered;
            self.has_whole_indices = first.is_none() && is_numbered;
            // A log shows that its transaction is missing.
            let count = rows.len() as u64;
            let is_behind =
                |row: &LogRow<'_>| row.transaction_index.is_some_and(|index| index >= count);
            let logs = self.logs.iter().flatten();
            if let Some((row, _)) = logs.clone().find(|(_, row)| is_behind(row))
                && first.is_none()
            {
                gap(verdict, Check::TransactionIndex, Row::Logs(*row));
                self.has_whole_indices = false;
            }
        }
        let Some(rows) = &self.logs else {
            verdict.lacks(Check::LogIndex, "logs");
            self.has_whole_indices = false;
            return;
        };
        let is_numbered = rows.iter().all(|(_, row)| row.log_index.is_some());
        let first = first_gap(rows, |row| row.log_index);
        if let Some(row) = first {
            gap(verdict, Check::LogIndex, Row::Logs(row));
        } else if !is_numbered {
            verdict.lacks(Check::LogIndex, "logs.log_index");
        }
        self.has_whole_indices &= first.is_none() && is_numbered;
    }

    /// Checks topics, the lengths of cells, and the hashes of transactions.
    fn check_cells(&self, commits: bool, verdict: &mut BlockVerdict) {
        let is_hash = |cell: Option<&[u8]>| cell.is_none_or(|it| it.len() == 32);
        let mut check = |row, column| {
            verdict.fault_if(commits, Check::Cells, Some(row), Some(column));
        };
        let transactions = || self.transactions.iter().flatten();
        if let Some((row, _)) = transactions().find(|(_, row)| !is_hash(row.hash)) {
            check(Row::Transactions(*row), "transactions.hash");
        }
        if let Some((row, _)) = transactions().find(|(_, row)| !is_hash(row.block_hash)) {
            check(Row::Transactions(*row), "transactions.block_hash");
        }
        let logs = || self.logs.iter().flatten();
        if let Some((row, _)) = logs().find(|(_, row)| !is_hash(row.transaction_hash)) {
            check(Row::Logs(*row), "logs.transaction_hash");
        }
        if let Some((row, _)) = logs().find(|(_, row)| !is_hash(row.block_hash)) {
            check(Row::Logs(*row), "logs.block_hash");
        }
        let is_address = |row: &LogRow<'_>| row.address.is_none_or(|it| it.len() == 20);
        if let Some((row, _)) = logs().find(|(_, row)| !is_address(row)) {
            check(Row::Logs(*row), "logs.address");
        }
        let has_topics = |row: &LogRow<'_>| row.topics.iter().flatten().all(|it| is_hash(*it));
        if let Some((row, _)) = logs().find(|(_, row)| !has_topics(row)) {
            check(Row::Logs(*row), "logs.topics");
        }
        let has_gap = |row: &LogRow<'_>| {
            row.topics.is_some_and(|topics| !topics.is_sorted_by_key(Option::is_none))
        };
        if let Some((row, _)) = logs().find(|(_, row)| has_gap(row)) {
            verdict.fault(Check::Topics, Some(Row::Logs(*row)));
        }
        let is_other = |row: &LogRow<'_>| {
            let transaction = row.transaction_index.and_then(|index| self.transaction(index));
            let hash = transaction.and_then(|transaction| transaction.hash);
            hash.zip(row.transaction_hash).is_some_and(|(one, other)| one != other)
        };
        if let Some((row, _)) = logs().find(|(_, row)| is_other(row)) {
            // On other chains, the indices of transactions may have another numbering.
            verdict.fault_if(commits, Check::TransactionHash, Some(Row::Logs(*row)), None);
        }
    }

    fn transaction(&self, index: u64) -> Option<&'a TransactionRow<'a>> {
        let rows = self.transactions.as_ref()?;
        let is_it = |row: &TransactionRow<'_>| row.transaction_index == Some(index);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let whole = rows.get(at).filter(|(_, row)| is_it(row));
        let found = whole.or_else(|| {
            let at = rows.binary_search_by_key(&Some(index), |(_, row)| row.transaction_index);
            rows.get(at.ok()?)
        });
        found.map(|(_, row)| *row)
    }
}

/// Removes the rows of another block at the same height.
fn keep_own<T>(
    rows: &mut Vec<(usize, &T)>,
    is_own: impl Fn(&T) -> bool,
    place: fn(usize) -> Row,
    is_hash: bool,
    verdict: &mut BlockVerdict,
) {
    let Some((other, _)) = rows.iter().find(|(_, row)| !is_own(row)) else { return };
    verdict.fault_if(is_hash, Check::BlockHash, Some(place(*other)), None);
    // If no row has the hash of the block, it is rather the hash that is wrong.
    if rows.iter().any(|(_, row)| is_own(row)) {
        rows.retain(|(_, row)| is_own(row));
    }
}

/// Sorts rows by a key, whose second part is the row's own index, and removes copies.
///
/// Rows without an index keep their order, and equal ones among them are no copies: a transaction can
/// emit the same log twice. Neither are those of an unknown transaction, unless `is_whole`: indices are then
/// those of the whole block.
fn sort_distinct<T: Ord>(
    rows: &mut Vec<(usize, &T)>,
    key: fn(&T) -> (Option<u64>, Option<u64>),
    is_whole: bool,
    place: fn(usize) -> Row,
    verdict: &mut BlockVerdict,
) {
    rows.sort_by(|(_, one), (_, other)| {
        let order = key(one).cmp(&key(other));
        // Rows with one index are sorted by content, so that copies are neighbours.
        order.then_with(|| if key(one).1.is_some() { one.cmp(other) } else { Ordering::Equal })
    });
    let mut copy = None;
    rows.dedup_by(|(row, one), (_, kept)| {
        let (of, own) = key(one);
        let is_copy = own.is_some() && (of.is_some() || is_whole) && one == kept;
        copy = copy.or(is_copy.then_some(*row));
        is_copy
    });
    if let Some(row) = copy {
        verdict.fault(Check::Copies, Some(place(row)));
    }
}

/// Returns the first row whose number is not its position, or cannot be one if rows without a number are
/// among them.
fn first_gap<T>(rows: &[(usize, &T)], number: impl Fn(&T) -> Option<u64>) -> Option<usize> {
    let count = rows.len() as u64;
    let is_numbered = rows.iter().all(|(_, row)| number(row).is_some());
    let is_gap = |(position, (_, row)): &(u64, &(usize, &T))| {
        number(row).is_some_and(
            |number| {
                if is_numbered { number != *position } else { number >= count }
            },
        )
    };
    (0..).zip(rows).find(is_gap).map(|(_, (row, _))| *row)
}
