//! The scan: windows of filters are matched ahead, and then reported filter by filter.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range, RangeInclusive};

use bitcoin::bip158::FilterHash;
use bitcoin::hashes::Hash as _;
use chainsieve_lanes::hash::sha256d::sha256d_each;
use chainsieve_lanes::simd::Backend;
#[cfg(feature = "rayon")]
use rayon::prelude::*;

use super::wallets::Pass;
use super::{
    Candidate, CandidateReason, FilterItem, NoAnswer, ScanCursor, ScanError, Statistics, Wallets,
};
use crate::btc::bip158::{DecodedFilter, Matcher, PreparedScripts};

/// A resumable scan of the filters of a chain.
///
/// From the cursor on, each filter is matched with all scripts that the wallets have when the
/// filter is reported. If the caller adds scripts for a candidate, the filter is matched with them
/// too. The candidates do not depend on the number of filters that are matched ahead.
///
/// # Examples
/// ```
/// use core::ops::ControlFlow;
///
/// use chainsieve::bitcoin::{BlockHash, hashes::Hash};
/// use chainsieve::btc::bip158::scan::{ScanCursor, FilterItem, CandidateReason, FilterScan};
/// use chainsieve::btc::bip158::{GcsParams, filter_key, gcs};
///
/// // Two blocks: the first pays a wallet's first address, the second its next address.
/// let hashes = [BlockHash::hash(b"block 7"), BlockHash::hash(b"block 8")];
/// let addresses: [&[u8]; 2] = [b"address 0", b"address 1"];
/// let filter = |block: usize| {
///     gcs::encode(GcsParams::BASIC, filter_key(&hashes[block]), [addresses[block]])
/// };
/// let filters = [filter(0)?, filter(1)?];
/// let items = (0..2).map(|block| FilterItem {
///     height: 7 + block as u32,
///     block_hash: hashes[block],
///     content: &filters[block],
///     commitment: None,
/// });
///
/// let mut scan = FilterScan::new(ScanCursor::at(7));
/// let wallet = scan.wallets_mut().add(0);
/// scan.wallets_mut().push(wallet, addresses[0]);
/// let mut found = Vec::new();
/// let done = scan.scan(items, |candidate, wallets| {
///     if let CandidateReason::Scripts { wallet, indices } = candidate.reason {
///         found.push((candidate.height, indices.clone()));
///         // Keep one more address than is used.
///         if indices.contains(&0) {
///             wallets.push(wallet, addresses[1]);
///         }
///     }
///     ControlFlow::<()>::Continue(())
/// })?;
/// assert_eq!(done, ControlFlow::Continue(()));
/// assert_eq!(found, [(7, vec![0]), (8, vec![1])]);
/// assert_eq!(scan.cursor(), ScanCursor { next_height: 9, previous: Some(hashes[1]) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FilterScan {
    wallets: Wallets,
    cursor: ScanCursor,
    statistics: Statistics,
    backend: Backend,
    /// One matcher for each parallel task. A scan on one core uses only the first matcher.
    matchers: Vec<Matcher>,
}

impl FilterScan {
    /// Creates a scan that starts or resumes at `cursor`, without wallets.
    pub fn new(cursor: ScanCursor) -> Self {
        let wallets = Wallets::at(cursor.next_height);
        let matchers = Vec::from([Matcher::new()]);
        let backend = Backend::best();
        Self { wallets, cursor, statistics: Statistics::default(), backend, matchers }
    }

