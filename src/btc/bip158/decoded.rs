//! A filter that is decoded once and matched repeatedly.

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter};
use super::scripts::PreparedScripts;
use super::values::Values;

/// The decoded values of a filter, for repeated matching.
///
/// Two uses: a wallet recovery that reveals one script after another, and the scripts of many
/// wallets.
///
/// # Cost
/// Takes 11 to 14 bytes for each value. A look-up takes a few nanoseconds for each script.
#[derive(Debug, Clone)]
pub struct DecodedFilter {
    backend: Backend,
    values: Values,
}

impl DecodedFilter {
    /// Decodes `filter`, for matching on the [best](Backend::best) backend.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::decode_into`].
    pub fn decode(filter: &GcsFilter<'_>) -> Result<Self, GcsError> {
        let mut values = Values::default();
        values.decode(Backend::best(), filter, usize::MAX)?;
        Ok(Self { backend: Backend::best(), values })
    }

    /// Returns the same filter, matched on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Returns `true` if the filter may contain `script`.
    pub fn may_contain(&self, script: &[u8]) -> bool {
        self.values.may_contain(script)
    }

    /// Returns `true` if the filter may contain at least one of `scripts`; `false` if `scripts` is
    /// empty.
    pub fn match_any(&self, scripts: &PreparedScripts) -> bool {
        self.values.match_any(self.backend, scripts, 0..scripts.len())
    }

    /// Returns `true` if the filter may contain all of `scripts`, or if `scripts` is empty.
    pub fn match_all(&self, scripts: &PreparedScripts) -> bool {
        self.values.match_all(self.backend, scripts)
    }

    /// Returns the indices of the scripts in `range` that the filter may contain, in ascending
    /// order. A recovery passes the range of the scripts that it has just added.
    ///
    /// # Panics
    /// Panics if `range` exceeds the number of scripts.
    pub fn matching(&self, scripts: &PreparedScripts, range: Range<usize>) -> Vec<usize> {
        assert!(range.end <= scripts.len(), "{range:?} of {} scripts", scripts.len());
        self.values.matching(self.backend, scripts, range)
    }
}
