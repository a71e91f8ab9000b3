//! Methods whose answers cannot be proven: refused, or passed to a node if the operator wants it.

use serde_json::value::RawValue;

use super::Proven;
use super::refusal::{ErrorObject, Refusal};
use crate::nodes::in_turn;
use crate::stop::Stop;

/// Returns `true` if a method that is not proven is never passed on: it reads, searches or watches blocks, headers,
/// transactions, receipts or logs in a way that is not proven here, and its answer could be taken for one
/// that is.
pub(super) fn is_never_passed(method: &str) -> bool {
    let name = method.split_once('_').map_or(method, |(_, name)| name).to_ascii_lowercase();
    if name == "gettransactioncount" {
        // The nonce of an account.
        return false;
    }
    let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let reads = begins(&["get", "search", "new", "latest", "subscri", "unsubscri", "blocknumber"]);
    let data =
        has(&["block", "header", "uncle", "transaction", "receipt", "log", "filter", "subscri"]);
    // These wait for a receipt.
    reads && data || begins(&["send"]) && name.ends_with("sync")
}

impl Proven {
    /// Passes a call to the first node that answers, and returns its answer without any check.
    pub(super) fn forward(
        &self,
        method: &str,
        params: &str,
        stop: &Stop,
    ) -> Result<Box<RawValue>, ErrorObject> {
        let mut failed = None;
        // Each node is asked once: the call may send a transaction.
        for node in in_turn(self.blocks.nodes()) {
            if stop.is_set() {
                break;
            }
            match node.forward(method, params) {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => {
                    let malformed =
                        |_| ErrorObject::new(-32000, "the error of the upstream is malformed");
                    return Err(serde_json::from_str(error.get()).unwrap_or_else(malformed));
                }
                Err(error) => failed.get_or_insert(format!("{}: {error}", node.name())),
            };
        }
        Err(Refusal::Upstream(failed.unwrap_or_default()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::is_never_passed;

    #[test]
    fn what_reads_the_chain_is_never_passed() {
        for method in [
            "alchemy_getTransactionReceipts",
            "bor_getHeaderByNumber",
            "debug_getBadBlocks",
            "erigon_blockNumber",
            "erigon_getLatestLogs",
            "erigon_getLogsByHash",
            "eth_getBlockAccessList",
            "eth_getBlockAccessListByBlockHash",
            "eth_getTransactionBySenderAndNonce",
            "eth_getTransactionReceiptsByBlock",
            "eth_getUserOperationReceipt",
            "eth_newPendingTransactionFilter",
            "eth_newSideForkFilter",
            "eth_sendRawTransactionSync",
            "eth_sendTransactionSync",
            "eth_subscribe",
            "eth_unsubscribe",
            "ots_getBlockDetails",
            "ots_searchTransactionsBefore",
            "parity_getBlockReceipts",
            "parity_subscribe",
            "qn_getReceipts",
            "reth_getBlockExecutionOutcome",
        ] {
            assert!(is_never_passed(method), "{method}");
        }
        for method in [
            "anvil_mine",
            "anvil_setNextBlockBaseFeePerGas",
            "debug_traceBlockByHash",
            "eth_accounts",
            "eth_blobBaseFee",
            "eth_call",
            "eth_createAccessList",
            "eth_estimateGas",
            "eth_feeHistory",
            "eth_gasPrice",
            "eth_getBalance",
            "eth_getCode",
            "eth_getProof",
            "eth_getStorageAt",
            "eth_getTransactionCount",
            "eth_sendRawTransaction",
            "eth_sendTransaction",
            "eth_simulateV1",
            "eth_syncing",
            "evm_mine",
            "net_listening",
            "trace_block",
            "txpool_content",
            "web3_sha3",
        ] {
            assert!(!is_never_passed(method), "{method}");
        }
    }
}
