//! Requests logs by `eth_getLogs`, in windows of as many blocks as the node accepts. The answers are returned
//! unverified: audits check the answers.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;

use super::Node;
use super::ask::in_order;
use super::blocks::call;
use super::calls::Call;
use super::error::RpcError;
use super::limit::Limit;
use crate::stop::lock;

const GET_LOGS: &str = "eth_getLogs";

impl Node {
    /// Requests the logs of a range, in windows of as many blocks as the node accepts. Each answer
    /// is passed to `take` with its blocks.
    ///
    /// # Errors
    /// Returns the errors of `take`, and an [`RpcError`] if a request fails or if the node refuses
    /// even a single block.
    pub fn logs<E: From<RpcError>>(
        &self,
        query: &LogQuery,
        blocks: RangeInclusive<u64>,
        mut take: impl FnMut(RangeInclusive<u64>, Vec<LocatedLog>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut windows = Windows::new(&blocks, self.window_size());
        while let Some(window) = windows.current() {
            match self.logs_of_window(query, &window) {
                Ok(logs) => {
                    windows.answered(logs.len());
                    take(window, logs)?;
                }
                Err(error) => match limit_of(&error) {
                    Some(limit) if windows.shrink(&limit) => {}
                    _ => return Err(error.into()),
                },
            }
            self.keep_window_size(windows.size());
        }
        Ok(())
    }

    fn logs_of_window(
        &self,
        query: &LogQuery,
        window: &RangeInclusive<u64>,
    ) -> Result<Vec<LocatedLog>, RpcError> {
        let part = query.clone().from_block(*window.start()).to_block(*window.end());
        let call = Call { method: GET_LOGS, params: format!("[{}]", part.to_json()) };
        // After a timeout, a window of several blocks is split, so the same request is not sent
        // again.
        if window.start() == window.end() {
            self.caller.call(&call, read)
        } else {
            self.caller.call_of_parts(&call, read)
        }
    }

    /// Requests the logs of the block with this hash.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails.
    pub fn logs_at(&self, query: &LogQuery, hash: B256) -> Result<Vec<LocatedLog>, RpcError> {
        self.caller.call(&at_hash(query, hash), read)
    }

    /// Requests the logs of the block with this hash, and checks that the node has the block.
    ///
    /// Besu and anvil answer with no logs for a block that they don't have. If the node lacks the
    /// block, the request is repeated, because the node may lag.
    ///
    /// # Errors
    /// Returns [`RpcError::NotFound`] if the node does not have the block, and another [`RpcError`]
    /// if the request fails.
    pub fn logs_at_if_held(
        &self,
        query: &LogQuery,
        hash: B256,
    ) -> Result<Vec<LocatedLog>, RpcError> {
        let missing = || RpcError::NotFound { what: format!("block {hash}") };
        let lags = |error: &RpcError| matches!(error.origin(), RpcError::NotFound { .. });
        // Both calls are in one request, so that usually one node answers both, even if the address
        // leads to several nodes.
        let calls = [call(hash, false), at_hash(query, hash)];
        self.caller.transport.retried_while(lags, || {
            let answers = self.caller.calls(&calls, |at, result| match at {
                0 if result == "null" => Err(missing()),
                0 => Ok(Vec::new()),
                _ => read(result),
            })?;
            answers.into_iter().try_fold(Vec::new(), |_, answer| answer)
        })
    }

    /// Requests the logs of each of these blocks by its hash, in batches, and passes the answers to
    /// `take` in order.
    ///
    /// # Errors
    /// Returns the errors of `take`.
    pub fn logs_at_each<E>(
        &self,
        query: &LogQuery,
        hashes: &[B256],
        mut take: impl FnMut(B256, Result<Vec<LocatedLog>, RpcError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let work = |hashes: &[B256]| {
            let calls: Vec<Call> = hashes.iter().map(|hash| at_hash(query, *hash)).collect();
            (hashes.to_vec(), self.caller.calls(&calls, |_, result| read(result)))
        };
        let chunks = hashes.chunks(self.options().batch.max(1));
        in_order(self.options().parallel, chunks, work, |(hashes, answers)| {
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => hashes.iter().map(|_| Err(error.clone())).collect(),
            };
            hashes.into_iter().zip(answers).try_for_each(|(hash, logs)| take(hash, logs))
        })
    }

    fn window_size(&self) -> WindowSize {
        *lock(&self.windows)
    }

    fn keep_window_size(&self, size: WindowSize) {
        *lock(&self.windows) = size;
    }
}

/// Returns the limit that an error reports, if a request for fewer blocks may stay within this
/// limit.
fn limit_of(error: &RpcError) -> Option<Limit> {
    match error.origin() {
        RpcError::LimitExceeded { limit, .. } if !error.origin().is_transient() => {
            Some(limit.clone())
        }
        RpcError::TooLarge { .. } => Some(Limit::ResponseBytes),
        RpcError::Timeout { .. } => Some(Limit::Time),
        _ => None,
    }
}

fn at_hash(query: &LogQuery, hash: B256) -> Call {
    let query = query.clone().at_hash(hash);
    Call { method: GET_LOGS, params: format!("[{}]", query.to_json()) }
}

/// Reads a list of logs. Some nodes answer with `null` instead of an empty list.
fn read(result: &str) -> Result<Vec<LocatedLog>, RpcError> {
    if result == "null" {
        return Ok(Vec::new());
    }
    let wrong = |error: String| RpcError::Malformed(format!("eth_getLogs: {error}"));
    LocatedLog::list_from_json(result).map_err(|error| wrong(error.to_string()))
}

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
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowSize {
    /// Number of blocks in the next window.
    size: u64,
    /// Highest number of blocks in any window.
    cap: u64,
}

impl WindowSize {
    /// Creates a size for a provider that is not yet known.
    ///
    /// Without a limit, windows start at 2,000 blocks and grow up to 100,000. With a limit, windows
    /// start at that limit and never exceed it. A limit of 0 is treated as 1.
    pub(super) fn new(limit: Option<u64>) -> Self {
        let cap = limit.unwrap_or(LARGEST_SIZE).max(1);
        Self { size: limit.unwrap_or(FIRST_SIZE).clamp(1, cap), cap }
    }
}

/// Splits a range of blocks into consecutive windows, so that each block is queried successfully
/// once.
#[derive(Debug)]
pub(super) struct Windows {
    /// First block without an answer; `None` if all blocks have answers.
    next: Option<u64>,
    last: u64,
    size: WindowSize,
    /// Number of blocks in the next window only, as suggested by the provider.
    once: Option<u64>,
}

impl Windows {
    /// Creates the windows of a range.
    pub(super) fn new(blocks: &RangeInclusive<u64>, size: WindowSize) -> Self {
        let next = (!blocks.is_empty()).then_some(*blocks.start());
        Self { next, last: *blocks.end(), size, once: None }
    }

