//! The columns of tables, recognised by their names in the schemas of public sources.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use chainsieve::alloy_primitives::U256;
use chainsieve::eth::columns::Cell;

use crate::cells::{Column, Encoding, Read, Value};
use crate::place::{Cells, Table};
use crate::rows::{Group, Span, StoredHeader, StoredLog, StoredTransaction};
use crate::stream;

/// Names of the column with the block's number, in transactions, receipts and logs.
const BLOCK: &[&str] = &["blocknumber", "blocknum", "blockheight"];
const INDEX: &[&str] = &["transactionindex", "txindex"];
const TRANSACTION: &[&str] = &["transactionhash", "txhash"];
const BLOCK_HASH: &[&str] = &["blockhash"];
/// Keccak-256 hash of the empty list: what a header has if the block has no uncles.
const NO_UNCLES: [u8; 32] = chainsieve::alloy_primitives::b256!(
    "1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"
)
.0;

/// A column of a batch, or none if the table lacks it.
#[derive(Debug)]
struct Field {
    /// The kernel's name, for example `logs.address`.
    name: &'static str,
    /// Length in bytes; 0 if it is not fixed, or if this is a number.
    length: usize,
    column: Option<Column>,
}

/// The columns of a stream by their names, without case and underscores.
#[derive(Debug)]
pub(crate) struct Names {
    by_name: BTreeMap<String, usize>,
    /// Columns whose name stands twice: nothing says which of them is meant.
    twice: Vec<String>,
}

impl Names {
    pub(crate) fn new(names: &[String]) -> Self {
        let mut by_name = BTreeMap::new();
        let mut twice = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                twice.push(normal(name));
            }
            by_name.entry(normal(name)).or_insert(at);
        }
        Self { by_name, twice }
    }

    /// Returns an error if the rows of the stream can't be assigned to blocks.
    pub(crate) fn check(&self, table: Table) -> Result<(), String> {
        let names = if table == Table::Blocks { BLOCKS_NUMBER } else { BLOCK };
        if names.iter().any(|name| self.twice.iter().any(|twice| twice == name)) {
            return Err("two columns are named as the number of the block".to_owned());
        }
        match names.iter().any(|name| self.by_name.contains_key(*name)) {
            true => Ok(()),
            false if table == Table::Blocks => {
                Err("no column is named number or block_number".to_owned())
            }
            false => Err("no column is named block_number".to_owned()),
        }
    }
}

const BLOCKS_NUMBER: &[&str] = &["number", "blocknumber", "blocknum", "blockheight"];

fn normal(name: &str) -> String {
    let letters = name.chars().filter(|letter| *letter != '_');
    letters.flat_map(char::to_lowercase).collect()
}

/// The columns of a batch.
#[derive(Debug)]
pub(crate) struct Columns {
    number: Field,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Blocks(Box<Blocks>),
    Transactions(Box<Transactions>),
    Logs(Box<Logs>),
}

#[derive(Debug)]
struct Blocks {
    hash: Field,
    parent_hash: Field,
    sha3_uncles: Field,
    /// A column that has had the hash of the list of uncles in some versions of a tool, and the uncles' hashes in
    /// others.
    uncles_hash: Field,
    miner: Field,
    state_root: Field,
    transactions_root: Field,
    receipts_root: Field,
    logs_bloom: Field,
    difficulty: Field,
    gas_limit: Field,
    gas_used: Field,
    timestamp: Field,
    extra_data: Field,
    mix_hash: Field,
    nonce: Field,
    base_fee_per_gas: Field,
    withdrawals_root: Field,
    blob_gas_used: Field,
    excess_blob_gas: Field,
    parent_beacon_block_root: Field,
    requests_hash: Field,
    block_access_list_hash: Field,
    slot_number: Field,
    transaction_count: Field,
}

#[derive(Debug)]
struct Transactions {
    index: Field,
    hash: Field,
    block_hash: Field,
    kind: Field,
    status: Field,
    root: Field,
    cumulative_gas_used: Field,
    gas_used: Field,
    deposit_nonce: Field,
    deposit_receipt_version: Field,
}

#[derive(Debug)]
struct Logs {
    transaction_index: Field,
    log_index: Field,
    transaction_hash: Field,
    block_hash: Field,
    address: Field,
    topics: Field,
    topic: [Field; 4],
    data: Field,
    removed: Field,
}

