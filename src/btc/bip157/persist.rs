//! Serialised state of a sync, to be stored between runs.
//!
//! ```text
//! "CSFS" | version 2 | one record:
//!     genesis answered u8 | network magic 4 | first height u32 | intervals u32
//!     for each interval: heights u32 | peers u32 | heights vouched for u32 | hash of the last block 32
//!         for each height: filter hash 32 | state u8
//! ```
//! The encoding is that of [`records`]. An interval without heights has no
//! claims, its last block hash is all zeros, and intervals with heights follow it. The state of a
//! height is a sum: the answer (0 none, 1 filter, 2 block, 3 not wanted), plus 4 if no filter is
//! evidence, plus 8 if the filter was audited, plus 16 if the block was scanned.

use std::vec::Vec;

use bitcoin::consensus::encode::Decodable;
use bitcoin::hashes::Hash as _;
use bitcoin::{BlockHash, Network};
use thiserror::Error;

use super::CHECKPOINT_INTERVAL;
use super::claims::Claims;
use super::interval::{Anonymous, Height, HeightAnswer, Interval, first_of};
use crate::btc::headers::HeaderChain;
use crate::btc::records::{self, push, push_count, push_record};

const NAME: [u8; 4] = *b"CSFS";
/// Version of the format. Any other version is rejected, because its fields may differ.
const VERSION: u8 = 2;
/// Flag of a height's state: no filter is evidence about the height.
const AMBIGUOUS: u8 = 4;
/// Flag of a height's state: the filter equals the filter built from the block.
const AUDITED: u8 = 8;
/// Flag of a height's state: the block was handed to the caller.
const SCANNED: u8 = 16;

/// Reason why a sync cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "filters", rename_all = "snake_case")
)]
pub enum RestoreError {
    /// The bytes are not from [`FilterSync::encode`](super::FilterSync::encode), or they are
    /// damaged.
    #[error("not a stored filter sync, or damaged: the checksum of the {0} bytes does not match")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::length"))]
    Checksum(usize),
    /// The version is unknown.
    #[error("version {0}, the only known version is {VERSION}")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::version"))]
    Version(u8),
    /// The stored state belongs to another network.
    #[error("the stored state belongs to another network")]
    Network,
    /// The first height of the stored state differs from the first height of the configuration.
    #[error("the stored state begins at height {kept}, the configuration at {wanted}")]
    First {
        /// The first height of the stored state.
        kept: u32,
        /// The first height of the configuration.
        wanted: u32,
    },
    /// The checksum is correct, but the contents are malformed.
    #[error("malformed state, {0} bytes before its end")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::bytes"))]
    Malformed(usize),
}

/// All stored fields except the claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredSync {
    pub(super) network: Network,
    pub(super) first: u32,
    pub(super) genesis_answered: bool,
}

/// Encodes the state of a sync. A height whose block is awaited is stored as unanswered. After the
/// restore, its filter is handed over again and matches again.
pub(super) fn encode(
    kept: StoredSync,
    claims: &Claims,
    is_awaited: impl Fn(u32) -> bool,
    chain: &HeaderChain,
) -> Vec<u8> {
    let mut body = Vec::new();
    push(&(kept.genesis_answered, kept.network.magic().to_bytes(), kept.first), &mut body);
    // Claims about blocks that have left the chain are worthless. Encoding stops at the first
    // interval whose last block has left the chain.
    let in_chain = claims.intervals().map_while(|(place, interval)| {
        let heights = u32::try_from(interval.heights.len()).expect("1,000 at most");
        let last = match heights.checked_sub(1) {
            Some(above) => chain.hash_at(first_of(place) + above)?,
            None => BlockHash::all_zeros(),
        };
        Some((place, interval, last))
    });
    let in_chain: Vec<_> = in_chain.collect();
    push_count(in_chain.len(), &mut body);
    for (place, interval, last) in in_chain {
        let agreement = claims.agreement(place);
        push_count(interval.heights.len(), &mut body);
        push(&agreement.peers, &mut body);
        push_count(agreement.heights, &mut body);
        push(&last, &mut body);
        for (height, at) in (first_of(place)..).zip(&interval.heights) {
            push(&(at.hash, state(at, is_awaited(height))), &mut body);
        }
    }
    let mut bytes = records::start(NAME, VERSION).to_vec();
    push_record(body, &mut bytes);
    bytes
}

