//! The wallets of a client: what each asked for, which script is whose, and which indices of
//! descriptors are watched.
//!
//! Which scripts and coins are watched at all, and what of a transaction is theirs, is kept by
//! [`Watch`], of which the follower of the chain has the only one.

use core::ops::RangeInclusive;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::string::String;
use std::vec::Vec;

use bitcoin::hashes::{Hash as _, HashEngine as _, sha256};
use bitcoin::{OutPoint, PublicKey, Script, ScriptBuf};
use thiserror::Error;

use super::{Evidence, Hit, Owner, Protocol, Received, Spent, WalletId, Why};
use crate::btc::bip37::session::element_of;
use crate::btc::descriptors::DescriptorError;
use crate::btc::headers::HeaderChain;
use crate::btc::wallet::{
    History, Keychain, KeychainScript, Keychains, Label, LookAhead, RelevantTransaction, Watch,
    WatchedScript,
};

/// Something that a wallet watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Item {
    /// An output script.
    Script(ScriptBuf),
    /// A public key, with the scripts that Bitcoin Core's descriptor `combo` stands for: P2PK,
    /// P2PKH, and of a compressed key P2WPKH and P2SH-P2WPKH.
    Key(PublicKey),
    /// A coin, whose spend is watched.
    Coin {
        /// The coin.
        outpoint: OutPoint,
        /// What it pays to. BIP157 needs it, since filters hold scripts alone.
        script: Option<ScriptBuf>,
    },
    /// An output descriptor without private keys. One with a wildcard is watched over the range,
    /// and as far beyond the last index used as the wallet's gap says.
    Descriptor(String, RangeInclusive<u32>),
}

/// The first block in which a wallet's items may have been used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Birthday {
    /// A height.
    Height(u32),
    /// Unix time in seconds. A margin of four hours and eleven blocks is taken off, since the
    /// times of blocks are not in order.
    Time(u32),
}

/// Most that the time of a block may be too early, and more: Bitcoin's rules allow two hours.
const CLOCK: u32 = 4 * 3_600;

impl Birthday {
    /// The first height to look at.
    pub fn height(self, chain: &HeaderChain) -> u32 {
        let time = match self {
            Self::Height(height) => return height,
            Self::Time(time) => time.saturating_sub(CLOCK),
        };
        // Medians of times ascend, which times need not.
        let (mut low, mut high) = (chain.start().height, chain.tip().height);
        while low < high {
            let middle = low + (high - low) / 2;
            if chain.median_time_past(middle).is_some_and(|median| median < time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // A block is later than the median of the eleven before it.
        low.saturating_sub(11)
    }
}

/// What a wallet watches, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wallet {
    /// The first block to look at: nothing was used before, unless `history` says otherwise.
    pub birthday: Birthday,
    /// Whether the items may have been used before the birthday. Used by BIP157 only: BIP37 counts
    /// it as unknown.
    pub history: History,
    /// What it watches. The order gives items their numbers.
    pub items: Vec<Item>,
    /// How many indices beyond the last one used are watched of each ranged descriptor.
    pub gap: u32,
}

impl Wallet {
    /// A wallet that was first used at its birthday, with a gap of 20.
    pub fn new(birthday: Birthday, items: Vec<Item>) -> Self {
        Self { birthday, history: History::Complete, items, gap: 20 }
    }

    /// Checks that every item can be watched by this protocol.
    ///
    /// # Errors
    /// The first item that cannot, by its number.
    pub fn check(&self, protocol: Protocol) -> Result<(), ItemError> {
        self.items.iter().enumerate().try_for_each(|(number, item)| {
            let checked = check(&expand(item), protocol).and(keychain(item, self.gap).map(drop));
            checked.map_err(|cause| ItemError { item: number, cause })
        })
    }

    /// A hash that tells these items, and the gap of descriptors among them, from others. Their
    /// order and the birthday do not change it.
    pub fn digest(&self) -> [u8; 32] {
        digest(self.items.iter().map(|item| (item, self.gap)))
    }
}

/// A hash of items, each with the gap that it has if it is a descriptor.
fn digest<'a>(items: impl Iterator<Item = (&'a Item, u32)>) -> [u8; 32] {
    let line = |(item, gap): (&Item, u32)| match item {
        // A larger gap finds what a smaller one has passed over.
        Item::Descriptor(..) => std::format!("{item:?} gap {gap}"),
        _ => std::format!("{item:?}"),
    };
    let mut lines: Vec<_> = items.map(line).collect();
    lines.sort_unstable();
    lines.dedup();
    let mut engine = sha256::Hash::engine();
    for line in lines {
        engine.input(&sha256::Hash::hash(line.as_bytes()).to_byte_array());
    }
    sha256::Hash::from_engine(engine).to_byte_array()
}

