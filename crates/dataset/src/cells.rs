//! Cells of Arrow's columns, and what their values are encoded as.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use chainsieve::alloy_primitives::{U256, hex};

/// A float has whole numbers exactly below this bound.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A cell, without the encoding of its column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Text(&'a str),
    Binary(&'a [u8]),
    Number(U256),
    Flag(bool),
    /// A value that no cell of a chain has: negative, with a fraction, or of a type of no use.
    Unreadable,
}

/// A column of a batch.
#[derive(Debug)]
pub(crate) struct Column {
    array: ArrayRef,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain,
    /// The keys and the values of a dictionary.
    Dictionary(Box<Column>, Box<Column>),
    List(Box<Column>),
    Other,
}

impl Column {
    pub(crate) fn new(array: &ArrayRef) -> Self {
        let list = |values: &ArrayRef| Kind::List(Box::new(Self::new(values)));
        let kind = match array.data_type() {
            DataType::Dictionary(_, _) => array.as_any_dictionary_opt().map_or(Kind::Other, |it| {
                let keys = arrow_array::make_array(it.keys().to_data());
                Kind::Dictionary(Box::new(Self::new(&keys)), Box::new(Self::new(it.values())))
            }),
            DataType::List(_) => list(array.as_list::<i32>().values()),
            DataType::LargeList(_) => list(array.as_list::<i64>().values()),
            DataType::ListView(_) => list(array.as_list_view::<i32>().values()),
            DataType::LargeListView(_) => list(array.as_list_view::<i64>().values()),
            DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list().values()),
            DataType::Null
            | DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float16
            | DataType::Float32
            | DataType::Float64
            | DataType::Timestamp(_, _)
            | DataType::Decimal32(_, _)
            | DataType::Decimal64(_, _)
            | DataType::Decimal128(_, _)
            | DataType::Decimal256(_, _)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Kind::Plain,
            _ => Kind::Other,
        };
        Self { array: array.clone(), kind }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List(_))
    }

    /// Returns the elements of a list; `None` if the cell is null or not a list.
    pub(crate) fn elements(&self, row: usize) -> Option<impl Iterator<Item = Value<'_>>> {
        let Kind::List(values) = &self.kind else { return None };
        if self.array.is_null(row) {
            return None;
        }
        let (start, length) = match self.array.data_type() {
            DataType::List(_) => extent(self.array.as_list::<i32>().value_offsets(), row)?,
            DataType::LargeList(_) => extent(self.array.as_list::<i64>().value_offsets(), row)?,
            DataType::ListView(_) => {
                let list = self.array.as_list_view::<i32>();
                (place(list.value_offset(row))?, place(list.value_size(row))?)
            }
            DataType::LargeListView(_) => {
                let list = self.array.as_list_view::<i64>();
                (place(list.value_offset(row))?, place(list.value_size(row))?)
            }
            _ => {
                let list = self.array.as_fixed_size_list();
                (place(list.value_offset_at(row))?, place(list.value_length())?)
            }
        };
        Some((start..start.checked_add(length)?).map(|at| values.value(at)))
    }

    pub(crate) fn value(&self, row: usize) -> Value<'_> {
        if row >= self.array.len() {
            return Value::Unreadable;
        }
        match &self.kind {
            Kind::Dictionary(keys, values) => {
                return match keys.value(row) {
                    Value::Number(key) => {
                        key.try_into().map_or(Value::Unreadable, |key| values.value(key))
                    }
                    other => other,
                };
            }
            Kind::Plain => {}
            Kind::List(_) | Kind::Other => return Value::Unreadable,
        }
        let array = &self.array;
        if array.is_null(row) {
            return Value::Null;
        }
        match array.data_type() {
            DataType::Null => Value::Null,
            DataType::Boolean => Value::Flag(array.as_boolean().value(row)),
            DataType::Int8 => integer(array.as_primitive::<Int8Type>().value(row).into()),
            DataType::Int16 => integer(array.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => integer(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => integer(array.as_primitive::<Int64Type>().value(row).into()),
            DataType::UInt8 => integer(array.as_primitive::<UInt8Type>().value(row).into()),
            DataType::UInt16 => integer(array.as_primitive::<UInt16Type>().value(row).into()),
            DataType::UInt32 => integer(array.as_primitive::<UInt32Type>().value(row).into()),
            DataType::UInt64 => integer(array.as_primitive::<UInt64Type>().value(row).into()),
            // Half and single precision have fewer exact whole numbers, so they are of no use.
            DataType::Float16 => {
                let value = array.as_primitive::<Float16Type>().value(row).to_f32();
                if value == 0.0 { integer(0) } else { Value::Unreadable }
            }
            DataType::Float32 => {
                let value = array.as_primitive::<Float32Type>().value(row);
                if value.abs() < 16_777_216.0 { float(value.into()) } else { Value::Unreadable }
            }
            DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal32(_, scale) => {
                decimal(array.as_primitive::<Decimal32Type>().value(row).into(), *scale)
            }
            DataType::Decimal64(_, scale) => {
                decimal(array.as_primitive::<Decimal64Type>().value(row).into(), *scale)
            }
            DataType::Decimal128(_, scale) => {
                decimal(array.as_primitive::<Decimal128Type>().value(row), *scale)
            }
            DataType::Decimal256(_, scale) => {
                let value = array.as_primitive::<Decimal256Type>().value(row);
                if value.is_negative() {
                    Value::Unreadable
                } else {
                    scaled(U256::from_be_bytes(value.to_be_bytes()), *scale)
                }
            }
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => {
                    seconds(array.as_primitive::<TimestampSecondType>().value(row), 1)
                }
                TimeUnit::Millisecond => {
                    seconds(array.as_primitive::<TimestampMillisecondType>().value(row), 1_000)
                }
                TimeUnit::Microsecond => {
                    seconds(array.as_primitive::<TimestampMicrosecondType>().value(row), 1_000_000)
                }
                TimeUnit::Nanosecond => {
                    let value = array.as_primitive::<TimestampNanosecondType>().value(row);
                    seconds(value, 1_000_000_000)
                }
            },
            DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Value::Text(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Value::Text(array.as_string_view().value(row)),
            DataType::Binary => Value::Binary(array.as_binary::<i32>().value(row)),
            DataType::LargeBinary => Value::Binary(array.as_binary::<i64>().value(row)),
            DataType::BinaryView => Value::Binary(array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(_) => Value::Binary(array.as_fixed_size_binary().value(row)),
            _ => Value::Unreadable,
        }
    }
}

fn place<T: TryInto<usize>>(number: T) -> Option<usize> {
    number.try_into().ok()
}

/// Returns the start and the length of an element.
fn extent<T: Copy + TryInto<usize>>(offsets: &[T], row: usize) -> Option<(usize, usize)> {
    let (start, end) = (place(*offsets.get(row)?)?, place(*offsets.get(row + 1)?)?);
    Some((start, end.checked_sub(start)?))
}

fn integer(value: i128) -> Value<'static> {
    u128::try_from(value).map_or(Value::Unreadable, |value| Value::Number(U256::from(value)))
}

