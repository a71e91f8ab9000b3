//! `FilterBank` against a map of slow filters. After any sequence of messages from any number of
//! peers, every peer has the filter and the matches that it would have alone.

use std::collections::BTreeMap;

use chainsieve::btc::bip37::{BlockElements, BloomFilter, Elements, FilterBank, TxMatch};
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::btc::entry_points::reasons;
use testkit::btc::oracle::TestBlock;
use testkit::btc::random_block;
use testkit::btc::random_filters::{FLAGS, elements};
use testkit::btc::slow_bip37::tree::compact_size;
use testkit::btc::slow_bip37::{Reason, SlowFilter};

type Matches = Vec<(usize, Vec<Reason>)>;

/// The filter of each peer. A peer with `None` has cleared its filter and receives everything.
#[derive(Default)]
struct Model(BTreeMap<usize, Option<SlowFilter>>);

impl Model {
    /// Returns the matches of each peer that has a filter. If `cleared` is true, peers without a
    /// filter match every transaction.
    fn matches(&mut self, block: &TestBlock, cleared: bool) -> Vec<(usize, Matches)> {
        let everything = || (0..block.block.txdata.len()).map(|at| (at, vec![Reason::EmptyFilter]));
        let mut all = Vec::new();
        for (id, filter) in &mut self.0 {
            let matches = match filter {
                Some(filter) => filter.match_block(&block.block),
                None if cleared => everything().collect(),
                None => continue,
            };
            if !matches.is_empty() {
                all.push((*id, matches));
            }
        }
        all
    }
}

fn in_their_words(matches: &[TxMatch]) -> Matches {
    let one = |found: &TxMatch| (found.index as usize, reasons(found));
    matches.iter().map(one).collect()
}

/// Returns a random filter. Most are small, so that they match, and a few have the largest size.
fn random_filter(rng: &mut Rng, some: &[Vec<u8>]) -> SlowFilter {
    let size = *rng.pick(&[0, 1, 2, 3, 9, 17, 64, 100, 333, 2_396]);
    let size = if rng.one_in(60) { 36_000 } else { size };
    let hash_funcs = *rng.pick(&[0, 1, 2, 3, 7, 11, 16, 17, 33, 49, 50]);
    let (tweak, flags) = (rng.u32(), *rng.pick(&FLAGS));
    let data = if rng.one_in(3) { rng.bytes(size) } else { vec![0; size] };
    let mut filter = SlowFilter { data, hash_funcs, tweak, flags };
    for _ in 0..rng.below(4) {
        let element: &Vec<u8> = rng.pick(some);
        filter.insert(element);
    }
    filter
}

struct Run {
    rng: Rng,
    bank: FilterBank<usize>,
    model: Model,
    peers: usize,
    words: Vec<Vec<u8>>,
}

impl Run {
    fn message(&mut self, some: &[Vec<u8>]) {
        let id = self.rng.below(self.peers);
        match self.rng.below(12) {
            0..=6 => {
                let filter = random_filter(&mut self.rng, some);
                self.bank.load_payload(id, &filter.payload()).expect("within the limits");
                self.model.0.insert(id, Some(filter));
            }
            7 | 8 => {
                let element = self.rng.pick(some).clone();
                let payload = [compact_size(element.len()), element.clone()].concat();
                let added = self.bank.add_payload(&id, &payload);
                let filter = self.model.0.get_mut(&id).and_then(Option::as_mut);
                assert_eq!(added.is_ok(), filter.is_some(), "peer {id}: {added:?}");
                if let Some(filter) = filter {
                    filter.insert(&element);
                }
            }
            9 => {
                self.bank.clear(id);
                self.model.0.insert(id, None);
            }
            10 => {
                let was_there = self.model.0.remove(&id).is_some();
                assert_eq!(self.bank.remove(&id), was_there, "peer {id}");
            }
            _ => {
                // The bank rejects these messages, and the peer keeps its filter.
                let mut too_large = random_filter(&mut self.rng, some);
                too_large.hash_funcs = 51;
                assert!(self.bank.load_payload(id, &too_large.payload()).is_err());
                assert!(self.bank.add(&id, &[0; 521]).is_err());
            }
        }
    }

