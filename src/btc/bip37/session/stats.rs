//! How often foreign transactions match, and when that calls for a fresh filter.

use core::fmt;

use crate::btc::bip37::sizing::powf;

/// The elements that a transaction shows a filter, in round numbers: its id, a push in each of
/// two or three outputs, and an outpoint and perhaps two pushes in each of two inputs.
pub const ELEMENTS_PER_TRANSACTION: f64 = 8.0;

/// The share of foreign transactions that a filter with this rate per element lets through.
pub fn expected_match_rate(fpr: f64) -> f64 {
    1.0 - powf(1.0 - fpr.clamp(0.0, 1.0), ELEMENTS_PER_TRANSACTION)
}

/// How often foreign transactions matched since the filter was loaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatchStats {
    /// Transactions in the blocks answered, by the node's word.
    pub transactions: u64,
    /// Those that are the wallet's.
    pub relevant: u64,
    /// Those that matched by accident, or by the node's choice.
    pub false_positives: u64,
    /// The rate per element that the filter had when it was loaded.
    pub loaded_fpr: f64,
}

impl MatchStats {
    fn new(loaded_fpr: f64) -> Self {
        Self { transactions: 0, relevant: 0, false_positives: 0, loaded_fpr }
    }

    /// False positives per foreign transaction; 0 before the first.
    #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
    pub fn observed_rate(&self) -> f64 {
        match self.transactions.saturating_sub(self.relevant) {
            0 => 0.0,
            foreign => self.false_positives as f64 / foreign as f64,
        }
    }
}

/// The statistics of the filter that is loaded, and whether a fresh one was advised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stats {
    matches: MatchStats,
    is_refresh_advised: bool,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self::loaded(0.0)
    }

    /// The statistics of a filter that has just been loaded with this rate per element.
    pub(super) fn loaded(fpr: f64) -> Self {
        Self { matches: MatchStats::new(fpr), is_refresh_advised: false }
    }

    pub(super) fn matches(&self) -> &MatchStats {
        &self.matches
    }

    /// Counts a block with this many transactions, as the node claims.
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

    /// Why the filter should be loaded afresh, once for each filter: `mirrored_fpr` is the rate of
    /// the node's filter as far as its insertions can be followed, `target` the policy's.
    pub(super) fn advise(&mut self, mirrored_fpr: f64, target: f64) -> Option<RefreshReason> {
        let reason = self.reason(mirrored_fpr, target).filter(|_| !self.is_refresh_advised);
        self.is_refresh_advised |= reason.is_some();
        reason
    }

    fn reason(&self, mirrored_fpr: f64, target: f64) -> Option<RefreshReason> {
        let base = target.max(self.matches.loaded_fpr);
        let expected = expected_match_rate(base);
        let observed = self.matches.observed_rate();
        // Fewer than ten false positives are no observation, and less than ten times the rate
        // may be chance.
        if self.matches.false_positives >= 10 && observed > 10.0 * expected {
            Some(RefreshReason::Observed { observed, expected })
        } else if mirrored_fpr > 10.0 * base {
            Some(RefreshReason::Filled { fpr: mirrored_fpr, loaded: base })
        } else {
            None
        }
    }
}

/// Why a filter should be loaded afresh.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RefreshReason {
    /// More foreign transactions match than the filter explains: the node's filter has filled
    /// up, or the node picks what it sends.
    Observed {
        /// False positives per foreign transaction.
        observed: f64,
        /// The rate expected.
        expected: f64,
    },
    /// The outpoints that the node inserted have filled the filter up.
    Filled {
        /// The rate per element now, at least.
        fpr: f64,
        /// The rate when the filter was loaded.
        loaded: f64,
    },
}

impl fmt::Display for RefreshReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed { observed, expected } => write!(
                f,
                "{observed:.2e} of foreign transactions match, {expected:.2e} were expected"
            ),
            Self::Filled { fpr, loaded } => {
                write!(f, "the filter's rate has grown from {loaded:.2e} to {fpr:.2e}")
            }
        }
    }
}
