//! Requests to providers of JSON-RPC: their limits, splitting of ranges, budgets, retries, and
//! comparison of answers.
//!
//! This module has no sockets and no clock; the package `chainsieve-provider` does the I/O.

mod limit;
mod windows;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::{Address, B256};

use crate::eth::log::LocatedLog;
use crate::steady_clock::SteadyClock;

pub use limit::Limit;
pub use windows::{WindowAction, WindowEvent, WindowSize, Windows};

/// The logs that only one of two answers contains.
///
/// Logs are compared by the fields that every node must return: block hash, log index, transaction
/// index, address, topics, data and `removed`. Timestamps and transaction hashes are ignored,
/// because nodes may omit them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Difference<'a> {
    /// The logs of the first answer that the second answer lacks, in the order of the first answer.
    pub only_first: Vec<&'a LocatedLog>,
    /// The logs of the second answer that the first answer lacks, in the order of the second
    /// answer.
    pub only_second: Vec<&'a LocatedLog>,
}

type Key<'a> = (B256, u64, u64, Address, &'a [B256], &'a [u8], bool);

fn key(log: &LocatedLog) -> Key<'_> {
    let LocatedLog { log: inner, block_hash, log_index, transaction_index, removed, .. } = log;
    let (topics, data) = (inner.topics(), inner.data.data.as_ref());
    (*block_hash, *log_index, *transaction_index, inner.address, topics, data, *removed)
}

fn only<'a>(these: &'a [LocatedLog], others: &'a [LocatedLog]) -> Vec<&'a LocatedLog> {
    // Count equal logs, so that a log that one answer repeats is reported as a difference.
    let mut left: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    for log in others {
        *left.entry(key(log)).or_default() += 1;
    }
    let is_new = |log: &&'a LocatedLog| match left.get_mut(&key(log)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(is_new).collect()
}

impl<'a> Difference<'a> {
    /// Compares two answers as multisets: a log that occurs more often in one answer is a
    /// difference.
    ///
    /// # Cost
    /// Makes O((n + m) · log(n + m)) comparisons for answers of n and m logs, and builds a map of
    /// each answer.
    pub fn new(first: &'a [LocatedLog], second: &'a [LocatedLog]) -> Self {
        Self { only_first: only(first, second), only_second: only(second, first) }
    }

    /// Returns `true` if both answers contain the same logs.
    pub fn is_empty(&self) -> bool {
        self.only_first.is_empty() && self.only_second.is_empty()
    }
}

/// Credits per second, and the cost of calls in credits. At most one second's worth of unused
/// credits is saved up.
///
/// A call costs one credit unless a [cost](Self::cost) is set for its method. So
/// `Budget::per_second(25.0)` allows 25 calls a second. To count the credits of a provider, set the
/// costs from the provider's price list.
///
/// `serde` writes an object with `per_second`, `default_cost` and `costs`. `costs` is an object
/// with the cost of each method. `default_cost` and `costs` may be missing.
///
/// ```
/// use core::time::Duration;
/// use chainsieve::eth::provider::{Budget, Spending};
/// // Costs from a provider's price list.
/// let budget = Budget::per_second(500.0).default_cost(80).cost("eth_getLogs", 255);
/// let mut spending = Spending::new(budget);
/// assert_eq!(spending.spend("eth_getLogs", 1, Duration::ZERO), Duration::ZERO);
/// assert_eq!(spending.spend("eth_getLogs", 1, Duration::ZERO), Duration::from_millis(20));
/// ```
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(from = "BudgetWire")]
pub struct Budget {
    per_second: f64,
    default_cost: u32,
    costs: BTreeMap<String, u32>,
}

/// A budget in its JSON form.
#[derive(serde::Deserialize)]
struct BudgetWire {
    per_second: f64,
    default_cost: Option<u32>,
    #[serde(default)]
    costs: BTreeMap<String, u32>,
}

impl From<BudgetWire> for Budget {
    fn from(wire: BudgetWire) -> Self {
        let budget = Self { costs: wire.costs, ..Self::per_second(wire.per_second) };
        match wire.default_cost {
            Some(credits) => budget.default_cost(credits),
            None => budget,
        }
    }
}

impl Budget {
    /// Creates a budget of `credits` per second. Zero, a negative number or NaN is replaced by the
    /// smallest positive number.
    pub fn per_second(credits: f64) -> Self {
        let per_second = if credits > 0.0 { credits } else { f64::MIN_POSITIVE };
        Self { per_second, default_cost: 1, costs: BTreeMap::new() }
    }

    /// Sets the cost of a call to a method, in credits.
    #[must_use]
    pub fn cost(mut self, method: impl Into<String>, credits: u32) -> Self {
        self.costs.insert(method.into(), credits);
        self
    }

    /// Sets the cost, in credits, of a call to a method without a [cost](Self::cost) of its own;
    /// the default is 1.
    #[must_use]
    pub fn default_cost(mut self, credits: u32) -> Self {
        self.default_cost = credits;
        self
    }

    /// Returns the cost of a call to this method, in credits.
    pub fn cost_of(&self, method: &str) -> u32 {
        self.costs.get(method).copied().unwrap_or(self.default_cost)
    }
}

/// Paces calls so that they stay within a [`Budget`].
#[derive(Debug, Clone, PartialEq)]
pub struct Spending {
    budget: Budget,
    /// Time at which the credits for all calls so far have been earned.
    paid_at: Duration,
    clock: SteadyClock,
}

