//! Streams that fail or break rules, and columns of no use: nothing panics, and nothing is accused because of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
    Float64Array, Int64Array, ListArray, NullArray, RecordBatch, StringArray, StructArray,
    TimestampNanosecondArray, UInt64Array, new_null_array,
};
use arrow_buffer::{OffsetBuffer, i256};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use chainsieve::eth::columns::Grade;
use chainsieve_dataset::{Dataset, File, Stream, Table};

use crate::corpus::{Set, verify};
use crate::tables::{batches, not_utf8};
use crate::windows::Window;

/// Columns of `rows` cells that no reader can use, each with a name.
fn absurd(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let text = |cell: &'static str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(vec![cell; rows]))
    };
    let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(vec![1; rows * 2]));
    let list = |values: ArrayRef, per_row: usize| -> ArrayRef {
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        let lengths = vec![per_row; values.len() / per_row];
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths), values, None))
    };
    let wide = i256::from_i128(i128::MAX);
    let decimals = Decimal256Array::from_iter_values(vec![wide; rows]);
    let nested = list(list(Arc::new(UInt64Array::from_iter_values(vec![1; rows * 4])), 2), 2);
    let field = Arc::new(Field::new("field", DataType::UInt64, true));
    let fields: ArrayRef = Arc::new(UInt64Array::from_iter_values(vec![1; rows]));
    vec![
        ("negative", Arc::new(Int64Array::from_iter_values(vec![-1; rows]))),
        ("not a number", Arc::new(Float64Array::from_iter_values(vec![f64::NAN; rows]))),
        ("infinite", Arc::new(Float64Array::from_iter_values(vec![f64::INFINITY; rows]))),
        ("inexact", Arc::new(Float64Array::from_iter_values(vec![1e20; rows]))),
        ("fraction", Arc::new(Float64Array::from_iter_values(vec![0.5; rows]))),
        ("short float", Arc::new(Float32Array::from_iter_values(vec![1e9; rows]))),
        ("negative decimal", Arc::new(Decimal128Array::from_iter_values(vec![-1; rows]))),
        (
            "fraction of a decimal",
            Arc::new(
                Decimal128Array::from_iter_values(vec![15; rows])
                    .with_precision_and_scale(38, 1)
                    .expect("precision"),
            ),
        ),
        (
            "a large exponent",
            Arc::new(decimals.with_precision_and_scale(76, -76).expect("precision")),
        ),
        ("no hex", text("not hexadecimal")),
        ("minus", text("-5")),
        ("binary words", text("0b11")),
        ("base64", text("3q2+7w==")),
        ("a date", Arc::new(Date32Array::from_iter_values(vec![20_000; rows]))),
        (
            "part of a second",
            Arc::new(TimestampNanosecondArray::from_iter_values(vec![1_500_000_001; rows])),
        ),
        ("lists", list(numbers, 2)),
        ("lists of lists", nested),
        ("structs", Arc::new(StructArray::from(vec![(field, fields)]))),
    ]
}

/// Replaces a column.
fn replaced(rows: &RecordBatch, at: usize, column: ArrayRef) -> RecordBatch {
    let schema = rows.schema();
    let mut fields: Vec<_> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    fields[at] = Field::new(fields[at].name(), column.data_type().clone(), true);
    let mut columns = rows.columns().to_vec();
    columns[at] = column;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns")
}

#[test]
fn a_column_of_no_use_accuses_nobody() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    let mut tried = 0;
    for id in ["chain-amp-evm-rpc", "chain-sqd-v3", "chain-bigquery-mixed-case"] {
        let windows = Window::all(Set::open(&root, id), 2);
        // Before and after Byzantium, and of a late fork.
        for window in [&windows[0], &windows[10], &windows[25]] {
            for (table, rows) in &window.tables {
                for (at, field) in rows.schema().fields().iter().enumerate() {
                    let is_number = ["number", "block_number", "block_num", "_block_num"]
                        .contains(&&**field.name());
                    for (kind, column) in absurd(rows.num_rows()) {
                        let name = format!("{id}, {table}.{}: {kind}", field.name());
                        let mut tables = window.tables.clone();
                        tables.insert(*table, replaced(rows, at, column));
                        let window = Window { set: window.set.clone(), tables, ..*window };
                        let (verdicts, summary) = verify(window.dataset(false));
                        tried += 1;
                        // The rows can't be assigned, which is said. Amp has the number twice, and the first
                        // column counts.
                        let is_said = !summary.unplaced.is_empty() || rows.num_rows() == 0;
                        let counts = is_number
                            && (field.name() != "block_num"
                                || rows.column_by_name("_block_num").is_none());
                        assert!(is_said || !counts, "{name}: {summary}");
                        for verdict in verdicts {
                            assert_ne!(verdict.grade, Grade::Wrong, "{name}: {verdict}");
                        }
                    }
                }
            }
        }
    }
    assert!(tried > 5_000, "{tried}");
}

