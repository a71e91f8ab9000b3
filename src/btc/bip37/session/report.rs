//! The report of a session about its filter: how many foreign transactions match, when a new filter
//! should be loaded, and an estimate of what the filter reveals to an observer.

use core::fmt;

use crate::btc::bip37::BloomFilter;
use crate::btc::bip37::bloom_filter::powf;

/// Typical number of elements of a transaction that a filter tests, as a round number: the txid, a
/// push in each of two or three outputs, and an outpoint and perhaps two pushes in each of two
/// inputs.
pub const ELEMENTS_PER_TRANSACTION: f64 = 8.0;

/// Returns the expected fraction of foreign transactions that match a filter with the
/// false-positive rate `fpr` per element: 1 − (1 − `fpr`)^8, with 8 as
/// [`ELEMENTS_PER_TRANSACTION`]. An `fpr` outside of 0 to 1 is replaced by the nearer bound.
pub fn expected_match_rate(fpr: f64) -> f64 {
    1.0 - powf(1.0 - fpr.clamp(0.0, 1.0), ELEMENTS_PER_TRANSACTION)
}

/// Statistics of matches of foreign transactions since the filter was loaded.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MatchStats {
    /// Number of transactions in the answered blocks, as the node claims.
    pub transactions: u64,
    /// Number of matched transactions that are the wallet's.
    pub relevant: u64,
    /// Number of matched transactions that are not the wallet's. These transactions matched by
    /// chance, or the node chose to send them.
    pub false_positives: u64,
    /// The filter's false-positive rate per element when it was loaded.
    pub loaded_fpr: f64,
}

impl MatchStats {
    /// Returns the number of false positives per foreign transaction; 0 if there was no foreign
    /// transaction.
    #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
    pub fn observed_rate(&self) -> f64 {
        match self.transactions.saturating_sub(self.relevant) {
            0 => 0.0,
            foreign => self.false_positives as f64 / foreign as f64,
        }
    }
}

/// The statistics of the loaded filter, with a flag that is set once a new filter was advised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stats {
    pub(super) matches: MatchStats,
    is_refresh_advised: bool,
}

impl Stats {
    /// Returns the statistics of a newly loaded filter with this false-positive rate per element.
    pub(super) fn loaded(fpr: f64) -> Self {
        Self {
            matches: MatchStats {
                transactions: 0,
                relevant: 0,
                false_positives: 0,
                loaded_fpr: fpr,
            },
            is_refresh_advised: false,
        }
    }

    /// Returns the reason why a new filter should be loaded, at most once for each filter.
    ///
    /// `mirrored_fpr` is the false-positive rate of the mirror of the node's filter, `target` the
    /// rate of the policy.
    pub(super) fn advise(&mut self, mirrored_fpr: f64, target: f64) -> Option<RefreshReason> {
        let reason = self.reason(mirrored_fpr, target).filter(|_| !self.is_refresh_advised);
        self.is_refresh_advised |= reason.is_some();
        reason
    }

    fn reason(&self, mirrored_fpr: f64, target: f64) -> Option<RefreshReason> {
        let base = target.max(self.matches.loaded_fpr);
        let expected = expected_match_rate(base);
        let observed = self.matches.observed_rate();
        // Fewer than ten false positives are too small a sample, and a rate of at most ten times
        // the expected rate may be due to chance. If the false-positive rate of the mirror is more
        // than ten times the base rate, the filter is too full, whatever was observed.
        if self.matches.false_positives >= 10 && observed > 10.0 * expected {
            Some(RefreshReason::Observed { observed, expected })
        } else if mirrored_fpr > 10.0 * base {
            Some(RefreshReason::Filled { fpr: mirrored_fpr, loaded: base })
        } else {
            None
        }
    }
}

/// Reason why a new filter should be loaded. A session gives a reason at most once for each loaded
/// filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "reason", rename_all = "snake_case")
)]
pub enum RefreshReason {
    /// More foreign transactions match than the filter explains. Either the node has inserted many
    /// elements, or the node chooses what it sends. The session gives this reason if there are at
    /// least 10 false positives and their rate is more than 10 times the expected rate.
    Observed {
        /// Observed number of false positives per transaction that does not concern the wallet.
        observed: f64,
        /// Expected number of false positives per transaction that does not concern the wallet.
        expected: f64,
    },
    /// The outpoints that the node inserted have filled the filter: its false-positive rate is more
    /// than 10 times the rate at loading.
    Filled {
        /// Lower bound of the current false-positive rate per element.
        fpr: f64,
        /// The false-positive rate when the filter was loaded.
        loaded: f64,
    },
}

impl fmt::Display for RefreshReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed { observed, expected } => write!(
                f,
                "foreign transactions match at rate {observed:.2e}, expected {expected:.2e}"
            ),
            Self::Filled { fpr, loaded } => {
                write!(f, "the false-positive rate has grown from {loaded:.2e} to {fpr:.2e}")
            }
        }
    }
}

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