    /// Returns the current window; `None` if all blocks have answers.
    pub(super) fn current(&self) -> Option<RangeInclusive<u64>> {
        let first = self.next?;
        let blocks = self.once.unwrap_or(self.size.size).max(1);
        Some(first..=first.saturating_add(blocks - 1).min(self.last))
    }

    /// Records an answer of `logs` logs to the current window. After fewer than 5,000 logs, the next
    /// window has twice the size, unless the provider suggested the size of this window.
    pub(super) fn answered(&mut self, logs: usize) {
        let Some(window) = self.current() else { return };
        self.next = window.end().checked_add(1).filter(|&next| next <= self.last);
        // A suggested size is used for one window only, so an answer to that window does not change
        // the size of the next window.
        if self.once.take().is_none() && logs < LOGS_TO_STOP_GROWING {
            self.size.size = self.size.size.saturating_mul(2).min(self.size.cap);
        }
    }

    /// Records that the current window was refused because of a limit, and shrinks it. Returns `false`
    /// if the window is a single block, because no smaller window is possible.
    pub(super) fn shrink(&mut self, limit: &Limit) -> bool {
        let Some(window) = self.current() else { return false };
        let blocks = (window.end() - window.start()).saturating_add(1);
        if blocks <= 1 {
            return false;
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
        true
    }

    /// Returns the window size learnt so far, to be used for the next range.
    pub(super) fn size(&self) -> WindowSize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any answers, no block is skipped, no answered block is requested again, and each limit
    /// makes the window smaller.
    #[test]
    fn each_block_is_answered_for_once_and_in_order() {
        let mut rng = testkit::Rng::new(2_000);
        for _ in 0..2_000 {
            let up_to = |rng: &mut testkit::Rng, end| rng.u64() % end;
            let first = if rng.one_in(2) {
                up_to(&mut rng, 1_000)
            } else {
                u64::MAX - up_to(&mut rng, 5_000)
            };
            let range = first..=first.saturating_add(up_to(&mut rng, 4_000));
            let user = rng.one_in(2).then(|| up_to(&mut rng, 3_000));
            let mut windows = Windows::new(&range, WindowSize::new(user));
            let mut next = Some(first);
            let mut events = rng.below(60);
            while let Some(window) = windows.current() {
                assert_eq!(Some(*window.start()), next);
                assert!(window.end() >= window.start() && window.end() <= range.end());
                if let Some(user) = user {
                    assert!(window.end() - window.start() < user.max(1));
                }
                events = events.saturating_sub(1);
                if events == 0 || rng.one_in(2) {
                    windows.answered(rng.below(20_000));
                    next = window.end().checked_add(1).filter(|next| next <= range.end());
                    continue;
                }
                let limit = match rng.below(8) {
                    0 => Limit::Blocks(None),
                    1 => Limit::Blocks(Some(rng.u64())),
                    2 | 3 => Limit::Blocks(Some(up_to(&mut rng, 50))),
                    4 => Limit::Results(None),
                    5 => Limit::SuggestedRange { from: rng.u64(), to: rng.u64() },
                    6 => Limit::SuggestedRange {
                        from: *window.start(),
                        to: window.start().saturating_add(up_to(&mut rng, 3_000)),
                    },
                    _ => Limit::ResponseBytes,
                };
                let is_smaller = windows.shrink(&limit);
                assert_eq!(is_smaller, window.start() < window.end(), "{limit:?}");
                if !is_smaller {
                    next = None;
                    break;
                }
                let smaller = windows.current().expect("a smaller window");
                assert!(smaller.start() == window.start() && smaller.end() < window.end());
            }
            assert_eq!(next, None);
        }
    }

    #[test]
    fn a_learnt_limit_stays_and_a_suggestion_does_not() {
        let mut windows = Windows::new(&(0..=99_999), WindowSize::new(None));
        assert_eq!(windows.current(), Some(0..=1_999));
        windows.answered(0);
        assert_eq!(windows.current(), Some(2_000..=5_999));
        assert!(windows.shrink(&Limit::SuggestedRange { from: 2_000, to: 2_009 }));
        assert_eq!(windows.current(), Some(2_000..=2_009));
        windows.answered(9_999);
        assert_eq!(windows.current(), Some(2_010..=2_029));
        windows.answered(0);
        assert_eq!(windows.current(), Some(2_030..=2_069));
        assert!(windows.shrink(&Limit::Blocks(Some(30))));
        for first in [2_030, 2_060, 2_090] {
            assert_eq!(windows.current(), Some(first..=first + 29));
            windows.answered(0);
        }
        let mut later = Windows::new(&(7..=7), windows.size());
        assert_eq!(later.current(), Some(7..=7));
        assert!(!later.shrink(&Limit::Unspecified));
    }
}
