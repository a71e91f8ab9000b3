//! The wallets of a client: the items of each wallet, the owner of each script and coin, and the
//! watched indices of descriptors.
//!
//! This module stores the owners. The follower's [`WatchedItems`] decides which scripts and coins
//! are watched in total, and which parts of a transaction concern them.

use core::ops::RangeInclusive;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::string::String;
use std::vec::Vec;

use bitcoin::hashes::{Hash as _, HashEngine as _, sha256};
use bitcoin::{OutPoint, PublicKey, Script, ScriptBuf};
use thiserror::Error;

use super::{
    Hit, HitReason, InclusionEvidence, OwnedOutput, OwnedSpend, Owner, Protocol, WalletId,
};
use crate::btc::bip37::session::element_of;
use crate::btc::descriptors::DescriptorError;
use crate::btc::headers::HeaderChain;
use crate::btc::wallet::{
    History, Keychain, KeychainScript, Keychains, Label, LookAhead, RelevantTransaction,
    WatchedItems, WatchedScript,
};

/// An item that a wallet watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "super::json::ItemForm", into = "super::json::ItemForm")
)]
pub enum Item {
    /// An output script.
    Script(ScriptBuf),
    /// A public key. Watches the scripts of Bitcoin Core's descriptor `combo`: P2PK and P2PKH, and
    /// for a compressed key P2WPKH and P2SH-P2WPKH too.
    Key(PublicKey),
    /// A coin whose spend is watched.
    Coin {
        /// Outpoint of the coin.
        outpoint: OutPoint,
        /// The script of the coin. BIP157 requires the script, since filters contain scripts only.
        script: Option<ScriptBuf>,
    },
    /// An output descriptor without private keys. If the descriptor has a wildcard, the indices of
    /// the range are watched. [`Wallet::gap`] states how many indices after the last used index are
    /// watched.
    Descriptor(String, RangeInclusive<u32>),
}

/// First block in which the items of a wallet may have been used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "by", rename_all = "snake_case")
)]
pub enum Birthday {
    /// The height of the block.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::height"))]
    Height(u32),
    /// Unix time in seconds. Four hours and eleven blocks are subtracted, since the timestamps of
    /// blocks are not in order.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::seconds"))]
    Time(u32),
}

/// Margin in seconds for wrong timestamps of blocks: twice two hours, because the rules of Bitcoin
/// allow a timestamp that is up to two hours ahead of the clock.
const CLOCK: u32 = 4 * 3_600;

impl Birthday {
    /// Returns the first height to scan.
    ///
    /// A time is converted by a binary search over the chain, and the margin of four hours and
    /// eleven blocks is subtracted. The result for a time is not above the tip, and at most eleven
    /// blocks below the start of the chain.
    pub fn height(self, chain: &HeaderChain) -> u32 {
        let time = match self {
            Self::Height(height) => return height,
            Self::Time(time) => time.saturating_sub(CLOCK),
        };
        // Search by the median time past, which, unlike timestamps, ascends with the height.
        let (mut low, mut high) = (chain.start().height, chain.tip().height);
        while low < high {
            let middle = low + (high - low) / 2;
            if chain.median_time_past(middle).is_some_and(|median| median < time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The timestamp of a block is later than the median timestamp of the eleven blocks before
        // it.
        low.saturating_sub(11)
    }
}

/// The items that a wallet watches, and the block from which the scan searches for them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Wallet {
    /// The first block to scan. Before this block, the items are assumed to be unused, unless
    /// `history` states otherwise.
    pub birthday: Birthday,
    /// [`History::Unknown`] if the items may have been used before the birthday. BIP157 uses this
    /// history; BIP37 treats every history as unknown.
    pub history: History,
    /// The watched items. The order of the items determines their numbers.
    pub items: Vec<Item>,
    /// Number of indices watched after the last used index of each ranged descriptor (gap limit).
    pub gap: u32,
}

impl Wallet {
    /// Creates a wallet whose items were not used before the birthday, with a gap of 20.
    pub fn new(birthday: Birthday, items: Vec<Item>) -> Self {
        Self { birthday, history: History::Complete, items, gap: 20 }
    }

