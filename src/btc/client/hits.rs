//! The hits of all wallets, their withdrawals, and their acknowledgements: the state that results
//! from replaying the [journal](super::journal).

use core::iter::Sum;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, OutPoint, Script, ScriptBuf, Transaction, Txid};

use super::journal::{ItemRecord, Key, NAME, Record, VERSION};
use super::{Hit, Owner, WalletId};
use crate::btc::headers::HeaderChain;
use crate::btc::records::{self, START_LEN};

#[derive(Debug, Clone)]
struct Entry {
    hit: Hit,
    /// `true` if the reader has processed the hit in its present form.
    acknowledged: bool,
    /// Number of the event that found the hit.
    event: u64,
    /// Height of the chain when the hit was found.
    found_at: u32,
}

/// Number of blocks after which an unconfirmed hit is withdrawn: two weeks, the time after which nodes
/// drop a transaction (`-mempoolexpiry` in Bitcoin Core).
const EXPIRES_AFTER: u32 = 2_016;

/// An item of a wallet that is searched for, or was in an earlier run.
#[derive(Debug, Clone, Copy)]
struct KeptItem {
    record: ItemRecord,
    /// Number of the event that recorded the item.
    event: u64,
}

/// Number and size of unconfirmed hits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unconfirmed {
    pub(super) count: usize,
    /// Total size in bytes of the transactions of these hits.
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

/// Result of [`Hits::add`]: how a hit differs from what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// No such hit is stored.
    New,
    /// The stored hit has fewer inputs or outputs than the new hit, or fewer details about them.
    More,
    /// The stored hit already has all contents of the new hit.
    Known,
}

/// All hits of all wallets.
#[derive(Debug, Default)]
pub(super) struct Hits {
    entries: BTreeMap<Key, Entry>,
    /// Hits whose block has left the chain, until their reader has acknowledged the withdrawal.
    withdrawn: BTreeMap<Key, Hit>,
    /// Total of the unconfirmed hits of each wallet.
    unconfirmed: BTreeMap<WalletId, Unconfirmed>,
    /// Index of the hits in blocks, by wallet and transaction.
    confirmed: BTreeSet<(WalletId, Txid, BlockHash)>,
    /// Number of events so far: hits, roll-backs and forgotten wallets. The stored state of the
    /// scan contains this number. From the number, the next run computes the lowest height whose
    /// scan progress is no longer valid: see [`lost_since`](Self::lost_since).
    pub(super) events: u64,
    /// Value of `events` after the journal was replayed at the start.
    replayed: u64,
    /// Roll-backs, each as the number of its event and its height. The heights strictly ascend: a
    /// later roll-back to the same or a lower height replaces the earlier roll-backs.
    gone: Vec<(u64, u32)>,
    /// The items of each wallet, by their hashes.
    items: BTreeMap<WalletId, BTreeMap<[u8; 32], KeptItem>>,
    /// Hits in blocks up to this height may have been delivered by an earlier run, although no record
    /// says so, because records were lost.
    lost_to: Option<u32>,
    /// Length of the journal file in bytes, including records not written yet.
    pub(super) length: u64,
    /// Number of records in the journal file.
    records: usize,
}

impl Hits {
    /// Replays the journal. An incomplete end is dropped, and will be overwritten by the next record.
    /// The returned flag is `true` if the file is damaged before its end: then records are lost, and
    /// the file must be [rewritten](Self::rewrite).
    ///
    /// # Errors
    /// Returns the version of the file if it is not the supported version.
    pub(super) fn replay(bytes: &[u8]) -> Result<(Self, bool), u8> {
        let mut hits = Self::default();
        let start = records::start(NAME, VERSION);
        // A crash can leave part of the first bytes.
        if start.starts_with(bytes) {
            hits.length = if bytes == start { bytes.len() as u64 } else { 0 };
            return Ok((hits, false));
        }
        let version = bytes.strip_prefix(&NAME).and_then(|rest| rest.first());
        if let Some(&version) = version.filter(|version| **version != VERSION) {
            return Err(version);
        }
        let mut is_damaged = version.is_none();
        let mut rest = bytes.get(START_LEN..).unwrap_or_default();
        hits.length = START_LEN as u64;
        while !rest.is_empty() {
            if let Some(record) = Record::decode(&mut rest) {
                hits.apply(record);
                hits.records += 1;
                hits.length = (bytes.len() - rest.len()) as u64;
                continue;
            }
            // A whole record after this place shows that the file is damaged here, and does not
            // just end here.
            let Some(next) = (1..rest.len()).find(|start| {
                rest.get(*start..).is_some_and(|mut after| Record::decode(&mut after).is_some())
            }) else {
                break;
            };
            is_damaged = true;
            rest = rest.get(next..).unwrap_or_default();
        }
        hits.replayed = hits.events;
        Ok((hits, is_damaged))
    }

