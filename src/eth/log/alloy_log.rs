//! Conversion of logs to and from the log type of `alloy-rpc-types-eth`.

use alloy_rpc_types_eth::Log;

use super::{LocatedLog, LogProblem};
use crate::eth::json::{JsonPath, ValueProblem};
use crate::eth::log_query::MAX_TOPICS;

/// The conversion loses only [`LocatedLog::claimed_transaction_hash`]. [`LocatedLog::try_from`]
/// converts the result back to the same log otherwise.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::Log;
/// use chainsieve::eth::log::LocatedLog;
///
/// let json = r#"{"address":"0x599bb2682a16b24b0f8e27cc549f66a9981bc6fd","topics":[],"data":"0x",
///     "blockNumber":"0x11408de","transactionIndex":"0x0","logIndex":"0x7",
///     "blockHash":"0x0e370e334fe75e14371a22557f0f0671ff3d5fc8618e6135cf133ff2acdf12bc"}"#;
/// let located = LocatedLog::from_json(json)?;
/// let log = Log::from(located.clone());
/// assert_eq!((log.block_number, log.log_index), (Some(18_090_206), Some(7)));
/// assert_eq!(LocatedLog::try_from(log)?, located);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<LocatedLog> for Log {
    fn from(located: LocatedLog) -> Self {
        Self {
            inner: located.log,
            block_hash: Some(located.block_hash),
            block_number: Some(located.block_number),
            block_timestamp: located.block_timestamp,
            transaction_hash: located.transaction_hash,
            transaction_index: Some(located.transaction_index),
            log_index: Some(located.log_index),
            removed: located.removed,
        }
    }
}

/// Applies the rules of [`LocatedLog::from_json`].
///
/// # Errors
/// Returns an error if the log has no position in the chain (a log of the pending block), or if it
/// has more than [`MAX_TOPICS`] topics.
impl TryFrom<Log> for LocatedLog {
    type Error = LogProblem;

    fn try_from(log: Log) -> Result<Self, LogProblem> {
        let topics = log.topics().len();
        if topics > MAX_TOPICS {
            let problem = ValueProblem::TooMany { found: topics, limit: MAX_TOPICS };
            return Err(LogProblem::Value { place: JsonPath::of("topics"), problem });
        }
        Ok(Self {
            block_number: required(log.block_number, "blockNumber")?,
            block_hash: required(log.block_hash, "blockHash")?,
            block_timestamp: log.block_timestamp,
            transaction_hash: log.transaction_hash,
            claimed_transaction_hash: None,
            transaction_index: required(log.transaction_index, "transactionIndex")?,
            log_index: required(log.log_index, "logIndex")?,
            removed: log.removed,
            log: log.inner,
        })
    }
}

fn required<T>(value: Option<T>, field: &'static str) -> Result<T, LogProblem> {
    let missing = LogProblem::Value { place: JsonPath::of(field), problem: ValueProblem::Missing };
    value.ok_or(missing)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use alloc::vec::Vec;

    use alloy_primitives::{Address, B256, Bytes, Log as Content};
    use alloy_rpc_types_eth::Log;
    use proptest::prelude::*;

    use crate::eth::log::LocatedLog;

    /// Logs of mainnet blocks 17,686,111 and 17,686,112.
    const REAL: &str =
        include_str!("../../../fixtures/ethereum/logs/weth_withdrawals_17686111-17686112.json");

    #[test]
    fn real_logs_are_read_alike() {
        let theirs: Vec<Log> = serde_json::from_str(REAL).expect("logs for alloy");
        let ours = LocatedLog::list_from_json(REAL).expect("logs");
        assert_eq!(ours.len(), 18);
        let converted = theirs.iter().cloned().map(LocatedLog::try_from);
        assert_eq!(converted.collect::<Result<Vec<_>, _>>(), Ok(ours.clone()));
        assert_eq!(ours.into_iter().map(Log::from).collect::<Vec<_>>(), theirs);
    }

    #[test]
    fn a_log_without_a_place_is_refused() {
        let real = || serde_json::from_str::<Vec<Log>>(REAL).expect("logs").swap_remove(0);
        let lacking = [
            ("blockNumber", Log { block_number: None, ..real() }),
            ("blockHash", Log { block_hash: None, ..real() }),
            ("transactionIndex", Log { transaction_index: None, ..real() }),
            ("logIndex", Log { log_index: None, ..real() }),
        ];
        for (field, log) in lacking {
            let refused = LocatedLog::try_from(log).expect_err("no place").to_string();
            assert!(refused.starts_with(field), "{refused}");
        }
        // The fields that sources may leave out may also be missing in a log of alloy.
        let bare = Log { block_timestamp: None, transaction_hash: None, ..real() };
        assert!(LocatedLog::try_from(bare).is_ok());
    }

    #[test]
    fn five_topics_are_refused() {
        let mut log = serde_json::from_str::<Vec<Log>>(REAL).expect("logs").swap_remove(0);
        log.inner = Content::new_unchecked(Address::ZERO, [B256::ZERO; 5].to_vec(), Bytes::new());
        let refused = LocatedLog::try_from(log).expect_err("five topics").to_string();
        assert!(refused.starts_with("topics"), "{refused}");
    }

    prop_compose! {
        fn located()(
            address in any::<[u8; 20]>(),
            topics in prop::collection::vec(any::<[u8; 32]>(), 0..=4),
            data in any::<Vec<u8>>(),
            numbers in any::<[u64; 3]>(),
            block_hash in any::<[u8; 32]>(),
            block_timestamp in any::<Option<u64>>(),
            transaction_hash in any::<Option<[u8; 32]>>(),
            removed in any::<bool>(),
        ) -> LocatedLog {
            let topics = topics.into_iter().map(B256::new).collect();
            let [block_number, transaction_index, log_index] = numbers;
            LocatedLog {
                log: Content::new_unchecked(Address::new(address), topics, Bytes::from(data)),
                block_number,
                block_hash: B256::new(block_hash),
                block_timestamp,
                transaction_hash: transaction_hash.map(B256::new),
                claimed_transaction_hash: None,
                transaction_index,
                log_index,
                removed,
            }
        }
    }

    proptest! {
        #[test]
        fn there_and_back(located in located()) {
            let log = Log::from(located.clone());
            // Each of the two types reads the JSON that the other type writes.
            let text = serde_json::to_string(&log).expect("JSON");
            prop_assert_eq!(LocatedLog::from_json(&text), Ok(located.clone()));
            let read: Log = serde_json::from_str(&located.to_json()).expect("a log for alloy");
            prop_assert_eq!(&read, &log);
            prop_assert_eq!(LocatedLog::try_from(log), Ok(located));
        }
    }
}
