//! What a provider answers to `eth_getLogs`: as it comes, since that is what is audited.

use std::ops::RangeInclusive;
use std::sync::PoisonError;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;
use serde_json::json;

use super::Provider;
use super::calls::Call;
use super::error::RpcError;
use super::in_order::in_order;
use super::windows::{SingleBlock, WindowSize, Windows};

const GET_LOGS: &str = "eth_getLogs";

impl Provider {
    /// The logs of these blocks, window by window as the provider takes them, each handed over with
    /// its blocks.
    pub(crate) fn each_window(
        &self,
        query: &LogQuery,
        blocks: RangeInclusive<u64>,
        mut take: impl FnMut(RangeInclusive<u64>, Vec<LocatedLog>) -> Result<(), RpcError>,
    ) -> Result<(), RpcError> {
        let mut windows = Windows::new(&blocks, self.window_size());
        while let Some(window) = windows.current() {
            let part = query.clone().from_block(*window.start()).to_block(*window.end());
            let call = Call { method: GET_LOGS, params: format!("[{}]", part.to_json()) };
            let asked = if window.start() == window.end() {
                self.caller.call(&call, read)
            } else {
                self.caller.call_of_parts(&call, read)
            };
            match asked {
                Ok(logs) => {
                    windows.answered(logs.len());
                    take(window, logs)?;
                }
                Err(error) => {
                    let limit = match error.origin() {
                        RpcError::LimitExceeded { limit, .. } if !error.origin().is_transient() => {
                            limit.clone()
                        }
                        RpcError::TooLarge { .. } => super::Limit::ResponseBytes,
                        RpcError::Timeout { .. } => super::Limit::Time,
                        _ => return Err(error),
                    };
                    if windows.limited(&limit) == Err(SingleBlock) {
                        return Err(error);
                    }
                }
            }
            self.keep_window_size(windows.size());
        }
        Ok(())
    }

    /// The logs of the block with this hash.
    pub(crate) fn logs_at(
        &self,
        query: &LogQuery,
        hash: B256,
    ) -> Result<Vec<LocatedLog>, RpcError> {
        self.caller.call(&at_hash(query, hash), read)
    }

    /// The same from a node that has the block: Besu and anvil, which have not, answer that there
    /// are none. Waits for one that lags behind others.
    pub(crate) fn logs_at_if_held(
        &self,
        query: &LogQuery,
        hash: B256,
    ) -> Result<Vec<LocatedLog>, RpcError> {
        let missing = || RpcError::NotFound { what: format!("block {hash}") };
        let lags = |error: &RpcError| matches!(error.origin(), RpcError::NotFound { .. });
        // In one request, which mostly goes to one of several nodes behind an address.
        let calls = [Call::new("eth_getBlockByHash", &json!([hash, false])), at_hash(query, hash)];
        self.caller.transport().retried_while(lags, || {
            let answers = self.caller.calls(&calls, |at, result| match at {
                0 if result == "null" => Err(missing()),
                0 => Ok(Vec::new()),
                _ => read(result),
            })?;
            answers.into_iter().try_fold(Vec::new(), |_, answer| answer)
        })
    }

    /// The logs of each of these blocks, by its hash, several calls in a request, in order.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn logs_at_each(
        &self,
        query: &LogQuery,
        hashes: &[B256],
        mut take: impl FnMut(B256, Result<Vec<LocatedLog>, RpcError>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let work = |hashes: &[B256]| {
            let calls: Vec<Call> = hashes.iter().map(|hash| at_hash(query, *hash)).collect();
            (hashes.to_vec(), self.caller.calls(&calls, |_, result| read(result)))
        };
        in_order(self.parallel, hashes.chunks(self.batch.max(1)), work, |(hashes, answers)| {
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => hashes.iter().map(|_| Err(error.clone())).collect(),
            };
            hashes.into_iter().zip(answers).try_for_each(|(hash, logs)| take(hash, logs))
        })
    }

    fn window_size(&self) -> WindowSize {
        *self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_window_size(&self, size: WindowSize) {
        *self.windows.lock().unwrap_or_else(PoisonError::into_inner) = size;
    }
}

fn at_hash(query: &LogQuery, hash: B256) -> Call {
    let query = query.clone().at_hash(hash);
    Call { method: GET_LOGS, params: format!("[{}]", query.to_json()) }
}

/// A list of logs. One of null is that of nodes that say so for none.
fn read(result: &str) -> Result<Vec<LocatedLog>, RpcError> {
    if result == "null" {
        return Ok(Vec::new());
    }
    let wrong = |error: String| RpcError::Malformed(format!("eth_getLogs: {error}"));
    LocatedLog::list_from_json(result).map_err(|error| wrong(error.to_string()))
}
