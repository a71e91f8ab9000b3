//! The journal file: an append-only sequence of records about hits.
//!
//! ```text
//! "CSHJ" | version 2
//! for each record: length u32 | checksum 4 | kind u8 | wallet: length u16, name | ...
//!   1 hit           height of the chain when it was found u32 | the hit (see below)
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
//! Numbers are little-endian. The checksum is the first 4 bytes of the double SHA-256 of the bytes
//! after it. A crash can leave the last record incomplete, so that such an end is cut off. Damage
//! before it is reported, and the file is kept as a copy.

use std::borrow::Cow;
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, BlockHash, OutPoint, ScriptBuf, Txid};

use super::bytes::{
    checksum, consensus, number, optional, push_consensus, push_optional, push_text, take, text,
};
use super::{Hit, HitReason, InclusionEvidence, OwnedOutput, OwnedSpend, Owner, WalletId};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::Place;

/// First bytes of the file.
pub(super) const MAGIC: [u8; 4] = *b"CSHJ";
/// Version of the format, the byte after [`MAGIC`].
pub(super) const VERSION: u8 = 2;
/// Bytes of the length and the checksum before each record.
const FRAME: usize = 8;

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
    /// Appends the encoded record to `bytes`.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            Self::Hit(wallet, height, hit) => {
                header(1, Some(wallet), &mut body);
                body.extend(height.to_le_bytes());
                encode_hit(hit, &mut body);
            }
            Self::Gone(height) => {
                header(2, None, &mut body);
                body.extend(height.to_le_bytes());
            }
            Self::Acknowledged(key) => {
                header(3, Some(&key.wallet), &mut body);
                encode_key(key, &mut body);
            }
            Self::Forgotten(wallet) => header(4, Some(wallet), &mut body),
            Self::Before(count) => {
                header(5, None, &mut body);
                body.extend(count.to_le_bytes());
            }
            Self::Withdrawn(wallet, hit) => {
                header(6, Some(wallet), &mut body);
                encode_hit(hit, &mut body);
            }
            Self::WithdrawalAcknowledged(key) => {
                header(7, Some(&key.wallet), &mut body);
                encode_key(key, &mut body);
            }
            Self::Item(wallet, ItemRecord { key, from, first_index }) => {
                header(8, Some(wallet), &mut body);
                body.extend(key);
                body.extend(from.to_le_bytes());
                body.extend(first_index.to_le_bytes());
            }
            Self::Dropped(key) => {
                header(10, Some(&key.wallet), &mut body);
                push_consensus(&key.txid, &mut body);
            }
            Self::Lost(height) => {
                header(9, None, &mut body);
                body.extend(height.to_le_bytes());
            }
        }
        let length = u32::try_from(body.len()).expect("a transaction is smaller than a block");
        bytes.extend(length.to_le_bytes());
        bytes.extend(checksum(&body));
        bytes.extend(body);
    }

    /// Removes the first record from `bytes` and decodes it. Returns `None` if the record is
    /// incomplete, damaged or of an unknown kind; `bytes` then stays as it is.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Record<'static>> {
        let (frame, rest) = bytes.split_first_chunk::<FRAME>()?;
        let [l0, l1, l2, l3, sum @ ..] = *frame;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
        if checksum(body) != sum {
            return None;
        }
        let from = &mut &*body;
        let [kind] = take(from)?;
        let wallet = WalletId(text(from)?);
        let record = match kind {
            1 => {
                let (height, hit) = (number(from)?, decode_hit(from)?);
                Record::Hit(Cow::Owned(wallet), height, Cow::Owned(hit))
            }
            2 => Record::Gone(number(from)?),
            3 => Record::Acknowledged(Cow::Owned(decode_key(wallet, from)?)),
            4 => Record::Forgotten(Cow::Owned(wallet)),
            5 => Record::Before(u64::from_le_bytes(take(from)?)),
            6 => Record::Withdrawn(Cow::Owned(wallet), Cow::Owned(decode_hit(from)?)),
            7 => Record::WithdrawalAcknowledged(Cow::Owned(decode_key(wallet, from)?)),
            8 => {
                let (key, height, first_index) = (take(from)?, number(from)?, number(from)?);
                let item = ItemRecord { key, from: height, first_index };
                Record::Item(Cow::Owned(wallet), item)
            }
            9 => Record::Lost(number(from)?),
            10 => Record::Dropped(Cow::Owned(Key { wallet, block: None, txid: consensus(from)? })),
            _ => return None,
        };
        // Trailing bytes within a record are malformed.
        if !from.is_empty() {
            return None;
        }
        *bytes = rest;
        Some(record)
    }
}