impl Columns {
    /// Finds the columns of a batch, and learns how they are encoded.
    pub(crate) fn new(
        table: Table,
        names: &Names,
        batch: &RecordBatch,
        encoding: &mut Encoding,
    ) -> Result<Self, String> {
        let mut finder = Finder { names, batch, error: None };
        let synonyms = if table == Table::Blocks { BLOCKS_NUMBER } else { BLOCK };
        let number = finder.field("number", 0, synonyms);
        let fields = match table {
            Table::Blocks => Fields::Blocks(Box::new(Blocks::find(&mut finder))),
            Table::Transactions => {
                let hash = [TRANSACTION, &["hash"]].concat();
                Fields::Transactions(Box::new(Transactions::find(&mut finder, &hash)))
            }
            Table::Receipts => {
                Fields::Transactions(Box::new(Transactions::find(&mut finder, TRANSACTION)))
            }
            Table::Logs => Fields::Logs(Box::new(Logs::find(&mut finder))),
        };
        if let Some(error) = finder.error {
            return Err(error);
        }
        let columns = Self { number, fields };
        let known = columns.of_known_length();
        let known = known.iter().filter_map(|field| Some((field.column.as_ref()?, field.length)));
        encoding.learn(batch.num_rows(), known);
        Ok(columns)
    }

    /// Returns columns whose cells have a known length.
    fn of_known_length(&self) -> Vec<&Field> {
        match &self.fields {
            Fields::Blocks(it) => {
                vec![&it.hash, &it.parent_hash, &it.state_root, &it.receipts_root, &it.miner]
            }
            Fields::Transactions(it) => vec![&it.hash, &it.block_hash, &it.root],
            Fields::Logs(it) => {
                vec![&it.transaction_hash, &it.block_hash, &it.topic[0], &it.address]
            }
        }
    }

    /// Returns the number of the block of a row, if it can be read.
    pub(crate) fn number(&self, row: usize, encoding: Encoding) -> Option<u64> {
        let value = self.number.column.as_ref()?.value(row);
        match encoding.number(value) {
            Read::Value(number) => number.try_into().ok(),
            _ => None,
        }
    }

    /// Adds a row to the rows of its block.
    pub(crate) fn add(&self, row: usize, encoding: Encoding, cells: &mut Cells, group: &mut Group) {
        let mut to = Reading { row, encoding, cells, bytes: &mut group.bytes };
        match &self.fields {
            Fields::Blocks(it) => group.headers.push(it.read(&mut to)),
            Fields::Transactions(it) => group.transactions.push(it.read(&mut to)),
            Fields::Logs(it) => group.logs.push(it.read(&mut to)),
        }
    }
}

/// Finds the columns of a batch by their names.
struct Finder<'b> {
    names: &'b Names,
    batch: &'b RecordBatch,
    /// The first column that breaks the rules of Arrow.
    error: Option<String>,
}

impl Finder<'_> {
    /// Returns the column that has one of these names, the first ones first.
    fn field(&mut self, name: &'static str, length: usize, synonyms: &[&str]) -> Field {
        let Self { names, batch, .. } = self;
        let at = synonyms.iter().find_map(|synonym| {
            let is_twice = names.twice.iter().any(|twice| twice == synonym);
            names.by_name.get(*synonym).copied().filter(|_| !is_twice)
        });
        let array = at.and_then(|at| batch.columns().get(at));
        if let Some(Err(error)) = array.map(stream::check) {
            self.error.get_or_insert(format!("{name}: {error}"));
        }
        Field { name, length, column: array.map(Column::new) }
    }
}

/// Reads the cells of a row.
struct Reading<'r> {
    row: usize,
    encoding: Encoding,
    /// Counts the cells that can't be read.
    cells: &'r mut Cells,
    bytes: &'r mut Vec<u8>,
}

