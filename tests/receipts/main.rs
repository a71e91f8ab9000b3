//! Receipts: every block of the fixtures and of the corpus in every encoding, constructed receipts
//! for further cases, proofs of single receipts, and bytes from untrusted sources.

mod blocks;
mod columns;
mod constructed;
mod deposits;
mod proofs;
mod real;
mod strangers;

use testkit::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
