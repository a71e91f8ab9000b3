//! The rate at which requests are sent: a budget of calls or credits, and the waits between
//! attempts.

use std::collections::BTreeMap;
use std::time::Duration;

/// Credits per second, and the cost of calls in credits. At most one second's worth of unused
/// credits is saved up.
///
/// A call costs one credit unless a [cost](Self::cost) is set for its method. So
/// `Budget::per_second(25.0)` allows 25 calls a second. To count the credits of a provider, set the
/// costs from the provider's price list.
///
/// ```
/// use chainsieve_provider::Budget;
/// // Costs from a provider's price list.
/// let budget = Budget::per_second(500.0).default_cost(80).cost("eth_getLogs", 255);
/// assert_eq!((budget.cost_of("eth_getLogs"), budget.cost_of("eth_chainId")), (255, 80));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    per_second: f64,
    default_cost: u32,
    costs: BTreeMap<String, u32>,
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
#[derive(Debug)]
pub(super) struct Spending {
    budget: Budget,
    /// Time at which the credits for all calls so far have been earned.
    paid_at: Duration,
}

impl Spending {
    /// Creates an account with one second's worth of credits.
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, paid_at: Duration::ZERO }
    }

    /// Spends the cost of calls; returns the time to wait before sending the calls.
    ///
    /// `now` is the time since any fixed instant. Calls that cost more than one second's worth of
    /// credits wait until the excess is earned.
    #[must_use]
    pub(super) fn spend(&mut self, method: &str, calls: usize, now: Duration) -> Duration {
        const SECOND: Duration = Duration::from_secs(1);
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

/// First wait; each wait after it is twice as long as the preceding wait, up to `LONGEST_WAIT`. The
/// value is an estimate: a short failure costs little time, and a longer failure causes few
/// requests.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait if the provider asks for none. The value is an estimate: it limits how late a
/// request notices that the provider answers again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Longest wait that is accepted when a provider asks for one: a hostile provider could ask for
/// hours.
const LONGEST_ASKED: Duration = Duration::from_secs(2 * 60);

/// Counts the attempts of one request and computes the waits between them.
#[derive(Debug)]
pub(super) struct Retry {
    retries: u32,
    failures: u32,
}

impl Retry {
    /// Allows at most `retries` attempts after the first.
    pub(super) fn new(retries: u32) -> Self {
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
    pub(super) fn failed(&mut self, asked: Option<Duration>, random: u32) -> Option<Duration> {
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
    pub(super) fn tries(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls are sent exactly when allowed. In any period, their cost is then at most the sum of the
    /// credits that are earned in the period and the larger of two amounts: one second's worth of
    /// credits, and the cost of the period's first calls.
    #[test]
    fn no_period_costs_more_than_it_may() {
        let mut rng = testkit::Rng::new(25);
        for _ in 0..256 {
            let rate = 1.0 + f64::from(rng.u32() % 499);
            let mut spending = Spending::new(Budget::per_second(rate).cost("eth_getLogs", 3));
            let mut now = Duration::ZERO;
            let mut sent = Vec::new();
            for _ in 0..=rng.below(59) {
                now += Duration::from_millis(rng.u64() % 2_000);
                let calls = 1 + rng.u32() % 39;
                let (method, price) =
                    if rng.one_in(2) { ("eth_getLogs", 3) } else { ("eth_chainId", 1) };
                now += spending.spend(method, calls as usize, now);
                sent.push((now.as_secs_f64(), f64::from(calls * price)));
            }
            for (first, (from, first_cost)) in sent.iter().enumerate() {
                let mut total = 0.0;
                for (to, cost) in &sent[first..] {
                    total += cost;
                    let allowed = rate * (to - from) + first_cost.max(rate);
                    assert!(total <= allowed + 1e-6);
                }
            }
        }
    }

    #[test]
    fn one_second_of_credits_is_saved_up() {
        let budget = Budget::per_second(500.0).default_cost(80).cost("eth_getLogs", 255);
        let mut spending = Spending::new(budget);
        assert_eq!(spending.spend("eth_getLogs", 1, Duration::ZERO), Duration::ZERO);
        assert_eq!(spending.spend("eth_getLogs", 1, Duration::ZERO), Duration::from_millis(20));
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
        let asked = Some(Duration::from_secs(3));
        assert_eq!(Retry::new(1).failed(asked, 0), asked);
        let asked = Some(Duration::from_secs(1_000_000));
        assert_eq!(Retry::new(1).failed(asked, 0), Some(Duration::from_secs(2 * 60)));
        assert_eq!(Retry::new(0).failed(None, 0), None);
    }
}
