//! The watch: scripts, keys and coins, and what they are compared with.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bitcoin::{OutPoint, PublicKey, Script, ScriptBuf, Transaction, Txid};

use super::coins::{Coins, WatchedOutput};
use super::relevance::{Relevance, relevance};
use super::scan::{BlockScan, scan};
use super::scripts::{History, Label, Scripts, WatchedScript};
use crate::btc::bip158::BoundBlock;

/// Something to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// A public key, with all outputs that pay to it alone: P2PKH, P2PK, and P2WPKH if the key is
    /// compressed.
    Key {
        /// The key.
        key: PublicKey,
        /// The key's place in the wallet.
        label: Option<Label>,
    },
    /// An output script.
    Script {
        /// The script.
        script: ScriptBuf,
        /// The script's place in the wallet.
        label: Option<Label>,
    },
    /// An output that is known to be the wallet's: its spend is looked for.
    OutPoint {
        /// The output.
        outpoint: OutPoint,
        /// The output's script, if it is known. Payments to it are then looked for too. Compact
        /// filters hold scripts only, so they find the spend only if it is known.
        script: Option<ScriptBuf>,
    },
}

/// Scripts, keys and outputs that are looked for in blocks and transactions.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::ScriptBuf;
/// use chainsieve::btc::bip158::BoundBlock;
/// use chainsieve::btc::wallet::{History, Outcome, Watch};
/// /// Prints what a block, fetched because its filter matched, holds for a wallet.
/// fn after_match(watch: &mut Watch, height: u32, block: &BoundBlock<'_>) {
///     let scan = watch.scan(height, block);
///     for tx in &scan.transactions {
///         let (received, spent) = (tx.relevance.received.len(), tx.relevance.spent.len());
///         println!("{}: {received} received, {spent} spent", tx.txid);
///     }
///     if scan.outcome() == Outcome::FalsePositive {
///         println!("nothing at {height}");
///     }
/// }
/// let mut watch = Watch::new();
/// let script = ScriptBuf::from_bytes(vec![0x51]);
/// assert_eq!(watch.add_script(script, None, History::Complete), 0);
/// ```
#[derive(Debug, Clone)]
pub struct Watch {
    scripts: Scripts,
    coins: Coins,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// A watch of nothing yet, without a limit on outputs.
    pub fn new() -> Self {
        Self::with_output_limit(usize::MAX)
    }

    /// A watch that keeps no further outputs once it has `limit` of them. Outputs added by hand
    /// count, and are always kept.
    pub fn with_output_limit(limit: usize) -> Self {
        Self { scripts: Scripts::default(), coins: Coins::with_limit(limit) }
    }

    /// Adds a script, and returns its index: the number of different scripts added before it.
    ///
    /// A script that is there keeps its index. A new label replaces the one before; the history
    /// is complete once it was said to be.
    pub fn add_script(
        &mut self,
        script: ScriptBuf,
        label: Option<Label>,
        history: History,
    ) -> usize {
        self.scripts.add(script, label, history)
    }

    /// Adds a key with the scripts that pay to it alone, and returns their indices: P2PKH, P2PK,
    /// and P2WPKH if the key is compressed. An input that shows the key counts as its spend, though
    /// not for certain.
    pub fn add_key(
        &mut self,
        key: &PublicKey,
        label: Option<Label>,
        history: History,
    ) -> Vec<usize> {
        self.scripts.add_key(key, label, history)
    }

    /// Adds an output by hand, as Lightning watches its channels. Its script is looked for too, if
    /// it is given; its index is returned. The script's history is unknown, unless it was said
    /// to be complete.
    pub fn add_outpoint(&mut self, outpoint: OutPoint, script: Option<ScriptBuf>) -> Option<usize> {
        let script = script.map(|script| self.add_script(script, None, History::Unknown));
        self.coins.give(outpoint, script);
        script
    }

    /// Adds what an item stands for. `history` is that of the scripts of keys and scripts.
    pub fn add(&mut self, item: Watched, history: History) {
        match item {
            Watched::Key { key, label } => drop(self.add_key(&key, label, history)),
            Watched::Script { script, label } => {
                self.add_script(script, label, history);
            }
            Watched::OutPoint { outpoint, script } => {
                self.add_outpoint(outpoint, script);
            }
        }
    }

    /// Removes the scripts with these indices, with their outputs, and the keys whose P2PKH script
    /// is among them. The other scripts keep their indices, and no index is given again.
    ///
    /// A script that two wallets share is one script: remove it when neither wants it.
    ///
    /// # Cost
    /// One pass over all outputs.
    pub fn remove_scripts(&mut self, indices: impl IntoIterator<Item = usize>) {
        let indices: BTreeSet<_> = indices.into_iter().collect();
        self.scripts.remove(&indices);
        self.coins.remove_scripts(&indices);
    }

