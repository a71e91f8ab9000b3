//! A query as bit positions: what scanning tests.

use alloc::vec::Vec;

use crate::eth::bloom::{self, Answer, BitPositions, BloomView};

/// A query hashed once: a conjunction of clauses, each a disjunction of values.
///
/// A block may hold a match if every clause has a value whose bits are all set. The query's range
/// of blocks and the order of topics are not part of it: a filter knows neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledQuery {
    clauses: Vec<Vec<BitPositions>>,
}

impl CompiledQuery {
    /// From the bits of the values of each clause. A clause without values can't be met: leave
    /// out what stands for "any".
    pub fn new(clauses: Vec<Vec<BitPositions>>) -> Self {
        Self { clauses }
    }

    /// The clauses, the addresses first, then the topics that are not wildcards, in order.
    pub fn clauses(&self) -> &[Vec<BitPositions>] {
        &self.clauses
    }

    /// Whether every block is a candidate, since no clause is left.
    pub fn matches_everything(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Whether a block with this filter may hold a match.
    pub fn answer<'a>(&self, bloom: impl Into<BloomView<'a>>) -> Answer {
        match bloom.into().informative() {
            None => Answer::NoInformation,
            Some(bits) if self.may_match(bits) => Answer::Maybe,
            Some(_) => Answer::No,
        }
    }

    fn may_match(&self, bits: &[u8; bloom::BYTES]) -> bool {
        self.clauses.iter().all(|values| values.iter().any(|value| bloom::contains(bits, value)))
    }
}
