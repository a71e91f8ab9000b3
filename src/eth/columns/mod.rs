//! Verifies a data set of a chain, block by block, from its columns.
//!
//! A table of logs, as a vendor or an ETL tool publishes it, may lack rows, repeat rows or have changed
//! cells. The receipts root of a header commits to the type, status and gas of every transaction of its
//! block, and to every log in order. So the rows of a block can be proven: they are encoded as receipts, and
//! their root is compared. The header itself is proven by its hash, if all its columns are there, by a
//! chain of parent hashes up to a trusted block ([`anchor`]), or it comes from elsewhere (a file, a node,
//! an index, a light client) in [`BlockColumns::trusted`].
//!
//! The caller reads the files, and decodes cells to bytes and numbers. A column that a table lacks is `None`
//! in every row. [`verify`] never fails: a cell of another length than its field is a fault like any other.
//!
//! # What a verdict claims
//! [`Grade`] has the grades. A fault is reported only if it proves that the rows are wrong: the rows of an
//! honest source with the same columns could not show it. If a root or a hash differs, and a column that is
//! absent could be the reason, the check is listed in [`BlockVerdict::missing`] with this column. Equality is
//! a proof whatever is absent: where a column is absent, its usual value is tried.
//! Checks also stay undecided in these cases, besides that of an absent column:
//!
//! - a block before Byzantium without post-states (column `transactions.root`);
//! - a chain without a profile, or whose receipts root does not cover every log (`profile`);
//! - rows that the caller declares to be a selection ([`BlockColumns::is_filtered`], `rows`);
//! - a header that may have a further field ([`Cell::NoColumn`]);
//! - a block without any row, in a data set without a table of blocks (`headers`): its file may be missing.
//!
//! Not covered by any check here:
//!
//! - the columns of transactions that are not in receipts, among them `transactions.gas_used` beside
//!   `transactions.cumulative_gas_used`;
//! - hashes of transactions, except that `transactions.hash` is compared with `logs.transaction_hash`, if both
//!   tables have indices of transactions;
//! - `transactions.root` after Byzantium, and `transactions.status` before;
//! - `transactions.deposit_nonce` and `transactions.deposit_receipt_version` of other types, and each of them
//!   without the other;
//! - `block_hash` of rows without any hash of the block, except that all rows must have the same;
//! - `headers.hash` and the other columns of a header that is [unproven](HeaderBasis::Unproven), except
//!   those that a check of the rows or of parent hashes needs.
//!
//! # Examples
//! Mainnet block 17,686,111 without its logs' last row:
//! ```
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ethereum/blocks/mainnet_17686111.json");
//! # let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
//! # let bytes = |hex: &serde_json::Value| chainsieve::alloy_primitives::hex::decode(hex.as_str().unwrap());
//! # let header = chainsieve::eth::header::HeaderBuf::from_rlp(bytes(&json["header"])?)?;
//! # let encodings = json["receipts"].as_array().unwrap().iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
//! # let receipts = chainsieve::eth::receipts::BlockReceipts::from_encodings(&encodings)?;
//! # let verified = receipts.verify_block(&header)?;
//! use chainsieve::eth::chain_profile::ChainProfile;
//! use chainsieve::eth::columns::{BlockColumns, Check, Grade, LogRow, TransactionRow};
//! use chainsieve::eth::receipts::Outcome;
//!
//! // Any source of rows will do. Here they come from receipts.
//! let transactions: Vec<_> = (0..)
//!     .zip(receipts.iter())
//!     .map(|(index, receipt)| TransactionRow {
//!         transaction_index: Some(index),
//!         receipt_type: Some(receipt.receipt_type),
//!         status: Some(receipt.outcome == Outcome::Status(true)),
//!         cumulative_gas_used: Some(receipt.cumulative_gas_used),
//!         ..TransactionRow::default()
//!     })
//!     .collect();
//! let found: Vec<_> = verified.receipts().logs().collect();
//! let logs: Vec<_> = found
//!     .iter()
//!     .map(|found| LogRow {
//!         transaction_index: Some(found.transaction_index),
//!         log_index: Some(found.log_index),
//!         address: Some(found.log.address.as_slice()),
//!         topics: Some(std::array::from_fn(|i| found.log.topics().get(i).map(|topic| &topic[..]))),
//!         data: Some(&found.log.data.data),
//!         ..LogRow::default()
//!     })
//!     .collect();
//! let mut block = BlockColumns {
//!     number: 17_686_111,
//!     transactions: Some(&transactions),
//!     logs: Some(&logs),
//!     trusted: Some(&header),
//!     ..BlockColumns::default()
//! };
//! let profile = ChainProfile::ethereum();
//! assert_eq!(block.verify(Some(&profile)).grade, Grade::Complete);
//!
//! block.logs = Some(&logs[..logs.len() - 1]);
//! let verdict = block.verify(Some(&profile));
//! assert_eq!(verdict.grade, Grade::Wrong);
//! assert!(verdict.faults.iter().any(|fault| fault.check == Check::ReceiptsRoot), "{verdict}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod header;
mod receipts;
mod rows;
mod verdict;

