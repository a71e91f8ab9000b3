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
use crate::btc::descriptors::{DescriptorError, DescriptorScript};
use crate::btc::headers::HeaderChain;
use crate::btc::wallet::{
    History, Keychain, Keychains, Label, LookAhead, RelevantTransaction, WatchedItems,
};

/// An item that a wallet watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "super::words::json::ItemForm", into = "super::words::json::ItemForm")
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
    /// Returns `true` if this birthday is not later than `other` on any chain.
    fn is_no_later_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Height(own), Self::Height(other)) | (Self::Time(own), Self::Time(other)) => {
                own <= other
            }
            _ => false,
        }
    }

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
            let checked = check(&expand(item), protocol).and_then(|()| match item {
                Item::Descriptor(text, range) => Keychain::new(text, range.clone(), self.gap)
                    .map(drop)
                    .map_err(ItemCause::Descriptor),
                _ => Ok(()),
            });
            checked.map_err(|cause| ItemError { item: number, cause })
        })
    }

    /// Returns a hash that identifies the set of items and, if there are descriptors among them,
    /// the gap. The order of the items, repeated items and the birthday do not change the hash.
    ///
    /// The client stores the hash, so that it can check after a restart if a wallet still has the
    /// items of the stored scan. A program can use the hash to name the data that it stores for a
    /// wallet. The hash is the same in all versions of this crate:
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
    // The set sorts the hashes and removes repetitions.
    let hashes: BTreeSet<_> = items.map(|(item, gap)| item_digest(item, gap)).collect();
    let mut engine = sha256::Hash::engine();
    engine.input(b"chainsieve wallet 1");
    for hash in hashes {
        engine.input(&hash);
    }
    sha256::Hash::from_engine(engine).to_byte_array()
}

/// Returns the hash by which stored files name an item. The end of the range and the gap of a
/// descriptor do not change the hash, so that known indices stay known when the range or the gap
/// changes. Known indices are stored as one interval, so that another start of the range is another
/// item.
fn item_key(item: &Item) -> [u8; 32] {
    match item {
        Item::Descriptor(text, range) => {
            let start = *range.start();
            item_digest(&Item::Descriptor(text.clone(), start..=start), 0)
        }
        item => item_digest(item, 0),
    }
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

/// Error: an item cannot be watched. It names the item and the reason.
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
    /// BIP157: an empty script, or a script that starts with `OP_RETURN`. BIP158 omits such
    /// scripts.
    #[error("compact filters omit empty scripts and scripts that start with OP_RETURN")]
    NotInFilters,
    /// BIP37: a script without a data push. BIP37 matches pushed data only.
    #[error("BIP37 cannot watch a script that pushes no data")]
    NoPush,
    /// The descriptor is invalid.
    #[error(transparent)]
    Descriptor(DescriptorError),
}

/// A script or coin to watch, derived from an item.
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

    fn derived(derived: DescriptorScript, keychain: u32) -> Self {
        let label = derived.label(keychain);
        Self { path: Some(derived.path), label, ..Self::script(derived.script) }
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
    pub(super) since: Since,
}

/// The heights at which a script must be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// All heights from the birthday on.
    Birthday(Birthday),
    /// An earlier run has searched the heights from `from` on. Heights from `todo` on, and heights
    /// that this run has answered before the script was added, must be searched.
    Known {
        /// First height of the search.
        from: u32,
        /// The lowest height that the earlier run has not searched; `None` if the earlier run has
        /// searched all heights.
        todo: Option<u32>,
    },
}

/// An item that an earlier run has searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownItem {
    /// First height of the search.
    pub(super) from: u32,
    /// The lowest height that was not searched; `None` if all heights were searched.
    pub(super) todo: Option<u32>,
    /// For a descriptor: the first index that was searched for, and the index after the last index
    /// that was searched for.
    pub(super) indices: (u32, u32),
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
    /// Hash by which stored files name the item.
    key: [u8; 32],
    gap: u32,
    birthday: Birthday,
    history: History,
    /// Height of the birthday in the chain, once the chain is known.
    resolved: Option<u32>,
    /// Number of the keychain; `None` if the item is not a descriptor.
    keychain: Option<u32>,
    known: Option<KnownItem>,
}

impl Watching {
    /// Returns the heights at which a script of the item must be searched for.
    fn since(&self, label: Option<Label>) -> Since {
        let is_known = |known: &KnownItem| match label {
            Some(label) => (known.indices.0..known.indices.1).contains(&label.index),
            None => true,
        };
        match self.known.filter(is_known) {
            Some(KnownItem { from, todo, .. }) => Since::Known { from, todo },
            None => Since::Birthday(self.birthday),
        }
    }
}

