//! The exceptions of the package, which `chainsieve/_errors.py` defines.

use std::fmt::Display;

use pyo3::prelude::*;

pyo3::import_exception!(chainsieve._errors, InvalidInput);
pyo3::import_exception!(chainsieve._errors, ProviderError);
pyo3::import_exception!(chainsieve._errors, IncompleteError);

/// Returns an `InvalidInput` with the library's message.
pub(crate) fn invalid(error: impl Display) -> PyErr {
    InvalidInput::new_err(error.to_string())
}
