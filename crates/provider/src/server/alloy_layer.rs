//! A layer for alloy's provider: its logs, filters, receipts and blocks are proven, or an error.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Instant;

use alloy_json_rpc::{
    ErrorPayload, RequestPacket, Response, ResponsePacket, ResponsePayload, SerializedRequest,
};
use alloy_network::Network;
use alloy_provider::{Provider, ProviderLayer, RootProvider};
use alloy_rpc_client::RpcClient;
use alloy_transport::{BoxTransport, TransportError, TransportErrorKind, TransportFut};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt as _};

use super::Proven;
use super::call::{Call, Written};
use super::clients::Client;
use super::methods::{self, list_of};
use super::refusal::{ErrorObject, Refusal};
use super::unverified::is_never_passed;

/// A layer that makes the answers of alloy's provider proven ones.
///
/// [`RpcServerBuilder::layer`](crate::RpcServerBuilder::layer) creates it. Logs, filters, receipts,
/// transactions, headers, blocks and the block number are then proven by this crate's provider, or an
/// error with the reason. All other methods go to the layered provider and are not proven: `eth_call`,
/// balances, sending. Other methods by which some nodes give logs, receipts or blocks are refused.
/// Subscriptions over a socket are not available; the `watch_…` methods poll proven filters.
///
/// ```no_run
/// # fn run(head: chainsieve::alloy_primitives::B256) -> Result<(), Box<dyn std::error::Error>> {
/// use alloy_provider::ProviderBuilder;
/// use chainsieve_provider::Provider;
///
/// let url = "https://mainnet.example";
/// let proven = Provider::builder().url(url).anchor(head).build()?.serve().layer()?;
/// let provider = ProviderBuilder::new().layer(proven).connect_http(url.parse()?);
/// // provider.get_logs(&filter).await? has all logs, or is an error.
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ProvenLayer(Arc<Running>);

/// Stops the thread that follows the head when the last layer and provider are dropped.
#[derive(Debug)]
struct Running(Arc<Proven>, Arc<Client>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop.set();
    }
}

impl ProvenLayer {
    pub(super) fn new(proven: Arc<Proven>) -> Self {
        // All calls are those of this process.
        let client = Client::new(Semaphore::MAX_PERMITS);
        Self(Arc::new(Running(proven, Arc::new(client))))
    }
}

/// A provider under a [`ProvenLayer`].
#[derive(Debug, Clone)]
pub struct ProvenProvider<P, N: Network> {
    root: RootProvider<N>,
    inner: P,
}

impl<P, N: Network> ProvenProvider<P, N> {
    /// Returns the provider below, whose answers are not proven.
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: Provider<N>, N: Network> ProviderLayer<P, N> for ProvenLayer {
    type Provider = ProvenProvider<P, N>;

    fn layer(&self, inner: P) -> ProvenProvider<P, N> {
        let client = inner.client();
        let transport =
            ProvenTransport { running: Arc::clone(&self.0), inner: client.transport().clone() };
        let root = RootProvider::new(RpcClient::new(transport, client.is_local()));
        ProvenProvider { root, inner }
    }
}

impl<P: Provider<N>, N: Network> Provider<N> for ProvenProvider<P, N> {
    fn root(&self) -> &RootProvider<N> {
        &self.root
    }
}

/// Answers proven methods itself, and passes the others on.
#[derive(Clone)]
struct ProvenTransport {
    running: Arc<Running>,
    inner: BoxTransport,
}

impl fmt::Debug for ProvenTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProvenTransport")
    }
}

impl Service<RequestPacket> for ProvenTransport {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, packet: RequestPacket) -> TransportFut<'static> {
        let this = self.clone();
        Box::pin(async move {
            match packet {
                RequestPacket::Single(request) => {
                    this.single(request).await.map(ResponsePacket::Single)
                }
                RequestPacket::Batch(requests) => {
                    let mut answers = Vec::with_capacity(requests.len());
                    for request in requests {
                        answers.push(this.single(request).await?);
                    }
                    Ok(ResponsePacket::Batch(answers))
                }
            }
        })
    }
}

impl ProvenTransport {
    async fn single(&self, request: SerializedRequest) -> Result<Response, TransportError> {
        let name = request.method();
        let Some((name, method)) = methods::find_instant(name).or_else(|| methods::find(name))
        else {
            if is_never_passed(request.method()) {
                let proven = &self.running.0;
                let refusal = Refusal::Method(request.method().to_owned());
                proven.metrics.refused(refusal.outcome());
                return Ok(Response { id: request.id().clone(), payload: failure(refusal) });
            }
            let mut inner = self.inner.clone();
            let packet = inner.ready().await?.call(RequestPacket::Single(request)).await?;
            return match packet {
                ResponsePacket::Single(answer) => Ok(answer),
                ResponsePacket::Batch(_) => {
                    Err(TransportErrorKind::custom_str("a list in answer to one call"))
                }
            };
        };
        let id = request.id().clone();
        let began = Instant::now();
        let running = Arc::clone(&self.running);
        let answer = tokio::task::spawn_blocking(move || {
            let params = request.params().map_or("[]", |params| params.get());
            let (proven, client) = (Arc::clone(&running.0), Arc::clone(&running.1));
            let stop = proven.stop.clone();
            let room = Arc::new(AtomicU64::new(proven.limits.max_answer.into()));
            let call = Call::new(proven, client, stop, room);
            let Written { json, .. } = method(&call, &list_of(params)?)?;
            let json = String::from_utf8(json).ok().map(RawValue::from_string);
            json.and_then(Result::ok).ok_or(Refusal::Internal)
        });
        let answer = answer.await.unwrap_or(Err(Refusal::Internal));
        let outcome = answer.as_ref().map_or_else(Refusal::outcome, |_| "ok");
        self.running.0.metrics.answered(name, outcome, began.elapsed());
        let payload = match answer {
            Ok(result) => ResponsePayload::Success(result),
            Err(refusal) => failure(refusal),
        };
        Ok(Response { id, payload })
    }
}

fn failure(refusal: Refusal) -> ResponsePayload {
    let ErrorObject { code, message, data } = refusal.into();
    let data = data.and_then(|data| RawValue::from_string(data.to_string()).ok());
    ResponsePayload::Failure(ErrorPayload { code, message: message.into(), data })
}
