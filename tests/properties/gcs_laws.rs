//! Properties of Golomb-coded sets and of matching them, for random sets, queries and codings, on
//! every backend.

use chainsieve::btc::bip158::{
    Acceptance, DecodedFilter, GcsError, GcsFilter, GcsParams, Matcher, PreparedScripts, gcs,
};
use chainsieve::hash::SipKey;
use chainsieve::simd::Backend;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

type Element = Vec<u8>;

fn coding() -> impl Strategy<Value = (GcsParams, SipKey)> {
    let params =
        select(vec![(19, 784_931), (10, 1_024), (24, 16_777_259), (0, 2), (2, 5), (32, 9)]);
    let params = params.prop_map(|(p, m)| GcsParams::new(p, m).expect("parameters"));
    let key = (any::<u64>(), any::<u64>()).prop_map(|(k0, k1)| SipKey { k0, k1 });
    (params, key)
}

fn elements(most: usize) -> impl Strategy<Value = Vec<Element>> {
    vec(vec(any::<u8>(), 0..80), 0..most)
}

fn encode((params, key): (GcsParams, SipKey), elements: &[Element]) -> Vec<u8> {
    gcs::encode(params, key, elements.iter().map(Vec::as_slice)).expect("few")
}

fn parse((params, key): (GcsParams, SipKey), bytes: &[u8]) -> GcsFilter<'_> {
    GcsFilter::parse(params, key, bytes, Acceptance::Strict).expect("what was written")
}

/// Returns which of `scripts` match, and checks that all backends agree.
fn matching(filter: &GcsFilter<'_>, scripts: &[Element]) -> Vec<usize> {
    let scripts: PreparedScripts = scripts.iter().collect();
    let by_backend = Backend::available().map(|backend| {
        Matcher::new().with_backend(backend).matching(filter, &scripts).expect("a canonical set")
    });
    let by_backend: Vec<_> = by_backend.collect();
    assert!(by_backend.windows(2).all(|pair| pair[0] == pair[1]), "{by_backend:?}");
    by_backend.into_iter().next().expect("a backend")
}

