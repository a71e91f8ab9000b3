//! Properties of matching. Blocks, transactions, reasons and updates are compared with a slow matcher by
//! `tests/differential`.

use std::rc::Rc;

use chainsieve::bitcoin::Transaction;
use chainsieve::btc::bip37::BloomFilter;
use proptest::prelude::*;

use testkit::Rng;
use testkit::btc::oracle::TestBlock;
use testkit::btc::random_block;
use testkit::btc::random_filters::elements;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

fn random_block(rng: &mut Rng) -> Rc<TestBlock> {
    let words: Vec<_> = [1, 20, 32, 33, 65].map(|length| rng.bytes(length)).into();
    let transactions = 1 + rng.below(20);
    random_block::block(rng, transactions, &words)
}

/// Returns a filter of random size: from one byte, where nearly everything matches by chance, to a
/// size where nothing does.
fn random_parameters(rng: &mut Rng, flags: u8) -> BloomFilter {
    let size = *rng.pick(&[1, 3, 10, 100, 3_000, 36_000]);
    let hash_funcs = *rng.pick(&[1, 2, 5, 11, 17, 50]);
    crate::filter(vec![0; size], hash_funcs, rng.u32(), flags)
}

fn matches(filter: &mut BloomFilter, transactions: &[Transaction]) -> Vec<bool> {
    transactions.iter().map(|tx| filter.match_transaction(tx).is_some()).collect()
}

proptest! {
    #![proptest_config(config())]

    /// A transaction matches whichever of its elements is inserted.
    #[test]
    fn no_false_negatives(seed in any::<u64>(), flags in any::<u8>()) {
        let mut rng = Rng::new(seed);
        let block = random_block(&mut rng);
        for tx in &block.block.txdata {
            let mut one = block.block.clone();
            one.txdata = vec![tx.clone()];
            let one = TestBlock { raw: Vec::new(), block: one };
            for element in elements(&mut rng, &one, 1) {
                let mut filter = random_parameters(&mut rng, flags);
                filter.insert(&element);
                prop_assert!(filter.match_transaction(tx).is_some(), "element {:02x?}", element);
            }
        }
    }

    /// A filter with more bits matches no less, and has no fewer bits afterwards, updates included.
    #[test]
    fn matching_is_monotone_in_bits(seed in any::<u64>(), flags in any::<u8>()) {
        let mut rng = Rng::new(seed);
        let block = random_block(&mut rng);
        let mut fewer = random_parameters(&mut rng, flags);
        for element in elements(&mut rng, &block, 30) {
            fewer.insert(&element);
        }
        let mut more = fewer.clone();
        for element in elements(&mut rng, &block, 30) {
            more.insert(&element);
        }
        for tx in &block.block.txdata {
            let (by_fewer, by_more) = (fewer.match_transaction(tx), more.match_transaction(tx));
            prop_assert!(by_more.is_some() || by_fewer.is_none(), "{}", tx.compute_txid());
            let kept = fewer.data().iter().zip(more.data()).all(|(some, all)| some & all == *some);
            prop_assert!(kept, "an update is missing after {}", tx.compute_txid());
        }
    }

    /// The reported insertions are all changes of the filter.
    #[test]
    fn reasons_account_for_every_update(seed in any::<u64>(), flags in any::<u8>()) {
        let mut rng = Rng::new(seed);
        let block = random_block(&mut rng);
        let mut filter = random_parameters(&mut rng, flags);
        for element in elements(&mut rng, &block, 10) {
            filter.insert(&element);
        }
        for tx in &block.block.txdata {
            let mut expected = filter.clone();
            let Some(found) = filter.match_transaction(tx) else {
                prop_assert_eq!(&filter, &expected);
                continue;
            };
            prop_assert_eq!(found.txid, tx.compute_txid());
            prop_assert!(!found.reasons.is_empty());
            for outpoint in found.inserted() {
                prop_assert_eq!(outpoint.txid, found.txid);
                expected.insert_outpoint(&outpoint);
            }
            prop_assert_eq!(&filter, &expected);
        }
    }

    /// Matching ignores witnesses.
    #[test]
    fn witnesses_do_not_matter(seed in any::<u64>(), flags in any::<u8>()) {
        let mut rng = Rng::new(seed);
        let block = random_block(&mut rng);
        let mut filter = random_parameters(&mut rng, flags);
        for element in elements(&mut rng, &block, 30) {
            filter.insert(&element);
        }
        let mut stripped = block.block.txdata.clone();
        for input in stripped.iter_mut().flat_map(|tx| &mut tx.input) {
            input.witness.clear();
        }
        let mut same = filter.clone();
        prop_assert_eq!(matches(&mut filter, &block.block.txdata), matches(&mut same, &stripped));
        prop_assert_eq!(filter, same);
    }
}
