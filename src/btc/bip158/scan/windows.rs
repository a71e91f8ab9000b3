//! Windows of filters that are matched ahead and then reported one by one.

use alloc::vec::Vec;
use core::ops::{ControlFlow, RangeInclusive};

use bitcoin::bip158::FilterHash;
use bitcoin::hashes::Hash as _;
use chainsieve_lanes::hash::sha256d::sha256d_each;
use chainsieve_lanes::simd::Backend;

use super::wallets::Pass;
use super::{Candidate, FilterItem, FilterScan, NoAnswer, ScanError, Wallets};
use crate::btc::bip158::{Matcher, PreparedScripts};

/// The answer of a filter: the indices of the scripts that it may contain, in ascending order.
pub(super) type Answer = Result<Vec<usize>, NoAnswer>;

/// Number of filters that one core matches at a time: enough to fill the SIMD lanes that hash them.
pub(super) const TASK: usize = 32;

/// Scripts to match with several filters.
pub(super) struct Question<'s> {
    pub(super) backend: Backend,
    pub(super) scripts: &'s PreparedScripts,
    /// The number of scripts that earlier passes have already matched with these filters.
    pub(super) asked_before: usize,
}

impl Question<'_> {
    /// Adds the matches of each filter to the filter's answer.
    pub(super) fn ask(
        &self,
        matcher: &mut Matcher,
        items: &[FilterItem<'_>],
        answers: &mut [Answer],
    ) {
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
    fn check_commitments(&self, items: &[FilterItem<'_>], answers: &mut [Answer]) {
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

impl FilterScan {
    /// Scans in windows of filters. Matches each window ahead with `ask`, and reports the filters
    /// in order. `sizes` limits the number of filters in a window. Windows shrink while scripts are
    /// added, because filters matched ahead must then be matched again.
    pub(super) fn scan_windows<'a, B>(
        &mut self,
        pass: Pass,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        mut found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
        sizes: RangeInclusive<usize>,
        ask: impl Fn(Question<'_>, &mut Vec<Matcher>, &[FilterItem<'a>], &mut [Answer]),
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
    pub(super) fn repeat<T>(&mut self, scan: impl FnOnce(&mut Self) -> T) -> T {
        self.wallets.start_repeat();
        let done = scan(self);
        self.wallets.stop_repeat();
        done
    }
}

/// Checks that the filter has the height `expected`.
fn check_order(expected: u32, item: &FilterItem<'_>) -> Result<(), ScanError> {
    match item.height {
        u32::MAX => Err(ScanError::HeightTooLarge(u32::MAX)),
        found if found != expected => Err(ScanError::OutOfOrder { expected, found }),
        _ => Ok(()),
    }
}
