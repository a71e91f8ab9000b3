//! Scans compared with a plain loop. The loop queries each filter script by script with `bitcoin`'s
//! reader, and repeats until the hits reveal no more scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::bip158::{BlockFilterReader, FilterHash};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::scan::{
    Candidate, CandidateReason, Commitment, FilterItem, FilterScan, ScanCursor, ScanError,
    Statistics, WalletIndex, Wallets,
};
use chainsieve::btc::bip158::{GcsParams, filter_hash, filter_key, gcs};

use testkit::Rng;

/// Number of wallets at the start. One more is added during the scan.
const WALLETS: usize = 3;
/// Number of scripts that a wallet has after the last one that it saw used.
const GAP: usize = 3;
/// Height of the first block.
const FIRST: u32 = 1_000;

fn script(wallet: usize, index: usize) -> Vec<u8> {
    format!("wallet {wallet}, address {index}").into_bytes()
}

struct Block {
    hash: BlockHash,
    /// Wallet and index of the wallets' scripts in the block.
    holds: Vec<(usize, usize)>,
    content: Vec<u8>,
    commitment: Option<Commitment>,
    /// `true` if the filter gives no answer: it is damaged, or differs from its commitment.
    is_mute: bool,
}

/// Returns a chain in which the wallets use their scripts roughly in order, and sometimes many in
/// one block.
fn chain(rng: &mut Rng, length: usize) -> Vec<Block> {
    let mut next = [0_usize; WALLETS + 1];
    let mut block = |_| {
        let hash = BlockHash::from_byte_array(rng.array());
        let mut holds = Vec::new();
        for (wallet, next) in next.iter_mut().enumerate() {
            let uses = if rng.one_in(3) { rng.below(9) } else { 0 };
            for _ in 0..uses {
                holds.push((wallet, *next));
                // Never skip more than the gap, and sometimes use an old script again.
                *next += rng.below(GAP + 1);
                if rng.one_in(4) {
                    holds.push((wallet, rng.below(*next + 1)));
                }
            }
        }
        let others = (0..rng.below(30)).map(|_| rng.bytes(25));
        let mut elements: Vec<_> = others.collect();
        elements.extend(holds.iter().map(|&(wallet, index)| script(wallet, index)));
        let elements = elements.iter().map(Vec::as_slice);
        let mut content = gcs::encode(GcsParams::BASIC, filter_key(&hash), elements).expect("few");
        let mut commitment = Some(Commitment::Hash(filter_hash(&content)));
        let mut is_mute = false;
        match rng.below(20) {
            0 => {
                content.pop();
                commitment = None;
                is_mute = true;
            }
            1 => {
                commitment = Some(Commitment::Hash(FilterHash::from_byte_array(rng.array())));
                is_mute = true;
            }
            2..8 => commitment = None,
            _ => {}
        }
        Block { hash, holds, content, commitment, is_mute }
    };
    (0..length).map(&mut block).collect()
}

fn items(chain: &[Block], first: u32) -> impl Iterator<Item = FilterItem<'_>> + Clone {
    (FIRST..).zip(chain).skip((first - FIRST) as usize).map(|(height, block)| FilterItem {
        height,
        block_hash: block.hash,
        content: &block.content,
        commitment: block.commitment,
    })
}

/// The wallets, and their changes after a hit: the wallet gets a gap of new scripts, and one hit
/// adds a wallet.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    /// Birthday and number of scripts of each wallet.
    wallets: Vec<(u32, usize)>,
}

impl Model {
    fn new(rng: &mut Rng, length: usize) -> Self {
        let birthday = |rng: &mut Rng| FIRST - 1 + u32::try_from(rng.below(length)).expect("few");
        let mut wallets: Vec<_> = (0..WALLETS).map(|_| (birthday(rng), GAP + 1)).collect();
        if rng.one_in(2) {
            wallets[0].0 = 0;
        }
        Self { wallets }
    }

