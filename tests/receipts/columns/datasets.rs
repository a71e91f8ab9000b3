//! The data sets of the corpus that can be read without a decoder: tables in CSV, as ethereum-etl writes
//! them, whole and damaged, against the outcomes of another program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use alloy_primitives::{U256, hex};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, Grade, HeaderBasis, HeaderRow, LogRow, Row,
    TransactionRow, anchor, verify,
};
use chainsieve::eth::header::{BlockRef, HeaderBuf, HeaderView};
use serde_json::Value;
use testkit::corpus;

/// A line of a table: its cells by column. An empty cell is null.
type Line = BTreeMap<String, Option<String>>;

struct Table {
    lines: Vec<Line>,
}

impl Table {
    /// Reads all files under a folder, or returns `None` if there is none.
    fn read(folder: &Path) -> Option<Self> {
        let mut files = Vec::new();
        csv_files(folder, &mut files);
        files.sort();
        let mut lines = Vec::new();
        for file in &files {
            let text = std::fs::read_to_string(file).expect("UTF-8");
            let mut rows = text.lines().map(cells);
            let columns = rows.next().expect("names of columns");
            lines.extend(rows.map(|cells| {
                let cells = cells.into_iter().map(|cell| Some(cell).filter(|it| !it.is_empty()));
                columns.iter().cloned().zip(cells).collect::<Line>()
            }));
        }
        (!files.is_empty()).then_some(Self { lines })
    }

    fn of(&self, block: u64, column: &str) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| number(line, column) == Some(block))
    }
}

fn csv_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            csv_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "csv") {
            files.push(path);
        }
    }
}

/// Splits a line at its commas, but not those in quotes.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cells.last_mut().expect("a cell").push(other),
        }
    }
    cells
}

fn text<'a>(line: &'a Line, column: &str) -> Option<&'a str> {
    line.get(column)?.as_deref()
}

fn number(line: &Line, column: &str) -> Option<u64> {
    text(line, column).map(|cell| cell.parse().expect("a number"))
}

fn bytes(line: &Line, column: &str) -> Option<&'static [u8]> {
    text(line, column).map(|cell| hex::decode(cell).expect("hex").leak() as &[u8])
}

/// A cell of a column that the table may lack.
fn cell<T>(line: &Line, column: &str, read: impl Fn(&Line, &str) -> Option<T>) -> Cell<T> {
    if line.contains_key(column) { read(line, column).into() } else { Cell::NoColumn }
}

fn wide(line: &Line, column: &str) -> Option<U256> {
    text(line, column).map(|cell| cell.parse().expect("a number"))
}

fn header(line: &Line) -> HeaderRow<'static> {
    HeaderRow {
        hash: bytes(line, "hash"),
        parent_hash: bytes(line, "parent_hash"),
        sha3_uncles: bytes(line, "sha3_uncles"),
        miner: bytes(line, "miner"),
        state_root: bytes(line, "state_root"),
        transactions_root: bytes(line, "transactions_root"),
        receipts_root: bytes(line, "receipts_root"),
        logs_bloom: bytes(line, "logs_bloom"),
        difficulty: wide(line, "difficulty"),
        gas_limit: number(line, "gas_limit"),
        gas_used: number(line, "gas_used"),
        timestamp: number(line, "timestamp"),
        extra_data: bytes(line, "extra_data"),
        mix_hash: bytes(line, "mix_hash"),
        nonce: bytes(line, "nonce"),
        base_fee_per_gas: cell(line, "base_fee_per_gas", wide),
        withdrawals_root: cell(line, "withdrawals_root", bytes),
        blob_gas_used: cell(line, "blob_gas_used", number),
        excess_blob_gas: cell(line, "excess_blob_gas", number),
        parent_beacon_block_root: cell(line, "parent_beacon_block_root", bytes),
        requests_hash: cell(line, "requests_hash", bytes),
        // No chain of the corpus reaches Amsterdam.
        block_access_list_hash: Cell::Null,
        slot_number: Cell::Null,
        transaction_count: number(line, "transaction_count"),
    }
}