    fn matching(&mut self, name: &str) {
        let most = if self.rng.one_in(8) { 60 } else { 8 };
        let transactions = 1 + self.rng.below(most);
        let block = random_block::block(&mut self.rng, transactions, &self.words);
        let whole = BlockElements::from_raw(&block.raw).expect("a block");
        match self.rng.below(4) {
            0 => {
                let found = self.bank.match_block(&whole);
                let found: Vec<_> =
                    found.iter().map(|(id, matches)| (*id, in_their_words(matches))).collect();
                let expected = self.model.matches(&block, false);
                assert_eq!(found, expected, "{name}: match_block");
            }
            1 => {
                let found = self.bank.match_elements(whole.elements());
                let found: Vec<_> =
                    found.iter().map(|(id, matches)| (*id, in_their_words(matches))).collect();
                let expected = self.model.matches(&block, true);
                assert_eq!(found, expected, "{name}: match_elements");
            }
            2 => {
                let id = self.rng.below(self.peers);
                let found = self.bank.match_block_for(&id, &whole);
                let filter = self.model.0.get_mut(&id).and_then(Option::as_mut);
                let expected = filter.map(|filter| filter.match_block(&block.block));
                let found = found.as_deref().map(in_their_words);
                assert_eq!(found, expected, "{name}: match_block_for {id}");
            }
            _ => {
                let mut one = block.block.clone();
                one.txdata.truncate(1);
                let tx = one.txdata[0].clone();
                let block = TestBlock { raw: Vec::new(), block: one };
                let found = self.bank.match_transaction(&tx);
                let found: Vec<_> =
                    found.into_iter().map(|(id, found)| (id, in_their_words(&[found]))).collect();
                let expected = self.model.matches(&block, true);
                assert_eq!(found, expected, "{name}: match_transaction");
            }
        }
    }

    fn compare_filters(&self, name: &str) {
        let filters = self.model.0.iter().filter_map(|(id, f)| Some((id, f.as_ref()?)));
        let filters: Vec<_> = filters.collect();
        assert_eq!((self.bank.len(), self.bank.is_empty()), (filters.len(), filters.is_empty()));
        assert!(self.bank.ids().eq(filters.iter().map(|(id, _)| *id)), "{name}: ids");
        for (id, slow) in filters {
            let filter = self.bank.get(id).unwrap_or_else(|| panic!("{name}: no filter of {id}"));
            assert!(filter.encode() == slow.payload(), "{name}: filter of peer {id}");
        }
        for id in 0..self.peers {
            let cleared = matches!(self.model.0.get(&id), Some(None));
            assert_eq!(self.bank.relays_everything(&id), cleared, "{name}: peer {id}");
        }
    }
}

#[test]
fn any_sequence_of_messages() {
    let mut most = 0;
    for backend in Backend::available() {
        for (seed, peers) in (0..).zip([1, 3, 15, 16, 17, 33, 40, 257, 300, 530]) {
            let mut rng = Rng::new(seed);
            let words: Vec<_> = [1, 20, 32, 33, 65].map(|length| rng.bytes(length)).into();
            let sample = random_block::block(&mut rng, 12, &words);
            let mut some = elements(&mut rng, &sample, 1);
            some.extend(words.clone());
            some.push(Vec::new());
            let bank = FilterBank::new().with_backend(backend);
            let mut run = Run { rng, bank, model: Model::default(), peers, words };
            for step in 0..60 {
                for _ in 0..=peers {
                    run.message(&some);
                }
                let name = format!("{peers} peers, seed {seed}, step {step}, {}", backend.name());
                run.matching(&name);
                run.compare_filters(&name);
                most = most.max(run.bank.len());
            }
        }
    }
    assert!(most > 300, "only {most} filters at once");
}

/// Inserts each element of a transaction into one of 40 filters, and checks that the transaction
/// matches exactly that filter.
#[test]
fn each_element_finds_its_filter() {
    let mut rng = Rng::new(7);
    let words: Vec<_> = [20, 33].map(|length| rng.bytes(length)).into();
    let block = random_block::block(&mut rng, 3, &words);
    let tx = &block.block.txdata[2];
    let one = Elements::from_transaction(tx);
    let mut only = block.block.clone();
    only.txdata = vec![tx.clone()];
    let only = TestBlock { raw: Vec::new(), block: only };
    for (at, element) in elements(&mut rng, &only, 1).iter().enumerate() {
        let mut bank = FilterBank::new();
        for id in 0..40 {
            let data = vec![0; 50 + id];
            let tweak = rng.u32();
            let slow = SlowFilter { data, hash_funcs: 9, tweak, flags: 0 };
            let mut filter = BloomFilter::decode(&slow.payload()).expect("within the limits");
            if id == at % 40 {
                filter.insert(element);
            }
            bank.load(id, filter).expect("within the limits");
        }
        let found = bank.match_elements(&one);
        let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [at % 40], "element {at}: {element:02x?}");
    }
}
