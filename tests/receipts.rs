//! Receipts: every block of fixtures and corpus in every form, constructed ones for what they
//! lack, proofs of single receipts, and bytes from strangers.
#![cfg(feature = "eth")]
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe impl")]

#[path = "hostile/allocation.rs"]
mod allocation;
#[path = "receipts/blocks.rs"]
mod blocks;
#[path = "receipts/constructed.rs"]
mod constructed;
#[path = "support/corpus_index.rs"]
mod corpus_index;
#[cfg(feature = "op")]
#[path = "receipts/deposits.rs"]
mod deposits;
#[path = "receipts/proofs.rs"]
mod proofs;
#[path = "receipts/real.rs"]
mod real;
#[path = "receipts/strangers.rs"]
mod strangers;