    /// Removes an output, and returns what was known of it. If its script is watched and a block
    /// with it is scanned again, the output is found again.
    pub fn remove_outpoint(&mut self, outpoint: &OutPoint) -> Option<WatchedOutput> {
        self.coins.remove(outpoint)
    }

    /// The script with this index; `None` if there is none, or it was removed.
    pub fn script(&self, index: usize) -> Option<&WatchedScript> {
        self.scripts.get(index)
    }

    /// The index of a script, if it is watched.
    pub fn index_of(&self, script: &Script) -> Option<usize> {
        self.scripts.index_of(script)
    }

    /// The scripts with their indices, in the order of adding.
    pub fn scripts(&self) -> impl Iterator<Item = (usize, &WatchedScript)> {
        self.scripts.iter()
    }

    /// The keys, in the order of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.scripts.keys()
    }

    /// The number of different scripts that are watched.
    pub fn num_scripts(&self) -> usize {
        self.scripts.len()
    }

    /// The number of scripts with a label.
    pub(in crate::btc) fn num_labelled(&self) -> usize {
        self.scripts.num_labelled()
    }

    /// The outputs added and found, spent ones included, in the order of their outpoints; not the
    /// unconfirmed ones.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = (&OutPoint, &WatchedOutput)> {
        self.coins.iter()
    }

    /// What is known of an output; `None` if it is not kept.
    pub fn output(&self, outpoint: &OutPoint) -> Option<&WatchedOutput> {
        self.coins.get(outpoint)
    }

    /// Finds what concerns the wallet in the block at `height`, and keeps the outputs found.
    ///
    /// Scan blocks in the order of the chain: a block that spends an output before the output is
    /// found shows less, and the output stays unspent. The same block may be scanned again after
    /// scripts were added: it gives what it gave, and what is new.
    ///
    /// # Cost
    /// A look-up for each output and input, and the hashes of what inputs show; with a taproot
    /// script of [`History::Unknown`], as much as a signature check for each taproot script path.
    pub fn scan(&mut self, height: u32, block: &BoundBlock<'_>) -> BlockScan {
        scan(&self.scripts, &mut self.coins, height, block)
    }

    /// What of a transaction is the wallet's. Nothing is kept of it before
    /// [`learn`](Self::learn) or [`learn_unconfirmed`](Self::learn_unconfirmed).
    ///
    /// # Cost
    /// A look-up for each output, input, and push of an input's scriptSig.
    pub fn relevance(&self, tx: &Transaction) -> Relevance {
        relevance(&self.scripts, &self.coins, tx)
    }

    /// Keeps the outputs of a confirmed transaction, of which [`relevance`](Self::relevance) found
    /// `relevance`, and notes what it spends for certain. `height` is that of its block, or `None`
    /// if the block has left the chain.
    ///
    /// Returns the number of outputs that are not kept since the limit is reached.
    pub fn learn(&mut self, txid: Txid, relevance: &Relevance, height: Option<u32>) -> usize {
        let mut over_limit = 0;
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            let is_kept = self.coins.keep(outpoint, received.script, received.value, height);
            over_limit += usize::from(!is_kept);
        }
        if let Some(height) = height {
            let certain = relevance.spent.iter().filter(|spent| spent.certain);
            certain.for_each(|spent| self.coins.spend(&spent.outpoint, height));
        }
        over_limit
    }

    /// Remembers the outputs of an unconfirmed transaction for a while: the last 1,000 of all.
    pub fn learn_unconfirmed(&mut self, txid: Txid, relevance: &Relevance) {
        for received in &relevance.received {
            let outpoint = OutPoint { txid, vout: received.vout };
            self.coins.keep_unconfirmed(outpoint, received.script);
        }
    }

    /// Returns to what was known when `height` was the last block, after a reorganisation: outputs
    /// created above `height` are forgotten, except those added by hand, and outputs spent above
    /// it are unspent.
    ///
    /// For scans of whole blocks, which find the outputs again in the blocks to come.
    pub fn rewind(&mut self, height: u32) {
        self.coins.rewind(height);
    }

    /// Forgets in which blocks from `height` on outputs were created and spent, after a
    /// reorganisation. The outputs stay watched.
    ///
    /// For BIP37: an output whose block left the chain may be spent by an unconfirmed transaction,
    /// which comes without the output's own.
    pub fn unconfirm_from(&mut self, height: u32) {
        self.coins.unconfirm_from(height);
    }

    /// Forgets outputs that were spent in blocks up to `height`, which are too deep to leave the
    /// chain. Do not scan the blocks that created and spent them again: the outputs would come up
    /// as unspent, and the spends not at all.
    pub fn forget_spent(&mut self, height: u32) {
        self.coins.forget_spent(height);
    }
}
