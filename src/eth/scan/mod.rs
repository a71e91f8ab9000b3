//! Queries over many blocks' filters, and many watches over one.
//!
//! | what | over |
//! |---|---|
//! | [`candidates`], [`Scanner`] | one query over many filters |
//! | [`QuerySet`] | many queries over many filters, with queries that come up while scanning |
//! | [`WatchList`] | many watches over the filter of a new block |
//!
//! A candidate is a block whose filter does not say "no"
//! ([`CompiledQuery::answer`]): it may hold a match and has to be looked into. A filter with all
//! bits set says nothing, so its block is always a candidate, of every query; the filter of a
//! header whose own has another length than 256 bytes is to be passed in as all ones.
//!
//! The results are the same on every [`Backend`], in ascending order.

mod query_set;
mod ranges;
mod rows;
mod scanner;
mod slices;
#[cfg(test)]
mod tests;
mod watch_list;

use alloc::vec::Vec;

use chainsieve_lanes::simd::Backend;

pub use query_set::{Hits, QueryId, QuerySet};
pub use scanner::Scanner;
pub use watch_list::WatchList;

use crate::eth::bloom::Blooms;
use crate::eth::log_query::CompiledQuery;

/// The indices of the filters whose blocks may hold a match, ascending.
///
/// The tests are ordered by a sample of `blooms` ([`Scanner::ordered_by`]); whoever scans many
/// slices with one query makes the [`Scanner`] once.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan};
///
/// let address = bloom::positions(&[0x11; 20]);
/// let mut blooms = vec![[0; 256]; 1_000];
/// bloom::accrue(&mut blooms[700], &address);
/// blooms[900] = [0xff; 256]; // says nothing
/// let query = CompiledQuery::new(vec![vec![address]]);
/// assert_eq!(scan::candidates(&query, &blooms), [700, 900]);
/// ```
pub fn candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    candidates_on(Backend::best(), query, blooms)
}

/// As [`candidates`], on this backend.
pub fn candidates_on(
    backend: Backend,
    query: &CompiledQuery,
    blooms: &(impl Blooms + ?Sized),
) -> Vec<usize> {
    Scanner::ordered_by_on(backend, query, blooms).candidates(blooms)
}

/// As [`candidates`], on all cores: the same indices in the same order.
#[cfg(feature = "rayon")]
pub fn par_candidates(query: &CompiledQuery, blooms: &(impl Blooms + ?Sized)) -> Vec<usize> {
    Scanner::ordered_by(query, blooms).par_candidates(blooms)
}
