//! A query as bit positions, which a scan tests in each filter.

use alloc::vec::Vec;

use crate::eth::bloom::{self, BitPositions, BloomAnswer, BloomView};

/// A query in hashed form: an AND of clauses, each of which is an OR of values.
///
/// A block may contain a match if every clause has a value whose bits are all set in the block's
/// filter. The compiled query contains neither the query's range of blocks nor the positions of
/// topics, because a filter contains neither.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct CompiledQuery {
    clauses: Vec<Vec<BitPositions>>,
}

impl CompiledQuery {
    /// Creates a compiled query from the bit positions of the values of each clause.
    ///
    /// Without any clause, every block is a candidate. A clause without values never matches, so that
    /// no block is a candidate: leave out clauses that mean "any".
    pub fn new(clauses: Vec<Vec<BitPositions>>) -> Self {
        Self { clauses }
    }

    /// Returns the clauses: first the addresses, then the topic positions that are not "any".
    pub fn clauses(&self) -> &[Vec<BitPositions>] {
        &self.clauses
    }

    /// Returns `true` if the query has no clause, so that every block is a candidate.
    pub fn matches_everything(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Tests if a block with this filter may contain a match.
    pub fn answer<'a>(&self, bloom: impl Into<BloomView<'a>>) -> BloomAnswer {
        match bloom.into().informative() {
            None => BloomAnswer::NoInformation,
            Some(bits) if self.may_match(bits) => BloomAnswer::Maybe,
            Some(_) => BloomAnswer::No,
        }
    }

    fn may_match(&self, bits: &[u8; bloom::BYTES]) -> bool {
        self.clauses.iter().all(|values| values.iter().any(|value| bloom::contains(bits, value)))
    }
}
