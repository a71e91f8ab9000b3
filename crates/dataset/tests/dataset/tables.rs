//! Tables of the corpus as Arrow's streams, and streams of made-up batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use chainsieve_dataset::{Dataset, File, Stream, Table};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Hands a reader over as C does.
pub(crate) fn stream(reader: impl RecordBatchReader + Send + 'static) -> Stream {
    let mut exported = FFI_ArrowArrayStream::new(Box::new(reader));
    #[expect(unsafe_code, reason = "the interface is C's")]
    // SAFETY: the struct is valid, and not used again.
    unsafe {
        Stream::from_raw((&raw mut exported).cast())
    }
}

/// Hands batches over as C does. The first error ends the stream.
pub(crate) fn batches(schema: SchemaRef, batches: Vec<Result<RecordBatch, ArrowError>>) -> Stream {
    stream(RecordBatchIterator::new(batches, schema))
}

/// Takes a stream of ours as C does.
pub(crate) fn import(stream: Stream) -> arrow_array::ffi_stream::RecordBatchStreamReader {
    let mut imported = FFI_ArrowArrayStream::empty();
    #[expect(unsafe_code, reason = "the interface is C's")]
    // SAFETY: the struct is valid for a write, and has nothing to release.
    unsafe {
        stream.write_to((&raw mut imported).cast());
    }
    arrow_array::ffi_stream::RecordBatchStreamReader::try_new(imported).expect("a schema")
}

/// A file of a data set, in memory.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) table: Table,
    pub(crate) name: String,
    pub(crate) rows: Result<Vec<RecordBatch>, String>,
}

impl Part {
    pub(crate) fn file(&self) -> File {
        let rows = self.rows.clone();
        File::new(self.name.clone(), move || {
            rows.map(|rows| {
                let schema = rows.first().map_or(Arc::new(Schema::empty()), RecordBatch::schema);
                batches(schema, rows.into_iter().map(Ok).collect())
            })
        })
    }
}

pub(crate) fn add(set: Dataset, table: Table, file: File) -> Dataset {
    match table {
        Table::Blocks => set.blocks(file),
        Table::Transactions => set.transactions(file),
        Table::Receipts => set.receipts(file),
        _ => set.logs(file),
    }
}

pub(crate) fn dataset(parts: &[Part]) -> Dataset {
    parts.iter().fold(Dataset::new(), |set, part| add(set, part.table, part.file()))
}

/// Reads all files of a set, in the order of their names.
pub(crate) fn read(folder: &Path) -> Vec<Part> {
    let mut files = Vec::new();
    find(folder, &mut files);
    files.sort();
    files
        .iter()
        .map(|file| {
            let name = file.strip_prefix(folder).expect("a file of the folder");
            let name = name.to_string_lossy().into_owned();
            let table = table_of(&name);
            let rows = if file.extension().is_some_and(|extension| extension == "csv") {
                Ok(vec![csv(&std::fs::read_to_string(file).expect("UTF-8"))])
            } else {
                parquet(file)
            };
            Part { table, name, rows }
        })
        .collect()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { find(&path, files) } else { files.push(path) }
    }
}

/// The table of a file, by the names that the tools use.
fn table_of(name: &str) -> Table {
    let name = name.replace("__", "/");
    let is_in = |word: &str| {
        name.split('/').any(|part| {
            part.strip_prefix(word)
                .is_some_and(|rest| rest.is_empty() || "-._".contains(&rest[..1]))
        })
    };
    if is_in("transactions") || is_in("canonical_execution_transaction") {
        Table::Transactions
    } else if is_in("blocks") || is_in("canonical_execution_block") {
        Table::Blocks
    } else if is_in("logs") || is_in("canonical_execution_logs") {
        Table::Logs
    } else if is_in("receipts") {
        Table::Receipts
    } else {
        panic!("{name}: no table")
    }
}

pub(crate) fn parquet(file: &Path) -> Result<Vec<RecordBatch>, String> {
    let file = std::fs::File::open(file).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.with_batch_size(1_000).build())
        .map_err(|error| error.to_string())?;
    let schema = reader.schema();
    let mut batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok(batches)
}

/// Reads CSV into columns of text, where an empty cell is null.
pub(crate) fn csv(text: &str) -> RecordBatch {
    let mut lines = text.lines().map(cells);
    let names = lines.next().expect("names of columns");
    let rows: Vec<_> = lines.collect();
    let column = |at: usize| -> ArrayRef {
        let cells = rows.iter().map(|row| Some(row[at].as_str()).filter(|cell| !cell.is_empty()));
        Arc::new(cells.collect::<StringArray>())
    };
    let fields: Vec<_> = names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    let columns = (0..names.len()).map(column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns of one length")
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

/// A stream whose text is not UTF-8, which arrow-rs does not check when it takes the stream over.
pub(crate) fn not_utf8() -> Stream {
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([2]);
    let bytes = arrow_buffer::Buffer::from(&[0xff, 0xfe][..]);
    #[expect(unsafe_code, reason = "a safe function would refuse it")]
    // SAFETY: nobody reads the text before it is checked.
    let text = unsafe { StringArray::new_unchecked(offsets, bytes, None) };
    let numbers: ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![99]));
    let hash: ArrayRef = Arc::new(text);
    let batch = RecordBatch::try_from_iter([("number", numbers), ("hash", hash)]).expect("columns");
    batches(batch.schema(), vec![Ok(batch)])
}
