//! `btc bloom …`: the Bloom filters of BIP37.

pub(crate) mod info;
pub(crate) mod new;

