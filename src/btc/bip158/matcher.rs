//! One filter asked for a set of scripts.

use alloc::vec::Vec;

use super::gcs::{GcsError, GcsFilter};
use super::scripts::PreparedScripts;
use crate::simd::Backend;

/// Matches filters one after the other, and keeps the working memory between them.
///
/// "Match" means may contain: each script passes by chance in one filter of `M`.
#[derive(Debug, Clone)]
pub struct Matcher {
    backend: Backend,
    values: Vec<u64>,
    asked: Vec<u64>,
}

impl Matcher {
    /// One that runs on `backend`.
    pub fn new(backend: Backend) -> Self {
        Self { backend, values: Vec::new(), asked: Vec::new() }
    }

    /// Whether `filter` may contain at least one of `scripts`; never of none.
    ///
    /// # Errors
    /// A filter that is not what its [`Acceptance`](super::Acceptance) asks for: no answer, and
    /// never a "no".
    pub fn match_any(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        Ok(!self.matching(filter, scripts)?.is_empty())
    }

    /// Whether `filter` may contain all of `scripts`; true of none.
    ///
    /// # Errors
    /// As [`match_any`](Self::match_any).
    pub fn match_all(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        Ok(self.matching(filter, scripts)?.len() == scripts.len())
    }

    /// The indices of the scripts that `filter` may contain, ascending.
    ///
    /// # Errors
    /// As [`match_any`](Self::match_any).
    pub fn matching(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<Vec<usize>, GcsError> {
        filter.decode_into(self.backend, &mut self.values)?;
        scripts.values(filter, 0..scripts.len(), &mut self.asked);
        let found = |(index, value): (usize, &u64)| {
            self.values.binary_search(value).is_ok().then_some(index)
        };
        Ok(self.asked.iter().enumerate().filter_map(found).collect())
    }
}
