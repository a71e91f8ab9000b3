//! Configuration of a filter sync.

use std::collections::BTreeMap;

use bitcoin::Network;
use bitcoin::bip158::FilterHeader;
use core::time::Duration;
use thiserror::Error;

use super::CHECKPOINT_INTERVAL;

/// Configuration of a [`FilterSync`](super::FilterSync).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The network, which determines the genesis block and the rules for blocks.
    pub network: Network,
    /// The first height whose filter is wanted: the wallet's birthday. Values above `i32::MAX`,
    /// which no block height reaches, are treated as `i32::MAX`.
    ///
    /// While the header chain begins above this height, nothing is requested
    /// ([`Finding::FirstUnknown`](super::Finding::FirstUnknown)).
    pub first: u32,
    /// Filter headers that the caller trusts, by height. A peer that claims another header is
    /// disconnected at once, and its claims are not compared.
    pub(super) checkpoints: BTreeMap<u32, FilterHeader>,
    /// Average number of blocks for each spot audit, which fetches one block to check its filter.
    /// The value 0 turns spot audits off. The seed determines which blocks are audited.
    pub spot_audits: u32,
    /// The last height wanted; `None` for all heights, including future ones. No height above the
    /// last one is requested or answered.
    pub last: Option<u32>,
    /// Seed for the choice of spot audits. The seed must be unknown to peers.
    pub seed: [u8; 16],
    /// Limits on memory, and the timeout.
    pub limits: Limits,
}

impl Config {
    /// Creates a configuration without checkpoints, with the default limits and one spot audit in
    /// 1,000 blocks.
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

    /// Adds a trusted filter header at `height`.
    ///
    /// # Errors
    /// Returns an error if `height` is 0 or not a multiple of 1,000, because `cfcheckpt` contains
    /// no other heights.
    pub fn trust(&mut self, height: u32, header: FilterHeader) -> Result<(), ConfigError> {
        if height == 0 || !height.is_multiple_of(CHECKPOINT_INTERVAL) {
            return Err(ConfigError::CheckpointHeight(height));
        }
        self.checkpoints.insert(height, header);
        Ok(())
    }
}

/// Reason why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The height of a checkpoint is not one of the heights in `cfcheckpt`.
    #[error("checkpoint at height {0}, only multiples of {CHECKPOINT_INTERVAL} are possible")]
    CheckpointHeight(u32),
}

/// Limits on the memory and on the waiting times of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connected peers; 8 by default.
    pub peers: usize,
    /// Maximum number of intervals of 1,000 blocks that are processed at a time; 4 by default. The
    /// filters of one interval are requested from one peer, so at most this many peers send filters
    /// at the same time.
    pub intervals: usize,
    /// Maximum number of blocks that are being fetched for disputes, spot audits and hits. With
    /// each of these blocks, one filter is kept, which has at most
    /// [`MAX_FILTER_SIZE`](super::MAX_FILTER_SIZE) bytes, usually about 20 kB. The default is 128,
    /// which bounds these filters to 38 MB.
    pub inspections: usize,
    /// Maximum number of blocks that are being fetched for disputes. For each of these blocks, up
    /// to two filters are kept for each peer that the limit `peers` allows, because peers that have
    /// left may have sent some of them. The default is 16, which bounds these filters to 77 MB with
    /// 8 peers.
    pub disputes: usize,
    /// Maximum total bytes of the filters of hits whose blocks are queued. A filter that exceeds
    /// the limit is dropped and fetched again. The default is 64 MiB.
    pub kept_bytes: usize,
    /// Time that an answer may take before other peers are asked; 30 s by default.
    ///
    /// If an answer has several filters or blocks, each of them may take one timeout after the
    /// previous one. All filters of an answer together may take one timeout, plus one for each 100
    /// filters. If blocks were requested before an answer, the answer may take one more timeout for
    /// each 8 of these blocks or for each 1 MB, whichever gives more time. A silent peer is
    /// disconnected after four timeouts, or after one if it owes a filter in a dispute.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: 8,
            // One request covers the filters of one interval, so four peers can send at once. With
            // a higher limit, the sync would only store claims further above the answered heights.
            intervals: 4,
            // The default is enough for two peers, each with the maximum of 64 blocks in flight.
            // 128 filters of at most 300 kB are 38 MB.
            inspections: 128,
            // The default bounds the memory for filters: 16 heights, two filters for each of 8
            // peers, and 300 kB for each filter make 77 MB.
            disputes: 16,
            // An estimate: enough for about 3,000 filters of 20 kB.
            kept_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}
