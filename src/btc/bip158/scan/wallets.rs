//! The wallets and scripts that a scan looks for.

use alloc::vec::Vec;
use core::ops::Range;

use crate::btc::bip158::PreparedScripts;

/// The wallets of one scan. The scripts of the wallets form one set, so that each filter is decoded
/// once.
#[derive(Debug, Clone)]
pub struct Wallets {
    members: Vec<Wallet>,
    /// The scripts of the active wallets, which are those with a birthday up to `height`.
    asked: Asked,
    /// The next height of the scan; while a filter is reported, the filter's height. Wallets with a
    /// birthday up to this height are active.
    height: u32,
    /// The lowest birthday above `height`.
    next_birthday: Option<u32>,
    /// `true` once the scan has reported a filter. Scripts that are added later were not matched
    /// with that filter.
    has_begun: bool,
    repeat: Repeat,
}

/// The pass over the filters below the cursor, in which scripts that were added late are matched.
#[derive(Debug, Clone, Default)]
struct Repeat {
    /// The next height of the pass.
    next: u32,
    /// The scripts with which the current window of filters is matched.
    asked: Asked,
    /// `true` while the pass reports filters: scripts that are added then are matched from its
    /// position on.
    is_running: bool,
}

#[derive(Debug, Clone)]
struct Wallet {
    birthday: u32,
    scripts: PreparedScripts,
    /// For each script, the heights at which it was not matched.
    missed: Vec<Missed>,
}

/// The heights below the cursor at which a script was not matched. The scan itself matches every
/// script from the cursor on.
#[derive(Debug, Clone, Copy)]
struct Missed {
    /// End (exclusive) of the heights, from the birthday on, that are left to a later pass.
    later: u32,
    /// End (exclusive) of the heights, from the position of the current pass on, at which that pass
    /// matches the script.
    now: u32,
}

/// Scripts to match with filters, each with its wallet and its index in that wallet.
#[derive(Debug, Clone, Default)]
struct Asked {
    scripts: PreparedScripts,
    owners: Vec<(usize, usize)>,
}

impl Asked {
    fn push(&mut self, script: &[u8], wallet: usize, index: usize) {
        self.scripts.push(script);
        self.owners.push((wallet, index));
    }

    fn clear(&mut self) {
        self.scripts.clear();
        self.owners.clear();
    }
}

/// Selects between the scan and its repeated pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// The scan, from the cursor on.
    Onward,
    /// The repeated pass below the cursor, with scripts that were added late.
    Repeat,
}

impl Wallets {
    /// Creates an empty set of wallets at `height`.
    pub(super) fn at(height: u32) -> Self {
        Self {
            members: Vec::new(),
            asked: Asked::default(),
            height,
            next_birthday: None,
            has_begun: false,
            repeat: Repeat::default(),
        }
    }

    /// Adds a wallet without scripts, with the given birthday, and returns its index: 0 for the first
    /// wallet, 1 for the next, and so on. The scan looks for the wallet's
    /// scripts from height `birthday` on, in blocks that are not scanned yet. For blocks that are
    /// scanned already, see [`FilterScan::missed`](super::FilterScan::missed).
    #[must_use = "scripts are added by the index of the wallet"]
    pub fn add(&mut self, birthday: u32) -> usize {
        let index = self.members.len();
        let (scripts, missed) = (PreparedScripts::new(), Vec::new());
        self.members.push(Wallet { birthday, scripts, missed });
        if birthday > self.height {
            self.next_birthday = Some(self.next_birthday.map_or(birthday, |at| at.min(birthday)));
        }
        index
    }

