//! Scripts packed once, to be asked of many filters.

use alloc::vec::Vec;
use core::ops::Range;

use super::gcs::{GcsFilter, scale};
use crate::hash::siphash_each;
use crate::simd::Backend;

/// A set of scripts to look for, in the order of insertion.
#[derive(Debug, Clone, Default)]
pub struct PreparedScripts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl PreparedScripts {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a script, and returns its index. One that is there already gets another.
    pub fn push(&mut self, script: &[u8]) -> usize {
        self.bytes.extend_from_slice(script);
        self.ends.push(self.bytes.len());
        self.ends.len() - 1
    }

    /// The number of scripts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The script at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..end)
    }

    /// Replaces `values` by those of the scripts `range` under the key and range of `filter`, in
    /// the order of the scripts.
    pub(super) fn values(
        &self,
        filter: &GcsFilter<'_>,
        range: Range<usize>,
        values: &mut Vec<u64>,
    ) {
        let scripts: Vec<&[u8]> = range.filter_map(|index| self.get(index)).collect();
        siphash_each(Backend::best(), filter.key(), &scripts, values);
        for hash in values {
            *hash = scale(*hash, filter.range());
        }
    }
}

impl<S: AsRef<[u8]>> Extend<S> for PreparedScripts {
    fn extend<I: IntoIterator<Item = S>>(&mut self, scripts: I) {
        for script in scripts {
            self.push(script.as_ref());
        }
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for PreparedScripts {
    fn from_iter<I: IntoIterator<Item = S>>(scripts: I) -> Self {
        let mut set = Self::new();
        set.extend(scripts);
        set
    }
}