    fn see(&mut self, height: u32, wallet: usize, index: usize) {
        let scripts = &mut self.wallets[wallet].1;
        *scripts = (*scripts).max(index + GAP + 1);
        if (wallet, index) == (0, 7) && self.wallets.len() == WALLETS {
            let birthday = if height.is_multiple_of(2) { height } else { height + 4 };
            self.wallets.push((birthday, GAP + 1));
        }
    }

    /// Applies the hits of the block itself.
    fn see_block(&mut self, height: u32, block: &Block) {
        let before = self.clone();
        for &(wallet, index) in &block.holds {
            if self
                .wallets
                .get(wallet)
                .is_some_and(|&(birthday, scripts)| birthday <= height && index < scripts)
            {
                self.see(height, wallet, index);
            }
        }
        if *self != before {
            self.see_block(height, block);
        }
    }

    /// Brings the wallets of a scan to this state.
    fn apply(&self, wallets: &mut Wallets, ids: &mut Vec<WalletIndex>) {
        for (number, &(birthday, scripts)) in self.wallets.iter().enumerate() {
            if number == ids.len() {
                ids.push(wallets.add(birthday));
            }
            let known = wallets.scripts(ids[number]).len();
            wallets.extend(ids[number], (known..scripts).map(|index| script(number, index)));
        }
    }
}

/// The scripts found at each height, or `None` for a filter that gives no answer.
type Found = BTreeMap<u32, Option<BTreeSet<(usize, usize)>>>;

/// Runs the plain loop from height `first` on.
fn naive(chain: &[Block], model: &mut Model, first: u32) -> Found {
    let mut found = Found::new();
    for (height, block) in (FIRST..).zip(chain).skip((first - FIRST) as usize) {
        let reader = BlockFilterReader::new(&block.hash);
        let mut hits = BTreeSet::new();
        let is_asked =
            model.wallets.iter().any(|&(birthday, scripts)| birthday <= height && scripts > 0);
        if block.is_mute && is_asked {
            model.see_block(height, block);
            found.insert(height, None);
            continue;
        }
        loop {
            let before = model.clone();
            for (wallet, &(birthday, scripts)) in before.wallets.iter().enumerate() {
                for index in (0..scripts).filter(|_| birthday <= height) {
                    let mut content = block.content.as_slice();
                    let query = [script(wallet, index)];
                    let mut query = query.iter().map(Vec::as_slice);
                    if reader.match_any(&mut content, &mut query).expect("a filter") {
                        hits.insert((wallet, index));
                        model.see(height, wallet, index);
                    }
                }
            }
            if *model == before {
                break;
            }
        }
        if !hits.is_empty() {
            found.insert(height, Some(hits));
        }
    }
    found
}

/// A scan and its model.
#[derive(Clone)]
struct Run {
    scan: FilterScan,
    model: Model,
    ids: Vec<WalletIndex>,
    candidates: Vec<Candidate>,
}

impl Run {
    fn new(model: &Model, cursor: ScanCursor) -> Self {
        let mut scan = FilterScan::new(cursor);
        let mut ids = Vec::new();
        model.apply(scan.wallets_mut(), &mut ids);
        Self { scan, model: model.clone(), ids, candidates: Vec::new() }
    }

    /// Scans up to block `end`, or to the call number `stop`. Returns `true` if the scan was
    /// stopped.
    fn go(&mut self, chain: &[Block], end: usize, stop: Option<usize>, parallel: bool) -> bool {
        let Self { scan, model, ids, candidates } = self;
        let mut calls = 0;
        let first = scan.cursor().next_height;
        let items = items(&chain[..end], first);
        let found = |candidate: Candidate, wallets: &mut Wallets| {
            if stop == Some(calls) {
                return ControlFlow::Break(());
            }
            calls += 1;
            let Candidate { height, ref reason, .. } = candidate;
            match reason {
                CandidateReason::Scripts { wallet, indices } => {
                    assert!(indices.is_sorted());
                    for &index in indices {
                        let expected = script(wallet.index(), index);
                        assert_eq!(wallets.scripts(*wallet).get(index), Some(&expected[..]));
                        model.see(height, wallet.index(), index);
                    }
                }
                CandidateReason::NoAnswer(_) => {
                    model.see_block(height, &chain[(height - FIRST) as usize]);
                }
            }
            candidates.push(candidate);
            model.apply(wallets, ids);
            ControlFlow::Continue(())
        };
        let done = if parallel { scan.par_scan(items, found) } else { scan.scan(items, found) };
        done.expect("in order").is_break()
    }

