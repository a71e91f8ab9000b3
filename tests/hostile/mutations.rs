//! Real payloads and transactions with a few bits and bytes changed.

use chainsieve::bitcoin::{Transaction, consensus};
use chainsieve::btc::bip37::{AddedData, BloomFilter};
use chainsieve::btc::script::{ScriptType, ops};

use crate::oracle::cases;
use crate::rng::Rng;
use crate::{fixtures, survives};

/// Changes a copy in one to four places: bits, bytes, cuts, doublings.
pub(crate) fn mutated(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = *rng.pick(&[0, 1, 0x4c, 0x4d, 0x4e, 0x7f, 0x80, 0xfd, 0xfe, 0xff]),
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            4 => bytes.insert(at, rng.array::<1>()[0]),
            5 => {
                let end = (at + 1 + rng.below(8)).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            _ => {
                let copy = bytes[at..(at + 40).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

fn payloads(kind: &str, field: &str) -> Vec<Vec<u8>> {
    let text = fixtures::read("core_oracle_subset.jsonl");
    let of_kind = cases(&text).filter(|case| case.str("kind") == kind);
    of_kind.map(|case| case.bytes(field)).collect()
}

#[test]
fn mutated_filters() {
    let mut rng = Rng::new(11);
    let filters = payloads("match", "filterload");
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
    let scripts = payloads("script", "script");
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
    let filters = payloads("match", "filterload");
    let transactions: Vec<_> = block.txdata.iter().map(consensus::serialize).collect();
    let (mut parsed, mut matched) = (0, 0);
    for _ in 0..40_000 {
        let original = rng.pick(&transactions).clone();
        let raw = mutated(&mut rng, &original);
        let Ok(tx) = consensus::deserialize::<Transaction>(&raw) else { continue };
        parsed += 1;
        let filterload = rng.pick(&filters);
        let (mut filter, _) = BloomFilter::decode_any_size(filterload).expect("valid");
        // A list of reasons, grown as they come: no more than a few dozen bytes an output.
        let found = survives("match_transaction", &raw, 20, 400, || filter.match_transaction(&tx));
        matched += usize::from(found.is_some());
    }
    assert!(parsed > 2_000 && matched > 500, "{parsed} parsed, {matched} matched");
}
