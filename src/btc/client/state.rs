//! The state file: the progress of a scan. With BIP157, the file contains the state of the filter
//! sync; with BIP37, the last answered block and some blocks before it. The journal contains the
//! items that the scan searches for. The state adds, for each descriptor, the next index to derive,
//! and for each item that must be searched for again, the lowest height.
//!
//! The state is one file, so that no part of the state is older than another part. Otherwise, a
//! filter could seem to have been matched against a script that was derived only later.
//!
//! ```text
//! "CSCS" | version 2 | one record:
//!     protocol u8 | network magic 4 | journal events u64 | first u32 | optional again u32
//!     | items u32, for each: name of the wallet | hash 32 | next index u32 | optional again u32
//!     | BIP37: tweak u32 | capacity u32 | blocks u32, for each: height u32, hash 32
//! BIP157: `FilterSync::encode`
//! ```
//! The encoding is that of [`records`]. `again` is a height: all heights from this height on must
//! be searched again: for one item, or, if the record is before the items, for all items.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::{BlockHash, Network};
use thiserror::Error;

use super::hits::Hits;
use super::journal::ItemRecord;
use super::wallets::KnownItem;
use super::{Protocol, WalletId};
use crate::btc::headers::HeaderChain;
use crate::btc::records::{
    self, push, push_count, push_optional, push_record, take, take_optional,
};

const NAME: [u8; 4] = *b"CSCS";
const VERSION: u8 = 2;

/// Reason why the stored state of a scan cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum RestoreError {
    /// The file is damaged or has another format. Contains its length in bytes.
    #[error("the stored scan state of {0} bytes is damaged or has another format")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::length"))]
    Damaged(usize),
    /// The file has an unknown format version.
    #[error("the stored scan state has version {0}, the supported version is {VERSION}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::version"))]
    Version(u8),
    /// The state belongs to another network or another protocol.
    #[error("the stored scan state belongs to another network or protocol")]
    Other,
    /// The stored state of the filter sync cannot be used.
    #[error(transparent)]
    Filters(#[from] crate::btc::bip157::RestoreError),
}

/// The part of the state that only BIP37 uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedBloom {
    /// Tweak of the filter, never changed: a peer can intersect two filters with different tweaks
    /// and so identify the wallet.
    pub(super) tweak: u32,
    /// Number of elements for which the filter is sized.
    pub(super) capacity: u32,
    /// Height and hash of the last block up to which every block is answered, and of some blocks
    /// before it, in case of a reorganisation.
    pub(super) answered: Vec<(u32, BlockHash)>,
}

impl SavedBloom {
    /// Records that every block up to `answered` is answered; `None` if no block is answered.
    pub(super) fn set_answered(&mut self, answered: Option<u32>, chain: &HeaderChain) {
        self.answered.clear();
        let (mut step, mut height) = (1, answered);
        while let Some(at) = height
            && let Some(hash) = chain.hash_at(at)
        {
            self.answered.push((at, hash));
            height = at.checked_sub(step);
            // As in a block locator of `getheaders`, the distances double after some entries. The
            // list stays short, and after a reorganisation one of its blocks is not far below the
            // fork.
            if self.answered.len() > 10 {
                step = step.saturating_mul(2);
            }
        }
    }

    /// Highest height up to which every block is answered, among blocks that are still in the
    /// chain.
    pub(super) fn answered_to(&self, chain: &HeaderChain) -> Option<u32> {
        let in_chain = |(height, hash): &&(u32, BlockHash)| chain.hash_at(*height) == Some(*hash);
        self.answered.iter().filter(in_chain).map(|(height, _)| *height).max()
    }
}

/// The progress of the search for one item, beyond its record in the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SavedItem {
    /// The next index to derive; 0 for an item that is not a descriptor.
    pub(super) next: u32,
    /// The lowest height that must be searched again; `None` if the search is complete.
    pub(super) todo: Option<u32>,
}

/// The data about items in a stored state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedItems {
    /// Number of events of the journal when the state was saved.
    pub(super) journal_events: u64,
    pub(super) items: BTreeMap<(WalletId, [u8; 32]), SavedItem>,
}

impl SavedItems {
    /// Returns what an earlier run has stored about an item: its record in the journal, and its
    /// progress in the state. `None` if the record is newer than the state, so that the state does
    /// not cover it.
    pub(super) fn known(&self, hits: &Hits, id: &WalletId, key: &[u8; 32]) -> Option<KnownItem> {
        let ItemRecord { from, first_index, .. } =
            hits.item_before(id, key, self.journal_events)?;
        let item = self.items.get(&(id.clone(), *key)).copied().unwrap_or_default();
        Some(KnownItem { from, todo: item.todo, indices: (first_index, item.next) })
    }
}

/// The stored state of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// The value of [`Hits::events`] when this state was saved.
    pub(super) journal_events: u64,
    /// First height of the scan.
    pub(super) first: u32,
    /// The lowest height that must be searched again.
    pub(super) again: Option<u32>,
    /// Items whose progress is not in their records, by wallet and hash of the item.
    pub(super) items: BTreeMap<(WalletId, [u8; 32]), SavedItem>,
    pub(super) bloom: SavedBloom,
    /// Encoded state of the filter sync; empty with BIP37.
    pub(super) filters: Vec<u8>,
}