fn state(at: &Height, is_awaited: bool) -> u8 {
    let answer = match at.answer {
        HeightAnswer::Unwanted => 3,
        _ if is_awaited => 0,
        HeightAnswer::None => 0,
        HeightAnswer::Filter => 1,
        HeightAnswer::Block => 2,
    };
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let flags = flag(at.ambiguous, AMBIGUOUS) | flag(at.audited, AUDITED);
    answer | flags | flag(at.scanned, SCANNED)
}

/// Decodes the stored state for a network: the intervals before the first interval whose last block
/// has left the chain.
pub(super) fn decode(
    bytes: &[u8],
    network: Network,
    chain: &HeaderChain,
) -> Result<(StoredSync, Vec<Interval>), RestoreError> {
    let damaged = RestoreError::Checksum(bytes.len());
    let mut file = bytes.strip_prefix(&NAME).ok_or(damaged)?;
    match file.split_off_first() {
        Some(&VERSION) => {}
        Some(&version) => return Err(RestoreError::Version(version)),
        None => return Err(damaged),
    }
    let body = records::record(&mut file).filter(|_| file.is_empty()).ok_or(damaged)?;
    let mut rest = Rest(body);
    let (genesis_answered, magic): (_, [u8; 4]) = rest.take()?;
    if network.magic().to_bytes() != magic {
        return Err(RestoreError::Network);
    }
    let first = rest.take()?;
    let first_interval = Claims::new(first).first_interval;
    let mut intervals = Vec::new();
    let mut is_in_chain = true;
    // All intervals are decoded, including those that are dropped, so that malformed bytes are
    // always found.
    for place in (first_interval..).take(rest.take::<u32>()? as usize) {
        let (interval, last) = rest.interval()?;
        let heights = u32::try_from(interval.heights.len()).expect("1,000 at most");
        // An interval without claims has no last block. Such an interval was added by
        // `Event::Extend`.
        if let Some(above) = heights.checked_sub(1) {
            is_in_chain &= chain.hash_at(first_of(place).saturating_add(above)) == Some(last);
        }
        if is_in_chain {
            intervals.push(interval);
        }
    }
    match rest.0.len() {
        0 => Ok((StoredSync { network, first, genesis_answered }, intervals)),
        left => Err(RestoreError::Malformed(left)),
    }
}

/// The bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn malformed(&self) -> RestoreError {
        RestoreError::Malformed(self.0.len())
    }

    fn take<T: Decodable>(&mut self) -> Result<T, RestoreError> {
        records::take(&mut self.0).ok_or_else(|| self.malformed())
    }

    fn interval(&mut self) -> Result<(Interval, BlockHash), RestoreError> {
        let (count, peers, vouched, last): (u32, _, u32, _) = self.take()?;
        if count > CHECKPOINT_INTERVAL || vouched > count {
            return Err(self.malformed());
        }
        let mut heights = Vec::new();
        for _ in 0..count {
            let (hash, state): (_, u8) = self.take()?;
            let answer = match state & 3 {
                0 => HeightAnswer::None,
                1 => HeightAnswer::Filter,
                2 => HeightAnswer::Block,
                _ => HeightAnswer::Unwanted,
            };
            let (ambiguous, audited) = (state & AMBIGUOUS != 0, state & AUDITED != 0);
            let scanned = state & SCANNED != 0;
            // At other heights all claims were kept, or the filter was audited.
            let lost_claims = ambiguous || answer == HeightAnswer::Unwanted;
            heights.push(Height { hash, answer, ambiguous, audited, scanned, lost_claims });
        }
        let earlier = Anonymous { peers, heights: vouched as usize };
        Ok((Interval::restored(heights, earlier), last))
    }
}
