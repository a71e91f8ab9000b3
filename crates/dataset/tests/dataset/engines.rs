//! The types of columns that engines hand over, and batches that cut blocks.

use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal128Type, Int32Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, DictionaryArray, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray, LargeListArray,
    LargeStringArray, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use arrow_select::concat::concat_batches;
use chainsieve_dataset::{Order, Verdict};
use testkit::Rng;

use crate::corpus::{Set, verify};
use crate::tables::{Part, dataset};

/// Sets of all encodings, whole and damaged.
const SETS: [&str; 10] = [
    "chain-amp-evm-rpc-damaged",
    "chain-bigquery-damaged",
    "chain-aws-v1.0-damaged",
    "chain-cryo-head-all-damaged",
    "chain-cryo-head-all-hex-damaged",
    "chain-ethereum-etl-csv-damaged",
    "chain-hypersync-mapped-damaged",
    "chain-hypersync-nonprefixed-damaged",
    "chain-sqd-v3-damaged",
    "chain-xatu-damaged",
];

/// Returns the same cells in another type that an engine may have for them.
fn other_type(array: &ArrayRef, rng: &mut Rng) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => other_text(&texts(array), rng),
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            other_binary(&binaries(array), rng)
        }
        DataType::Boolean => Arc::new(
            array.as_boolean().iter().map(|cell| cell.map(i8::from)).collect::<Int8Array>(),
        ),
        DataType::Timestamp(_, _) => other_time(array, rng),
        DataType::List(field) => other_list(array, field, rng),
        _ => match integers(array) {
            Some(cells) => other_integers(&cells, rng),
            None => array.clone(),
        },
    }
}

fn texts(array: &ArrayRef) -> Vec<Option<&str>> {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().collect(),
        _ => array.as_string::<i64>().iter().collect(),
    }
}

fn binaries(array: &ArrayRef) -> Vec<Option<&[u8]>> {
    match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().iter().collect(),
        DataType::LargeBinary => array.as_binary::<i64>().iter().collect(),
        _ => array.as_fixed_size_binary().iter().collect(),
    }
}

fn other_text(cells: &[Option<&str>], rng: &mut Rng) -> ArrayRef {
    match rng.below(4) {
        0 => Arc::new(cells.iter().collect::<StringArray>()),
        1 => Arc::new(cells.iter().collect::<LargeStringArray>()),
        2 => {
            let mut view = StringViewBuilder::new();
            for cell in cells {
                view.append_option(*cell);
            }
            Arc::new(view.finish())
        }
        _ => Arc::new(cells.iter().copied().collect::<DictionaryArray<Int32Type>>()),
    }
}

fn other_binary(cells: &[Option<&[u8]>], rng: &mut Rng) -> ArrayRef {
    let length = cells.iter().flatten().next().map_or(0, |cell| cell.len());
    let is_fixed = length > 0 && cells.iter().flatten().all(|cell| cell.len() == length);
    match rng.below(5) {
        0 => Arc::new(cells.iter().collect::<BinaryArray>()),
        1 => Arc::new(cells.iter().collect::<LargeBinaryArray>()),
        2 if is_fixed => {
            let length = i32::try_from(length).expect("short");
            let mut fixed = FixedSizeBinaryBuilder::new(length);
            for cell in cells {
                match cell {
                    Some(cell) => fixed.append_value(cell).expect("the length"),
                    None => fixed.append_null(),
                }
            }
            Arc::new(fixed.finish())
        }
        3 => {
            // A dictionary has each value once.
            let mut values: Vec<&[u8]> = cells.iter().flatten().copied().collect();
            values.sort_unstable();
            values.dedup();
            let key = |cell: Option<&[u8]>| {
                cell.map(|cell| {
                    i64::try_from(values.binary_search(&cell).expect("a value")).expect("few")
                })
            };
            let keys: Int64Array = cells.iter().copied().map(key).collect();
            let values: BinaryArray = values.iter().map(|value| Some(*value)).collect();
            Arc::new(DictionaryArray::<Int64Type>::try_new(keys, Arc::new(values)).expect("keys"))
        }
        _ => {
            let mut view = BinaryViewBuilder::new();
            for cell in cells {
                view.append_option(*cell);
            }
            Arc::new(view.finish())
        }
    }
}