    /// Returns all candidates, and checks that none is reported twice.
    fn found(&self) -> Found {
        let mut found = Found::new();
        for Candidate { height, reason, .. } in &self.candidates {
            match reason {
                CandidateReason::Scripts { wallet, indices } => {
                    let hits = found.entry(*height).or_insert(Some(BTreeSet::new()));
                    let hits = hits.as_mut().expect("an answer");
                    for &index in indices {
                        assert!(hits.insert((wallet.index(), index)), "{height}: twice");
                    }
                }
                CandidateReason::NoAnswer(_) => assert_eq!(found.insert(*height, None), None),
            }
        }
        found
    }
}

/// Returns a chain, its wallets, and the expected hits.
fn case(seed: u64, length: usize) -> (Vec<Block>, Model, Found) {
    let mut rng = Rng::new(seed);
    let chain = chain(&mut rng, length);
    let model = Model::new(&mut rng, length);
    let expected = naive(&chain, &mut model.clone(), FIRST);
    (chain, model, expected)
}

#[test]
fn scans_find_what_the_plain_loop_finds() {
    let (mut hits, mut mute, mut more, mut spawned) = (0, 0, 0, 0);
    for (seed, length) in (0..60).zip((40..).step_by(8)) {
        let (chain, model, expected) = case(seed, length);
        let mut one = Run::new(&model, ScanCursor::at(FIRST));
        assert!(!one.go(&chain, chain.len(), None, false));
        assert_eq!(one.found(), expected, "seed {seed}");
        let mut all = Run::new(&model, ScanCursor::at(FIRST));
        assert!(!all.go(&chain, chain.len(), None, true));
        assert_eq!(all.candidates, one.candidates, "seed {seed}");
        assert_eq!(all.scan.cursor(), one.scan.cursor());
        assert_eq!(all.scan.statistics(), one.scan.statistics());

        let end = FIRST + u32::try_from(chain.len()).expect("few");
        let last = chain.last().expect("blocks").hash;
        assert_eq!(one.scan.cursor(), ScanCursor { next_height: end, previous: Some(last) });
        let Statistics { filters, skipped, candidates, no_answers, bytes, .. } =
            *one.scan.statistics();
        let first_birthday = model.wallets.iter().map(|&(birthday, _)| birthday).min();
        let unborn = first_birthday.map_or(0, |birthday| birthday.saturating_sub(FIRST));
        assert_eq!((filters + skipped, skipped), (chain.len() as u64, u64::from(unborn)));
        assert_eq!(
            bytes,
            chain[unborn as usize..].iter().map(|block| block.content.len() as u64).sum::<u64>()
        );
        assert_eq!(candidates, expected.len() as u64);
        assert_eq!(no_answers, expected.values().filter(|found| found.is_none()).count() as u64);
        hits += candidates - no_answers;
        mute += no_answers;
        more += one.candidates.len() as u64 - candidates;
        spawned += u32::from(one.ids.len() > WALLETS);
    }
    assert!(
        hits > 3_000 && mute > 1_000 && more > 5_000 && spawned > 20,
        "{hits} {mute} {more} {spawned}"
    );
}

