//! What the columns of a block show.

use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::B256;
use chainsieve_lanes::names;

use super::BlockColumns;
use crate::eth::header::BlockRef;

/// What the columns of a block prove together.
///
/// `serde` and `Display` write the [name](Self::name), for example `consistent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The rows are exactly the receipts and logs under the receipts root of a header whose hash was
    /// recomputed or anchored, or which is trusted. [`BlockVerdict::header`] says which of these.
    Complete,
    /// The rows have the receipts root of the table of blocks, but nothing authenticates that column.
    /// Accidents show, but a forgery of both tables does not.
    Consistent,
    /// The logs have exactly the bits of the filter, and no index is missing. Most single logs could be
    /// left out without a change of the filter.
    Bloom,
    /// No index is missing, up to the last row.
    Indices,
    /// Nothing is proven. [`BlockVerdict::missing`] has the columns that the checks lack.
    Undecided,
    /// A check failed, which no honest source can cause. [`BlockVerdict::faults`] has the checks.
    Wrong,
}

names! {
    Grade, "a grade of a block's columns":
    Complete = "complete", Consistent = "consistent", Bloom = "bloom", Indices = "indices",
    Undecided = "undecided", Wrong = "wrong",
}

/// What the header of a block rests on.
///
/// `serde` and `Display` write the [name](Self::name), for example `recomputed`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum HeaderBasis {
    /// Columns that nothing authenticates, or no columns at all.
    Unproven,
    /// The columns hash to the block hash in the data set. A consistent forgery, or a block of another
    /// branch, passes this check.
    Recomputed,
    /// The columns hash to what a trusted block names, over parent hashes.
    Anchored,
    /// The caller trusts the header.
    Trusted,
}

names! {
    HeaderBasis, "a basis of a header":
    Unproven = "unproven", Recomputed = "recomputed", Anchored = "anchored", Trusted = "trusted",
}

/// A check of a block's columns.
///
/// `serde` and `Display` write the [name](Self::name), for example `receipts_root`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// The table of blocks has one row of the block.
    HeaderRow,
    /// The header's columns hash to the hash column, and this is the trusted header's.
    HeaderHash,
    /// Each column of the header equals the trusted header's field.
    HeaderColumns,
    /// The parent hash is the hash of a row of the preceding block. If not, one of the two blocks is at fault,
    /// but it is noted at the later one. A block with a trusted header is not at fault.
    ParentLink,
    /// The block's hash is the one that the trusted block names, over parent hashes, or that a trusted header of
    /// the following block names.
    Anchor,
    /// All rows have the hash of the block, or one hash if none is known.
    BlockHash,
    /// No row is a copy of another one. Copies are left out of the other checks.
    Copies,
    /// No log is marked as removed. Removed logs are left out of the other checks.
    Removed,
    /// Transactions are numbered from 0 without gaps, and every log is of one of them.
    TransactionIndex,
    /// The number of transactions is the one of the table of blocks.
    TransactionCount,
    /// Logs are numbered over the whole block from 0 without gaps, in the order of the transactions. The
    /// receipts root covers their order, but not their numbers.
    LogIndex,
    /// Each log has the hash of its transaction.
    TransactionHash,
    /// No topic follows an absent topic.
    Topics,
    /// Each cell with a hash, an address, a filter, a nonce or a post-state has the length of its field.
    Cells,
    /// The filter has the bits of the logs.
    LogsBloom,
    /// The rows have the receipts root.
    ReceiptsRoot,
}

names! {
    Check, "a check of a block's columns":
    HeaderRow = "header_row", HeaderHash = "header_hash", HeaderColumns = "header_columns",
    ParentLink = "parent_link", Anchor = "anchor", BlockHash = "block_hash", Copies = "copies",
    Removed = "removed", TransactionIndex = "transaction_index",
    TransactionCount = "transaction_count", LogIndex = "log_index",
    TransactionHash = "transaction_hash", Topics = "topics", Cells = "cells",
    LogsBloom = "logs_bloom", ReceiptsRoot = "receipts_root",
}

/// A row of a block, by its index in the slice that the caller passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "table", content = "row", rename_all = "snake_case")]
pub enum Row {
    /// A row of the table of blocks.
    Headers(usize),
    /// A row of the table of transactions.
    Transactions(usize),
    /// A row of the table of logs.
    Logs(usize),
}

