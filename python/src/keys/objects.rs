//! Keys as Python objects: `bytes`, `str` and `int`.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyString};

use super::{Part, Values};

/// Returns `true` if the object is a single key, and not a collection of keys.
pub(super) fn is_one_key(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyInt>()
}

/// Calls `with` with the bytes of a single key.
///
/// # Errors
/// Returns a `TypeError` if the object is no key, and an `OverflowError` if an integer has more than
/// 64 bits.
pub(crate) fn one_key<T>(object: &Bound<'_, PyAny>, with: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(with(bytes.as_bytes()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(with(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(with(&bytes.to_vec()));
    }
    // `True` would be the key 1, but an array of truth values has no keys.
    if !object.is_instance_of::<PyBool>() {
        if let Ok(number) = object.cast::<PyInt>() {
            return Ok(with(&number_key(number)?));
        }
        // Integers of numpy are no `int`, but can stand for one.
        if let Ok(number) = object.call_method0("__index__")
            && let Ok(number) = number.cast::<PyInt>()
        {
            return Ok(with(&number_key(number)?));
        }
    }
    let name = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("a key is bytes, str or int, not {name}")))
}

/// Returns the bytes of an integer: 8, little-endian.
fn number_key(number: &Bound<'_, PyInt>) -> PyResult<[u8; 8]> {
    if let Ok(signed) = number.extract::<i64>() {
        return Ok(signed.to_le_bytes());
    }
    let unsigned = number.extract::<u64>();
    let out = |_| PyOverflowError::new_err("an integer key is from -2**63 to 2**64 - 1");
    unsigned.map(u64::to_le_bytes).map_err(out)
}

/// Copies the keys of an iterable.
pub(super) fn copied(object: &Bound<'_, PyAny>) -> PyResult<Part> {
    let (mut bytes, mut ends, mut has_text) = (Vec::new(), Vec::new(), false);
    for (at, key) in object.try_iter()?.enumerate() {
        let key = key?;
        has_text |= !key.is_instance_of::<PyBytes>() && !key.is_instance_of::<PyByteArray>();
        one_key(&key, |key| bytes.extend_from_slice(key))
            .map_err(|error| at_item(object.py(), at, error))?;
        ends.push(bytes.len());
    }
    let len = ends.len();
    Ok(Part { values: Values::Copied { bytes, ends }, len, has_text, _owner: None })
}

/// Returns the same error, with the position of the key.
fn at_item(py: Python<'_>, at: usize, error: PyErr) -> PyErr {
    let text = format!("key {at}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text)
    } else if error.is_instance_of::<PyOverflowError>(py) {
        PyOverflowError::new_err(text)
    } else {
        // Others are not made from a text alone.
        error
    }
}
