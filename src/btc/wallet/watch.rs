//! [`WatchedItems`]: the watched scripts, keys and coins, and their comparison with blocks and
//! transactions.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bitcoin::{OutPoint, PublicKey, Script, ScriptBuf, Transaction, Txid};

use super::items::{Coins, History, Label, Scripts, WatchedOutput, WatchedScript};
use super::scan::{BlockScan, Relevance, relevance, scan};
use crate::btc::bip158::BoundBlock;

/// An item to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum WatchItem {
    /// A public key, with the scripts that pay only to this key: P2PKH, P2PK, and P2WPKH if the key
    /// is compressed.
    Key {
        /// The public key.
        key: PublicKey,
        /// Label of the key in the wallet.
        label: Option<Label>,
    },
    /// An output script.
    Script {
        /// The script.
        script: ScriptBuf,
        /// Label of the script in the wallet.
        label: Option<Label>,
    },
    /// An output that is known to belong to the wallet, and whose spend is watched.
    OutPoint {
        /// Outpoint of the output.
        outpoint: OutPoint,
        /// Script of the output, if it is known. Payments to the script are then watched too.
        /// Compact filters find the spend only if the script is known, since these filters contain
        /// scripts only.
        script: Option<ScriptBuf>,
    },
}

/// The watched scripts, keys and outputs of a wallet, compared with blocks and transactions.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::ScriptBuf;
/// use chainsieve::btc::bip158::BoundBlock;
/// use chainsieve::btc::wallet::{History, Outcome, WatchedItems};
/// /// Prints the transactions that concern a wallet, in a block whose filter has matched.
/// fn after_match(watch: &mut WatchedItems, height: u32, block: &BoundBlock<'_>) {
///     let scan = watch.scan(height, block);
///     for tx in &scan.transactions {
///         let (received, spent) = (tx.relevance.received.len(), tx.relevance.spent.len());
///         println!("{}: {received} received, {spent} spent", tx.txid);
///     }
///     if scan.outcome() == Outcome::FalsePositive {
///         println!("nothing at {height}");
///     }
/// }
/// let mut watch = WatchedItems::new();
/// let script = ScriptBuf::from_bytes(vec![0x51]);
/// assert_eq!(watch.add_script(script, None, History::Complete), 0);
/// ```
#[derive(Debug, Clone)]
pub struct WatchedItems {
    scripts: Scripts,
    coins: Coins,
}

impl Default for WatchedItems {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchedItems {
    /// Creates an empty watch without a limit on outputs.
    pub fn new() -> Self {
        Self::with_output_limit(usize::MAX)
    }

    /// Creates an empty watch that keeps no further outputs once it has `limit` outputs. Outputs
    /// added by the caller count towards the limit, but are always kept.
    pub fn with_output_limit(limit: usize) -> Self {
        Self { scripts: Scripts::default(), coins: Coins::with_limit(limit) }
    }

    /// Adds a script and returns its index, which is the number of different scripts added before
    /// it.
    ///
    /// A known script keeps its index. A new label replaces the old label. After a call with
    /// [`History::Complete`], the history is complete and stays complete.
    pub fn add_script(
        &mut self,
        script: ScriptBuf,
        label: Option<Label>,
        history: History,
    ) -> usize {
        self.scripts.add(script, label, history)
    }

    /// Adds a key with the scripts that pay only to this key, and returns their indices: P2PKH,
    /// P2PK, and P2WPKH if the key is compressed. An input that contains the key is reported as an
    /// uncertain spend.
    pub fn add_key(
        &mut self,
        key: &PublicKey,
        label: Option<Label>,
        history: History,
    ) -> Vec<usize> {
        self.scripts.add_key(key, label, history)
    }

    /// Adds a known output, for example a Lightning channel. If its script is given, the script is
    /// watched too and its index is returned. The history of the script is unknown, unless the
    /// caller stated before that it is complete.
    pub fn add_outpoint(&mut self, outpoint: OutPoint, script: Option<ScriptBuf>) -> Option<usize> {
        let script = script.map(|script| self.add_script(script, None, History::Unknown));
        self.coins.give(outpoint, script);
        script
    }

    /// Adds an item with its scripts. `history` applies to keys and scripts, not to outputs.
    pub fn add(&mut self, item: WatchItem, history: History) {
        match item {
            WatchItem::Key { key, label } => drop(self.add_key(&key, label, history)),
            WatchItem::Script { script, label } => {
                self.add_script(script, label, history);
            }
            WatchItem::OutPoint { outpoint, script } => {
                self.add_outpoint(outpoint, script);
            }
        }
    }

    /// Removes the scripts with these indices, their outputs, and the keys whose P2PKH script is
    /// among them. The other scripts keep their indices. No index is used again.
    ///
    /// A script that two wallets share is stored once: remove it only when neither wallet needs it.
    ///
    /// # Cost
    /// One pass over all outputs.
    pub fn remove_scripts(&mut self, indices: impl IntoIterator<Item = usize>) {
        let indices: BTreeSet<_> = indices.into_iter().collect();
        self.scripts.remove(&indices);
        self.coins.remove_scripts(&indices);
    }