    /// Adds a script to a wallet, and returns its index in that wallet. A script that the wallet
    /// already has gets a second index.
    ///
    /// # Panics
    /// Panics if there is no wallet with this index.
    pub fn push(&mut self, wallet: usize, script: &[u8]) -> usize {
        let &mut Wallet { birthday, ref mut scripts, ref mut missed } = &mut self.members[wallet];
        let index = scripts.push(script);
        // The height from which the script is matched, and the end of the heights at which the
        // running pass still matches the script.
        let (from, now) = match (self.has_begun, self.repeat.is_running) {
            // The caller begins with these scripts, so the blocks below the cursor are not searched
            // for them.
            (false, _) => (birthday, 0),
            (true, false) => (self.height, 0),
            (true, true) => (self.repeat.next, self.height),
        };
        missed.push(Missed { later: from.max(birthday), now });
        if birthday <= self.height {
            self.asked.push(script, wallet, index);
        }
        if self.repeat.is_running {
            self.repeat.asked.push(script, wallet, index);
        }
        index
    }

    /// Adds several scripts to a wallet.
    ///
    /// # Panics
    /// Panics if there is no wallet with this index.
    pub fn extend<S: AsRef<[u8]>>(&mut self, wallet: usize, scripts: impl IntoIterator<Item = S>) {
        for script in scripts {
            self.push(wallet, script.as_ref());
        }
    }

    /// Returns the scripts of a wallet, in the order of their indices.
    ///
    /// # Panics
    /// Panics if there is no wallet with this index.
    pub fn scripts(&self, wallet: usize) -> &PreparedScripts {
        &self.members[wallet].scripts
    }

    /// Returns the number of wallets.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if there are no wallets.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the scripts with which filters are matched: those of all active wallets, or those of
    /// the window of the repeated pass. Scripts are only appended while a window is reported.
    pub(super) fn asked(&self, pass: Pass) -> &PreparedScripts {
        match pass {
            Pass::Onward => &self.asked.scripts,
            Pass::Repeat => &self.repeat.asked.scripts,
        }
    }

    /// Returns the next height to report.
    pub(super) fn next_height(&self, pass: Pass) -> u32 {
        match pass {
            Pass::Onward => self.height,
            Pass::Repeat => self.repeat.next,
        }
    }

    /// Records that the scan reports a filter.
    pub(super) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Moves to `height`, which is not below the current height. In the scan, this activates the
    /// wallets with birthdays up to `height`.
    pub(super) fn advance(&mut self, pass: Pass, height: u32) {
        if pass == Pass::Repeat {
            self.repeat.next = height;
            return;
        }
        let born = self.height..height;
        self.height = height;
        if self.next_birthday.is_none_or(|birthday| birthday > height) {
            return;
        }
        self.ask_for(|birthday| born.start < birthday && birthday <= born.end);
    }

    /// Moves back to `height`, and deactivates the wallets with birthdays after `height`.
    pub(super) fn rewind(&mut self, height: u32) {
        let born = self.height;
        self.height = height;
        if self.members.iter().any(|wallet| height < wallet.birthday && wallet.birthday <= born) {
            self.asked.clear();
            self.ask_for(|birthday| birthday <= height);
        }
        // The scan matches all scripts from `height` on.
        for missed in self.members.iter_mut().flat_map(|wallet| &mut wallet.missed) {
            missed.later = missed.later.min(height);
            missed.now = missed.now.min(height);
        }
    }

    /// Adds the scripts of all wallets whose birthday fulfils `is_born` to the active scripts.
    fn ask_for(&mut self, is_born: impl Fn(u32) -> bool) {
        for (id, Wallet { birthday, scripts, .. }) in (0..).zip(&self.members) {
            if is_born(*birthday) {
                for (index, script) in scripts.iter().enumerate() {
                    self.asked.push(script, id, index);
                }
            }
        }
        let birthdays = self.members.iter().map(|wallet| wallet.birthday);
        self.next_birthday = birthdays.filter(|&birthday| birthday > self.height).min();
    }

    /// Returns the heights at which scripts are still to be matched: the heights of the current
    /// pass if this pass is not finished, otherwise those of the next pass.
    pub(super) fn missed(&self) -> Option<Range<u32>> {
        self.left().or_else(|| self.span(|birthday, missed| birthday..missed.later))
    }

