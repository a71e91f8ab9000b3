//! A filter decoded once, to be asked again and again.

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;

use super::gcs::{GcsError, GcsFilter};
use super::scripts::PreparedScripts;
use super::values::Values;

/// The values of a filter: for a recovery that reveals one script after the other, and for many
/// wallets.
///
/// # Cost
/// 11 to 14 bytes for each value; to ask takes a few nanoseconds a script.
#[derive(Debug, Clone)]
pub struct DecodedFilter {
    backend: Backend,
    values: Values,
}

impl DecodedFilter {
    /// Decodes `filter`, to be asked on the [best](Backend::best) backend.
    ///
    /// # Errors
    /// As [`GcsFilter::decode_into`].
    pub fn decode(filter: &GcsFilter<'_>) -> Result<Self, GcsError> {
        let mut values = Values::default();
        values.decode(Backend::best(), filter, usize::MAX)?;
        Ok(Self { backend: Backend::best(), values })
    }

    /// The same, asked on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Whether the filter may contain `script`.
    pub fn may_contain(&self, script: &[u8]) -> bool {
        self.values.may_contain(script)
    }

    /// Whether the filter may contain at least one of `scripts`; never of none.
    pub fn match_any(&self, scripts: &PreparedScripts) -> bool {
        self.values.match_any(self.backend, scripts)
    }

    /// Whether the filter may contain all of `scripts`; true of none.
    pub fn match_all(&self, scripts: &PreparedScripts) -> bool {
        self.values.match_all(self.backend, scripts)
    }

    /// The indices of the scripts that the filter may contain, ascending, of those in `range`: a
    /// recovery asks for the scripts that it has added.
    ///
    /// # Panics
    /// If `range` reaches past the scripts.
    pub fn matching(&self, scripts: &PreparedScripts, range: Range<usize>) -> Vec<usize> {
        assert!(range.end <= scripts.len(), "{range:?} of {} scripts", scripts.len());
        self.values.matching(self.backend, scripts, range)
    }
}
