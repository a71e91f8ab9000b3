//! Properties of Ethereum's blooms and queries.

use alloy_primitives::{Address, B256, Bloom, Bytes, Log};
use chainsieve::eth::bloom::{self, BloomAnswer, BloomView};
use chainsieve::eth::log_query::{LogQuery, Semantics, TopicSet};
use chainsieve::eth::scan;
use chainsieve::simd::Backend;
use proptest::collection::vec;
use proptest::prelude::*;

/// Draws one of few values, so that queries match often.
fn value() -> impl Strategy<Value = u8> {
    0..6_u8
}

fn log() -> impl Strategy<Value = Log> {
    (value(), vec(value(), 0..=4)).prop_map(|(address, topics)| {
        let topics = topics.into_iter().map(B256::repeat_byte).collect();
        Log::new_unchecked(Address::repeat_byte(address), topics, Bytes::new())
    })
}

fn query() -> impl Strategy<Value = LogQuery> {
    (vec(value(), 0..4), vec(vec(value(), 0..4), 0..=4)).prop_map(|(addresses, positions)| {
        let query = LogQuery::new().addresses(addresses.into_iter().map(Address::repeat_byte));
        let sets = positions
            .into_iter()
            .map(|set| set.into_iter().map(B256::repeat_byte).collect::<TopicSet>());
        sets.enumerate().fold(query, |query, (position, set)| match position {
            0 => query.topic0(set),
            1 => query.topic1(set),
            2 => query.topic2(set),
            _ => query.topic3(set),
        })
    })
}

fn filter(logs: &[Log]) -> [u8; 256] {
    let mut bits = [0; 256];
    bloom::accrue_logs(&mut bits, logs);
    bits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_was_put_in_is_never_denied(values in vec(vec(any::<u8>(), 0..50), 0..60)) {
        let mut bits = [0; 256];
        let mut rival = Bloom::ZERO;
        let mut before = bits;
        for value in &values {
            bloom::accrue_value(&mut bits, value);
            rival.accrue(alloy_primitives::BloomInput::Raw(value));
            prop_assert!(bloom::covers(&bits, &before));
            before = bits;
        }
        prop_assert_eq!(Bloom::from(bits), rival);
        for value in &values {
            let positions = bloom::positions(value);
            prop_assert!(bloom::contains(&bits, &positions));
            prop_assert!(BloomView::from(&bits).answer(&positions).is_candidate());
        }
        let ones = bits.iter().map(|byte| byte.count_ones()).sum::<u32>();
        prop_assert_eq!(bloom::count_ones(&bits), ones);
        prop_assert!(ones as usize <= 3 * values.len());
    }

    /// A bloom of another length, or with every bit set, rules out nothing for any query.
    #[test]
    fn what_says_nothing_denies_nothing(bytes in vec(any::<u8>(), 0..600), query in query()) {
        let full = [0xff; 256];
        for bytes in [&bytes[..], &full, &full[1..], &[]] {
            let view = BloomView::from_wire(bytes);
            let length_is_right = bytes.len() == 256;
            prop_assert_eq!(view.bytes().is_some(), length_is_right);
            if length_is_right && bytes != full {
                continue;
            }
            let value = bloom::positions(bytes);
            prop_assert_eq!(view.answer(&value), BloomAnswer::NoInformation);
            prop_assert_eq!(view.informative(), None);
            let compiled = query.compile();
            prop_assert_eq!(compiled.answer(view), BloomAnswer::NoInformation);
        }
    }

    #[test]
    fn a_union_covers_its_parts_and_nothing_less(a in vec(log(), 0..8), b in vec(log(), 0..8)) {
        let (of_a, of_b) = (filter(&a), filter(&b));
        let mut union = of_a;
        bloom::accrue_bloom(&mut union, &of_b);
        prop_assert_eq!(union, filter(&[a, b].concat()));
        prop_assert!(bloom::covers(&union, &of_a) && bloom::covers(&union, &of_b));
        prop_assert_eq!(bloom::covers(&of_a, &union), of_a == union);
        for byte in 0..256 {
            prop_assert_eq!(union[byte], of_a[byte] | of_b[byte]);
        }
    }

    /// If a query matches a log under either rule, the log's block is a candidate on every backend.
    #[test]
    fn no_wanted_log_is_lost(logs in vec(log(), 0..12), query in query()) {
        let bits = filter(&logs);
        let wanted = logs.iter().any(|log| {
            query.matches(log, Semantics::Geth) || query.matches(log, Semantics::Alloy)
        });
        let compiled = query.compile();
        let answer = compiled.answer(&bits);
        prop_assert!(!wanted || answer == BloomAnswer::Maybe, "{query:?}: {answer:?}");
        let blooms = vec![bits; 70];
        for backend in Backend::available() {
            let found = scan::candidates_on(backend, &compiled, &blooms).len();
            prop_assert_eq!(found, if answer.is_candidate() { 70 } else { 0 });
        }
    }

    /// geth matches no log that alloy does not match. geth and alloy differ by the number of topics
    /// alone.
    #[test]
    fn geth_wants_a_part_of_what_alloy_wants(log in log(), query in query()) {
        let geth = query.matches(&log, Semantics::Geth);
        let alloy = query.matches(&log, Semantics::Alloy);
        let enough = log.topics().len() >= query.topics().len();
        prop_assert_eq!(geth, alloy && enough);
        prop_assert_eq!(query.depends_on_semantics(&log), geth != alloy);
        prop_assert!(geth == alloy || query.ends_in_any());
    }
}

