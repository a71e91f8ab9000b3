//! Small data sets: a few blocks of the corpus, and their verdicts.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use chainsieve::eth::columns::{Check, Grade, HeaderBasis};
use chainsieve_dataset::{Dataset, Order, Table};

use crate::corpus::{Set, verify};
use crate::tables::{Part, dataset};

/// A few blocks of a set, with one file for each table.
pub(crate) struct Window {
    pub(crate) set: std::rc::Rc<Set>,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) tables: BTreeMap<Table, RecordBatch>,
}

/// What a verdict says, apart from places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) grade: Grade,
    pub(crate) header: HeaderBasis,
    pub(crate) checks: Vec<Check>,
}

/// Returns the number of the block of each row.
pub(crate) fn numbers(rows: &RecordBatch) -> Vec<u64> {
    let names = ["number", "block_number", "block_num"];
    let column = names.iter().find_map(|name| rows.column_by_name(name)).expect("numbers");
    macro_rules! of {
        ($kind:ty) => {
            column
                .as_primitive::<$kind>()
                .values()
                .iter()
                .map(|number| u64::try_from(*number).expect("positive"))
                .collect()
        };
    }
    match column.data_type() {
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt32 => of!(UInt32Type),
        _ => of!(UInt64Type),
    }
}

impl Window {
    /// Cuts a set into windows of `length` blocks.
    pub(crate) fn all(set: Set, length: u64) -> Vec<Self> {
        let set = std::rc::Rc::new(set);
        let [first, last] =
            ["first", "last"].map(|name| set.truth[name].as_u64().expect("a number"));
        let mut windows = Vec::new();
        let mut start = first;
        while start + length <= last + 1 {
            let mut tables = BTreeMap::new();
            for table in [Table::Blocks, Table::Transactions, Table::Logs] {
                let parts = set.parts.iter().filter(|part| part.table == table);
                let rows: Vec<_> =
                    parts.flat_map(|part| part.rows.as_ref().expect("readable").iter()).collect();
                let rows = concat_batches(&rows[0].schema(), rows).expect("one schema");
                let is_in = |number: &u64| (start..start + length).contains(number);
                let chosen: BooleanArray =
                    numbers(&rows).iter().map(|number| Some(is_in(number))).collect();
                tables.insert(table, filter_record_batch(&rows, &chosen).expect("rows"));
            }
            windows.push(Self { set: set.clone(), first: start, last: start + length - 1, tables });
            start += length;
        }
        windows
    }

    pub(crate) fn dataset(&self, with_headers: bool) -> Dataset {
        let parts: Vec<_> = self
            .tables
            .iter()
            .map(|(table, rows)| Part {
                table: *table,
                name: table.name().to_owned(),
                rows: Ok(vec![rows.clone()]),
            })
            .collect();
        let set = self.set.stated(dataset(&parts)).range(self.first..=self.last).order(Order::Any);
        if with_headers { self.set.with_headers(set) } else { set }
    }

    /// Returns what the verdict of each block says.
    pub(crate) fn shown(&self, with_headers: bool) -> Vec<Shown> {
        let (verdicts, _) = verify(self.dataset(with_headers));
        verdicts
            .iter()
            .map(|verdict| Shown {
                grade: verdict.grade,
                header: verdict.header,
                checks: verdict.faults.iter().map(|fault| fault.check).collect(),
            })
            .collect()
    }
}