/// Writes table and index, for example `logs row 3`.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Headers(row) => write!(f, "headers row {row}"),
            Self::Transactions(row) => write!(f, "transactions row {row}"),
            Self::Logs(row) => write!(f, "logs row {row}"),
        }
    }
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The check.
    pub check: Check,
    /// The first row that fails the check, in the order of the block. Where two columns differ, the other one
    /// may be at fault. `None` if the check is not about a row: a root that differs does not say where.
    #[serde(flatten)]
    pub row: Option<Row>,
    /// The column, if the check is about one column of several, for example `headers.timestamp`.
    pub column: Option<&'static str>,
}

/// A check that the columns could not decide.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Missing {
    /// The check.
    pub check: Check,
    /// The table or column that it lacks, for example `logs` or `headers.mix_hash`; `profile` if the
    /// profile of the chain is unknown or says that the header does not commit to the rows; `rows` if the
    /// rows are a selection.
    pub column: &'static str,
}

/// What the columns of a block show.
///
/// # JSON
/// `serde` writes an object with the fields of this struct.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[must_use]
pub struct BlockVerdict {
    /// Number of the block.
    pub number: u64,
    /// What is proven, or that something is wrong.
    pub grade: Grade,
    /// The proof of the header.
    pub header: HeaderBasis,
    /// `true` if the rows have the receipts root of the header: their content and order is complete, even
    /// if another check, for example of the numbers of logs, failed.
    pub receipts_root: bool,
    /// Hash of the block: of the trusted header, or the one in the column, or the one that [`anchor`] tied.
    pub hash: Option<B256>,
    /// Parent hash: of the trusted header, or the one in the column.
    pub parent_hash: Option<B256>,
    /// The checks that failed.
    pub faults: Vec<Fault>,
    /// The checks of header hash, indices, filter and receipts root that are undecided, each with the column
    /// that it lacks; of other checks, those that failed for a reason that may be honest. A check that
    /// compares two columns is left out here if one of them is absent.
    pub missing: Vec<Missing>,
    /// What the columns hash to, if no hash column differs. Other fields may be absent, so that only
    /// equality with a hash from elsewhere shows anything.
    #[serde(skip)]
    pub(super) computed: Option<B256>,
    /// The hash that all rows name, if the block has no hash that was compared with it.
    #[serde(skip)]
    pub(super) named_by_rows: Option<B256>,
}

impl BlockVerdict {
    pub(super) fn fault(&mut self, check: Check, row: Option<Row>) {
        self.fault_of(check, row, None);
    }

    pub(super) fn fault_of(
        &mut self,
        check: Check,
        row: Option<Row>,
        column: Option<&'static str>,
    ) {
        self.faults.push(Fault { check, row, column });
        self.grade = Grade::Wrong;
    }

    /// Notes a fault if the header commits to the rows. On other chains, honest sources may have it.
    pub(super) fn fault_if(
        &mut self,
        commits: bool,
        check: Check,
        row: Option<Row>,
        column: Option<&'static str>,
    ) {
        if commits {
            self.fault_of(check, row, column);
        } else {
            self.lacks(check, "profile");
        }
    }

    pub(super) fn lacks(&mut self, check: Check, column: &'static str) {
        let missing = Missing { check, column };
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}

/// Writes number and grade, and then the failed checks with their rows, or the columns that are missing.
impl fmt::Display for BlockVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: {}", self.number, self.grade)?;
        let mut before = ": ";
        for Fault { check, row, column } in &self.faults {
            write!(f, "{before}{check}")?;
            if let Some(column) = column {
                write!(f, " of {column}")?;
            }
            if let Some(row) = row {
                write!(f, " at {row}")?;
            }
            before = ", ";
        }
        match self.grade {
            Grade::Wrong if self.receipts_root => write!(f, "; the receipts root is equal"),
            Grade::Wrong => Ok(()),
            Grade::Complete => write!(f, ", header {}", self.header),
            _ => {
                for Missing { check, column } in &self.missing {
                    write!(f, "{before}{check} needs {column}")?;
                    before = ", ";
                }
                Ok(())
            }
        }
    }
}

