//! Hashes of earlier blocks from the history contract (EIP-2935).
//!
//! Since Prague, every block stores the hash of its parent in a system contract, in slot
//! `number % 8191`. So under the state root of block `H`, an account proof and a storage proof show
//! the hash of any block from `H - 8191` to `H - 1`.
//!
//! The contract's code reverts if it is asked for another block. A storage proof has no such check:
//! each slot is also the slot of blocks 8,191 apart. [`verify`] therefore compares the number with
//! the range first.
//!
//! | | |
//! |---|---|
//! | contract | [`ADDRESS`], with the code of the EIP ([`CODE_HASH`]) |
//! | slot | `number % 8191`, as a 32-byte big-endian integer; the trie's key is its Keccak-256 hash |
//! | value | the block's hash as an integer, so without its leading zero bytes |
//!
//! A block further back needs several hops: from a header to its ancestor at most 8,191 blocks
//! back, from there to the next. Each hop except the first needs the state of an old block, which
//! only archive nodes serve.
//!
//! Source: EIP-2935.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{Address, B256, U256, address, b256};

use super::account_proof::{ProofNodes, StateProofError};
use crate::eth::header::{BlockRef, HeaderView};

/// The address of the history contract (`HISTORY_STORAGE_ADDRESS` of EIP-2935).
pub const ADDRESS: Address = address!("0000F90827F1C53a10cb7A02335B175320002935");

/// The number of blocks whose hashes the contract keeps (`HISTORY_SERVE_WINDOW` of EIP-2935).
pub const SERVE_WINDOW: u64 = 8191;

/// Keccak-256 hash of the contract's code in EIP-2935.
///
/// Some chains have another contract at this address, with another meaning of its slots.
pub const CODE_HASH: B256 =
    b256!("6e49e66782037c0555897870e29fa5e552daf4719552131a0abce779daec0a5d");

/// Returns the numbers of the blocks whose hashes the state of block `head` can have.
///
/// Both ends are included. The range is empty for block 0. Blocks before the parent of the first
/// Prague block are in the range, but their slots are empty.
pub fn served(head: u64) -> RangeInclusive<u64> {
    match head.checked_sub(1) {
        Some(parent) => head.saturating_sub(SERVE_WINDOW)..=parent,
        None => RangeInclusive::new(1, 0),
    }
}

/// Returns the storage slot of a block's hash, as `eth_getProof` takes it.
pub fn slot(number: u64) -> B256 {
    U256::from(number % SERVE_WINDOW).into()
}

/// Verifies the hashes of earlier blocks under one header.
///
/// `header` is the header of a block whose hash is believed: the caller has compared
/// [`HeaderView::hash`]. `nodes` are the nodes of an answer to `eth_getProof` for [`ADDRESS`] at
/// that block, with the [`slot`] of each number. The blocks are returned in the order of `numbers`.
/// They are ancestors of the header's block, so they are as trustworthy as that block
/// ([`Grade::of_ancestor`](super::Grade::of_ancestor)).
///
/// # Errors
/// Returns a [`StateProofError`] for the first block whose hash is not proven.
///
/// # Cost
/// The nodes were hashed when they were added. One hash for each number, and one for the address.
pub fn verify(
    header: &HeaderView<'_>,
    nodes: &ProofNodes,
    numbers: &[u64],
) -> Result<Vec<BlockRef>, StateProofError> {
    let head = header.number();
    let window = served(head);
    if let Some(&number) = numbers.iter().find(|number| !window.contains(number)) {
        return Err(StateProofError::OutOfRange { number, head });
    }
    let account = nodes.account(header.state_root(), ADDRESS);
    let account = account.map_err(|error| StateProofError::ContractAccount(Box::new(error)))?;
    let account = account.ok_or(StateProofError::NoContract { head })?;
    if account.code_hash != CODE_HASH {
        return Err(StateProofError::OtherCode { found: account.code_hash, expected: CODE_HASH });
    }
    let block = |&number: &u64| {
        let value = nodes.slot(account.storage_root, slot(number).into());
        let value = value
            .map_err(|error| StateProofError::ContractSlot { number, error: Box::new(error) })?;
        if value.is_zero() {
            return Err(StateProofError::NotWritten { number });
        }
        Ok(BlockRef { number, hash: value.into() })
    };
    numbers.iter().map(block).collect()
}
