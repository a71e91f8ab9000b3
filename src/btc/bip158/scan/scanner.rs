//! The scan, filter by filter.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use chainsieve_lanes::simd::Backend;

use super::wallets::Pass;
use super::windows::{Answer, TASK};
use super::{Candidate, CandidateReason, FilterItem, ScanCursor, ScanError, Statistics, Wallets};
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
    pub(super) wallets: Wallets,
    pub(super) cursor: ScanCursor,
    pub(super) statistics: Statistics,
    pub(super) backend: Backend,
    /// One matcher for each parallel task. A scan on one core uses only the first matcher.
    pub(super) matchers: Vec<Matcher>,
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

    /// Returns the wallets that are scanned for.
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
    /// filter, which costs less than half when it is computed in SIMD lanes. Memory is reused. When
    /// scripts are added, filters that were matched ahead are decoded again and matched with the
    /// new scripts only. The number of filters matched ahead then shrinks, and grows again while no
    /// scripts are added.
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
    /// Decodes each filter again, and hashes the scripts that it was not matched with.
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
    pub(super) fn settle<B>(
        &mut self,
        pass: Pass,
        item: &FilterItem<'_>,
        answer: Answer,
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
}

/// Matches a filter again, with the scripts from index `from` on.
fn ask_more(
    decoded: &mut Option<DecodedFilter>,
    item: &FilterItem<'_>,
    scripts: &PreparedScripts,
    from: usize,
) -> Answer {
    let filter = match decoded {
        Some(filter) => filter,
        None => decoded.insert(DecodedFilter::decode(&item.gcs()?)?),
    };
    Ok(filter.matching(scripts, from..scripts.len()))
}