/// Blooms of n random values, 400 for each n. The mean of the estimates is within 2 % of n, no
/// estimate is off by more than five standard deviations, and false positives are as frequent as
/// the fill predicts.
#[test]
fn estimates_and_false_answers_are_as_the_fill_says() {
    let mut rng = testkit::Rng::new(11);
    for n in [20_u32, 100, 400, 900] {
        let (mut sum, mut largest) = (0.0_f64, 0.0_f64);
        let (mut expected, mut passed) = (0.0, 0_u32);
        for _ in 0..400 {
            let mut bits = [0; 256];
            for _ in 0..n {
                bloom::accrue_value(&mut bits, &rng.bytes(20));
            }
            let ones = bloom::count_ones(&bits);
            let estimate = bloom::estimated_values(ones);
            sum += estimate;
            largest = largest.max((estimate - f64::from(n)).abs());
            for _ in 0..50 {
                expected += (f64::from(ones) / 2_048.0).powi(3);
                let absent = bloom::positions(&rng.bytes(32));
                passed += u32::from(bloom::contains(&bits, &absent));
            }
        }
        let mean = sum / 400.0 / f64::from(n);
        assert!((0.98..1.02).contains(&mean), "{n}: {mean}");
        // The variance of the estimate: (m/k²)(e^t − t − 1), t = kn/m.
        let t = 3.0 * f64::from(n) / 2_048.0;
        let deviation = (2_048.0 / 9.0 * (t.exp() - t - 1.0)).sqrt();
        assert!(largest < 5.0 * deviation, "{n}: {largest} of {deviation}");
        assert!(largest > 1.5 * deviation, "{n}: {largest} of {deviation}");
        let spread = 5.0 * f64::sqrt(expected) + 3.0;
        assert!((f64::from(passed) - expected).abs() < spread, "{n}: {passed} of {expected}");
    }
}

/// A bloom with every bit except one of a value's: the query for the value is
/// not a candidate, whatever the number of filters and of empty lanes beside them.
#[test]
fn a_single_clear_bit_is_a_no() {
    for count in 1..40_u8 {
        let value = bloom::positions(&[count; 20]);
        let mut bits = [0xff; 256];
        let position = usize::from(value[2]);
        bits[255 - position / 8] &= !(1 << (position % 8));
        let watch = LogQuery::new().address(Address::repeat_byte(count)).compile();
        for backend in Backend::available() {
            let blooms = vec![bits; usize::from(count)];
            assert!(
                scan::candidates_on(backend, &watch, &blooms).is_empty(),
                "{count} on {backend:?}"
            );
        }
    }
}
