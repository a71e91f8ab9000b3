//! Seeded changes of whole data sets: one cell, one row or the order of rows. What must follow from a change is
//! known without the library.
//!
//! `CHAINSIEVE_CHANGES` sets their number.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Decimal128Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Int8Array,
    Int16Array, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch,
    StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat;
use arrow_select::take::take_record_batch;
use chainsieve::eth::columns::{Check, Grade, HeaderBasis};
use chainsieve_dataset::{Error, Order, Table};
use testkit::Rng;

use crate::corpus::Set;
use crate::windows::{Shown, Window, numbers};

/// Whole sets of several encodings.
const SETS: [&str; 5] = [
    "chain-amp-evm-rpc",
    "chain-cryo-head-all",
    "chain-sqd-v3",
    "chain-hypersync-reverse",
    "chain-bigquery-mixed-case",
];

/// Columns of logs that are in the receipts.
const LOGS: [&str; 6] = ["address", "topic0", "topic1", "topic2", "topic3", "data"];
/// Columns of transactions that are in the receipts of every block, where the table has no column of cumulative gas
/// beside them.
const TRANSACTIONS: [&str; 4] =
    ["cumulative_gas_used", "receipt_cumulative_gas_used", "type", "transaction_type"];
/// Columns of blocks that are in the hash of the header, and the hash.
const BLOCKS: [&str; 21] = [
    "hash",
    "block_hash",
    "parent_hash",
    "sha3_uncles",
    "ommers_hash",
    "miner",
    "author",
    "state_root",
    "transactions_root",
    "receipts_root",
    "receipt_root",
    "logs_bloom",
    "gas_limit",
    "gas_used",
    "extra_data",
    "mix_hash",
    "nonce",
    "difficulty",
    "base_fee_per_gas",
    "withdrawals_root",
    "blob_gas_used",
];
/// Columns that no check covers.
const OTHERS: [&str; 8] =
    ["gas_price", "value", "input", "gas", "r", "effective_gas_price", "size", "total_difficulty"];

/// Returns the column with one cell changed, or `None` if the cell is null or empty.
fn with_changed_cell(column: &ArrayRef, row: usize, rng: &mut Rng) -> Option<ArrayRef> {
    if column.is_null(row) {
        return None;
    }
    macro_rules! integer {
        ($array:ty) => {{
            let array = column.as_any().downcast_ref::<$array>().expect("its type");
            Arc::new(<$array>::from_iter_values([array.value(row) ^ 1])) as ArrayRef
        }};
    }
    let bytes = |cell: &[u8], rng: &mut Rng| {
        let mut cell = cell.to_vec();
        let at = (!cell.is_empty()).then(|| rng.below(cell.len()))?;
        cell[at] ^= 1 << rng.below(8);
        Some(cell)
    };
    let text = |cell: &str, rng: &mut Rng| {
        let start = if cell.starts_with("0x") { 2 } else { 0 };
        let at = (cell.len() > start).then(|| start + rng.below(cell.len() - start))?;
        let digit = char::from(cell.as_bytes()[at]).to_digit(16)?;
        let other = char::from_digit((digit + 1 + u32::try_from(rng.below(15)).ok()?) % 16, 16)?;
        Some(format!("{}{other}{}", &cell[..at], &cell[at + 1..]))
    };
    let changed: ArrayRef = match column.data_type() {
        DataType::Int8 => integer!(Int8Array),
        DataType::Int16 => integer!(Int16Array),
        DataType::Int32 => integer!(Int32Array),
        DataType::Int64 => integer!(Int64Array),
        DataType::UInt8 => integer!(UInt8Array),
        DataType::UInt16 => integer!(UInt16Array),
        DataType::UInt32 => integer!(UInt32Array),
        DataType::UInt64 => integer!(UInt64Array),
        DataType::Boolean => Arc::new(BooleanArray::from(vec![!column.as_boolean().value(row)])),
        DataType::Decimal128(precision, scale) => {
            let cell = column.as_primitive::<Decimal128Type>().value(row) + 10_i128.pow(9);
            let cell = Decimal128Array::from_iter_values([cell]);
            Arc::new(cell.with_precision_and_scale(*precision, *scale).expect("as before"))
        }
        DataType::Binary => {
            let cell = bytes(column.as_binary::<i32>().value(row), rng)?;
            Arc::new(BinaryArray::from_iter_values([cell]))
        }
        DataType::LargeBinary => {
            let cell = bytes(column.as_binary::<i64>().value(row), rng)?;
            Arc::new(LargeBinaryArray::from_iter_values([cell]))
        }
        DataType::FixedSizeBinary(_) => {
            let cell = bytes(column.as_fixed_size_binary().value(row), rng)?;
            Arc::new(FixedSizeBinaryArray::try_from_iter([cell].into_iter()).expect("a cell"))
        }
        DataType::Utf8 => {
            let cell = text(column.as_string::<i32>().value(row), rng)?;
            Arc::new(StringArray::from_iter_values([cell]))
        }
        DataType::LargeUtf8 => {
            let cell = text(column.as_string::<i64>().value(row), rng)?;
            Arc::new(LargeStringArray::from_iter_values([cell]))
        }
        _ => return None,
    };
    Some(with_cell(column, row, &changed))
}

