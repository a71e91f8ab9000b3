//! Keys in bulk: lists, arrays of numpy and other buffers, and Arrow arrays, as one sequence of byte
//! strings.
//!
//! | key | bytes |
//! |---|---|
//! | `bytes`, Arrow binary, numpy `S`, `V` and `uint8[n, k]` | the bytes themselves |
//! | `str`, Arrow strings, numpy `U` | UTF-8 |
//! | `int`, numpy and Arrow integers of any width | 8 bytes, little-endian, two's complement |
//!
//! So a key has the same bytes in a list, in numpy and in Arrow, and in Rust `key.to_le_bytes()` of
//! an `i64` or `u64` is the key of a number.

mod arrow;
mod buffer;
mod objects;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

pub(crate) use objects::one_key;

/// Keys of any source. The memory of arrays is borrowed: it is alive as long as this value, and must
/// not be written meanwhile.
pub(crate) struct Keys {
    parts: Vec<Part>,
    len: usize,
    /// Whether the keys were text or numbers, and not bytes.
    has_text: bool,
}

/// A run of keys that are stored in one way.
struct Part {
    values: Values,
    len: usize,
    has_text: bool,
    /// What keeps the borrowed memory alive.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// How the bytes of keys lie in memory.
enum Values {
    /// Copies, one after another, and the end of each.
    Copied { bytes: Vec<u8>, ends: Vec<usize> },
    /// Keys of one width, one after another.
    Fixed { bytes: Borrowed, width: usize },
    /// Integers of less than 8 bytes, one after another.
    Narrow { bytes: Borrowed, width: usize, signed: bool },
    /// Arrow's binary and utf8: `len + 1` offsets into the bytes, checked to be in order.
    Offsets { offsets: Offsets, bytes: Borrowed },
    /// Arrow's views: 16 bytes each, checked to lie in the buffers.
    Views { views: Borrowed, buffers: Vec<Borrowed> },
    /// Arrow's dictionaries: integers that are positions in other keys, checked to be in range.
    Dictionary { places: Vec<usize>, values: Box<Part> },
}

/// Offsets of 4 or 8 bytes.
enum Offsets {
    Short(Borrowed),
    Long(Borrowed),
}

/// Bytes that the owner of a [`Part`] keeps alive. Only [`get`](Self::get) hands them out, with the
/// lifetime of this value.
struct Borrowed(&'static [u8]);

impl Borrowed {
    fn get(&self) -> &[u8] {
        self.0
    }
}

impl Offsets {
    /// Returns the offset at a position. Positions after the last are an error of ours, and give 0.
    fn at(&self, position: usize) -> usize {
        match self {
            Self::Short(bytes) => {
                let offset = bytes.get().as_chunks::<4>().0.get(position).copied();
                usize::try_from(i32::from_ne_bytes(offset.unwrap_or_default())).unwrap_or(0)
            }
            Self::Long(bytes) => {
                let offset = bytes.get().as_chunks::<8>().0.get(position).copied();
                usize::try_from(i64::from_ne_bytes(offset.unwrap_or_default())).unwrap_or(0)
            }
        }
    }
}

/// Returns an integer of `bytes`, widened to the 8 bytes of a key.
fn widened(bytes: &[u8], signed: bool) -> [u8; 8] {
    let mut wide = [0; 8];
    let is_negative = |top: Option<&u8>| signed && top.is_some_and(|top| *top >= 0x80);
    // Arrays have the byte order of the host, and keys are little-endian.
    let mut little = bytes.to_vec();
    if cfg!(target_endian = "big") {
        little.reverse();
    }
    if is_negative(little.last()) {
        wide = [0xff; 8];
    }
    for (to, from) in wide.iter_mut().zip(&little) {
        *to = *from;
    }
    wide
}

impl Part {
    /// Calls `each` with the keys at these positions, in order.
    fn each(&self, range: Range<usize>, each: &mut impl FnMut(&[u8])) {
        match &self.values {
            Values::Copied { bytes, ends } => {
                let mut start = range.start.checked_sub(1).map_or(0, |before| ends[before]);
                for end in &ends[range] {
                    each(&bytes[start..*end]);
                    start = *end;
                }
            }
            Values::Fixed { width: 0, .. } => range.for_each(|_| each(&[])),
            Values::Fixed { bytes, width } => {
                let bytes = &bytes.get()[range.start * width..range.end * width];
                bytes.chunks_exact(*width).for_each(each);
            }
            Values::Narrow { bytes, width, signed } => {
                let bytes = &bytes.get()[range.start * width..range.end * width];
                match (width, signed) {
                    // The common width without an allocation for each key.
                    (4, true) if cfg!(target_endian = "little") => {
                        for key in bytes.as_chunks::<4>().0 {
                            each(&i64::from(i32::from_le_bytes(*key)).to_le_bytes());
                        }
                    }
                    _ => bytes.chunks_exact(*width).for_each(|key| each(&widened(key, *signed))),
                }
            }
            Values::Offsets { offsets, bytes } => {
                let mut start = offsets.at(range.start);
                for position in range {
                    let end = offsets.at(position + 1);
                    each(&bytes.get()[start..end]);
                    start = end;
                }
            }
            Values::Views { views, buffers } => {
                let views = &views.get().as_chunks::<16>().0[range];
                for view in views {
                    each(arrow::viewed(view, buffers).unwrap_or_default());
                }
            }
            Values::Dictionary { places, values } => {
                for place in &places[range] {
                    values.each(*place..place + 1, each);
                }
            }
        }
    }
}

impl Keys {
    /// Reads the keys of a Python object. Lists are copied; arrays are borrowed.
    ///
    /// # Errors
    /// Returns a `TypeError` if the object is a single key, or has values that are no keys, and a
    /// `ValueError` of the package if an array has nulls or contradicts itself.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if objects::is_one_key(object) {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "one key of type {name}, where many are expected: pass a list or an array"
            )));
        }
        let parts = if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
            vec![objects::copied(object)?]
        } else if let Some(parts) = arrow::parts(object)? {
            parts
        } else if let Some(part) = buffer::part(object)? {
            vec![part]
        } else {
            vec![objects::copied(object)?]
        };
        let len = parts.iter().map(|part| part.len).sum();
        let has_text = parts.iter().any(|part| part.has_text);
        Ok(Self { parts, len, has_text })
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns a `TypeError` if some keys are text or numbers: where bytes are meant, hex would be
    /// taken for the bytes themselves.
    pub(crate) fn refuse_text(&self) -> PyResult<()> {
        if self.has_text {
            return Err(PyTypeError::new_err("bytes are expected, not text and not numbers"));
        }
        Ok(())
    }

    /// Calls `each` with every key, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8])) {
        for part in &self.parts {
            part.each(0..part.len, &mut each);
        }
    }

    /// Calls `take` with at most `size` values at a time: what `of` returns for each key.
    pub(crate) fn in_batches<T>(
        &self,
        size: usize,
        of: impl Fn(&[u8]) -> T,
        mut take: impl FnMut(&[T]),
    ) {
        let mut batch = Vec::with_capacity(size.min(self.len));
        for part in &self.parts {
            let mut start = 0;
            while start < part.len {
                let end = part.len.min(start + size - batch.len());
                part.each(start..end, &mut |key| batch.push(of(key)));
                start = end;
                if batch.len() == size {
                    take(&batch);
                    batch.clear();
                }
            }
        }
        if !batch.is_empty() {
            take(&batch);
        }
    }

    /// Returns the bytes of runs of keys that lie one after another, all of this width; `None` if
    /// the keys are stored in another way.
    pub(crate) fn contiguous(&self, width: usize) -> Option<Vec<&[u8]>> {
        fn run(part: &Part, width: usize) -> Option<&[u8]> {
            match &part.values {
                Values::Fixed { bytes, width: own } if *own == width => Some(bytes.get()),
                // Engines hand over columns of one width as binary, with an offset for each row.
                Values::Offsets { offsets, bytes } => {
                    let first = offsets.at(0);
                    let is_even = |row: usize| offsets.at(row) == first + row * width;
                    let all = first..first + part.len * width;
                    (0..=part.len).all(is_even).then(|| bytes.get().get(all)).flatten()
                }
                _ => None,
            }
        }
        self.parts.iter().map(|part| run(part, width)).collect()
    }
}
