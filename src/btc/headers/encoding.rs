//! Bytes that a chain is kept as.