    /// Checks that every item can be watched by this protocol.
    ///
    /// # Errors
    /// [`ItemError`] with the number of the first item that cannot be watched, and the cause.
    pub fn check(&self, protocol: Protocol) -> Result<(), ItemError> {
        self.items.iter().enumerate().try_for_each(|(number, item)| {
            let checked = check(&expand(item), protocol).and(keychain(item, self.gap).map(drop));
            checked.map_err(|cause| ItemError { item: number, cause })
        })
    }

    /// Returns a hash that identifies the set of items and, if there are descriptors among them,
    /// the gap. The order of the items, repeated items and the birthday do not change the hash.
    ///
    /// The client stores the hash to find out after a restart whether a wallet still has the items
    /// of the stored scan. A program can use the hash to name the data that it stores for a wallet.
    /// The hash is the same in all versions of this crate:
    ///
    /// ```text
    /// digest      SHA-256 of: "chainsieve wallet 1" | the hashes of the items
    /// hash        SHA-256 of an item; sorted as bytes, each hash once
    /// script      0 | script
    /// key         1 | public key as in a script, 33 or 65 bytes
    /// coin        2 | txid 32, not reversed | vout u32 | 0, or 1 and the script
    /// descriptor  3 | first index u32 | last index u32 | gap u32 | text in UTF-8
    /// ```
    /// Numbers are little-endian. The text of a descriptor is hashed as given, so that two texts of
    /// the same scripts, for example with and without a checksum, have different hashes.
    pub fn digest(&self) -> [u8; 32] {
        digest(self.items.iter().map(|item| (item, self.gap)))
    }
}

/// Returns a hash of a set of items, each with its gap: see [`Wallet::digest`].
fn digest<'a>(items: impl Iterator<Item = (&'a Item, u32)>) -> [u8; 32] {
    // The set sorts the hashes and removes repeated ones.
    let hashes: BTreeSet<_> = items.map(|(item, gap)| item_digest(item, gap)).collect();
    let mut engine = sha256::Hash::engine();
    engine.input(b"chainsieve wallet 1");
    for hash in hashes {
        engine.input(&hash);
    }
    sha256::Hash::from_engine(engine).to_byte_array()
}

/// Returns the hash of one item. In each encoding only the last field has no fixed length, so that
/// no two items have the same encoding.
fn item_digest(item: &Item, gap: u32) -> [u8; 32] {
    let mut engine = sha256::Hash::engine();
    match item {
        Item::Script(script) => {
            engine.input(&[0]);
            engine.input(script.as_bytes());
        }
        Item::Key(key) => {
            engine.input(&[1]);
            engine.input(&key.to_bytes());
        }
        Item::Coin { outpoint, script } => {
            engine.input(&[2]);
            engine.input(outpoint.txid.as_byte_array());
            engine.input(&outpoint.vout.to_le_bytes());
            engine.input(&[script.is_some().into()]);
            engine.input(script.as_ref().map_or(&[], |script| script.as_bytes()));
        }
        // The hash includes the gap of descriptors only: a scan with a larger gap can find
        // transactions that a scan with a smaller gap missed.
        Item::Descriptor(text, range) => {
            engine.input(&[3]);
            for number in [*range.start(), *range.end(), gap] {
                engine.input(&number.to_le_bytes());
            }
            engine.input(text.as_bytes());
        }
    }
    sha256::Hash::from_engine(engine).to_byte_array()
}

/// An item cannot be watched: which one and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("item {item}: {cause}")]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ItemError {
    /// Number of the item, from 0.
    pub item: usize,
    /// The reason why the item cannot be watched.
    #[source]
    pub cause: ItemCause,
}

/// Reason why an item cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum ItemCause {
    /// BIP157: a coin without its script. Filters contain scripts, not outpoints.
    #[error("BIP157 finds the spend of a coin by its script: give the script too")]
    CoinWithoutScript,
    /// BIP157: an empty script or one that starts with `OP_RETURN`. BIP158 omits such scripts.
    #[error("compact filters omit empty scripts and scripts that start with OP_RETURN")]
    NotInFilters,
    /// BIP37: a script without a data push. BIP37 matches pushed data only.
    #[error("BIP37 cannot watch a script that pushes no data")]
    NoPush,
    /// The descriptor is invalid.
    #[error(transparent)]
    Descriptor(DescriptorError),
}