/// Compares the parent hash of each block with the hashes of the preceding block's rows.
///
/// A trusted block is not at fault, so the preceding one is. The preceding block may be there several times, for
/// example with a block that left the chain: any of them may be the parent, and one without a hash, too. The
/// block itself may be there several times, too, and each is compared.
pub(super) fn link(blocks: &[BlockColumns<'_>], verdicts: &mut [BlockVerdict]) {
    let mut rows = blocks.iter().map(|columns| columns.headers.unwrap_or_default());
    let mut before: &mut [BlockVerdict] = &mut [];
    let (mut parents, mut is_known) = (Vec::new(), false);
    for siblings in verdicts.chunk_by_mut(|block, other| block.number == other.number) {
        let below = siblings[0].number.checked_sub(1);
        if below.is_some() && before.first().map(|parent| parent.number) == below {
            parents.sort_unstable();
            let is_trusted = |block: &BlockVerdict| block.header == HeaderBasis::Trusted;
            let mut by_trusted = Vec::new();
            for block in siblings.iter_mut() {
                let Some(named) = block.parent_hash else { continue };
                if is_trusted(block) {
                    by_trusted.push(named);
                } else if is_known && parents.binary_search(&named).is_err() {
                    block.fault(Check::ParentLink, None);
                }
            }
            by_trusted.sort_unstable();
            let is_other = |hash: B256| by_trusted.binary_search(&hash).is_err();
            // Two trusted headers may contradict each other.
            for parent in before.iter_mut().filter(|it| !by_trusted.is_empty() && !is_trusted(it)) {
                if parent.hash.is_some_and(is_other) {
                    parent.fault(Check::Anchor, None);
                }
            }
        }
        is_known = siblings.iter().all(|block| block.hash.is_some());
        let of_rows = rows.by_ref().take(siblings.len()).flatten();
        let of_rows = of_rows.filter_map(|row| B256::try_from(row.hash?).ok());
        parents = siblings.iter().filter_map(|block| block.hash).chain(of_rows).collect();
        before = siblings;
    }
}

/// Ties blocks to a trusted block, over their parent hashes, and returns the number of blocks that are tied.
///
/// `verdicts` are those of ascending blocks, and the trusted block is one of them. Blocks are tied downwards
/// from the trusted block, as long as none is absent and their columns hash to what is named. Their header
/// becomes [`Anchored`](HeaderBasis::Anchored), and a consistent block becomes complete. A block with
/// another hash than the one that is named gets the fault [`Anchor`](Check::Anchor). If it has no hash
/// column, its columns may not be all fields of the header, so that the check is only undecided.
///
/// A data set that is verified in parts is anchored from its last part to its first: the parent hash of
/// the first block of a part is the trusted hash of the last block of the part before.
///
/// # Examples
/// ```
/// use chainsieve::alloy_primitives::B256;
/// use chainsieve::eth::columns::{BlockColumns, Check, HeaderRow, anchor, verify};
/// use chainsieve::eth::header::BlockRef;
///
/// let rows = [HeaderRow { hash: Some(&[1; 32]), ..HeaderRow::default() }];
/// let blocks = [BlockColumns { number: 7, headers: Some(&rows), ..BlockColumns::default() }];
/// let mut verdicts = verify(&blocks, None);
/// let trusted = BlockRef { number: 7, hash: B256::repeat_byte(2) };
/// assert_eq!(anchor(&mut verdicts, trusted), 0);
/// assert_eq!(verdicts[0].faults[0].check, Check::Anchor);
/// ```
pub fn anchor(verdicts: &mut [BlockVerdict], trusted: BlockRef) -> usize {
    let (mut number, mut named, mut tied) = (trusted.number, trusted.hash, 0);
    let last = verdicts.iter().rposition(|verdict| verdict.number == number);
    for verdict in verdicts[..last.map_or(0, |last| last + 1)].iter_mut().rev() {
        let hash = verdict.hash.or(verdict.computed).filter(|_| verdict.number == number);
        let Some(hash) = hash else { break };
        if hash != named {
            if verdict.hash.is_some() {
                verdict.fault(Check::Anchor, None);
            } else {
                verdict.lacks(Check::Anchor, "headers.hash");
            }
            break;
        }
        if verdict.header != HeaderBasis::Trusted {
            if verdict.computed.is_none() {
                break;
            }
            verdict.header = HeaderBasis::Anchored;
            verdict.hash = Some(named);
            if verdict.named_by_rows.take().is_some_and(|by_rows| by_rows != named) {
                verdict.fault(Check::BlockHash, None);
            }
            if verdict.grade == Grade::Consistent {
                verdict.grade = Grade::Complete;
            }
        }
        tied += 1;
        let (Some(parent), Some(below)) = (verdict.parent_hash, number.checked_sub(1)) else {
            break;
        };
        (named, number) = (parent, below);
    }
    tied
}
