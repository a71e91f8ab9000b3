//! A layer for alloy's provider: logs, filters, receipts and blocks are proven, or the call returns
//! an error.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use alloy_consensus::TrieAccount;
use alloy_json_rpc::{
    ErrorPayload, RequestPacket, Response, ResponsePacket, ResponsePayload, RpcRecv, RpcSend,
    SerializedRequest,
};
use alloy_network::Network;
use alloy_provider::utils::{Eip1559Estimation, Eip1559Estimator};
use alloy_provider::{
    EthCall, EthCallMany, PendingTransactionBuilder, Provider, ProviderCall, ProviderLayer,
    RootProvider, RpcWithBlock, SendableTx,
};
use alloy_rpc_client::{NoParams, RpcClient};
use alloy_rpc_types_eth::erc4337::TransactionConditional;
use alloy_rpc_types_eth::simulate::{SimulatePayload, SimulatedBlock};
use alloy_rpc_types_eth::{
    AccessListResult, AccountInfo, BlockNumberOrTag, Bundle, EIP1186AccountProofResponse,
    EthCallResponse, FeeHistory, FillTransaction, StorageValuesRequest, StorageValuesResponse,
    SyncStatus,
};
use alloy_transport::{
    BoxTransport, TransportError, TransportErrorKind, TransportFut, TransportResult,
};
use async_trait::async_trait;
use chainsieve::alloy_primitives::{
    Address, B256, Bytes, StorageKey, StorageValue, U64, U128, U256,
};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt as _};

use super::call::{Call, Room, Written};
use super::clients::Client;
use super::error::{ErrorObject, Refusal};
use super::methods::list_of;
use super::rpc::is_never_passed;
use super::{Proven, methods};

/// A layer by which the answers of alloy's provider are proven.
///
/// [`RpcServerBuilder::layer`](crate::RpcServerBuilder::layer) creates it. Logs, filters, receipts,
/// transactions, headers, blocks and the block number are then proven by this crate's provider. If a proof
/// fails, the call returns an error with the reason. All other methods go to the layered provider, with its
/// own layers and fillers, and are not proven: `eth_call`, balances, sending. Other methods by which some
/// nodes return logs, receipts or blocks are refused. So are methods that send a transaction and wait for
/// its receipt (`…_sync`). Send the transaction and request its receipt instead: that receipt is proven.
/// Subscriptions over a socket are not available; the `watch_…` methods poll proven filters.
///
/// Calls by [`client`](Provider::client) bypass the layers below: methods that are not proven go to the
/// transport of the layered provider.
///
/// ```no_run
/// # use chainsieve::alloy_primitives::B256;
/// # fn run(head: B256, node: alloy_rpc_client::RpcClient) -> Result<(), Box<dyn std::error::Error>> {
/// use alloy_provider::ProviderBuilder;
/// use chainsieve_provider::Provider;
///
/// let url = "https://mainnet.example";
/// let proven = Provider::builder().url(url).anchor(head).build()?.serve().layer()?;
/// let provider = ProviderBuilder::new().layer(proven).connect_client(node);
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

impl<P: Provider<N>, N: Network> ProvenProvider<P, N> {
    /// Returns a sent transaction whose receipt is requested from this layer, so that the receipt
    /// is proven.
    fn sent(&self, sent: PendingTransactionBuilder<N>) -> PendingTransactionBuilder<N> {
        PendingTransactionBuilder::from_config(self.root.clone(), sent.split().1)
    }
}

/// Forwards methods to the provider below.
macro_rules! forward {
    ($(fn $name:ident $(<$life:lifetime>)? ($($argument:ident: $of:ty),*) -> $result:ty;)+) => {
        $(fn $name $(<$life>)? (&self, $($argument: $of),*) -> $result {
            self.inner.$name($($argument),*)
        })+
    };
}

// The methods that are proven go to the own client, by the trait's own code. All others are forwarded, because
// layers below may answer them, or add something to them: the trait's own code would leave these out.
#[async_trait]
impl<P: Provider<N>, N: Network> Provider<N> for ProvenProvider<P, N> {
    fn root(&self) -> &RootProvider<N> {
        &self.root
    }