fn transaction(line: &Line, receipt: Option<&Line>) -> TransactionRow<'static> {
    let receipt = receipt.unwrap_or(line);
    let byte = |number: u64| u8::try_from(number).expect("a type");
    TransactionRow {
        transaction_index: number(line, "transaction_index"),
        hash: bytes(line, "hash"),
        block_hash: bytes(line, "block_hash"),
        receipt_type: number(line, "transaction_type").map(byte),
        status: number(receipt, "status").map(|status| status == 1),
        root: bytes(receipt, "root"),
        cumulative_gas_used: number(receipt, "cumulative_gas_used"),
        gas_used: number(receipt, "gas_used"),
        deposit_nonce: number(receipt, "deposit_nonce"),
        deposit_receipt_version: number(receipt, "deposit_receipt_version"),
    }
}

fn log(line: &Line) -> LogRow<'static> {
    let topics = line.get("topics").map(|topics| {
        let mut topics = topics.iter().flat_map(|topics| topics.split(','));
        std::array::from_fn(|_| {
            topics.next().map(|topic| hex::decode(topic).expect("hex").leak() as &[u8])
        })
    });
    LogRow {
        transaction_index: number(line, "transaction_index"),
        log_index: number(line, "log_index"),
        transaction_hash: bytes(line, "transaction_hash"),
        block_hash: bytes(line, "block_hash"),
        address: bytes(line, "address"),
        topics,
        data: bytes(line, "data"),
        is_removed: text(line, "removed") == Some("true"),
    }
}

/// The rows of one block.
struct Block {
    number: u64,
    headers: Option<Vec<HeaderRow<'static>>>,
    transactions: Option<Vec<TransactionRow<'static>>>,
    logs: Option<Vec<LogRow<'static>>>,
}

fn blocks(folder: &Path, numbers: &[u64]) -> Vec<Block> {
    let read = |table: &str| Table::read(&folder.join(table));
    let (headers, transactions) = (read("blocks"), read("transactions"));
    let (receipts, logs) = (read("receipts"), read("logs"));
    let block = |number: u64| Block {
        number,
        headers: headers.as_ref().map(|table| table.of(number, "number").map(header).collect()),
        transactions: transactions.as_ref().map(|table| {
            let receipts = receipts.iter().flat_map(|table| table.of(number, "block_number"));
            let receipts: BTreeMap<_, _> =
                receipts.map(|line| (text(line, "transaction_index"), line)).collect();
            let of = |line| receipts.get(&text(line, "transaction_index")).copied();
            table.of(number, "block_number").map(|line| transaction(line, of(line))).collect()
        }),
        logs: logs.as_ref().map(|table| table.of(number, "block_number").map(log).collect()),
    };
    numbers.iter().copied().map(block).collect()
}

/// Compares the checks of a verdict with those of the other program.
fn compare(verdict: &BlockVerdict, truth: &Value, with_headers: bool, name: &str) {
    let name = format!("{name}: {verdict}, expected {truth}");
    let outcome = |check: &str| truth["checks"][check].as_str().unwrap_or("ok");
    let has = |check: Check| verdict.faults.iter().any(|fault| fault.check == check);
    let is_copy = |is_it: fn(Row) -> bool| {
        verdict.faults.iter().any(|it| it.check == Check::Copies && it.row.is_some_and(is_it))
    };
    // The trusted header replaces the row of the block, so its child is not accused.
    let broken = if with_headers { "-" } else { "broken" };
    for (check, column, fails) in [
        (Check::HeaderHash, "header_hash", "differs"),
        (Check::HeaderColumns, "header_columns", "differs"),
        (Check::ParentLink, "parent_link", broken),
        (Check::BlockHash, "block_hash", "wrong"),
        (Check::LogIndex, "log_index", "wrong"),
        (Check::TransactionIndex, "transaction_index", "wrong"),
        (Check::TransactionCount, "transaction_count", "differs"),
        (Check::TransactionHash, "transaction_hash", "wrong"),
        (Check::LogsBloom, "logs_bloom", "differs"),
        (Check::ReceiptsRoot, "receipts_root", "differs"),
    ] {
        assert_eq!(has(check), outcome(column) == fails, "{name}");
    }
    assert_eq!(has(Check::HeaderRow), outcome("block_row") != "ok", "{name}");
    assert_eq!(has(Check::Removed), truth["checks"]["removed_rows"] == 1, "{name}");
    let copies = is_copy(|row| matches!(row, Row::Logs(_)));
    assert_eq!(copies, outcome("log_index") == "duplicate", "{name}");
    let copies = is_copy(|row| matches!(row, Row::Transactions(_)));
    assert_eq!(copies, outcome("transaction_index") == "duplicate", "{name}");
    assert_eq!(verdict.receipts_root, outcome("receipts_root") == "equal", "{name}");
    if !with_headers {
        let is_recomputed = verdict.header == HeaderBasis::Recomputed;
        assert_eq!(is_recomputed, outcome("header_hash") == "equal", "{name}");
    }
    // The transactions root needs more columns than receipts have.
    let mut why = truth["why"].as_array().cloned().unwrap_or_default();
    let is_other =
        |why: &mut Value| *why == "transactions_root" || (*why == "parent_link" && with_headers);
    let others = why.extract_if(.., is_other).count();
    if others > 0 && why.is_empty() {
        assert_ne!(verdict.grade, Grade::Wrong, "{name}");
    } else {
        assert_eq!(verdict.grade.name(), truth["verdict"], "{name}");
    }
}

