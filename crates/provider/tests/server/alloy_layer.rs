//! alloy's own provider under the layer, over nodes that leave logs out.

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_provider::{Provider as _, ProviderBuilder};
use alloy_rpc_types_eth::{BlockId, BlockNumberOrTag, Filter};
use chainsieve::alloy_primitives::keccak256;
use chainsieve::eth::log::LocatedLog;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::Corpus;

use crate::endpoint;
use crate::upstream::Upstream;

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
        let url = upstream.url().parse().expect("a URL");
        let provider = ProviderBuilder::new().layer(layer).connect_http(url);
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
        let url = upstream.url().parse().expect("a URL");
        let provider = ProviderBuilder::new().layer(layer).connect_http(url);
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