/// A script or coin that an item expands to.
#[derive(Debug, Clone)]
struct Expanded {
    script: Option<ScriptBuf>,
    outpoint: Option<OutPoint>,
    path: Option<u32>,
    label: Option<Label>,
}

impl Expanded {
    fn script(script: ScriptBuf) -> Self {
        Self { script: Some(script), outpoint: None, path: None, label: None }
    }

    fn derived(derived: KeychainScript) -> Self {
        let KeychainScript { label, path, script } = derived;
        Self { path: Some(path), label, ..Self::script(script) }
    }
}

/// Expands an item to its scripts and coins. Returns nothing for a descriptor, whose keychain
/// derives its scripts.
fn expand(item: &Item) -> Vec<Expanded> {
    match item {
        Item::Script(script) => std::vec![Expanded::script(script.clone())],
        Item::Key(key) => key_scripts(key).into_iter().map(Expanded::script).collect(),
        Item::Coin { outpoint, script } => std::vec![Expanded {
            script: script.clone(),
            outpoint: Some(*outpoint),
            path: None,
            label: None,
        }],
        Item::Descriptor(..) => Vec::new(),
    }
}

/// Returns the keychain of an item if it is a descriptor, else `None`.
fn keychain(item: &Item, gap: u32) -> Result<Option<Keychain>, ItemCause> {
    match item {
        Item::Descriptor(text, range) => {
            let keychain = Keychain::new(text, range.clone(), gap);
            keychain.map(Some).map_err(ItemCause::Descriptor)
        }
        _ => Ok(None),
    }
}

/// Returns the scripts of Bitcoin Core's descriptor `combo` for a key.
fn key_scripts(key: &PublicKey) -> Vec<ScriptBuf> {
    let mut scripts = std::vec![ScriptBuf::new_p2pk(key), ScriptBuf::new_p2pkh(&key.pubkey_hash())];
    // Only compressed keys have segwit scripts.
    if let Ok(hash) = key.wpubkey_hash() {
        let native = ScriptBuf::new_p2wpkh(&hash);
        scripts.push(ScriptBuf::new_p2sh(&native.script_hash()));
        scripts.push(native);
    }
    scripts
}

