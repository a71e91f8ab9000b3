//! The rules of each network for the next header.

use bitcoin::block::Header;
use bitcoin::{BlockHash, CompactTarget, Network, Work};

use super::{BlockAt, HeaderRules};
use crate::btc::proof_of_work::ProofOfWorkError;

/// Number of block times whose median the next block's time must exceed: Core's `nMedianTimeSpan`.
pub(super) const MEDIAN_SPAN: u32 = 11;

/// Maximum number of seconds that a header's time may be ahead of the clock: Core's
/// `MAX_FUTURE_BLOCK_TIME`.
const MAX_FUTURE: u32 = 2 * 60 * 60;

/// Maximum number of seconds that the first block of a period may be earlier than its parent under
/// BIP94: Core's `MAX_TIMEWARP`.
const MAX_TIMEWARP: u32 = 600;

/// Reason why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The header has no valid proof of work for its own bits.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// The parent is unknown. The caller should request the headers before this one.
    #[error("the parent {parent} is unknown")]
    Orphan {
        /// The hash of the unknown parent.
        parent: BlockHash,
    },
    /// The header builds on a block below the trusted start, where no branch is accepted.
    #[error("builds on height {parent}, below the start at {start}")]
    BelowStart {
        /// The height of the parent.
        parent: u32,
        /// The height of the trusted start.
        start: u32,
    },
    /// The bits are not those that the network requires at this height.
    #[error("bits {bits:#010x} at height {height}, but the network requires {required:#010x}")]
    WrongBits {
        /// The height of the header.
        height: u32,
        /// The header's bits, in consensus encoding.
        bits: u32,
        /// The required bits, in consensus encoding.
        required: u32,
    },
    /// The time is not later than the median time of the eleven blocks before this block.
    #[error("time {time} at height {height} is not after the median time {median}")]
    TimeTooOld {
        /// The height of the header.
        height: u32,
        /// The header's time, in Unix seconds.
        time: u32,
        /// The median of the last eleven times, in Unix seconds.
        median: u32,
    },
    /// The first block of a period is more than 600 seconds earlier than its parent (BIP94).
    #[error("time {time} at height {height}, the first of a period, is before {earliest}")]
    TimeWarp {
        /// The height of the header.
        height: u32,
        /// The header's time, in Unix seconds.
        time: u32,
        /// The earliest allowed time, in Unix seconds.
        earliest: u32,
    },
    /// The time is more than two hours ahead of the clock. The header may become valid later.
    #[error("time {time} at height {height} is after {latest}, two hours from now")]
    TimeTooNew {
        /// The height of the header.
        height: u32,
        /// The header's time, in Unix seconds.
        time: u32,
        /// The latest allowed time, in Unix seconds.
        latest: u32,
    },
    /// The version is obsolete at this height.
    #[error("version {version} at height {height}, but at least {least} is required")]
    Version {
        /// The height of the header.
        height: u32,
        /// The header's version.
        version: i32,
        /// The lowest version allowed.
        least: i32,
    },
    /// The side branches are full, and the branch of this header is among those with the least
    /// work. The [module documentation](super) explains how a stronger branch is still accepted.
    #[error("no room for the side header at height {height}: the limit is {limit}")]
    SideBranchesFull {
        /// The height of the header.
        height: u32,
        /// The maximum number of side headers.
        limit: usize,
    },
}

/// Returns the bits that the next header must have: Core's `GetNextWorkRequired`.
///
/// `height`, and the time and bits in `last`, are those of the parent. `first` is the time and bits
/// of the first block of the parent's period. `time` is the time of the next header.
///
/// On the testnets, Core walks back to the last block that was not mined under the 20-minute rule.
/// This function uses the first block of the period instead: all later blocks of the period have
/// either the bits of the first block or the easiest bits.
fn required_bits(
    rules: HeaderRules,
    height: u32,
    last: (u32, CompactTarget),
    first: PeriodFirst,
    time: u32,
) -> CompactTarget {
    let network = rules.network();
    let params = network.params();
    let easiest = params.max_attainable_target.to_compact_lossy();
    // Regtest never changes its target.
    if params.no_pow_retargeting {
        return easiest;
    }
    // Inside a period the target does not change, except under the 20-minute rule of the testnets.
    if !rules.starts_period(height + 1) {
        let late = u64::from(time) > u64::from(last.0) + 2 * params.pow_target_spacing;
        return if params.allow_min_difficulty_blocks && late { easiest } else { first.1 };
    }
    // BIP94: the last block of a testnet4 period may have the easiest target, and the new target
    // must not be computed from the easiest target.
    let base = if is_bip94(network) { first.1 } else { last.1 };
    // Core's timespan can be negative. Core then raises the timespan to the minimum, a quarter of
    // the target timespan. `from_next_work_required` does the same.
    let timespan = u64::from(last.0.saturating_sub(first.0));
    CompactTarget::from_next_work_required(base, timespan, params)
}

