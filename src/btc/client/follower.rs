//! Code that both followers (BIP157 and BIP37) share: their events, their actions, the context of a
//! call, and the record of the scripts for which each height was searched.
//!
//! # For which scripts each height was searched
//! Scripts are added one after the other, each with the height from which it is wanted: the
//! birthday of its item. A height that was answered before a script was added is searched again for
//! this script alone. A script of a new index of a descriptor is wanted from the birthday of the
//! descriptor on, since the gap limit counts indices and not blocks (BIP44): a payment to this index
//! may be in an earlier block than the payment that brought the index within the gap.
//!
//! A coin may be found late: in a block below a block that was already scanned. The higher block
//! may spend this coin. So the scripts of such coins are added again, for the scanned blocks only.

use core::cmp::Reverse;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::{BlockHash, OutPoint, Script, ScriptBuf};

use super::filter_cache::FilterCache;
use super::hits::{Hits, Unconfirmed};
use super::wallets::{Since, ToWatch, Wallets};
use super::{Finding, Graded, Hit, Reason, WalletId};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::PeerId;
use crate::btc::wallet::Label;

/// Input of a follower.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The first event: coins and indices that an earlier run found.
    Start {
        /// The first height that is wanted.
        first: u32,
        /// Coins of the wallets with their scripts.
        coins: Vec<(OutPoint, ScriptBuf)>,
        /// Keychain indices that are known to be used.
        used: BTreeSet<Label>,
        /// Scripts of coins that were found after the state was stored, each with the first height
        /// at which the coin may be spent.
        late: Vec<(ScriptBuf, u32)>,
    },
    /// A peer that offers the needed services has connected. Contains the height that the peer
    /// claims.
    Connected(PeerId, u32),
    Disconnected(PeerId),
    /// The peer has shown that it has this block of the best chain.
    Shows(PeerId, BlockHash),
    /// The chain has changed. Contains all events of one change.
    Chain(&'a [ChainEvent]),
    Message(PeerId, NetworkMessage),
    /// The watched set has changed: the wallets have new or dropped scripts, and these coins are
    /// known now.
    Watch(Vec<(OutPoint, ScriptBuf)>),
    /// Every block from this height on must be searched again for everything watched.
    Rescan(u32),
    /// Contents of a file of stored filters; `None` if the file does not exist.
    Contents(u32, Option<&'a [u8]>),
    /// Report the grades of heights that are not reported yet.
    Flush,
    Tick,
}

/// Output of a follower.
#[derive(Debug)]
pub(super) enum Action {
    Send(PeerId, NetworkMessage),
    Disconnect(PeerId, Reason),
    /// Transactions that concern wallets, and the peer that sent them.
    Found(Option<PeerId>, Vec<(WalletId, Hit)>),
    Graded(Graded),
    Reopened(u32, u32),
    Report(Finding),
    /// Peers claim different filters for a block. The client replaces the ids of the peers by their
    /// names.
    Disputed(BlockAt, Vec<(bitcoin::bip158::FilterHash, Vec<PeerId>)>),
    /// Store this filter, so that a rescan need not download it.
    Keep(BlockAt, Vec<u8>),
    /// Read this file of stored filters.
    Read(u32),
}

/// Context of one call of a follower: the chain after the event, the wallets, the time, and the
/// actions so far.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) wallets: &'a mut Wallets,
    pub(super) cache: &'a FilterCache,
    /// The hits as they were before the event.
    pub(super) hits: &'a Hits,
    pub(super) now: Duration,
    pub(super) actions: Vec<Action>,
}

impl Turn<'_> {
    /// Returns the number and size of the unconfirmed hits of all wallets.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        self.wallets.ids().map(|id| self.hits.unconfirmed(id)).sum()
    }
}

/// New scripts and coins, each with the height from which it is wanted. These scripts and coins
/// need not be searched for at heights below `below`.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) below: u32,
    pub(super) new: Vec<(ToWatch, u32)>,
}

