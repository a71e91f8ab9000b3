//! The elements of a wallet's filter, derived from what is watched.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PublicKey, Script, Txid};

use super::policy::FilterPolicy;
use crate::btc::bip37::bloom_filter::outpoint_bytes;
use crate::btc::script::pushes;
use crate::btc::wallet::{Relevance, WatchItem, WatchedItems, WatchedScript};

/// Returns the element by which BIP37 watches `script`: the longest non-empty data push, or the
/// last one of several with that length.
///
/// Returns `None` if the script pushes no data. No BIP37 filter can watch such a script.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{Script, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::session::element_of;
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// assert_eq!(element_of(&script), Some(&[7; 20][..]));
/// // OP_TRUE pushes a number, which BIP37 does not test.
/// assert_eq!(element_of(Script::from_bytes(&[0x51])), None);
/// ```
pub fn element_of(script: &Script) -> Option<&[u8]> {
    // One push is enough for a match, and the longest push has the fewest accidental matches.
    pushes(script.as_bytes()).max_by_key(|data| data.len())
}

/// Returns `true` if BIP37 can watch `item`.
///
/// BIP37 cannot watch a script that pushes no data, see [`element_of`]. A coin is watched by its
/// outpoint, whatever its script.
pub fn is_watchable(item: &WatchItem) -> bool {
    match item {
        WatchItem::Script { script, .. } => element_of(script).is_some(),
        WatchItem::Key { .. } | WatchItem::OutPoint { .. } => true,
    }
}

/// The elements of the wallet's filter.
#[derive(Debug, Clone)]
pub(super) struct FilterElements {
    insert_keys: bool,
    /// The elements. The value is `true` if the element is an address: the hash of a key, or a push
    /// of a script.
    is_address: BTreeMap<Vec<u8>, bool>,
    /// The number of elements that are addresses.
    addresses: usize,
}

impl FilterElements {
    /// Returns the elements of everything watched.
    pub(super) fn of(watch: &WatchedItems, policy: &FilterPolicy) -> Self {
        let mut elements =
            Self { insert_keys: policy.insert_keys, is_address: BTreeMap::new(), addresses: 0 };
        if policy.insert_null_outpoint {
            elements.insert_outpoint(&OutPoint::null());
        }
        // Only scripts that the caller added need elements of their own. All remaining scripts are
        // matched by the elements of their keys.
        for (_, script) in watch.scripts().filter(|(_, script)| script.is_named()) {
            elements.insert_script(script.script());
        }
        for key in watch.keys() {
            elements.insert_key(key);
        }
        for (outpoint, output) in watch.outputs() {
            let shows_key = output.script.is_some_and(|script| elements.shows_key(watch, script));
            // An outpoint that the caller added is always inserted. An outpoint that the session
            // found is needed only if the input that spends it pushes no key that is an element.
            if output.is_given || !shows_key {
                elements.insert_outpoint(outpoint);
            }
        }
        elements
    }

    /// Adds the elements of `item`. Returns `true` if an element is new.
    pub(super) fn add(&mut self, item: &WatchItem) -> bool {
        match item {
            WatchItem::Key { key, .. } => self.insert_key(key),
            WatchItem::Script { script, .. } => self.insert_script(script),
            WatchItem::OutPoint { outpoint, script } => {
                let new_script = script.as_ref().is_some_and(|script| self.insert_script(script));
                self.insert_outpoint(outpoint) || new_script
            }
        }
    }

    /// Adds the outpoints of those outputs of a confirmed transaction that `watch` has stored, if a
    /// filter needs the outpoints to match the inputs that spend them. Returns these outpoints.
    pub(super) fn learn(
        &mut self,
        watch: &WatchedItems,
        txid: Txid,
        relevance: &Relevance,
    ) -> Vec<OutPoint> {
        let mut needed = Vec::new();
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            // Outputs over the limit are not stored.
            let is_kept = watch.output(&outpoint).is_some();
            // BIP37 matches an input by its outpoint or by its pushes. If the input pushes a key
            // that is an element, the outpoint would only raise the false-positive rate.
            if is_kept && !self.shows_key(watch, received.script) {
                self.insert_outpoint(&outpoint);
                needed.push(outpoint);
            }
        }
        needed
    }

    /// Returns `true` if a filter matches the spend of this script without its outpoint, because
    /// the input pushes a key that is an element.
    fn shows_key(&self, watch: &WatchedItems, script: usize) -> bool {
        self.insert_keys && watch.script(script).is_some_and(WatchedScript::is_key_hash)
    }

    fn insert_script(&mut self, script: &Script) -> bool {
        element_of(script).is_some_and(|element| self.insert_address(element))
    }

    fn insert_key(&mut self, key: &PublicKey) -> bool {
        let new_hash = self.insert_address(key.pubkey_hash().as_byte_array());
        let new_key = self.insert_keys && self.insert(&key.to_bytes(), false);
        new_hash || new_key
    }

    fn insert_outpoint(&mut self, outpoint: &OutPoint) -> bool {
        self.insert(&outpoint_bytes(outpoint), false)
    }

    fn insert_address(&mut self, element: &[u8]) -> bool {
        self.insert(element, true)
    }

    /// Returns `true` if the element is new. An element that is an address stays an address.
    fn insert(&mut self, element: &[u8], is_address: bool) -> bool {
        if let Some(known) = self.is_address.get_mut(element) {
            self.addresses += usize::from(is_address && !*known);
            *known |= is_address;
            return false;
        }
        self.is_address.insert(element.to_vec(), is_address);
        self.addresses += usize::from(is_address);
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.is_address.keys().map(Vec::as_slice)
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.is_address.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of keys and scripts that the filter can distinguish. P2PKH and P2WPKH of
    /// one key are counted as one.
    pub(super) fn num_addresses(&self) -> usize {
        self.addresses
    }
}