/// Returns `true` if the network enforces BIP94: Core's `enforce_BIP94`.
fn is_bip94(network: Network) -> bool {
    matches!(network, Network::Testnet4)
}

/// Returns the lowest version that is not obsolete at `height`: 2, 3 and 4 from the heights at
/// which BIP34, BIP66 and BIP65 took effect.
///
/// Source: Core's `kernel/chainparams.cpp`. The `Params` of the `bitcoin` crate have older heights
/// for regtest.
fn least_version(network: Network, height: u32) -> i32 {
    let [bip34, bip66, bip65] = match network {
        Network::Bitcoin => [227_931, 363_725, 388_381],
        Network::Testnet => [21_111, 330_776, 581_885],
        Network::Testnet4 | Network::Signet | Network::Regtest => [1, 1, 1],
    };
    match height {
        _ if height >= bip65 => 4,
        _ if height >= bip66 => 3,
        _ if height >= bip34 => 2,
        _ => i32::MIN,
    }
}

/// Time and bits of the first block of a period.
pub(super) type PeriodFirst = (u32, CompactTarget);

/// The facts about a block that the rules for the next header need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Context {
    rules: HeaderRules,
    pub(super) at: BlockAt,
    /// The total work of the chain up to and including the block.
    pub(super) work: Work,
    time: u32,
    bits: CompactTarget,
    /// The work of a header with `bits`. Stored to avoid a division for each header.
    bits_work: Work,
    /// The times of the last eleven blocks, each at its height modulo 11.
    times: [u32; MEDIAN_SPAN as usize],
    /// Time and bits of the first block of the current period.
    pub(super) first: PeriodFirst,
}

impl Context {
    /// Creates the context of the block `at`.
    ///
    /// `back` yields the header of `at` and those before it, highest first: eleven headers, or all
    /// headers down to genesis. `first` is the first block of the period.
    pub(super) fn new<'a>(
        rules: HeaderRules,
        at: BlockAt,
        work: Work,
        back: impl Iterator<Item = &'a Header>,
        first: PeriodFirst,
    ) -> Self {
        let mut times = [0; MEDIAN_SPAN as usize];
        let mut back = back.take(MEDIAN_SPAN as usize).peekable();
        let last = *back.peek().expect("its own header comes first");
        for (height, header) in (0..=at.height).rev().zip(back) {
            times[(height % MEDIAN_SPAN) as usize] = header.time;
        }
        let (time, bits, bits_work) = (last.time, last.bits, last.work());
        Self { rules, at, work, time, bits, bits_work, times, first }
    }

    /// Returns the median of the last eleven times: Core's `GetMedianTimePast`.
    pub(super) fn median_time_past(&self) -> u32 {
        let mut times = self.times;
        // Below height 10, only the first `height + 1` slots contain times.
        median(&mut times[..self.at.height.saturating_add(1).min(MEDIAN_SPAN) as usize])
    }

    /// Checks the next header: Core's `ContextualCheckBlockHeader`.
    pub(super) fn check(&self, header: &Header, now: u32) -> Result<(), HeaderError> {
        let network = self.rules.network();
        let height = self.at.height + 1;
        let time = header.time;
        let last = (self.time, self.bits);
        let required = required_bits(self.rules, self.at.height, last, self.first, time);
        if header.bits != required {
            let (bits, required) = (header.bits.to_consensus(), required.to_consensus());
            return Err(HeaderError::WrongBits { height, bits, required });
        }
        // The order of the checks is that of Core.
        let median = self.median_time_past();
        if time <= median {
            return Err(HeaderError::TimeTooOld { height, time, median });
        }
        let earliest = self.time.saturating_sub(MAX_TIMEWARP);
        if is_bip94(network) && self.rules.starts_period(height) && time < earliest {
            return Err(HeaderError::TimeWarp { height, time, earliest });
        }
        let latest = now.saturating_add(MAX_FUTURE);
        if time > latest {
            return Err(HeaderError::TimeTooNew { height, time, latest });
        }
        let (version, least) = (header.version.to_consensus(), least_version(network, height));
        if version < least {
            return Err(HeaderError::Version { height, version, least });
        }
        Ok(())
    }

    /// Moves the context to `header`, the next header.
    pub(super) fn advance(&mut self, header: &Header, hash: BlockHash) {
        self.at = BlockAt { height: self.at.height + 1, hash };
        if header.bits != self.bits {
            self.bits = header.bits;
            self.bits_work = header.work();
        }
        self.work = self.work + self.bits_work;
        self.time = header.time;
        self.times[(self.at.height % MEDIAN_SPAN) as usize] = header.time;
        if self.rules.starts_period(self.at.height) {
            self.first = (header.time, header.bits);
        }
    }
}

/// Returns the median of the times. For an even number of times, the median is the later of the two
/// middle times.
pub(super) fn median(times: &mut [u32]) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests;