use alloc::vec::Vec;

use alloy_primitives::U256;
use chainsieve_lanes::simd::Backend;

use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::HeaderBuf;

pub use verdict::{BlockVerdict, Check, Fault, Grade, HeaderBasis, Missing, Row, anchor};

/// Number of rows that are hashed together: enough to fill all lanes, and few enough for the cache.
const ROWS: usize = 4_096;

/// A cell of a header field that a fork added, or that a later fork may add.
///
/// The number of fields of a header depends on its fork. So the difference between an absent column and an
/// empty cell matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cell<T> {
    /// The table has no such column: the header may have the field.
    #[default]
    NoColumn,
    /// The header does not have the field: the cell is null, or the block precedes the field's fork. It is a
    /// fault if the trusted header has the field.
    Null,
    /// The value of the field.
    Value(T),
}

/// The cell of a column that the table has.
impl<T> From<Option<T>> for Cell<T> {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Null, Self::Value)
    }
}

/// A row of a table of blocks. The number of the block is in [`BlockColumns`].
///
/// A field is `None` if the table lacks the column. A cell whose meaning is in doubt is `None`, too: for
/// example, some tables have the uncles' hashes in a column that is named as if it had their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderRow<'a> {
    /// Hash of the block.
    pub hash: Option<&'a [u8]>,
    /// Hash of the preceding block.
    pub parent_hash: Option<&'a [u8]>,
    /// Keccak-256 hash of the list of uncle headers.
    pub sha3_uncles: Option<&'a [u8]>,
    /// The address that receives the fees, also named `author`.
    pub miner: Option<&'a [u8]>,
    /// Root of the state.
    pub state_root: Option<&'a [u8]>,
    /// Root of the transactions trie.
    pub transactions_root: Option<&'a [u8]>,
    /// Root of the receipts trie.
    pub receipts_root: Option<&'a [u8]>,
    /// The filter of the block's logs.
    pub logs_bloom: Option<&'a [u8]>,
    /// Difficulty, which is 0 since the Merge.
    pub difficulty: Option<U256>,
    /// Maximum gas that the block may use.
    pub gas_limit: Option<u64>,
    /// Gas that the block used.
    pub gas_used: Option<u64>,
    /// Unix timestamp in seconds.
    pub timestamp: Option<u64>,
    /// Bytes that the block's producer chose.
    pub extra_data: Option<&'a [u8]>,
    /// `mixHash`, which is `prevRandao` since the Merge.
    pub mix_hash: Option<&'a [u8]>,
    /// The proof-of-work nonce, eight bytes.
    pub nonce: Option<&'a [u8]>,
    /// Base fee in wei (London).
    pub base_fee_per_gas: Cell<U256>,
    /// Root of the withdrawals (Shanghai).
    pub withdrawals_root: Cell<&'a [u8]>,
    /// Gas that blobs used (Cancun).
    pub blob_gas_used: Cell<u64>,
    /// Excess blob gas (Cancun).
    pub excess_blob_gas: Cell<u64>,
    /// Root of the parent beacon block (Cancun).
    pub parent_beacon_block_root: Cell<&'a [u8]>,
    /// Hash of the execution layer requests (Prague).
    pub requests_hash: Cell<&'a [u8]>,
    /// Hash of the block's access list (Amsterdam). No header that has a [`Cell::NoColumn`] here can be
    /// found wrong by its hash: pass [`Cell::Null`] if the block is known to precede Amsterdam.
    pub block_access_list_hash: Cell<&'a [u8]>,
    /// Slot number (Amsterdam).
    pub slot_number: Cell<u64>,
    /// Number of transactions. It is in no header.
    pub transaction_count: Option<u64>,
}

/// A row of a table of transactions or of receipts.
///
/// A field is `None` if the table lacks the column, or if the cell is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TransactionRow<'a> {
    /// Index of the transaction in the block. Without it, the rows are taken as ordered.
    pub transaction_index: Option<u64>,
    /// Hash of the transaction, which is compared with those in logs.
    pub hash: Option<&'a [u8]>,
    /// Hash of the block.
    pub block_hash: Option<&'a [u8]>,
    /// Type of the transaction (EIP-2718).
    pub receipt_type: Option<u8>,
    /// `true` if the transaction succeeded (since Byzantium).
    pub status: Option<bool>,
    /// Root of the state after the transaction (before Byzantium).
    pub root: Option<&'a [u8]>,
    /// Gas used in the block up to and including this transaction.
    pub cumulative_gas_used: Option<u64>,
    /// Gas that this transaction used. It replaces `cumulative_gas_used`, if that is absent. Some tables
    /// have the cumulative gas in the column of this name, which is recognised by the header's gas.
    pub gas_used: Option<u64>,
    /// The depositor's nonce, only for deposits of the OP stack.
    pub deposit_nonce: Option<u64>,
    /// The version of a deposit receipt, only for deposits of the OP stack since Canyon.
    pub deposit_receipt_version: Option<u64>,
}

