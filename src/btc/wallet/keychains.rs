//! Keychains: derive the scripts of ranged descriptors ahead of the last used index (feature
//! `descriptors`).

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::items::Label;
use crate::btc::descriptors::{
    DescriptorError, DescriptorScript, NUM_INDICES, descriptor_scripts, is_ranged,
};
use crate::btc::names::names;

/// Policy for how far a keychain derives scripts ahead of a used index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookAhead {
    /// Derive after each use, until the number of indices after the used index equals the gap or
    /// the size of the initial range, whichever is larger.
    ///
    /// For BIP37: a node filters a block by the scripts that it has at the time of the request, so
    /// the next scripts are sent as early as possible. Each step makes the caller search the earlier
    /// blocks again; see [`Keychains::advance`].
    Sliding,
    /// Derive only if the number of indices after the used index is less than the gap. Then derive
    /// until this number is twice the gap.
    ///
    /// For compact filters: new scripts make the client match filters again, so fewer and larger
    /// steps cost less. The same is true for BIP37 once the wallet is up to date: each step costs
    /// another download of the filtered blocks.
    InSteps,
}

names! { LookAhead, "a look-ahead policy": Sliding = "sliding", InSteps = "in_steps" }

/// A descriptor and the next index to derive from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::btc) struct Keychain {
    descriptor: String,
    /// First index of the initial range.
    first: u32,
    /// Next index to derive.
    next: u32,
    /// Number of indices in the initial range.
    window: u32,
    /// Minimum number of indices to derive after a used index.
    gap: u32,
    is_ranged: bool,
}

impl DescriptorScript {
    /// Returns the label of a script that the keychain of this number has derived; `None` if the
    /// descriptor has no wildcard.
    pub fn label(&self, keychain: u32) -> Option<Label> {
        self.index.map(|index| Label { keychain, index })
    }
}

impl Keychain {
    /// Creates the keychain of `descriptor`. The keychain starts with the indices in `range`, and
    /// later has at least `gap` indices after each used index.
    ///
    /// A descriptor without a wildcard ignores `range`, has one script per alternative and never
    /// advances.
    ///
    /// # Errors
    /// Returns an error if [`descriptor_scripts`] cannot derive the descriptor, or if `range` ends
    /// at 2³¹ or above.
    pub(in crate::btc) fn new(
        descriptor: &str,
        range: RangeInclusive<u32>,
        gap: u32,
    ) -> Result<Self, DescriptorError> {
        let (first, last) = (*range.start(), *range.end());
        // Derive one index to find out whether the descriptor can be derived at all.
        descriptor_scripts(descriptor, last..=last)?;
        let is_ranged = is_ranged(descriptor)?;
        // Without a wildcard, the range is ignored: the descriptor then has only one index.
        let first = if is_ranged { first } else { 0 };
        let window = match last.checked_sub(first) {
            _ if !is_ranged => 1,
            Some(steps) => steps + 1,
            None => 0,
        };
        Ok(Self { descriptor: descriptor.into(), first, next: first, window, gap, is_ranged })
    }

    /// Returns the end (exclusive) of the indices to derive after this index was used; `None` if
    /// enough indices are derived already.
    fn end_after(&self, used: u32, look_ahead: LookAhead) -> Option<u32> {
        let (ahead, steps) = match look_ahead {
            LookAhead::Sliding => (self.gap.max(self.window), 1),
            LookAhead::InSteps => (self.gap, 2),
        };
        let last = used.saturating_add(ahead).min(NUM_INDICES - 1);
        let is_there = !self.is_ranged || last < self.next;
        let end = used.saturating_add(ahead.saturating_mul(steps)).min(NUM_INDICES - 1) + 1;
        (!is_there).then_some(end)
    }

    /// Derives the indices below `end` that are not derived yet.
    fn derive(&mut self, end: u32) -> Result<Vec<DescriptorScript>, DescriptorError> {
        // Derived indices are never derived again. If all indices below `end` are derived,
        // `self.next..=end - 1` would be an invalid range.
        if end <= self.next {
            return Ok(Vec::new());
        }
        let derived = descriptor_scripts(&self.descriptor, self.next..=end - 1)?;
        self.next = end;
        Ok(derived)
    }
}

/// The keychains of a wallet, numbered from 0 in the order in which they were added.
///
/// # Examples
/// ```
/// use chainsieve::btc::wallet::{History, Keychains, LookAhead, WatchedItems};
/// // The test wallet of BIP84: twenty receiving and twenty change addresses, and a gap of ten.
/// let wallet = "wpkh([73c5da0a/84'/0'/0']xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V/<0;1>/*)";
/// let mut keychains = Keychains::new(LookAhead::InSteps);
/// let (number, scripts) = keychains.add(wallet, 0..=19, 10)?;
/// let mut watch = WatchedItems::new();
/// for new in scripts {
///     let label = new.label(number);
///     watch.add_script(new.script, label, History::Complete);
/// }
/// assert_eq!((number, watch.num_scripts()), (0, 40));
/// // A block pays to index 15. Index 25 must be watched now, and the step adds ten more after it.
/// let label = watch.script(15).and_then(|script| script.label).unwrap();
/// assert_eq!(keychains.advance(label)?.len(), 2 * 16);
/// assert_eq!(keychains.next_indices(), [36]);
/// # Ok::<(), chainsieve::btc::descriptors::DescriptorError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keychains {
    keychains: Vec<Keychain>,
    look_ahead: LookAhead,
}