fn float(value: f64) -> Value<'static> {
    if (0.0..EXACT).contains(&value) && value.fract() == 0.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number below 2^53"
        )]
        let value = value as u64;
        Value::Number(U256::from(value))
    } else {
        Value::Unreadable
    }
}

fn decimal(value: i128, scale: i8) -> Value<'static> {
    u128::try_from(value).map_or(Value::Unreadable, |value| scaled(U256::from(value), scale))
}

/// Returns the whole number that a decimal has, if it has no fraction.
fn scaled(value: U256, scale: i8) -> Value<'static> {
    let Some(factor) = U256::from(10).checked_pow(U256::from(scale.unsigned_abs())) else {
        return Value::Unreadable;
    };
    if scale < 0 {
        return value.checked_mul(factor).map_or(Value::Unreadable, Value::Number);
    }
    let (whole, rest) = value.div_rem(factor);
    if rest.is_zero() { Value::Number(whole) } else { Value::Unreadable }
}

/// Returns a time in seconds: the header of a block has no fraction of them.
fn seconds(ticks: i64, per_second: i64) -> Value<'static> {
    if ticks % per_second == 0 { integer((ticks / per_second).into()) } else { Value::Unreadable }
}

/// How a table writes bytes as text or in binary columns. It is recognised from columns of a known length: hashes
/// and addresses, and never from the data of logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Encoding {
    text: Option<Text>,
    binary: Option<Binary>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// Bytes are hexadecimal with `0x`, and numbers without it are decimal.
    Prefixed,
    /// Bytes are hexadecimal, and so are numbers.
    Bare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    /// Bytes as they are; numbers are big-endian.
    Raw,
    /// Hexadecimal text in a binary column; wide numbers are little-endian, as ClickHouse writes them.
    Text(Text),
}

/// A cell that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read<T> {
    Null,
    Unreadable,
    Value(T),
}

