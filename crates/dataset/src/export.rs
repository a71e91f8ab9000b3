//! Verdicts as a table, in Arrow's C stream interface.

use std::sync::{Arc, OnceLock};

use arrow_array::builder::{BooleanBuilder, ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::stream::Stream;
use crate::summary::Summary;
use crate::verdicts::{Verdict, Verdicts};

/// Verdicts of a batch.
const ROWS: usize = 1_024;

impl Verdicts {
    /// Returns the verdicts as a table, and a place that gets the [`Summary`] at the end of the stream.
    ///
    /// | column | type | content |
    /// |---|---|---|
    /// | `block_number` | uint64 | |
    /// | `block_hash` | string | with `0x`; null if it is not known |
    /// | `grade` | string | [name](chainsieve::eth::columns::Grade::name) of the grade |
    /// | `header` | string | [name](chainsieve::eth::columns::HeaderBasis::name) of the header's basis |
    /// | `receipts_root` | bool | the rows have the receipts root |
    /// | `failed_checks` | list of strings | names of the checks that failed |
    /// | `missing` | list of strings | columns that undecided checks lack |
    /// | `table`, `file` | string | of the first row that fails a check; null if no check is about a row |
    /// | `row` | uint64 | that row of the file, counted from 0 |
    /// | `is_absent` | bool | no table has a row of the block |
    /// | `text` | string | the verdict as a line of text |
    ///
    /// An [`Error`](crate::Error) ends the stream with its text. If the stream is released before, the
    /// verification ends, and there is no summary.
    pub fn into_stream(self) -> (Stream, Arc<OnceLock<Summary>>) {
        let summary = Arc::new(OnceLock::new());
        let table = VerdictTable { verdicts: self, schema: schema(), summary: summary.clone() };
        (Stream::export(Box::new(table)), summary)
    }
}

struct VerdictTable {
    verdicts: Verdicts,
    schema: SchemaRef,
    summary: Arc<OnceLock<Summary>>,
}

fn schema() -> SchemaRef {
    let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
    let texts = |name| Field::new_list(name, Field::new_list_field(DataType::Utf8, true), false);
    Arc::new(Schema::new(vec![
        Field::new("block_number", DataType::UInt64, false),
        text("block_hash", true),
        text("grade", false),
        text("header", false),
        Field::new("receipts_root", DataType::Boolean, false),
        texts("failed_checks"),
        texts("missing"),
        text("table", true),
        text("file", true),
        Field::new("row", DataType::UInt64, true),
        Field::new("is_absent", DataType::Boolean, false),
        text("text", false),
    ]))
}

#[derive(Default)]
struct Rows {
    block_number: UInt64Builder,
    block_hash: StringBuilder,
    grade: StringBuilder,
    header: StringBuilder,
    receipts_root: BooleanBuilder,
    failed_checks: ListBuilder<StringBuilder>,
    missing: ListBuilder<StringBuilder>,
    table: StringBuilder,
    file: StringBuilder,
    row: UInt64Builder,
    is_absent: BooleanBuilder,
    text: StringBuilder,
}

impl Rows {
    fn add(&mut self, verdict: &Verdict) {
        self.block_number.append_value(verdict.number);
        self.block_hash.append_option(verdict.hash.map(|hash| hash.to_string()));
        self.grade.append_value(verdict.grade.name());
        self.header.append_value(verdict.header.name());
        self.receipts_root.append_value(verdict.receipts_root);
        let checks = verdict.faults.iter().map(|fault| fault.check.name());
        append(&mut self.failed_checks, checks.collect());
        append(&mut self.missing, verdict.missing.iter().map(|it| it.column).collect());
        let place = verdict.place.as_ref();
        self.table.append_option(place.map(|place| place.table.name()));
        self.file.append_option(place.map(|place| &place.file));
        self.row.append_option(place.map(|place| place.row));
        self.is_absent.append_value(verdict.is_absent);
        self.text.append_value(verdict.to_string());
    }

    fn finish(mut self, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.block_number.finish()),
            Arc::new(self.block_hash.finish()),
            Arc::new(self.grade.finish()),
            Arc::new(self.header.finish()),
            Arc::new(self.receipts_root.finish()),
            Arc::new(self.failed_checks.finish()),
            Arc::new(self.missing.finish()),
            Arc::new(self.table.finish()),
            Arc::new(self.file.finish()),
            Arc::new(self.row.finish()),
            Arc::new(self.is_absent.finish()),
            Arc::new(self.text.finish()),
        ];
        RecordBatch::try_new(schema, columns)
    }
}

/// Appends a list of names, each once.
fn append(list: &mut ListBuilder<StringBuilder>, mut names: Vec<&str>) {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    for name in names {
        list.values().append_value(name);
    }
    list.append(true);
}

impl Iterator for VerdictTable {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rows = Rows::default();
        let mut count = 0;
        for verdict in self.verdicts.by_ref().take(ROWS) {
            match verdict {
                Ok(verdict) => rows.add(&verdict),
                Err(error) => return Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
            count += 1;
        }
        if count < ROWS && self.verdicts.is_whole() {
            self.summary.get_or_init(|| self.verdicts.summary());
        }
        (count > 0).then(|| rows.finish(self.schema.clone()))
    }
}

impl RecordBatchReader for VerdictTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
