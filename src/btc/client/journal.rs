//! The journal file: an append-only sequence of records about hits.
//!
//! ```text
//! "CSHJ" | version 2
//! for each record: kind u8 | name of the wallet, or an empty text | ...
//!   1 hit           height of the chain when it was found u32 | the hit (see `push_hit`)
//!   2 gone          height u32: hits above it are withdrawn
//!   3 acknowledged  block 32 (zeros: none) | txid 32
//!   4 forgotten     the wallet with all its hits
//!   5 before        count u64: number of events dropped when the file was rewritten
//!   6 withdrawn     the hit, whose block has left the chain
//!   7 withdrawal acknowledged  block 32 | txid 32
//!   8 item          hash 32 | first height of its search u32 | first index u32
//!   9 lost          height u32: records were lost; hits up to it may have been delivered
//!  10 dropped       txid 32: an unconfirmed hit is withdrawn
//! ```
//! The encoding is that of [`records`](crate::btc::records). A crash can leave the last record
//! incomplete, so that such an end is cut off. Damage before the last record is reported, and the
//! file is kept as a copy.

use std::borrow::Cow;
use std::string::String;
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, BlockHash, Transaction, Txid};

use super::{Hit, HitReason, InclusionEvidence, OwnedOutput, OwnedSpend, Owner, WalletId};
use crate::btc::headers::BlockAt;
use crate::btc::records::{
    push, push_count, push_optional, push_record, record, take, take_optional,
};
use crate::btc::wallet::TxPosition;

/// First bytes of the file.
pub(super) const NAME: [u8; 4] = *b"CSHJ";
/// Version of the format, the byte after [`NAME`].
pub(super) const VERSION: u8 = 2;

/// Key of a hit: the wallet, the block (`None` if unconfirmed) and the transaction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) wallet: WalletId,
    pub(super) block: Option<BlockHash>,
    pub(super) txid: Txid,
}

impl Key {
    pub(super) fn of(wallet: &WalletId, hit: &Hit) -> Self {
        let block = hit.place.map(|place| place.block.hash);
        Self { wallet: wallet.clone(), block, txid: hit.txid }
    }
}

/// A record of the journal. A decoded record owns its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A hit, and the height of the chain when it was found.
    Hit(Cow<'a, WalletId>, u32, Cow<'a, Hit>),
    /// Hits in blocks above this height are withdrawn.
    Gone(u32),
    Acknowledged(Cow<'a, Key>),
    /// The wallet was removed with all its hits.
    Forgotten(Cow<'a, WalletId>),
    /// Number of events that were dropped when the file was rewritten.
    Before(u64),
    Withdrawn(Cow<'a, WalletId>, Cow<'a, Hit>),
    WithdrawalAcknowledged(Cow<'a, Key>),
    /// An item of the wallet is searched for.
    Item(Cow<'a, WalletId>, ItemRecord),
    /// Records were lost: hits in blocks up to this height may have been delivered.
    Lost(u32),
    /// This unconfirmed hit is withdrawn.
    Dropped(Cow<'a, Key>),
}

/// An item that is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemRecord {
    /// Hash of the item.
    pub(super) key: [u8; 32],
    /// First height of the search.
    pub(super) from: u32,
    /// First index of a descriptor; 0 for other items.
    pub(super) first_index: u32,
}

impl Record<'_> {
    /// Appends the encoded record to `file`.
    pub(super) fn encode(&self, file: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            Self::Hit(wallet, height, hit) => {
                push_head(1, Some(wallet), &mut body);
                push(height, &mut body);
                push_hit(hit, &mut body);
            }
            Self::Gone(height) => {
                push_head(2, None, &mut body);
                push(height, &mut body);
            }
            Self::Acknowledged(key) => push_key(3, key, &mut body),
            Self::Forgotten(wallet) => push_head(4, Some(wallet), &mut body),
            Self::Before(count) => {
                push_head(5, None, &mut body);
                push(count, &mut body);
            }
            Self::Withdrawn(wallet, hit) => {
                push_head(6, Some(wallet), &mut body);
                push_hit(hit, &mut body);
            }
            Self::WithdrawalAcknowledged(key) => push_key(7, key, &mut body),
            Self::Item(wallet, ItemRecord { key, from, first_index }) => {
                push_head(8, Some(wallet), &mut body);
                push(&(*key, *from, *first_index), &mut body);
            }
            Self::Lost(height) => {
                push_head(9, None, &mut body);
                push(height, &mut body);
            }
            Self::Dropped(key) => {
                push_head(10, Some(&key.wallet), &mut body);
                push(&key.txid, &mut body);
            }
        }
        push_record(body, file);
    }

    /// Removes the first record from `file` and decodes it. Returns `None` if the record is
    /// incomplete, damaged or of an unknown kind; `file` then stays as it is.
    pub(super) fn decode(file: &mut &[u8]) -> Option<Record<'static>> {
        let mut rest = *file;
        let from = &mut record(&mut rest)?;
        let kind: u8 = take(from)?;
        let wallet = WalletId(take(from)?);
        let record = match kind {
            1 => Record::Hit(Cow::Owned(wallet), take(from)?, Cow::Owned(take_hit(from)?)),
            2 => Record::Gone(take(from)?),
            3 => Record::Acknowledged(Cow::Owned(take_key(wallet, from)?)),
            4 => Record::Forgotten(Cow::Owned(wallet)),
            5 => Record::Before(take(from)?),
            6 => Record::Withdrawn(Cow::Owned(wallet), Cow::Owned(take_hit(from)?)),
            7 => Record::WithdrawalAcknowledged(Cow::Owned(take_key(wallet, from)?)),
            8 => {
                let (key, height, first_index) = take(from)?;
                let item = ItemRecord { key, from: height, first_index };
                Record::Item(Cow::Owned(wallet), item)
            }
            9 => Record::Lost(take(from)?),
            10 => Record::Dropped(Cow::Owned(Key { wallet, block: None, txid: take(from)? })),
            _ => return None,
        };
        // Trailing bytes within a record are malformed.
        if !from.is_empty() {
            return None;
        }
        *file = rest;
        Some(record)
    }
}

