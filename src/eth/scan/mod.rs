//! Tests queries against the filters of many blocks.
//!
//! | type or function | what it does |
//! |---|---|
//! | [`candidates`], [`Scanner`] | tests one query against many filters |
//! | [`QuerySet`] | tests many queries against many filters; queries may be added during the scan |
//!
//! A candidate is a block whose filter does not rule out a match ([`CompiledQuery::answer`]), so
//! its receipts must be checked. A filter with all bits set carries no information, so its block is
//! a candidate of every query. If the filter of a header does not have 256 bytes, pass a filter of
//! all ones instead.
//!
//! The results are the same on every [`Backend`], in ascending order.

mod query_set;
mod ranges;
mod rows;
mod scanner;
mod slices;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use chainsieve_lanes::simd::Backend;

pub use query_set::{Hits, QueryId, QuerySet};
pub use scanner::Scanner;

use crate::eth::bloom::Blooms;
use crate::eth::log_query::CompiledQuery;

/// Returns the indices of the filters whose blocks may contain a match, ascending.
///
/// The order of the tests is chosen from a sample of `blooms` ([`Scanner::ordered_by`]). To scan
/// many slices with one query, create the [`Scanner`] once.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan};
///
/// let address = bloom::positions(&[0x11; 20]);
/// let mut blooms = vec![[0; 256]; 1_000];
/// bloom::accrue(&mut blooms[700], &address);
/// blooms[900] = [0xff; 256]; // carries no information
/// let query = CompiledQuery::new(vec![vec![address]]);
/// assert_eq!(scan::candidates(&query, &blooms), [700, 900]);
/// ```
pub fn candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    candidates_on(Backend::best(), query, blooms)
}

/// Does the same as [`candidates`], on the given backend.
pub fn candidates_on(
    backend: Backend,
    query: &CompiledQuery,
    blooms: &(impl Blooms + ?Sized),
) -> Vec<usize> {
    Scanner::ordered_by_on(backend, query, blooms).candidates(blooms)
}

/// Returns the same indices as [`candidates`], in the same order, computed on all cores.
#[cfg(feature = "rayon")]
pub fn par_candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    Scanner::ordered_by(query, blooms).par_candidates(blooms)
}
