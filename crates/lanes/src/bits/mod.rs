//! Bit-level encodings and layouts, independent of what the bits mean.

pub mod bit_stream;
pub mod golomb_rice;
pub mod transpose;