    /// Returns the same scan, which matches on `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.matchers = Vec::from([Matcher::new().with_backend(backend)]);
        Self { backend, ..self }
    }

    /// Returns the wallets of the scan.
    pub fn wallets(&self) -> &Wallets {
        &self.wallets
    }

    /// Returns the wallets, to add wallets or scripts. The scan looks for added scripts from the
    /// cursor on.
    pub fn wallets_mut(&mut self) -> &mut Wallets {
        &mut self.wallets
    }

    /// Returns the position at which the scan continues: after the last block whose candidates were
    /// all reported.
    ///
    /// The cursor says nothing about blocks below it that were scanned before a script was added.
    /// If a stored cursor is to mean that all blocks below it are searched for all scripts of the
    /// wallets, store it only while [`missed`](Self::missed) returns `None`.
    pub fn cursor(&self) -> ScanCursor {
        self.cursor
    }

    /// Returns the counters of the scan.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Moves the cursor back to `height`.
    ///
    /// Two reasons to rewind: a reorganisation replaced the blocks from `height` on, or these
    /// blocks must be matched with new scripts. The caller must drop all candidates from `height`
    /// on; the valid candidates are reported again. Wallets keep their scripts.
    ///
    /// To match blocks with the new scripts only, use [`scan_missed`](Self::scan_missed) instead. If
    /// `height` is not below the cursor, nothing changes.
    pub fn rewind(&mut self, height: u32) {
        if height < self.cursor.next_height {
            self.cursor = ScanCursor::at(height);
            self.wallets.rewind(height);
        }
    }

    /// Scans filters in chain order, and calls `found` for each candidate in chain order.
    ///
    /// `found` is called once for each wallet whose scripts the filter may contain. Scripts that
    /// `found` adds are matched with the same filter too, and reported by another call.
    ///
    /// The scan stops when `found` returns `Break`, or when `items` ends. In the first case, the
    /// candidate's block is treated as not scanned: its candidates are reported again when the scan
    /// resumes. Up to 32 filters are taken from `items` before they are reported. After a break,
    /// [`cursor`](Self::cursor) returns the height to begin with.
    ///
    /// # Errors
    /// Returns an error if a filter does not have the expected height. All filters before the
    /// faulty filter are scanned, and the cursor is after these filters.
    ///
    /// # Cost
    /// Decodes each filter and hashes all scripts for it. A commitment adds a double SHA-256 of the
    /// filter. In SIMD lanes, this hash takes less than half of the time that it takes without
    /// lanes. Memory is reused. When scripts are added, filters that were matched ahead are decoded
    /// again and matched with the new scripts only. The number of filters matched ahead then
    /// shrinks, and grows again while no scripts are added.
    pub fn scan<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.windows(Pass::Onward, items, found)
    }

    /// Returns the heights of a pass of [`scan_missed`](Self::scan_missed): from the lowest to the
    /// highest block below the cursor that was not matched with all scripts of a wallet whose
    /// birthday is not after the block. Returns `None` if there is no such block.
    ///
    /// Scripts that were added before the first filter are never missed: if the scan resumes at a
    /// cursor, an earlier scan has searched the blocks below it for them.
    ///
    /// # Cost
    /// Proportional to the number of scripts.
    pub fn missed(&self) -> Option<Range<u32>> {
        self.wallets.missed()
    }

    /// Matches blocks below the cursor with the scripts that were added after these blocks were
    /// scanned, and only with these. Calls `found` for each candidate, in chain order. The cursor
    /// stays.
    ///
    /// `items` are the filters from the first height of [`missed`](Self::missed) on. Filters after
    /// the last height are not taken. A pass may report a block that was a candidate before, but
    /// never with the same script, except after a break.
    ///
    /// `found` may add scripts, as in [`scan`](Self::scan): the pass then matches them with the same
    /// filter and with all filters up to the cursor, so `items` should not end before the cursor.
    /// The filters below are left to another pass. Repeat the pass until `missed` returns `None`.
    ///
    /// If `found` returns `Break`, or if `items` ends too early, the next call resumes the pass at
    /// the first height of `missed`. A break has the same effect as in `scan`.
    ///
    /// # Errors
    /// Returns an error if a filter does not have the expected height.
    ///
    /// # Cost
    /// Decodes each filter again, and hashes the scripts with which it was not matched yet.
    ///
    /// # Examples
    /// ```
    /// use core::ops::ControlFlow;
    ///
    /// use chainsieve::bitcoin::{BlockHash, hashes::Hash};
    /// use chainsieve::btc::bip158::scan::{
    ///     Candidate, CandidateReason, FilterItem, FilterScan, ScanCursor, Wallets,
    /// };
    /// use chainsieve::btc::bip158::{GcsParams, filter_key, gcs};
    ///
    /// // The first block pays index 7 of a wallet, the second pays index 4. With a gap limit of 3,
    /// // index 7 is searched for only once index 4 is known to be used.
    /// let address = |index: usize| format!("address {index}").into_bytes();
    /// let hashes = [BlockHash::hash(b"block 0"), BlockHash::hash(b"block 1")];
    /// let paid = [address(7), address(4)];
    /// let filter = |at: usize| {
    ///     gcs::encode(GcsParams::BASIC, filter_key(&hashes[at]), [&paid[at][..]])
    /// };
    /// let filters = [filter(0)?, filter(1)?];
    /// let items = |from: u32| {
    ///     let filters = filters.iter().zip(hashes).enumerate().skip(from as usize);
    ///     filters.map(|(at, (content, block_hash))| FilterItem {
    ///         height: at as u32,
    ///         block_hash,
    ///         content,
    ///         commitment: None,
    ///     })
    /// };
    ///
    /// let mut scan = FilterScan::new(ScanCursor::at(0));
    /// let wallet = scan.wallets_mut().add(0);
    /// scan.wallets_mut().extend(wallet, (0..=4).map(address));
    /// let mut hits = Vec::new();
    /// let mut found = |candidate: Candidate, wallets: &mut Wallets| {
    ///     if let CandidateReason::Scripts { wallet, indices } = candidate.reason {
    ///         for index in indices {
    ///             hits.push((candidate.height, index));
    ///             let known = wallets.scripts(wallet).len();
    ///             wallets.extend(wallet, (known..=index + 3).map(address));
    ///         }
    ///     }
    ///     ControlFlow::<()>::Continue(())
    /// };
    /// scan.scan(items(0), &mut found)?;
    /// while let Some(heights) = scan.missed() {
    ///     scan.scan_missed(items(heights.start), &mut found)?;
    /// }
    /// assert_eq!(hits, [(1, 4), (0, 7)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan_missed<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.repeat(|scan| scan.windows(Pass::Repeat, items, found))
    }

    fn windows<'a, B>(
        &mut self,
        pass: Pass,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.scan_windows(pass, items, found, 1..=TASK, |question, matchers, items, answers| {
            question.ask(&mut matchers[0], items, answers);
        })
    }

    /// Reports the answer of a filter. If the caller then adds scripts, matches the filter with the
    /// new scripts. Finally, moves to the height after the filter.
    fn settle<B>(
        &mut self,
        pass: Pass,
        item: &FilterItem<'_>,
        answer: FilterAnswer,
        found: &mut impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let &FilterItem { height, block_hash, .. } = item;
        let candidate = |reason| Candidate { height, block_hash, reason };
        self.wallets.begin();
        let mut asked = self.wallets.asked(pass).len();
        let is_skipped = self.wallets.num_asked(pass, height) == 0;
        let (mut is_candidate, mut no_answer) = (false, None);
        let mut decoded = None;
        let mut answer = answer;
        loop {
            let indices = match answer {
                Ok(indices) => indices,
                Err(why) => {
                    no_answer = Some(why);
                    break;
                }
            };
            for (wallet, indices) in self.wallets.owners_of(pass, height, &indices) {
                is_candidate = true;
                found(candidate(CandidateReason::Scripts { wallet, indices }), &mut self.wallets)?;
            }
            let all = self.wallets.asked(pass);
            // A wallet that sees a hit may reveal addresses, and this block may pay these addresses
            // too.
            if all.len() == asked {
                break;
            }
            answer = ask_more(&mut decoded, item, all, asked);
            asked = all.len();
        }
        // If the filter gives no answer, any wallet may have scripts in the block.
        if let Some(why) = no_answer.filter(|_| !is_skipped) {
            is_candidate = true;
            found(candidate(CandidateReason::NoAnswer(why)), &mut self.wallets)?;
        }

        let questions = match no_answer {
            Some(_) => 0,
            None => self.wallets.num_asked(pass, height),
        };
        self.wallets.advance(pass, height + 1);
        let statistics = &mut self.statistics;
        if pass == Pass::Onward {
            self.cursor = ScanCursor { next_height: height + 1, previous: Some(block_hash) };
            statistics.skipped += u64::from(is_skipped);
        }
        if is_skipped {
            return ControlFlow::Continue(());
        }
        match pass {
            Pass::Onward => {
                statistics.filters += 1;
                statistics.unverified += u64::from(item.commitment.is_none());
                statistics.bytes += item.content.len() as u64;
            }
            Pass::Repeat => statistics.repeated += 1,
        }
        statistics.candidates += u64::from(is_candidate);
        statistics.no_answers += u64::from(no_answer.is_some());
        statistics.questions += questions as u64;
        ControlFlow::Continue(())
    }

    /// Scans in windows of filters. Matches each window ahead with `ask`, and reports the filters
    /// in order. `sizes` limits the number of filters in a window. Windows shrink while scripts are
    /// added, because filters matched ahead must then be matched again.
    fn scan_windows<'a, B>(
        &mut self,
        pass: Pass,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        mut found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
        sizes: RangeInclusive<usize>,
        ask: impl Fn(Question<'_>, &mut Vec<Matcher>, &[FilterItem<'a>], &mut [FilterAnswer]),
    ) -> Result<ControlFlow<B>, ScanError> {
        let mut items = items.into_iter();
        let mut window: Vec<FilterItem<'a>> = Vec::new();
        let mut answers = Vec::new();
        let mut size = *sizes.end();
        loop {
            window.clear();
            let room = match pass {
                Pass::Onward => size,
                Pass::Repeat => self.wallets.select(size),
            };
            let mut order = Ok(());
            for item in items.by_ref().take(room) {
                let last = window.last().map(|last| last.height + 1);
                order = check_order(last.unwrap_or(self.wallets.next_height(pass)), &item);
                if order.is_err() {
                    // The filters before the gap are scanned first, then the error is returned.
                    break;
                }
                window.push(item);
            }
            if window.is_empty() {
                return order.map(ControlFlow::Continue);
            }
            answers.clear();
            answers.resize_with(window.len(), || Ok(Vec::new()));

            let (mut asked, mut has_grown) = (0, false);
            for (at, item) in window.iter().enumerate() {
                let all = self.wallets.asked(pass);
                // Scripts were added since the window was matched. The remaining filters must be
                // matched with the new scripts.
                if all.len() > asked {
                    has_grown = at > 0;
                    let new: PreparedScripts;
                    let scripts = if asked == 0 {
                        all
                    } else {
                        new = (asked..all.len()).filter_map(|index| all.get(index)).collect();
                        &new
                    };
                    let question = Question { backend: self.backend, scripts, asked_before: asked };
                    ask(question, &mut self.matchers, &window[at..], &mut answers[at..]);
                    asked = all.len();
                }
                let answer = core::mem::replace(&mut answers[at], Ok(Vec::new()));
                if let ControlFlow::Break(value) = self.settle(pass, item, answer, &mut found) {
                    return Ok(ControlFlow::Break(value));
                }
            }
            order?;
            let wanted = if has_grown { size / 2 } else { size * 2 };
            size = wanted.clamp(*sizes.start(), *sizes.end());
        }
    }

    /// Runs the repeated pass with `scan`.
    fn repeat<T>(&mut self, scan: impl FnOnce(&mut Self) -> T) -> T {
        self.wallets.start_repeat();
        let done = scan(self);
        self.wallets.stop_repeat();
        done
    }
}