/// Appends the kind of the record and the name of its wallet, or an empty name if the record has no
/// wallet.
fn push_head(kind: u8, wallet: Option<&WalletId>, body: &mut Vec<u8>) {
    push(&kind, body);
    push(wallet.map_or(&String::new(), |wallet| &wallet.0), body);
}

/// Appends a record's kind, and the wallet, the block and the transaction of a key. For an
/// unconfirmed transaction, the block hash is all zeros.
fn push_key(kind: u8, key: &Key, body: &mut Vec<u8>) {
    push_head(kind, Some(&key.wallet), body);
    push(&(key.block.unwrap_or(BlockHash::all_zeros()), key.txid), body);
}

fn take_key(wallet: WalletId, from: &mut &[u8]) -> Option<Key> {
    let (block, txid) = take(from)?;
    let block = Some(block).filter(|block| *block != BlockHash::all_zeros());
    Some(Key { wallet, block, txid })
}

/// Appends a hit.
///
/// ```text
/// optional place: height u32, block 32, index u32 | optional header 80 | transaction
/// | evidence u8 | why u8 | peer, or an empty text
/// | outputs u32, for each: vout u32 | value u64 | owner
/// | inputs u32, for each: vin u32 | outpoint 36 | certain u8 | optional owner
/// owner: item u32 | optional path u32 | optional index u32 | optional script
/// ```
fn push_hit(hit: &Hit, body: &mut Vec<u8>) {
    let place = hit.place.map(|TxPosition { block, index }| (block.height, block.hash, index));
    push_optional(place.as_ref(), body);
    push_optional(hit.header.as_ref(), body);
    push(&hit.transaction, body);
    let evidence: u8 = match hit.evidence {
        InclusionEvidence::Block => 0,
        InclusionEvidence::MerkleProof => 1,
        InclusionEvidence::Unconfirmed => 2,
    };
    let why: u8 = match hit.why {
        HitReason::Matched => 0,
        HitReason::Disputed => 1,
        HitReason::SpotAudit => 2,
        HitReason::FilteredBlock => 3,
        HitReason::Relayed => 4,
    };
    push(&(evidence, why), body);
    push(hit.peer.as_ref().unwrap_or(&String::new()), body);
    push_count(hit.received.len(), body);
    for received in &hit.received {
        push(&(received.vout, received.value.to_sat()), body);
        push_owner(&received.owner, body);
    }
    push_count(hit.spent.len(), body);
    for spent in &hit.spent {
        push(&(spent.vin, spent.outpoint, spent.certain, spent.owner.is_some()), body);
        if let Some(owner) = &spent.owner {
            push_owner(owner, body);
        }
    }
}

fn take_hit(from: &mut &[u8]) -> Option<Hit> {
    let place = take_optional(from)?;
    let place =
        place.map(|(height, hash, index)| TxPosition { block: BlockAt { height, hash }, index });
    let header = take_optional(from)?;
    let transaction: Transaction = take(from)?;
    let evidence = match take(from)? {
        0u8 => InclusionEvidence::Block,
        1 => InclusionEvidence::MerkleProof,
        2 => InclusionEvidence::Unconfirmed,
        _ => return None,
    };
    let why = match take(from)? {
        0u8 => HitReason::Matched,
        1 => HitReason::Disputed,
        2 => HitReason::SpotAudit,
        3 => HitReason::FilteredBlock,
        4 => HitReason::Relayed,
        _ => return None,
    };
    let peer = Some(take(from)?).filter(|peer: &String| !peer.is_empty());
    let mut received = Vec::new();
    for _ in 0..take::<u32>(from)? {
        let (vout, value) = take(from)?;
        received.push(OwnedOutput {
            vout,
            value: Amount::from_sat(value),
            owner: take_owner(from)?,
        });
    }
    let mut spent = Vec::new();
    for _ in 0..take::<u32>(from)? {
        let (vin, outpoint, certain, is_owned) = take(from)?;
        let owner = if is_owned { Some(take_owner(from)?) } else { None };
        spent.push(OwnedSpend { vin, outpoint, owner, certain });
    }
    let txid = transaction.compute_txid();
    Some(Hit { txid, transaction, place, header, received, spent, evidence, why, peer })
}

fn push_owner(owner: &Owner, body: &mut Vec<u8>) {
    push(&owner.item, body);
    push_optional(owner.path.as_ref(), body);
    push_optional(owner.index.as_ref(), body);
    push_optional(owner.script.as_ref(), body);
}

fn take_owner(from: &mut &[u8]) -> Option<Owner> {
    let (item, path) = (take(from)?, take_optional(from)?);
    let (index, script) = (take_optional(from)?, take_optional(from)?);
    Some(Owner { item, path, index, script })
}