/// Groups new scripts by the heights that need not be searched for them, most heights first.
/// `answered_from` is the lowest height that was answered in this run: above it, the stored progress
/// of items does not apply, because they were not watched.
pub(super) fn group(new: Vec<ToWatch>, answered_from: u32, chain: &HeaderChain) -> Vec<Group> {
    let mut groups: BTreeMap<Reverse<u32>, Vec<(ToWatch, u32)>> = BTreeMap::new();
    for new in new {
        let (below, from) = match new.since {
            Since::Birthday(birthday) => (0, birthday.height(chain)),
            Since::Known { from, todo } => (todo.unwrap_or(u32::MAX).min(answered_from), from),
        };
        groups.entry(Reverse(below)).or_default().push((new, from));
    }
    groups.into_iter().map(|(Reverse(below), new)| Group { below, new }).collect()
}

/// Returns the blocks that left the chain, in the order of the events.
pub(super) fn blocks_that_left(events: &[ChainEvent]) -> Vec<BlockAt> {
    let gone = events.iter().filter_map(|event| match event {
        ChainEvent::Disconnected { at } => Some(*at),
        ChainEvent::Connected { .. } => None,
    });
    gone.collect()
}

/// A script to search for.
#[derive(Debug, Clone)]
struct Entry {
    script: ScriptBuf,
    /// The first height at which the script is wanted.
    from: u32,
    /// `true` if the script is wanted in blocks that were scanned already, because a coin of the
    /// script was unknown at the time of their scan.
    in_scanned: bool,
}

/// A run of consecutive heights that were searched for the same number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    last: u32,
    /// Number of entries for which these heights were searched: the first entries of the list.
    count: usize,
    /// `true` if the answers are withdrawn: they become valid again if peers confirm them. If the
    /// heights are answered anew instead, they must be searched for everything.
    is_withdrawn: bool,
}

/// The lowest `from` among the entries after a given entry. Numbers and heights strictly ascend: an
/// entry with a higher number and a lower or equal height replaces the earlier entries.
#[derive(Debug, Clone, Default)]
struct Lowest(Vec<(usize, u32)>);

impl Lowest {
    fn push(&mut self, number: usize, from: u32) {
        while self.0.last().is_some_and(|(_, last)| *last >= from) {
            self.0.pop();
        }
        self.0.push((number, from));
    }

    /// Returns the lowest height from which an entry with this number or a higher number is wanted.
    fn at_or_after(&self, number: usize) -> u32 {
        let place = self.0.partition_point(|(other, _)| *other < number);
        self.0.get(place).map_or(u32::MAX, |(_, from)| *from)
    }
}

/// The heights with an answer, and the scripts for which each of them was searched.
#[derive(Debug, Default)]
pub(super) struct Searched {
    entries: Vec<Entry>,
    lowest: Lowest,
    lowest_in_scanned: Lowest,
    /// Heights with an answer, by the first height of each run. The runs do not overlap.
    runs: BTreeMap<u32, Run>,
    /// Heights whose block was scanned.
    scanned: BTreeSet<u32>,
    /// Number of runs after the last [`tidy`](Self::tidy).
    tidied: usize,
}

impl Searched {
    /// Returns the number of entries so far.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a script that is wanted from a height on.
    pub(super) fn add(&mut self, script: ScriptBuf, from: u32) {
        self.lowest.push(self.entries.len(), from);
        self.entries.push(Entry { script, from, in_scanned: false });
    }

    /// Adds scripts, each with the height from which it is wanted. An earlier run has searched the
    /// heights below `below` for them. Heights that must be searched for other scripts are
    /// searched for these scripts too, because a height is searched for the last entries only.
    pub(super) fn add_known(&mut self, scripts: Vec<(ScriptBuf, u32)>, below: u32) {
        let mut done = Vec::new();
        for (&start, run) in self.runs.range(..below) {
            let last = run.last.min(below - 1);
            let end = match self.open_in(start, last, run.count) {
                Some(open) => open.checked_sub(1).filter(|end| *end >= start),
                None => Some(last),
            };
            done.extend(end.map(|end| (start..=end, *run)));
        }
        for (script, from) in scripts {
            self.add(script, from);
        }
        for (heights, run) in done {
            self.replace(&heights, Some(Run { count: self.entries.len(), ..run }));
        }
    }

