//! What is known, as bytes to keep between runs.
//!
//! ```text
//! "CSFS" | version 1 | genesis answered u8 | network magic 4 | first height u32 | intervals u32
//! for each interval: heights u32 | peers u32 | heights vouched for u32 | hash of the last block 32
//!     for each height: filter hash 32 | state u8
//! checksum 4: of everything before, the first bytes of its double SHA-256
//! ```
//! Numbers are little-endian. An interval without heights is one that nobody was heard about, below
//! others; the hash of its last block is zeros. A state is the answer (0 none, 1 filter, 2 block, 3 not wanted), 4 if
//! no filter is evidence, 8 if the filter was audited.

use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::{BlockHash, Network};
use thiserror::Error;

use super::CHECKPOINT_INTERVAL;
use super::claims::Claims;
use super::interval::{Anonymous, Answer, Height, Interval, first_of};
use crate::btc::headers::HeaderChain;

const MAGIC: &[u8; 4] = b"CSFS";
const VERSION: u8 = 1;
const AMBIGUOUS: u8 = 4;
const AUDITED: u8 = 8;

/// Why a sync is not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Not what [`FilterSync::encode`](super::FilterSync::encode) writes, or damaged.
    #[error("damaged or no kept sync of filters: the checksum of {0} bytes is another")]
    Checksum(usize),
    /// Of a version that is not known.
    #[error("version {0}, known is {VERSION}")]
    Version(u8),
    /// Kept of another network.
    #[error("kept of another network")]
    Network,
    /// Kept from another height on.
    #[error("kept from height {kept} on, wanted from {wanted} on")]
    First {
        /// The first height kept.
        kept: u32,
        /// The first height of the configuration.
        wanted: u32,
    },
    /// The checksum is right, and the contents are none that are written.
    #[error("malformed at {0} bytes before the end")]
    Malformed(usize),
}

/// What is kept beside the claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) network: Network,
    pub(super) first: u32,
    pub(super) genesis_answered: bool,
}

/// What is kept, as bytes. Where a block is awaited, the height is kept as not answered: its filter is
/// handed over again, and matches again.
pub(super) fn encode(
    kept: Kept,
    claims: &Claims,
    is_awaited: impl Fn(u32) -> bool,
    chain: &HeaderChain,
) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([VERSION, u8::from(kept.genesis_answered)]);
    bytes.extend(kept.network.magic().to_bytes());
    let number = |count: usize| u32::try_from(count).expect("fewer than heights").to_le_bytes();
    // An interval whose last block has left the chain is of no use.
    let in_chain = claims.intervals().map_while(|(place, interval)| {
        let heights = u32::try_from(interval.heights().len()).expect("1,000 at most");
        let last = match heights.checked_sub(1) {
            Some(above) => chain.hash_at(first_of(place) + above)?,
            None => BlockHash::all_zeros(),
        };
        Some((place, interval, last))
    });
    let in_chain: Vec<_> = in_chain.collect();
    bytes.extend(kept.first.to_le_bytes());
    bytes.extend(number(in_chain.len()));
    for (place, interval, last) in in_chain {
        let agreement = claims.agreement(place);
        bytes.extend(number(interval.heights().len()));
        bytes.extend(agreement.peers.to_le_bytes());
        bytes.extend(number(agreement.heights));
        bytes.extend(last.as_byte_array());
        for (height, at) in (first_of(place)..).zip(interval.heights()) {
            bytes.extend(at.hash.as_byte_array());
            bytes.push(state(at, is_awaited(height)));
        }
    }
    bytes.extend(checksum(&bytes));
    bytes
}

fn state(at: &Height, is_awaited: bool) -> u8 {
    let answer = match at.answer {
        Answer::Unwanted => 3,
        _ if is_awaited => 0,
        Answer::None => 0,
        Answer::Filter => 1,
        Answer::Block => 2,
    };
    let flag = |is: bool, flag| if is { flag } else { 0 };
    answer | flag(at.ambiguous, AMBIGUOUS) | flag(at.audited, AUDITED)
}

/// Reads what was kept of a network: the intervals up to the first that has left the chain.
pub(super) fn decode(
    bytes: &[u8],
    network: Network,
    chain: &HeaderChain,
) -> Result<(Kept, Vec<Interval>), RestoreError> {
    let damaged = RestoreError::Checksum(bytes.len());
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(damaged)?;
    if !body.starts_with(MAGIC) || checksum(body) != *sum {
        return Err(damaged);
    }
    let mut rest = Rest(&body[MAGIC.len()..]);
    let [version, genesis_answered] = rest.take()?;
    if version != VERSION {
        return Err(RestoreError::Version(version));
    }
    if rest.take::<4>()? != network.magic().to_bytes() {
        return Err(RestoreError::Network);
    }
    let first = rest.number()?;
    let first_interval = Claims::new(first).first_interval();
    let mut intervals = Vec::new();
    let mut is_in_chain = true;
    for place in (first_interval..).take(rest.number()? as usize) {
        let (interval, last) = rest.interval()?;
        let heights = u32::try_from(interval.heights().len()).expect("1,000 at most");
        // Of an empty one, lower than what was wanted at first, nothing is known.
        if let Some(above) = heights.checked_sub(1) {
            is_in_chain &= chain.hash_at(first_of(place).saturating_add(above)) == Some(last);
        }
        if is_in_chain {
            intervals.push(interval);
        }
    }
    match rest.0.len() {
        0 => Ok((Kept { network, first, genesis_answered: genesis_answered == 1 }, intervals)),
        left => Err(RestoreError::Malformed(left)),
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash = sha256d::Hash::hash(bytes).to_byte_array();
    *hash.first_chunk().expect("32 bytes")
}

/// Bytes still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn malformed(&self) -> RestoreError {
        RestoreError::Malformed(self.0.len())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(|| self.malformed())?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u32, RestoreError> {
        self.take().map(u32::from_le_bytes)
    }

    fn interval(&mut self) -> Result<(Interval, BlockHash), RestoreError> {
        let (count, peers, vouched) = (self.number()?, self.number()?, self.number()?);
        let last = BlockHash::from_byte_array(self.take()?);
        if count > CHECKPOINT_INTERVAL || vouched > count {
            return Err(self.malformed());
        }
        let mut heights = Vec::new();
        for _ in 0..count {
            let hash = FilterHash::from_byte_array(self.take()?);
            let [state] = self.take()?;
            let answer = match state & 3 {
                0 => Answer::None,
                1 => Answer::Filter,
                2 => Answer::Block,
                _ => Answer::Unwanted,
            };
            let (ambiguous, audited) = (state & AMBIGUOUS != 0, state & AUDITED != 0);
            heights.push(Height { hash, answer, ambiguous, audited });
        }
        let earlier = Anonymous { peers, heights: vouched as usize };
        Ok((Interval::restored(heights, earlier), last))
    }
}
