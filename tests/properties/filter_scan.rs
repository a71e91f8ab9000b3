//! Scans compared with a plain loop. The loop queries each filter script by script with `bitcoin`'s
//! reader, and repeats until the hits reveal no more scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::bip158::{BlockFilterReader, FilterHash};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::scan::{
    Candidate, CandidateReason, Commitment, FilterItem, FilterScan, ScanCursor, ScanError,
    Statistics, Wallets,
};
use chainsieve::btc::bip158::{GcsParams, filter_hash, filter_key, gcs};

use testkit::{Rng, stride};

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

impl Block {
    /// Returns a block with these scripts of the wallets and with others.
    fn new(rng: &mut Rng, hash: BlockHash, holds: Vec<(usize, usize)>) -> Self {
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
        Self { hash, holds, content, commitment, is_mute }
    }
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
        Block::new(rng, hash, holds)
    };
    (0..length).map(&mut block).collect()
}

/// Returns a chain in which the wallets use their scripts in any order. Now and then, a distance
/// between two indices is larger than the gap.
fn shuffled_chain(rng: &mut Rng, length: usize) -> Vec<Block> {
    let mut holds = vec![Vec::new(); length];
    for wallet in 0..WALLETS {
        let mut index = 0;
        while index < 60 {
            for _ in 0..=rng.below(2) {
                holds[rng.below(length)].push((wallet, index));
            }
            let most = if rng.one_in(30) { GAP + 3 } else { GAP };
            index += 1 + rng.below(most);
        }
    }
    let block = |holds| {
        let hash = BlockHash::from_byte_array(rng.array());
        Block::new(rng, hash, holds)
    };
    holds.into_iter().map(block).collect()
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
    /// `true` if one hit adds a wallet.
    spawns: bool,
}

impl Model {
    fn new(rng: &mut Rng, length: usize) -> Self {
        let birthday = |rng: &mut Rng| FIRST - 1 + u32::try_from(rng.below(length)).expect("few");
        let mut wallets: Vec<_> = (0..WALLETS).map(|_| (birthday(rng), GAP + 1)).collect();
        if rng.one_in(2) {
            wallets[0].0 = 0;
        }
        Self { wallets, spawns: true }
    }