fn integers(array: &ArrayRef) -> Option<Vec<Option<i128>>> {
    macro_rules! cells {
        ($($kind:ident = $array:ty),+) => {
            match array.data_type() {
                $(DataType::$kind => {
                    let array = array.as_any().downcast_ref::<$array>().expect("its type");
                    Some(array.iter().map(|cell| cell.map(i128::from)).collect())
                })+
                DataType::Decimal128(_, 0) => {
                    Some(array.as_primitive::<Decimal128Type>().iter().collect())
                }
                _ => None,
            }
        };
    }
    cells!(
        Int8 = Int8Array,
        Int16 = Int16Array,
        Int32 = Int32Array,
        Int64 = Int64Array,
        UInt8 = UInt8Array,
        UInt16 = UInt16Array,
        UInt32 = UInt32Array,
        UInt64 = UInt64Array
    )
}

fn other_integers(cells: &[Option<i128>], rng: &mut Rng) -> ArrayRef {
    let max = cells.iter().flatten().max().copied().unwrap_or(0);
    macro_rules! of {
        ($array:ty) => {
            Arc::new(
                cells
                    .iter()
                    .map(|cell| cell.map(|it| it.try_into().expect("it fits")))
                    .collect::<$array>(),
            )
        };
    }
    match rng.below(9) {
        0 if max < 1 << 7 => of!(Int8Array),
        1 if max < 1 << 8 => of!(UInt8Array),
        2 if max < 1 << 15 => of!(Int16Array),
        3 if max < 1 << 31 => of!(Int32Array),
        4 if max < 1 << 32 => of!(UInt32Array),
        5 if max < 1 << 63 => of!(Int64Array),
        6 if max < 1 << 53 => {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let cells = cells.iter().map(|cell| cell.map(|it| it as f64));
            Arc::new(cells.collect::<Float64Array>())
        }
        7 => {
            let cells = cells.iter().map(|cell| cell.map(|it| i256::from_i128(it * 1_000)));
            let decimals = cells.collect::<Decimal256Array>();
            Arc::new(decimals.with_precision_and_scale(60, 3).expect("precision"))
        }
        _ => {
            let cells = cells.iter().map(|cell| cell.map(|it| it * 10));
            let decimals = cells.collect::<Decimal128Array>();
            Arc::new(decimals.with_precision_and_scale(38, 1).expect("precision"))
        }
    }
}

fn other_time(array: &ArrayRef, rng: &mut Rng) -> ArrayRef {
    let DataType::Timestamp(unit, _) = array.data_type() else { unreachable!() };
    let ticks: Vec<Option<i64>> = match unit {
        TimeUnit::Second => cells_of::<TimestampSecondArray>(array).iter().collect(),
        TimeUnit::Millisecond => cells_of::<TimestampMillisecondArray>(array).iter().collect(),
        TimeUnit::Microsecond => cells_of::<TimestampMicrosecondArray>(array).iter().collect(),
        TimeUnit::Nanosecond => cells_of::<TimestampNanosecondArray>(array).iter().collect(),
    };
    let per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let seconds = ticks.iter().map(|cell| cell.map(|it| it / per_second));
    let times = |factor: i64| seconds.clone().map(move |cell| cell.map(|it| it * factor));
    match rng.below(6) {
        0 => Arc::new(times(1).collect::<TimestampSecondArray>()),
        1 => Arc::new(times(1_000).collect::<TimestampMillisecondArray>().with_timezone("UTC")),
        2 => Arc::new(times(1_000_000).collect::<TimestampMicrosecondArray>()),
        3 => Arc::new(times(1_000_000_000).collect::<TimestampNanosecondArray>()),
        _ => Arc::new(times(1).collect::<Int64Array>()),
    }
}

