//! How far a scan is, as bytes: what is known of filters or of blocks answered, and what of each
//! wallet was asked for. All in one file, so that no part is older than another: a filter that was
//! asked before an index was derived has not been asked for it.
//!
//! ```text
//! "CSCS" | version 1 | protocol u8 | network magic 4 | journal records u64 | first u32 | again 5
//! | wallets u32, for each: name (length u16) | digest 32 | first u32 | indices u32, each u32
//! | BIP37: tweak u32 | capacity u32 | blocks u32, for each: height u32, hash 32
//! | checksum 4: of everything so far | BIP157: `FilterSync::encode`
//! ```
//! Numbers are little-endian. `again` is 0 or 1 and a height u32.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network};
use thiserror::Error;

use super::bytes::{checksum, number, push_text, take, text};
use super::{Protocol, WalletId};
use crate::btc::headers::HeaderChain;

const MAGIC: [u8; 4] = *b"CSCS";
const VERSION: u8 = 1;

/// Why what was kept of a scan is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Damaged, or something else.
    #[error("not the state of a scan, or damaged: {0} bytes")]
    Damaged(usize),
    /// A version that is unknown here.
    #[error("version {0}, known is {VERSION}")]
    Version(u8),
    /// The state of another network or protocol.
    #[error("the state of a scan of another network or by another protocol")]
    Other,
    /// What is kept of the filters.
    #[error(transparent)]
    Filters(#[from] crate::btc::bip157::RestoreError),
}

/// What BIP37 keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedBloom {
    /// Kept for good: two filters of one wallet that differ in it give the wallet away.
    pub(super) tweak: u32,
    pub(super) capacity: u32,
    /// Blocks up to which everything is answered: the last, and some before it, for
    /// reorganisations.
    pub(super) answered: Vec<(u32, BlockHash)>,
}

impl SavedBloom {
    /// That everything is answered up to a height.
    pub(super) fn set_answered(&mut self, answered: Option<u32>, chain: &HeaderChain) {
        self.answered.clear();
        let (mut step, mut height) = (1, answered);
        while let Some(at) = height
            && let Some(hash) = chain.hash_at(at)
        {
            self.answered.push((at, hash));
            height = at.checked_sub(step);
            // As in a block locator of `getheaders`: few entries, and after a reorganisation one of
            // them is not far below the fork.
            if self.answered.len() > 10 {
                step = step.saturating_mul(2);
            }
        }
    }

    /// The height up to which everything is answered, of blocks that are still in the chain.
    pub(super) fn answered_to(&self, chain: &HeaderChain) -> Option<u32> {
        let in_chain = |(height, hash): &&(u32, BlockHash)| chain.hash_at(*height) == Some(*hash);
        self.answered.iter().filter(in_chain).map(|(height, _)| *height).max()
    }
}

/// What a wallet was looked for with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedWallet {
    /// What tells its items from others.
    pub(super) digest: [u8; 32],
    /// The first height that it wanted.
    pub(super) first: u32,
    /// The next index of each of its keychains.
    pub(super) next: Vec<u32>,
}

/// What is kept of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// The value of [`Hits::events`](super::hits::Hits::events) when this was saved.
    pub(super) journal_events: u64,
    pub(super) first: u32,
    /// The lowest height that is to be answered again.
    pub(super) again: Option<u32>,
    pub(super) wallets: BTreeMap<WalletId, SavedWallet>,
    pub(super) bloom: SavedBloom,
    /// What is known of the filters.
    pub(super) filters: Vec<u8>,
}

impl Saved {
    pub(super) fn encode(&self, protocol: Protocol, network: Network) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, code(protocol)]);
        bytes.extend(network.magic().to_bytes());
        bytes.extend(self.journal_events.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.push(self.again.is_some().into());
        bytes.extend(self.again.unwrap_or(0).to_le_bytes());
        push_count(self.wallets.len(), &mut bytes);
        for (id, SavedWallet { digest, first, next }) in &self.wallets {
            push_text(&id.0, &mut bytes);
            bytes.extend(digest);
            bytes.extend(first.to_le_bytes());
            push_count(next.len(), &mut bytes);
            bytes.extend(next.iter().flat_map(|next| next.to_le_bytes()));
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
        if checksum(bytes.get(..length).unwrap_or_default()) != *sum {
            return Err(damaged);
        }
        if kind != (code(protocol), network.magic().to_bytes()) {
            return Err(RestoreError::Other);
        }
        Ok(Self { filters: filters.to_vec(), ..saved })
    }
}

fn read(rest: &mut &[u8]) -> Option<(Saved, (u8, [u8; 4]))> {
    let [_, protocol] = take(rest)?;
    let magic = take(rest)?;
    let mut saved = Saved {
        journal_events: u64::from_le_bytes(take(rest)?),
        first: number(rest)?,
        ..Saved::default()
    };
    let [has_again] = take(rest)?;
    saved.again = Some(number(rest)?).filter(|_| has_again == 1);
    for _ in 0..number(rest)? {
        let id = WalletId(text(rest)?);
        let (digest, first) = (take(rest)?, number(rest)?);
        let next = (0..number(rest)?).map(|_| number(rest)).collect::<Option<_>>()?;
        saved.wallets.insert(id, SavedWallet { digest, first, next });
    }
    (saved.bloom.tweak, saved.bloom.capacity) = (number(rest)?, number(rest)?);
    for _ in 0..number(rest)? {
        let height = number(rest)?;
        saved.bloom.answered.push((height, BlockHash::from_byte_array(take(rest)?)));
    }
    Some((saved, (protocol, magic)))
}

fn code(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Bip157 => 0,
        Protocol::Bip37 => 1,
        Protocol::HeadersOnly => 2,
    }
}

fn push_count(count: usize, bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let wallet =
            |byte| SavedWallet { digest: [byte; 32], first: byte.into(), next: std::vec![3, 9] };
        Saved {
            journal_events: 1 << 40,
            first: 7,
            again: Some(0),
            wallets: BTreeMap::from([("a".into(), wallet(1)), ("".into(), wallet(2))]),
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
            // What is known of the filters has a checksum of its own.
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