    /// Adds the script of a coin that was just found. The script is wanted in the scanned blocks
    /// from a height on: one of them may spend the coin, which was unknown when they were scanned.
    /// Returns `false` if there are no such blocks, so that nothing was added.
    pub(super) fn add_coin(&mut self, script: &Script, from: u32) -> bool {
        let is_needed = self.scanned.range(from..).next().is_some();
        if is_needed {
            self.lowest_in_scanned.push(self.entries.len(), from);
            self.entries.push(Entry { script: script.to_owned(), from, in_scanned: true });
        }
        is_needed
    }

    /// Iterates over the scripts of the entries.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.entries.iter().map(|entry| &*entry.script)
    }

    /// Drops the entries of scripts that are not watched any more.
    pub(super) fn retain(&mut self, is_watched: impl Fn(&Script) -> bool) {
        // The number of entries that stay among the first ones, for each number of them.
        let mut staying = Vec::with_capacity(self.entries.len() + 1);
        staying.push(0);
        let mut count = 0;
        self.entries.retain(|entry| {
            let stays = is_watched(&entry.script);
            count += usize::from(stays);
            staying.push(count);
            stays
        });
        for run in self.runs.values_mut() {
            run.count = staying.get(run.count).copied().unwrap_or(count);
        }
        (self.lowest, self.lowest_in_scanned) = (Lowest::default(), Lowest::default());
        for (number, entry) in self.entries.iter().enumerate() {
            let lowest =
                if entry.in_scanned { &mut self.lowest_in_scanned } else { &mut self.lowest };
            lowest.push(number, entry.from);
        }
    }

    /// Records that heights were searched for the first `count` entries.
    pub(super) fn answer(&mut self, heights: RangeInclusive<u32>, count: usize) {
        let last = *heights.end();
        self.replace(&heights, Some(Run { last, count, is_withdrawn: false }));
        if self.runs.len() > 2 * self.tidied + 64 {
            self.tidy();
        }
    }

    /// Records that the block of a height was scanned for everything watched.
    pub(super) fn scan(&mut self, height: u32) {
        self.scanned.insert(height);
        self.answer(height..=height, self.entries.len());
    }

    /// Records that the block of a height was scanned in an earlier run.
    pub(super) fn was_scanned(&mut self, height: u32) {
        self.scanned.insert(height);
    }

    /// Records that heights with an answer must be searched again for everything watched.
    pub(super) fn reopen(&mut self, heights: &RangeInclusive<u32>) {
        self.change(heights, |run| run.count = 0);
    }

    /// Records that the answers about these heights are withdrawn, until they are confirmed or the
    /// heights are answered anew.
    pub(super) fn withdraw(&mut self, heights: &RangeInclusive<u32>) {
        self.change(heights, |run| run.is_withdrawn = true);
    }

    /// Records that withdrawn answers are valid again.
    pub(super) fn confirm(&mut self, heights: &RangeInclusive<u32>) {
        self.change(heights, |run| run.is_withdrawn = false);
    }

    /// Changes the runs within these heights.
    fn change(&mut self, heights: &RangeInclusive<u32>, change: impl Fn(&mut Run)) {
        let (first, last) = (*heights.start(), *heights.end());
        let runs = self.runs.range(self.run_start(first)..=last.max(first));
        let within = runs.filter(|(_, run)| run.last >= first);
        let within: Vec<_> = within.map(|(start, run)| ((*start).max(first), *run)).collect();
        for (start, mut run) in within {
            run.last = run.last.min(last);
            change(&mut run);
            self.replace(&(start..=run.last), Some(run));
        }
    }

    /// Drops the answers about these heights.
    pub(super) fn forget(&mut self, heights: &RangeInclusive<u32>) {
        self.replace(heights, None);
    }

    /// Drops all data about the heights from `height` on, because their blocks have left the chain.
    pub(super) fn truncate(&mut self, height: u32) {
        self.forget(&(height..=u32::MAX));
        drop(self.scanned.split_off(&height));
    }

    /// Returns the number of entries for which a height was searched: the first entries of the list.
    /// `None` without an answer.
    #[cfg(test)]
    fn count(&self, height: u32) -> Option<usize> {
        let (_, run) = self.runs.range(..=height).next_back()?;
        (run.last >= height).then_some(run.count)
    }

    /// Returns the first height from this one on that has no answer.
    pub(super) fn unanswered(&self, first: u32) -> u32 {
        let mut height = first;
        for (start, run) in self.runs.range(self.run_start(first)..) {
            if *start > height {
                break;
            }
            height = run.last.saturating_add(1).max(height);
        }
        height
    }

    /// Returns the last height with an answer.
    #[cfg(test)]
    fn last(&self) -> Option<u32> {
        self.runs.last_key_value().map(|(_, run)| run.last)
    }

    /// Returns the lowest of these heights that has an answer and must be searched again; `None` also
    /// if there are no heights.
    pub(super) fn open(&self, heights: RangeInclusive<u32>) -> Option<u32> {
        let (first, last) = (*heights.start(), *heights.end());
        let runs = self.runs.range(self.run_start(first)..=last.max(first));
        runs.filter(|(_, run)| run.last >= first).find_map(|(start, run)| {
            self.open_in((*start).max(first), run.last.min(last), run.count)
        })
    }

    /// Returns the lowest height of a part of a run that must be searched again.
    fn open_in(&self, first: u32, last: u32, count: usize) -> Option<u32> {
        let from = self.lowest.at_or_after(count).max(first);
        let of_scripts = (from <= last).then_some(from);
        let from = self.lowest_in_scanned.at_or_after(count).max(first);
        let of_coins =
            if from <= last { self.scanned.range(from..=last).next().copied() } else { None };
        of_scripts.into_iter().chain(of_coins).min()
    }

    /// Returns the lowest height with a scanned block that must be searched again because of a coin.
    pub(super) fn open_for_coins(&self) -> Option<u32> {
        self.runs.iter().find_map(|(start, run)| {
            let from = self.lowest_in_scanned.at_or_after(run.count).max(*start);
            if from > run.last { None } else { self.scanned.range(from..=run.last).next().copied() }
        })
    }

    /// Returns the number of the first entry for which a height must be searched. `None` if it was
    /// searched for everything. A height without a valid answer must be searched for everything.
    pub(super) fn first_wanted(&self, height: u32) -> Option<usize> {
        let run = self.runs.range(..=height).next_back().filter(|(_, run)| run.last >= height);
        let Some((_, run)) = run.filter(|(_, run)| !run.is_withdrawn) else { return Some(0) };
        self.open_in(height, height, run.count).map(|_| run.count)
    }

    /// Returns the scripts for which some heights were not searched yet, each with the lowest of
    /// these heights.
    pub(super) fn owed(&self) -> Vec<(&Script, u32)> {
        // For each number of entries, the heights that were searched for no more than these.
        let mut runs: Vec<_> =
            self.runs.iter().map(|(start, run)| (run.count, *start, run.last)).collect();
        runs.sort_unstable();
        let mut owed = Vec::new();
        for (number, entry) in self.entries.iter().enumerate() {
            let without = runs.iter().take_while(|(count, ..)| *count <= number);
            let open = without.filter(|(_, _, last)| entry.from <= *last);
            let lowest = open.map(|(_, start, _)| (*start).max(entry.from)).min();
            if let (Some(lowest), false) = (lowest, entry.in_scanned) {
                owed.push((&*entry.script, lowest));
            }
        }
        owed
    }

    /// Returns the first height of the run that contains a height, or the height itself.
    fn run_start(&self, height: u32) -> u32 {
        let before = self.runs.range(..=height).next_back();
        before.filter(|(_, run)| run.last >= height).map_or(height, |(start, _)| *start)
    }

    /// Replaces what is known about heights, and joins runs that are equal.
    fn replace(&mut self, heights: &RangeInclusive<u32>, run: Option<Run>) {
        let (mut first, mut last) = (*heights.start(), *heights.end());
        if first > last {
            return;
        }
        self.split(first);
        if let Some(next) = last.checked_add(1) {
            self.split(next);
        }
        while let Some((&start, _)) = self.runs.range(first..=last).next() {
            self.runs.remove(&start);
        }
        let Some(new) = run else { return };
        let is_equal = |run: &Run| (run.count, run.is_withdrawn) == (new.count, new.is_withdrawn);
        if let Some((&start, run)) = self.runs.range(..first).next_back()
            && is_equal(run)
            && run.last.checked_add(1) == Some(first)
        {
            self.runs.remove(&start);
            first = start;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(run) = self.runs.get(&next).copied()
            && is_equal(&run)
        {
            self.runs.remove(&next);
            last = run.last;
        }
        self.runs.insert(first, Run { last, ..new });
    }

    /// Splits the run that contains this height and the height before it.
    fn split(&mut self, height: u32) {
        let Some((_, run)) = self.runs.range_mut(..height).next_back() else { return };
        if run.last >= height {
            let after = *run;
            run.last = height - 1;
            self.runs.insert(height, after);
        }
    }

    /// Joins the heights that were searched for everything, so that the number of runs stays small,
    /// and skips entries that the other heights do not need.
    pub(super) fn tidy(&mut self) {
        let runs: Vec<_> = self.runs.iter().map(|(start, run)| (*start, *run)).collect();
        for (start, mut run) in runs {
            let open = self.open_in(start, run.last, run.count);
            let open = open.unwrap_or(run.last.saturating_add(1)).max(start);
            if open > start {
                let count = self.entries.len();
                self.replace(&(start..=open - 1), Some(Run { count, ..run }));
            }
            if open <= run.last {
                let later = self.entries.iter().skip(run.count);
                run.count += later.take_while(|entry| entry.from > run.last).count();
                self.replace(&(open..=run.last), Some(run));
            }
        }
        self.tidied = self.runs.len();
    }
}

