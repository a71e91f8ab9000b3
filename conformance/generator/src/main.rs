//! Writes the conformance vectors.
fn main() {}
