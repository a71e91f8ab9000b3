//! alloy's own provider under the layer, over nodes that leave logs out.

use std::borrow::Cow;
use std::error::Error;
use std::task::{Context, Poll};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_json_rpc::{RequestPacket, ResponsePacket};
use alloy_network::Ethereum;
use alloy_provider::{
    PendingTransactionBuilder, Provider, ProviderBuilder, ProviderCall, ProviderLayer, RootProvider,
};
use alloy_rpc_client::{NoParams, RpcClient};
use alloy_rpc_types_eth::{BlockId, BlockNumberOrTag, Filter};
use alloy_transport::{TransportError, TransportErrorKind, TransportFut, TransportResult};
use chainsieve::alloy_primitives::{B256, U64, U128, keccak256};
use chainsieve::eth::log::LocatedLog;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::Corpus;

use crate::endpoint;
use crate::upstream::{Block, Upstream};

/// alloy's transport over HTTP, without its client, which takes long to compile.
#[derive(Clone)]
struct Http(String);

impl tower::Service<RequestPacket> for Http {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: RequestPacket) -> TransportFut<'static> {
        let url = self.0.clone();
        let exchange = move || -> Result<ResponsePacket, Box<dyn Error + Send + Sync>> {
            let request = serde_json::to_vec(&request)?;
            let answer = ureq::post(url).content_type("application/json").send(&request)?;
            Ok(serde_json::from_str(&answer.into_body().read_to_string()?)?)
        };
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(exchange).await.expect("no panic");
            answer.map_err(|error| TransportErrorKind::custom_str(&error.to_string()))
        })
    }
}

fn client(upstream: &Upstream) -> RpcClient {
    RpcClient::new(Http(upstream.url()), true)
}

/// A layer that answers some calls itself.
struct Own;

#[derive(Clone)]
struct OwnProvider<P>(P);

impl<P: Provider> ProviderLayer<P, Ethereum> for Own {
    type Provider = OwnProvider<P>;

    fn layer(&self, inner: P) -> OwnProvider<P> {
        OwnProvider(inner)
    }
}

/// Hash of the transaction that [`OwnProvider`] says it has sent.
const SENT: B256 = B256::repeat_byte(5);

#[async_trait::async_trait]
impl<P: Provider> Provider for OwnProvider<P> {
    fn root(&self) -> &RootProvider {
        self.0.root()
    }

    fn get_gas_price(&self) -> ProviderCall<NoParams, U128, u128> {
        ProviderCall::ready(Ok(99))
    }

    fn get_block_number(&self) -> ProviderCall<NoParams, U64, u64> {
        ProviderCall::ready(Ok(1_000_000))
    }

    async fn send_raw_transaction(
        &self,
        _: &[u8],
    ) -> TransportResult<PendingTransactionBuilder<Ethereum>> {
        Ok(PendingTransactionBuilder::new(self.root().clone(), SENT))
    }

    async fn raw_request_dyn(
        &self,
        method: Cow<'static, str>,
        _: &RawValue,
    ) -> TransportResult<Box<RawValue>> {
        Err(TransportErrorKind::custom_str(&format!("own {method}")))
    }
}

/// What is not proven is asked of the layers below, and what is proven never is.
#[test]
fn layers_below_are_asked_for_what_is_not_proven() {
    let upstream = Upstream::of(Block::chain(1, 30));
    let head = upstream.blocks()[29].hash;
    let layer = endpoint(&[&upstream], head).layer().expect("a head");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let below = Own.layer(ProviderBuilder::default().connect_client(client(&upstream)));
        let provider = layer.layer(below);
        assert_eq!(provider.get_gas_price().await.expect("by the layer below"), 99);
        assert_eq!(provider.get_block_number().await.expect("proven"), 29);
        let sent = provider.send_raw_transaction(&[1]).await.expect("by the layer below");
        assert_eq!(*sent.tx_hash(), SENT);
        // Whatever is asked about the transaction is proven again.
        assert_eq!(sent.provider().get_block_number().await.expect("proven"), 29);
        let number = provider.raw_request::<_, U64>("eth_blockNumber".into(), NoParams::default());
        assert_eq!(number.await.expect("proven"), U64::from(29));
        let none = RawValue::from_string("[]".into()).expect("JSON");
        let other = provider.raw_request_dyn("eth_maxPriority".into(), &none).await;
        let error = other.expect_err("by the layer below");
        assert!(error.to_string().contains("own eth_maxPriority"), "{error}");
        // What gives receipts without a proof is refused, whatever the layer below does.
        for method in ["eth_getBlockAccessList", "eth_sendRawTransactionSync"] {
            let error = provider.raw_request_dyn(method.into(), &none).await.expect_err("refused");
            assert_eq!(error.as_error_resp().map(|error| error.code), Some(-32601), "{method}");
        }
        let answer = provider.send_raw_transaction_sync(&[1]).await;
        assert!(answer.expect_err("refused").as_error_resp().is_some());
    });
}

