//! The scripts of ranged descriptors, derived ahead of the last index used (feature
//! `descriptors`).

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use bitcoin::ScriptBuf;

use super::scripts::Label;
use crate::btc::descriptors::{
    DescriptorError, DescriptorScript, NUM_INDICES, descriptor_scripts, is_ranged,
};

/// How far scripts are derived once an index is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookAhead {
    /// After each use, until the gap, or the range that was asked for at first if that is larger,
    /// stays whole after the index used.
    ///
    /// For BIP37: a node filters blocks by the scripts that it knew when it was asked, so the
    /// scripts to come are sent as early as possible.
    Sliding,
    /// Only when fewer than the gap stay after the index used, and then twice the gap.
    ///
    /// For compact filters: new scripts mean that filters are asked again, so larger steps pay.
    InSteps,
}

/// A descriptor, and the next index to derive of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keychain {
    descriptor: String,
    first: u32,
    next: u32,
    /// The number of indices in the first range.
    window: u32,
    gap: u32,
    is_ranged: bool,
}

/// A script that a keychain has derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeychainScript {
    /// The number of the keychain and the index; `None` if the descriptor has no wildcard.
    pub label: Option<Label>,
    /// Which of a multipath descriptor's alternatives, from 0; 0 where there is one.
    pub path: u32,
    /// The script.
    pub script: ScriptBuf,
}

impl Keychain {
    /// The keychain of `descriptor`, with the indices in `range` to begin with, and at least `gap`
    /// indices after each one used. Without a wildcard it has one script for each alternative,
    /// and never advances.
    ///
    /// # Errors
    /// A descriptor that [`descriptor_scripts`] does not derive, or a range that ends at 2³¹ or
    /// above.
    pub fn new(
        descriptor: &str,
        range: RangeInclusive<u32>,
        gap: u32,
    ) -> Result<Self, DescriptorError> {
        let (first, last) = (*range.start(), *range.end());
        // One index shows whether the descriptor can be derived at all.
        descriptor_scripts(descriptor, last..=last)?;
        let is_ranged = is_ranged(descriptor)?;
        // Without a wildcard the range counts for nothing: one index stands for the descriptor.
        let first = if is_ranged { first } else { 0 };
        let window = match last.checked_sub(first) {
            _ if !is_ranged => 1,
            Some(steps) => steps + 1,
            None => 0,
        };
        Ok(Self { descriptor: descriptor.into(), first, next: first, window, gap, is_ranged })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> &str {
        &self.descriptor
    }

    /// The next index to derive.
    pub fn next_index(&self) -> u32 {
        self.next
    }

    /// The end of the indices to derive after this one was used; `None` if they are there.
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

    /// Derives the indices before `end` that are not derived yet.
    fn derive(&mut self, keychain: u32, end: u32) -> Result<Vec<KeychainScript>, DescriptorError> {
        if end <= self.next {
            return Ok(Vec::new());
        }
        let derived = descriptor_scripts(&self.descriptor, self.next..=end - 1)?;
        self.next = end;
        let script = |derived: DescriptorScript| KeychainScript {
            label: derived.index.map(|index| Label { keychain, index }),
            path: derived.path,
            script: derived.script,
        };
        Ok(derived.into_iter().map(script).collect())
    }
}

/// The keychains of a wallet, numbered from 0 in the order of adding.
///
/// # Examples
/// ```
/// use chainsieve::btc::wallet::{History, Keychain, Keychains, LookAhead, Watch};
/// // BIP84's test wallet: twenty receiving and change addresses ahead, in steps of ten.
/// let wallet = "wpkh([73c5da0a/84'/0'/0']xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V/<0;1>/*)";
/// let mut keychains = Keychains::new(LookAhead::InSteps);
/// let (number, scripts) = keychains.add(Keychain::new(wallet, 0..=19, 10)?)?;
/// let mut watch = Watch::new();
/// for new in scripts {
///     watch.add_script(new.script, new.label, History::Complete);
/// }
/// assert_eq!((number, watch.num_scripts()), (0, 40));
/// // A block pays to index 15: index 25 is to be watched, and so are the ten after it.
/// let label = watch.script(15).and_then(|script| script.label()).unwrap();
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
    /// No keychains yet.
    pub fn new(look_ahead: LookAhead) -> Self {
        Self { keychains: Vec::new(), look_ahead }
    }

    /// Adds a keychain, and returns its number and the scripts of its range.
    ///
    /// # Errors
    /// A range that cannot be derived; the keychain is not added then.
    pub fn add(
        &mut self,
        mut keychain: Keychain,
    ) -> Result<(u32, Vec<KeychainScript>), DescriptorError> {
        let number = u32::try_from(self.keychains.len()).unwrap_or(u32::MAX);
        let end = keychain.first + keychain.window;
        let scripts = keychain.derive(number, end)?;
        self.keychains.push(keychain);
        Ok((number, scripts))
    }

    /// Gives a keychain a larger gap, and returns the scripts that are to be watched now. A smaller
    /// gap changes nothing.
    ///
    /// # Errors
    /// An index that cannot be derived.
    pub fn widen(
        &mut self,
        keychain: u32,
        gap: u32,
    ) -> Result<Vec<KeychainScript>, DescriptorError> {
        let Some(chain) = self.keychains.get_mut(keychain as usize) else {
            return Ok(Vec::new());
        };
        let more = gap.saturating_sub(chain.gap);
        if more == 0 || !chain.is_ranged {
            return Ok(Vec::new());
        }
        chain.gap = gap;
        // The old gap is whole after the last index used, wherever that is.
        chain.derive(keychain, chain.next.saturating_add(more).min(NUM_INDICES))
    }

    /// The keychains, by number.
    pub fn keychains(&self) -> &[Keychain] {
        &self.keychains
    }

    /// The next index to derive of each keychain: to be stored, and given to
    /// [`derive_to`](Self::derive_to) when the wallet is resumed.
    pub fn next_indices(&self) -> Vec<u32> {
        self.keychains.iter().map(|keychain| keychain.next).collect()
    }

    /// Derives up to these indices, one for each keychain in its order, and returns the new
    /// scripts. Indices above 2³¹ count as 2³¹.
    ///
    /// # Errors
    /// An index that cannot be derived. The keychains before it are derived; the scripts are
    /// dropped.
    pub fn derive_to(&mut self, next: &[u32]) -> Result<Vec<KeychainScript>, DescriptorError> {
        let mut scripts = Vec::new();
        for ((number, keychain), &end) in (0..).zip(&mut self.keychains).zip(next) {
            if keychain.is_ranged {
                scripts.extend(keychain.derive(number, end.min(NUM_INDICES))?);
            }
        }
        Ok(scripts)
    }

    /// Derives what is to be watched now that this index is used, and returns the new scripts.
    /// None if the index was used before, or the keychain is not there.
    ///
    /// # Errors
    /// An index that cannot be derived.
    pub fn advance(&mut self, used: Label) -> Result<Vec<KeychainScript>, DescriptorError> {
        let look_ahead = self.look_ahead;
        let Some(keychain) = self.keychains.get_mut(used.keychain as usize) else {
            return Ok(Vec::new());
        };
        match keychain.end_after(used.index, look_ahead) {
            Some(end) => keychain.derive(used.keychain, end),
            None => Ok(Vec::new()),
        }
    }
}
