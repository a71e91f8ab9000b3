//! What a sync is set up with.

use std::collections::BTreeMap;

use bitcoin::Network;
use bitcoin::bip158::FilterHeader;
use core::time::Duration;
use thiserror::Error;

use super::CHECKPOINT_INTERVAL;

/// Timeouts that an answer may take before its peer is disconnected.
pub const SILENT_TIMEOUTS: u32 = 4;

/// What a sync is set up with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The network, for the genesis block.
    pub network: Network,
    /// The first height whose filter is wanted: the wallet's birthday. One above `i32::MAX`, which
    /// no block has, counts as that.
    ///
    /// Where the chain of headers begins above it, nothing is asked
    /// ([`Finding::FirstUnknown`](super::Finding::FirstUnknown)).
    pub first: u32,
    /// Filter headers that the caller trusts, by height. Who differs is disconnected unheard.
    pub(super) checkpoints: BTreeMap<u32, FilterHeader>,
    /// One block in this many, on average, is fetched and its filter audited; 0 for none. The seed
    /// decides which.
    pub spot_audits: u32,
    /// The last height wanted; `None` for every height, those to come too. Nothing above it is asked
    /// or answered.
    pub last: Option<u32>,
    /// For the choice of spot audits. Peers must not know it.
    pub seed: [u8; 16],
    /// How much is kept, and how long is waited.
    pub limits: Limits,
}

impl Config {
    /// A configuration with no checkpoints, the usual limits and one spot audit in 1,000 blocks.
    pub fn new(network: Network, first: u32, seed: [u8; 16]) -> Self {
        Self {
            network,
            first,
            checkpoints: BTreeMap::new(),
            spot_audits: 1_000,
            last: None,
            seed,
            limits: Limits::default(),
        }
    }

    /// Trusts the filter header at `height`.
    ///
    /// # Errors
    /// A height that is no multiple of 1,000, since `cfcheckpt` has no headers of others.
    pub fn trust(&mut self, height: u32, header: FilterHeader) -> Result<(), ConfigError> {
        if height == 0 || !height.is_multiple_of(CHECKPOINT_INTERVAL) {
            return Err(ConfigError::CheckpointHeight(height));
        }
        self.checkpoints.insert(height, header);
        Ok(())
    }
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A checkpoint between those of `cfcheckpt`.
    #[error("a checkpoint at height {0}, they are at the multiples of {CHECKPOINT_INTERVAL}")]
    CheckpointHeight(u32),
}

/// How much a sync keeps, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Peers at a time.
    pub peers: usize,
    /// Intervals of 1,000 blocks that are worked on at a time.
    pub intervals: usize,
    /// Blocks that are fetched at a time for disputes, spot audits and hits. One filter is kept with
    /// each: at most [`MAX_FILTER_SIZE`](super::MAX_FILTER_SIZE) bytes, usually about 20 kB.
    pub inspections: usize,
    /// The most of these where peers claim different filters. With each, up to two filters per peer
    /// of the limit are kept, since some peers may have left.
    pub disputes: usize,
    /// Bytes of the filters of hits that are kept while their blocks wait to be fetched. A filter that
    /// exceeds it is dropped and fetched again.
    pub kept_bytes: usize,
    /// How long an answer may take before others are asked. Of several filters or blocks, each may
    /// take this long after the one before; all together may take one timeout, and one more for each
    /// 100 filters, 8 blocks or 1 MB of blocks that come first. A peer that sends nothing is
    /// disconnected after four timeouts, and after one if it owes a filter in a dispute.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: 8,
            // One request covers the filters of an interval, so that four peers send at once. More
            // would only keep claims further above what is answered.
            intervals: 4,
            // Two peers with the most blocks in flight, 64 each; 38 MB of filters at most.
            inspections: 128,
            // Bounds the filters: 16 heights, two for each of 8 peers, 300 kB each are 77 MB.
            disputes: 16,
            // An estimate: some 3,000 filters of 20 kB.
            kept_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}
