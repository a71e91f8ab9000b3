//! Keccak-256 as Ethereum uses it: the padding of the Keccak submission, not that of SHA-3.
//!
//! Source: Yellow Paper, appendix B.

use alloc::vec::Vec;

use tiny_keccak::{Hasher as _, Keccak};

use crate::simd::Backend;

/// The Keccak-256 hash of `bytes`.
pub fn keccak256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    let mut keccak = Keccak::v256();
    keccak.update(bytes);
    keccak.finalize(&mut hash);
    hash
}

/// The hash of each message, in order.
pub fn keccak256_each(_backend: Backend, messages: &[&[u8]]) -> Vec<[u8; 32]> {
    messages.iter().map(|message| keccak256(message)).collect()
}
