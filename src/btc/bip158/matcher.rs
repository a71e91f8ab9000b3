//! One filter asked for a set of scripts.

use alloc::vec::Vec;

use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter};
use super::scripts::PreparedScripts;
use super::values::Values;

/// Matches filters one after the other, and keeps the working memory between them.
///
/// "Match" means may contain: each script passes by chance in one filter of `M`. The whole filter
/// is read before any answer, so that a malformed one gives an error, and never an answer.
///
/// # Cost
/// A filter is decoded, 8 bytes for each value, and each script hashed. Few scripts are searched
/// in the values; for many, the values are entered into a table of slots first, of 3 to 6 bytes
/// for each, where most questions end at one bit. Nothing is allocated from filter to filter,
/// except what [`matching`](Self::matching) returns.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    backend: Backend,
    values: Values,
}

impl Matcher {
    /// A matcher without working memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same matcher, running on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
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
        self.values.decode(self.backend, filter, scripts.len())?;
        Ok(self.values.match_any(self.backend, scripts))
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
        self.values.decode(self.backend, filter, scripts.len())?;
        Ok(self.values.match_all(self.backend, scripts))
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
        self.values.decode(self.backend, filter, scripts.len())?;
        Ok(self.values.matching(self.backend, scripts, 0..scripts.len()))
    }
}
