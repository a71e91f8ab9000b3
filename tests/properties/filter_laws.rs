//! Properties of a single BIP37 filter. Insertions, answers and payloads are compared with a slow filter and
//! with `bitcoin` by `tests/differential`.

use std::collections::BTreeSet;

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{OutPoint, PubkeyHash, ScriptBuf, Txid};
use chainsieve::btc::bip37::{BloomFilter, FilterError, UpdateMode, core_sizing};
use proptest::collection::vec;
use proptest::prelude::*;

fn parameters() -> impl Strategy<Value = (usize, u32, u32, u8)> {
    let sizes = prop_oneof![4 => 1..40_usize, 2 => 40..3_000_usize, 1 => Just(36_000)];
    (sizes, 0..=50_u32, any::<u32>(), any::<u8>())
}

fn empty() -> impl Strategy<Value = BloomFilter> {
    parameters().prop_map(|(size, k, tweak, flags)| crate::filter(vec![0; size], k, tweak, flags))
}

fn elements(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..80), 0..most)
}

fn with(mut filter: BloomFilter, elements: &[Vec<u8>]) -> BloomFilter {
    for element in elements {
        filter.insert(element);
    }
    filter
}

fn has_bits_of(filter: &BloomFilter, other: &BloomFilter) -> bool {
    filter.data().iter().zip(other.data()).all(|(all, some)| all & some == *some)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// A filter of one element matches another element only if all its bits collide. With 20
    /// functions in 1,000 bytes, one of 100 others matches with a probability far below 1 in 10^30.
    #[test]
    fn what_was_not_inserted_is_not_found(
        tweak in any::<u32>(),
        element in vec(any::<u8>(), 0..80),
        others in vec(vec(any::<u8>(), 0..80), 100),
    ) {
        let filter = with(crate::filter(vec![0; 1_000], 20, tweak, 0), std::slice::from_ref(&element));
        for other in others.iter().filter(|other| **other != element) {
            prop_assert!(!filter.contains(other), "{:02x?}", other);
        }
    }

    #[test]
    fn decode_of_encode_is_the_same(
        (size, k, tweak, flags) in parameters(),
        seed in any::<u64>(),
    ) {
        let data = testkit::Rng::new(seed).bytes(size);
        let filter = crate::filter(data.clone(), k, tweak, flags);
        prop_assert_eq!(filter.data(), data);
        prop_assert_eq!((filter.hash_funcs(), filter.tweak(), filter.flags()), (k, tweak, flags));
        let payload = filter.encode();
        prop_assert_eq!(BloomFilter::decode(&payload), Ok(filter.clone()));
        let longer = [&payload[..], &[1, 2, 3]].concat();
        prop_assert_eq!(BloomFilter::decode_prefix(&longer), Ok((filter, &[1, 2, 3][..])));
    }

    #[test]
    fn union_is_the_filter_of_all(filter in empty(), a in elements(20), b in elements(20)) {
        let (first, second) = (with(filter.clone(), &a), with(filter.clone(), &b));
        let mut union = first.clone();
        union.union(&second).expect("equal parameters");
        prop_assert!(has_bits_of(&union, &first) && has_bits_of(&union, &second));
        prop_assert_eq!(&union, &with(filter, &[a, b].concat()));
        let mut other_way = second;
        other_way.union(&first).expect("equal parameters");
        prop_assert_eq!(union, other_way);
    }

    #[test]
    fn union_of_unequal_parameters_changes_nothing(
        (size, k, tweak, flags) in parameters(),
        differ in 0..4_usize,
    ) {
        let filter = crate::filter(vec![1; size], k, tweak, flags);
        let other_size = if size == 36_000 { size - 1 } else { size + 1 };
        let other_k = if k == 50 { 49 } else { k + 1 };
        let (other, error) = match differ {
            0 => (
                crate::filter(vec![6; other_size], k, tweak, flags),
                FilterError::Sizes { own: size, other: other_size },
            ),
            1 => (crate::filter(vec![6; size], other_k, tweak, flags), FilterError::HashFuncs { own: k, other: other_k }),
            2 => (crate::filter(vec![6; size], k, !tweak, flags), FilterError::Tweaks { own: tweak, other: !tweak }),
            _ => (crate::filter(vec![6; size], k, tweak, !flags), FilterError::Flags { own: flags, other: !flags }),
        };
        let mut union = filter.clone();
        prop_assert_eq!(union.union(&other), Err(error));
        prop_assert_eq!(union, filter);
    }

    #[test]
    fn without_data_or_functions_everything_is_found(
        (size, k, tweak, flags) in parameters(),
        element in vec(any::<u8>(), 0..80),
    ) {
        for mut filter in [
            crate::filter(Vec::new(), k, tweak, flags),
            crate::filter(vec![0; size], 0, tweak, flags),
            crate::filter(vec![0xff; size], k, tweak, flags),
        ] {
            prop_assert!(filter.matches_everything());
            prop_assert!(filter.contains(&element));
            let before = filter.clone();
            filter.insert(&element);
            prop_assert_eq!(&filter, &before);
            prop_assert!(filter.estimated_elements().is_infinite());
            prop_assert!((filter.false_positive_rate() - 1.0).abs() < 1e-12);
        }
    }

    /// Outpoints, key hashes and scripts are inserted as the bytes that matching tests.
    #[test]
    fn typed_insertions_are_their_bytes(
        filter in empty(),
        id in any::<[u8; 32]>(),
        vout in any::<u32>(),
        hash in any::<[u8; 20]>(),
    ) {
        let outpoint = OutPoint { txid: Txid::from_byte_array(id), vout };
        let bytes = [&id[..], &vout.to_le_bytes()].concat();
        let mut typed = filter.clone();
        typed.insert_outpoint(&outpoint);
        prop_assert!(typed.contains_outpoint(&outpoint));
        prop_assert_eq!(&typed, &with(filter.clone(), &[bytes]));

        let key_hash = PubkeyHash::from_byte_array(hash);
        let script = ScriptBuf::new_p2pkh(&key_hash);
        let expected = with(filter.clone(), &[hash.to_vec()]);
        let (mut by_hash, mut by_script) = (filter.clone(), filter);
        by_hash.insert_key_hash(&key_hash);
        prop_assert_eq!(by_script.insert_script(&script), 1);
        prop_assert!(by_script.contains_script(&script));
        prop_assert_eq!(&by_hash, &expected);
        prop_assert_eq!(&by_script, &expected);
    }

    #[test]
    fn sizing_stays_within_the_limits(elements in any::<u32>(), fpr in 0.0..1.0_f64) {
        let (bytes, hash_funcs) = core_sizing(elements, fpr);
        prop_assert!(bytes <= 36_000 && hash_funcs <= 50);
        match BloomFilter::new(elements, fpr, 0, UpdateMode::All) {
            Ok(filter) => {
                prop_assert!(bytes > 0 && hash_funcs > 0);
                prop_assert_eq!((filter.data().len(), filter.hash_funcs()), (bytes as usize, hash_funcs));
                prop_assert!(!filter.matches_everything());
                prop_assert_eq!(filter.bits_set(), 0);
            }
            Err(_) => prop_assert!(bytes == 0 || hash_funcs == 0 || elements == 0 || fpr <= 0.0),
        }
    }
}

/// A filter keeps each byte of flags, and reads the mode from its low two bits.
#[test]
fn every_flags_byte_is_kept_and_masked() {
    let mut modes = BTreeSet::new();
    for flags in 0..=u8::MAX {
        let filter = crate::filter(vec![1, 2, 3], 4, 5, flags);
        assert_eq!(filter.encode().last(), Some(&flags));
        let expected = match flags % 4 {
            1 => UpdateMode::All,
            2 => UpdateMode::P2PubkeyOnly,
            _ => UpdateMode::None,
        };
        assert_eq!(filter.update_mode(), expected, "flags {flags:#x}");
        modes.insert(filter.update_mode().to_flags());
    }
    assert_eq!(modes, BTreeSet::from([0, 1, 2]));
}
