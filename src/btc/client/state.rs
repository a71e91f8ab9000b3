//! The state file: the progress of a scan. With BIP157, the file contains the state of the filter
//! sync; with BIP37, the last answered block and some blocks before it. The journal contains the
//! items that the scan searches for. The state adds, for each descriptor, the next index to derive,
//! and for each item that must be searched for again, the lowest height.
//!
//! The state is one file, so that no part of the state is older than another part. Otherwise, a
//! filter could seem to have been matched against a script that was derived only later.
//!
//! ```text
//! "CSCS" | version 2 | protocol u8 | network magic 4 | journal events u64 | first u32 | again 5
//! | items u32, for each: name of the wallet (length u16) | hash 32 | next index u32 | again 5
//! | BIP37: tweak u32 | capacity u32 | blocks u32, for each: height u32, hash 32
//! | checksum 4: of everything so far | BIP157: `FilterSync::encode`
//! ```
//! Numbers are little-endian. `again` is a flag u8 (0 or 1) and a height u32: all heights from this
//! one on must be searched again, for one item or, in the head of the file, for all.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network};
use thiserror::Error;

use super::bytes::{checksum, number, push_text, take, text};
use super::{Protocol, WalletId};
use crate::btc::headers::HeaderChain;

const MAGIC: [u8; 4] = *b"CSCS";
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
    /// Number of elements that the filter is sized for.
    pub(super) capacity: u32,
    /// Height and hash of the last block up to which every block is answered, and of some blocks
    /// before it, in case of a reorganisation.
    pub(super) answered: Vec<(u32, BlockHash)>,
}

impl SavedBloom {
    /// Stores that every block up to `answered` is answered; `None`: no block is.
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
    /// The next index to derive; 0 for an item that is no descriptor.
    pub(super) next: u32,
    /// The lowest height that must be searched again; `None` if the search is complete.
    pub(super) todo: Option<u32>,
}

/// What a stored state contains about items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedItems {
    /// Number of events of the journal when the state was saved.
    pub(super) journal_events: u64,
    pub(super) items: BTreeMap<(WalletId, [u8; 32]), SavedItem>,
}

/// The stored state of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// The value of [`Hits::events`](super::hits::Hits::events) when this state was saved.
    pub(super) journal_events: u64,
    /// First height of the scan.
    pub(super) first: u32,
    /// The lowest height that must be searched again.
    pub(super) again: Option<u32>,
    /// Items whose progress their records do not tell, by wallet and hash of the item.
    pub(super) items: BTreeMap<(WalletId, [u8; 32]), SavedItem>,
    pub(super) bloom: SavedBloom,
    /// Encoded state of the filter sync; empty with BIP37.
    pub(super) filters: Vec<u8>,
}

impl Saved {
    pub(super) fn encode(&self, protocol: Protocol, network: Network) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, code(protocol)]);
        bytes.extend(network.magic().to_bytes());
        bytes.extend(self.journal_events.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        push_again(self.again, &mut bytes);
        push_count(self.items.len(), &mut bytes);
        for ((id, hash), SavedItem { next, todo }) in &self.items {
            push_text(&id.0, &mut bytes);
            bytes.extend(hash);
            bytes.extend(next.to_le_bytes());
            push_again(*todo, &mut bytes);
        }
        bytes.extend(self.bloom.tweak.to_le_bytes());
        bytes.extend(self.bloom.capacity.to_le_bytes());
        push_count(self.bloom.answered.len(), &mut bytes);
        for (height, hash) in &self.bloom.answered {
            bytes.extend(height.to_le_bytes());
            bytes.extend(hash.as_byte_array());
        }
        let sum = checksum(&bytes);
        bytes.extend(sum);
        bytes.extend(&self.filters);
        bytes
    }

    pub(super) fn decode(
        bytes: &[u8],
        protocol: Protocol,
        network: Network,
    ) -> Result<Self, RestoreError> {
        let damaged = RestoreError::Damaged(bytes.len());
        let mut rest = bytes.strip_prefix(&MAGIC).ok_or(damaged)?;
        match rest.first() {
            Some(&VERSION) => {}
            Some(&version) => return Err(RestoreError::Version(version)),
            None => return Err(damaged),
        }
        let (saved, kind) = read(&mut rest).ok_or(damaged)?;
        let length = bytes.len() - rest.len();
        let (sum, filters) = rest.split_first_chunk::<4>().ok_or(damaged)?;
        // The checksum covers everything before it. The filter state has a checksum of its own.
        if checksum(bytes.get(..length).unwrap_or_default()) != *sum {
            return Err(damaged);
        }
        // This check comes after the checksum, so that a damaged file is not reported as one of
        // another network.
        if kind != (code(protocol), network.magic().to_bytes()) {
            return Err(RestoreError::Other);
        }
        Ok(Self { filters: filters.to_vec(), ..saved })
    }
}

/// Reads the fields between the version and the checksum. Returns the state, and the protocol and
/// the network magic.
fn read(rest: &mut &[u8]) -> Option<(Saved, (u8, [u8; 4]))> {
    let [_, protocol] = take(rest)?;
    let magic = take(rest)?;
    let mut saved = Saved {
        journal_events: u64::from_le_bytes(take(rest)?),
        first: number(rest)?,
        ..Saved::default()
    };
    saved.again = again(rest)?;
    for _ in 0..number(rest)? {
        let (id, hash) = (WalletId(text(rest)?), take(rest)?);
        let (next, todo) = (number(rest)?, again(rest)?);
        saved.items.insert((id, hash), SavedItem { next, todo });
    }
    (saved.bloom.tweak, saved.bloom.capacity) = (number(rest)?, number(rest)?);
    for _ in 0..number(rest)? {
        let height = number(rest)?;
        saved.bloom.answered.push((height, BlockHash::from_byte_array(take(rest)?)));
    }
    Some((saved, (protocol, magic)))
}

/// Number of the protocol in the file.
fn code(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Bip157 => 0,
        Protocol::Bip37 => 1,
        Protocol::HeadersOnly => 2,
    }
}

fn push_again(height: Option<u32>, bytes: &mut Vec<u8>) {
    bytes.push(height.is_some().into());
    bytes.extend(height.unwrap_or(0).to_le_bytes());
}

/// Reads what [`push_again`] wrote. The outer `None` means that bytes are missing.
#[expect(clippy::option_option, reason = "missing, absent, or present")]
fn again(rest: &mut &[u8]) -> Option<Option<u32>> {
    let [is_some] = take(rest)?;
    let height = number(rest)?;
    Some((is_some == 1).then_some(height))
}

fn push_count(count: usize, bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
