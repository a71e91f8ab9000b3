//! Estimate of what a wallet's filter reveals to an observer.

use core::fmt;

use crate::btc::bip37::BloomFilter;

/// Number of addresses with a balance, as a round number. False positives are assumed to be among
/// these addresses.
pub const ADDRESS_POPULATION: f64 = 5e7;

/// The information that a filter reveals to everyone who sees the filter.
///
/// The figures are estimates, not guarantees. An observer who knows more about the matching
/// addresses, for example which are spent together, can exclude most of the false positives.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PrivacyReport {
    /// Number of the wallet's keys and scripts. Scripts that push the same data, such as P2PKH and
    /// P2WPKH of one key, are counted as one.
    pub own: usize,
    /// Expected number of matching addresses that do not belong to the wallet.
    pub others: f64,
    /// `true` if this filter's size or tweak differs from the previous filter's. The wallet's
    /// addresses match both filters, and almost no other addresses do.
    pub parameters_changed: bool,
    /// `true` if public keys are inserted beside their hashes.
    pub keys_inserted: bool,
}

impl PrivacyReport {
    /// Smallest number of addresses that a filter should contain. If a filter contains fewer
    /// addresses, an observer can guess nearly all of them, with a probability of about 0.8
    /// (Gervais et al., "On the privacy provisions of Bloom filters in lightweight Bitcoin
    /// clients", 2014).
    pub const FEW_ADDRESSES: usize = 15;

    /// Returns the report for the `filter` of a wallet that has `own` addresses. `population` is
    /// the number of addresses that could match, for example [`ADDRESS_POPULATION`].
    ///
    /// [`others`](Self::others) is the filter's current false-positive rate times `population`. In
    /// `own`, scripts that push the same data, such as P2PKH and P2WPKH of one key, must be counted
    /// as one. The two flags of the report cannot be derived from a filter: both are `false`, and a
    /// caller that knows their values sets them.
    pub fn new(filter: &BloomFilter, own: usize, population: f64) -> Self {
        let others = filter.false_positive_rate() * population;
        Self { own, others, parameters_changed: false, keys_inserted: false }
    }

    /// Returns the fraction of the matching addresses that belong to the wallet.
    #[expect(clippy::cast_precision_loss, reason = "a share, not a count")]
    pub fn own_share(&self) -> f64 {
        let own = self.own as f64;
        if own + self.others > 0.0 { own / (own + self.others) } else { 0.0 }
    }
}

impl fmt::Display for PrivacyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addresses, verb) =
            if self.own == 1 { ("address", "matches") } else { ("addresses", "match") };
        write!(
            f,
            "{} {addresses} of the wallet {verb} this filter, and so do about {:.0} others",
            self.own, self.others
        )?;
        if self.own < Self::FEW_ADDRESSES {
            write!(
                f,
                "; with fewer than {} own addresses, an observer can guess nearly all of them",
                Self::FEW_ADDRESSES
            )?;
        }
        if self.keys_inserted {
            f.write_str("; public keys beside their hashes distinguish the wallet's addresses")?;
        }
        if self.parameters_changed {
            f.write_str(
                "; size or tweak changed: almost only the wallet's addresses match both filters",
            )?;
        }
        Ok(())
    }
}
