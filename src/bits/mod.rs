//! Arrangements of bits, whatever they stand for.

pub(crate) mod transpose;