    /// Returns the heights that are left of the current pass.
    fn left(&self) -> Option<Range<u32>> {
        let next = self.repeat.next;
        self.span(|birthday, missed| birthday.max(next)..missed.now)
    }

    /// Returns the smallest range that contains the ranges of all scripts, without the empty
    /// ranges.
    fn span(&self, heights: impl Fn(u32, Missed) -> Range<u32>) -> Option<Range<u32>> {
        let ranges = self.members.iter().flat_map(|Wallet { birthday, missed, .. }| {
            missed.iter().map(|missed| heights(*birthday, *missed))
        });
        let ranges = ranges.filter(|range| !range.is_empty());
        ranges.reduce(|all, range| all.start.min(range.start)..all.end.max(range.end))
    }

    /// Starts or resumes the repeated pass.
    pub(super) fn start_repeat(&mut self) {
        let left = self.missed();
        if self.left().is_none() {
            for Wallet { birthday, missed, .. } in &mut self.members {
                for missed in missed {
                    missed.now = missed.later;
                    missed.later = *birthday;
                }
            }
        }
        // Heights at which no script is left to match are skipped.
        self.repeat.next = left.map_or(self.height, |heights| heights.start);
        self.repeat.is_running = true;
    }

    /// Ends or interrupts the repeated pass.
    pub(super) fn stop_repeat(&mut self) {
        self.repeat.is_running = false;
        self.repeat.asked.clear();
    }

    /// Selects the scripts with which at most `size` filters are matched, from the position of the
    /// repeated pass on. Returns the number of filters; 0 if the pass is finished.
    pub(super) fn select(&mut self, size: usize) -> usize {
        let end = self.left().map_or(0, |heights| heights.end);
        let Repeat { next, asked, .. } = &mut self.repeat;
        asked.clear();
        let left = end.saturating_sub(*next);
        let size = left.min(u32::try_from(size).unwrap_or(u32::MAX));
        for (id, Wallet { birthday, scripts, missed }) in
            (0..).zip(&self.members).filter(|(_, it)| it.birthday < *next + size)
        {
            for (index, (script, missed)) in scripts.iter().zip(missed).enumerate() {
                if missed.now > (*birthday).max(*next) {
                    asked.push(script, id, index);
                }
            }
        }
        size as usize
    }

    /// Returns `true` if the pass matches this script at this height.
    fn is_asked(&self, pass: Pass, height: u32, (wallet, index): (usize, usize)) -> bool {
        let Wallet { birthday, missed, .. } = &self.members[wallet];
        pass == Pass::Onward || (*birthday..missed[index].now).contains(&height)
    }

    /// Returns the number of scripts with which the filter of this height is matched.
    pub(super) fn num_asked(&self, pass: Pass, height: u32) -> usize {
        match pass {
            Pass::Onward => self.asked.scripts.len(),
            Pass::Repeat => {
                let owners = self.repeat.asked.owners.iter();
                owners.filter(|owner| self.is_asked(pass, height, **owner)).count()
            }
        }
    }

    /// Groups indices into [`asked`](Self::asked) by wallet, without scripts that the pass does not
    /// match at this height. Returns each wallet with the indices of the scripts in that wallet,
    /// both in ascending order.
    pub(super) fn owners_of(
        &self,
        pass: Pass,
        height: u32,
        found: &[usize],
    ) -> Vec<(usize, Vec<usize>)> {
        let owners = match pass {
            Pass::Onward => &self.asked.owners,
            Pass::Repeat => &self.repeat.asked.owners,
        };
        let owned = found.iter().map(|&index| owners[index]);
        let mut owned: Vec<_> = owned.filter(|it| self.is_asked(pass, height, *it)).collect();
        owned.sort_unstable();
        let runs = owned.chunk_by(|(a, _), (b, _)| a == b);
        runs.map(|run| (run[0].0, run.iter().map(|&(_, index)| index).collect())).collect()
    }
}
