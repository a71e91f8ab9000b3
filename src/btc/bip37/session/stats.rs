//! Statistics of foreign transactions that match, and the decision when to advise a new filter.

use core::fmt;

use crate::btc::bip37::sizing::powf;

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
    fn new(loaded_fpr: f64) -> Self {
        Self { transactions: 0, relevant: 0, false_positives: 0, loaded_fpr }
    }

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
    matches: MatchStats,
    is_refresh_advised: bool,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self::loaded(0.0)
    }

    /// Returns the statistics of a newly loaded filter with this false-positive rate per element.
    pub(super) fn loaded(fpr: f64) -> Self {
        Self { matches: MatchStats::new(fpr), is_refresh_advised: false }
    }

    pub(super) fn matches(&self) -> &MatchStats {
        &self.matches
    }

    /// Adds a block with this many transactions, as the node claims.
    pub(super) fn count_block(&mut self, transactions: u32) {
        let counted = self.matches.transactions.saturating_add(transactions.into());
        self.matches.transactions = counted;
    }

    pub(super) fn count_relevant(&mut self) {
        self.matches.relevant += 1;
    }

    pub(super) fn count_false_positive(&mut self) {
        self.matches.false_positives += 1;
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