/// Appends the kind of the record and the name of its wallet, or an empty name if the record has no
/// wallet.
fn header(kind: u8, wallet: Option<&WalletId>, body: &mut Vec<u8>) {
    body.push(kind);
    push_text(wallet.map_or("", |wallet| &wallet.0), body);
}

/// Appends the block and the transaction of a key. For an unconfirmed transaction, the block hash
/// is all zeros.
fn encode_key(key: &Key, body: &mut Vec<u8>) {
    push_consensus(&key.block.unwrap_or(BlockHash::all_zeros()), body);
    push_consensus(&key.txid, body);
}

fn decode_key(wallet: WalletId, from: &mut &[u8]) -> Option<Key> {
    let block: BlockHash = consensus(from)?;
    let block = (block != BlockHash::all_zeros()).then_some(block);
    Some(Key { wallet, block, txid: consensus(from)? })
}

/// Appends a hit: optional height, block and index | optional header | transaction | evidence u8, why u8, peer |
/// outputs | inputs.
fn encode_hit(hit: &Hit, body: &mut Vec<u8>) {
    push_optional(hit.place.map(|place| place.block.height), body);
    if let Some(Place { block: at, index }) = hit.place {
        push_consensus(&at.hash, body);
        body.extend(index.to_le_bytes());
    }
    body.push(hit.header.is_some().into());
    if let Some(header) = &hit.header {
        push_consensus(header, body);
    }
    push_consensus(&hit.transaction, body);
    body.push(match hit.evidence {
        InclusionEvidence::Block => 0,
        InclusionEvidence::MerkleProof => 1,
        InclusionEvidence::Unconfirmed => 2,
    });
    body.push(match hit.why {
        HitReason::Matched => 0,
        HitReason::Disputed => 1,
        HitReason::SpotAudit => 2,
        HitReason::FilteredBlock => 3,
        HitReason::Relayed => 4,
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
            Some(Place { block: BlockAt { height, hash }, index: number(from)? })
        }
        None => None,
    };
    let header = match take(from)? {
        [0] => None,
        [1] => Some(consensus(from)?),
        _ => return None,
    };
    let transaction: bitcoin::Transaction = consensus(from)?;
    let evidence = match take(from)? {
        [0] => InclusionEvidence::Block,
        [1] => InclusionEvidence::MerkleProof,
        [2] => InclusionEvidence::Unconfirmed,
        _ => return None,
    };
    let why = match take(from)? {
        [0] => HitReason::Matched,
        [1] => HitReason::Disputed,
        [2] => HitReason::SpotAudit,
        [3] => HitReason::FilteredBlock,
        [4] => HitReason::Relayed,
        _ => return None,
    };
    let peer = Some(text(from)?).filter(|peer| !peer.is_empty());
    let mut received = Vec::new();
    for _ in 0..optional(from)?? {
        let vout = number(from)?;
        let value = Amount::from_sat(u64::from_le_bytes(take(from)?));
        received.push(OwnedOutput { vout, value, owner: decode_owner(from)? });
    }
    let mut spent = Vec::new();
    for _ in 0..optional(from)?? {
        let (vin, outpoint): (_, OutPoint) = (number(from)?, consensus(from)?);
        let [certain, is_owned] = take(from)?;
        let owner = if is_owned == 1 { Some(decode_owner(from)?) } else { None };
        spent.push(OwnedSpend { vin, outpoint, owner, certain: certain == 1 });
    }
    let txid = transaction.compute_txid();
    Some(Hit { txid, transaction, place, header, received, spent, evidence, why, peer })
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
