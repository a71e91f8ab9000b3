//! A filter decoded once, to be asked again and again.

use alloc::vec::Vec;
use core::ops::Range;

use super::gcs::{GcsError, GcsFilter, scale};
use super::scripts::PreparedScripts;
use crate::hash::{SipKey, siphash_2_4};
use crate::simd::Backend;

/// The values of a filter: for a recovery that reveals one script after the other, and for many
/// wallets.
#[derive(Debug, Clone)]
pub struct DecodedFilter {
    key: SipKey,
    range: u64,
    values: Vec<u64>,
}

impl DecodedFilter {
    /// Decodes `filter`.
    ///
    /// # Errors
    /// As [`GcsFilter::decode_into`].
    pub fn decode(filter: &GcsFilter<'_>) -> Result<Self, GcsError> {
        let mut values = Vec::new();
        filter.decode_into(Backend::best(), &mut values)?;
        Ok(Self { key: filter.key(), range: filter.range(), values })
    }

    /// Whether the filter may contain `script`.
    pub fn may_contain(&self, script: &[u8]) -> bool {
        self.values.binary_search(&scale(siphash_2_4(self.key, script), self.range)).is_ok()
    }

    /// Whether the filter may contain at least one of `scripts`.
    pub fn match_any(&self, scripts: &PreparedScripts) -> bool {
        !self.matching(scripts, 0..scripts.len()).is_empty()
    }

    /// The indices of the scripts that the filter may contain, ascending, of those in `range`: a
    /// recovery asks for the scripts that it has added.
    ///
    /// # Panics
    /// If `range` reaches past the scripts.
    pub fn matching(&self, scripts: &PreparedScripts, range: Range<usize>) -> Vec<usize> {
        assert!(range.end <= scripts.len(), "{range:?} of {} scripts", scripts.len());
        let contains = |&index: &usize| scripts.get(index).is_some_and(|s| self.may_contain(s));
        range.filter(contains).collect()
    }
}