    forward! {
        fn get_accounts() -> ProviderCall<NoParams, Vec<Address>>;
        fn get_blob_base_fee() -> ProviderCall<NoParams, U128, u128>;
        fn call(tx: N::TransactionRequest) -> EthCall<N, Bytes>;
        fn call_many<'req>(bundles: &'req [Bundle])
            -> EthCallMany<'req, N, Vec<Vec<EthCallResponse>>>;
        fn simulate<'req>(payload: &'req SimulatePayload)
            -> RpcWithBlock<&'req SimulatePayload, Vec<SimulatedBlock<N::BlockResponse>>>;
        fn create_access_list<'a>(request: &'a N::TransactionRequest)
            -> RpcWithBlock<&'a N::TransactionRequest, AccessListResult>;
        fn estimate_gas(tx: N::TransactionRequest) -> EthCall<N, U64, u64>;
        fn get_gas_price() -> ProviderCall<NoParams, U128, u128>;
        fn get_max_priority_fee_per_gas() -> ProviderCall<NoParams, U128, u128>;
        fn get_account_info(address: Address) -> RpcWithBlock<Address, AccountInfo>;
        fn get_account(address: Address) -> RpcWithBlock<Address, TrieAccount>;
        fn get_balance(address: Address) -> RpcWithBlock<Address, U256, U256>;
        fn get_code_at(address: Address) -> RpcWithBlock<Address, Bytes>;
        fn get_proof(address: Address, keys: Vec<StorageKey>)
            -> RpcWithBlock<(Address, Vec<StorageKey>), EIP1186AccountProofResponse>;
        fn get_storage_at(address: Address, key: U256)
            -> RpcWithBlock<(Address, U256), StorageValue>;
        fn get_storage_values(requests: StorageValuesRequest)
            -> RpcWithBlock<(StorageValuesRequest,), StorageValuesResponse>;
        fn get_transaction_count(address: Address)
            -> RpcWithBlock<Address, U64, u64, fn(U64) -> u64>;
        fn syncing() -> ProviderCall<NoParams, SyncStatus>;
        fn get_client_version() -> ProviderCall<NoParams, String>;
        fn get_sha3(data: &[u8]) -> ProviderCall<(String,), B256>;
        fn get_net_version() -> ProviderCall<NoParams, U64, u64>;
    }

    async fn estimate_eip1559_fees_with(
        &self,
        estimator: Eip1559Estimator,
    ) -> TransportResult<Eip1559Estimation> {
        self.inner.estimate_eip1559_fees_with(estimator).await
    }

    async fn estimate_eip1559_fees(&self) -> TransportResult<Eip1559Estimation> {
        self.inner.estimate_eip1559_fees().await
    }

    async fn get_fee_history(
        &self,
        block_count: u64,
        last_block: BlockNumberOrTag,
        reward_percentiles: &[f64],
    ) -> TransportResult<FeeHistory> {
        self.inner.get_fee_history(block_count, last_block, reward_percentiles).await
    }

    async fn send_raw_transaction(
        &self,
        encoded_tx: &[u8],
    ) -> TransportResult<PendingTransactionBuilder<N>> {
        Ok(self.sent(self.inner.send_raw_transaction(encoded_tx).await?))
    }

    async fn send_raw_transaction_conditional(
        &self,
        encoded_tx: &[u8],
        conditional: TransactionConditional,
    ) -> TransportResult<PendingTransactionBuilder<N>> {
        let sent = self.inner.send_raw_transaction_conditional(encoded_tx, conditional).await?;
        Ok(self.sent(sent))
    }

    async fn send_transaction_internal(
        &self,
        tx: SendableTx<N>,
    ) -> TransportResult<PendingTransactionBuilder<N>> {
        Ok(self.sent(self.inner.send_transaction_internal(tx).await?))
    }

    async fn sign_transaction(&self, tx: N::TransactionRequest) -> TransportResult<Bytes> {
        self.inner.sign_transaction(tx).await
    }

    async fn fill_transaction(
        &self,
        tx: N::TransactionRequest,
    ) -> TransportResult<FillTransaction<N::TxEnvelope>>
    where
        N::TxEnvelope: RpcRecv,
    {
        self.inner.fill_transaction(tx).await
    }

    async fn raw_request<S, R>(&self, method: Cow<'static, str>, params: S) -> TransportResult<R>
    where
        S: RpcSend,
        R: RpcRecv,
        Self: Sized,
    {
        if is_answered_here(&method) {
            return self.client().request(method, &params).await;
        }
        self.inner.raw_request(method, params).await
    }

    async fn raw_request_dyn(
        &self,
        method: Cow<'static, str>,
        params: &RawValue,
    ) -> TransportResult<Box<RawValue>> {
        if is_answered_here(&method) {
            return self.client().request(method, params).await;
        }
        self.inner.raw_request_dyn(method, params).await
    }

    fn transaction_request(&self) -> N::TransactionRequest {
        self.inner.transaction_request()
    }
}

/// Returns `true` for methods that are proven or refused.
fn is_answered_here(method: &str) -> bool {
    methods::find_instant(method).or_else(|| methods::find(method)).is_some()
        || is_never_passed(method)
}

/// Answers proven methods itself, and passes all other methods on.
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
            let room = Room::new(proven.limits.max_answer.into());
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
