//! The elements of a wallet's filter, derived from what is watched.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PublicKey, Script, Txid};

use super::policy::FilterPolicy;
use crate::btc::bip37::bloom_filter::outpoint_bytes;
use crate::btc::script::pushes;
use crate::btc::wallet::{Relevance, Watch, Watched, WatchedScript};

/// The element by which BIP37 watches `script`: the longest of the data that it pushes, the last
/// one of equal length.
///
/// `None` if the script pushes no data: no BIP37 filter can watch it.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{Script, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::session::element_of;
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// assert_eq!(element_of(&script), Some(&[7; 20][..]));
/// // OP_TRUE pushes a number, which BIP37 does not look at.
/// assert_eq!(element_of(Script::from_bytes(&[0x51])), None);
/// ```
pub fn element_of(script: &Script) -> Option<&[u8]> {
    // One push is enough for a match: the longest has the fewest accidental ones.
    pushes(script.as_bytes()).max_by_key(|data| data.len())
}

/// Whether BIP37 can watch `item`. It cannot watch a script that pushes no data, see
/// [`element_of`]. A coin is watched by its outpoint, whatever its script.
pub fn is_watchable(item: &Watched) -> bool {
    match item {
        Watched::Script { script, .. } => element_of(script).is_some(),
        Watched::Key { .. } | Watched::OutPoint { .. } => true,
    }
}

/// The elements of the filter.
#[derive(Debug, Clone)]
pub(super) struct FilterElements {
    insert_keys: bool,
    /// Whether each is a key's hash or a script's push, and so an address.
    is_address: BTreeMap<Vec<u8>, bool>,
    /// The number of elements that are addresses.
    addresses: usize,
}

impl FilterElements {
    /// The elements of everything watched.
    pub(super) fn of(watch: &Watch, policy: &FilterPolicy) -> Self {
        let mut elements =
            Self { insert_keys: policy.insert_keys, is_address: BTreeMap::new(), addresses: 0 };
        if policy.insert_null_outpoint {
            elements.insert_outpoint(&OutPoint::null());
        }
        for (_, script) in watch.scripts().filter(|(_, script)| script.is_named()) {
            elements.insert_script(script.script());
        }
        for key in watch.keys() {
            elements.insert_key(key);
        }
        for (outpoint, output) in watch.outputs() {
            let shows_key = output.script.is_some_and(|script| elements.shows_key(watch, script));
            if output.is_given || !shows_key {
                elements.insert_outpoint(outpoint);
            }
        }
        elements
    }

    /// Adds what `item` stands for. Returns whether an element is new.
    pub(super) fn add(&mut self, item: &Watched) -> bool {
        match item {
            Watched::Key { key, .. } => self.insert_key(key),
            Watched::Script { script, .. } => self.insert_script(script),
            Watched::OutPoint { outpoint, script } => {
                let new_script = script.as_ref().is_some_and(|script| self.insert_script(script));
                self.insert_outpoint(outpoint) || new_script
            }
        }
    }

    /// Adds the outputs of a confirmed transaction that `watch` has learnt, and returns those
    /// whose spend a filter sees only by their outpoint.
    pub(super) fn learn(
        &mut self,
        watch: &Watch,
        txid: Txid,
        relevance: &Relevance,
    ) -> Vec<OutPoint> {
        let mut needed = Vec::new();
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            // Those over the limit are not kept.
            let is_kept = watch.output(&outpoint).is_some();
            if is_kept && !self.shows_key(watch, received.script) {
                self.insert_outpoint(&outpoint);
                needed.push(outpoint);
            }
        }
        needed
    }

    /// Whether a filter sees the spend of this script without its outpoint: the input shows a key
    /// that is an element.
    fn shows_key(&self, watch: &Watch, script: usize) -> bool {
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

    /// Returns whether the element is new. One that is an address stays one.
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

    /// The number of keys and scripts that the filter can tell apart: P2PKH and P2WPKH of one key
    /// are one.
    pub(super) fn num_addresses(&self) -> usize {
        self.addresses
    }
}
