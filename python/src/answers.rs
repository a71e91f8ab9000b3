//! Answers in bulk: arrays of truth values.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyList};

/// Returns the answers as an array of numpy; without numpy, as a list of `bool`.
pub(crate) fn truth_values<'py>(py: Python<'py>, answers: &[bool]) -> PyResult<Bound<'py, PyAny>> {
    static FROM_BUFFER: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let from_buffer = FROM_BUFFER.get_or_init(py, || {
        let numpy = py.import("numpy").ok()?;
        numpy.getattr("frombuffer").ok().map(Bound::unbind)
    });
    let Some(from_buffer) = from_buffer else {
        return Ok(PyList::new(py, answers)?.into_any());
    };
    // The array owns the bytes, and can be written.
    let bytes = PyByteArray::new_with(py, answers.len(), |bytes| {
        for (byte, answer) in bytes.iter_mut().zip(answers) {
            *byte = u8::from(*answer);
        }
        Ok(())
    })?;
    from_buffer.bind(py).call1((bytes, "?"))
}