#[test]
fn logs_receipts_and_blocks_are_proven() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    // The node leaves out what it can.
    upstream
        .lie(|method, _, _| (method == "eth_getLogs").then(|| Sent::Result(Value::Array(vec![]))));
    let layer = endpoint(&[&upstream], chain.run.tip()).layer().expect("a head");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let provider = ProviderBuilder::new().layer(layer).connect_client(client(&upstream));
        assert_eq!(provider.get_block_number().await.expect("proven"), chain.run.last());
        let logs = provider.get_logs(&Filter::new().from_block(0)).await.expect("proven");
        let logs: Vec<LocatedLog> =
            logs.into_iter().map(|log| log.try_into().expect("a place")).collect();
        let expected: Vec<_> =
            upstream.blocks().iter().flat_map(|block| block.logs.clone()).collect();
        assert_eq!(logs, expected);

        let block = upstream.blocks().iter().find(|block| block.logs.len() > 1).expect("logs");
        let receipts = provider.get_block_receipts(BlockId::hash(block.hash)).await;
        let receipts = receipts.expect("proven").expect("the block");
        let hashes: Vec<_> = receipts.iter().map(|receipt| receipt.transaction_hash).collect();
        assert_eq!(hashes, block.hashes);
        let one = provider.get_transaction_receipt(hashes[0]).await.expect("proven");
        assert_eq!(one.as_ref(), receipts.first());

        // What is not proven goes to the node below.
        assert_eq!(provider.get_gas_price().await.expect("passed on"), 7);
        let beyond = Filter::new().from_block(chain.run.last() + 1).to_block(chain.run.last() + 1);
        let error = provider.get_logs(&beyond).await.expect_err("after the head");
        let error = error.as_error_resp().expect("an error of JSON-RPC");
        let data = error.data.as_ref().expect("data").get();
        assert!(data.contains("beyond_verified_head"), "{data}");
    });
}

/// The node makes up headers, also under a hash that is proven, and everything else about blocks.
#[test]
fn what_alloy_asks_of_blocks_is_proven() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    let own = upstream.clone();
    upstream.lie(move |method, params, _| {
        let other = |method| match own.answer(method, &json!(["0x5", false])) {
            Sent::Result(json) => json,
            _ => Value::Null,
        };
        match method {
            "eth_getHeaderByNumber" | "eth_getHeaderByHash" => {
                let mut header = other("eth_getBlockByNumber");
                header["number"] = json!("0x3b9aca00");
                if method == "eth_getHeaderByHash" {
                    header["hash"] = params[0].clone();
                }
                Some(Sent::Result(header))
            }
            "eth_getBlockTransactionCountByHash"
            | "eth_getBlockTransactionCountByNumber"
            | "eth_getUncleCountByBlockHash"
            | "eth_getUncleCountByBlockNumber" => Some(Sent::Result(json!("0x63"))),
            "eth_getRawTransactionByHash"
            | "eth_getRawTransactionByBlockHashAndIndex"
            | "debug_getRawTransaction" => Some(Sent::Result(json!("0x1234"))),
            "erigon_getLogs" | "eth_subscribe" | "eth_newPendingTransactionFilter" => {
                Some(Sent::Result(json!("0x1")))
            }
            _ => None,
        }
    });
    let layer = endpoint(&[&upstream], chain.run.tip()).layer().expect("a head");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let provider = ProviderBuilder::new().layer(layer).connect_client(client(&upstream));
        let latest = BlockNumberOrTag::Latest;
        let header = provider.get_header_by_number(latest).await.expect("proven").expect("one");
        assert_eq!((header.inner.number, header.hash), (chain.run.last(), chain.run.tip()));
        assert_eq!(header.inner.hash_slow(), chain.run.tip());
        let by_hash = provider.get_header_by_hash(chain.run.tip()).await.expect("proven");
        assert_eq!(by_hash, Some(header));

        let block = upstream.blocks().iter().find(|block| block.hashes.len() > 1).expect("one");
        let (id, hash) = (BlockId::hash(block.hash), block.hashes[1]);
        let number = BlockNumberOrTag::Number(block.number);
        let count = provider.get_block_transaction_count_by_hash(block.hash).await;
        assert_eq!(count.expect("proven"), Some(block.hashes.len() as u64));
        let count = provider.get_block_transaction_count_by_number(number).await;
        assert_eq!(count.expect("proven"), Some(block.hashes.len() as u64));
        assert_eq!(provider.get_uncle_count(id).await.expect("proven"), 0);
        let transaction = provider.get_transaction_by_hash(hash).await.expect("proven");
        let transaction = transaction.expect("one");
        assert_eq!(keccak256(transaction.inner.inner().encoded_2718()), hash);
        assert_eq!(transaction.block_hash, Some(block.hash));
        let same = provider.get_transaction_by_block_hash_and_index(block.hash, 1).await;
        assert_eq!(same.expect("proven"), Some(transaction));
        for raw in [
            provider.get_raw_transaction_by_hash(hash).await,
            provider.get_raw_transaction_by_block_hash_and_index(block.hash, 1).await,
        ] {
            assert_eq!(keccak256(raw.expect("proven").expect("one")), hash);
        }
        for method in ["erigon_getLogs", "eth_subscribe", "eth_newPendingTransactionFilter"] {
            let answer = provider.client().request::<_, Value>(method, ("logs",)).await;
            let error = answer.expect_err("not passed on");
            assert_eq!(error.as_error_resp().map(|error| error.code), Some(-32601), "{method}");
        }
    });
}
