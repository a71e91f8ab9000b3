//! The watched scripts and keys, each script with an index, and the watched outputs: those added by
//! the caller, those found in transactions, and a bounded number of outputs of unconfirmed
//! transactions.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, PublicKey, Script, ScriptBuf};

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
    /// The script.
    pub script: ScriptBuf,
    /// The label of the script, if the caller gave one.
    pub label: Option<Label>,
    /// The history that the caller stated for the script.
    pub history: History,
    kind: Kind,
    /// `true` if the caller added the script itself, and not only a key to which the script pays.
    pub(in crate::btc) is_named: bool,
    /// `true` if this is the P2PKH script of a watched key, so that each spend of the script contains
    /// the key.
    pub(in crate::btc) is_key_hash: bool,
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
pub(super) struct WatchedKey {
    pub(super) key: PublicKey,
    key_hash_script: usize,
}

/// The watched scripts by index, and the watched keys. A script keeps its index for ever.
#[derive(Debug, Clone, Default)]
pub(super) struct Scripts {
    pub(super) indices: BTreeMap<ScriptBuf, usize>,
    /// Scripts by index. `None` for a removed script, whose index is never used again.
    by_index: Vec<Option<WatchedScript>>,
    /// Keys by their encoded bytes, as an input contains them.
    pub(super) keys: BTreeMap<Vec<u8>, WatchedKey>,
    /// Number of scripts of [`History::Unknown`], by kind.
    unknown: [usize; Kind::COUNT],
    /// Number of scripts with a label.
    pub(super) labelled: usize,
}

impl Scripts {
    /// Adds a script on behalf of the caller and returns its index.
    ///
    /// A known script keeps its index. A new label replaces the old label. After a call with
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

    /// Returns `true` if a script of this kind with [`History::Unknown`] is watched.
    pub(super) fn has_unknown(&self, kind: Kind) -> bool {
        self.unknown[kind as usize] > 0
    }
}

/// An output whose spend is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchedOutput {
    /// Index of its script in the watch; `None` if the caller added the output without its script.
    pub script: Option<usize>,
    /// Amount, if the transaction that created the output was seen.
    pub value: Option<Amount>,
    /// Height of the block that created the output; `None` if unknown.
    pub created: Option<u32>,
    /// Height of the block that spent the output; `None` if no spend is known.
    pub spent: Option<u32>,
    /// `true` if the caller added the output. Such an output is kept even if its block leaves the
    /// chain.
    pub is_given: bool,
}

/// Maximum number of remembered unconfirmed outputs. Without a limit, a peer could fill the memory:
/// unconfirmed transactions cost nothing to invent.
const MAX_UNCONFIRMED: usize = 1_000;

/// The outputs of the wallet.
#[derive(Debug, Clone)]
pub(super) struct Coins {
    pub(super) outputs: BTreeMap<OutPoint, WatchedOutput>,
    /// Once this many outputs are kept, no further outputs are kept except those that the caller
    /// adds.
    limit: usize,
    pub(super) unconfirmed: Unconfirmed,
}

/// Outputs of unconfirmed transactions, each with the index of its script. The oldest output is
/// dropped first.
#[derive(Debug, Clone, Default)]
pub(super) struct Unconfirmed {
    scripts: BTreeMap<OutPoint, usize>,
    order: VecDeque<OutPoint>,
}

/// An output that is known to belong to the wallet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Index of the script of the output, if it is known.
    pub(super) script: Option<usize>,
}

impl Coins {
    /// Creates an empty set of outputs with a limit.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { outputs: BTreeMap::new(), limit, unconfirmed: Unconfirmed::default() }
    }

    /// Adds an output on behalf of the caller, regardless of the limit.
    pub(super) fn give(&mut self, outpoint: OutPoint, script: Option<usize>) {
        let new = WatchedOutput { script, value: None, created: None, spent: None, is_given: true };
        let kept = self.outputs.entry(outpoint).or_insert(new);
        kept.script = kept.script.or(script);
        kept.is_given = true;
    }

    /// Adds or updates an output that a transaction in a block creates. `height` is `None` if that
    /// block has left the chain. Returns `false` if the limit is reached.
    pub(super) fn keep(
        &mut self,
        outpoint: OutPoint,
        script: usize,
        value: Amount,
        height: Option<u32>,
    ) -> bool {
        if self.outputs.len() >= self.limit && !self.outputs.contains_key(&outpoint) {
            return false;
        }
        let new = WatchedOutput {
            script: Some(script),
            value: Some(value),
            created: height,
            spent: None,
            is_given: false,
        };
        let kept = self.outputs.entry(outpoint).or_insert(new);
        kept.script = kept.script.or(new.script);
        kept.value = new.value;
        kept.created = height.or(kept.created);
        true
    }

    /// Returns the output if it belongs to the wallet, even if it is unconfirmed; otherwise `None`.
    pub(super) fn known(&self, outpoint: &OutPoint) -> Option<Known> {
        match self.outputs.get(outpoint) {
            Some(output) => Some(Known { script: output.script }),
            None => {
                self.unconfirmed.scripts.get(outpoint).map(|&script| Known { script: Some(script) })
            }
        }
    }

    /// Records that the block at `height` spends `outpoint`, if that output is kept.
    pub(super) fn spend(&mut self, outpoint: &OutPoint, height: u32) {
        // Outputs beyond the limit are not kept, so their spends are not recorded either.
        if let Some(output) = self.outputs.get_mut(outpoint) {
            output.spent = Some(height);
        }
    }

    /// Removes all outputs of these scripts.
    pub(super) fn remove_scripts(&mut self, scripts: &BTreeSet<usize>) {
        self.outputs.retain(|_, output| output.script.is_none_or(|it| !scripts.contains(&it)));
        self.unconfirmed.remove_scripts(scripts);
    }

    /// Removes the outputs created above `height`, except those added by the caller. Marks outputs
    /// spent above `height` as unspent.
    pub(super) fn rewind(&mut self, height: u32) {
        let is_above = |at: Option<u32>| at.is_some_and(|at| at > height);
        self.outputs.retain(|_, output| output.is_given || !is_above(output.created));
        for output in self.outputs.values_mut() {
            // An output that the caller has added stays watched, but is unconfirmed again.
            if is_above(output.created) {
                (output.created, output.value) = (None, None);
            }
            // The spending block has left the chain: on the new branch, another transaction may
            // spend the output.
            if is_above(output.spent) {
                output.spent = None;
            }
        }
    }
}

impl Unconfirmed {
    /// Remembers an output of an unconfirmed transaction until [`MAX_UNCONFIRMED`] newer ones
    /// replace it.
    pub(super) fn insert(&mut self, outpoint: OutPoint, script: usize) {
        if self.scripts.insert(outpoint, script).is_none() {
            self.order.push_back(outpoint);
        }
        while self.order.len() > MAX_UNCONFIRMED {
            if let Some(oldest) = self.order.pop_front() {
                self.scripts.remove(&oldest);
            }
        }
    }

    fn remove_scripts(&mut self, scripts: &BTreeSet<usize>) {
        self.scripts.retain(|_, script| !scripts.contains(script));
        self.order.retain(|outpoint| self.scripts.contains_key(outpoint));
    }
}
