//! Receipts: every block of fixtures and corpus in every form, constructed ones for what they
//! lack, proofs of single receipts, and bytes from strangers.

mod blocks;
mod constructed;
mod deposits;
mod proofs;
mod real;
mod strangers;

use testkit::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
