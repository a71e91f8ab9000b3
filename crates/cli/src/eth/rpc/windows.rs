//! Which blocks are asked for next, whatever limits the provider turns out to have.

use std::ops::RangeInclusive;

use super::limits::Limit;

/// Blocks of the first window, and of the largest.
const FIRST: u64 = 2_000;
const LARGEST: u64 = 100_000;
/// Logs in an answer above which windows don't grow.
const MANY: usize = 5_000;

/// What is known of the windows that a provider takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSize {
    /// Blocks of the next window.
    size: u64,
    /// Never more than these.
    cap: u64,
}

impl WindowSize {
    /// With the user's own limit, if there is one.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let cap = limit.unwrap_or(LARGEST).max(1);
        Self { size: limit.unwrap_or(FIRST).clamp(1, cap), cap }
    }
}

/// Blocks in order, window by window: each block is answered for once.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    /// The first block that is not answered for; none when all are.
    next: Option<u64>,
    last: u64,
    size: WindowSize,
    /// Blocks of the next window alone, as the provider suggested.
    once: Option<u64>,
}

/// The limit holds for a single block: there is nothing smaller to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SingleBlock;

impl Windows {
    pub(crate) fn new(blocks: &RangeInclusive<u64>, size: WindowSize) -> Self {
        let next = (!blocks.is_empty()).then_some(*blocks.start());
        Self { next, last: *blocks.end(), size, once: None }
    }

    /// The blocks to ask for; none when all are answered for.
    pub(crate) fn current(&self) -> Option<RangeInclusive<u64>> {
        let first = self.next?;
        let blocks = self.once.unwrap_or(self.size.size).max(1);
        Some(first..=first.saturating_add(blocks - 1).min(self.last))
    }

    /// The current window is answered, with so many logs.
    pub(crate) fn answered(&mut self, logs: usize) {
        let Some(window) = self.current() else { return };
        self.next = window.end().checked_add(1).filter(|&next| next <= self.last);
        if self.once.take().is_none() && logs < MANY {
            self.size.size = self.size.size.saturating_mul(2).min(self.size.cap);
        }
    }

    /// The current window was too much: the next has fewer blocks.
    pub(crate) fn limited(&mut self, limit: &Limit) -> Result<(), SingleBlock> {
        let Some(window) = self.current() else { return Ok(()) };
        let blocks = window.end() - window.start() + 1;
        if blocks <= 1 {
            return Err(SingleBlock);
        }
        self.once = None;
        match *limit {
            // A number that would not help is passed over.
            Limit::Blocks(Some(most)) if most < blocks => {
                self.size.cap = most.max(1);
                self.size.size = most.max(1);
            }
            Limit::SuggestedRange { from, to }
                if from == *window.start() && (from..*window.end()).contains(&to) =>
            {
                let blocks = to - from + 1;
                self.once = Some(blocks);
                self.size.size = self.size.size.min(blocks.saturating_mul(2)).max(1);
            }
            Limit::Blocks(_) => {
                self.size.cap = blocks / 2;
                self.size.size = blocks / 2;
            }
            _ => self.size.size = blocks / 2,
        }
        Ok(())
    }

    /// What was learnt, for the next range.
    pub(crate) fn size(&self) -> WindowSize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit() -> impl Strategy<Value = Limit> {
        prop_oneof![
            any::<Option<u64>>().prop_map(Limit::Blocks),
            (0..50_u64).prop_map(|most| Limit::Blocks(Some(most))),
            any::<Option<u64>>().prop_map(Limit::Results),
            Just(Limit::ResponseBytes),
            Just(Limit::Unspecified),
            any::<(u64, u64)>().prop_map(|(from, to)| Limit::SuggestedRange { from, to }),
            (0..3_000_u64, 0..3_000_u64).prop_map(|(from, to)| Limit::SuggestedRange { from, to }),
        ]
    }

    proptest! {
        /// Whatever is answered, no block is passed over, none is asked for behind one that was
        /// answered, and each limit makes the window smaller.
        #[test]
        fn each_block_is_answered_for_once_and_in_order(
            first in prop_oneof![0..1_000_u64, (u64::MAX - 5_000)..u64::MAX],
            blocks in 0..4_000_u64,
            user in proptest::option::of(0..3_000_u64),
            events in proptest::collection::vec(
                prop_oneof![limit().prop_map(Err), (0..20_000_usize).prop_map(Ok)], 0..60),
        ) {
            let range = first..=first.saturating_add(blocks);
            let mut windows = Windows::new(&range, WindowSize::new(user));
            let mut next = Some(first);
            let mut events = events.into_iter();
            while let Some(window) = windows.current() {
                prop_assert_eq!(Some(*window.start()), next);
                prop_assert!(window.end() >= window.start() && window.end() <= range.end());
                if let Some(user) = user {
                    prop_assert!(window.end() - window.start() < user.max(1));
                }
                match events.next().unwrap_or(Ok(0)) {
                    Ok(logs) => {
                        windows.answered(logs);
                        next = window.end().checked_add(1).filter(|next| next <= range.end());
                    }
                    Err(limit) => {
                        if windows.limited(&limit).is_ok() {
                            let smaller = windows.current().unwrap();
                            prop_assert_eq!(smaller.start(), window.start());
                            prop_assert!(smaller.end() < window.end());
                        } else {
                            prop_assert_eq!(window.start(), window.end());
                        }
                    }
                }
            }
            prop_assert_eq!(next, None);
        }
    }

    #[test]
    fn a_learnt_limit_stays_and_a_suggestion_does_not() {
        let mut windows = Windows::new(&(0..=99_999), WindowSize::new(None));
        assert_eq!(windows.current(), Some(0..=1_999));
        windows.answered(0);
        assert_eq!(windows.current(), Some(2_000..=5_999));
        windows.limited(&Limit::SuggestedRange { from: 2_000, to: 2_009 }).unwrap();
        assert_eq!(windows.current(), Some(2_000..=2_009));
        windows.answered(9_999);
        assert_eq!(windows.current(), Some(2_010..=2_029));
        windows.answered(0);
        assert_eq!(windows.current(), Some(2_030..=2_069));
        windows.limited(&Limit::Blocks(Some(30))).unwrap();
        for first in [2_030, 2_060, 2_090] {
            assert_eq!(windows.current(), Some(first..=first + 29));
            windows.answered(0);
        }
        let mut later = Windows::new(&(7..=7), windows.size());
        assert_eq!(later.current(), Some(7..=7));
        assert_eq!(later.limited(&Limit::Unspecified), Err(SingleBlock));
    }
}
