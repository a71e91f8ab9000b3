//! alloy's own provider under the layer, over nodes that leave logs out.

use alloy_provider::{Provider as _, ProviderBuilder};
use alloy_rpc_types_eth::{BlockId, Filter};
use chainsieve::eth::log::LocatedLog;
use serde_json::Value;
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