    fn see(&mut self, height: u32, wallet: usize, index: usize) {
        let scripts = &mut self.wallets[wallet].1;
        *scripts = (*scripts).max(index + GAP + 1);
        if self.spawns && (wallet, index) == (0, 7) && self.wallets.len() == WALLETS {
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
    fn apply(&self, wallets: &mut Wallets, ids: &mut Vec<usize>) {
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

/// Runs the plain loop over all blocks until the wallets do not change. The result does not depend
/// on the order of the blocks.
fn by_index(chain: &[Block], model: &mut Model) -> Found {
    loop {
        let before = model.clone();
        let found = naive(chain, model, FIRST);
        if *model == before {
            return found;
        }
    }
}

/// A scan and its model.
#[derive(Clone)]
struct Run {
    scan: FilterScan,
    model: Model,
    ids: Vec<usize>,
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
        let from = self.scan.cursor().next_height;
        let mut calls = 0..stop.unwrap_or(usize::MAX);
        self.pass(&chain[..end], &mut calls, |scan, found| {
            let items = items(&chain[..end], from);
            if parallel { scan.par_scan(items, found) } else { scan.scan(items, found) }
        })
    }

    /// Repeats passes for late scripts until none is missed, or until the calls run out. Returns the
    /// number of candidates before the pass that was stopped.
    fn go_missed(
        &mut self,
        chain: &[Block],
        calls: &mut Range<usize>,
        parallel: bool,
    ) -> Option<usize> {
        while let Some(heights) = self.scan.missed() {
            let (cursor, before) = (self.scan.cursor(), self.candidates.len());
            assert!(!heights.is_empty() && heights.end <= cursor.next_height);
            let stopped = self.pass(chain, calls, |scan, found| {
                let items = items(chain, heights.start);
                if parallel {
                    scan.par_scan_missed(items, found)
                } else {
                    scan.scan_missed(items, found)
                }
            });
            assert_eq!(self.scan.cursor(), cursor);
            if stopped {
                return Some(before);
            }
        }
        None
    }

    fn pass(
        &mut self,
        chain: &[Block],
        calls: &mut Range<usize>,
        run: impl FnOnce(
            &mut FilterScan,
            &mut dyn FnMut(Candidate, &mut Wallets) -> ControlFlow<()>,
        ) -> Result<ControlFlow<()>, ScanError>,
    ) -> bool {
        let Self { scan, model, ids, candidates } = self;
        let mut found = |candidate: Candidate, wallets: &mut Wallets| {
            if calls.next().is_none() {
                return ControlFlow::Break(());
            }
            let Candidate { height, ref reason, .. } = candidate;
            match reason {
                CandidateReason::Scripts { wallet, indices } => {
                    assert!(indices.is_sorted());
                    for &index in indices {
                        let expected = script(*wallet, index);
                        assert_eq!(wallets.scripts(*wallet).get(index), Some(&expected[..]));
                        model.see(height, *wallet, index);
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
        run(scan, &mut found).expect("in order").is_break()
    }

    /// Returns all candidates, and checks that none is reported twice.
    fn found(&self) -> Found {
        let found = once(&self.candidates);
        let is_mute = |it: &&Candidate| matches!(it.reason, CandidateReason::NoAnswer(_));
        let mute = found.values().filter(|hits| hits.is_none()).count();
        assert_eq!(self.candidates.iter().filter(is_mute).count(), mute, "a block twice");
        found
    }
}

/// Wallets that use their scripts in any order, the expected hits, and the number of questions: each
/// script that the wallets have at the end is matched once with each filter from the birthday on.
fn shuffled_case(seed: u64, length: usize) -> (Vec<Block>, Model, Found, u64) {
    let mut rng = Rng::new(seed);
    let chain = shuffled_chain(&mut rng, length);
    let mut model = Model { spawns: false, ..Model::new(&mut rng, length) };
    // Most uses are after the birthdays.
    for (birthday, _) in &mut model.wallets {
        *birthday = FIRST + (*birthday).saturating_sub(FIRST) / 4;
    }
    let mut last = model.clone();
    let expected = by_index(&chain, &mut last);
    let readable = (FIRST..).zip(&chain).filter(|(_, block)| !block.is_mute);
    let asked = |height: u32| last.wallets.iter().filter(move |wallet| wallet.0 <= height);
    let questions =
        readable.flat_map(|(height, _)| asked(height)).map(|wallet| wallet.1 as u64).sum();
    (chain, model, expected, questions)
}

/// The hits of a run, each of which occurs once. Blocks whose filters give no answer are reported
/// whenever scripts are added.
fn once(candidates: &[Candidate]) -> Found {
    let mut found = Found::new();
    for Candidate { height, reason, .. } in candidates {
        match reason {
            CandidateReason::Scripts { wallet, indices } => {
                let hits = found.entry(*height).or_insert(Some(BTreeSet::new()));
                let hits = hits.as_mut().expect("an answer");
                for &index in indices {
                    assert!(hits.insert((*wallet, index)), "{height}: twice");
                }
            }
            CandidateReason::NoAnswer(_) => {
                let before = found.insert(*height, None).flatten();
                assert_eq!(before, None, "{height}: hits of a filter without an answer");
            }
        }
    }
    found
}

/// A payment may be in a block below the one that extends the range of scripts to it.
#[test]
fn scripts_within_the_gap_are_found_whatever_the_order_of_the_blocks() {
    let (mut missed, mut passes, mut mute) = (0, 0, 0);
    let stride = stride(3);
    for (seed, length) in (0..60).zip((20..).step_by(6)).step_by(stride) {
        let (chain, model, expected, questions) = shuffled_case(4_000 + seed, length);
        let mut one = Run::new(&model, ScanCursor::at(FIRST));
        one.go(&chain, chain.len(), None, false);
        missed += usize::from(once(&one.candidates) != expected);
        while let Some(heights) = one.scan.missed() {
            let candidates = one.candidates.len();
            one.pass(&chain, &mut (0..usize::MAX), |scan, found| {
                scan.scan_missed(items(&chain, heights.start), found)
            });
            assert!(one.candidates[candidates..].is_sorted_by_key(|found| found.height));
            passes += 1;
        }
        assert_eq!(once(&one.candidates), expected, "seed {seed}");
        assert_eq!(one.scan.statistics().questions, questions, "seed {seed}: once each");
        mute += expected.values().filter(|found| found.is_none()).count();

        let mut all = Run::new(&model, ScanCursor::at(FIRST));
        all.go(&chain, chain.len(), None, true);
        all.go_missed(&chain, &mut (0..usize::MAX), true);
        assert_eq!(all.candidates, one.candidates, "seed {seed}");
        assert_eq!(all.scan.statistics(), one.scan.statistics());

        // Passes may run before the scan has read all filters, and may be given few filters.
        let mut parts = Run::new(&model, ScanCursor::at(FIRST));
        let rng = &mut Rng::new(seed);
        let mut end = 0;
        while end < chain.len() || parts.scan.missed().is_some() {
            end = (end + rng.below(20)).min(chain.len());
            parts.go(&chain, end, None, false);
            if let Some(heights) = parts.scan.missed().filter(|_| rng.one_in(2)) {
                let few = rng.below(30);
                parts.pass(&chain, &mut (0..usize::MAX), |scan, found| {
                    scan.scan_missed(items(&chain[..end], heights.start).take(few), found)
                });
            }
        }
        assert_eq!(once(&parts.candidates), expected, "seed {seed}");
        assert_eq!(parts.scan.statistics().questions, questions, "seed {seed}: once each");
    }
    let least = |number: usize| number / stride;
    assert!(
        missed > least(50) && passes > least(150) && mute > least(200),
        "{missed} {passes} {mute}"
    );
}

/// A pass that is stopped at any candidate reports this candidate's block again, and then goes on.
#[test]
fn a_pass_for_late_scripts_goes_on_where_it_stopped() {
    for seed in 0..3 {
        let (chain, model, expected, _) = shuffled_case(5_000 + seed, 40);
        for parallel in [false, true] {
            for stop in 0.. {
                let mut run = Run::new(&model, ScanCursor::at(FIRST));
                run.go(&chain, chain.len(), None, parallel);
                let Some(before) = run.go_missed(&chain, &mut (0..stop), parallel) else { break };
                // The candidates of the interrupted block are reported again.
                let next = run.scan.missed().expect("stopped").start;
                let late = run.candidates.split_off(before);
                run.candidates.extend(late.into_iter().filter(|it| it.height < next));
                assert_eq!(run.go_missed(&chain, &mut (0..usize::MAX), parallel), None);
                assert_eq!(once(&run.candidates), expected, "seed {seed}, stopped at {stop}");
            }
        }
    }
}

/// The scripts of a wallet that is added late, and of a rewound scan, are missed where they were not
/// matched, and nowhere else.
#[test]
fn what_is_missed_begins_at_the_birthday_and_ends_where_scripts_were_matched() {
    let chain = shuffled_chain(&mut Rng::new(6_000), 50);
    let go_on = |_: Candidate, _: &mut Wallets| ControlFlow::<()>::Continue(());
    let done = Ok(ControlFlow::Continue(()));
    let mut scan = FilterScan::new(ScanCursor::at(FIRST + 10));
    let early = scan.wallets_mut().add(FIRST);
    scan.wallets_mut().push(early, b"known before the scan");
    assert_eq!(scan.missed(), None, "the caller has searched below the cursor");
    assert_eq!(scan.scan(items(&chain[..30], FIRST + 10), go_on), done);
    scan.wallets_mut().push(early, b"revealed at 30");
    let late = scan.wallets_mut().add(FIRST + 5);
    assert_eq!(scan.missed(), Some(FIRST..FIRST + 30));
    scan.wallets_mut().push(late, b"a wallet added at 30");
    let unborn = scan.wallets_mut().add(FIRST + 40);
    scan.wallets_mut().push(unborn, b"matched from its birthday on");
    assert_eq!(scan.scan(items(&chain, FIRST + 30), go_on), done);
    assert_eq!(scan.missed(), Some(FIRST..FIRST + 30));
    // Blocks from a reorganisation on are matched with all scripts.
    scan.rewind(FIRST + 20);
    assert_eq!(scan.missed(), Some(FIRST..FIRST + 20));
    let before = scan.statistics().questions;
    assert_eq!(scan.scan_missed(items(&chain, FIRST), go_on), done);
    assert_eq!(scan.missed(), None);
    let readable = |from: usize| chain[from..20].iter().filter(|it| !it.is_mute).count() as u64;
    assert_eq!(scan.statistics().questions - before, readable(0) + readable(5));
    // Filters out of order are refused.
    assert_eq!(scan.scan(items(&chain, FIRST + 20), go_on), done);
    scan.wallets_mut().push(early, b"revealed at 50");
    let error = ScanError::OutOfOrder { expected: FIRST, found: FIRST + 1 };
    assert_eq!(scan.scan_missed(items(&chain, FIRST + 1), go_on), Err(error));
    assert_eq!(scan.missed(), Some(FIRST..FIRST + 50));
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
    let stride = stride(3);
    for (seed, length) in (0..60).zip((40..).step_by(8)).step_by(stride) {
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
    let least = |number: u32| number / u32::try_from(stride).expect("small");
    assert!(
        hits > least(3_000).into() && mute > least(1_000).into() && more > least(5_000).into(),
        "{hits} {mute} {more}"
    );
    assert!(spawned > least(20), "{spawned}");
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
