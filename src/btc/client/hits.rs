//! Hits, withdrawals, and which of them their reader has dealt with: a journal that is replayed.
//!
//! ```text
//! "CSHJ" | version 1
//! for each record: length u32 | checksum 4 | kind u8 | wallet: length u16, name | ...
//!   1 hit           height, block, index (see below) | the hit
//!   2 gone          height u32: hits above it are withdrawn
//!   3 acknowledged  block 32 (zeros: none) | txid 32
//!   4 forgotten     the wallet with all its hits
//!   5 before        number u64: so many records that count were dropped when the file was rewritten
//!   6 withdrawn     the hit, whose block has left the chain
//!   7 withdrawal acknowledged  block 32 | txid 32
//! ```
//! Numbers are little-endian. A checksum is the first bytes of the double SHA-256 of what follows
//! it. Reading ends at the first record that is not whole: a crash leaves part of the last ones.

use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::vec::Vec;

use bitcoin::consensus::encode::{Decodable, Encodable, deserialize_partial};
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::{Amount, BlockHash, OutPoint, ScriptBuf, Txid};

use super::{Evidence, Hit, Owner, Received, Spent, WalletId, Why};
use crate::btc::headers::{BlockAt, HeaderChain};

const MAGIC: [u8; 5] = *b"CSHJ\x01";
/// Length and checksum.
const FRAME: usize = 8;

/// A wallet's transaction: in this block, or in none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) wallet: WalletId,
    pub(super) block: Option<BlockHash>,
    pub(super) txid: Txid,
}

impl Key {
    pub(super) fn of(wallet: &WalletId, hit: &Hit) -> Self {
        let block = hit.place.map(|(at, _)| at.hash);
        Self { wallet: wallet.clone(), block, txid: hit.txid }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    hit: Hit,
    acknowledged: bool,
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
    unconfirmed: BTreeMap<WalletId, usize>,
    /// Those that are in blocks, by their transactions.
    confirmed: BTreeSet<(WalletId, Txid, BlockHash)>,
    /// How many hits, roll-backs and forgotten wallets were ever written: whoever has noted it can
    /// ask what has become of the hits since.
    written: u64,
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
        hits.length = MAGIC.len() as u64;
        while let Some((body, left)) = next_record(rest)
            && hits.apply(body).is_some()
        {
            hits.length += (rest.len() - left.len()) as u64;
            hits.records += 1;
            rest = left;
        }
        hits
    }

    fn apply(&mut self, mut body: &[u8]) -> Option<()> {
        let from = &mut body;
        let [kind] = take(from)?;
        let wallet = WalletId(text(from)?);
        match kind {
            1 => {
                let hit = decode_hit(from)?;
                self.written += 1;
                self.insert(Key::of(&wallet, &hit), Entry { hit, acknowledged: false });
            }
            2 => {
                let height = number(from)?;
                self.note_gone(height);
                self.withdraw_above(height);
            }
            3 => {
                let key = decode_key(wallet, from)?;
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.acknowledged = true;
                }
            }
            4 => self.note_forgotten(&wallet),
            5 => {
                self.written = u64::from_le_bytes(take(from)?);
                // What was before is not kept: all before counts as gone.
                self.gone = std::vec![(self.written, 0)];
                self.forgotten.clear();
            }
            6 => {
                let hit = decode_hit(from)?;
                self.withdrawn.insert(Key::of(&wallet, &hit), hit);
            }
            7 => {
                self.withdrawn.remove(&decode_key(wallet, from)?);
            }
            _ => return None,
        }
        from.is_empty().then_some(())
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        // Whoever has not dealt with the withdrawal is told of the hit instead: given out after it,
        // the withdrawal would take away what is there.
        self.withdrawn.remove(&key);
        if let Some(block) = key.block {
            self.confirmed.insert((key.wallet.clone(), key.txid, block));
        }
        // A transaction that is in a block is not unconfirmed.
        if key.block.is_some() {
            self.remove(&Key { block: None, ..key.clone() });
        }
        let is_unconfirmed = key.block.is_none();
        let wallet = key.wallet.clone();
        if self.entries.insert(key, entry).is_none() && is_unconfirmed {
            *self.unconfirmed.entry(wallet).or_default() += 1;
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let removed = self.entries.remove(key)?;
        if let Some(block) = key.block {
            self.confirmed.remove(&(key.wallet.clone(), key.txid, block));
        }
        if key.block.is_none()
            && let Some(count) = self.unconfirmed.get_mut(&key.wallet)
        {
            *count = count.saturating_sub(1);
        }
        Some(removed)
    }

