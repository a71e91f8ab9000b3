//! Keys in Python's buffers: arrays of numpy and others, without numpy's own interface.

#![expect(unsafe_code, reason = "reads the memory of a buffer")]

use std::sync::Arc;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Borrowed, Part, Values, objects};
use crate::errors::InvalidInput;

/// What the items of a buffer are.
enum Items {
    /// Each item is a key of this many bytes.
    Bytes,
    /// Each item is a key, and numpy pads it with zeros at the end.
    Padded,
    Integers {
        signed: bool,
    },
}

/// Returns the keys of a buffer; `None` if the object is no buffer.
pub(super) fn part(object: &Bound<'_, PyAny>) -> PyResult<Option<Part>> {
    let Ok(buffer) = PyUntypedBuffer::get(object) else { return Ok(None) };
    let format = buffer.format().to_string_lossy().into_owned();
    let (shape, item) = (buffer.shape().to_vec(), buffer.item_size());
    let len = shape.first().copied().unwrap_or(0);
    let digits = |kind: char| format.trim_end_matches(kind).chars().all(|c| c.is_ascii_digit());
    let (items, width) = match (format.as_str(), shape.as_slice()) {
        (format, [_]) if format.ends_with('s') && digits('s') => (Items::Padded, item),
        (format, [_]) if format.ends_with('x') && digits('x') => (Items::Bytes, item),
        ("B" | "=B" | "<B" | ">B" | "|B", [_, width]) => (Items::Bytes, *width),
        (format, [_]) => match integers(format) {
            Some(signed) => (Items::Integers { signed }, item),
            // Text and objects: numpy makes a list of them.
            None if format.ends_with('w') || format == "O" => {
                return objects::copied(&object.call_method0("tolist")?).map(Some);
            }
            None => return Err(refused(format, &shape)),
        },
        (format, shape) => return Err(refused(format, shape)),
    };
    let wrong = || InvalidInput::new_err("the buffer's size contradicts its shape");
    let size = len.checked_mul(width).ok_or_else(wrong)?;
    let part = if buffer.is_c_contiguous() {
        if buffer.len_bytes() != size {
            return Err(wrong());
        }
        let bytes = if size == 0 {
            Borrowed(&[])
        } else {
            // SAFETY: a contiguous buffer has `len_bytes` bytes at `buf_ptr`, which is not null if
            // there are any. The buffer is kept as the part's owner, so they stay where they are.
            // The documentation of the package forbids other threads to write them meanwhile.
            Borrowed(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), size) })
        };
        let has_text = matches!(items, Items::Integers { .. });
        Part { values: values(bytes, width, &items), len, has_text, _owner: Some(Arc::new(buffer)) }
    } else {
        // A view with steps is copied once, in the order of its rows.
        let view = object.py().get_type::<pyo3::types::PyMemoryView>().call1((object,))?;
        let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        let buffer = PyUntypedBuffer::get(copy.as_any())?;
        if buffer.len_bytes() != size {
            return Err(wrong());
        }
        let bytes = if size == 0 {
            Borrowed(&[])
        } else {
            // SAFETY: as above; nobody else has the copy.
            Borrowed(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), size) })
        };
        let has_text = matches!(items, Items::Integers { .. });
        Part { values: values(bytes, width, &items), len, has_text, _owner: Some(Arc::new(buffer)) }
    };
    if let (Items::Padded, Values::Fixed { bytes, width: 1.. }) = (&items, &part.values) {
        let ends_in_zero = |key: &[u8]| key.last() == Some(&0);
        if let Some(at) = bytes.get().chunks_exact(width).position(ends_in_zero) {
            return Err(InvalidInput::new_err(format!(
                "key {at} ends in a zero byte, which numpy's type S{width} takes for padding: for keys \
                 of {width} bytes, pass array.view('V{width}'); for shorter keys, array.tolist()"
            )));
        }
    }
    Ok(Some(part))
}

fn values(bytes: Borrowed, width: usize, items: &Items) -> Values {
    match items {
        Items::Integers { signed } if width < 8 || cfg!(target_endian = "big") => {
            Values::Narrow { bytes, width, signed: *signed }
        }
        _ => Values::Fixed { bytes, width },
    }
}

/// Returns whether integers of this format have a sign; `None` if the format is no integer of the
/// host's byte order.
fn integers(format: &str) -> Option<bool> {
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let kind = format.strip_prefix(['@', '=', '|', native]).unwrap_or(format);
    match kind {
        "b" | "h" | "i" | "l" | "q" | "n" => Some(true),
        "B" | "H" | "I" | "L" | "Q" | "N" => Some(false),
        _ => None,
    }
}

fn refused(format: &str, shape: &[usize]) -> PyErr {
    let dimensions = shape.len();
    PyTypeError::new_err(format!(
        "an array of format {format:?} with {dimensions} dimensions has no keys: keys are bytes (S, V or \
         uint8[n, k]), integers of this machine's byte order, or text"
    ))
}
