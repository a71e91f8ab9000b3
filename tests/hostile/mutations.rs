//! Real payloads and transactions with a few bits and bytes changed.

use chainsieve::bitcoin::{Transaction, consensus};
use chainsieve::btc::bip37::{AddedData, BloomFilter};
use chainsieve::btc::script::{ScriptType, ops};

use crate::{matching_survives, survives};
use testkit::Rng;
use testkit::btc::fixtures;
use testkit::mutated;
use testkit::vectors::payloads;

#[test]
fn mutated_filters() {
    let mut rng = Rng::new(11);
    let filters = payloads("bip37.match", "filter");
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let original = rng.pick(&filters).clone();
        let payload = mutated(&mut rng, &original);
        match survives("decode", &payload, 2, 200, || BloomFilter::decode(&payload)) {
            Ok(filter) => {
                accepted += 1;
                assert_eq!(filter.encode(), payload);
                survives("contains", &payload, 0, 0, || filter.contains(&payload[..9]));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        let _ = survives("AddedData", &payload, 2, 200, || AddedData::decode(&payload));
    }
    assert!(accepted > 2_000 && refused > 2_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn mutated_scripts() {
    let mut rng = Rng::new(12);
    let scripts = payloads("script.pushes", "script");
    for _ in 0..200_000 {
        let original = rng.pick(&scripts).clone();
        let script = mutated(&mut rng, &original);
        survives("script", &script, 0, 0, || {
            let pushed: usize = ops(&script).map(|op| op.data.len() + 1).sum();
            assert!(pushed <= script.len());
            ScriptType::of(&script)
        });
    }
}

#[test]
fn mutated_transactions() {
    let mut rng = Rng::new(13);
    let block = &fixtures::block(150_013).block;
    let filters = payloads("bip37.match", "filter");
    let transactions: Vec<_> = block.txdata.iter().map(consensus::serialize).collect();
    let (mut parsed, mut matched) = (0, 0);
    for _ in 0..40_000 {
        let original = rng.pick(&transactions).clone();
        let raw = mutated(&mut rng, &original);
        let Ok(tx) = consensus::deserialize::<Transaction>(&raw) else { continue };
        parsed += 1;
        let filterload = rng.pick(&filters);
        let (mut filter, _) = BloomFilter::decode_any_size(filterload).expect("valid");
        let found = matching_survives("mutated transaction", &raw, &mut filter, &tx);
        matched += usize::from(found.is_some());
    }
    assert!(parsed > 2_000 && matched > 500, "{parsed} parsed, {matched} matched");
}