/// The answer of a filter: the indices of the scripts that it may contain, in ascending order.
type FilterAnswer = Result<Vec<usize>, NoAnswer>;

/// Number of filters that one core matches at a time: enough to fill the SIMD lanes that hash them.
const TASK: usize = 32;

/// Scripts to match with several filters.
struct Question<'s> {
    backend: Backend,
    scripts: &'s PreparedScripts,
    /// The number of scripts that earlier passes have already matched with these filters.
    asked_before: usize,
}

impl Question<'_> {
    /// Adds the matches of each filter to the filter's answer.
    fn ask(&self, matcher: &mut Matcher, items: &[FilterItem<'_>], answers: &mut [FilterAnswer]) {
        let Self { scripts, asked_before, .. } = *self;
        if scripts.is_empty() {
            return;
        }
        // Commitments are checked only in the first pass over a window, because later passes have
        // the same filters.
        if asked_before == 0 {
            self.check_commitments(items, answers);
        }
        for (item, answer) in items.iter().zip(answers) {
            let Ok(indices) = answer else { continue };
            match item.gcs().and_then(|filter| matcher.matching(&filter, scripts)) {
                Ok(more) => indices.extend(more.iter().map(|index| asked_before + index)),
                Err(why) => *answer = Err(why.into()),
            }
        }
    }

    /// If a filter does not meet its commitment, replaces its answer by an error.
    fn check_commitments(&self, items: &[FilterItem<'_>], answers: &mut [FilterAnswer]) {
        let committed = || {
            let commitments = items.iter().enumerate();
            commitments.filter_map(|(at, item)| Some((at, item.content, item.commitment?)))
        };
        let messages: Vec<_> = committed().map(|(_, content, _)| [content, &[], &[]]).collect();
        if messages.is_empty() {
            return;
        }
        let hashes = sha256d_each(self.backend, &messages);
        for ((at, _, commitment), hash) in committed().zip(hashes) {
            let hash = FilterHash::from_byte_array(hash);
            if !commitment.is_met_by(&hash) {
                answers[at] = Err(NoAnswer::NotCommitted(hash));
            }
        }
    }
}

/// Matches a filter again, with the scripts from index `from` on.
fn ask_more(
    decoded: &mut Option<DecodedFilter>,
    item: &FilterItem<'_>,
    scripts: &PreparedScripts,
    from: usize,
) -> FilterAnswer {
    let filter = match decoded {
        Some(filter) => filter,
        None => decoded.insert(DecodedFilter::decode(&item.gcs()?)?),
    };
    Ok(filter.matching(scripts, from..scripts.len()))
}

/// Checks that the filter has the height `expected`.
fn check_order(expected: u32, item: &FilterItem<'_>) -> Result<(), ScanError> {
    match item.height {
        u32::MAX => Err(ScanError::HeightTooLarge(u32::MAX)),
        found if found != expected => Err(ScanError::OutOfOrder { expected, found }),
        _ => Ok(()),
    }
}

/// Number of tasks for each core. With several smaller tasks, no core is idle for long at the end
/// of a window.
#[cfg(feature = "rayon")]
const TASKS_EACH: usize = 4;

#[cfg(feature = "rayon")]
impl FilterScan {
    /// Like [`scan`](Self::scan), on all cores, with the same candidates in the same order, the
    /// same cursor and the same statistics. Up to 128 filters for each core are taken from `items`
    /// before they are reported.
    ///
    /// # Errors
    /// Returns the errors of [`scan`](Self::scan).
    ///
    /// # Cost
    /// The cores share the work of [`scan`](Self::scan). The scan takes memory for four decoded
    /// filters per core.
    pub fn par_scan<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.par_windows(Pass::Onward, items, found)
    }

    /// Like [`scan_missed`](Self::scan_missed), on all cores, with the same candidates in the same
    /// order.
    ///
    /// # Errors
    /// Returns the errors of [`scan_missed`](Self::scan_missed).
    ///
    /// # Cost
    /// As [`par_scan`](Self::par_scan), with fewer scripts.
    pub fn par_scan_missed<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.repeat(|scan| scan.par_windows(Pass::Repeat, items, found))
    }

    fn par_windows<'a, B>(
        &mut self,
        pass: Pass,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        let cores = rayon::current_num_threads();
        let tasks = cores * TASKS_EACH;
        if self.matchers.len() < tasks {
            self.matchers.resize(tasks, self.matchers[0].clone());
        }
        self.scan_windows(
            pass,
            items,
            found,
            cores..=tasks * TASK,
            |question, matchers, items, answers| {
                let each = items.len().div_ceil(tasks);
                let tasks = items.par_chunks(each).zip(answers.par_chunks_mut(each)).zip(matchers);
                tasks.for_each(|((items, answers), matcher)| question.ask(matcher, items, answers));
            },
        )
    }
}
