//! Requests logs by `eth_getLogs`. The answers are returned unverified: audits check the answers.

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
use super::windows::{WindowSize, Windows};
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
