//! Test of a number of false positives against an expected rate: the exact binomial distribution,
//! both tails.
#![expect(clippy::cast_precision_loss, reason = "counts become rates")]

/// Significance level: a correct rate fails the test once in a million runs.
const ALPHA: f64 = 1e-6;

/// Panics if the number of hits among `probes` does not fit the rate `fpr`. Too few hits fail as
/// well: a filter with a lower rate than theory allows does not work as described.
#[track_caller]
pub fn assert_rate(name: &str, fpr: f64, hits: u64, probes: u64) {
    let (at_most, at_least) = tails(fpr, hits, probes);
    let expected = fpr * probes as f64;
    assert!(
        2.0 * at_most.min(at_least) > ALPHA,
        "{name}: {hits} of {probes}, {expected:.1} expected by {fpr:.3e}: \
         P(at most) = {at_most:.2e}, P(at least) = {at_least:.2e}"
    );
}

/// Returns the probabilities of at most and of at least `hits` among `probes` at rate `p`.
fn tails(p: f64, hits: u64, probes: u64) -> (f64, f64) {
    assert!(p > 0.0 && p < 1.0 && hits <= probes && probes > 0, "p {p}, {hits} of {probes}");
    let (k, n) = (hits as f64, probes as f64);
    let ln_choose = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let at = (ln_choose + k * p.ln() + (n - k) * (-p).ln_1p()).exp();
    let odds = p / (1.0 - p);
    // One sum starts at `hits` and goes down, the other sum starts there and goes up. `ratio` gives
    // the factor between a term and the next term.
    let sum = |mut term: f64, ratio: &dyn Fn(f64) -> f64, step: f64| {
        let (mut total, mut i) = (term, k);
        loop {
            term *= ratio(i);
            i += step;
            total += term;
            let past_the_mode = (step > 0.0) == (i > n * p) || term == 0.0;
            if term <= total * 1e-17 && past_the_mode || i < 0.0 || i > n {
                return total.min(1.0);
            }
        }
    };
    let at_most = sum(at, &|i| i / (n - i + 1.0) / odds, -1.0);
    let at_least = sum(at, &|i| (n - i) / (i + 1.0) * odds, 1.0);
    (at_most, at_least)
}

#[test]
fn tails_are_those_of_tables() {
    let close = |(a, b): (f64, f64), (c, d): (f64, f64)| {
        assert!((a - c).abs() < 1e-9 && (b - d).abs() < 1e-9, "{a} {b}, not {c} {d}");
    };
    // Ten tosses of a coin: the probability of at most three heads is 176/1024, and the probability
    // of at least three heads is 968/1024.
    close(tails(0.5, 3, 10), (0.171_875, 0.945_312_5));
    close(tails(0.5, 0, 10), (1.0 / 1024.0, 1.0));
    close(tails(0.5, 10, 10), (1.0, 1.0 / 1024.0));
    // The probability of no hit is 0.999^1000, and the probability of at least one hit is 1 -
    // 0.999^1000.
    close(tails(0.001, 0, 1000), (0.367_695_424_770_964, 1.0));
    close(tails(0.001, 1, 1000), (0.735_758_913_030_187, 0.632_304_575_229_036));
}

#[test]
fn rates_that_do_not_fit_fail() {
    let fits = |hits| std::panic::catch_unwind(|| assert_rate("", 0.01, hits, 1_000_000)).is_ok();
    assert!(fits(10_000) && fits(10_300) && fits(9_700));
    assert!(!fits(10_600) && !fits(9_400) && !fits(0) && !fits(1_000_000));
}