/// Why an item cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("item {item}: {cause}")]
pub struct ItemError {
    /// The item's number, from 0.
    pub item: usize,
    /// Why.
    #[source]
    pub cause: ItemCause,
}

/// Why an item cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ItemCause {
    /// Filters hold scripts, not outpoints.
    #[error("BIP157 finds the spend of a coin by its script: give the script too")]
    CoinWithoutScript,
    /// BIP158 leaves such scripts out of filters.
    #[error("compact filters leave out empty scripts and those that start with OP_RETURN")]
    NotInFilters,
    /// BIP37 matches what a script pushes.
    #[error("BIP37 cannot watch a script that pushes no data")]
    NoPush,
    /// The descriptor is invalid.
    #[error(transparent)]
    Descriptor(DescriptorError),
}

/// A script or coin that an item stands for.
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

/// What an item stands for; nothing for a descriptor, which is derived by its keychain.
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

/// The keychain of an item that is a descriptor.
fn keychain(item: &Item, gap: u32) -> Result<Option<Keychain>, ItemCause> {
    match item {
        Item::Descriptor(text, range) => {
            let keychain = Keychain::new(text, range.clone(), gap);
            keychain.map(Some).map_err(ItemCause::Descriptor)
        }
        _ => Ok(None),
    }
}

/// What Bitcoin Core's descriptor `combo` stands for.
fn key_scripts(key: &PublicKey) -> Vec<ScriptBuf> {
    let mut scripts = std::vec![ScriptBuf::new_p2pk(key), ScriptBuf::new_p2pkh(&key.pubkey_hash())];
    if let Ok(hash) = key.wpubkey_hash() {
        let native = ScriptBuf::new_p2wpkh(&hash);
        scripts.push(ScriptBuf::new_p2sh(&native.script_hash()));
        scripts.push(native);
    }
    scripts
}

