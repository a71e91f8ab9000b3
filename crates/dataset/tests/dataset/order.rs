//! Rows in an order and out of it, and the memory that they take.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch, RecordBatchReader, UInt8Array,
    UInt64Array, cast::AsArray as _, types::UInt64Type,
};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use chainsieve::alloy_primitives::hex;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::columns::{Check, Grade};
use chainsieve::eth::header::HeaderBuf;
use chainsieve_dataset::{Dataset, Error, File, Order, Table};

use crate::tables::{Part, dataset, import, read, stream};

/// Logs of each transaction of the made-up table.
const LOGS: u64 = 3;

/// A made-up table without a table of blocks: `rows` rows, ascending by block, several of each.
struct Made {
    schema: SchemaRef,
    table: Table,
    next: u64,
    end: u64,
    batch: u64,
    /// At this row, a row of the first block comes again.
    late: Option<u64>,
}

impl Made {
    fn new(table: Table, blocks: u64, per_block: u64, batch: u64) -> Self {
        let empty = columns(table, 0..0, None);
        let schema = Arc::new(Schema::new(empty.schema().fields().clone()));
        Self { schema, table, next: 0, end: blocks * per_block, batch, late: None }
    }

    fn file(self, name: &str) -> File {
        let stream = stream(self);
        File::from((name, stream))
    }
}

fn columns(table: Table, rows: std::ops::Range<u64>, late: Option<u64>) -> RecordBatch {
    let per_block = if table == Table::Logs { 10 * LOGS } else { 10 };
    let numbers = |of: &dyn Fn(u64) -> u64| -> ArrayRef {
        Arc::new(rows.clone().map(of).collect::<UInt64Array>())
    };
    let bytes = |length: usize, of: &dyn Fn(u64) -> u64| -> ArrayRef {
        let cell = |row| {
            let mut cell = vec![0x5a; length];
            cell[..8].copy_from_slice(&of(row).to_le_bytes());
            cell
        };
        let cells = rows.clone().map(cell).map(Some);
        let length = i32::try_from(length).expect("short");
        Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(cells, length).expect("bytes"),
        )
    };
    let block = |row: u64| if late == Some(row) { 0 } else { row / per_block };
    let hash = |row: u64| row / if table == Table::Logs { LOGS } else { 1 };
    let index = |row: u64| hash(row) % 10;
    let mut columns = vec![
        ("block_number", numbers(&block)),
        ("transaction_index", numbers(&index)),
        ("transaction_hash", bytes(32, &hash)),
    ];
    if table == Table::Logs {
        let data: BinaryArray = rows.clone().map(|_| Some(&[0x11; 64][..])).collect();
        columns.push(("log_index", numbers(&|row| row % per_block)));
        columns.push(("address", bytes(20, &|row| row)));
        for name in ["topic0", "topic1", "topic2", "topic3"] {
            columns.push((name, bytes(32, &|row| row)));
        }
        columns.push(("data", Arc::new(data)));
    } else {
        let ones = |_| 1_u8;
        columns.push(("status", Arc::new(rows.clone().map(ones).collect::<UInt8Array>())));
        columns.push(("type", Arc::new(rows.clone().map(ones).collect::<UInt8Array>())));
        columns.push(("gas_used", numbers(&|_| 21_000)));
    }
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

impl Iterator for Made {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.end.min(self.next + self.batch);
        let rows = self.next..end;
        self.next = end;
        (!rows.is_empty()).then(|| Ok(columns(self.table, rows, self.late)))
    }
}

