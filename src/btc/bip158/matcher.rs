//! Matching one filter with a set of scripts.

use alloc::vec::Vec;

use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter};
use super::scripts::PreparedScripts;
use super::values::Values;

/// Matches filters one after the other, and reuses its memory from filter to filter.
///
/// A match means "may contain": each script matches a filter by chance with a probability of 1 /
/// `M`. The whole filter is decoded before any answer, so a malformed filter always gives an error.
///
/// # Cost
/// Decodes the filter into 8 bytes for each value, and hashes each script. A small number of
/// scripts is looked up by binary search. For many scripts, the values are first entered into a
/// table of 3 to 6 bytes for each value, where most look-ups test a single bit. Apart from the
/// result of [`matching`](Self::matching), nothing is allocated per filter.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    backend: Backend,
    values: Values,
}

impl Matcher {
    /// Creates a matcher that runs on `backend`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the same matcher, which runs on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Returns `true` if `filter` may contain at least one of `scripts`; `false` if `scripts` is
    /// empty.
    ///
    /// # Errors
    /// Returns an error if the filter is malformed by the rule of its
    /// [`Acceptance`](super::Acceptance). A malformed filter never gives a "no".
    pub fn match_any(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        self.match_any_from(filter, scripts, 0)
    }

    /// Returns `true` if `filter` may contain at least one of `scripts` whose index is `first` or
    /// higher; `false` if there is no such script.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn match_any_from(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
        first: usize,
    ) -> Result<bool, GcsError> {
        let range = first.min(scripts.len())..scripts.len();
        self.values.decode(self.backend, filter, range.len())?;
        Ok(self.values.match_any(self.backend, scripts, range))
    }

    /// Returns `true` if `filter` may contain all of `scripts`, or if `scripts` is empty.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn match_all(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        self.values.decode(self.backend, filter, scripts.len())?;
        Ok(self.values.match_all(self.backend, scripts))
    }

    /// Returns the indices of the scripts that `filter` may contain, in ascending order.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn matching(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<Vec<usize>, GcsError> {
        self.values.decode(self.backend, filter, scripts.len())?;
        Ok(self.values.matching(self.backend, scripts, 0..scripts.len()))
    }
}
