//! Receipts: every block of fixtures and corpus in every form, constructed ones for what they
//! lack, proofs of single receipts, and bytes from strangers.

#[path = "receipts/blocks.rs"]
mod blocks;
#[path = "receipts/real.rs"]
mod real;