impl Encoding {
    /// Recognises what is not known yet, from columns whose cells have the given length in bytes.
    pub(crate) fn learn<'c>(
        &mut self,
        rows: usize,
        columns: impl Iterator<Item = (&'c Column, usize)>,
    ) {
        if self.text.is_some() && self.binary.is_some() {
            return;
        }
        // A damaged cell must not decide for its table.
        let (mut prefixed, mut bare) = (0, 0);
        let (mut raw, mut ascii, mut bare_ascii) = (0, 0, 0);
        for (column, length) in columns {
            for row in 0..rows.min(64) {
                match column.value(row) {
                    Value::Text(text) => match text_of(text.as_bytes(), length) {
                        Some(Text::Prefixed) => prefixed += 1,
                        Some(Text::Bare) => bare += 1,
                        None => {}
                    },
                    Value::Binary(bytes) if bytes.len() == length => raw += 1,
                    Value::Binary(bytes) => match text_of(bytes, length) {
                        Some(Text::Prefixed) => ascii += 1,
                        Some(Text::Bare) => bare_ascii += 1,
                        None => {}
                    },
                    _ => {}
                }
            }
        }
        if self.text.is_none() && prefixed + bare > 0 {
            self.text = Some(if prefixed >= bare { Text::Prefixed } else { Text::Bare });
        }
        if self.binary.is_none() && raw + ascii + bare_ascii > 0 {
            self.binary = Some(if raw >= ascii && raw >= bare_ascii {
                Binary::Raw
            } else if ascii >= bare_ascii {
                Binary::Text(Text::Prefixed)
            } else {
                Binary::Text(Text::Bare)
            });
        }
    }

    /// Appends the bytes of a cell. `length` is 0 if the length of the field is not fixed. An empty text of a
    /// field with a fixed length is null.
    pub(crate) fn bytes(self, value: Value<'_>, length: usize, out: &mut Vec<u8>) -> Read<()> {
        let before = out.len();
        let is_read = match value {
            Value::Null => return Read::Null,
            Value::Text(text) => unhex(text.as_bytes(), self.text, length, out),
            Value::Binary(bytes) => match self.binary {
                Some(Binary::Text(text)) => unhex(bytes, Some(text), length, out),
                None if bytes.len() != length => false,
                Some(Binary::Raw) | None => {
                    out.extend_from_slice(bytes);
                    true
                }
            },
            Value::Number(_) | Value::Flag(_) | Value::Unreadable => false,
        };
        if !is_read {
            out.truncate(before);
            Read::Unreadable
        } else if length > 0 && out.len() == before {
            Read::Null
        } else {
            Read::Value(())
        }
    }

    pub(crate) fn number(self, value: Value<'_>) -> Read<U256> {
        let number = match value {
            Value::Null | Value::Text("") => return Read::Null,
            Value::Number(number) => Some(number),
            Value::Text(text) => match (digits_of(text), self.text) {
                (Some(digits), _) => from_hex(digits),
                // A number with an odd count of digits is hardly the hexadecimal one of a column of bytes.
                (None, Some(Text::Bare)) if text.len() % 2 == 0 => from_hex(text),
                (None, Some(Text::Prefixed)) => from_decimal(text),
                (None, None) if self.binary.is_some() => from_decimal(text),
                (None, Some(Text::Bare) | None) => None,
            },
            Value::Binary(bytes) => match self.binary {
                Some(Binary::Raw) if !bytes.is_empty() => U256::try_from_be_slice(bytes),
                Some(Binary::Text(_)) => match bytes.strip_prefix(b"0x") {
                    Some(digits) => std::str::from_utf8(digits).ok().and_then(from_hex),
                    None if matches!(bytes.len(), 16 | 32) => U256::try_from_le_slice(bytes),
                    None => None,
                },
                _ => None,
            },
            Value::Flag(_) | Value::Unreadable => None,
        };
        number.map_or(Read::Unreadable, Read::Value)
    }
}

/// Returns how these bytes are written, if they are hexadecimal digits of `length` bytes.
fn text_of(text: &[u8], length: usize) -> Option<Text> {
    let digits = unprefixed(text);
    let is_hex = digits.len() == 2 * length && digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then_some(if digits.len() == text.len() { Text::Bare } else { Text::Prefixed })
}

fn unprefixed(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text)
}

/// Appends what hexadecimal digits mean. Digits without a prefix are only taken if the table has them so, or if
/// their number is that of the field.
fn unhex(text: &[u8], style: Option<Text>, length: usize, out: &mut Vec<u8>) -> bool {
    let digits = unprefixed(text);
    let is_expected = length > 0 && digits.len() == 2 * length;
    let may_be_bare = style == Some(Text::Bare) || is_expected || digits.is_empty();
    if (digits.len() == text.len() && !may_be_bare) || !digits.len().is_multiple_of(2) {
        return false;
    }
    let start = out.len();
    out.resize(start + digits.len() / 2, 0);
    hex::decode_to_slice(digits, &mut out[start..]).is_ok()
}

/// Returns what follows on `0x`.
fn digits_of(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

fn from_hex(digits: &str) -> Option<U256> {
    let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    U256::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Reads a decimal number, which may have a fraction of zeros.
fn from_decimal(text: &str) -> Option<U256> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_whole = !whole.is_empty() && whole.bytes().all(|digit| digit.is_ascii_digit());
    let is_decimal = is_whole && fraction.bytes().all(|digit| digit == b'0');
    U256::from_str_radix(whole, 10).ok().filter(|_| is_decimal)
}
