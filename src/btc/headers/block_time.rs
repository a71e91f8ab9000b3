//! The parameters of a chain of headers: its network, and on a custom signet also its block time.

use bitcoin::Network;

/// Block time in seconds at which the difficulty of the well-known networks aims: Core's
/// `nPowTargetSpacing`.
pub const BLOCK_TIME: u32 = 600;

/// Duration of a period in seconds if each block takes the block time, two weeks: Core's
/// `nPowTargetTimespan`.
const TIMESPAN: u32 = 14 * 24 * 60 * 60;

/// The network and the block time of a chain of headers. They determine the rules for its headers.
///
/// Only a custom signet may have another block time than 600 seconds: its nodes run with
/// `-signetblocktime`. A shorter block time makes the periods longer: the target of a chain with a
/// block time of 30 seconds changes every 40,320 blocks instead of every 2016 blocks.
///
/// A [`Network`] converts into its rules with a block time of 600 seconds.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::headers::{HeaderChain, HeaderRules};
///
/// // Mutinynet, a signet with a block every 30 seconds.
/// let rules = HeaderRules::new(Network::Signet, 30)?;
/// assert_eq!(rules.period(), 40_320);
/// let chain = HeaderChain::new(rules);
/// assert_eq!(chain.rules(), rules);
/// # Ok::<(), chainsieve::btc::headers::BlockTimeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderRules {
    network: Network,
    block_time: u32,
}

impl HeaderRules {
    /// Creates the rules of a chain of `network` whose difficulty aims at one block every
    /// `block_time` seconds.
    ///
    /// # Errors
    /// Returns a [`BlockTimeError`] if the network has a fixed block time, or if the block time is
    /// 0 or longer than two weeks.
    pub fn new(network: Network, block_time: u32) -> Result<Self, BlockTimeError> {
        if network != Network::Signet && block_time != BLOCK_TIME {
            return Err(BlockTimeError::Fixed { network, block_time });
        }
        // With a longer block time, a period would have no block.
        if !(1..=TIMESPAN).contains(&block_time) {
            return Err(BlockTimeError::Range { block_time });
        }
        Ok(Self { network, block_time })
    }

    /// Returns the network.
    pub fn network(self) -> Network {
        self.network
    }

    /// Returns the block time in seconds at which the difficulty aims.
    pub fn block_time(self) -> u32 {
        self.block_time
    }

    /// Returns the number of blocks between two changes of the target: Core's
    /// `DifficultyAdjustmentInterval`. On regtest, the target never changes.
    pub fn period(self) -> u32 {
        TIMESPAN / self.block_time
    }

    /// Returns `true` if `height` is the first height of a period.
    pub(super) fn starts_period(self, height: u32) -> bool {
        height.is_multiple_of(self.period())
    }
}

impl From<Network> for HeaderRules {
    fn from(network: Network) -> Self {
        Self { network, block_time: BLOCK_TIME }
    }
}

/// Reason why a chain cannot have a block time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockTimeError {
    /// The network has a fixed block time.
    #[error(
        "block time {block_time} s: on {network} it is {BLOCK_TIME} s, only a signet has another"
    )]
    Fixed {
        /// The network.
        network: Network,
        /// The block time that was given, in seconds.
        block_time: u32,
    },
    /// The block time is 0, or longer than two weeks.
    #[error("block time {block_time} s: a block time has 1 to {TIMESPAN} s")]
    Range {
        /// The block time that was given, in seconds.
        block_time: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signet_has_another_block_time() {
        let networks = [
            Network::Bitcoin,
            Network::Testnet,
            Network::Testnet4,
            Network::Signet,
            Network::Regtest,
        ];
        for network in networks {
            assert_eq!(HeaderRules::new(network, 600), Ok(network.into()));
            assert_eq!(HeaderRules::from(network).period(), 2016);
            let own = HeaderRules::new(network, 30);
            assert_eq!(own.is_ok(), network == Network::Signet, "{network}");
        }
        for (block_time, period) in
            [(1, 1_209_600), (30, 40_320), (60, 20_160), (700, 1_728), (1_209_600, 1)]
        {
            let rules = HeaderRules::new(Network::Signet, block_time).unwrap();
            assert_eq!((rules.period(), rules.block_time()), (period, block_time));
        }
        for block_time in [0, 1_209_601, u32::MAX] {
            let refused = Err(BlockTimeError::Range { block_time });
            assert_eq!(HeaderRules::new(Network::Signet, block_time), refused);
        }
    }
}