impl Spending {
    /// Creates an account with one second's worth of credits.
    pub fn new(budget: Budget) -> Self {
        Self { budget, paid_at: Duration::ZERO, clock: SteadyClock::default() }
    }

    /// Spends the cost of calls; returns the time to wait before sending the calls.
    ///
    /// `now` is the [current time](crate#time). Calls that cost more than one second's
    /// worth of credits wait until the excess is earned.
    #[must_use]
    pub fn spend(&mut self, method: &str, calls: usize, now: Duration) -> Duration {
        const SECOND: Duration = Duration::from_secs(1);
        let now = self.clock.read(now);
        let cost = u64::from(self.budget.cost_of(method)).saturating_mul(calls as u64);
        #[expect(clippy::cast_precision_loss, reason = "an estimate of 53 bits")]
        let seconds = cost as f64 / self.budget.per_second;
        let earned_in = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // One second's worth of credits is available at `now`, unless earlier calls spent it. The
        // wait is the time in which the missing credits are earned.
        self.paid_at = self.paid_at.max(now).saturating_add(earned_in);
        self.paid_at.saturating_sub(now.saturating_add(SECOND))
    }
}

/// First wait; each wait after it is twice as long as the preceding one, up to `LONGEST_WAIT`. The
/// value is an estimate: a short failure costs little time, and a longer failure causes few
/// requests.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait if the provider asks for none. The value is an estimate: it limits how late a
/// request notices that the provider answers again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Longest wait that is granted when a provider asks for a wait: a hostile provider could ask for
/// hours.
const LONGEST_ASKED: Duration = Duration::from_secs(2 * 60);

/// Counts the attempts of one request and computes the waits between them.
///
/// ```
/// use core::time::Duration;
/// use chainsieve::eth::provider::Retry;
/// let mut retry = Retry::new(1);
/// // The provider asked for three seconds.
/// assert_eq!(retry.failed(Some(Duration::from_secs(3)), 0), Some(Duration::from_secs(3)));
/// assert_eq!(retry.failed(None, 0), None);
/// assert_eq!(retry.tries(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    retries: u32,
    failures: u32,
}

impl Retry {
    /// Allows at most `retries` attempts after the first.
    pub fn new(retries: u32) -> Self {
        Self { retries, failures: 0 }
    }

    /// Records a failed attempt; returns the wait before the next attempt, or `None` if no attempt
    /// is left.
    ///
    /// `asked` is the wait that the provider asks for; at most two minutes are granted. If `asked`
    /// is `None`, the wait starts at 250 ms and doubles each time, up to 15 s. Half of the wait is
    /// random, so that many clients do not return at once. `random` must be a uniformly distributed
    /// random number.
    #[must_use]
    pub fn failed(&mut self, asked: Option<Duration>, random: u32) -> Option<Duration> {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        if before >= self.retries {
            return None;
        }
        // The wait that the provider asks for replaces the back-off.
        if let Some(asked) = asked {
            return Some(asked.min(LONGEST_ASKED));
        }
        let factor = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
        let half = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT) / 2;
        Some(half + half.mul_f64(f64::from(random) / f64::from(u32::MAX)))
    }

    /// Returns the number of failed attempts.
    pub fn tries(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod budget_tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Calls are sent exactly when allowed. In any period, their cost is then at most the sum
        /// of the credits that are earned in the period and the larger of two amounts: one second's
        /// worth of credits, and the cost of the period's first calls.
        #[test]
        fn no_period_costs_more_than_it_may(
            rate in 1_u32..500,
            calls in prop::collection::vec((0_u64..2_000, 1_usize..40, any::<bool>()), 1..60),
        ) {
            let budget = Budget::per_second(f64::from(rate)).cost("eth_getLogs", 3);
            let mut spending = Spending::new(budget);
            let mut now = Duration::ZERO;
            let mut sent = Vec::new();
            for (pause, calls, logs) in calls {
                now += Duration::from_millis(pause);
                let method = if logs { "eth_getLogs" } else { "eth_chainId" };
                now += spending.spend(method, calls, now);
                let cost = u32::try_from(calls).unwrap() * if logs { 3 } else { 1 };
                sent.push((now.as_secs_f64(), f64::from(cost)));
            }
            for (first, (from, first_cost)) in sent.iter().enumerate() {
                let mut total = 0.0;
                for (to, cost) in &sent[first..] {
                    total += cost;
                    let allowed = f64::from(rate) * (to - from) + first_cost.max(f64::from(rate));
                    prop_assert!(total <= allowed + 1e-6);
                }
            }
        }
    }

    #[test]
    fn no_number_is_too_strange() {
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            let mut spending = Spending::new(Budget::per_second(rate));
            assert!(spending.spend("eth_chainId", usize::MAX, Duration::MAX) <= Duration::MAX);
        }
        let mut spending = Spending::new(Budget::per_second(f64::INFINITY));
        assert_eq!(spending.spend("eth_chainId", usize::MAX, Duration::ZERO), Duration::ZERO);
    }
}

#[cfg(test)]
mod retry_tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end() {
        let mut retry = Retry::new(40);
        let mut waits = Vec::new();
        while let Some(wait) = retry.failed(None, u32::MAX) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..8], [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
        assert_eq!((waits.len(), waits[39], retry.tries()), (40, 15_000, 41));
        assert_eq!(Retry::new(1).failed(None, 0), Some(Duration::from_millis(125)));
        let asked = Some(Duration::from_secs(1_000_000));
        assert_eq!(Retry::new(1).failed(asked, 0), Some(Duration::from_secs(2 * 60)));
        assert_eq!(Retry::new(0).failed(None, 0), None);
    }
}
