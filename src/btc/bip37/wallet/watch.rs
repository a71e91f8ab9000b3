//! What a wallet watches, and which transactions are really its own.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PublicKey, ScriptBuf, Transaction, Txid};

use crate::btc::bip37::bloom_filter::outpoint_bytes;
use crate::btc::script::pushes;

/// Where a key or script stands in a wallet: which of its keychains, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The keychain, say 0 for receiving and 1 for change.
    pub keychain: u32,
    /// The index of derivation.
    pub index: u32,
}

/// Something to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// A public key, with all outputs that pay to it alone: P2PKH, P2WPKH if it is compressed,
    /// and P2PK.
    ///
    /// The filter sees P2PK only if the policy inserts keys beside their hashes.
    Key {
        /// The key.
        key: PublicKey,
        /// Where it stands.
        label: Option<Label>,
    },
    /// An output script.
    Script {
        /// The script.
        script: ScriptBuf,
        /// Where it stands.
        label: Option<Label>,
    },
    /// An output already known to be the wallet's; its spend is watched.
    OutPoint(OutPoint),
}

/// An output that pays to the wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The output.
    pub vout: u32,
    /// Where its key or script stands.
    pub label: Option<Label>,
}

/// An input that spends from the wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// The input.
    pub vin: u32,
    /// What it spends.
    pub outpoint: OutPoint,
    /// Whether the outpoint is known to be the wallet's; otherwise the input shows one of its
    /// keys, which anyone who knows the key can do.
    pub known: bool,
}

/// What of a transaction is the wallet's, compared exactly, without the filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relevance {
    /// Outputs that pay to the wallet.
    pub received: Vec<Received>,
    /// Inputs that spend from it.
    pub spent: Vec<Spent>,
}

impl Relevance {
    /// Whether nothing of the transaction is the wallet's.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty() && self.spent.is_empty()
    }
}

#[derive(Debug, Clone, Copy)]
struct WatchedScript {
    label: Option<Label>,
    /// The filter sees a spend without the outpoint: it reveals a key that is inserted.
    spend_is_seen: bool,
}

/// Keys, scripts and outpoints, and the filter elements they give.
#[derive(Debug, Clone)]
pub(super) struct WatchSet {
    insert_keys: bool,
    scripts: BTreeMap<ScriptBuf, WatchedScript>,
    keys: BTreeSet<Vec<u8>>,
    /// Whether each is a key's hash or a script's push, and so an address.
    elements: BTreeMap<Vec<u8>, bool>,
    outpoints: BTreeSet<OutPoint>,
    /// Outputs of unconfirmed transactions, oldest first. Not for the filter: they cost nothing
    /// to make up, and would drive its size.
    unconfirmed: BTreeSet<OutPoint>,
    unconfirmed_order: VecDeque<OutPoint>,
    /// The elements that are addresses.
    addresses: usize,
}

/// What was new of something to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct New {
    /// The filter lacks it.
    pub(super) element: bool,
    /// A script is compared that was not before.
    pub(super) script: bool,
}

/// How many outputs of unconfirmed transactions are remembered.
const MAX_UNCONFIRMED: usize = 1_000;

impl WatchSet {
    pub(super) fn new(insert_keys: bool, insert_null_outpoint: bool) -> Self {
        let mut elements = BTreeMap::new();
        if insert_null_outpoint {
            elements.insert(outpoint_bytes(&OutPoint::null()).to_vec(), false);
        }
        Self {
            insert_keys,
            scripts: BTreeMap::new(),
            keys: BTreeSet::new(),
            elements,
            outpoints: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            unconfirmed_order: VecDeque::new(),
            addresses: 0,
        }
    }

    /// The elements of the filter.
    pub(super) fn elements(&self) -> impl Iterator<Item = &[u8]> {
        self.elements.keys().map(Vec::as_slice)
    }

    pub(super) fn num_elements(&self) -> u32 {
        u32::try_from(self.elements.len()).unwrap_or(u32::MAX)
    }

    /// The number of keys and scripts watched that the filter can tell apart: P2PKH and P2WPKH
    /// of one key are one.
    pub(super) fn num_addresses(&self) -> usize {
        self.addresses
    }