    /// Removes an output and returns its record. If the output's script is watched and the output's
    /// block is scanned again, the output is found again.
    pub fn remove_outpoint(&mut self, outpoint: &OutPoint) -> Option<WatchedOutput> {
        self.coins.outputs.remove(outpoint)
    }

    /// Returns the script with this index; `None` if there is no such script or it was removed.
    pub fn script(&self, index: usize) -> Option<&WatchedScript> {
        self.scripts.get(index)
    }

    /// Returns the index of a script, if it is watched.
    pub fn index_of(&self, script: &Script) -> Option<usize> {
        self.scripts.index_of(script)
    }

    /// Returns the scripts with their indices, in the order in which they were added.
    pub fn scripts(&self) -> impl Iterator<Item = (usize, &WatchedScript)> {
        self.scripts.iter()
    }

    /// Returns the keys, in the order of their encoded bytes.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.scripts.keys.values().map(|key| &key.key)
    }

    /// Returns the number of different watched scripts.
    pub fn num_scripts(&self) -> usize {
        self.scripts.indices.len()
    }

    /// Returns the number of scripts with a label.
    pub(in crate::btc) fn num_labelled(&self) -> usize {
        self.scripts.labelled
    }

    /// Returns the added and the found outputs, in the order of their outpoints. Includes spent
    /// outputs, but not unconfirmed outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = (&OutPoint, &WatchedOutput)> {
        self.coins.outputs.iter()
    }

    /// Returns the record of an output; `None` if the output is not kept.
    pub fn output(&self, outpoint: &OutPoint) -> Option<&WatchedOutput> {
        self.coins.outputs.get(outpoint)
    }

    /// Scans the block at `height` for the wallet, and keeps the outputs found.
    ///
    /// Scan blocks in the order of the chain. If the block that spends an output is scanned before
    /// the block that creates it, the spend is not recognised and the output stays unspent. The
    /// same block may be scanned again after scripts were added: the result then contains the
    /// earlier findings and the new findings.
    ///
    /// # Cost
    /// One look-up per output and input, and the hashes of the keys and scripts that inputs reveal.
    /// If a taproot script of [`History::Unknown`] is watched, the scan also costs about one
    /// signature check per taproot script path.
    pub fn scan(&mut self, height: u32, block: &BoundBlock<'_>) -> BlockScan {
        scan(&self.scripts, &mut self.coins, height, block)
    }

    /// Returns the outputs and inputs of a transaction that concern the wallet. Stores nothing: to
    /// store the outputs, call [`learn`](Self::learn) or
    /// [`learn_unconfirmed`](Self::learn_unconfirmed).
    ///
    /// # Cost
    /// One look-up per output, per input, and per push of the scriptSig of an input.
    pub fn relevance(&self, tx: &Transaction) -> Relevance {
        relevance(&self.scripts, &self.coins, tx)
    }

    /// Keeps the outputs of a confirmed transaction and records its certain spends. `relevance` is
    /// the result of [`relevance`](Self::relevance). `height` is the height of the transaction's
    /// block, or `None` if the block has left the chain.
    ///
    /// Returns the number of outputs that were not kept because the limit is reached.
    #[must_use = "outputs that were not kept are spent unnoticed"]
    pub fn learn(&mut self, txid: Txid, relevance: &Relevance, height: Option<u32>) -> usize {
        let mut over_limit = 0;
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            let is_kept = self.coins.keep(outpoint, received.script, received.value, height);
            over_limit += usize::from(!is_kept);
        }
        // A spend in a block that has left the chain is ignored: the output is unspent again.
        if let Some(height) = height {
            let certain = relevance.spent.iter().filter(|spent| spent.certain);
            certain.for_each(|spent| self.coins.spend(&spent.outpoint, height));
        }
        over_limit
    }

    /// Remembers the outputs of an unconfirmed transaction until 1,000 newer unconfirmed outputs
    /// replace them.
    pub fn learn_unconfirmed(&mut self, txid: Txid, relevance: &Relevance) {
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            self.coins.unconfirmed.insert(outpoint, received.script);
        }
    }

    /// Undoes the effect of the blocks above `height`, after a reorganisation. Outputs created
    /// above `height` are removed, except those added by the caller. Outputs spent above `height`
    /// become unspent.
    ///
    /// For scans of whole blocks: the scan of the new branch finds the outputs again.
    pub fn rewind(&mut self, height: u32) {
        self.coins.rewind(height);
    }

    /// Marks outputs created at `height` or above as unconfirmed, and outputs spent at `height` or
    /// above as unspent, after a reorganisation. All outputs stay watched.
    ///
    /// For BIP37: an unconfirmed transaction may spend an output whose block left the chain, and a
    /// peer may send the spending transaction without the one that created the output.
    pub fn unconfirm_from(&mut self, height: u32) {
        for output in self.coins.outputs.values_mut() {
            output.created.take_if(|at| *at >= height);
            output.spent.take_if(|at| *at >= height);
        }
    }

    /// Removes the outputs that were spent at `height` or below, in blocks too deep to leave the
    /// chain.
    ///
    /// Do not scan again the blocks that created and spent these outputs: the outputs would then
    /// appear as unspent, and their spends would not be found.
    pub fn forget_spent(&mut self, height: u32) {
        self.coins.outputs.retain(|_, output| output.spent.is_none_or(|spent| spent > height));
    }
}
