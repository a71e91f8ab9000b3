//! What a wallet's filter tells an observer.

use core::fmt;

use crate::btc::bip37::BloomFilter;

/// Addresses with a balance, in round numbers: what false positives are drawn from.
pub const ADDRESS_POPULATION: f64 = 5e7;

/// What a filter tells whoever sees it.
///
/// An honest figure, not a promise: who knows more about the addresses that match, say which
/// are spent together, rules most of them out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivacyReport {
    /// The wallet's keys and scripts; those that show the filter the same data, as P2PKH and
    /// P2WPKH of one key do, count once.
    pub own: usize,
    /// Addresses of others that are expected to match.
    pub others: f64,
    /// Whether this filter's size or tweak differs from the one before: what matches both is
    /// the wallet, and next to nothing else.
    pub parameters_changed: bool,
    /// Whether keys are inserted beside their hashes.
    pub keys_inserted: bool,
}

impl PrivacyReport {
    /// Addresses in one filter below which nearly all can be guessed, with probability of about
    /// 0.8 (Gervais et al., "On the privacy provisions of Bloom filters in lightweight Bitcoin
    /// clients", 2014).
    pub const FEW_ADDRESSES: usize = 15;

    /// What `filter` tells, where `population` is the number of addresses that could match, say
    /// [`ADDRESS_POPULATION`].
    pub fn new(filter: &BloomFilter, own: usize, population: f64) -> Self {
        let others = filter.false_positive_rate() * population;
        Self { own, others, parameters_changed: false, keys_inserted: false }
    }

    /// The share of the matching addresses that is the wallet's.
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
            "{} {addresses} of the wallet {verb} this filter, and about {:.0} of others",
            self.own, self.others
        )?;
        if self.own < Self::FEW_ADDRESSES {
            write!(
                f,
                "; with fewer than {} of its own, nearly all can be guessed",
                Self::FEW_ADDRESSES
            )?;
        }
        if self.keys_inserted {
            f.write_str("; keys beside their hashes tell the wallet's own from the others")?;
        }
        if self.parameters_changed {
            f.write_str(
                "; its size or tweak changed, and only the wallet's match the filter before too",
            )?;
        }
        Ok(())
    }
}