impl Reading<'_> {
    fn value<'f>(&self, field: &'f Field) -> Option<Value<'f>> {
        field.column.as_ref().map(|column| column.value(self.row))
    }

    fn bytes_of(&mut self, value: Value<'_>, field: &Field) -> Read<Span> {
        let start = self.bytes.len();
        match self.encoding.bytes(value, field.length, self.bytes) {
            Read::Value(()) => Read::Value(Span::new(start, self.bytes.len())),
            Read::Null => Read::Null,
            Read::Unreadable => {
                self.cells.unreadable(field.name, self.row);
                Read::Unreadable
            }
        }
    }

    /// Returns the bytes of a field that every row has.
    fn bytes(&mut self, field: &Field) -> Span {
        let Some(value) = self.value(field) else { return Span::NONE };
        match self.bytes_of(value, field) {
            Read::Value(span) => span,
            _ => Span::NONE,
        }
    }

    /// Returns the bytes of a field that a fork added.
    fn later_bytes(&mut self, field: &Field) -> Cell<Span> {
        let Some(value) = self.value(field) else { return Cell::NoColumn };
        match self.bytes_of(value, field) {
            Read::Value(span) => Cell::Value(span),
            Read::Null => Cell::Null,
            // The header may have the field.
            Read::Unreadable => Cell::NoColumn,
        }
    }

    fn number_of(&mut self, field: &Field) -> Cell<U256> {
        let Some(value) = self.value(field) else { return Cell::NoColumn };
        match self.encoding.number(value) {
            Read::Value(number) => Cell::Value(number),
            Read::Null => Cell::Null,
            Read::Unreadable => {
                self.cells.unreadable(field.name, self.row);
                Cell::NoColumn
            }
        }
    }

    /// Returns a number of 64 bits. A larger one can't be read.
    fn later_number(&mut self, field: &Field) -> Cell<u64> {
        match self.number_of(field) {
            Cell::Value(number) => number.try_into().map_or_else(
                |_| {
                    self.cells.unreadable(field.name, self.row);
                    Cell::NoColumn
                },
                Cell::Value,
            ),
            Cell::Null => Cell::Null,
            Cell::NoColumn => Cell::NoColumn,
        }
    }

    fn number(&mut self, field: &Field) -> Option<u64> {
        match self.later_number(field) {
            Cell::Value(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a small number of few meanings, or one of the words for it.
    fn choice(&mut self, field: &Field, words: &[(&str, u8)], max: u8) -> Option<u8> {
        let value = self.value(field)?;
        if let Value::Flag(flag) = value
            && max == 1
        {
            return Some(flag.into());
        }
        if let Value::Text(text) = value
            && let Some((_, number)) =
                words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word))
        {
            return Some(*number);
        }
        match self.encoding.number(value) {
            Read::Value(number) if number <= U256::from(max) => number.try_into().ok(),
            Read::Null => None,
            _ => {
                self.cells.unreadable(field.name, self.row);
                None
            }
        }
    }
}

impl Blocks {
    fn find(finder: &mut Finder<'_>) -> Self {
        Self {
            hash: finder.field("headers.hash", 32, &["hash", "blockhash"]),
            parent_hash: finder.field("headers.parent_hash", 32, &["parenthash"]),
            sha3_uncles: finder.field("headers.sha3_uncles", 32, &["sha3uncles", "ommershash"]),
            uncles_hash: finder.field("headers.sha3_uncles", 0, &["uncleshash"]),
            miner: finder.field(
                "headers.miner",
                20,
                &["miner", "author", "beneficiary", "coinbase"],
            ),
            state_root: finder.field("headers.state_root", 32, &["stateroot"]),
            transactions_root: finder.field("headers.transactions_root", 32, &["transactionsroot"]),
            receipts_root: finder.field(
                "headers.receipts_root",
                32,
                &["receiptsroot", "receiptroot"],
            ),
            logs_bloom: finder.field("headers.logs_bloom", 256, &["logsbloom"]),
            difficulty: finder.field(
                "headers.difficulty",
                0,
                &["difficulty", "difficultybinary", "difficultystring"],
            ),
            gas_limit: finder.field("headers.gas_limit", 0, &["gaslimit"]),
            gas_used: finder.field("headers.gas_used", 0, &["gasused"]),
            timestamp: finder.field(
                "headers.timestamp",
                0,
                &["timestamp", "blocktimestamp", "blockdatetime", "time", "blocktime"],
            ),
            extra_data: finder.field("headers.extra_data", 0, &["extradata"]),
            mix_hash: finder.field("headers.mix_hash", 32, &["mixhash", "prevrandao"]),
            nonce: finder.field("headers.nonce", 8, &["nonce"]),
            base_fee_per_gas: finder.field("headers.base_fee_per_gas", 0, &["basefeepergas"]),
            withdrawals_root: finder.field("headers.withdrawals_root", 32, &["withdrawalsroot"]),
            blob_gas_used: finder.field("headers.blob_gas_used", 0, &["blobgasused"]),
            excess_blob_gas: finder.field("headers.excess_blob_gas", 0, &["excessblobgas"]),
            parent_beacon_block_root: finder.field(
                "headers.parent_beacon_block_root",
                32,
                &["parentbeaconblockroot", "parentbeaconroot"],
            ),
            requests_hash: finder.field("headers.requests_hash", 32, &["requestshash"]),
            block_access_list_hash: finder.field(
                "headers.block_access_list_hash",
                32,
                &["blockaccesslisthash"],
            ),
            slot_number: finder.field("headers.slot_number", 0, &["slotnumber"]),
            transaction_count: finder.field("headers.transaction_count", 0, &["transactioncount"]),
        }
    }

