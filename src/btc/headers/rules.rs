//! What the rules of a network ask of the next header.

use bitcoin::block::Header;
use bitcoin::{BlockHash, CompactTarget, Network, Work};

use super::BlockAt;
use crate::btc::proof_of_work::ProofOfWorkError;

/// How many times the median is taken of: Core's `nMedianTimeSpan`.
pub(super) const MEDIAN_SPAN: u32 = 11;

/// How far a header's time may be ahead of the clock, in seconds: Core's
/// `MAX_FUTURE_BLOCK_TIME`.
const MAX_FUTURE: u32 = 2 * 60 * 60;

/// How far the first block of a period may step back behind the block before, in seconds, under
/// BIP94: Core's `MAX_TIMEWARP`.
const MAX_TIMEWARP: u32 = 600;

/// Blocks between two changes of the target, on every network with such changes.
pub(super) const PERIOD: u32 = 2016;

/// Whether `height` is the first of a period.
pub(super) const fn starts_period(height: u32) -> bool {
    height.is_multiple_of(PERIOD)
}

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// No proof of work, under the header's own bits.
    #[error(transparent)]
    ProofOfWork(#[from] ProofOfWorkError),
    /// Builds on a header that is not known: ask for the headers before it.
    #[error("the parent {parent} is not known")]
    Orphan {
        /// The hash of the missing header.
        parent: BlockHash,
    },
    /// Builds on a block below the trusted start, which can't be left.
    #[error("builds on height {parent}, below the start at {start}")]
    BelowStart {
        /// The height of the parent.
        parent: u32,
        /// The height of the start.
        start: u32,
    },
    /// Not the bits that the network asks for at this height.
    #[error("bits {bits:#010x} at height {height}, required are {required:#010x}")]
    WrongBits {
        /// The height.
        height: u32,
        /// The header's bits.
        bits: u32,
        /// The required bits.
        required: u32,
    },
    /// Not later than the median time of the eleven blocks before.
    #[error("time {time} at height {height} is not after the median time {median}")]
    TimeTooOld {
        /// The height.
        height: u32,
        /// The header's time, Unix seconds.
        time: u32,
        /// The median, Unix seconds.
        median: u32,
    },
    /// The first block of a period is more than 600 seconds earlier than the block before
    /// (BIP94).
    #[error("time {time} at height {height}, where a period starts, is before {earliest}")]
    TimeWarp {
        /// The height.
        height: u32,
        /// The header's time, Unix seconds.
        time: u32,
        /// The earliest time allowed.
        earliest: u32,
    },
    /// More than two hours ahead of the clock. The header may be good later.
    #[error("time {time} at height {height} is after {latest}, two hours from now")]
    TimeTooNew {
        /// The height.
        height: u32,
        /// The header's time, Unix seconds.
        time: u32,
        /// The latest time allowed.
        latest: u32,
    },
    /// A version that is obsolete at this height.
    #[error("version {version} at height {height}, at least {least} is required")]
    Version {
        /// The height.
        height: u32,
        /// The header's version.
        version: i32,
        /// The lowest version allowed.
        least: i32,
    },
    /// A header of a weak branch, for which there is no room. The module's documentation says how
    /// a stronger branch gets in.
    #[error("no room for the side header at height {height}: the limit is {limit}")]
    SideBranchesFull {
        /// The height.
        height: u32,
        /// The number of side headers that are kept.
        limit: usize,
    },
}

/// The bits that a header with time `time` has to have behind a block at `height` with the time
/// and bits of `last`, in a period that began with the time and bits of `first`.
///
/// The answer of Core's `GetNextWorkRequired`. Where Core goes back to the last block that wasn't
/// mined under the 20-minute rule of the testnets, this takes the first of the period: within a
/// period all others have its bits, or the easiest.
fn required_bits(
    network: Network,
    height: u32,
    last: (u32, CompactTarget),
    first: PeriodFirst,
    time: u32,
) -> CompactTarget {
    let params = network.params();
    let easiest = params.max_attainable_target.to_compact_lossy();
    if params.no_pow_retargeting {
        return easiest;
    }
    if !starts_period(height + 1) {
        let late = u64::from(time) > u64::from(last.0) + 2 * params.pow_target_spacing;
        return if params.allow_min_difficulty_blocks && late { easiest } else { first.1 };
    }
    let base = if is_bip94(network) { first.1 } else { last.1 };
    // Core's timespan may be negative; it is raised to a quarter of the target's either way.
    let timespan = u64::from(last.0.saturating_sub(first.0));
    CompactTarget::from_next_work_required(base, timespan, params)
}

/// Core's `enforce_BIP94` of the network.
fn is_bip94(network: Network) -> bool {
    matches!(network, Network::Testnet4)
}

/// The lowest version that is not obsolete at `height`: 2, 3 and 4 from the heights on where
/// BIP34, BIP66 and BIP65 were buried, by `kernel/chainparams.cpp`. `bitcoin`'s `Params` has
/// older heights for regtest.
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

/// A block as the rules of the next header see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Context {
    pub(super) at: BlockAt,
    /// The work of the chain up to here.
    pub(super) work: Work,
    time: u32,
    bits: CompactTarget,
    /// The work of a header with `bits`: a division saved for each header.
    bits_work: Work,
    /// The last times, at their heights modulo 11.
    times: [u32; MEDIAN_SPAN as usize],
    /// Of the running period.
    pub(super) first: PeriodFirst,
}

impl Context {
    /// The context of the block `at` from its header and those before it, the latest first, eleven
    /// or down to genesis, and from the first block of the period.
    pub(super) fn new<'a>(
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
        Self { at, work, time: last.time, bits: last.bits, bits_work: last.work(), times, first }
    }

    /// Core's `GetMedianTimePast`.
    pub(super) fn median_time_past(&self) -> u32 {
        let mut times = self.times;
        // Below height 11 the times lie from 0 on.
        median(&mut times[..self.at.height.saturating_add(1).min(MEDIAN_SPAN) as usize])
    }

    /// Core's `ContextualCheckBlockHeader`.
    pub(super) fn check(
        &self,
        header: &Header,
        network: Network,
        now: u32,
    ) -> Result<(), HeaderError> {
        let height = self.at.height + 1;
        let time = header.time;
        let last = (self.time, self.bits);
        let required = required_bits(network, self.at.height, last, self.first, time);
        if header.bits != required {
            let (bits, required) = (header.bits.to_consensus(), required.to_consensus());
            return Err(HeaderError::WrongBits { height, bits, required });
        }
        let median = self.median_time_past();
        if time <= median {
            return Err(HeaderError::TimeTooOld { height, time, median });
        }
        let earliest = self.time.saturating_sub(MAX_TIMEWARP);
        if is_bip94(network) && starts_period(height) && time < earliest {
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

    /// The context of `header`, which comes next.
    pub(super) fn advance(&mut self, header: &Header, hash: BlockHash) {
        self.at = BlockAt { height: self.at.height + 1, hash };
        if header.bits != self.bits {
            self.bits = header.bits;
            self.bits_work = header.work();
        }
        self.work = self.work + self.bits_work;
        self.time = header.time;
        self.times[(self.at.height % MEDIAN_SPAN) as usize] = header.time;
        if starts_period(self.at.height) {
            self.first = (header.time, header.bits);
        }
    }
}

/// The time in the middle, the later one of two.
pub(super) fn median(times: &mut [u32]) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests;
