//! What is known, as bytes to keep between runs.
//!
//! ```text
//! "CSFS" | version 1 | genesis answered u8 | network magic 4 | first height u32 | intervals u32
//! for each interval: heights u32 | peers u32 | heights vouched for u32 | hash of the last block 32
//!     for each height: filter hash 32 | state u8
//! checksum 4: of everything before, the first bytes of its double SHA-256
//! ```
//! Numbers are little-endian. A state is the answer (0 none, 1 filter, 2 block, 3 not wanted), 4 if
//! no filter is evidence, 8 if the filter was audited.

use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::FilterHash;
use bitcoin::hashes::{Hash as _, sha256d};
use thiserror::Error;

use super::interval::{Answer, Earlier, Height, Interval, first_of};
use super::sync::FilterSync;
use super::{CHECKPOINT_INTERVAL, Config, Why};
use crate::btc::headers::HeaderChain;

const MAGIC: &[u8; 4] = b"CSFS";
const VERSION: u8 = 1;
const AMBIGUOUS: u8 = 4;
const AUDITED: u8 = 8;

/// Why a sync is not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Not what [`FilterSync::encode`] writes, or damaged.
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

impl FilterSync {
    /// Everything that is known of the filters, to be kept; some 33 bytes for each height.
    ///
    /// Heights with a hit whose block has not come yet are kept as not answered.
    pub fn encode(&self, chain: &HeaderChain) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, u8::from(self.genesis_answered)]);
        bytes.extend(self.config.network.magic().to_bytes());
        let number = |count: usize| u32::try_from(count).expect("fewer than heights").to_le_bytes();
        // An interval whose last block has left the chain is of no use.
        let intervals = (self.claims.first_interval..).zip(&self.claims.intervals);
        let in_chain = intervals.map_while(|(place, interval)| {
            let last =
                first_of(place) + u32::try_from(interval.heights.len().checked_sub(1)?).ok()?;
            Some((place, interval, chain.hash_at(last)?))
        });
        let in_chain: Vec<_> = in_chain.collect();
        bytes.extend(self.config.first.to_le_bytes());
        bytes.extend(number(in_chain.len()));
        for (place, interval, last) in in_chain {
            bytes.extend(number(interval.heights.len()));
            let (peers, heights) = self.claims.agreement(place);
            bytes.extend(u32::try_from(peers).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(number(heights));
            bytes.extend(last.as_byte_array());
            for (height, at) in (first_of(place)..).zip(&interval.heights) {
                bytes.extend(at.hash.as_byte_array());
                bytes.push(self.state(height, at));
            }
        }
        bytes.extend(checksum(&bytes));
        bytes
    }

    fn state(&self, height: u32, at: &Height) -> u8 {
        let open = self.inspections.get(&height).or_else(|| self.wanted.get(&height));
        let awaits_block = open.is_some_and(|open| open.why == Why::Matched);
        let answer = match at.answer {
            Answer::Unwanted => 3,
            _ if awaits_block => 0,
            Answer::None => 0,
            Answer::Filter => 1,
            Answer::Block => 2,
        };
        let flag = |is: bool, flag| if is { flag } else { 0 };
        answer | flag(at.ambiguous, AMBIGUOUS) | flag(at.audited, AUDITED)
    }

    /// A sync that goes on from what was kept.
    ///
    /// What blocks that have left the chain since say counts no more: such intervals of 1,000
    /// blocks are answered again. Peers of the run before count as such: that they agreed is
    /// known, and not who they are. Refuting one of their claims takes back all that only they
    /// vouched for.
    ///
    /// Not all that the caller was told needs to count still: what
    /// [`unanswered`](FilterSync::unanswered) lists counts as reopened.
    ///
    /// # Errors
    /// See [`RestoreError`]: start over with [`FilterSync::new`].
    pub fn restore(
        config: Config,
        chain: &HeaderChain,
        bytes: &[u8],
    ) -> Result<Self, RestoreError> {
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
        if rest.take::<4>()? != config.network.magic().to_bytes() {
            return Err(RestoreError::Network);
        }
        let (kept, wanted) = (rest.number()?, config.first);
        if kept != wanted {
            return Err(RestoreError::First { kept, wanted });
        }
        let mut sync = Self::new(config);
        sync.genesis_answered |= genesis_answered == 1;
        let mut is_in_chain = true;
        for place in (sync.claims.first_interval..).take(rest.number()? as usize) {
            let (interval, last) = rest.interval()?;
            let above = u32::try_from(interval.heights.len() - 1).expect("1,000 at most");
            is_in_chain &= chain.hash_at(first_of(place).saturating_add(above)) == Some(last);
            if is_in_chain {
                sync.take_interval(place, interval, chain);
            }
        }
        match rest.0.len() {
            0 => Ok(sync),
            left => Err(RestoreError::Malformed(left)),
        }
    }

    fn take_interval(&mut self, place: u32, interval: Interval, chain: &HeaderChain) {
        for (height, at) in (first_of(place)..).zip(&interval.heights) {
            if at.ambiguous
                && at.answer == Answer::None
                && let Some(hash) = chain.hash_at(height)
            {
                self.want(crate::btc::headers::BlockAt { height, hash });
            }
        }
        self.claims.intervals.push(interval);
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
        if !(1..=CHECKPOINT_INTERVAL).contains(&count) || vouched > count {
            return Err(self.malformed());
        }
        let mut interval = Interval::default();
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
            interval.heights.push(Height { hash, answer, ambiguous, audited });
        }
        let none = |at: &&Height| at.answer == Answer::None;
        interval.open = interval.heights.iter().filter(none).count();
        // As of peers that have left: what they were not asked for is claimed no more.
        let first_open = interval.heights.iter().position(|at| none(&at));
        let heights = first_open.unwrap_or(count as usize).min(vouched as usize);
        interval.earlier = Earlier { peers, heights };
        Ok((interval, last))
    }
}
