//! The scan itself, filter by filter.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use chainsieve_lanes::simd::Backend;

use super::windows::{Answer, TASK};
use super::{Candidate, Cursor, FilterItem, Reason, ScanError, Statistics, Wallets};
use crate::btc::bip158::{DecodedFilter, Matcher, PreparedScripts};

/// A pass over the filters of a chain, which can be stopped and gone on with.
///
/// The law: for each filter from the cursor on, the candidates are those of asking it for all
/// scripts that its wallets have by then, again for as long as the candidates of it add some.
///
/// # Examples
/// ```
/// use core::ops::ControlFlow;
///
/// use chainsieve::bitcoin::{BlockHash, hashes::Hash};
/// use chainsieve::btc::bip158::scan::{Cursor, FilterItem, Reason, Scan};
/// use chainsieve::btc::bip158::{GcsParams, filter_key, gcs};
///
/// // Two blocks: the first pays to a wallet's first address, the second to its next.
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
/// let mut scan = Scan::new(Cursor::at(7));
/// let wallet = scan.wallets_mut().add(0);
/// scan.wallets_mut().push(wallet, addresses[0]);
/// let mut found = Vec::new();
/// let done = scan.scan(items, |candidate, wallets| {
///     if let Reason::Scripts { wallet, indices } = candidate.reason {
///         found.push((candidate.height, indices.clone()));
///         // One address more than were used.
///         if indices.contains(&0) {
///             wallets.push(wallet, addresses[1]);
///         }
///     }
///     ControlFlow::<()>::Continue(())
/// })?;
/// assert_eq!(done, ControlFlow::Continue(()));
/// assert_eq!(found, [(7, vec![0]), (8, vec![1])]);
/// assert_eq!(scan.cursor(), Cursor { next_height: 9, previous: Some(hashes[1]) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scan {
    pub(super) wallets: Wallets,
    pub(super) cursor: Cursor,
    pub(super) statistics: Statistics,
    pub(super) backend: Backend,
    /// One for each task of filters; the first serves the scan on one core.
    pub(super) matchers: Vec<Matcher>,
}

impl Scan {
    /// A scan that starts or goes on at `cursor`, of no wallets yet.
    pub fn new(cursor: Cursor) -> Self {
        let wallets = Wallets::at(cursor.next_height);
        let matchers = Vec::from([Matcher::new()]);
        let backend = Backend::best();
        Self { wallets, cursor, statistics: Statistics::default(), backend, matchers }
    }

    /// The same scan, matching on `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.matchers = Vec::from([Matcher::new().with_backend(backend)]);
        Self { backend, ..self }
    }

    /// The wallets that are scanned for.
    pub fn wallets(&self) -> &Wallets {
        &self.wallets
    }

    /// The wallets, to add some, or scripts: they are asked for from the cursor on.
    pub fn wallets_mut(&mut self) -> &mut Wallets {
        &mut self.wallets
    }

    /// Where the scan goes on: behind the last block whose candidates are all reported.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// What was done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Goes back, so that `height` comes next: another chain took the place of the blocks from
    /// there on, or scripts came up that are to be asked of them too. Candidates from there on are
    /// to be forgotten, those still valid come again. Wallets keep their scripts.
    ///
    /// A height above the next one changes nothing.
    pub fn rewind(&mut self, height: u32) {
        if height < self.cursor.next_height {
            self.cursor = Cursor::at(height);
            self.wallets.rewind(height);
        }
    }

    /// Scans filters in the order of the chain, and calls `found` for each candidate, in the same
    /// order, once for each wallet that the filter may contain scripts of. Scripts that `found`
    /// adds are asked for in this filter too, and reported by another call.
    ///
    /// To stop, `found` breaks; or `items` end, between two filters. A block at which `found`
    /// breaks counts as not scanned: its candidates all come again when the scan goes on.
    /// `items` are taken up to 32 filters ahead of the ones that are reported; where `found`
    /// breaks, the cursor says which to begin with again.
    ///
    /// # Errors
    /// A filter of another height than the next: the ones before are scanned, the cursor stands
    /// behind them.
    ///
    /// # Cost
    /// Decoding each filter and hashing all scripts for it; with a commitment a double SHA-256 of
    /// the filter, which in lanes costs less than half. What is allocated is reused. Where scripts
    /// are added, filters that were asked ahead are decoded again, and asked for the new scripts
    /// alone; fewer are then asked ahead, and more again where none are added.
    pub fn scan<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        self.scan_windows(items, found, 1..=TASK, |question, matchers, items, answers| {
            question.ask(&mut matchers[0], items, answers);
        })
    }

    /// Reports what the filter answers, asks it for the scripts that this brings up, and moves
    /// the cursor behind it.
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
                found(candidate(Reason::Scripts { wallet, indices }), &mut self.wallets)?;
            }
            let all = self.wallets.asked();
            if all.len() == asked {
                break;
            }
            answer = ask_more(&mut decoded, item, all, asked);
            asked = all.len();
        }
        if let Some(why) = no_answer {
            is_candidate = true;
            found(candidate(Reason::NoAnswer(why)), &mut self.wallets)?;
        }

        self.cursor = Cursor { next_height: height + 1, previous: Some(block_hash) };
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

/// Asks a filter once more, for the scripts from index `from` on.
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