#[cfg(test)]
mod tests {
    use testkit::Rng;

    use super::*;

    fn script(number: usize) -> ScriptBuf {
        ScriptBuf::from_bytes(number.to_le_bytes().to_vec())
    }

    /// What [`Searched`] keeps, without any of its short cuts: for each height with an answer, the
    /// entries that it was searched for.
    #[derive(Default)]
    struct Slow {
        entries: Vec<(usize, u32, bool)>,
        searched: BTreeMap<u32, BTreeSet<usize>>,
        scanned: BTreeSet<u32>,
    }

    impl Slow {
        fn is_open(&self, height: u32) -> bool {
            let Some(searched) = self.searched.get(&height) else { return false };
            (0..).zip(&self.entries).any(|(number, (_, from, in_scanned))| {
                let is_wanted = *from <= height && (!in_scanned || self.scanned.contains(&height));
                is_wanted && !searched.contains(&number)
            })
        }
    }

    /// Compares everything that both say.
    fn compare(fast: &Searched, slow: &Slow, when: &str) {
        let heights = 0..=40_u32;
        for height in heights.clone() {
            let is_open = fast.open(height..=height).is_some();
            assert_eq!(is_open, slow.is_open(height), "{when}, {height}");
            assert_eq!(fast.count(height).is_some(), slow.searched.contains_key(&height));
            let free = (height..=41).find(|it| !slow.searched.contains_key(it)).unwrap();
            assert_eq!(fast.unanswered(height), free, "{when}");
            if let Some(first) = fast.first_wanted(height)
                && let Some(searched) = slow.searched.get(&height)
            {
                // Nothing that is wanted precedes the first entry to search for.
                let missing = (0..).zip(&slow.entries).find(|(number, entry)| {
                    let is_wanted =
                        entry.1 <= height && (!entry.2 || slow.scanned.contains(&height));
                    is_wanted && !searched.contains(number)
                });
                assert!(missing.is_none_or(|(number, _)| number >= first), "{when}");
            }
        }
        let open = heights.clone().find(|height| slow.is_open(*height));
        assert_eq!(fast.open(heights), open, "{when}");
        assert!((0..=40).all(|height| fast.open(height + 1..=height).is_none()), "{when}");
        assert_eq!(fast.last(), slow.searched.keys().next_back().copied());
        // Of each script, the lowest height that was not searched for it.
        let owed: BTreeMap<_, _> =
            fast.owed().into_iter().map(|(it, from)| (it.to_owned(), from)).collect();
        for (number, (name, from, _)) in
            slow.entries.iter().enumerate().filter(|(_, (.., in_scanned))| !in_scanned)
        {
            let open = slow
                .searched
                .iter()
                .find(|(height, searched)| *height >= from && !searched.contains(&number));
            let lowest = owed.get(&script(*name)).copied();
            assert_eq!(lowest, open.map(|(height, _)| *height), "{when}");
        }
    }

