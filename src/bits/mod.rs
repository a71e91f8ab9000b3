//! Arrangements of bits, whatever they stand for.

#[cfg(feature = "btc")]
pub(crate) mod bit_stream;
#[cfg(feature = "btc")]
pub(crate) mod golomb_rice;
#[cfg(feature = "eth")]
pub(crate) mod transpose;
