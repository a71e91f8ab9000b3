//! How a wallet's filter is made, and what that tells an observer.

use core::fmt;

use super::watch::WatchSet;
use crate::btc::bip37::sizing::powf;
use crate::btc::bip37::{BloomFilter, SizingError, UpdateMode};

/// How a wallet's filter is made.
///
/// Two filters of one wallet that differ in tweak or size have different false positives, so
/// that what matches both is the wallet. Keep `tweak` for good and restore `capacity` with it:
/// both belong into the wallet's file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPolicy {
    /// The random number of this wallet's filters.
    pub tweak: u32,
    /// The elements that the last filter had room for; 0 for a new wallet. It grows by
    /// [`spare`](Self::spare) beyond what is needed, and never shrinks.
    pub capacity: u32,
    /// The room to add when the capacity is exceeded.
    pub spare: u32,
    /// The false-positive rate of an element when the filter is full to its capacity.
    pub fpr: f64,
    /// What the node inserts when an output matches.
    pub update: UpdateMode,
    /// Whether to insert keys beside their hashes: P2PK outputs are then seen, and P2PKH spends
    /// without their outpoint. An observer can tell the wallet's own keys from false positives.
    pub insert_keys: bool,
    /// Whether to insert the null outpoint, so that every block's coinbase transaction matches
    /// and proves the height of its tree. It costs a transaction per block, and shows that the
    /// wallet is one of this kind.
    pub insert_null_outpoint: bool,
    /// Whether to send what is added as `filteradd` while there is room. It saves bandwidth and
    /// shows the node each element as it is; otherwise the whole filter is sent again.
    pub use_filteradd: bool,
}

impl FilterPolicy {
    /// The policy for a new wallet with this random number: a rate of 1 in 100,000, room for 100
    /// elements at a time, outpoints updated by the node, key hashes alone.
    pub fn new(tweak: u32) -> Self {
        Self {
            tweak,
            capacity: 0,
            spare: 100,
            fpr: 1e-5,
            update: UpdateMode::All,
            insert_keys: false,
            insert_null_outpoint: false,
            use_filteradd: false,
        }
    }

    /// Makes room for `elements`.
    pub(super) fn grow(&mut self, elements: u32) {
        if elements > self.capacity {
            self.capacity = elements.saturating_add(self.spare);
        }
    }

    /// The filter of everything watched.
    pub(super) fn build(&self, watch: &WatchSet) -> Result<BloomFilter, SizingError> {
        let mut filter = BloomFilter::new(self.capacity, self.fpr, self.tweak, self.update)?;
        for element in watch.elements() {
            filter.insert(element);
        }
        Ok(filter)
    }
}

/// Addresses with a balance, in round numbers: what false positives are drawn from.
pub const ADDRESS_POPULATION: f64 = 5e7;

/// The elements that a transaction shows a filter, in round numbers: its id, a push in each of
/// two or three outputs, and an outpoint and perhaps two pushes in each of two inputs.
pub const ELEMENTS_PER_TRANSACTION: f64 = 8.0;

/// The share of foreign transactions that a filter with this rate per element lets through.
pub fn expected_match_rate(fpr: f64) -> f64 {
    1.0 - powf(1.0 - fpr.clamp(0.0, 1.0), ELEMENTS_PER_TRANSACTION)
}

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
    pub(super) fn new(loaded_fpr: f64) -> Self {
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

    /// Whether the filter should be loaded afresh: `mirrored_fpr` is the rate of the node's
    /// filter as far as its insertions can be followed, `target` the policy's.
    ///
    /// At least ten false positives count as an observation; ten times the rate as drift.
    pub(super) fn refresh(&self, mirrored_fpr: f64, target: f64) -> Option<RefreshReason> {
        let base = target.max(self.loaded_fpr);
        let expected = expected_match_rate(base);
        let observed = self.observed_rate();
        if self.false_positives >= 10 && observed > 10.0 * expected {
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