#[test]
fn verdicts_are_those_of_another_program() {
    let Some((root, _)) = corpus::index("datasets") else { return };
    let (mut sets, mut compared) = (0, 0);
    for file in std::fs::read_dir(root.join("truth")).expect("the truth") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("UTF-8");
        let truth: Value = serde_json::from_str(&text).expect("JSON");
        let id = truth["id"].as_str().expect("a name");
        let mut files = Vec::new();
        csv_files(&root.join("sets").join(id), &mut files);
        if files.is_empty() {
            continue;
        }
        let by_number = truth["blocks"].as_object().expect("blocks");
        let mut numbers: Vec<u64> =
            by_number.keys().map(|number| number.parse().expect("a number")).collect();
        numbers.sort_unstable();
        let rows = blocks(&root.join("sets").join(id), &numbers);
        let mut headers = BTreeMap::new();
        if let Some(file) = truth["headers"].as_str() {
            let rlp = std::fs::read(root.join(file)).expect("headers");
            let mut rest = &rlp[..];
            while !rest.is_empty() {
                let (view, behind) = HeaderView::decode_prefix(rest).expect("a header");
                let header = HeaderBuf::from_rlp(view.rlp().to_vec()).expect("a header");
                headers.insert(view.number(), header);
                rest = behind;
            }
        }
        let profile = (truth["profile"] == "ethereum").then(|| {
            ChainProfile::assumed(id.to_owned(), BloomSoundness::Exact, ReceiptsScope::EveryLog)
                .with_statuses_since(truth["byzantium"].as_u64().expect("a number"))
        });
        for with_headers in [false, true] {
            let columns: Vec<_> = rows
                .iter()
                .map(|block| BlockColumns {
                    number: block.number,
                    headers: block.headers.as_deref(),
                    transactions: block.transactions.as_deref(),
                    logs: block.logs.as_deref(),
                    trusted: headers.get(&block.number).filter(|_| with_headers),
                    is_filtered: false,
                })
                .collect();
            let mut verdicts = verify(&columns, profile.as_ref());
            for verdict in &verdicts {
                let number = verdict.number;
                let outcome = if with_headers { "with_headers" } else { "alone" };
                let truth = &truth["blocks"][number.to_string()][outcome];
                compare(verdict, truth, with_headers, &format!("{id} {number} {outcome}"));
                compared += 1;
            }
            let trusted = &truth["anchor"];
            if let (Some(number), false) = (trusted["number"].as_u64(), with_headers) {
                let hash = trusted["hash"].as_str().and_then(|hash| hash.parse().ok());
                let trusted = BlockRef { number, hash: hash.expect("a hash") };
                let tied = anchor(&mut verdicts, trusted) as u64;
                assert_eq!(Some(tied), truth["expect"]["anchored"].as_u64(), "{id}");
            }
        }
        sets += 1;
    }
    assert!(sets >= 2 && compared >= 106, "{sets} sets, {compared} blocks");
}