/// A row of a table of logs.
///
/// A field is `None` if the table lacks the column, or if the cell is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogRow<'a> {
    /// Index of the transaction in the block.
    pub transaction_index: Option<u64>,
    /// Index of the log in the block. Without it, the rows of a transaction are taken as ordered.
    pub log_index: Option<u64>,
    /// Hash of the transaction.
    pub transaction_hash: Option<&'a [u8]>,
    /// Hash of the block.
    pub block_hash: Option<&'a [u8]>,
    /// The contract.
    pub address: Option<&'a [u8]>,
    /// The topics, in order; `None` if the table lacks the columns of the topics, or one of them.
    pub topics: Option<[Option<&'a [u8]>; 4]>,
    /// The data, which may be empty.
    pub data: Option<&'a [u8]>,
    /// `true` if the source marks the log as removed by a reorganisation.
    pub is_removed: bool,
}

/// The rows of one block in the tables of a data set.
///
/// A table is `None` if the data set does not have it. An empty table promises that the block has no rows:
/// a block without transactions, or a block whose header is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockColumns<'a> {
    /// Number of the block, which all rows have.
    pub number: u64,
    /// The block's rows in the table of blocks: one, if nothing is wrong.
    pub headers: Option<&'a [HeaderRow<'a>]>,
    /// The block's rows in the table of transactions or of receipts, in any order.
    pub transactions: Option<&'a [TransactionRow<'a>]>,
    /// The block's rows in the table of logs, in any order.
    pub logs: Option<&'a [LogRow<'a>]>,
    /// The true header of the block, from a source that the caller trusts. A header with another number is
    /// ignored.
    pub trusted: Option<&'a HeaderBuf>,
    /// `true` if the data set leaves out transactions or logs on purpose, for example all logs of other
    /// contracts. Then only the existence of the rows can be refuted.
    pub is_filtered: bool,
}

impl BlockColumns<'_> {
    /// Verifies one block. [`verify`] is faster for many.
    ///
    /// `profile` says what the headers of the chain commit to; `None` for an unknown chain.
    pub fn verify(&self, profile: Option<&ChainProfile>) -> BlockVerdict {
        verify(core::slice::from_ref(self), profile).remove(0)
    }

    fn rows(&self) -> usize {
        self.transactions.map_or(0, <[_]>::len) + self.logs.map_or(0, <[_]>::len)
    }
}

/// Verifies some blocks, and returns a verdict for each, in order.
///
/// If a block follows the preceding ones of the slice by number, its parent hash is compared, too. A trusted
/// header shows that a preceding block with another hash is wrong.
/// `profile` says what the headers of the chain commit to; `None` for an unknown chain. If a profile says that
/// the receipts root covers every log, headers are expected to be hashed as Ethereum's: leave
/// [`HeaderRow::hash`] out for a chain with other fields. What the columns hash to is then only used to
/// confirm what a trusted block names ([`anchor`]).
///
/// # Cost
/// Time in proportion to the bytes of the cells, and a sort of rows that are not in order. Hashes are
/// computed several at a time, over all blocks, so pass some dozens of blocks or more. Needs a few hundred
/// bytes of memory for each of about 4,000 rows, or for each row of a larger block. Receipts are encoded, so
/// the cells of these rows are copied, up to three times: rows that share a slice need memory for each.
pub fn verify(blocks: &[BlockColumns<'_>], profile: Option<&ChainProfile>) -> Vec<BlockVerdict> {
    verify_on(Backend::best(), blocks, profile)
}

/// Does the same as [`verify`], on the given backend.
pub fn verify_on(
    backend: Backend,
    blocks: &[BlockColumns<'_>],
    profile: Option<&ChainProfile>,
) -> Vec<BlockVerdict> {
    let mut verdicts = Vec::with_capacity(blocks.len());
    let mut rest = blocks;
    while !rest.is_empty() {
        let mut rows = 0;
        let fits = |block: &&BlockColumns<'_>| {
            let fits = rows < ROWS;
            rows += 1 + block.rows();
            fits
        };
        let (together, behind) = rest.split_at(rest.iter().take_while(fits).count());
        receipts::verify(backend, together, profile, &mut verdicts);
        rest = behind;
    }
    verdict::link(blocks, &mut verdicts);
    verdicts
}
