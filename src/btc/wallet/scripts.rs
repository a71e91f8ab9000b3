//! The watched scripts and keys. Each script has an index.

use alloc::collections::BTreeSet;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;

use bitcoin::{PublicKey, Script, ScriptBuf};

use crate::btc::names::names;

/// Position of a key or script in a wallet: keychain and derivation index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Label {
    /// Number of the keychain, for example 0 for receiving and 1 for change.
    pub keychain: u32,
    /// Derivation index.
    pub index: u32,
}

/// States whether all payments to a script so far are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Every output that ever paid to the script is known to the watch, or is in a block that will
    /// be scanned no later than the block that spends the output. This condition holds if the
    /// script is new, or if the scan starts before the first use of the script.
    Complete,
    /// The script may have received payments in blocks that are not scanned.
    Unknown,
}

names! { History, "a history": Complete = "complete", Unknown = "unknown" }

/// A watched script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedScript {
    script: ScriptBuf,
    kind: Kind,
    label: Option<Label>,
    history: History,
    is_named: bool,
    is_key_hash: bool,
}

impl WatchedScript {
    /// Returns the script.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Returns the label of the script, if the caller gave one.
    pub fn label(&self) -> Option<Label> {
        self.label
    }

    /// Returns the history that the caller stated for the script.
    pub fn history(&self) -> History {
        self.history
    }

    /// Returns `true` if the caller added the script itself, and not only a key that it pays to.
    pub(in crate::btc) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Returns `true` if this is the P2PKH script of a watched key, so that each spend of the
    /// script contains the key.
    pub(in crate::btc) fn is_key_hash(&self) -> bool {
        self.is_key_hash
    }
}

/// Kind of a script, by the data that a spending input reveals about the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// P2PKH or P2SH: the last push of the scriptSig hashes to the hash in the script.
    Hash,
    /// P2WPKH or P2WSH: the last item of the witness hashes to the hash in the script.
    WitnessV0,
    /// Taproot or a later witness program: the input may reveal nothing.
    OtherWitness,
    /// Any other script: the input does not reveal the script.
    Bare,
}

impl Kind {
    /// Number of kinds.
    const COUNT: usize = 4;

    fn of(script: &Script) -> Self {
        if script.is_p2pkh() || script.is_p2sh() {
            Self::Hash
        } else if script.is_p2wpkh() || script.is_p2wsh() {
            Self::WitnessV0
        } else if script.is_witness_program() {
            Self::OtherWitness
        } else {
            Self::Bare
        }
    }
}

/// A watched key and the index of its P2PKH script.
#[derive(Debug, Clone, Copy)]
struct WatchedKey {
    key: PublicKey,
    key_hash_script: usize,
}

/// The watched scripts by index, and the watched keys. A script keeps its index for ever.
#[derive(Debug, Clone, Default)]
pub(super) struct Scripts {
    indices: BTreeMap<ScriptBuf, usize>,
    /// Scripts by index. `None` for a removed script, whose index is never used again.
    by_index: Vec<Option<WatchedScript>>,
    /// Keys by their encoded bytes, as an input contains them.
    keys: BTreeMap<Vec<u8>, WatchedKey>,
    /// Number of scripts of [`History::Unknown`], by kind.
    unknown: [usize; Kind::COUNT],
    /// Number of scripts with a label.
    labelled: usize,
}

impl Scripts {
    /// Adds a script on behalf of the caller and returns its index.
    ///
    /// A known script keeps its index. A new label replaces the old one. After a call with
    /// [`History::Complete`], the history is complete and stays complete.
    pub(super) fn add(
        &mut self,
        script: ScriptBuf,
        label: Option<Label>,
        history: History,
    ) -> usize {
        let index = self.insert(script, label, history);
        if let Some(watched) = self.get_mut(index) {
            watched.is_named = true;
        }
        index
    }

    /// Adds a key and the scripts that pay only to this key. Returns the indices of these scripts,
    /// P2PKH first.
    pub(super) fn add_key(
        &mut self,
        key: &PublicKey,
        label: Option<Label>,
        history: History,
    ) -> Vec<usize> {
        let key_hash_script = self.insert(ScriptBuf::new_p2pkh(&key.pubkey_hash()), label, history);
        // Each spend of this script pushes the key, so a BIP37 filter with the key matches the
        // spend without its outpoint.
        if let Some(watched) = self.get_mut(key_hash_script) {
            watched.is_key_hash = true;
        }
        self.keys.insert(key.to_bytes(), WatchedKey { key: *key, key_hash_script });
        let mut indices = Vec::from([key_hash_script]);
        indices.push(self.insert(ScriptBuf::new_p2pk(key), label, history));
        // Only compressed keys are allowed in witness programs (BIP143).
        if let Ok(hash) = key.wpubkey_hash() {
            indices.push(self.insert(ScriptBuf::new_p2wpkh(&hash), label, history));
        }
        indices
    }

    fn insert(&mut self, script: ScriptBuf, label: Option<Label>, history: History) -> usize {
        let next = self.by_index.len();
        let kind = Kind::of(&script);
        match self.indices.entry(script) {
            Entry::Vacant(entry) => {
                let script = entry.key().clone();
                entry.insert(next);
                self.unknown[kind as usize] += usize::from(history == History::Unknown);
                self.labelled += usize::from(label.is_some());
                self.by_index.push(Some(WatchedScript {
                    script,
                    kind,
                    label,
                    history,
                    is_named: false,
                    is_key_hash: false,
                }));
                next
            }
            Entry::Occupied(entry) => {
                let index = *entry.get();
                if let Some(Some(watched)) = self.by_index.get_mut(index) {
                    self.labelled += usize::from(label.is_some() && watched.label.is_none());
                    watched.label = label.or(watched.label);
                    if watched.history != history && history == History::Complete {
                        watched.history = history;
                        self.unknown[kind as usize] -= 1;
                    }
                }
                index
            }
        }
    }

    /// Removes scripts, and the keys whose P2PKH script is among them. Ignores indices without a
    /// script.
    pub(super) fn remove(&mut self, indices: &BTreeSet<usize>) {
        for &index in indices {
            let Some(watched) = self.by_index.get_mut(index).and_then(Option::take) else {
                continue;
            };
            self.indices.remove(&watched.script);
            let is_unknown = watched.history == History::Unknown;
            self.unknown[watched.kind as usize] -= usize::from(is_unknown);
            self.labelled -= usize::from(watched.label.is_some());
        }
        self.keys.retain(|_, key| !indices.contains(&key.key_hash_script));
    }

    pub(super) fn get(&self, index: usize) -> Option<&WatchedScript> {
        self.by_index.get(index)?.as_ref()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut WatchedScript> {
        self.by_index.get_mut(index)?.as_mut()
    }

    pub(super) fn index_of(&self, script: &Script) -> Option<usize> {
        self.indices.get(script).copied()
    }

    /// Returns the index of the P2PKH script of the key with these bytes, if the key is watched.
    pub(super) fn index_of_key(&self, key: &[u8]) -> Option<usize> {
        self.keys.get(key).map(|key| key.key_hash_script)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &WatchedScript)> {
        self.by_index.iter().enumerate().filter_map(|(index, it)| Some((index, it.as_ref()?)))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.values().map(|key| &key.key)
    }

    pub(super) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Returns the number of scripts with a label.
    pub(super) fn num_labelled(&self) -> usize {
        self.labelled
    }

    /// Returns `true` if a script of this kind with [`History::Unknown`] is watched.
    pub(super) fn has_unknown(&self, kind: Kind) -> bool {
        self.unknown[kind as usize] > 0
    }
}