/// A wallet: its items, and the number of each by a hash of the item.
#[derive(Debug, Default)]
struct Entry {
    items: Vec<Watching>,
    numbers: HashMap<[u8; 32], u32>,
}

impl Entry {
    fn get(&self, item: u32) -> Option<&Watching> {
        self.items.get(item as usize)
    }
}

/// Owner of a keychain: a wallet and its item.
#[derive(Debug, Clone)]
struct KeychainHolder {
    wallet: WalletId,
    item: u32,
}

/// Result of [`Wallets::add`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Added {
    /// `true` if there is anything new to search for.
    pub(super) is_new: bool,
    /// `true` if a descriptor was added, or got a larger gap.
    pub(super) has_derived: bool,
}

/// An item whose progress is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemProgress {
    pub(super) key: [u8; 32],
    /// First height of the search.
    pub(super) from: u32,
    /// For a descriptor: the first index, and the next index to derive.
    pub(super) indices: (u32, u32),
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
    pub(super) new: Vec<ToWatch>,
    /// Scripts that the follower must stop watching.
    pub(super) dropped: BTreeSet<ScriptBuf>,
    /// Wallets in which a keychain has derived a script that the wallet watched already.
    pub(super) relabelled: BTreeSet<WalletId>,
    /// Items for which no record was written.
    pub(super) unrecorded: Vec<(WalletId, u32)>,
    /// Items whose birthday was not resolved yet.
    unresolved: Vec<(WalletId, u32)>,
    /// Descriptors that an earlier run has searched for with other indices.
    pub(super) further: BTreeSet<(WalletId, u32)>,
}