impl Saved {
    pub(super) fn encode(&self, protocol: Protocol, network: Network) -> Vec<u8> {
        let mut body = Vec::new();
        push(&(code(protocol), network.magic().to_bytes()), &mut body);
        push(&(self.journal_events, self.first), &mut body);
        push_optional(self.again.as_ref(), &mut body);
        push_count(self.items.len(), &mut body);
        for ((id, hash), SavedItem { next, todo }) in &self.items {
            push(&id.0, &mut body);
            push(&(*hash, *next), &mut body);
            push_optional(todo.as_ref(), &mut body);
        }
        push(&(self.bloom.tweak, self.bloom.capacity), &mut body);
        push_count(self.bloom.answered.len(), &mut body);
        self.bloom.answered.iter().for_each(|block| push(block, &mut body));
        let mut file = records::start(NAME, VERSION).to_vec();
        push_record(body, &mut file);
        file.extend(&self.filters);
        file
    }

    pub(super) fn decode(
        file: &[u8],
        protocol: Protocol,
        network: Network,
    ) -> Result<Self, RestoreError> {
        let damaged = RestoreError::Damaged(file.len());
        let mut rest = file.strip_prefix(&NAME).ok_or(damaged)?;
        match rest.split_off_first() {
            Some(&VERSION) => {}
            Some(&version) => return Err(RestoreError::Version(version)),
            None => return Err(damaged),
        }
        // The state of the filter sync has a checksum of its own.
        let (saved, kind) = records::record(&mut rest).and_then(read).ok_or(damaged)?;
        // This check comes after the checksum, so that a damaged file is not reported as one of
        // another network.
        if kind != (code(protocol), network.magic().to_bytes()) {
            return Err(RestoreError::Other);
        }
        Ok(Self { filters: rest.to_vec(), ..saved })
    }
}

/// Reads the record. Returns the state, and the protocol and the network magic.
fn read(mut body: &[u8]) -> Option<(Saved, (u8, [u8; 4]))> {
    let from = &mut body;
    let kind = take(from)?;
    let (journal_events, first) = take(from)?;
    let mut saved =
        Saved { journal_events, first, again: take_optional(from)?, ..Saved::default() };
    for _ in 0..take::<u32>(from)? {
        let (id, hash) = (WalletId(take(from)?), take(from)?);
        let (next, todo) = (take(from)?, take_optional(from)?);
        saved.items.insert((id, hash), SavedItem { next, todo });
    }
    (saved.bloom.tweak, saved.bloom.capacity) = take(from)?;
    for _ in 0..take::<u32>(from)? {
        saved.bloom.answered.push(take(from)?);
    }
    from.is_empty().then_some((saved, kind))
}

/// Number of the protocol in the file.
fn code(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Bip157 => 0,
        Protocol::Bip37 => 1,
        Protocol::HeadersOnly => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btc::records::tests::laid_out;
    use bitcoin::hashes::Hash as _;

    #[test]
    fn the_format_is_the_documented_one() {
        // Signet's magic is 0a03cf40.
        let mut body = b"\x01\x0a\x03\xcf\x40\0\0\0\0\0\x01\0\0\x07\0\0\0\x01\0\0\0\0".to_vec();
        body.extend(b"\x02\0\0\0\0");
        body.extend([2; 32]);
        body.extend(b"\x02\0\0\0\0\x01a");
        body.extend([1; 32]);
        body.extend(b"\x01\0\0\0\x01\x09\0\0\0\x05\0\0\0\x06\0\0\0\x02\0\0\0\x09\0\0\0");
        body.extend([0; 32]);
        body.extend([8, 0, 0, 0]);
        body.extend(BlockHash::hash(&[1]).as_byte_array());
        let mut file = laid_out(*b"CSCS\x02", &[body]);
        file.extend([1, 2, 3]);
        assert_eq!(saved().encode(Protocol::Bip37, Network::Signet), file);
    }

    fn saved() -> Saved {
        let item = |byte: u8, todo| (([byte; 32]), SavedItem { next: byte.into(), todo });
        let [(a, one), (b, two)] = [item(1, Some(9)), item(2, None)];
        Saved {
            journal_events: 1 << 40,
            first: 7,
            again: Some(0),
            items: BTreeMap::from([(("a".into(), a), one), (("".into(), b), two)]),
            bloom: SavedBloom {
                tweak: 5,
                capacity: 6,
                answered: std::vec![(9, BlockHash::all_zeros()), (8, BlockHash::hash(&[1]))],
            },
            filters: std::vec![1, 2, 3],
        }
    }

    #[test]
    fn a_state_comes_back_whole_and_cut_or_turned_not_at_all() {
        let (protocol, network) = (Protocol::Bip157, Network::Signet);
        for again in [None, Some(0), Some(77)] {
            let saved = Saved { again, ..saved() };
            let bytes = saved.encode(protocol, network);
            assert_eq!(Saved::decode(&bytes, protocol, network), Ok(saved.clone()));
            let other = Err(RestoreError::Other);
            assert_eq!(Saved::decode(&bytes, Protocol::Bip37, network), other);
            assert_eq!(Saved::decode(&bytes, protocol, Network::Bitcoin), other);
            // The state of the filter sync has a checksum of its own.
            let own = bytes.len() - saved.filters.len();
            for length in 0..own {
                assert!(Saved::decode(&bytes[..length], protocol, network).is_err(), "{length}");
            }
            for place in 0..own {
                for bit in 0..8 {
                    let mut turned = bytes.clone();
                    turned[place] ^= 1 << bit;
                    let decoded = Saved::decode(&turned, protocol, network);
                    assert!(decoded.is_err(), "byte {place}, bit {bit}");
                }
            }
        }
    }
}
