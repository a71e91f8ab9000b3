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

use super::Proven;
use super::http::Passed;
use super::methods::METHODS;
use super::refusal::Refusal;

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

/// Installs a filter at the node, whose changes would be asked for here.
pub(super) const PENDING: &str = "eth_newPendingTransactionFilter";

impl Proven {
    /// Counts a call of a method that is not proven, and returns the error.
    pub(super) fn refused(&self, method: String) -> ErrorObjectOwned {
        let refusal = Refusal::Method(method);
        self.metrics.refused(refusal.outcome());
        refusal.into()
    }
}

fn is_proven(method: &str) -> bool {
    ["eth_subscribe", "eth_unsubscribe"].contains(&method)
        || METHODS.iter().any(|(name, _)| *name == method)
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
        if is_proven(&request.method) {
            return ResponseFuture::future(futures_util::future::Either::Left(
                self.inner.call(request),
            ));
        }
        let UnverifiedLayer { proven, max_answer } = self.layer.clone();
        let is_passed = proven.pass_unverified;
        // Over WebSocket, an answer could not be marked.
        let passed = request.extensions.get::<Passed>().cloned();
        let passed = passed.filter(|_| is_passed && request.method != PENDING);
        let method = request.method.to_string();
        let id = request.id.clone().into_owned();
        let Some(passed) = passed else {
            let refusal = proven.refused(method);
            return ResponseFuture::ready(MethodResponse::error(id, refusal));
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
            Ok(BatchEntry::Call(request)) if !is_proven(&request.method) => {
                let refusal = proven.refused(request.method.to_string());
                Err(BatchEntryErr::new(request.id, refusal))
            }
            Ok(BatchEntry::Call(request)) => {
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
