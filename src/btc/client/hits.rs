//! Hits, withdrawals, and which of them their reader has dealt with: what the
//! [journal](super::journal) adds up to.

use core::iter::Sum;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Txid};

use super::journal::{Key, MAGIC, Record};
use super::{Hit, WalletId};
use crate::btc::headers::HeaderChain;

#[derive(Debug, Clone)]
struct Entry {
    hit: Hit,
    acknowledged: bool,
}

/// How many hits are unconfirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unconfirmed {
    pub(super) count: usize,
    /// Bytes of their transactions.
    pub(super) bytes: usize,
}

impl Sum for Unconfirmed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            count: sum.count + one.count,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// What a hit is to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It is new.
    New,
    /// It was known with less.
    More,
    /// It is known.
    Known,
}

/// All hits of all wallets.
#[derive(Debug, Default)]
pub(super) struct Hits {
    entries: BTreeMap<Key, Entry>,
    /// Those whose block has left the chain, until their reader has dealt with that.
    withdrawn: BTreeMap<Key, Hit>,
    unconfirmed: BTreeMap<WalletId, Unconfirmed>,
    /// Those that are in blocks, by their transactions.
    confirmed: BTreeSet<(WalletId, Txid, BlockHash)>,
    /// How many hits, roll-backs and forgotten wallets were ever written: whoever has noted it can
    /// ask what has become of the hits since.
    events: u64,
    /// How many of these the journal held at the start.
    replayed: u64,
    /// The roll-backs: the number of each, and its height. No height comes twice, nor one above a
    /// later roll-back's.
    gone: Vec<(u64, u32)>,
    /// When wallets were last forgotten.
    forgotten: BTreeMap<WalletId, u64>,
    /// The length of the file.
    length: u64,
    /// Records in the file.
    records: usize,
}

impl Hits {
    /// Replays the journal. The records after the first that is not whole are cut off.
    pub(super) fn replay(bytes: &[u8]) -> Self {
        let mut hits = Self::default();
        let Some(mut rest) = bytes.strip_prefix(&MAGIC) else { return hits };
        while let Some(record) = Record::decode(&mut rest) {
            hits.apply(record);
            hits.records += 1;
        }
        hits.length = (bytes.len() - rest.len()) as u64;
        hits.replayed = hits.events;
        hits
    }

    fn apply(&mut self, record: Record<'_>) {
        match record {
            Record::Hit(wallet, hit) => {
                self.events += 1;
                let entry = Entry { hit: hit.into_owned(), acknowledged: false };
                self.insert(Key::of(&wallet, &entry.hit), entry);
            }
            Record::Gone(height) => {
                self.note_gone(height);
                self.withdraw_above(height);
            }
            Record::Acknowledged(key) => {
                if let Some(entry) = self.entries.get_mut(&*key) {
                    entry.acknowledged = true;
                }
            }
            Record::Forgotten(wallet) => self.note_forgotten(&wallet),
            Record::Before(events) => {
                self.events = events;
                // What was before is not kept: all before counts as gone.
                self.gone = std::vec![(events, 0)];
                self.forgotten.clear();
            }
            Record::Withdrawn(wallet, hit) => {
                self.withdrawn.insert(Key::of(&wallet, &hit), hit.into_owned());
            }
            Record::WithdrawalAcknowledged(key) => {
                self.withdrawn.remove(&*key);
            }
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        // Whoever has not dealt with the withdrawal is told of the hit instead: given out after it,
        // the withdrawal would take away what is there.
        self.withdrawn.remove(&key);
        self.remove(&key);
        if let Some(block) = key.block {
            // A transaction that is in a block is not unconfirmed.
            self.remove(&Key { block: None, ..key.clone() });
            self.confirmed.insert((key.wallet.clone(), key.txid, block));
        } else {
            let unconfirmed = self.unconfirmed.entry(key.wallet.clone()).or_default();
            unconfirmed.count += 1;
            unconfirmed.bytes += entry.hit.transaction.total_size();
        }
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let removed = self.entries.remove(key)?;
        if let Some(block) = key.block {
            self.confirmed.remove(&(key.wallet.clone(), key.txid, block));
        } else if let Some(unconfirmed) = self.unconfirmed.get_mut(&key.wallet) {
            unconfirmed.count -= 1;
            unconfirmed.bytes -= removed.hit.transaction.total_size();
        }
        Some(removed)
    }

    fn note_gone(&mut self, height: u32) {
        self.events += 1;
        // Whoever asks from before an earlier roll-back above this height asks from here too.
        while self.gone.last().is_some_and(|(_, above)| *above >= height) {
            self.gone.pop();
        }
        self.gone.push((self.events, height));
    }

    fn note_forgotten(&mut self, wallet: &WalletId) {
        self.events += 1;
        self.forgotten.insert(wallet.clone(), self.events);
        self.drop_wallet(wallet);
    }

    /// Whether a wallet's hits were forgotten after a scan's progress was noted at `events`.
    pub(super) fn forgotten_since(&self, wallet: &WalletId, events: u64) -> bool {
        self.forgotten.get(wallet).is_some_and(|number| *number > events)
    }

    fn withdraw_above(&mut self, height: u32) -> Vec<(Key, Hit)> {
        let above = |hit: &Hit| hit.place.is_some_and(|(at, _)| at.height > height);
        let keys: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| above(&entry.hit))
            .map(|(key, _)| key.clone())
            .collect();
        let mut gone = Vec::new();
        for key in keys {
            let Some(entry) = self.remove(&key) else { continue };
            self.withdrawn.insert(key.clone(), entry.hit.clone());
            gone.push((key, entry.hit));
        }
        gone
    }

