//! Methods whose answers cannot be proven: refused, or passed to an upstream if the operator wants it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jsonrpsee::core::middleware::{
    Batch, BatchEntry, BatchEntryErr, Notification, Request, RpcServiceT,
};
use jsonrpsee::core::server::MethodResponse;
use jsonrpsee::server::middleware::rpc::ResponseFuture;
use jsonrpsee::types::{ErrorObjectOwned, ResponsePayload};
use serde_json::value::RawValue;
use tower::Layer;

use super::http::Passed;
use super::refusal::Refusal;
use super::{Proven, methods};

#[derive(Debug, Clone)]
pub(super) struct UnverifiedLayer {
    pub(super) proven: Arc<Proven>,
    /// Maximum size of an answer in bytes.
    pub(super) max_answer: u32,
}

impl<S> Layer<S> for UnverifiedLayer {
    type Service = Unverified<S>;

    fn layer(&self, inner: S) -> Unverified<S> {
        Unverified { inner, layer: self.clone() }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Unverified<S> {
    inner: S,
    layer: UnverifiedLayer,
}

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
    /// Returns the reason to refuse a method that is not proven.
    pub(super) fn unproven(&self, method: String) -> Refusal {
        let is_passed_alone = self.pass_unverified && !is_never_passed(&method);
        Refusal::Method { method, is_passed_alone }
    }

    /// Counts a call that is refused, and returns the error.
    pub(super) fn refused(&self, refusal: Refusal) -> ErrorObjectOwned {
        self.metrics.refused(refusal.outcome());
        refusal.into()
    }
}

fn is_proven(method: &str) -> bool {
    is_subscription(method) || methods::all().any(|(name, _)| name == method)
}

fn is_subscription(method: &str) -> bool {
    ["eth_subscribe", "eth_unsubscribe"].contains(&method)
}

/// Returns the reason why a call is not answered by proven data.
fn refusal(proven: &Proven, request: &Request<'_>) -> Option<Refusal> {
    if is_subscription(&request.method) {
        return is_over_http(request).then_some(Refusal::NeedsWebSocket);
    }
    (!is_proven(&request.method)).then(|| proven.unproven(request.method.to_string()))
}

fn is_over_http(request: &Request<'_>) -> bool {
    request.extensions.get::<Passed>().is_some()
}

/// Returns the id of the filter whose changes a call asks for.
fn polled_filter(request: &Request<'_>) -> Option<String> {
    let is_poll = request.method == "eth_getFilterChanges";
    let params = request.params.as_ref().filter(|_| is_poll)?;
    let params: Vec<serde_json::Value> = serde_json::from_str(params.get()).ok()?;
    Some(params.first()?.as_str()?.to_owned())
}

impl<S> RpcServiceT for Unverified<S>
where
    S: RpcServiceT<
            MethodResponse = MethodResponse,
            BatchResponse = MethodResponse,
            NotificationResponse = MethodResponse,
        > + Send
        + Sync
        + Clone
        + 'static,
{
    type MethodResponse = MethodResponse;
    type BatchResponse = MethodResponse;
    type NotificationResponse = MethodResponse;

    fn call<'a>(&self, request: Request<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let UnverifiedLayer { proven, max_answer } = self.layer.clone();
        let Some(refusal) = refusal(&proven, &request) else {
            return ResponseFuture::future(futures_util::future::Either::Left(
                self.inner.call(request),
            ));
        };
        let method = request.method.to_string();
        let id = request.id.clone().into_owned();
        // Over WebSocket, an answer could not be marked.
        let passed = request.extensions.get::<Passed>().cloned();
        let is_passed = matches!(refusal, Refusal::Method { is_passed_alone: true, .. });
        let Some(passed) = passed.filter(|_| is_passed) else {
            return ResponseFuture::ready(MethodResponse::error(id, proven.refused(refusal)));
        };
        let params = request.params.as_ref().map_or("[]", |params| params.get()).to_owned();
        let forwarded = async move {
            let counted = Arc::clone(&proven);
            let permit = counted.passed.clone().acquire_owned().await;
            let answer = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                proven.forward(&method, &params)
            });
            counted.metrics.passed();
            passed.0.store(true, Ordering::Relaxed);
            let answer: Result<Box<RawValue>, ErrorObjectOwned> =
                answer.await.unwrap_or_else(|_| Err(Refusal::Internal.into()));
            let payload = match answer {
                Ok(result) => ResponsePayload::success(result),
                Err(error) => ResponsePayload::error(error),
            };
            MethodResponse::response(id, payload.into(), max_answer as usize)
        };
        ResponseFuture::future(futures_util::future::Either::Right(forwarded))
    }

    fn batch<'a>(&self, batch: Batch<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let proven = Arc::clone(&self.layer.proven);
        let mut polled = Vec::new();
        // A mark on the answer to a whole batch would say nothing of its calls, so none is passed on.
        let refused = |entry| match entry {
            Ok(BatchEntry::Call(request)) => {
                if let Some(refusal) = refusal(&proven, &request) {
                    return Err(BatchEntryErr::new(request.id, proven.refused(refusal)));
                }
                polled.extend(polled_filter(&request));
                Ok(BatchEntry::Call(request))
            }
            entry => entry,
        };
        let batch = Batch::from(batch.into_iter().map(refused).collect());
        let answer = self.inner.batch(batch);
        async move {
            let answer = answer.await;
            // The answer is too large as a whole. The changes in it are lost, and a filter has no gap.
            if answer.is_error() {
                for id in polled {
                    proven.uninstall_filter(&id);
                }
                proven.count_filters();
            }
            answer
        }
    }

    fn notification<'a>(
        &self,
        notification: Notification<'a>,
    ) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.inner.notification(notification)
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