fn cells_of<A: Array + 'static>(array: &ArrayRef) -> &A {
    array.as_any().downcast_ref().expect("its type")
}

fn other_list(array: &ArrayRef, field: &Arc<Field>, rng: &mut Rng) -> ArrayRef {
    if matches!(field.data_type(), DataType::Struct(_)) {
        return array.clone();
    }
    let list = array.as_list::<i32>();
    let values = other_type(list.values(), rng);
    let field = Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone()));
    let nulls: Option<NullBuffer> = list.nulls().cloned();
    if rng.below(2) == 0 {
        let list = arrow_array::ListArray::new(field, list.offsets().clone(), values, nulls);
        return Arc::new(list);
    }
    let offsets = list.offsets().iter().map(|offset| i64::from(*offset)).collect();
    Arc::new(LargeListArray::new(field, OffsetBuffer::new(offsets), values, nulls))
}

/// Changes the types of the columns, their order, and where batches end.
fn as_another_engine(part: &Part, rng: &mut Rng) -> Part {
    let Ok(rows) = &part.rows else { return part.clone() };
    let schema = rows[0].schema();
    let rows = concat_batches(&schema, rows).expect("one schema");
    let mut columns: Vec<(Field, ArrayRef)> = schema
        .fields()
        .iter()
        .zip(rows.columns())
        .map(|(field, column)| {
            let column = other_type(column, rng);
            let name =
                if rng.below(4) == 0 { field.name().to_uppercase() } else { field.name().clone() };
            (Field::new(name, column.data_type().clone(), true), column)
        })
        .collect();
    let shift = rng.below(columns.len());
    columns.rotate_left(shift);
    let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns");
    let most = [1, 3, 50, 5_000][rng.below(4)];
    let mut batches = Vec::new();
    let mut start = 0;
    while start < rows.num_rows() || batches.is_empty() {
        let length = 1 + rng.below(most);
        let length = length.min(rows.num_rows() - start);
        batches.push(rows.slice(start, length));
        start += length;
    }
    Part { rows: Ok(batches), ..part.clone() }
}

fn judged(set: &Set, parts: &[Part]) -> Vec<Verdict> {
    let mut data = set.stated(dataset(parts)).order(Order::Any);
    if let Some(anchor) = set.anchor() {
        data = data.anchor(anchor);
    }
    verify(data).0
}

#[test]
fn other_types_of_columns_give_the_same_verdicts() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    for (seed, id) in (0..).zip(SETS) {
        let set = Set::open(&root, id);
        let expected = judged(&set, &set.parts);
        for round in 0..8 {
            let mut rng = Rng::new(1_000 * seed + round);
            let parts: Vec<_> =
                set.parts.iter().map(|part| as_another_engine(part, &mut rng)).collect();
            let found = judged(&set, &parts);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{id}, round {round}");
            }
            assert_eq!(found.len(), expected.len());
        }
    }
}

#[test]
fn slices_of_arrays_are_read_where_they_begin() {
    // An engine may hand over a part of a larger buffer.
    let numbers: UInt64Array = (0..100).collect();
    let sliced = make_array(numbers.slice(40, 20).to_data());
    assert_eq!(sliced.as_primitive::<UInt64Type>().value(0), 40);
    let batch = RecordBatch::try_from_iter([("number", sliced)]).expect("a column");
    let stream = crate::tables::batches(batch.schema(), vec![Ok(batch)]);
    let set = chainsieve_dataset::Dataset::new().blocks(stream);
    let found: Vec<_> = set.verify().map(|it| it.expect("a verdict").number).collect();
    assert_eq!(found, (40..60).collect::<Vec<_>>());
}