fn any_and_all(filter: &GcsFilter<'_>, scripts: &[Element]) -> (bool, bool) {
    let scripts: PreparedScripts = scripts.iter().collect();
    let mut matcher = Matcher::new();
    let any = matcher.match_any(filter, &scripts).expect("a canonical set");
    (any, matcher.match_all(filter, &scripts).expect("a canonical set"))
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_went_in_is_found(coding in coding(), elements in elements(150)) {
        let bytes = encode(coding, &elements);
        let filter = parse(coding, &bytes);
        prop_assert_eq!(matching(&filter, &elements).len(), elements.len());
        prop_assert_eq!(any_and_all(&filter, &elements), (!elements.is_empty(), true));
        let decoded = DecodedFilter::decode(&filter).expect("a canonical set");
        for element in &elements {
            prop_assert!(decoded.may_contain(element), "lost {:02x?}", element);
        }
    }

    /// The values are sorted and below N * M. The number of values is that of the distinct
    /// elements, and each element's own value is among them.
    #[test]
    fn values_are_sorted_and_in_range(coding in coding(), elements in elements(60)) {
        let bytes = encode(coding, &elements);
        let filter = parse(coding, &bytes);
        let range = u64::from(filter.num_elements()) * u64::from(coding.0.m());
        prop_assert_eq!((filter.range(), filter.key(), filter.params()), (range, coding.1, coding.0));
        for backend in Backend::available() {
            let mut values = vec![u64::MAX; 9];
            filter.decode_into_on(backend, &mut values).expect("a canonical set");
            prop_assert_eq!(values.len(), filter.num_elements() as usize);
            prop_assert!(values.is_sorted());
            prop_assert!(values.iter().all(|value| *value < range));
            for element in &elements {
                prop_assert!(values.contains(&filter.value(element)));
            }
        }
    }

    /// Each script is matched independently: other scripts and repetitions in the set do not change
    /// the result.
    #[test]
    fn questions_are_independent(
        coding in coding(),
        elements in elements(40),
        first in elements(60),
        known in vec(any::<Index>(), 0..20),
        second in elements(60),
    ) {
        let bytes = encode(coding, &elements);
        let filter = parse(coding, &bytes);
        let mut first = first;
        if !elements.is_empty() {
            first.extend(known.iter().map(|index| index.get(&elements).clone()));
        }
        let both = [&first[..], &second[..], &first[..]].concat();
        let apart: Vec<_> = matching(&filter, &first)
            .into_iter()
            .chain(matching(&filter, &second).into_iter().map(|at| at + first.len()))
            .chain(matching(&filter, &first).into_iter().map(|at| at + first.len() + second.len()))
            .collect();
        prop_assert_eq!(matching(&filter, &both), apart);

        let (of_first, of_second) = (any_and_all(&filter, &first), any_and_all(&filter, &second));
        let of_both = any_and_all(&filter, &both);
        prop_assert_eq!(of_both.0, of_first.0 || of_second.0);
        prop_assert_eq!(of_both.1, of_first.1 && of_second.1);
        prop_assert!(first.is_empty() || !of_first.1 || of_first.0, "all without any");
        prop_assert_eq!(any_and_all(&filter, &[]), (false, true));
    }

    /// A set of scripts that grows gives the same matches as a set built at once, and keeps its
    /// indices. A decoded filter can be queried for the new scripts alone.
    #[test]
    fn growing_a_set_only_adds(
        coding in coding(),
        elements in elements(40),
        start in elements(30),
        more in elements(30),
        cut in any::<Index>(),
    ) {
        let bytes = encode(coding, &elements);
        let filter = parse(coding, &bytes);
        let decoded = DecodedFilter::decode(&filter).expect("a canonical set");
        let mut matcher = Matcher::new();
        let mut scripts: PreparedScripts = start.iter().collect();
        let mut pushed = start.clone();
        let mut before = matcher.matching(&filter, &scripts).expect("canonical");
        prop_assert_eq!(scripts.is_empty(), start.is_empty());
        for script in more.iter().chain(&elements) {
            prop_assert_eq!(scripts.push(script), pushed.len());
            pushed.push(script.clone());
            let after = matcher.matching(&filter, &scripts).expect("canonical");
            let new = pushed.len() - 1;
            let of_new = decoded.matching(&scripts, new..pushed.len());
            before.extend(of_new);
            prop_assert_eq!(&after, &before);
        }
        prop_assert_eq!(matching(&filter, &pushed), before);
        prop_assert_eq!(scripts.len(), pushed.len());
        for (index, script) in pushed.iter().enumerate() {
            prop_assert_eq!(scripts.get(index), Some(&script[..]));
        }
        prop_assert_eq!(scripts.get(pushed.len()), None);
        let cut = cut.index(pushed.len() + 1);
        let parts = [decoded.matching(&scripts, 0..cut), decoded.matching(&scripts, cut..pushed.len())];
        prop_assert_eq!(parts.concat(), decoded.matching(&scripts, 0..pushed.len()));
        for first in [0, cut, usize::MAX] {
            let any = matcher.match_any_from(&filter, &scripts, first).expect("canonical");
            let rest = decoded.matching(&scripts, first.min(pushed.len())..pushed.len());
            prop_assert_eq!(any, !rest.is_empty(), "from {}", first);
        }
    }

    /// A matcher that is used for many filters keeps nothing of an earlier one, damaged or not.
    #[test]
    fn a_matcher_forgets(
        sets in vec((coding(), elements(50)), 1..12),
        scripts in elements(40),
        damage in vec(any::<Index>(), 12),
    ) {
        for backend in Backend::available() {
            let mut matcher = Matcher::new().with_backend(backend);
            for ((coding, elements), damage) in sets.iter().zip(&damage) {
                let bytes = encode(*coding, elements);
                let scripts: Vec<_> = scripts.iter().chain(elements.iter().take(3)).collect();
                let scripts: PreparedScripts = scripts.into_iter().collect();
                let cut = &bytes[..damage.index(bytes.len())];
                let cut = GcsFilter::parse(coding.0, coding.1, cut, Acceptance::Core);
                if let Ok(cut) = cut {
                    let answer = matcher.matching(&cut, &scripts);
                    let is_cut = matches!(answer, Err(GcsError::Truncated { .. }));
                    prop_assert!(is_cut, "{:?}", answer);
                }
                let filter = parse(*coding, &bytes);
                let fresh = Matcher::new().with_backend(backend).matching(&filter, &scripts);
                prop_assert_eq!(matcher.matching(&filter, &scripts), fresh);
            }
        }
    }
}

#[test]
fn a_range_past_the_scripts_panics() {
    let coding = (GcsParams::BASIC, SipKey { k0: 1, k1: 2 });
    let bytes = encode(coding, &[vec![1, 2, 3]]);
    let decoded = DecodedFilter::decode(&parse(coding, &bytes)).expect("a canonical set");
    let scripts: PreparedScripts = [[1, 2, 3]].into_iter().collect();
    assert_eq!(decoded.matching(&scripts, 0..1), [0]);
    assert_eq!(decoded.matching(&scripts, 1..1).len(), 0);
    let past = std::panic::catch_unwind(|| decoded.matching(&scripts, 0..2));
    assert!(past.is_err());
}