fn check(expanded: &[Expanded], protocol: Protocol) -> Result<(), ItemCause> {
    for Expanded { script, outpoint, .. } in expanded {
        match (protocol, script) {
            (Protocol::Bip157, None) => return Err(ItemCause::CoinWithoutScript),
            (Protocol::Bip157, Some(script)) if script.is_empty() || script.is_op_return() => {
                return Err(ItemCause::NotInFilters);
            }
            // A coin is matched by its outpoint.
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

/// What is to be watched from now on.
#[derive(Debug, Clone)]
pub(super) struct ToWatch {
    pub(super) script: Option<ScriptBuf>,
    pub(super) outpoint: Option<OutPoint>,
    pub(super) label: Option<Label>,
    pub(super) history: History,
}

/// Whose a script or coin is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    wallet: WalletId,
    item: u32,
    path: Option<u32>,
    label: Option<Label>,
}

/// An item of a wallet, in the order of adding.
#[derive(Debug)]
struct Watching {
    item: Item,
    gap: u32,
    /// The keychain of a descriptor.
    keychain: Option<u32>,
}

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

/// Whose a keychain is.
#[derive(Debug, Clone)]
struct KeychainHolder {
    wallet: WalletId,
    item: u32,
    history: History,
}

/// All wallets.
#[derive(Debug)]
pub(super) struct Wallets {
    protocol: Protocol,
    entries: BTreeMap<WalletId, Entry>,
    by_script: BTreeMap<ScriptBuf, Vec<Holder>>,
    by_outpoint: BTreeMap<OutPoint, Vec<Holder>>,
    keychains: Keychains,
    /// Whose each keychain is, by its number.
    keychain_holders: Vec<KeychainHolder>,
    /// What the follower has not been given yet.
    new: Vec<ToWatch>,
    /// What the follower is to forget.
    dropped: BTreeSet<ScriptBuf>,
    /// Wallets of which a script that was watched before has got a label.
    relabelled: BTreeSet<WalletId>,
}

impl Wallets {
    pub(super) fn new(protocol: Protocol) -> Self {
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

    /// The first height that a wallet looks at.
    pub(super) fn first(&self, id: &WalletId, chain: &HeaderChain) -> Option<u32> {
        Some(self.entries.get(id)?.birthday.height(chain))
    }

    /// The lowest first height of all wallets.
    pub(super) fn lowest(&self, chain: &HeaderChain) -> Option<u32> {
        self.entries.values().map(|entry| entry.birthday.height(chain)).min()
    }

    /// What tells the items of a wallet from others.
    pub(super) fn digest(&self, id: &WalletId) -> Option<[u8; 32]> {
        Some(self.entries.get(id)?.digest())
    }

    /// Adds a wallet, or items to one that is there, whose birthday is the earlier of both. A
    /// descriptor that is there gets the larger gap of both. Returns `true` if there is anything to
    /// look for that was not looked for before.
    ///
    /// # Errors
    /// The first item that cannot be watched. Nothing is added then.
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

    /// Notes whose a script or coin is, and has it watched if it is new to the wallet. Returns
    /// `true` if anything is new: a script that the wallet has of another item shows that an index
    /// of this one is used.
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
        if labels.contains(&label) || !labels.is_empty() && label.is_none() {
            return false;
        }
        // A wallet is told of the index of a descriptor rather than of the same script by itself.
        let first = holders.iter().position(|known| known.wallet == *id && known.label.is_none());
        holders.insert(first.unwrap_or(holders.len()), holder);
        if !labels.is_empty() {
            self.relabelled.insert(id.clone());
            return true;
        }
        // It may be watched again before the follower was told to forget it.
        if let Some(script) = &script {
            self.dropped.remove(script);
        }
        self.new.push(ToWatch { script, outpoint, label, history });
        true
    }

    /// Forgets a wallet.
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
        // Filters are asked for the scripts of coins that other wallets watch.
        for watching in self.entries.values().flat_map(|entry| &entry.items) {
            if let Item::Coin { script: Some(script), .. } = &watching.item {
                dropped.remove(script);
            }
        }
        // What the follower was not given yet need not be watched at all.
        self.new.retain(|new| new.script.as_ref().is_none_or(|script| !dropped.contains(script)));
    }

    /// What the follower is to watch in addition; it is given once.
    pub(super) fn take_new(&mut self) -> Vec<ToWatch> {
        core::mem::take(&mut self.new)
    }

    /// Scripts that no wallet watches any more; they are given once.
    pub(super) fn take_dropped(&mut self) -> BTreeSet<ScriptBuf> {
        core::mem::take(&mut self.dropped)
    }

    /// Wallets of which a script that was watched before has got a label; they are given once.
    pub(super) fn take_relabelled(&mut self) -> BTreeSet<WalletId> {
        core::mem::take(&mut self.relabelled)
    }

    /// An index of a keychain is used: has those watched that are to be ahead of it. Returns `true`
    /// if there are any.
    pub(super) fn advance(&mut self, used: Label) -> bool {
        // What was derived once can be derived further, up to the last index there is.
        let derived = self.keychains.advance(used).unwrap_or_default();
        self.watch_derived(derived)
    }

    /// The next index of each keychain of a wallet.
    pub(super) fn next_indices(&self, id: &WalletId) -> Vec<u32> {
        let next = self.keychains.next_indices();
        let keychains = self.entries.get(id).into_iter().flat_map(Entry::keychains);
        keychains.filter_map(|number| next.get(number as usize).copied()).collect()
    }

    /// Derives up to these indices, one for each keychain of the wallet.
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

    fn watch_derived(&mut self, derived: Vec<KeychainScript>) -> bool {
        let before = self.new.len();
        for derived in derived {
            let Some(label) = derived.label else { continue };
            let holder = self.keychain_holders.get(label.keychain as usize).cloned();
            let Some(KeychainHolder { wallet, item, history }) = holder else { continue };
            // A wallet that is gone has nothing watched any more.
            if self.entries.contains_key(&wallet) {
                self.watch(&wallet, item, Expanded::derived(derived), history);
            }
        }
        self.new.len() > before
    }

    /// The labels of a script, one for each keychain that derives it.
    pub(super) fn labels<'a>(&'a self, script: &Script) -> impl Iterator<Item = Label> + 'a {
        let holders = self.by_script.get(script).into_iter().flatten();
        holders.filter_map(|holder| holder.label)
    }

    /// Whose a script or a coin is. A wallet comes once.
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

    /// A transaction as the hits of the wallets that it concerns.
    pub(super) fn hits(
        &self,
        found: &RelevantTransaction,
        watch: &Watch,
        evidence: Evidence,
        why: Why,
    ) -> Vec<(WalletId, Hit)> {
        let mut hits: BTreeMap<WalletId, Hit> = BTreeMap::new();
        let new = || Hit {
            txid: found.txid,
            transaction: found.transaction.clone(),
            place: found.place.map(|place| (place.block, place.index)),
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
                hit.received.push(Received { vout, value, owner });
            }
        }
        for spent in &found.relevance.spent {
            let script = spent.script.and_then(script);
            for (wallet, owner) in self.owners(script, Some(&spent.outpoint)) {
                let hit = hits.entry(wallet).or_insert_with(new);
                let (vin, outpoint, certain) = (spent.vin, spent.outpoint, spent.certain);
                hit.spent.push(Spent { vin, outpoint, owner: Some(owner), certain });
            }
        }
        hits.into_iter().collect()
    }
}