    #[test]
    fn every_height_is_searched_for_every_script_from_its_first_height_on() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut fast, mut slow) = (Searched::default(), Slow::default());
            for step in 0..120 {
                let low = rng.u32() % 40;
                let high = low + rng.u32() % (41 - low);
                match rng.below(9) {
                    0 | 1 => {
                        fast.add(script(step), low);
                        slow.entries.push((step, low, false));
                    }
                    2 => {
                        let before = fast.len();
                        fast.add_coin(&script(step), low);
                        if fast.len() > before {
                            slow.entries.push((step, low, true));
                        }
                    }
                    3 | 4 => {
                        fast.answer(low..=high, fast.len());
                        let all: BTreeSet<_> = (0..slow.entries.len()).collect();
                        slow.searched.extend((low..=high).map(|height| (height, all.clone())));
                    }
                    5 => {
                        fast.scan(low);
                        slow.scanned.insert(low);
                        slow.searched.insert(low, (0..slow.entries.len()).collect());
                    }
                    6 => {
                        fast.reopen(&(low..=high));
                        for (_, searched) in slow.searched.range_mut(low..=high) {
                            searched.clear();
                        }
                    }
                    7 if rng.one_in(3) => {
                        fast.truncate(low);
                        drop(slow.searched.split_off(&low));
                        drop(slow.scanned.split_off(&low));
                    }
                    8 if rng.one_in(3) => {
                        let keep = |number: usize| number % 3 != 1;
                        fast.retain(|it| {
                            let bytes = it.as_bytes().try_into().unwrap();
                            keep(usize::from_le_bytes(bytes))
                        });
                        // Number the entries that stay anew.
                        let mut names = BTreeMap::new();
                        for (number, entry) in slow.entries.iter().enumerate() {
                            if keep(entry.0) {
                                names.insert(number, names.len());
                            }
                        }
                        slow.entries.retain(|entry| keep(entry.0));
                        for searched in slow.searched.values_mut() {
                            *searched =
                                searched.iter().filter_map(|it| names.get(it).copied()).collect();
                        }
                    }
                    _ => {
                        fast.forget(&(low..=high));
                        slow.searched.retain(|height, _| !(low..=high).contains(height));
                    }
                }
                if rng.one_in(10) {
                    fast.tidy();
                }
                compare(&fast, &slow, &format!("seed {seed}, step {step}"));
            }
        }
    }
}