    fn read(&self, to: &mut Reading<'_>) -> StoredHeader {
        let mut sha3_uncles = to.bytes(&self.sha3_uncles);
        let mut has_doubtful_uncles = false;
        if self.sha3_uncles.column.is_none() {
            let joined = to.bytes(&self.uncles_hash);
            match joined.of(to.bytes) {
                Some([]) => {
                    let start = to.bytes.len();
                    to.bytes.extend_from_slice(&NO_UNCLES);
                    sha3_uncles = Span::new(start, to.bytes.len());
                }
                Some(hash) if hash.len() == 32 => {
                    has_doubtful_uncles = hash != NO_UNCLES;
                    sha3_uncles = joined;
                }
                // Several uncles: their hashes are not the hash of their list.
                _ => {}
            }
        }
        // Some tables have the eight bytes as a number.
        let nonce = match to.value(&self.nonce) {
            Some(Value::Number(number)) => u64::try_from(number).map_or(Span::NONE, |nonce| {
                let start = to.bytes.len();
                to.bytes.extend_from_slice(&nonce.to_be_bytes());
                Span::new(start, to.bytes.len())
            }),
            _ => to.bytes(&self.nonce),
        };
        let difficulty = match to.number_of(&self.difficulty) {
            Cell::Value(difficulty) => Some(difficulty),
            _ => None,
        };
        // A number of this size counts milliseconds or less, or is none of the chain's.
        let timestamp = to.number(&self.timestamp).filter(|time| *time < 100_000_000_000);
        StoredHeader {
            hash: to.bytes(&self.hash),
            parent_hash: to.bytes(&self.parent_hash),
            sha3_uncles,
            has_doubtful_uncles,
            miner: to.bytes(&self.miner),
            state_root: to.bytes(&self.state_root),
            transactions_root: to.bytes(&self.transactions_root),
            receipts_root: to.bytes(&self.receipts_root),
            logs_bloom: to.bytes(&self.logs_bloom),
            difficulty,
            gas_limit: to.number(&self.gas_limit),
            gas_used: to.number(&self.gas_used),
            timestamp,
            extra_data: to.bytes(&self.extra_data),
            mix_hash: to.bytes(&self.mix_hash),
            nonce,
            base_fee_per_gas: to.number_of(&self.base_fee_per_gas),
            withdrawals_root: to.later_bytes(&self.withdrawals_root),
            blob_gas_used: to.later_number(&self.blob_gas_used),
            excess_blob_gas: to.later_number(&self.excess_blob_gas),
            parent_beacon_block_root: to.later_bytes(&self.parent_beacon_block_root),
            requests_hash: to.later_bytes(&self.requests_hash),
            block_access_list_hash: to.later_bytes(&self.block_access_list_hash),
            slot_number: to.later_number(&self.slot_number),
            transaction_count: to.number(&self.transaction_count),
        }
    }
}

impl Transactions {
    fn find(finder: &mut Finder<'_>, hash: &[&str]) -> Self {
        Self {
            index: finder.field("transactions.transaction_index", 0, &[INDEX, &["index"]].concat()),
            hash: finder.field("transactions.hash", 32, hash),
            block_hash: finder.field("transactions.block_hash", 32, BLOCK_HASH),
            kind: finder.field(
                "transactions.receipt_type",
                0,
                &["transactiontype", "type", "txtype"],
            ),
            status: finder.field("transactions.status", 0, &["receiptstatus", "status", "success"]),
            root: finder.field("transactions.root", 32, &["receiptroot", "root", "stateroot"]),
            cumulative_gas_used: finder.field(
                "transactions.cumulative_gas_used",
                0,
                &["receiptcumulativegasused", "cumulativegasused"],
            ),
            gas_used: finder.field("transactions.gas_used", 0, &["receiptgasused", "gasused"]),
            deposit_nonce: finder.field("transactions.deposit_nonce", 0, &["depositnonce"]),
            deposit_receipt_version: finder.field(
                "transactions.deposit_receipt_version",
                0,
                &["depositreceiptversion"],
            ),
        }
    }