impl Wallets {
    pub(super) fn new(protocol: Protocol) -> Self {
        // New scripts are searched for in all blocks from the birthday on, so that fewer and larger
        // steps cost less.
        let look_ahead = LookAhead::InSteps;
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
            unrecorded: Vec::new(),
            unresolved: Vec::new(),
            further: BTreeSet::new(),
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &WalletId> {
        self.entries.keys()
    }

    pub(super) fn contains(&self, id: &WalletId) -> bool {
        self.entries.contains_key(id)
    }

    /// Lowest birthday of all items; `None` without items.
    pub(super) fn lowest(&self, chain: &HeaderChain) -> Option<u32> {
        let items = self.entries.values().flat_map(|entry| &entry.items);
        items.map(|watching| watching.birthday.height(chain)).min()
    }

    /// Adds a wallet, or adds items to an existing wallet. The earlier birthday of an item applies.
    /// A descriptor that the wallet already has gets the larger of both gaps. `known` returns what
    /// an earlier run has stored about an item.
    ///
    /// # Errors
    /// [`ItemError`] for the first item that cannot be watched. After an error, no item is added.
    pub(super) fn add(
        &mut self,
        id: &WalletId,
        wallet: Wallet,
        chain: &HeaderChain,
        known: impl Fn(&[u8; 32]) -> Option<KnownItem>,
    ) -> Result<Added, ItemError> {
        wallet.check(self.protocol)?;
        let Wallet { birthday, history, items, gap } = wallet;
        let first = birthday.height(chain);
        let entry = self.entries.entry(id.clone()).or_default();
        let mut all = Vec::new();
        let mut again = Vec::new();
        let mut has_derived = false;
        for item in items {
            let place = entry.items.len();
            let number = u32::try_from(place).unwrap_or(u32::MAX);
            let descriptor = |cause| ItemError { item: place, cause: ItemCause::Descriptor(cause) };
            let digest = item_digest(&item, 0);
            // A known item keeps its number.
            if let Some(&number) = entry.numbers.get(&digest) {
                let Some(watching) = entry.items.get_mut(number as usize) else { continue };
                if first < watching.birthday.height(chain) {
                    (watching.birthday, watching.known) = (birthday, None);
                    self.unresolved.push((id.clone(), number));
                    again.push(number);
                }
                // A larger gap of a known descriptor is treated as something new.
                if let Some(keychain) = watching.keychain
                    && watching.gap < gap
                {
                    watching.gap = gap;
                    let derived = self.keychains.widen(keychain, gap).map_err(descriptor)?;
                    let derived = derived.into_iter().map(|it| Expanded::derived(it, keychain));
                    all.push((number, derived.collect()));
                    has_derived = true;
                }
                continue;
            }
            let key = item_key(&item);
            let known = known(&key).filter(|known| known.from <= first);
            let mut expanded = expand(&item);
            let mut number_of_keychain = None;
            if let Item::Descriptor(text, range) = &item {
                let added = self.keychains.add(text, range.clone(), gap);
                let (keychain, mut scripts) = added.map_err(descriptor)?;
                // The earlier run has found that further indices are used.
                if let Some(KnownItem { indices: (_, next), .. }) = known {
                    let further = self.keychains.extend_to(keychain, next).map_err(descriptor)?;
                    scripts.extend(further);
                }
                expanded.extend(scripts.into_iter().map(|it| Expanded::derived(it, keychain)));
                number_of_keychain = Some(keychain);
                self.keychain_holders.push(KeychainHolder { wallet: id.clone(), item: number });
            }
            entry.numbers.insert(digest, number);
            let keychain = number_of_keychain;
            let resolved = None;
            entry.items.push(Watching {
                item,
                key,
                gap,
                birthday,
                history,
                resolved,
                keychain,
                known,
            });
            self.unresolved.push((id.clone(), number));
            has_derived |= keychain.is_some();
            all.push((number, expanded));
            let is_covered = known.is_some_and(|known| {
                let range = self.keychains.indices(keychain);
                range.is_none_or(|(first, _)| known.indices.0 <= first)
            });
            if !is_covered {
                self.unrecorded.push((id.clone(), number));
            }
        }
        let mut is_new = !again.is_empty();
        for item in again {
            self.watch_from_birthday(id, item);
        }
        for (item, expanded) in all {
            for expanded in expanded {
                is_new |= self.watch(id, item, expanded);
            }
        }
        Ok(Added { is_new, has_derived })
    }

    /// Returns all scripts and coins of a known item, with those that its keychain has derived.
    fn expand_again(&self, watching: &Watching) -> Vec<Expanded> {
        let mut expanded = expand(&watching.item);
        if let Some(keychain) = watching.keychain {
            // A descriptor whose indices were derived before can derive them again.
            let derived = self.keychains.derived(keychain).unwrap_or_default();
            expanded.extend(derived.into_iter().map(|it| Expanded::derived(it, keychain)));
        }
        expanded
    }

    /// Queues all scripts and coins of an item, whose birthday is earlier than before.
    fn watch_from_birthday(&mut self, id: &WalletId, number: u32) {
        let Some(watching) = self.entries.get(id).and_then(|entry| entry.get(number)) else {
            return;
        };
        let expanded = self.expand_again(watching);
        let (history, since) = (watching.history, Since::Birthday(watching.birthday));
        let all = expanded.into_iter().map(|Expanded { script, outpoint, label, .. }| ToWatch {
            script,
            outpoint,
            label,
            history,
            since,
        });
        self.new.extend(all);
        self.unrecorded.push((id.clone(), number));
    }

    /// Resolves the birthdays of new items, once the chain is known.
    pub(super) fn resolve(&mut self, chain: &HeaderChain) {
        for (id, number) in core::mem::take(&mut self.unresolved) {
            if let Some(watching) =
                self.entries.get_mut(&id).and_then(|entry| entry.items.get_mut(number as usize))
            {
                watching.resolved = Some(watching.birthday.height(chain));
            }
        }
    }

    /// Queues the scripts of items whose birthday is given as a time, if this time is at a lower
    /// height than before, after a reorganisation.
    pub(super) fn watch_times_again(&mut self, chain: &HeaderChain) {
        let mut times = Vec::new();
        for (id, entry) in &mut self.entries {
            for (number, watching) in (0..).zip(&mut entry.items) {
                let height = match watching.birthday {
                    Birthday::Time(_) => watching.birthday.height(chain),
                    Birthday::Height(_) => continue,
                };
                if watching.resolved.is_some_and(|resolved| height < resolved) {
                    watching.resolved = Some(height);
                    times.push((id.clone(), number));
                }
            }
        }
        for (id, number) in times {
            self.watch_from_birthday(&id, number);
        }
    }

    /// Records the owner of a script or coin, and queues it for the follower if it is new to the
    /// wallet.
    ///
    /// Returns `true` if anything is new. A known script with a new label is new too: its earlier
    /// transactions show that the index is used.
    fn watch(&mut self, id: &WalletId, item: u32, expanded: Expanded) -> bool {
        let Some(watching) = self.entries.get(id).and_then(|entry| entry.get(item)) else {
            return false;
        };
        let Expanded { script, outpoint, path, label } = expanded;
        let (history, since) = (watching.history, watching.since(label));
        let is_further = watching.known.is_some() && matches!(since, Since::Birthday(_));
        let holder = Holder { wallet: id.clone(), item, path, label };
        let holders = match (&outpoint, &script) {
            (Some(outpoint), _) => self.by_outpoint.get(outpoint),
            (None, Some(script)) => self.by_script.get(script),
            (None, None) => return false,
        };
        let holders = holders.map_or(&[][..], Vec::as_slice);
        let of_wallet = || holders.iter().filter(|known| known.wallet == *id);
        let items = of_wallet().filter_map(|known| self.entries.get(id)?.get(known.item));
        // The wallet has the script or coin already, and searches for it from no later height.
        let is_covered =
            items.clone().any(|known| known.birthday.is_no_later_than(watching.birthday));
        let labels: Vec<_> = of_wallet().map(|known| known.label).collect();
        let is_known = is_covered && (labels.contains(&label) || label.is_none());
        let is_held = of_wallet().any(|known| (known.item, known.label) == (item, label));
        let holders = match (&outpoint, &script) {
            (Some(outpoint), _) => self.by_outpoint.entry(*outpoint).or_default(),
            (None, Some(script)) => self.by_script.entry(script.clone()).or_default(),
            (None, None) => return false,
        };
        // An item that is known already has an owner, too: the progress of the script is the progress
        // of each of its items.
        if !is_held {
            // Owners with a label come first, so that a hit names the index of a descriptor, and not
            // a separate item with the same script. Other items come in the order of their numbers.
            let without_label = |known: &Holder| known.wallet == *id && known.label.is_none();
            let first = label.and_then(|_| holders.iter().position(without_label));
            holders.insert(first.unwrap_or(holders.len()), holder);
        }
        if is_known {
            return false;
        }
        if is_further {
            self.further.insert((id.clone(), item));
        }
        // The known hits of a script that the wallet watched already must be recorded as uses of the
        // new label (`relabelled`). The follower watches the script already.
        if !labels.is_empty() {
            self.relabelled.insert(id.clone());
            if is_covered {
                return true;
            }
        }
        let label = label.filter(|_| labels.is_empty());
        // If this script is queued for removal, the follower must keep the script after all.
        if let Some(script) = &script {
            self.dropped.remove(script);
        }
        self.new.push(ToWatch { script, outpoint, label, history, since });
        true
    }

    /// Removes a wallet. Scripts that no other wallet watches are queued for removal from the
    /// follower.
    pub(super) fn remove(&mut self, id: &WalletId) {
        let Some(entry) = self.entries.remove(id) else { return };
        let mut dropped = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for watching in &entry.items {
            for Expanded { script, outpoint, .. } in self.expand_again(watching) {
                let is_free = match (&outpoint, &script) {
                    (Some(outpoint), _) => release(&mut self.by_outpoint, outpoint, id),
                    (None, Some(script)) => release(&mut self.by_script, script, id),
                    (None, None) => continue,
                };
                if let Some(script) = script {
                    let list = if is_free { &mut dropped } else { &mut kept };
                    list.insert(script);
                }
            }
        }
        // A script stays if another item watches it, or a coin of it.
        dropped.retain(|script| !kept.contains(script) && !self.by_script.contains_key(script));
        if !dropped.is_empty() {
            for watching in self.entries.values().flat_map(|entry| &entry.items) {
                if let Item::Coin { script: Some(script), .. } = &watching.item {
                    dropped.remove(script);
                }
            }
        }
        // Dropped scripts that the follower has not taken yet need not be watched at all.
        self.new.retain(|new| new.script.as_ref().is_none_or(|script| !dropped.contains(script)));
        self.dropped.extend(dropped);
        self.unrecorded.retain(|(wallet, _)| wallet != id);
        self.further.retain(|(wallet, _)| wallet != id);
    }

    /// Removes and returns the items that have no record yet, with what to record. The items of
    /// broadcasts are left out.
    pub(super) fn take_unrecorded(&mut self, chain: &HeaderChain) -> Vec<(WalletId, ItemProgress)> {
        let unrecorded = core::mem::take(&mut self.unrecorded);
        let records = unrecorded.into_iter().filter_map(|(id, number)| {
            let watching = self.entries.get(&id)?.get(number)?;
            (!id.is_internal()).then(|| (id, self.progress_of(watching, chain)))
        });
        records.collect()
    }

    fn progress_of(&self, watching: &Watching, chain: &HeaderChain) -> ItemProgress {
        let from = watching.birthday.height(chain);
        // The record of an earlier run still covers the item.
        let from = watching.known.map_or(from, |known| known.from.min(from));
        let indices = self.keychains.indices(watching.keychain).unwrap_or_default();
        ItemProgress { key: watching.key, from, indices }
    }

    /// Returns the progress of all items of a wallet.
    pub(super) fn progress(&self, id: &WalletId, chain: &HeaderChain) -> Vec<ItemProgress> {
        let items = self.entries.get(id).into_iter().flat_map(|entry| &entry.items);
        items.map(|watching| self.progress_of(watching, chain)).collect()
    }

    /// Returns the lowest height that was not searched for each item, given that height for each
    /// script. An empty script stands for the coins whose script is unknown.
    pub(super) fn todo(
        &self,
        owed: &BTreeMap<&Script, u32>,
    ) -> BTreeMap<(WalletId, [u8; 32]), u32> {
        let mut todo = BTreeMap::new();
        let mut note = |id: &WalletId, watching: &Watching, height: u32| {
            let lowest = todo.entry((id.clone(), watching.key)).or_insert(height);
            *lowest = height.min(*lowest);
        };
        for (script, height) in owed {
            for holder in self.by_script.get(*script).into_iter().flatten() {
                let entry = self.entries.get(&holder.wallet);
                if let Some(watching) = entry.and_then(|entry| entry.get(holder.item)) {
                    note(&holder.wallet, watching, *height);
                }
            }
        }
        if !owed.is_empty() {
            for (id, entry) in &self.entries {
                for watching in &entry.items {
                    let Item::Coin { script, .. } = &watching.item else { continue };
                    let script = script.as_deref().unwrap_or(Script::from_bytes(&[]));
                    if let Some(height) = owed.get(script) {
                        note(id, watching, *height);
                    }
                }
            }
        }
        todo
    }

    /// Records that an index of a keychain is used, and watches the further indices that the gap
    /// then requires. Returns `true` if any script is new to the follower.
    pub(super) fn advance(&mut self, used: Label) -> bool {
        // An error is ignored: a descriptor that has derived one index can derive all further ones
        // up to the last.
        let derived = self.keychains.advance(used).unwrap_or_default();
        let keychain = used.keychain;
        let holder = self.keychain_holders.get(keychain as usize).cloned();
        let Some(KeychainHolder { wallet, item }) = holder else { return false };
        // The keychain of a removed wallet remains, but its scripts are not watched.
        let holds = |it: &Watching| it.keychain == Some(keychain);
        if !self.entries.get(&wallet).and_then(|entry| entry.get(item)).is_some_and(holds) {
            return false;
        }
        let before = self.new.len();
        for derived in derived {
            self.watch(&wallet, item, Expanded::derived(derived, keychain));
        }
        self.new.len() > before
    }

    /// Returns `true` if an item watches this script, or a coin of it.
    pub(super) fn is_watched(&self, script: &Script) -> bool {
        self.by_script.contains_key(script)
    }

    /// Returns the labels of a script, one for each keychain that derives the script.
    pub(super) fn labels<'a>(&'a self, script: &Script) -> impl Iterator<Item = Label> + 'a {
        let holders = self.by_script.get(script).into_iter().flatten();
        holders.filter_map(|holder| holder.label)
    }

    /// Returns the owner of a script or coin in one wallet.
    pub(super) fn owner_in(
        &self,
        wallet: &WalletId,
        script: Option<&Script>,
        outpoint: Option<&OutPoint>,
    ) -> Option<Owner> {
        let mut owners = self.owners(script, outpoint).into_iter();
        owners.find(|(id, _)| id == wallet).map(|(_, owner)| owner)
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
            header: None,
            received: Vec::new(),
            spent: Vec::new(),
            evidence,
            why,
            peer: None,
        };
        let script = |index: usize| watch.script(index).map(|watched| &*watched.script);
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

/// Removes the holders of a wallet. Returns `true` if no holder is left.
fn release<K: Ord>(holders: &mut BTreeMap<K, Vec<Holder>>, key: &K, wallet: &WalletId) -> bool {
    let Some(of_key) = holders.get_mut(key) else { return true };
    of_key.retain(|holder| holder.wallet != *wallet);
    let is_free = of_key.is_empty();
    if is_free {
        holders.remove(key);
    }
    is_free
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
