//! The slow matcher and every entry point of the library on the same blocks and filters. All give
//! the same matches for the same reasons, and leave the same filter.

use std::collections::BTreeMap;

use testkit::btc::corpus::Corpus;
use testkit::btc::entry_points::{library, slow};
use testkit::btc::fixtures;
use testkit::btc::oracle::TestBlock;
use testkit::btc::random_block;
use testkit::btc::random_filters::{FLAGS, elements, filters};
use testkit::btc::slow_bip37::{Reason, SlowFilter};
use testkit::{Rng, stride};

/// Counters of the compared cases, so that a test that compares nothing fails.
#[derive(Default, Debug)]
struct Met {
    matchings: usize,
    matched: usize,
    unmatched: usize,
    updated_filters: usize,
    reasons: BTreeMap<&'static str, usize>,
}

impl Met {
    fn compare(&mut self, name: &str, filterload: &[u8], block: &TestBlock) {
        let expected = slow(filterload, block);
        for (entry_point, outcome) in library(filterload, block) {
            assert!(
                outcome == expected,
                "{name}: slow and {entry_point}\nfilterload {}\nslow {:?}\nlibrary {:?}",
                hex::encode(filterload),
                expected.matches,
                outcome.matches,
            );
        }
        self.matchings += 1;
        self.matched += expected.matches.len();
        self.unmatched += block.block.txdata.len() - expected.matches.len();
        self.updated_filters += usize::from(expected.filter_after != filterload);
        let keys_only = filterload.last().is_some_and(|flags| flags & 3 == 2);
        for reason in expected.matches.iter().flat_map(|(_, reasons)| reasons) {
            let name = match reason {
                Reason::EmptyFilter => "empty filter",
                Reason::Txid => "txid",
                Reason::Output { inserted: true, .. } if keys_only => "key, inserted",
                Reason::Output { inserted: false, .. } if keys_only => "no key, not inserted",
                Reason::Output { inserted: true, .. } => "output, inserted",
                Reason::Output { inserted: false, .. } => "output",
                Reason::Outpoint { .. } => "outpoint",
                Reason::ScriptSig { .. } => "input data",
            };
            *self.reasons.entry(name).or_insert(0) += 1;
        }
    }

    /// Compares each `stride`-th of the filters, begun at a place that depends on the seed.
    fn compare_each(&mut self, stride: usize, seed: u64, name: &str, block: &TestBlock) {
        let filters = filters(&mut Rng::new(seed), block).into_iter();
        let filters = filters.flat_map(|(shape, filter)| {
            FLAGS.map(|flags| (shape, SlowFilter { flags, ..filter.clone() }))
        });
        let first = usize::try_from(seed).expect("small") % stride;
        for (shape, filter) in filters.skip(first).step_by(stride) {
            let name = format!("{name}, seed {seed}, {shape}, flags {:#x}", filter.flags);
            self.compare(&name, &filter.payload(), block);
        }
    }

    fn assert_met_everything(&self) {
        println!("{self:?}");
        assert_eq!(self.reasons.len(), 8, "a reason never met: {self:?}");
        assert!(self.updated_filters > 20 && self.matched > 1_000 && self.unmatched > 1_000);
    }
}

#[test]
fn blocks_of_the_fixtures() {
    let mut met = Met::default();
    for (seed, height) in (1..).zip(fixtures::BLOCKS) {
        met.compare_each(1, seed, &format!("block {height}"), &fixtures::block(height));
    }
    met.assert_met_everything();
    assert_eq!(met.matchings, 5 * 15 * FLAGS.len());
}

#[test]
fn random_blocks() {
    let mut met = Met::default();
    for seed in (0..120).step_by(stride(4)) {
        let mut rng = Rng::new(seed);
        let words: Vec<_> = [1, 20, 32, 33, 65].map(|length| rng.bytes(length)).into();
        let transactions = 1 + rng.below(30);
        let block = random_block::block(&mut rng, transactions, &words);
        met.compare_each(1, seed, "random block", &block);
    }
    met.assert_met_everything();
}

/// A filter with exactly one element of a block matches the transactions that contain the element.
#[test]
fn one_element_at_a_time() {
    let mut met = Met::default();
    let mut rng = Rng::new(37);
    let block = fixtures::block(150_013);
    for element in elements(&mut rng, &block, 4) {
        let mut filter = SlowFilter {
            data: vec![0; 64],
            hash_funcs: 20,
            tweak: rng.u32(),
            flags: *rng.pick(&FLAGS),
        };
        filter.insert(&element);
        let name = format!("only {}", hex::encode(&element));
        let before = met.matched;
        met.compare(&name, &filter.payload(), &block);
        assert!(met.matched > before, "{name}: no match");
    }
    assert!(met.matchings > 80, "{met:?}");
}

#[test]
fn blocks_of_the_corpus() {
    let Some(corpus) = Corpus::open() else { return };
    let mut met = Met::default();
    let (mut blocks, stride) = (0, stride(3));
    for (seed, file) in (100..).zip(&corpus.files) {
        if file.format_kind() == "raw block" {
            let block = TestBlock::new(corpus.read(&file.name));
            met.compare_each(stride, seed, &file.name, &block);
            blocks += 1;
        }
    }
    met.assert_met_everything();
    assert_eq!((blocks, met.matchings), (30, 30 * 15 * FLAGS.len() / stride));
}