impl Keychains {
    /// Creates an empty set of keychains. [`LookAhead`] states how the policies differ.
    pub fn new(look_ahead: LookAhead) -> Self {
        Self { keychains: Vec::new(), look_ahead }
    }

    /// Adds the keychain of `descriptor`. Returns its number, and the scripts of the indices in
    /// `range`. Whenever an index is used, the keychain is extended, so that at least `gap` indices
    /// follow the used index.
    ///
    /// A descriptor without a wildcard ignores `range`, has one script per alternative and never
    /// advances.
    ///
    /// # Errors
    /// Returns an error, and does not add the keychain, if [`descriptor_scripts`] cannot derive the
    /// descriptor, or if `range` ends at 2³¹ or above.
    pub fn add(
        &mut self,
        descriptor: &str,
        range: RangeInclusive<u32>,
        gap: u32,
    ) -> Result<(u32, Vec<DescriptorScript>), DescriptorError> {
        let mut keychain = Keychain::new(descriptor, range, gap)?;
        let number = u32::try_from(self.keychains.len()).unwrap_or(u32::MAX);
        let end = keychain.first + keychain.window;
        let scripts = keychain.derive(end)?;
        self.keychains.push(keychain);
        Ok((number, scripts))
    }

    /// Enlarges the gap of a keychain and returns the scripts that must be watched in addition.
    /// Does nothing if the gap is not larger than before, or if the keychain is unknown.
    ///
    /// # Errors
    /// Returns an error if an index cannot be derived.
    pub fn widen(
        &mut self,
        keychain: u32,
        gap: u32,
    ) -> Result<Vec<DescriptorScript>, DescriptorError> {
        let Some(chain) = self.keychains.get_mut(keychain as usize) else {
            return Ok(Vec::new());
        };
        let more = gap.saturating_sub(chain.gap);
        if more == 0 || !chain.is_ranged {
            return Ok(Vec::new());
        }
        chain.gap = gap;
        // The old gap after the last used index is derived already. So only `more` further indices
        // must be derived.
        chain.derive(chain.next.saturating_add(more).min(NUM_INDICES))
    }

    /// Returns for each keychain the next index to derive. Store these indices and pass each to
    /// [`extend_to`](Self::extend_to) when the wallet is loaded again.
    pub fn next_indices(&self) -> Vec<u32> {
        self.keychains.iter().map(|keychain| keychain.next).collect()
    }

    /// Derives the indices of one keychain below `next`, and returns the new scripts. An index above
    /// 2³¹ is treated as 2³¹. Does nothing if the keychain is unknown or its descriptor has no
    /// wildcard.
    ///
    /// # Errors
    /// Returns an error if an index cannot be derived.
    pub fn extend_to(
        &mut self,
        keychain: u32,
        next: u32,
    ) -> Result<Vec<DescriptorScript>, DescriptorError> {
        match self.keychains.get_mut(keychain as usize) {
            Some(chain) if chain.is_ranged => chain.derive(next.min(NUM_INDICES)),
            _ => Ok(Vec::new()),
        }
    }

    /// Derives again all scripts that a keychain has derived so far.
    #[cfg(feature = "std")]
    pub(in crate::btc) fn derived(
        &self,
        keychain: u32,
    ) -> Result<Vec<DescriptorScript>, DescriptorError> {
        let Some(chain) = self.keychains.get(keychain as usize) else { return Ok(Vec::new()) };
        let mut again = Keychain { next: chain.first, ..chain.clone() };
        again.derive(chain.next)
    }

    /// Returns the first index of a keychain, and the next index to derive; `None` without a
    /// keychain.
    #[cfg(feature = "std")]
    pub(in crate::btc) fn indices(&self, keychain: Option<u32>) -> Option<(u32, u32)> {
        let chain = self.keychains.get(keychain? as usize)?;
        Some((chain.first, chain.next))
    }

    /// Records that an index is used: derives the indices that must now be watched and returns
    /// their scripts. Returns no scripts if enough indices are derived already, or if the keychain
    /// is unknown.
    ///
    /// The gap limit of BIP44 is a rule about indices, whatever the order of the blocks. So the
    /// caller must search for the returned scripts from the wallet's birthday on, not only in the
    /// blocks from the current block on: an earlier block may pay to them. A coin that is found in
    /// an earlier block may be spent in a later block that was already searched, so the later
    /// blocks that may contain the coin's script must be scanned again.
    /// [`FilterScan::scan_missed`](crate::btc::bip158::scan::FilterScan::scan_missed) matches
    /// filters in this way, and a [session](crate::btc::bip37::session) requests filtered blocks
    /// again.
    ///
    /// # Errors
    /// Returns an error if an index cannot be derived.
    pub fn advance(&mut self, used: Label) -> Result<Vec<DescriptorScript>, DescriptorError> {
        let look_ahead = self.look_ahead;
        let Some(keychain) = self.keychains.get_mut(used.keychain as usize) else {
            return Ok(Vec::new());
        };
        match keychain.end_after(used.index, look_ahead) {
            Some(end) => keychain.derive(end),
            None => Ok(Vec::new()),
        }
    }
}