    fn note_gone(&mut self, height: u32) {
        self.written += 1;
        // Whoever asks from before an earlier roll-back above this height asks from here too.
        while self.gone.last().is_some_and(|(_, above)| *above >= height) {
            self.gone.pop();
        }
        self.gone.push((self.written, height));
    }

    fn note_forgotten(&mut self, wallet: &WalletId) {
        self.written += 1;
        self.forgotten.insert(wallet.clone(), self.written);
        self.drop_wallet(wallet);
    }

    /// Whether a wallet's hits were forgotten after a scan's progress was noted at `written`.
    pub(super) fn forgotten_since(&self, wallet: &WalletId, written: u64) -> bool {
        self.forgotten.get(wallet).is_some_and(|number| *number > written)
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
        self.entries.retain(|key, _| key.wallet != *wallet);
        self.withdrawn.retain(|key, _| key.wallet != *wallet);
        self.confirmed.retain(|(of, ..)| of != wallet);
        self.unconfirmed.remove(wallet);
    }

    /// How many hits, roll-backs and forgotten wallets were ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Where a scan's progress that was noted at `written` counts no more: the lowest height whose
    /// hits were withdrawn since, or lost with the file.
    pub(super) fn lost_since(&self, written: u64) -> Option<u32> {
        if written > self.written {
            return Some(0);
        }
        let since = self.gone.iter().filter(|(number, _)| *number > written);
        since.map(|(_, height)| height.saturating_add(1)).min()
    }

    /// Where in the chain the lowest block of a hit was that is not in the chain any more.
    pub(super) fn lowest_outside(&self, chain: &HeaderChain) -> Option<u32> {
        let blocks = self.entries.values().filter_map(|entry| entry.hit.place);
        let outside = blocks.filter(|(at, _)| chain.hash_at(at.height) != Some(at.hash));
        outside.map(|(at, _)| at.height).min()
    }

    /// Unconfirmed transactions of a wallet.
    pub(super) fn unconfirmed(&self, wallet: &WalletId) -> usize {
        self.unconfirmed.get(wallet).copied().unwrap_or(0)
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
        let mut body = header(1, wallet);
        encode_hit(hit, &mut body);
        self.record(&body, journal);
        self.written += 1;
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
            let mut body = header(2, &WalletId(String::new()));
            body.extend(height.to_le_bytes());
            self.record(&body, journal);
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
        let mut body = header(3, &key.wallet);
        encode_key(key, &mut body);
        self.record(&body, journal);
    }

    /// The reader has dealt with a withdrawal.
    pub(super) fn acknowledge_withdrawal(&mut self, key: &Key, journal: &mut Vec<u8>) {
        if self.withdrawn.remove(key).is_some() {
            let mut body = header(7, &key.wallet);
            encode_key(key, &mut body);
            self.record(&body, journal);
        }
    }

    /// Forgets a wallet's hits.
    pub(super) fn forget(&mut self, wallet: &WalletId, journal: &mut Vec<u8>) {
        self.note_forgotten(wallet);
        let body = header(4, wallet);
        self.record(&body, journal);
    }

