//! The scan on all cores.

use core::ops::ControlFlow;

use rayon::prelude::*;

use super::wallets::Pass;
use super::windows::TASK;
use super::{Candidate, FilterItem, FilterScan, ScanError, Wallets};

/// Number of tasks for each core. With several smaller tasks, no core is idle for long at the end
/// of a window.
const TASKS_EACH: usize = 4;

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