#[test]
fn nulls_in_all_columns_are_read() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    let windows = Window::all(Set::open(&root, "chain-amp-evm-rpc"), 2);
    let window = &windows[20];
    for (table, rows) in &window.tables {
        for (at, field) in rows.schema().fields().iter().enumerate() {
            let typed = new_null_array(field.data_type(), rows.num_rows());
            for column in [typed, Arc::new(NullArray::new(rows.num_rows()))] {
                let mut tables = window.tables.clone();
                tables.insert(*table, replaced(rows, at, column));
                let window = Window { set: window.set.clone(), tables, ..*window };
                let (verdicts, _) = verify(window.dataset(false));
                assert_eq!(verdicts.len(), 2);
            }
        }
    }
}

fn numbered(rows: std::ops::Range<u64>) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows));
    RecordBatch::try_from_iter([("number", numbers)]).expect("a column")
}

#[test]
fn files_that_fail_are_named_and_the_others_are_read() {
    let whole = |rows: std::ops::Range<u64>| {
        let batch = numbered(rows);
        batches(batch.schema(), vec![Ok(batch)])
    };
    let failing = || {
        let batch = numbered(10..20);
        let error = Err(ArrowError::ParseError("page 2 is damaged".to_owned()));
        batches(batch.schema(), vec![Ok(batch), error])
    };
    let no_number = || {
        let cells: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        let batch = RecordBatch::try_from_iter([("hash", cells)]).expect("a column");
        batches(batch.schema(), vec![Ok(batch)])
    };
    let two_numbers = || {
        let number = || -> ArrayRef { Arc::new(UInt64Array::from(vec![1])) };
        let columns = [("number", number()), ("number", number())];
        let batch = RecordBatch::try_from_iter(columns).expect("columns");
        batches(batch.schema(), vec![Ok(batch)])
    };
    let (verdicts, summary) = verify(
        Dataset::new()
            .blocks(("first", whole(0..10)))
            .blocks(("fails", failing()))
            .blocks(File::new("absent", || Err::<Stream, _>("no such file")))
            .blocks(("no number", no_number()))
            .blocks(("two numbers", two_numbers()))
            .blocks(("not UTF-8", not_utf8()))
            .blocks(("last", whole(30..40))),
    );
    let numbers: Vec<_> = verdicts.iter().map(|verdict| verdict.number).collect();
    assert_eq!(numbers, (0..20).chain(30..40).collect::<Vec<_>>());
    let found: BTreeMap<_, _> =
        summary.unreadable.iter().map(|file| (&*file.file, (file.rows, &*file.error))).collect();
    assert_eq!(found.len(), 5, "{summary}");
    assert_eq!(found["fails"].0, 10);
    assert!(found["fails"].1.contains("page 2 is damaged"), "{summary}");
    assert_eq!(found["absent"], (0, "no such file"));
    assert!(found["no number"].1.contains("number"), "{summary}");
    assert!(found["two numbers"].1.contains("two columns"), "{summary}");
    assert!(found["not UTF-8"].1.to_lowercase().contains("utf"), "{summary}");
    assert!(summary.unreadable.iter().all(|file| file.table == Table::Blocks));
    assert_eq!((summary.gaps.len(), summary.gaps[0].first, summary.gaps[0].last), (1, 20, 29));
    let page = summary.to_string();
    assert!(page.contains("no rows: blocks 20 to 29"), "{page}");
    let json = serde_json::to_value(&summary).expect("JSON");
    assert_eq!(json["grades"]["undecided"], summary.grades.undecided);
}

#[test]
fn a_table_whose_files_are_all_unreadable_is_not_missing_rows() {
    let batch = numbered(0..3);
    let set = Dataset::new()
        .blocks(batches(batch.schema(), vec![Ok(batch)]))
        .logs(File::new("logs", || Err::<Stream, _>("no permission")));
    let (verdicts, _) = verify(set);
    assert!(verdicts.iter().all(|it| it.missing.iter().any(|it| it.column == "logs")));
    let (verdicts, summary) = verify(Dataset::new());
    assert!(verdicts.is_empty() && summary.blocks == 0);
}