    /// Returns `true` if a hit that is not known may have been delivered by an earlier run.
    pub(super) fn may_be_repeated(&self, hit: &Hit) -> bool {
        let height = hit.place.map_or(0, |place| place.block.height);
        self.lost_to.is_some_and(|lost_to| height <= lost_to)
    }

    /// Records that records were lost, when the chain had this height.
    pub(super) fn note_lost(&mut self, height: u32) {
        self.lost_to = Some(height.max(self.lost_to.unwrap_or(0)));
        // Whatever was counted before may be missing.
        self.replayed = 0;
    }

    fn apply(&mut self, record: Record<'_>) {
        match record {
            Record::Hit(wallet, found_at, hit) => {
                self.events += 1;
                let (hit, event) = (hit.into_owned(), self.events);
                let entry = Entry { hit, acknowledged: false, event, found_at };
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
                // The earlier events were dropped when the file was rewritten. Scan progress that
                // was noted before the last of these events is treated as lost from height 0 on.
                self.gone = std::vec![(events, 0)];
                // The items before this record were recorded before the state was stored.
                for kept in self.items.values_mut().flat_map(BTreeMap::values_mut) {
                    kept.event = 0;
                }
            }
            Record::Item(wallet, record) => self.keep_item(&wallet, record),
            Record::Lost(height) => self.lost_to = Some(height),
            Record::Dropped(key) => drop(self.drop_unconfirmed(&key)),
            Record::Withdrawn(wallet, hit) => {
                self.withdrawn.insert(Key::of(&wallet, &hit), hit.into_owned());
            }
            Record::WithdrawalAcknowledged(key) => {
                self.withdrawn.remove(&*key);
            }
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        // The hit replaces its unacknowledged withdrawal. If the withdrawal were delivered after
        // the hit, the reader would drop a hit that is in the chain.
        self.withdrawn.remove(&key);
        self.remove(&key);
        if let Some(block) = key.block {
            // A transaction in a block is no longer unconfirmed.
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

    /// Records a roll-back to a height as an event.
    fn note_gone(&mut self, height: u32) {
        self.events += 1;
        // An earlier roll-back to this height or a higher one is redundant now. This roll-back also
        // applies to all scan progress that the earlier one applied to, and its height is not above
        // that of the earlier one.
        while self.gone.last().is_some_and(|(_, above)| *above >= height) {
            self.gone.pop();
        }
        self.gone.push((self.events, height));
    }

    fn keep_item(&mut self, wallet: &WalletId, record: ItemRecord) {
        self.events += 1;
        let kept = KeptItem { record, event: self.events };
        self.items.entry(wallet.clone()).or_default().insert(record.key, kept);
    }

    /// Returns the record of an item that was written before event number `events`, or as this
    /// event.
    pub(super) fn item_before(
        &self,
        wallet: &WalletId,
        key: &[u8; 32],
        events: u64,
    ) -> Option<ItemRecord> {
        let kept = self.items.get(wallet)?.get(key)?;
        (kept.event <= events).then_some(kept.record)
    }

    /// Iterates over the recorded items of all wallets.
    pub(super) fn items(&self) -> impl Iterator<Item = (&WalletId, &ItemRecord)> {
        let items = |(id, items)| -> (_, &BTreeMap<_, KeptItem>) { (id, items) };
        self.items
            .iter()
            .map(items)
            .flat_map(|(id, items)| items.values().map(move |kept| (id, &kept.record)))
    }

    /// Records that an item is searched for, unless it is recorded so already.
    pub(super) fn add_item(
        &mut self,
        wallet: &WalletId,
        record: ItemRecord,
        journal: &mut Vec<u8>,
    ) {
        self.record(&Record::Item(Cow::Borrowed(wallet), record), journal);
        self.keep_item(wallet, record);
    }

    /// Returns the scripts of the coins that were found after event number `events` in blocks up to
    /// a height, each with the first height at which the coin may be spent.
    pub(super) fn coins_since(&self, events: u64, height: u32) -> Vec<(ScriptBuf, u32)> {
        let late = self.entries.values().filter(|entry| entry.event > events);
        let placed = late.filter_map(|entry| Some((entry, entry.hit.place?.block.height)));
        let late = placed.filter(|(_, at)| *at <= height);
        let scripts = late.flat_map(|(entry, at)| {
            let received = entry.hit.received.iter();
            received.filter_map(move |it| Some((it.owner.script.clone()?, at + 1)))
        });
        scripts.collect()
    }

    /// Returns the lowest height above a coin of a wallet that was found after event number `events`;
    /// `None` if there is no such coin.
    pub(super) fn late_from(&self, wallet: &WalletId, events: u64) -> Option<u32> {
        let late = self.of_wallet(wallet).filter(|(_, entry)| entry.event > events);
        late.filter_map(|(_, entry)| Some(entry.hit.place?.block.height + 1)).min()
    }

    /// Continues the numbers of events above `stored`, because records with numbers up to `stored`
    /// are lost. Progress that was stored at such a number is not valid.
    pub(super) fn pass_over(&mut self, stored: u64) {
        self.events = self.events.max(stored) + 1;
        self.gone = std::vec![(self.events, 0)];
    }

    /// Gives each hit of a wallet the owners that `owner` returns: the numbers of items may differ
    /// from those of an earlier run.
    pub(super) fn relabel(
        &mut self,
        wallet: &WalletId,
        owner: impl Fn(Option<&Script>, Option<&OutPoint>) -> Option<Owner>,
    ) {
        let first = Key { wallet: wallet.clone(), block: None, txid: Txid::all_zeros() };
        let of_wallet =
            self.entries.range_mut(first..).take_while(|(key, _)| key.wallet == *wallet);
        let withdrawn = self.withdrawn.iter_mut().filter(|(key, _)| key.wallet == *wallet);
        let hits = of_wallet.map(|(_, entry)| &mut entry.hit);
        for hit in hits.chain(withdrawn.map(|(_, hit)| hit)) {
            for received in &mut hit.received {
                if let Some(new) = owner(received.owner.script.as_deref(), None) {
                    received.owner = new;
                }
            }
            for spent in &mut hit.spent {
                let script = spent.owner.as_ref().and_then(|owner| owner.script.as_deref());
                if let Some(new) = owner(script, Some(&spent.outpoint)) {
                    spent.owner = Some(new);
                }
            }
        }
    }

    /// Records as an event that a wallet was forgotten, and drops its hits.
    fn note_forgotten(&mut self, wallet: &WalletId) {
        self.events += 1;
        self.items.remove(wallet);
        self.drop_wallet(wallet);
    }

    /// Moves the hits in blocks above `height` to the withdrawals and returns them.
    fn withdraw_above(&mut self, height: u32) -> Vec<(Key, Hit)> {
        let above = |hit: &Hit| hit.place.is_some_and(|place| place.block.height > height);
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

    /// Lowest height from which stored scan progress is no longer valid. The progress was stored
    /// when the number of events was `events`. Later events have withdrawn hits at or above this
    /// height, or the file has lost events. `None` if the whole progress is valid.
    pub(super) fn lost_since(&self, events: u64) -> Option<u32> {
        // The journal has lost events. Later events of this run must not hide this loss, so
        // `events` is compared with the number at the start.
        if events > self.replayed {
            return Some(0);
        }
        let since = self.gone.iter().filter(|(number, _)| *number > events);
        since.map(|(_, height)| height.saturating_add(1)).min()
    }

    /// Lowest height of a hit whose block is not in the chain. `None` if the blocks of all hits are
    /// in the chain.
    pub(super) fn lowest_outside(&self, chain: &HeaderChain) -> Option<u32> {
        let blocks = self.entries.values().filter_map(|entry| Some(entry.hit.place?.block));
        let outside = blocks.filter(|at| chain.hash_at(at.height) != Some(at.hash));
        outside.map(|at| at.height).min()
    }

    /// Returns the number and size of the unconfirmed hits of a wallet.
    pub(super) fn unconfirmed(&self, wallet: &WalletId) -> Unconfirmed {
        self.unconfirmed.get(wallet).copied().unwrap_or_default()
    }

    /// Hits of a wallet: unconfirmed ones first, then the others grouped by the hash of their
    /// block.
    pub(super) fn of(&self, wallet: &WalletId) -> impl Iterator<Item = &Hit> {
        self.of_wallet(wallet).map(|(_, entry)| &entry.hit)
    }

    fn of_wallet(&self, wallet: &WalletId) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = Key { wallet: wallet.clone(), block: None, txid: Txid::all_zeros() };
        self.entries.range(first..).take_while(move |(key, _)| key.wallet == *wallet)
    }

    /// Unacknowledged updates of a wallet: the withdrawals, and the hits in the order of the chain
    /// with unconfirmed ones last.
    pub(super) fn open(&self, wallet: &WalletId) -> (Vec<Hit>, Vec<Hit>) {
        let withdrawn = self.withdrawn.iter().filter(|(key, _)| key.wallet == *wallet);
        let open = self.of_wallet(wallet).filter(|(_, entry)| !entry.acknowledged);
        let mut open: Vec<_> = open.map(|(_, entry)| entry.hit.clone()).collect();
        open.sort_by_key(|hit| {
            hit.place.map_or((u32::MAX, 0), |place| (place.block.height, place.index))
        });
        (withdrawn.map(|(_, hit)| hit.clone()).collect(), open)
    }

    /// Moves an unconfirmed hit to the withdrawals, and returns it.
    fn drop_unconfirmed(&mut self, key: &Key) -> Option<Hit> {
        let hit = self.remove(key)?.hit;
        self.withdrawn.insert(key.clone(), hit.clone());
        Some(hit)
    }

    /// Withdraws the unconfirmed hits that can no longer be confirmed, because a transaction in a
    /// block spends one of their coins, and those that were not confirmed for [`EXPIRES_AFTER`]
    /// blocks up to `height`. Returns the withdrawn hits.
    pub(super) fn withdraw_unconfirmed(
        &mut self,
        confirmed: &[Transaction],
        height: u32,
        journal: &mut Vec<u8>,
    ) -> Vec<(Key, Hit)> {
        if self.unconfirmed.values().all(|unconfirmed| unconfirmed.count == 0) {
            return Vec::new();
        }
        let inputs = confirmed.iter().flat_map(|tx| &tx.input);
        let spent: BTreeSet<_> = inputs.map(|input| input.previous_output).collect();
        let is_dead = |entry: &Entry| {
            let mut inputs = entry.hit.transaction.input.iter();
            inputs.any(|input| spent.contains(&input.previous_output))
        };
        let is_old = |entry: &Entry| height >= entry.found_at.saturating_add(EXPIRES_AFTER);
        let of_wallets = self.unconfirmed.keys().flat_map(|wallet| self.of_wallet(wallet));
        let unconfirmed = of_wallets.filter(|(key, _)| key.block.is_none());
        let dead = unconfirmed.filter(|(_, entry)| is_dead(entry) || is_old(entry));
        let keys: Vec<_> = dead.map(|(key, _)| key.clone()).collect();
        let mut gone = Vec::new();
        for key in keys {
            self.record(&Record::Dropped(Cow::Borrowed(&key)), journal);
            gone.extend(self.drop_unconfirmed(&key).map(|hit| (key, hit)));
        }
        gone
    }

    /// Adds a hit that was found when the chain had the height `found_at`, and appends its record to
    /// `journal`. Details of an earlier version of the hit are merged into `hit`.
    pub(super) fn add(
        &mut self,
        wallet: &WalletId,
        hit: &mut Hit,
        found_at: u32,
        journal: &mut Vec<u8>,
    ) -> Novelty {
        let key = Key::of(wallet, hit);
        let novelty = match self.entries.get(&key) {
            // The transaction is confirmed already. The relaying peer does not know the block yet.
            None if key.block.is_none() && self.is_confirmed(&key) => return Novelty::Known,
            None => Novelty::New,
            Some(known) => {
                // A scan that knows fewer coins or scripts must not remove details that were
                // delivered.
                merge(hit, &known.hit);
                // Rescans and other peers find the same hit again. Without a new detail, there is
                // nothing to report, and another record would only lengthen the journal.
                if known.hit.received == hit.received && known.hit.spent == hit.spent {
                    return Novelty::Known;
                }
                Novelty::More
            }
        };
        let found_at = self.entries.get(&key).map_or(found_at, |known| known.found_at);
        self.record(&Record::Hit(Cow::Borrowed(wallet), found_at, Cow::Borrowed(hit)), journal);
        self.events += 1;
        let (hit, event) = (hit.clone(), self.events);
        self.insert(key, Entry { hit, acknowledged: false, event, found_at });
        novelty
    }

    /// Returns `true` if the wallet has this transaction as a hit in any block.
    fn is_confirmed(&self, key: &Key) -> bool {
        let first = (key.wallet.clone(), key.txid, BlockHash::all_zeros());
        let next = self.confirmed.range(first..).next();
        next.is_some_and(|(wallet, txid, _)| (wallet, txid) == (&key.wallet, &key.txid))
    }

    /// Withdraws the hits in blocks above `height`, which have left the chain, and returns them.
    pub(super) fn roll_back(&mut self, height: u32, journal: &mut Vec<u8>) -> Vec<(Key, Hit)> {
        let gone = self.withdraw_above(height);
        // A roll-back without hits changes nothing, so it needs no record.
        if !gone.is_empty() {
            self.record(&Record::Gone(height), journal);
            self.note_gone(height);
        }
        gone
    }

    /// Marks a hit as acknowledged in its present form.
    pub(super) fn acknowledge(&mut self, key: &Key, journal: &mut Vec<u8>) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.acknowledged) else {
            return;
        };
        entry.acknowledged = true;
        self.record(&Record::Acknowledged(Cow::Borrowed(key)), journal);
    }

    /// Removes an acknowledged withdrawal.
    pub(super) fn acknowledge_withdrawal(&mut self, key: &Key, journal: &mut Vec<u8>) {
        if self.withdrawn.remove(key).is_some() {
            self.record(&Record::WithdrawalAcknowledged(Cow::Borrowed(key)), journal);
        }
    }

    /// Deletes the hits and withdrawals of a wallet.
    pub(super) fn forget(&mut self, wallet: &WalletId, journal: &mut Vec<u8>) {
        self.note_forgotten(wallet);
        self.record(&Record::Forgotten(Cow::Borrowed(wallet)), journal);
    }

    /// Appends a record to `journal`, after the file header if the file is empty.
    fn record(&mut self, record: &Record<'_>, journal: &mut Vec<u8>) {
        let before = journal.len();
        if self.length == 0 && journal.is_empty() {
            journal.extend(records::start(NAME, VERSION));
        }
        record.encode(journal);
        self.length += (journal.len() - before) as u64;
        self.records += 1;
    }

    /// Returns `true` if most records of the file are obsolete, because of reorganisations and
    /// acknowledgements, so that the file should be rewritten.
    pub(super) fn is_wasteful(&self) -> bool {
        // A rewritten file has at most two records per hit and one per withdrawal. With a factor of
        // 4, the file can double before it is rewritten again. Up to 1,000 records, rewriting saves
        // little.
        let items: usize = self.items.values().map(BTreeMap::len).sum();
        self.records > 1_000 + 4 * (self.entries.len() + self.withdrawn.len() + items)
    }

    /// Returns new contents of the file, without the obsolete hits, withdrawals and
    /// acknowledgements. `stored` is the number of events when the state was stored.
    pub(super) fn rewrite(&mut self, stored: u64) -> Vec<u8> {
        let mut items = Vec::new();
        for (wallet, kept) in &self.items {
            items.extend(kept.values().map(|kept| (wallet, *kept)));
        }
        let (old, new): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|(_, kept)| kept.event <= stored);
        let record =
            |(wallet, kept): (_, KeptItem)| Record::Item(Cow::Borrowed(wallet), kept.record);
        // The items before `Before` count as recorded before the state was stored.
        let mut records: Vec<_> = old.into_iter().map(record).collect();
        records.push(Record::Before(self.events));
        records.extend(self.lost_to.map(Record::Lost));
        let num_new = new.len();
        records.extend(new.into_iter().map(record));
        for (key, hit) in &self.withdrawn {
            records.push(Record::Withdrawn(Cow::Borrowed(&key.wallet), Cow::Borrowed(hit)));
        }
        for (key, entry) in &self.entries {
            let (wallet, hit) = (Cow::Borrowed(&key.wallet), Cow::Borrowed(&entry.hit));
            records.push(Record::Hit(wallet, entry.found_at, hit));
            if entry.acknowledged {
                records.push(Record::Acknowledged(Cow::Borrowed(key)));
            }
        }
        let mut bytes = records::start(NAME, VERSION).to_vec();
        for record in &records {
            record.encode(&mut bytes);
        }
        let records = records.len();
        // What replaying these records results in.
        let (first_new, events) = (self.events, &mut self.events);
        for kept in self.items.values_mut().flat_map(BTreeMap::values_mut) {
            kept.event = if kept.event <= stored { 0 } else { first_new + 1 };
        }
        self.gone = std::vec![(first_new, 0)];
        *events += num_new as u64;
        for entry in self.entries.values_mut() {
            *events += 1;
            entry.event = *events;
        }
        (self.length, self.records) = (bytes.len() as u64, records);
        bytes
    }
}

/// Merges an earlier version of a hit into `hit`: outputs, inputs, owners and certainty that `hit`
/// lacks.
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
