//! Arrangements of bits, whatever they stand for.

#[cfg(any(feature = "btc", feature = "filter"))]
pub(crate) mod bit_stream;
#[cfg(any(feature = "btc", feature = "filter"))]
pub(crate) mod golomb_rice;
#[cfg(feature = "eth")]
pub(crate) mod transpose;
