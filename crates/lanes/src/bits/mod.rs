//! Arrangements of bits, whatever they stand for.

pub mod bit_stream;
pub mod golomb_rice;
pub mod transpose;