fn with_cell(column: &ArrayRef, row: usize, cell: &ArrayRef) -> ArrayRef {
    let behind = column.slice(row + 1, column.len() - row - 1);
    concat(&[&column.slice(0, row), cell, &behind]).expect("one type")
}

fn with_column(rows: &RecordBatch, at: usize, column: ArrayRef) -> RecordBatch {
    let mut columns = rows.columns().to_vec();
    columns[at] = column;
    let schema = rows.schema();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns")
}

fn rows_at(rows: &RecordBatch, order: &[usize]) -> RecordBatch {
    let order: UInt64Array = order.iter().map(|row| *row as u64).collect();
    take_record_batch(rows, &order).expect("rows")
}

/// Changes of one kind that were tried, and those of them that had nothing to change.
#[derive(Default, Debug)]
struct Count {
    made: u64,
    void: u64,
}

/// What must follow from a change.
enum Law {
    /// The block is not proven any more.
    NotProven(u64),
    /// The block is not proven any more, and its child may have another parent.
    HeaderNotProven(u64),
    /// The block is wrong.
    Wrong(u64, Check),
    /// Nothing changes.
    Same,
}

struct Changed {
    tables: BTreeMap<Table, RecordBatch>,
    law: Law,
}

impl Window {
    fn change(&self, kind: usize, before: &[Shown], rng: &mut Rng) -> Option<Changed> {
        let tables = [Table::Blocks, Table::Transactions, Table::Logs];
        let mut table = tables[rng.below(3)];
        let columns: &[&str] = match kind {
            0 => {
                table = tables[1 + rng.below(2)];
                if table == Table::Logs { &LOGS } else { &TRANSACTIONS }
            }
            1 => {
                table = Table::Blocks;
                &BLOCKS
            }
            2 => {
                table = Table::Transactions;
                &OTHERS
            }
            _ => &LOGS,
        };
        let mut tables = self.tables.clone();
        let rows = &self.tables[&table];
        if rows.num_rows() == 0 {
            return None;
        }
        let row = rng.below(rows.num_rows());
        let number = numbers(rows)[row];
        let name = columns[rng.below(columns.len())];
        let find = |rows: &RecordBatch| rows.schema().index_of(name).ok();
        let (rows, law) = match kind {
            0..=2 => {
                let at = find(rows)?;
                let column = with_changed_cell(rows.column(at), row, rng)?;
                let law = match kind {
                    0 => Law::NotProven(number),
                    // A column that nothing authenticates is not covered.
                    1 if before[usize::try_from(number - self.first).expect("few")].header
                        == HeaderBasis::Unproven =>
                    {
                        return None;
                    }
                    1 => Law::HeaderNotProven(number),
                    _ => Law::Same,
                };
                (with_column(rows, at, column), law)
            }
            // A row is gone.
            3 => {
                let order: Vec<_> = (0..rows.num_rows()).filter(|other| *other != row).collect();
                let law = if table == Table::Blocks {
                    Law::Wrong(number, Check::HeaderRow)
                } else {
                    Law::NotProven(number)
                };
                (rows_at(rows, &order), law)
            }
            // A row is there twice.
            4 => {
                let mut order: Vec<_> = (0..rows.num_rows()).collect();
                order.insert(rng.below(order.len() + 1), row);
                let check = if table == Table::Blocks { Check::HeaderRow } else { Check::Copies };
                (rows_at(rows, &order), Law::Wrong(number, check))
            }
            // Rows are in another order.
            5 => {
                let mut order: Vec<_> = (0..rows.num_rows()).collect();
                for at in (1..order.len()).rev() {
                    order.swap(at, rng.below(at + 1));
                }
                (rows_at(rows, &order), Law::Same)
            }
            // A cell of a log is null.
            _ => {
                table = Table::Logs;
                let rows = &self.tables[&table];
                let row = (rows.num_rows() > 0).then(|| rng.below(rows.num_rows()))?;
                let at = find(rows)?;
                // Only cells whose change is a change of the content.
                with_changed_cell(rows.column(at), row, rng)?;
                let null = new_null_array(rows.column(at).data_type(), 1);
                let column = with_cell(rows.column(at), row, &null);
                (with_column(rows, at, column), Law::NotProven(numbers(rows)[row]))
            }
        };
        tables.insert(table, rows);
        Some(Changed { tables, law })
    }
}