    fn read(&self, to: &mut Reading<'_>) -> StoredTransaction {
        const TYPES: [(&str, u8); 7] = [
            ("legacy", 0),
            ("accesslist", 1),
            ("access_list", 1),
            ("dynamicfee", 2),
            ("dynamic_fee", 2),
            ("blob", 3),
            ("setcode", 4),
        ];
        // Other numbers than 0 and 1 have a meaning of their source only.
        let status = to.choice(&self.status, &[("true", 1), ("false", 0)], 1);
        StoredTransaction {
            index: to.number(&self.index),
            hash: to.bytes(&self.hash),
            block_hash: to.bytes(&self.block_hash),
            kind: to.choice(&self.kind, &TYPES, u8::MAX),
            status: status.map(|status| status == 1),
            root: to.bytes(&self.root),
            cumulative_gas_used: to.number(&self.cumulative_gas_used),
            gas_used: to.number(&self.gas_used),
            deposit_nonce: to.number(&self.deposit_nonce),
            deposit_receipt_version: to.number(&self.deposit_receipt_version),
        }
    }
}

impl Logs {
    fn find(finder: &mut Finder<'_>) -> Self {
        Self {
            transaction_index: finder.field("logs.transaction_index", 0, INDEX),
            log_index: finder.field("logs.log_index", 0, &["logindex", "index"]),
            transaction_hash: finder.field("logs.transaction_hash", 32, TRANSACTION),
            block_hash: finder.field("logs.block_hash", 32, BLOCK_HASH),
            address: finder.field("logs.address", 20, &["address", "contractaddress"]),
            topics: finder.field("logs.topics", 32, &["topics"]),
            topic: [
                finder.field("logs.topics", 32, &["topic0"]),
                finder.field("logs.topics", 32, &["topic1"]),
                finder.field("logs.topics", 32, &["topic2"]),
                finder.field("logs.topics", 32, &["topic3"]),
            ],
            data: finder.field("logs.data", 0, &["data"]),
            removed: finder.field("logs.removed", 0, &["removed"]),
        }
    }

    fn read(&self, to: &mut Reading<'_>) -> StoredLog {
        let topics = if self.topics.column.is_some() {
            self.listed_topics(to)
        } else if self.topic.iter().all(|topic| topic.column.is_some()) {
            let mut topics = [Span::NONE; 4];
            let mut is_read = true;
            for (topic, field) in topics.iter_mut().zip(&self.topic) {
                match to.later_bytes(field) {
                    Cell::Value(span) => *topic = span,
                    Cell::Null => {}
                    Cell::NoColumn => is_read = false,
                }
            }
            is_read.then_some(topics)
        } else {
            None
        };
        let removed = to.choice(&self.removed, &[("true", 1), ("false", 0)], 1);
        StoredLog {
            transaction_index: to.number(&self.transaction_index),
            log_index: to.number(&self.log_index),
            transaction_hash: to.bytes(&self.transaction_hash),
            block_hash: to.bytes(&self.block_hash),
            address: to.bytes(&self.address),
            topics,
            data: to.bytes(&self.data),
            is_removed: removed == Some(1),
        }
    }

    /// Reads the topics of a list, or of a text that joins them.
    fn listed_topics(&self, to: &mut Reading<'_>) -> Option<[Span; 4]> {
        let field = &self.topics;
        let column = field.column.as_ref()?;
        let mut topics = [Span::NONE; 4];
        let mut count = 0;
        let mut add = |to: &mut Reading<'_>, value: Value<'_>| {
            let Read::Value(topic) = to.bytes_of(value, field) else { return false };
            let free = topics.get_mut(count);
            count += 1;
            free.map(|free| *free = topic).is_some()
        };
        let is_read = if column.is_list() {
            // A list that is null does not say that there are no topics.
            column.elements(to.row).is_some_and(|mut topics| topics.all(|topic| add(to, topic)))
        } else {
            match column.value(to.row) {
                // Tables of text have nothing else for an empty list.
                Value::Null => true,
                Value::Text(text) => text
                    .split(|mark: char| mark.is_whitespace() || "[],'\"".contains(mark))
                    .filter(|topic| !topic.is_empty())
                    .all(|topic| add(to, Value::Text(topic))),
                _ => false,
            }
        };
        if !is_read {
            to.cells.unreadable(field.name, to.row);
        }
        is_read.then_some(topics)
    }
}
