//! Many watches over the filter of one new block.

use alloc::vec::Vec;

use crate::eth::bloom::BloomView;
use crate::eth::log_query::CompiledQuery;
use crate::simd::Backend;

/// Queries that wait for each new block: those of a wallet's users, of a notifier's customers.
#[derive(Debug, Clone, Default)]
pub struct WatchList {
    queries: Vec<CompiledQuery>,
}

impl WatchList {
    /// The watches of these queries, numbered from 0 in their order.
    pub fn new(queries: &[CompiledQuery]) -> Self {
        Self { queries: queries.to_vec() }
    }

    /// Adds a watch and returns its number, one more than the last one's.
    pub fn insert(&mut self, query: &CompiledQuery) -> u32 {
        let number = self.len();
        self.queries.push(query.clone());
        number
    }

    /// How many watches there are.
    pub fn len(&self) -> u32 {
        u32::try_from(self.queries.len()).expect("fewer than 2^32 watches")
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// The numbers of the watches that a block with this filter may hold a match of, ascending:
    /// all of them, if the filter gives no information.
    pub fn matching<'a>(&self, backend: Backend, bloom: impl Into<BloomView<'a>>) -> Vec<u32> {
        let (_, bloom) = (backend, bloom.into());
        let numbered = (0..).zip(&self.queries);
        numbered.filter(|(_, query)| query.answer(bloom).is_candidate()).map(|(id, _)| id).collect()
    }
}