/// Checks that all scripts and coins can be watched by a protocol.
fn check(expanded: &[Expanded], protocol: Protocol) -> Result<(), ItemCause> {
    for Expanded { script, outpoint, .. } in expanded {
        match (protocol, script) {
            (Protocol::Bip157, None) => return Err(ItemCause::CoinWithoutScript),
            (Protocol::Bip157, Some(script)) if script.is_empty() || script.is_op_return() => {
                return Err(ItemCause::NotInFilters);
            }
            // BIP37 matches a script by its data pushes, but a coin by its outpoint. So only a
            // script without an outpoint needs a data push.
            (Protocol::Bip37, Some(script))
                if outpoint.is_none() && element_of(script).is_none() =>
            {
                return Err(ItemCause::NoPush);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A script or coin that the follower must watch from now on.
#[derive(Debug, Clone)]
pub(super) struct ToWatch {
    pub(super) script: Option<ScriptBuf>,
    pub(super) outpoint: Option<OutPoint>,
    pub(super) label: Option<Label>,
    pub(super) history: History,
}

/// Owner of a script or coin: a wallet and its item.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    wallet: WalletId,
    item: u32,
    path: Option<u32>,
    label: Option<Label>,
}

/// An item that a wallet watches. A wallet keeps its items in the order in which they were added.
#[derive(Debug)]
struct Watching {
    item: Item,
    gap: u32,
    /// Number of the keychain; `None` if the item is no descriptor.
    keychain: Option<u32>,
}

/// A wallet: its birthday and its items.
#[derive(Debug)]
struct Entry {
    birthday: Birthday,
    items: Vec<Watching>,
}

impl Entry {
    fn digest(&self) -> [u8; 32] {
        digest(self.items.iter().map(|watching| (&watching.item, watching.gap)))
    }

    fn keychains(&self) -> impl Iterator<Item = u32> {
        self.items.iter().filter_map(|watching| watching.keychain)
    }
}

/// Owner of a keychain: a wallet and its item.
#[derive(Debug, Clone)]
struct KeychainHolder {
    wallet: WalletId,
    item: u32,
    history: History,
}

/// All wallets of a client.
#[derive(Debug)]
pub(super) struct Wallets {
    protocol: Protocol,
    entries: BTreeMap<WalletId, Entry>,
    by_script: BTreeMap<ScriptBuf, Vec<Holder>>,
    by_outpoint: BTreeMap<OutPoint, Vec<Holder>>,
    keychains: Keychains,
    /// Owner of each keychain, by the number of the keychain.
    keychain_holders: Vec<KeychainHolder>,
    /// Scripts and coins that the follower has not taken yet.
    new: Vec<ToWatch>,
    /// Scripts that the follower must stop watching.
    dropped: BTreeSet<ScriptBuf>,
    /// Wallets in which a keychain has derived a script that the wallet watched already.
    relabelled: BTreeSet<WalletId>,
}

impl Wallets {
    pub(super) fn new(protocol: Protocol) -> Self {
        // [`LookAhead`] explains which protocol needs which policy.
        let look_ahead = match protocol {
            Protocol::Bip37 => LookAhead::Sliding,
            _ => LookAhead::InSteps,
        };
        Self {
            protocol,
            entries: BTreeMap::new(),
            by_script: BTreeMap::new(),
            by_outpoint: BTreeMap::new(),
            keychains: Keychains::new(look_ahead),
            keychain_holders: Vec::new(),
            new: Vec::new(),
            dropped: BTreeSet::new(),
            relabelled: BTreeSet::new(),
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &WalletId> {
        self.entries.keys()
    }

    pub(super) fn contains(&self, id: &WalletId) -> bool {
        self.entries.contains_key(id)
    }

    /// First height that a wallet must scan; `None` if the wallet is unknown.
    pub(super) fn first(&self, id: &WalletId, chain: &HeaderChain) -> Option<u32> {
        Some(self.entries.get(id)?.birthday.height(chain))
    }

    /// Lowest first height of all wallets; `None` without wallets.
    pub(super) fn lowest(&self, chain: &HeaderChain) -> Option<u32> {
        self.entries.values().map(|entry| entry.birthday.height(chain)).min()
    }

    /// Hash of the items of a wallet: see [`Wallet::digest`].
    pub(super) fn digest(&self, id: &WalletId) -> Option<[u8; 32]> {
        Some(self.entries.get(id)?.digest())
    }

    /// Adds a wallet, or adds items to an existing wallet. The earlier of both birthdays applies. A
    /// descriptor that the wallet already has gets the larger of both gaps. Returns `true` if there
    /// is anything new to search for.
    ///
    /// # Errors
    /// [`ItemError`] for the first item that cannot be watched. After an error, no item is added.
    pub(super) fn add(
        &mut self,
        id: &WalletId,
        wallet: Wallet,
        chain: &HeaderChain,
    ) -> Result<bool, ItemError> {
        wallet.check(self.protocol)?;
        let Wallet { birthday, history, items, gap } = wallet;
        let entry = Entry { birthday, items: Vec::new() };
        let entry = self.entries.entry(id.clone()).or_insert(entry);
        let is_earlier = birthday.height(chain) < entry.birthday.height(chain);
        if is_earlier {
            entry.birthday = birthday;
        }
        let mut all = Vec::new();
        let known = entry.items.iter().zip(0..).map(|(known, place)| (known.item.clone(), place));
        let mut known: HashMap<Item, usize> = known.collect();
        for item in items {
            let place = entry.items.len();
            let number = u32::try_from(place).unwrap_or(u32::MAX);
            let error = |cause| ItemError { item: place, cause };
            let descriptor = |cause| error(ItemCause::Descriptor(cause));
            // A known item keeps its number. A larger gap of a known descriptor is treated as
            // something new.
            if let Some(&place) = known.get(&item) {
                if let Some(Watching { gap: narrower, keychain: Some(keychain), .. }) =
                    entry.items.get_mut(place).filter(|known| known.gap < gap)
                {
                    *narrower = gap;
                    let derived = self.keychains.widen(*keychain, gap).map_err(descriptor)?;
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    all.push((place, derived.into_iter().map(Expanded::derived).collect()));
                }
                continue;
            }
            known.insert(item.clone(), place);
            let mut expanded = expand(&item);
            let mut number_of_keychain = None;
            if let Some(keychain) = keychain(&item, gap).map_err(error)? {
                let (keychain, scripts) = self.keychains.add(keychain).map_err(descriptor)?;
                expanded.extend(scripts.into_iter().map(Expanded::derived));
                number_of_keychain = Some(keychain);
                let holder = KeychainHolder { wallet: id.clone(), item: number, history };
                self.keychain_holders.push(holder);
            }
            entry.items.push(Watching { item, gap, keychain: number_of_keychain });
            all.push((number, expanded));
        }
        let mut is_new = is_earlier;
        for (item, expanded) in all {
            for expanded in expanded {
                is_new |= self.watch(id, item, expanded, history);
            }
        }
        Ok(is_new)
    }

    /// Records the owner of a script or coin, and queues it for the follower if it is new to the
    /// wallet.
    ///
    /// Returns `true` if anything is new. A known script with a new label is new too: its earlier
    /// transactions show that the index is used.
    fn watch(&mut self, id: &WalletId, item: u32, expanded: Expanded, history: History) -> bool {
        let Expanded { script, outpoint, path, label } = expanded;
        let holder = Holder { wallet: id.clone(), item, path, label };
        let holders = match (&outpoint, &script) {
            (Some(outpoint), _) => self.by_outpoint.entry(*outpoint).or_default(),
            (None, Some(script)) => self.by_script.entry(script.clone()).or_default(),
            (None, None) => return false,
        };
        let of_wallet = holders.iter().filter(|known| known.wallet == *id);
        let labels: Vec<_> = of_wallet.map(|known| known.label).collect();
        // Nothing is new in two cases: the wallet has the script or coin with this label already,
        // or it has the script or coin already and there is no label to add.
        if labels.contains(&label) || !labels.is_empty() && label.is_none() {
            return false;
        }
        // Owners with a label come first, so that a hit names the index of a descriptor, and not a
        // separate item with the same script.
        let first = holders.iter().position(|known| known.wallet == *id && known.label.is_none());
        holders.insert(first.unwrap_or(holders.len()), holder);
        // The follower watches the script already. The known hits of the script must still be
        // recorded as uses of the new label (`take_relabelled`).
        if !labels.is_empty() {
            self.relabelled.insert(id.clone());
            return true;
        }
        // If this script is queued for removal, the follower must keep the script after all.
        if let Some(script) = &script {
            self.dropped.remove(script);
        }
        self.new.push(ToWatch { script, outpoint, label, history });
        true
    }

    /// Removes a wallet. Scripts that no other wallet watches are queued for removal from the
    /// follower.
    pub(super) fn remove(&mut self, id: &WalletId) {
        self.entries.remove(id);
        let dropped = &mut self.dropped;
        self.by_script.retain(|script, holders| {
            holders.retain(|holder| holder.wallet != *id);
            if holders.is_empty() {
                dropped.insert(script.clone());
            }
            !holders.is_empty()
        });
        self.by_outpoint.retain(|_, holders| {
            holders.retain(|holder| holder.wallet != *id);
            !holders.is_empty()
        });
        // Keep the scripts of coins that other wallets watch: filters are matched against these
        // scripts.
        for watching in self.entries.values().flat_map(|entry| &entry.items) {
            if let Item::Coin { script: Some(script), .. } = &watching.item {
                dropped.remove(script);
            }
        }
        // Dropped scripts that the follower has not taken yet need not be watched at all.
        self.new.retain(|new| new.script.as_ref().is_none_or(|script| !dropped.contains(script)));
    }

    /// Removes and returns the scripts and coins that the follower must watch in addition.
    pub(super) fn take_new(&mut self) -> Vec<ToWatch> {
        core::mem::take(&mut self.new)
    }

    /// Removes and returns the scripts that no wallet watches any more.
    pub(super) fn take_dropped(&mut self) -> BTreeSet<ScriptBuf> {
        core::mem::take(&mut self.dropped)
    }

    /// Removes and returns the wallets in which a keychain has derived an already watched script.
    pub(super) fn take_relabelled(&mut self) -> BTreeSet<WalletId> {
        core::mem::take(&mut self.relabelled)
    }

    /// Notes that an index of a keychain is used, and watches the further indices that the gap then
    /// requires. Returns `true` if any script is new to the follower.
    pub(super) fn advance(&mut self, used: Label) -> bool {
        // An error is ignored: a descriptor that has derived one index can derive all further ones
        // up to the last.
        let derived = self.keychains.advance(used).unwrap_or_default();
        self.watch_derived(derived)
    }

    /// Returns, for each keychain of a wallet, the next index to derive.
    pub(super) fn next_indices(&self, id: &WalletId) -> Vec<u32> {
        let next = self.keychains.next_indices();
        let keychains = self.entries.get(id).into_iter().flat_map(Entry::keychains);
        keychains.filter_map(|number| next.get(number as usize).copied()).collect()
    }

    /// Derives and watches all indices below those in `next`, which has one index for each keychain
    /// of the wallet, in order.
    pub(super) fn derive_to(&mut self, id: &WalletId, next: &[u32]) {
        let Some(entry) = self.entries.get(id) else { return };
        let mut all = std::vec![0; self.keychain_holders.len()];
        for (number, next) in entry.keychains().zip(next) {
            if let Some(slot) = all.get_mut(number as usize) {
                *slot = *next;
            }
        }
        let derived = self.keychains.derive_to(&all).unwrap_or_default();
        self.watch_derived(derived);
    }

    /// Watches derived scripts. Returns `true` if any script is new to the follower.
    fn watch_derived(&mut self, derived: Vec<KeychainScript>) -> bool {
        let before = self.new.len();
        for derived in derived {
            let Some(label) = derived.label else { continue };
            let holder = self.keychain_holders.get(label.keychain as usize).cloned();
            let Some(KeychainHolder { wallet, item, history }) = holder else { continue };
            // The keychain of a removed wallet remains, but its scripts are not watched.
            if self.entries.contains_key(&wallet) {
                self.watch(&wallet, item, Expanded::derived(derived), history);
            }
        }
        self.new.len() > before
    }

    /// Returns the labels of a script, one for each keychain that derives the script.
    pub(super) fn labels<'a>(&'a self, script: &Script) -> impl Iterator<Item = Label> + 'a {
        let holders = self.by_script.get(script).into_iter().flatten();
        holders.filter_map(|holder| holder.label)
    }

    /// Returns the owners of a script or coin. Each wallet occurs once; an item that names the coin
    /// takes precedence over one that names the script.
    pub(super) fn owners(
        &self,
        script: Option<&Script>,
        outpoint: Option<&OutPoint>,
    ) -> Vec<(WalletId, Owner)> {
        let by_outpoint = outpoint.and_then(|outpoint| self.by_outpoint.get(outpoint));
        let by_script = script.and_then(|script| self.by_script.get(script));
        let holders = by_outpoint.into_iter().chain(by_script).flatten();
        let mut owners: Vec<(WalletId, Owner)> = Vec::new();
        for Holder { wallet, item, path, label } in holders {
            if owners.iter().all(|(known, _)| known != wallet) {
                let (script, index) = (script.map(Into::into), label.map(|label| label.index));
                let owner = Owner { item: *item, path: *path, index, script };
                owners.push((wallet.clone(), owner));
            }
        }
        owners
    }

    /// Converts a found transaction into one hit for each wallet that it concerns.
    pub(super) fn hits(
        &self,
        found: &RelevantTransaction,
        watch: &WatchedItems,
        evidence: InclusionEvidence,
        why: HitReason,
    ) -> Vec<(WalletId, Hit)> {
        let mut hits: BTreeMap<WalletId, Hit> = BTreeMap::new();
        let new = || Hit {
            txid: found.txid,
            transaction: found.transaction.clone(),
            place: found.place,
            received: Vec::new(),
            spent: Vec::new(),
            evidence,
            why,
            peer: None,
        };
        let script = |index: usize| watch.script(index).map(WatchedScript::script);
        for received in &found.relevance.received {
            for (wallet, owner) in self.owners(script(received.script), None) {
                let (vout, value) = (received.vout, received.value);
                let hit = hits.entry(wallet).or_insert_with(new);
                hit.received.push(OwnedOutput { vout, value, owner });
            }
        }
        for spent in &found.relevance.spent {
            let script = spent.script.and_then(script);
            for (wallet, owner) in self.owners(script, Some(&spent.outpoint)) {
                let hit = hits.entry(wallet).or_insert_with(new);
                let (vin, outpoint, certain) = (spent.vin, spent.outpoint, spent.certain);
                hit.spent.push(OwnedSpend { vin, outpoint, owner: Some(owner), certain });
            }
        }
        hits.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are stored, so they must never change. The expected values were computed from
    /// the documented encoding by another program.
    #[test]
    fn digests_are_those_of_the_documented_encoding() {
        let script = || ScriptBuf::from_bytes(std::vec![0x51]);
        let key = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
        let outpoint = OutPoint {
            txid: bitcoin::Txid::from_byte_array(core::array::from_fn(|i| i.to_le_bytes()[0])),
            vout: 0x0403_0201,
        };
        let items = [
            Item::Script(script()),
            Item::Key(key.parse().unwrap()),
            Item::Coin { outpoint, script: None },
            Item::Coin { outpoint, script: Some(script()) },
            Item::Descriptor("wpkh(xpub/0/*)".into(), 0..=999),
        ];
        let expected = [
            "5b8d6e99e357f8d90fffb1cb8987462c98dee0aa72674b9fb9055cff395c815f",
            "48139c8e3e7e0d8e313bed439319f94713cc981a231c838b5de75a980feced92",
            "89774de69de23f48595842ac69be74703ed648424cb766aa7d8c55c92768fb42",
            "5d213291e189cbb76e4524b7f86bfb4ce28c1d136a940915df8d5c214cbc841c",
            "f5a0dcd3abdc183bd62dc4a339bccd74e8cd7970d0b93f98bbe4e597b78f2383",
        ];
        let wallet = |items: &[Item]| Wallet::new(Birthday::Height(0), items.to_vec());
        let hex = |wallet: &Wallet| bitcoin::hex::DisplayHex::to_lower_hex_string(&wallet.digest());
        assert_eq!(
            hex(&wallet(&[])),
            "34a37a2d2b258206ba0393c14c5a27fa59f3f5c13a74675ce192c962a1a10b02"
        );
        for (item, expected) in items.iter().zip(expected) {
            assert_eq!(hex(&wallet(core::slice::from_ref(item))), expected, "{item:?}");
        }
        let all = "de4fe7068a8ec72adbb79fee3a029ac28bd893dc601a3dbf8d71bc7156fa0c5c";
        assert_eq!(hex(&wallet(&items)), all);
        let mut turned = items.to_vec();
        turned.reverse();
        turned.extend(items.clone());
        assert_eq!(hex(&wallet(&turned)), all, "order and repeats do not change the hash");
        let later = Wallet { birthday: Birthday::Time(1), ..wallet(&items) };
        assert_eq!(hex(&later), all, "the birthday does not change the hash");
        let wider = Wallet { gap: 21, ..wallet(&items) };
        assert_eq!(hex(&wider), "db484b85571e2829fa6a5579948ef3bd1cf9db0593328adb046747c5c0ea1ae8");
        let scripts = Wallet { gap: 21, ..wallet(&items[..1]) };
        assert_eq!(hex(&scripts), expected[0], "the gap changes the hash of descriptors only");
    }
}