    fn record(&mut self, body: &[u8], journal: &mut Vec<u8>) {
        let before = journal.len();
        if self.length == 0 && journal.is_empty() {
            journal.extend(MAGIC);
        }
        push_record(body, journal);
        self.length += (journal.len() - before) as u64;
        self.records += 1;
    }

    /// Where the next record goes in the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether most of the file is of no use: reorganisations and acknowledgements leave much.
    pub(super) fn is_wasteful(&self) -> bool {
        self.records > 1_000 + 4 * (self.entries.len() + self.withdrawn.len())
    }

    /// The file with what counts alone.
    pub(super) fn rewrite(&mut self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut records = 1;
        let mut body = header(5, &WalletId(String::new()));
        body.extend(self.written.to_le_bytes());
        push_record(&body, &mut bytes);
        for (key, hit) in &self.withdrawn {
            let mut body = header(6, &key.wallet);
            encode_hit(hit, &mut body);
            push_record(&body, &mut bytes);
            records += 1;
        }
        for (key, entry) in &self.entries {
            let mut body = header(1, &key.wallet);
            encode_hit(&entry.hit, &mut body);
            push_record(&body, &mut bytes);
            records += 1;
            if entry.acknowledged {
                let mut body = header(3, &key.wallet);
                encode_key(key, &mut body);
                push_record(&body, &mut bytes);
                records += 1;
            }
        }
        self.gone = std::vec![(self.written, 0)];
        self.forgotten.clear();
        self.written += self.entries.len() as u64;
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

fn push_record(body: &[u8], bytes: &mut Vec<u8>) {
    let length = u32::try_from(body.len()).expect("a transaction is smaller than a block");
    bytes.extend(length.to_le_bytes());
    bytes.extend(checksum(body));
    bytes.extend(body);
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash = sha256d::Hash::hash(bytes).to_byte_array();
    *hash.first_chunk().expect("32 bytes")
}

/// The first record and what follows it, if it is whole.
fn next_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (frame, rest) = bytes.split_first_chunk::<FRAME>()?;
    let [l0, l1, l2, l3, sum @ ..] = *frame;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
    (checksum(body) == sum).then_some((body, rest))
}

fn header(kind: u8, wallet: &WalletId) -> Vec<u8> {
    let mut body = std::vec![kind];
    push_text(&wallet.0, &mut body);
    body
}

fn push_text(text: &str, body: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    body.extend(length.to_le_bytes());
    body.extend(text.as_bytes().iter().take(length.into()));
}

fn text(from: &mut &[u8]) -> Option<String> {
    let length = u16::from_le_bytes(take(from)?);
    let (text, rest) = from.split_at_checked(length.into())?;
    *from = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

fn number(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// 0 and nothing, or 1 and a number.
fn push_optional(value: Option<u32>, body: &mut Vec<u8>) {
    body.push(value.is_some().into());
    body.extend(value.iter().flat_map(|value| value.to_le_bytes()));
}

#[expect(clippy::option_option, reason = "malformed, absent, or there")]
fn optional(from: &mut &[u8]) -> Option<Option<u32>> {
    match take(from)? {
        [0] => Some(None),
        [1] => Some(Some(number(from)?)),
        _ => None,
    }
}

fn push_consensus(value: &impl Encodable, body: &mut Vec<u8>) {
    value.consensus_encode(body).expect("a vector takes everything");
}

fn consensus<T: Decodable>(from: &mut &[u8]) -> Option<T> {
    let (value, used) = deserialize_partial(from).ok()?;
    *from = from.get(used..)?;
    Some(value)
}

fn encode_key(key: &Key, body: &mut Vec<u8>) {
    push_consensus(&key.block.unwrap_or(BlockHash::all_zeros()), body);
    push_consensus(&key.txid, body);
}

fn decode_key(wallet: WalletId, from: &mut &[u8]) -> Option<Key> {
    let block: BlockHash = consensus(from)?;
    let block = (block != BlockHash::all_zeros()).then_some(block);
    Some(Key { wallet, block, txid: consensus(from)? })
}

/// Height, block and index | transaction | evidence u8, why u8, peer | outputs | inputs
fn encode_hit(hit: &Hit, body: &mut Vec<u8>) {
    push_optional(hit.place.map(|(at, _)| at.height), body);
    if let Some((at, index)) = hit.place {
        push_consensus(&at.hash, body);
        body.extend(index.to_le_bytes());
    }
    push_consensus(&hit.transaction, body);
    body.push(match hit.evidence {
        Evidence::Block => 0,
        Evidence::MerkleProof => 1,
        Evidence::Unconfirmed => 2,
    });
    body.push(match hit.why {
        Why::Matched => 0,
        Why::Disputed => 1,
        Why::SpotAudit => 2,
        Why::FilteredBlock => 3,
        Why::Relayed => 4,
    });
    push_text(hit.peer.as_deref().unwrap_or_default(), body);
    push_optional(u32::try_from(hit.received.len()).ok(), body);
    for received in &hit.received {
        body.extend(received.vout.to_le_bytes());
        body.extend(received.value.to_sat().to_le_bytes());
        encode_owner(&received.owner, body);
    }
    push_optional(u32::try_from(hit.spent.len()).ok(), body);
    for spent in &hit.spent {
        body.extend(spent.vin.to_le_bytes());
        push_consensus(&spent.outpoint, body);
        body.push(spent.certain.into());
        body.push(spent.owner.is_some().into());
        if let Some(owner) = &spent.owner {
            encode_owner(owner, body);
        }
    }
}

fn decode_hit(from: &mut &[u8]) -> Option<Hit> {
    let place = match optional(from)? {
        Some(height) => {
            let hash = consensus(from)?;
            Some((BlockAt { height, hash }, number(from)?))
        }
        None => None,
    };
    let transaction: bitcoin::Transaction = consensus(from)?;
    let evidence = match take(from)? {
        [0] => Evidence::Block,
        [1] => Evidence::MerkleProof,
        [2] => Evidence::Unconfirmed,
        _ => return None,
    };
    let why = match take(from)? {
        [0] => Why::Matched,
        [1] => Why::Disputed,
        [2] => Why::SpotAudit,
        [3] => Why::FilteredBlock,
        [4] => Why::Relayed,
        _ => return None,
    };
    let peer = Some(text(from)?).filter(|peer| !peer.is_empty());
    let mut received = Vec::new();
    for _ in 0..optional(from)?? {
        let vout = number(from)?;
        let value = Amount::from_sat(u64::from_le_bytes(take(from)?));
        received.push(Received { vout, value, owner: decode_owner(from)? });
    }
    let mut spent = Vec::new();
    for _ in 0..optional(from)?? {
        let (vin, outpoint): (_, OutPoint) = (number(from)?, consensus(from)?);
        let [certain, is_owned] = take(from)?;
        let owner = if is_owned == 1 { Some(decode_owner(from)?) } else { None };
        spent.push(Spent { vin, outpoint, owner, certain: certain == 1 });
    }
    let txid = transaction.compute_txid();
    Some(Hit { txid, transaction, place, received, spent, evidence, why, peer })
}

fn encode_owner(owner: &Owner, body: &mut Vec<u8>) {
    body.extend(owner.item.to_le_bytes());
    push_optional(owner.path, body);
    push_optional(owner.index, body);
    body.push(owner.script.is_some().into());
    if let Some(script) = &owner.script {
        push_consensus(script, body);
    }
}

fn decode_owner(from: &mut &[u8]) -> Option<Owner> {
    let (item, path, index) = (number(from)?, optional(from)?, optional(from)?);
    let script = match take(from)? {
        [0] => None,
        [1] => Some(consensus::<ScriptBuf>(from)?),
        _ => return None,
    };
    Some(Owner { item, path, index, script })
}

#[cfg(test)]
#[path = "hits_tests.rs"]
pub(super) mod tests;
