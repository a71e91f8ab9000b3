//! Splits the block range of an `eth_getLogs` query into windows that the provider accepts.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::Limit;

/// Number of blocks in the first window. Alchemy and Tenderly state a limit of 2,000 blocks in
/// their errors (see the tests of [`Limit`]). Providers that accept more get larger windows soon,
/// because each answer with few logs doubles the size.
const FIRST_SIZE: u64 = 2_000;
/// Default limit of the number of blocks in a window: the limit that reth states in its error (see
/// the tests of [`Limit`]).
const LARGEST_SIZE: u64 = 100_000;
/// After an answer with at least this number of logs, windows stop growing: most providers limit an
/// answer to 10,000 logs.
const LOGS_TO_STOP_GROWING: usize = 5_000;

/// The window size that a provider accepts, as estimated from its answers.
///
/// `serde` writes an object with the numbers `size` and `cap`, so that a caller can store the size
/// for later queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "WindowWire")]
pub struct WindowSize {
    /// Number of blocks in the next window.
    size: u64,
    /// Highest number of blocks in any window.
    cap: u64,
}

/// A window size in its JSON form.
#[derive(serde::Deserialize)]
struct WindowWire {
    size: u64,
    cap: u64,
}

impl From<WindowWire> for WindowSize {
    fn from(WindowWire { size, cap }: WindowWire) -> Self {
        let cap = cap.max(1);
        Self { size: size.clamp(1, cap), cap }
    }
}

impl WindowSize {
    /// Creates a size for a provider that is not yet known.
    ///
    /// Without a limit, windows start at 2,000 blocks and grow up to 100,000. With a limit, windows
    /// start at that limit and never exceed it. A limit of 0 is treated as 1.
    pub fn new(limit: Option<u64>) -> Self {
        let cap = limit.unwrap_or(LARGEST_SIZE).max(1);
        Self { size: limit.unwrap_or(FIRST_SIZE).clamp(1, cap), cap }
    }
}

/// Splits a range of blocks into consecutive windows, so that each block is queried successfully
/// once.
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
    /// First block without an answer; `None` if all blocks have answers.
    next: Option<u64>,
    last: u64,
    size: WindowSize,
    /// Number of blocks in the next window only, as suggested by the provider.
    once: Option<u64>,
}

/// Input of [`Windows::handle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowEvent<'a> {
    /// The start, when no window was requested yet.
    Begin,
    /// The provider answered the window.
    Answered {
        /// Number of logs in the answer.
        logs: usize,
    },
    /// The provider refused the window because of a limit.
    Limited(&'a Limit),
}

/// Next step of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowAction {
    /// Request the logs of these blocks.
    Ask(RangeInclusive<u64>),
    /// The end: every block has an answer.
    End,
    /// The end: the provider refuses this single block, so no smaller window is possible.
    Refused(u64),
}

impl Windows {
    /// Creates the windows of a range. An empty range ends at the first event.
    pub fn new(blocks: &RangeInclusive<u64>, size: WindowSize) -> Self {
        let next = (!blocks.is_empty()).then_some(*blocks.start());
        Self { next, last: *blocks.end(), size, once: None }
    }

    /// Handles an event; returns the next window to request, or the end.
    ///
    /// | event | next window |
    /// |---|---|
    /// | [`Answered`](WindowEvent::Answered) with fewer than 5,000 logs | twice the size, up to the highest size |
    /// | [`Answered`](WindowEvent::Answered) with more logs, or to a suggested range | the same size |
    /// | [`Limit::Blocks`] with a number below the window's | this number is the size and the highest size |
    /// | [`Limit::Blocks`] without a usable number | half the blocks are the size and the highest size |
    /// | [`Limit::SuggestedRange`] that begins with the window and is smaller | the suggested range, once; then at most twice its size |
    /// | any other limit | half the blocks; the size may grow again |
    ///
    /// If a window of one block is refused, the range ends with [`WindowAction::Refused`].
    #[must_use]
    pub fn handle(&mut self, event: WindowEvent<'_>) -> Vec<WindowAction> {
        match event {
            WindowEvent::Begin => {}
            WindowEvent::Answered { logs } => self.answered(logs),
            WindowEvent::Limited(limit) => {
                if let Err(block) = self.limited(limit) {
                    self.next = None;
                    return vec![WindowAction::Refused(block)];
                }
            }
        }
        vec![self.current().map_or(WindowAction::End, WindowAction::Ask)]
    }

    /// Returns the current window; `None` if all blocks have answers.
    fn current(&self) -> Option<RangeInclusive<u64>> {
        let first = self.next?;
        let blocks = self.once.unwrap_or(self.size.size).max(1);
        Some(first..=first.saturating_add(blocks - 1).min(self.last))
    }

    /// Records an answer to the current window, and lets the next window grow.
    fn answered(&mut self, logs: usize) {
        let Some(window) = self.current() else { return };
        self.next = window.end().checked_add(1).filter(|&next| next <= self.last);
        // A suggested size is used for one window only, so an answer to that window does not change
        // the size of the next window.
        if self.once.take().is_none() && logs < LOGS_TO_STOP_GROWING {
            self.size.size = self.size.size.saturating_mul(2).min(self.size.cap);
        }
    }

    /// Records that the current window was refused, and shrinks it. Returns the number of the block if the
    /// window is a single block.
    fn limited(&mut self, limit: &Limit) -> Result<(), u64> {
        let Some(window) = self.current() else { return Ok(()) };
        let blocks = (window.end() - window.start()).saturating_add(1);
        if blocks <= 1 {
            return Err(*window.start());
        }
        self.once = None;
        match *limit {
            // The provider's number is used only if it makes the window smaller; otherwise the loop
            // might not end.
            Limit::Blocks(Some(most)) if most < blocks => {
                self.size.cap = most.max(1);
                self.size.size = most.max(1);
            }
            // A suggestion is used only if it starts at the same block and is smaller than the
            // window.
            Limit::SuggestedRange { from, to }
                if from == *window.start() && (from..*window.end()).contains(&to) =>
            {
                let blocks = to - from + 1;
                self.once = Some(blocks);
                self.size.size = self.size.size.min(blocks.saturating_mul(2)).max(1);
            }
            // Without a usable number, halve the window, and never let a window exceed the halved
            // size again.
            Limit::Blocks(_) => {
                self.size.cap = blocks / 2;
                self.size.size = blocks / 2;
            }
            // The number of blocks that fit in a limit of logs, bytes or time depends on the
            // blocks. So halve the window, but let it grow again later.
            _ => self.size.size = blocks / 2,
        }
        Ok(())
    }

    /// Returns the window size learnt so far, to be used for the next range.
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
        /// For any answers, no block is skipped, no answered block is requested again, and each
        /// limit makes the window smaller.
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
                        [WindowAction::Refused(block)] => {
                            prop_assert_eq!((block, block), (window.start(), window.end()));
                            // The range is given up.
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
        assert_eq!(later.limited(&Limit::Unspecified), Err(7));
    }
}
