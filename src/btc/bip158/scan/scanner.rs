//! The scan, filter by filter.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use chainsieve_lanes::simd::Backend;

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
    /// If `height` is not below the cursor, nothing changes.
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
        self.scan_windows(items, found, 1..=TASK, |question, matchers, items, answers| {
            question.ask(&mut matchers[0], items, answers);
        })
    }

    /// Reports the answer of a filter. If the caller then adds scripts, matches the filter with the
    /// new scripts. Finally, moves the cursor to the height after the filter.
    pub(super) fn settle<B>(
        &mut self,
        item: &FilterItem<'_>,
        answer: Answer,
        found: &mut impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let &FilterItem { height, block_hash, .. } = item;
        let candidate = |reason| Candidate { height, block_hash, reason };
        let mut asked = self.wallets.asked().len();
        let is_skipped = asked == 0;
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
            for (wallet, indices) in self.wallets.owners_of(&indices) {
                is_candidate = true;
                found(candidate(CandidateReason::Scripts { wallet, indices }), &mut self.wallets)?;
            }
            let all = self.wallets.asked();
            // A wallet that sees a hit may reveal addresses, and this block may pay these addresses
            // too.
            if all.len() == asked {
                break;
            }
            answer = ask_more(&mut decoded, item, all, asked);
            asked = all.len();
        }
        // If the filter gives no answer, any wallet may have scripts in the block.
        if let Some(why) = no_answer {
            is_candidate = true;
            found(candidate(CandidateReason::NoAnswer(why)), &mut self.wallets)?;
        }

        self.cursor = ScanCursor { next_height: height + 1, previous: Some(block_hash) };
        let statistics = &mut self.statistics;
        if is_skipped {
            statistics.skipped += 1;
            return ControlFlow::Continue(());
        }
        statistics.filters += 1;
        statistics.unverified += u64::from(item.commitment.is_none());
        statistics.bytes += item.content.len() as u64;
        statistics.candidates += u64::from(is_candidate);
        match no_answer {
            Some(_) => statistics.no_answers += 1,
            None => statistics.questions += asked as u64,
        }
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