impl RecordBatchReader for Made {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn made(blocks: u64, batch: u64) -> Dataset {
    Dataset::new()
        .transactions(Made::new(Table::Transactions, blocks, 10, batch).file("transactions"))
        .logs(Made::new(Table::Logs, blocks, 10 * LOGS, batch).file("logs"))
        .profile(ChainProfile::ethereum())
}

#[test]
fn sorted_rows_stream_through_a_small_buffer() {
    // A million rows need some hundred MB if they wait. CHAINSIEVE_ROWS asks for more of them.
    let rows: u64 =
        std::env::var("CHAINSIEVE_ROWS").map_or(200_000, |it| it.parse().expect("a number"));
    let blocks = rows / 40;
    for order in [Order::Detect, Order::Blocks] {
        let buffer = if order == Order::Detect { 16 << 20 } else { 8 << 20 };
        let set = made(blocks, 8_192).order(order).buffer(buffer);
        let progress = set.progress();
        let begin = std::time::Instant::now();
        let mut verdicts = set.verify();
        let mut count = 0;
        for verdict in verdicts.by_ref() {
            let verdict = verdict.expect("in order");
            assert_eq!(verdict.number, count);
            assert_eq!(verdict.grade, Grade::Indices, "{verdict}");
            count += 1;
        }
        let summary = verdicts.summary();
        assert_eq!((count, summary.blocks, summary.rows), (blocks, blocks, blocks * 40));
        assert_eq!((progress.blocks(), progress.rows()), (blocks, blocks * 40));
        assert_eq!(summary.ranges.len(), 1, "{summary}");
        // At most what the two tables have read beyond each other is above the limit.
        assert!(summary.buffered < (buffer + (8 << 20)) as u64, "{} bytes", summary.buffered);
        println!("{rows} rows with {order:?}: {:?}, {} bytes", begin.elapsed(), summary.buffered);
    }
}

#[test]
fn a_full_buffer_says_how_to_sort() {
    let error = made(5_000, 8_192).order(Order::Any).buffer(4 << 20).verify().into_summary();
    let Err(error) = error else { panic!("200,000 rows in 4 MiB") };
    assert!(matches!(error, Error::BufferFull { limit: 0x40_0000, unsorted: None, .. }));
    let text = error.to_string();
    assert!(text.contains("ORDER BY block_number, "), "{text}");
    assert!(text.contains("Order::Blocks") && text.contains("buffer"), "{text}");
    // The order that was found ends before the buffer is full.
    let unsorted = Made { late: Some(40), ..Made::new(Table::Logs, 5_000, 10 * LOGS, 8_192) };
    let error =
        Dataset::new().logs(unsorted.file("by topic")).buffer(4 << 20).verify().into_summary();
    let Err(Error::BufferFull { table: Table::Logs, unsorted: Some(place), .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(place.to_string(), "logs, by topic, row 40");
}

#[test]
fn a_late_row_is_an_error_and_never_ignored() {
    for (order, late) in [(Order::Blocks, 500), (Order::Blocks, 100_000), (Order::Detect, 100_000)]
    {
        for batch in [1_000, 8_192, 200_000] {
            let logs = Made { late: Some(late), ..Made::new(Table::Logs, 5_000, 10 * LOGS, batch) };
            let set = Dataset::new()
                .transactions(Made::new(Table::Transactions, 5_000, 10, batch).file("transactions"))
                .logs(logs.file("logs"))
                .order(order)
                .buffer(8 << 20);
            let error = set.verify().into_summary().err();
            let Some(Error::OutOfOrder { place, number, after }) = error else {
                panic!("{order:?}, {late}, {batch}: {error:?}")
            };
            assert_eq!((place.row, number, after), (late, 0, (late - 1) / 30));
            assert_eq!((place.table, &*place.file), (Table::Logs, "logs"));
        }
    }
    // If everything fits into the buffer, the row is one of its block.
    let logs = Made { late: Some(500), ..Made::new(Table::Logs, 100, 10 * LOGS, 100) };
    let summary = Dataset::new().logs(logs.file("logs")).profile(ChainProfile::ethereum()).verify();
    let summary = summary.into_summary().expect("it fits");
    assert_eq!(summary.grades.wrong, 2, "{summary}");
}

#[test]
fn files_in_order_may_have_rows_in_any_order() {
    let files = |is_swapped: bool| {
        let mut set = Dataset::new().order(Order::Files);
        let mut numbers: Vec<u64> = (0..20).collect();
        if is_swapped {
            numbers.swap(7, 8);
        }
        for number in numbers {
            let rows = (number * 3_000..(number + 1) * 3_000).rev();
            let batch = columns(Table::Logs, number * 3_000..(number + 1) * 3_000, None);
            let order: UInt64Array = rows.map(|row| row - number * 3_000).collect();
            let batch = arrow_select::take::take_record_batch(&batch, &order).expect("rows");
            let schema = batch.schema();
            let stream = crate::tables::batches(schema, vec![Ok(batch)]);
            set = set.logs((format!("file {number}"), stream));
        }
        set.profile(ChainProfile::ethereum())
    };
    // A file takes about 1 MiB, and the whole table does not fit.
    let summary = files(false).buffer(6 << 20).verify().into_summary().expect("in order");
    assert_eq!((summary.blocks, summary.grades.indices), (2_000, 2_000), "{summary}");
    assert!(summary.buffered < 6 << 20, "{summary:?}");
    // The order of the files is found, too.
    let detected = files(false).order(Order::Detect).buffer(6 << 20).verify().into_summary();
    assert_eq!(detected.expect("in order").grades.indices, 2_000);

    let error = files(true).verify().into_summary();
    let Err(Error::OutOfOrder { place, .. }) = error else { panic!("{error:?}") };
    assert_eq!(place.file, "file 7");
    let any = files(true).order(Order::Any).verify().into_summary().expect("it fits");
    assert_eq!(any.grades.indices, 2_000);
}

#[test]
fn verdicts_are_a_stream() {
    let (stream, summary) = made(3_000, 8_192).verify().into_stream();
    let mut reader = import(stream);
    assert_eq!(reader.schema().field(0).name(), "block_number");
    let mut next = 0;
    for batch in reader.by_ref() {
        let batch = batch.expect("a batch");
        for number in batch.column(0).as_primitive::<UInt64Type>().values() {
            assert_eq!(*number, next);
            next += 1;
        }
        let grades = batch.column_by_name("grade").expect("grades").as_string::<i32>();
        assert!(grades.iter().all(|grade| grade == Some("indices")));
    }
    assert_eq!(next, 3_000);
    assert_eq!(summary.get().expect("the end").blocks, 3_000);

    // An error ends the stream.
    let (stream, summary) =
        made(5_000, 8_192).order(Order::Any).buffer(1 << 20).verify().into_stream();
    let error = import(stream).find_map(Result::err).expect("no room");
    assert!(error.to_string().contains("ORDER BY"), "{error}");
    assert!(summary.get().is_none());

    // Nothing is read after the reader has gone.
    let set = made(50_000, 8_192).order(Order::Blocks);
    let progress = set.progress();
    let (stream, summary) = set.verify().into_stream();
    let mut reader = import(stream);
    assert!(reader.next().is_some_and(|batch| batch.is_ok()));
    drop(reader);
    assert!(progress.rows() < 200_000 && summary.get().is_none());
}

/// Folder of real blocks.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ethereum");
const TRUSTED: u64 = 17_686_112;

/// Returns the encoding of the header of block [`TRUSTED`].
fn encoding() -> Vec<u8> {
    let file = format!("{FIXTURES}/blocks/mainnet_{TRUSTED}.json");
    let text = std::fs::read_to_string(file).expect("a fixture");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    hex::decode(json["header"].as_str().expect("hex")).expect("hex")
}

/// A trusted header shows that another block is not its parent, wherever the blocks are divided for verification.
#[test]
fn a_trusted_header_refutes_the_last_block_before_it() {
    let header = HeaderBuf::from_rlp(encoding()).expect("a header");
    for before in 1..=130 {
        let numbers = TRUSTED - before..TRUSTED;
        let hash = |number: u64| Some([u8::try_from(number % 251).expect("a byte"); 32]);
        let hashes = |of: std::ops::Range<u64>| -> ArrayRef {
            let hashes = of.map(hash);
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(hashes, 32).expect("32"))
        };
        let rows = RecordBatch::try_from_iter([
            ("number", Arc::new(numbers.clone().collect::<UInt64Array>()) as ArrayRef),
            ("hash", hashes(numbers.clone())),
            ("parent_hash", hashes(numbers.start - 1..numbers.end - 1)),
        ]);
        let name = "blocks".to_owned();
        let part = Part { table: Table::Blocks, name, rows: Ok(vec![rows.expect("a table")]) };
        let header = header.clone();
        let data = dataset(&[part])
            .profile(ChainProfile::ethereum())
            .headers(move |number| (number == TRUSTED).then(|| header.clone()))
            .range(numbers.start..=TRUSTED);
        let verdicts: Vec<_> = data.verify().map(|verdict| verdict.expect("a verdict")).collect();
        let refuted =
            verdicts.iter().filter(|it| it.faults.iter().any(|it| it.check == Check::Anchor));
        let refuted: Vec<_> = refuted.map(|it| (it.number, it.grade)).collect();
        assert_eq!(refuted, [(TRUSTED - 1, Grade::Wrong)], "{before} blocks");
    }
}

/// So does it if the block has a hash that a doubtful column could explain, and is verified again without it.
#[test]
fn a_trusted_header_refutes_a_block_with_a_doubtful_column() {
    let mut other = encoding();
    // The parent hash follows the heads of the list and of itself.
    other[4..36].fill(9);
    let header = HeaderBuf::from_rlp(other).expect("a header");
    let mut parts = read(Path::new(&format!("{FIXTURES}/datasets"))).into_iter();
    let part = parts.find(|part| part.name == "blocks.parquet").expect("the file");
    let row = part.rows.expect("readable")[0].slice(0, 1);
    // Without withdrawals, the header has no later field either, so that its hash is known to differ.
    let doubtful: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[7; 32]]));
    let null: ArrayRef = Arc::new(BinaryArray::new_null(1));
    let schema = row.schema();
    let columns = schema.fields().iter().zip(row.columns()).map(|(field, column)| {
        let column = match field.name().as_str() {
            "uncles_hash" => &doubtful,
            "withdrawals_root" => &null,
            _ => column,
        };
        (field.name().clone(), column.clone())
    });
    let rows = Ok(vec![RecordBatch::try_from_iter(columns).expect("a table")]);
    let part = Part { table: Table::Blocks, name: part.name, rows };
    let data = dataset(&[part])
        .profile(ChainProfile::ethereum())
        .amsterdam_since(u64::MAX)
        .headers(move |number| (number == TRUSTED).then(|| header.clone()))
        .range(TRUSTED - 1..=TRUSTED);
    let first = data.verify().next().expect("a verdict").expect("no error");
    let checks: Vec<_> = first.faults.iter().map(|fault| fault.check).collect();
    assert_eq!((first.number, checks), (TRUSTED - 1, vec![Check::Anchor]), "{first}");
}