fn is_proven(shown: &Shown) -> bool {
    matches!(shown.grade, Grade::Complete | Grade::Consistent)
}

#[test]
fn each_change_of_what_receipts_have_is_noticed_and_nothing_else_accused() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    let changes: u64 =
        std::env::var("CHAINSIEVE_CHANGES").map_or(3_000, |count| count.parse().expect("a number"));
    let windows: Vec<_> = SETS.iter().flat_map(|id| Window::all(Set::open(&root, id), 3)).collect();
    let before: Vec<_> =
        windows.iter().map(|window| [false, true].map(|with| window.shown(with))).collect();
    for shown in before.iter().flatten().flatten() {
        assert_ne!(shown.grade, Grade::Wrong, "{shown:?}");
    }
    let mut counts: [Count; 7] = Default::default();
    for seed in 0..changes {
        let mut rng = Rng::new(seed);
        let at = rng.below(windows.len());
        let (window, with_headers) = (&windows[at], rng.one_in(2));
        let before = &before[at][usize::from(with_headers)];
        let kind = rng.below(7);
        let Some(changed) = window.change(kind, before, &mut rng) else {
            counts[kind].void += 1;
            continue;
        };
        counts[kind].made += 1;
        let Changed { tables, law } = changed;
        let after = Window { set: window.set.clone(), tables, ..*window }.shown(with_headers);
        let name = format!("seed {seed}, kind {kind}, {} from {}", window.set.id(), window.first);
        assert_eq!(after.len(), before.len(), "{name}");
        for ((number, before), after) in (window.first..).zip(before).zip(&after) {
            let both = format!("{name}: block {number}: {before:?}, then {after:?}");
            match law {
                Law::NotProven(changed) if changed == number => {
                    assert!(!is_proven(after), "{both}");
                }
                Law::HeaderNotProven(changed) if changed == number => {
                    assert_ne!(after.grade, Grade::Complete, "{both}");
                }
                // The link to its parent is the child's check.
                Law::HeaderNotProven(changed) if changed + 1 == number => {
                    assert!(after.checks.iter().all(|it| *it == Check::ParentLink), "{both}");
                }
                Law::Wrong(changed, check) if changed == number => {
                    assert!(after.checks.contains(&check), "{both}");
                    assert_eq!(after.grade, Grade::Wrong, "{both}");
                }
                // A copy of the parent's row, or none, does not break the link.
                _ => assert_eq!(before, after, "{both}"),
            }
        }
    }
    println!("{changes} changes: {counts:?}");
    assert!(counts.iter().all(|count| count.made > 0), "{counts:?}");
}

#[test]
fn a_row_that_is_moved_behind_later_blocks_is_an_error() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    let mut moved = 0;
    for id in ["chain-amp-evm-rpc", "chain-cryo-head-all"] {
        for (seed, window) in (0..).zip(Window::all(Set::open(&root, id), 3)) {
            let mut rng = Rng::new(seed);
            let in_order = window.dataset(false).order(Order::Blocks).verify().into_summary();
            assert_eq!(in_order.expect("in order").grades.wrong, 0);
            for (table, rows) in &window.tables {
                let numbers = numbers(rows);
                let last = numbers.last().copied().unwrap_or(0);
                let early: Vec<_> =
                    (0..rows.num_rows()).filter(|row| numbers[*row] < last).collect();
                if early.is_empty() {
                    continue;
                }
                let late = early[rng.below(early.len())];
                let mut order: Vec<_> = (0..rows.num_rows()).filter(|row| *row != late).collect();
                order.push(late);
                let mut tables = window.tables.clone();
                tables.insert(*table, rows_at(rows, &order));
                let window = Window { set: window.set.clone(), tables, ..window };
                let found = window.dataset(false).order(Order::Blocks).verify().into_summary();
                let Err(Error::OutOfOrder { place, number, after }) = found else {
                    panic!("{id}: {found:?}")
                };
                assert_eq!((place.table, place.row), (*table, rows.num_rows() as u64 - 1));
                assert_eq!((number, after), (numbers[late], last));
                moved += 1;
            }
        }
    }
    assert!(moved > 60, "{moved}");
}