    /// Adds `watched` and returns what of it is new.
    ///
    /// # Errors
    /// The script back, if no filter can see it: it pushes no data.
    pub(super) fn watch(&mut self, watched: Watched) -> Result<New, ScriptBuf> {
        let before = self.scripts.len();
        let element = match watched {
            Watched::Key { key, label } => self.watch_key(&key, label),
            Watched::Script { script, label } => {
                // One push is enough for a match: the longest has the fewest accidental ones.
                let longest = pushes(script.as_bytes()).max_by_key(|data| data.len());
                let Some(element) = longest.map(<[u8]>::to_vec) else { return Err(script) };
                self.watch_script(script, label, false);
                self.insert_address(element)
            }
            Watched::OutPoint(outpoint) => self.watch_outpoint(outpoint),
        };
        Ok(New { element, script: self.scripts.len() > before })
    }

    fn watch_key(&mut self, key: &PublicKey, label: Option<Label>) -> bool {
        let hash = key.pubkey_hash();
        let bytes = key.to_bytes();
        self.watch_script(ScriptBuf::new_p2pkh(&hash), label, self.insert_keys);
        self.watch_script(ScriptBuf::new_p2pk(key), label, false);
        if let Ok(hash) = key.wpubkey_hash() {
            self.watch_script(ScriptBuf::new_p2wpkh(&hash), label, false);
        }
        self.keys.insert(bytes.clone());
        let new_hash = self.insert_address(hash.to_byte_array().to_vec());
        let new_key = self.insert_keys && self.insert_element(bytes);
        new_hash || new_key
    }

    fn watch_script(&mut self, script: ScriptBuf, label: Option<Label>, spend_is_seen: bool) {
        let entry =
            self.scripts.entry(script).or_insert(WatchedScript { label, spend_is_seen: false });
        entry.label = label.or(entry.label);
        entry.spend_is_seen |= spend_is_seen;
    }

    fn watch_outpoint(&mut self, outpoint: OutPoint) -> bool {
        self.outpoints.insert(outpoint);
        self.insert_element(outpoint_bytes(&outpoint).to_vec())
    }

    /// Returns whether the element is new.
    fn insert_element(&mut self, element: Vec<u8>) -> bool {
        let before = self.elements.len();
        self.elements.entry(element).or_insert(false);
        self.elements.len() > before
    }

    fn insert_address(&mut self, element: Vec<u8>) -> bool {
        let before = self.elements.len();
        let is_address = self.elements.entry(element).or_insert(false);
        self.addresses += usize::from(!*is_address);
        *is_address = true;
        self.elements.len() > before
    }

    /// What of `tx` is the wallet's.
    pub(super) fn relevance(&self, tx: &Transaction) -> Relevance {
        let received = (0..)
            .zip(&tx.output)
            .filter_map(|(vout, output)| {
                let script = self.scripts.get(&output.script_pubkey)?;
                Some(Received { vout, label: script.label })
            })
            .collect();
        let spent = (0..)
            .zip(&tx.input)
            .filter_map(|(vin, input)| {
                let outpoint = input.previous_output;
                let known =
                    self.outpoints.contains(&outpoint) || self.unconfirmed.contains(&outpoint);
                let shows_key =
                    || pushes(input.script_sig.as_bytes()).any(|data| self.keys.contains(data));
                (known || shows_key()).then_some(Spent { vin, outpoint, known })
            })
            .collect();
        Relevance { received, spent }
    }

    /// Takes in the outputs of a confirmed transaction, at most `limit` in all. Returns those
    /// whose spend a filter sees only by their outpoint, and how many were too many.
    pub(super) fn learn(
        &mut self,
        tx: &Transaction,
        txid: Txid,
        relevance: &Relevance,
        limit: usize,
    ) -> (Vec<OutPoint>, usize) {
        let (mut needed, mut dropped) = (Vec::new(), 0);
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            let seen = tx
                .output
                .get(received.vout as usize)
                .and_then(|output| self.scripts.get(&output.script_pubkey))
                .is_some_and(|script| script.spend_is_seen);
            if self.outpoints.len() >= limit && !self.outpoints.contains(&outpoint) {
                dropped += 1;
                continue;
            }
            self.outpoints.insert(outpoint);
            if !seen {
                self.insert_element(outpoint_bytes(&outpoint).to_vec());
                needed.push(outpoint);
            }
        }
        (needed, dropped)
    }

    /// Remembers the outputs of an unconfirmed transaction for a while.
    pub(super) fn learn_unconfirmed(&mut self, txid: Txid, relevance: &Relevance) {
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            if self.unconfirmed.insert(outpoint) {
                self.unconfirmed_order.push_back(outpoint);
            }
        }
        while self.unconfirmed_order.len() > MAX_UNCONFIRMED {
            if let Some(oldest) = self.unconfirmed_order.pop_front() {
                self.unconfirmed.remove(&oldest);
            }
        }
    }
}
