//! Splits the range of an `eth_getLogs` into windows that the provider takes.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use thiserror::Error;

use super::Limit;

/// Blocks of the first window, and of the largest.
const FIRST: u64 = 2_000;
const LARGEST: u64 = 100_000;
/// Windows with more logs than this don't grow: most providers limit an answer to 10,000 logs.
const MANY: usize = 5_000;

/// The size of window that a provider takes, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Blocks of the next window.
    size: u64,
    /// Never more than these.
    cap: u64,
}

impl WindowSize {
    /// Starts at 2,000 blocks and grows to 100,000, or starts at the user's own limit and stays
    /// below it. A limit of 0 counts as 1.
    pub fn new(limit: Option<u64>) -> Self {
        let cap = limit.unwrap_or(LARGEST).max(1);
        Self { size: limit.unwrap_or(FIRST).clamp(1, cap), cap }
    }
}

/// The blocks of a query in order, window by window: each block is answered for once.
///
/// ```
/// use chainsieve::eth::provider::{Limit, WindowAction, WindowEvent, Windows, WindowSize};
/// let mut windows = Windows::new(&(100..=4_000), WindowSize::new(None));
/// assert_eq!(windows.handle(WindowEvent::Begin), [WindowAction::Ask(100..=2_099)]);
/// let limit = Limit::Blocks(Some(1_000));
/// assert_eq!(windows.handle(WindowEvent::Limited(&limit)), [WindowAction::Ask(100..=1_099)]);
/// let answered = WindowEvent::Answered { logs: 7 };
/// assert_eq!(windows.handle(answered), [WindowAction::Ask(1_100..=2_099)]);
/// ```
#[derive(Debug, Clone)]
pub struct Windows {
    /// The first block that is not answered for; `None` when all are.
    next: Option<u64>,
    last: u64,
    size: WindowSize,
    /// Blocks of the next window alone, as the provider suggested.
    once: Option<u64>,
}

/// What happens to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowEvent<'a> {
    /// Nothing is asked yet.
    Begin,
    /// The window is answered, with this many logs.
    Answered {
        /// The number of logs.
        logs: usize,
    },
    /// The provider refused the window for a limit.
    Limited(&'a Limit),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowAction {
    /// Ask for these blocks.
    Ask(RangeInclusive<u64>),
    /// Every block is answered for, or none can be.
    End(Result<(), SingleBlock>),
}

/// The provider refuses a single block: there is nothing smaller to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the provider refuses a single block, {0}")]
pub struct SingleBlock(
    /// The block's number.
    pub u64,
);

impl Windows {
    /// No window is asked for yet. An empty range ends at once.
    pub fn new(blocks: &RangeInclusive<u64>, size: WindowSize) -> Self {
        let next = (!blocks.is_empty()).then_some(*blocks.start());
        Self { next, last: *blocks.end(), size, once: None }
    }

    /// Takes note of an event; returns the window to ask for, or the end.
    #[must_use]
    pub fn handle(&mut self, event: WindowEvent<'_>) -> Vec<WindowAction> {
        match event {
            WindowEvent::Begin => {}
            WindowEvent::Answered { logs } => self.answered(logs),
            WindowEvent::Limited(limit) => {
                if let Err(error) = self.limited(limit) {
                    self.next = None;
                    return vec![WindowAction::End(Err(error))];
                }
            }
        }
        vec![self.current().map_or(WindowAction::End(Ok(())), WindowAction::Ask)]
    }

    /// The blocks to ask for; `None` when all are answered for.
    fn current(&self) -> Option<RangeInclusive<u64>> {
        let first = self.next?;
        let blocks = self.once.unwrap_or(self.size.size).max(1);
        Some(first..=first.saturating_add(blocks - 1).min(self.last))
    }

    /// The current window is answered, with this many logs.
    fn answered(&mut self, logs: usize) {
        let Some(window) = self.current() else { return };
        self.next = window.end().checked_add(1).filter(|&next| next <= self.last);
        if self.once.take().is_none() && logs < MANY {
            self.size.size = self.size.size.saturating_mul(2).min(self.size.cap);
        }
    }

    /// The current window was too large: the next has fewer blocks.
    fn limited(&mut self, limit: &Limit) -> Result<(), SingleBlock> {
        let Some(window) = self.current() else { return Ok(()) };
        let blocks = (window.end() - window.start()).saturating_add(1);
        if blocks <= 1 {
            return Err(SingleBlock(*window.start()));
        }
        self.once = None;
        match *limit {
            // A provider's number that would not make the window smaller is ignored.
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

    /// The size of window that was learnt, for the next range.
    pub fn size(&self) -> WindowSize {
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
        /// Whatever is answered, no block is passed over, none is asked for after it was
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
                    Err(limit) => match windows.handle(WindowEvent::Limited(&limit)).as_slice() {
                        [WindowAction::Ask(smaller)] => {
                            prop_assert_eq!(smaller.start(), window.start());
                            prop_assert!(smaller.end() < window.end());
                        }
                        [WindowAction::End(Err(SingleBlock(block)))] => {
                            prop_assert_eq!((block, block), (window.start(), window.end()));
                            // It is given up.
                            prop_assert_eq!(windows.current(), None);
                            return Ok(());
                        }
                        other => prop_assert!(false, "{other:?}"),
                    },
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
        assert_eq!(later.limited(&Limit::Unspecified), Err(SingleBlock(7)));
    }
}