    fn drop_wallet(&mut self, wallet: &WalletId) {
        let keys: Vec<_> = self.of_wallet(wallet).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key);
        }
        self.withdrawn.retain(|key, _| key.wallet != *wallet);
    }

    /// How many hits, roll-backs and forgotten wallets were ever written.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Where a scan's progress that an earlier run noted at `events` counts no more: the lowest
    /// height whose hits were withdrawn since, or lost with the file.
    pub(super) fn lost_since(&self, events: u64) -> Option<u32> {
        // Later events of this run do not make up for lost ones.
        if events > self.replayed {
            return Some(0);
        }
        let since = self.gone.iter().filter(|(number, _)| *number > events);
        since.map(|(_, height)| height.saturating_add(1)).min()
    }

    /// Where in the chain the lowest block of a hit was that is not in the chain any more.
    pub(super) fn lowest_outside(&self, chain: &HeaderChain) -> Option<u32> {
        let blocks = self.entries.values().filter_map(|entry| entry.hit.place);
        let outside = blocks.filter(|(at, _)| chain.hash_at(at.height) != Some(at.hash));
        outside.map(|(at, _)| at.height).min()
    }

    /// The unconfirmed hits of a wallet.
    pub(super) fn unconfirmed(&self, wallet: &WalletId) -> Unconfirmed {
        self.unconfirmed.get(wallet).copied().unwrap_or_default()
    }

    /// A wallet's hits; those in blocks by their blocks, after those in none.
    pub(super) fn of(&self, wallet: &WalletId) -> impl Iterator<Item = &Hit> {
        self.of_wallet(wallet).map(|(_, entry)| &entry.hit)
    }

    fn of_wallet(&self, wallet: &WalletId) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = Key { wallet: wallet.clone(), block: None, txid: Txid::all_zeros() };
        self.entries.range(first..).take_while(move |(key, _)| key.wallet == *wallet)
    }

    /// Those that their reader has not dealt with: withdrawals first.
    pub(super) fn open(&self, wallet: &WalletId) -> (Vec<Hit>, Vec<Hit>) {
        let withdrawn = self.withdrawn.iter().filter(|(key, _)| key.wallet == *wallet);
        let open = self.of_wallet(wallet).filter(|(_, entry)| !entry.acknowledged);
        let mut open: Vec<_> = open.map(|(_, entry)| entry.hit.clone()).collect();
        open.sort_by_key(|hit| hit.place.map_or((u32::MAX, 0), |(at, index)| (at.height, index)));
        (withdrawn.map(|(_, hit)| hit.clone()).collect(), open)
    }

    /// Takes a hit; `journal` gets what is to be written. What was known of it is added to it.
    pub(super) fn add(
        &mut self,
        wallet: &WalletId,
        hit: &mut Hit,
        journal: &mut Vec<u8>,
    ) -> Novelty {
        let key = Key::of(wallet, hit);
        let novelty = match self.entries.get(&key) {
            // A peer that relays it has not seen its block.
            None if key.block.is_none() && self.is_confirmed(&key) => return Novelty::Known,
            None => Novelty::New,
            Some(known) => {
                // A scan that knows fewer coins or scripts takes nothing back.
                merge(hit, &known.hit);
                if known.hit.received == hit.received && known.hit.spent == hit.spent {
                    return Novelty::Known;
                }
                Novelty::More
            }
        };
        self.record(&Record::Hit(Cow::Borrowed(wallet), Cow::Borrowed(hit)), journal);
        self.events += 1;
        self.insert(key, Entry { hit: hit.clone(), acknowledged: false });
        novelty
    }

    fn is_confirmed(&self, key: &Key) -> bool {
        let first = (key.wallet.clone(), key.txid, BlockHash::all_zeros());
        let next = self.confirmed.range(first..).next();
        next.is_some_and(|(wallet, txid, _)| (wallet, txid) == (&key.wallet, &key.txid))
    }

    /// The blocks above a height have left the chain. Returns the hits that they held.
    pub(super) fn roll_back(&mut self, height: u32, journal: &mut Vec<u8>) -> Vec<(Key, Hit)> {
        let gone = self.withdraw_above(height);
        if !gone.is_empty() {
            self.record(&Record::Gone(height), journal);
            self.note_gone(height);
        }
        gone
    }

    /// The reader has dealt with a hit, as it is now.
    pub(super) fn acknowledge(&mut self, key: &Key, journal: &mut Vec<u8>) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.acknowledged) else {
            return;
        };
        entry.acknowledged = true;
        self.record(&Record::Acknowledged(Cow::Borrowed(key)), journal);
    }

    /// The reader has dealt with a withdrawal.
    pub(super) fn acknowledge_withdrawal(&mut self, key: &Key, journal: &mut Vec<u8>) {
        if self.withdrawn.remove(key).is_some() {
            self.record(&Record::WithdrawalAcknowledged(Cow::Borrowed(key)), journal);
        }
    }

    /// Forgets a wallet's hits.
    pub(super) fn forget(&mut self, wallet: &WalletId, journal: &mut Vec<u8>) {
        self.note_forgotten(wallet);
        self.record(&Record::Forgotten(Cow::Borrowed(wallet)), journal);
    }

    fn record(&mut self, record: &Record<'_>, journal: &mut Vec<u8>) {
        let before = journal.len();
        if self.length == 0 && journal.is_empty() {
            journal.extend(MAGIC);
        }
        record.encode(journal);
        self.length += (journal.len() - before) as u64;
        self.records += 1;
    }

    /// Where the next record goes in the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether most of the file is of no use: reorganisations and acknowledgements leave much.
    pub(super) fn is_wasteful(&self) -> bool {
        // A rewritten file has at most two records for each hit and one for each withdrawal: it can
        // double before it is rewritten again. A file of 1,000 records is small.
        self.records > 1_000 + 4 * (self.entries.len() + self.withdrawn.len())
    }

    /// The file with what counts alone.
    pub(super) fn rewrite(&mut self) -> Vec<u8> {
        let mut records = std::vec![Record::Before(self.events)];
        for (key, hit) in &self.withdrawn {
            records.push(Record::Withdrawn(Cow::Borrowed(&key.wallet), Cow::Borrowed(hit)));
        }
        for (key, entry) in &self.entries {
            records.push(Record::Hit(Cow::Borrowed(&key.wallet), Cow::Borrowed(&entry.hit)));
            if entry.acknowledged {
                records.push(Record::Acknowledged(Cow::Borrowed(key)));
            }
        }
        let mut bytes = MAGIC.to_vec();
        for record in &records {
            record.encode(&mut bytes);
        }
        let records = records.len();
        self.gone = std::vec![(self.events, 0)];
        self.forgotten.clear();
        self.events += self.entries.len() as u64;
        (self.length, self.records) = (bytes.len() as u64, records);
        bytes
    }
}

/// Adds to a hit what was known of it and it lacks.
fn merge(hit: &mut Hit, known: &Hit) {
    for old in &known.received {
        if hit.received.iter().all(|new| new.vout != old.vout) {
            hit.received.push(old.clone());
        }
    }
    for old in &known.spent {
        match hit.spent.iter_mut().find(|new| new.vin == old.vin) {
            Some(new) => {
                new.certain |= old.certain;
                new.owner = new.owner.take().or_else(|| old.owner.clone());
            }
            None => hit.spent.push(old.clone()),
        }
    }
    hit.received.sort_by_key(|received| received.vout);
    hit.spent.sort_by_key(|spent| spent.vin);
}

#[cfg(test)]
pub(super) mod tests;