#[test]
fn a_scan_goes_on_where_it_stopped() {
    for seed in 0..4 {
        let (chain, model, expected) = case(1_000 + seed, 60);
        for parallel in [false, true] {
            // Stop between two filters, and keep only the cursor and the wallets.
            for end in 0..=chain.len() {
                let mut first = Run::new(&model, ScanCursor::at(FIRST));
                first.go(&chain, end, None, parallel);
                let cursor = ScanCursor::from_bytes(&first.scan.cursor().to_bytes());
                assert_eq!(cursor, first.scan.cursor());
                let mut then = Run::new(&first.model, cursor);
                then.go(&chain, chain.len(), None, parallel);
                first.candidates.append(&mut then.candidates);
                assert_eq!(first.found(), expected, "seed {seed}, end {end}");
            }
            // Stop at each candidate.
            for stop in 0.. {
                let mut run = Run::new(&model, ScanCursor::at(FIRST));
                if !run.go(&chain, chain.len(), Some(stop), parallel) {
                    break;
                }
                let next = run.scan.cursor().next_height;
                run.candidates.retain(|candidate| candidate.height < next);
                assert!(!run.go(&chain, chain.len(), None, parallel));
                assert_eq!(run.found(), expected, "seed {seed}, stopped at {stop}");
            }
        }
    }
}

#[test]
fn a_rewound_scan_finds_what_the_new_chain_holds() {
    let mut differ = 0;
    for seed in 0..6 {
        let (old, model, _) = case(2_000 + seed, 50);
        for fork in (0..old.len()).step_by(3) {
            let mut rng = Rng::new(3_000 + seed);
            let mut new = chain(&mut rng, old.len());
            let branch = new.split_off(fork);
            let mut new: Vec<Block> = chain(&mut Rng::new(2_000 + seed), old.len());
            new.truncate(fork);
            new.extend(branch);
            let height = FIRST + u32::try_from(fork).expect("few");
            for parallel in [false, true] {
                let mut run = Run::new(&model, ScanCursor::at(FIRST));
                run.go(&old, old.len(), None, parallel);
                run.scan.rewind(height + 1_000);
                assert_eq!(run.scan.cursor().previous, Some(old.last().expect("blocks").hash));
                run.scan.rewind(height);
                assert_eq!(run.scan.cursor(), ScanCursor::at(height));
                let expected = naive(&new, &mut run.model.clone(), height);
                run.candidates.clear();
                run.go(&new, new.len(), None, parallel);
                assert_eq!(run.found(), expected, "seed {seed}, fork at {fork}");
                differ += u32::from(expected != naive(&old, &mut run.model.clone(), height));
            }
        }
    }
    assert!(differ > 150, "{differ}");
}

#[test]
fn filters_out_of_order_are_refused_and_those_before_count() {
    let (chain, model, expected) = case(7, 40);
    let all: Vec<_> = items(&chain, FIRST).collect();
    let at = FIRST + 20;
    for (wrong, is_last) in [(at - 1, false), (at + 1, false), (0, false), (u32::MAX, true)] {
        let mut items = all.clone();
        items[20].height = wrong;
        let error = if is_last {
            ScanError::HeightTooLarge(wrong)
        } else {
            ScanError::OutOfOrder { expected: at, found: wrong }
        };
        for parallel in [false, true] {
            let mut run = Run::new(&model, ScanCursor::at(FIRST));
            let found = |_: Candidate, _: &mut Wallets| ControlFlow::<()>::Continue(());
            let scan = &mut run.scan;
            let done = if parallel {
                scan.par_scan(items.iter().copied(), found)
            } else {
                scan.scan(items.iter().copied(), found)
            };
            assert_eq!(done, Err(error));
            let previous = Some(chain[19].hash);
            assert_eq!(run.scan.cursor(), ScanCursor { next_height: at, previous });
        }
    }
    let mut run = Run::new(&model, ScanCursor::at(u32::MAX));
    let mut last = all[0];
    last.height = u32::MAX;
    let done = run.scan.scan([last], |_, _| ControlFlow::<()>::Continue(()));
    assert_eq!(done, Err(ScanError::HeightTooLarge(u32::MAX)));
    assert!(!expected.is_empty());
}
