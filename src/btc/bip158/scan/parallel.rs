//! The scan on all cores.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use rayon::prelude::*;

use super::scanner::{Answer, ask, check_order};
use super::{Candidate, FilterItem, Scan, ScanError, Wallets};
use crate::btc::bip158::{Matcher, PreparedScripts};

/// Filters that a core takes at a time, once nothing is being added.
const TASK: usize = 32;
/// Tasks for each core, so that none waits for long.
const TASKS_EACH: usize = 4;

impl Scan {
    /// As [`scan`](Self::scan), on all cores: the same candidates in the same order, and the same
    /// cursor and statistics.
    ///
    /// `items` are taken some hundred filters ahead of the ones that are reported; where `found`
    /// breaks, the cursor says which to begin with again.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// # Cost
    /// As that of [`scan`](Self::scan), shared by the cores. Where scripts are added, filters that
    /// were asked ahead are decoded again, and asked for the new scripts alone; fewer are then
    /// asked ahead, and more again where none are added.
    pub fn par_scan<'a, B>(
        &mut self,
        items: impl IntoIterator<Item = FilterItem<'a>>,
        mut found: impl FnMut(Candidate, &mut Wallets) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ScanError> {
        let least = rayon::current_num_threads();
        let most = least * TASKS_EACH * TASK;
        let mut items = items.into_iter();
        let mut window: Vec<FilterItem<'a>> = Vec::new();
        let mut answers = Vec::new();
        let mut size = most;
        loop {
            window.clear();
            let mut order = Ok(());
            for item in items.by_ref().take(size) {
                let last = window.last().map(|last| last.height + 1);
                order = check_order(last.unwrap_or(self.cursor.next_height), &item);
                if order.is_err() {
                    break;
                }
                window.push(item);
            }
            let Some(first) = window.first() else {
                return order.map(ControlFlow::Continue);
            };
            self.wallets.advance(first.height);
            answers.clear();
            answers.resize_with(window.len(), || Ok(Vec::new()));
            ask_all(&mut self.matchers, &window, &mut answers, self.wallets.asked(), 0);

            let mut asked = self.wallets.asked().len();
            let mut has_grown = false;
            for (index, item) in window.iter().enumerate() {
                self.wallets.advance(item.height);
                let all = self.wallets.asked();
                if all.len() > asked {
                    has_grown = true;
                    let (rest, answers) = (&window[index..], &mut answers[index..]);
                    let more = (asked..all.len()).filter_map(|index| all.get(index)).collect();
                    ask_all(&mut self.matchers, rest, answers, &more, asked);
                    asked = all.len();
                }
                let answer = core::mem::replace(&mut answers[index], Ok(Vec::new()));
                if let ControlFlow::Break(value) = self.settle(item, answer, &mut found) {
                    return Ok(ControlFlow::Break(value));
                }
            }
            order?;
            size = if has_grown { (size / 2).max(least) } else { (size * 2).min(most) };
        }
    }
}

/// Asks each filter for `scripts`, whose indices are counted from `first`, and adds what it says
/// to its answer.
fn ask_all(
    matchers: &mut Vec<Matcher>,
    items: &[FilterItem<'_>],
    answers: &mut [Answer],
    scripts: &PreparedScripts,
    first: usize,
) {
    let tasks = rayon::current_num_threads() * TASKS_EACH;
    if matchers.len() < tasks {
        matchers.resize(tasks, matchers[0].clone());
    }
    let task = items.len().div_ceil(tasks);
    let tasks = items.par_chunks(task).zip(answers.par_chunks_mut(task)).zip(matchers);
    tasks.for_each(|((items, answers), matcher)| {
        for (item, answer) in items.iter().zip(answers) {
            if let Ok(indices) = answer {
                match ask(matcher, item, scripts, first == 0) {
                    Ok(more) => indices.extend(more.iter().map(|index| first + index)),
                    Err(why) => *answer = Err(why),
                }
            }
        }
    });
}
