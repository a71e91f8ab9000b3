//! alloy as a client of `eth serve`. Its types read both the answers and anvil's own JSON, and must be
//! equal.

use alloy_provider::{Provider, ProviderBuilder, WsConnect};
use alloy_rpc_types_eth::{Block, BlockTransactions, Filter, Log, TransactionReceipt};
use chainsieve::alloy_primitives::B256;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::truth::{self, Truth, check};
use super::{Endpoint, questions};
use crate::anvil::number;
use crate::ethereum::Step;
use crate::harness::{Scene, wait_until};

fn typed<T: DeserializeOwned>(json: &Value) -> T {
    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Removes what the endpoint leaves out because no block commits to it.
fn without_blob_price(receipts: &[Value]) -> Vec<TransactionReceipt> {
    let mut receipts: Vec<TransactionReceipt> = receipts.iter().map(typed).collect();
    for receipt in &mut receipts {
        receipt.blob_gas_price = None;
    }
    receipts
}

pub(super) fn ask(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 44);
    let endpoint = Endpoint::of(scene, &node);
    let truth = Truth::of(&node);
    let provider = ProviderBuilder::new()
        .disable_recommended_fillers()
        .connect_http(endpoint.http().parse().expect("a URL"));
    let runtime = Runtime::new().expect("a runtime");
    let filters = questions::filters(&truth, &chain);
    runtime.block_on(async {
        assert_eq!(provider.get_chain_id().await.expect("a number"), 31337);
        assert_eq!(provider.get_block_number().await.expect("a number"), truth.height());
        for filter in &filters {
            let logs = provider.get_logs(&typed::<Filter>(filter)).await.expect("logs");
            let right: Vec<Log> = truth.logs(filter).into_iter().map(typed).collect();
            assert_eq!(logs, right, "{filter}");
        }
        for block in &truth.blocks {
            blocks(&provider, block).await;
        }
        let unknown = provider.get_block_by_hash(B256::repeat_byte(7)).await;
        assert_eq!(unknown.expect("an answer"), None);
        let refused = provider.get_balance(chain.runners[0]).await.expect_err("not proven");
        assert_eq!(refused.as_error_resp().map(|error| error.code), Some(-32601));
    });

    // A filter that is polled, also after a reorganisation.
    let everything = Filter::new();
    let id = runtime.block_on(provider.new_filter(&everything)).expect("a filter");
    let changes =
        || -> Vec<Log> { runtime.block_on(provider.get_filter_changes(id)).expect("changes") };
    assert_eq!(changes(), Vec::<Log>::new());
    chain.mine(&node, Step::Several(3));
    chain.mine(&node, Step::EveryAddress);
    endpoint.until_head(&node);
    let before = Truth::of(&node);
    assert_eq!(changes(), last(&before, 2, false));
    chain.reorganise(&node, 2);
    endpoint.until_head(&node);
    let after = Truth::of(&node);
    let expected = [last(&before, 2, true), last(&after, 2, false)].concat();
    assert!(expected.iter().any(|log| log.removed) && expected.iter().any(|log| !log.removed));
    assert_eq!(changes(), expected);
    assert_eq!(changes(), Vec::<Log>::new());
    assert!(runtime.block_on(provider.uninstall_filter(id)).expect("an answer"));
    endpoint.end();
}

/// Subscriptions over two reorganisations, and over the end of a connection, after which alloy connects again.
pub(super) fn watch(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 52);
    let snapshot = node.rpc().call("evm_snapshot", &json!([]));
    node.mine(300);
    let endpoint = Endpoint::of(scene, &node);
    let runtime = Runtime::new().expect("a runtime");
    let url = WsConnect::new(endpoint.ws());
    let provider = runtime.block_on(ProviderBuilder::new().connect_ws(url)).expect("it opens");
    let logs = runtime.block_on(async { provider.subscribe_logs(&Filter::new()).await });
    let heads = runtime.block_on(async { provider.subscribe_blocks().await });
    let (mut logs, mut heads) = (logs.expect("an answer"), heads.expect("an answer"));
    let mut told = |logs_of: &[(&Truth, usize, bool)]| {
        for (truth, blocks, removed) in logs_of {
            for right in last(truth, *blocks, *removed) {
                assert_eq!(runtime.block_on(logs.recv()).expect("a log"), right);
            }
        }
    };
    let mut before = Truth::of(&node);
    for depth in [1, 2] {
        for step in [Step::Several(3), Step::EveryAddress] {
            chain.mine(&node, step);
        }
        endpoint.until_head(&node);
        let now = Truth::of(&node);
        told(&[(&now, now.blocks.len() - before.blocks.len(), false)]);
        chain.reorganise(&node, depth);
        endpoint.until_head(&node);
        before = Truth::of(&node);
        let depth = usize::try_from(depth).expect("small");
        told(&[(&now, depth, true), (&before, depth, false)]);
    }
    // Another branch, which leaves the chain below all headers that the endpoint has.
    assert_eq!(node.rpc().call("evm_revert", &json!([snapshot])), json!(true));
    node.mine(400);
    endpoint.until_head(&node);
    let is_new = |found: &alloy_rpc_types_eth::Header| {
        found.number > 400 && found.hash == node.hash_at(found.number)
    };
    wait_until("a block of the new branch", || {
        node.mine(1);
        endpoint.until_head(&node);
        while let Ok(head) = heads.try_recv() {
            if is_new(&head) {
                return true;
            }
        }
        false
    });
    drop(runtime);
    endpoint.end();
}

/// Returns the logs of the last blocks of a chain: the highest block first if they left it.
fn last(truth: &Truth, blocks: usize, removed: bool) -> Vec<Log> {
    let skipped = truth.blocks.len() - blocks;
    let mut blocks: Vec<_> = truth.blocks[skipped..].iter().collect();
    if removed {
        blocks.reverse();
    }
    let logs = blocks.into_iter().flat_map(truth::Block::logs);
    logs.map(|log| Log { removed, ..typed(log) }).collect()
}

/// Returns a block as the endpoint writes it: without what is optional.
fn block_of(json: &Value) -> Block {
    let mut block: Block = typed(json);
    block.header.total_difficulty = None;
    block.header.size = Some(typed(&truth::size(json)));
    if let BlockTransactions::Full(transactions) = &mut block.transactions {
        for transaction in transactions {
            transaction.block_timestamp = None;
        }
    }
    block
}

/// Asks for a block in every way, and for its receipts.
async fn blocks(provider: &impl Provider, block: &truth::Block) {
    let height = number(&block.json["number"]);
    let hash: B256 = typed(&block.json["hash"]);
    let full = block_of(&block.json);
    // As JSON, because alloy has two values for a block without transactions.
    let same = |found: Option<Block>, right: &Block| {
        check(&format!("block {height}"), &json!(found), &json!(right));
    };
    let found = provider.get_block_by_number(height.into()).full().await;
    same(found.expect("an answer"), &full);
    let found = provider.get_block_by_hash(hash).full().await;
    same(found.expect("an answer"), &full);
    let mut short = block.json.clone();
    short["transactions"] =
        full.transactions.hashes().map(|hash| json!(hash)).collect::<Vec<_>>().into();
    let found = provider.get_block_by_number(height.into()).await;
    same(found.expect("an answer"), &block_of(&short));
    let receipts = without_blob_price(&block.receipts);
    let found = provider.get_block_receipts(height.into()).await.expect("an answer");
    assert_eq!(found.as_ref(), Some(&receipts));
    for receipt in receipts {
        let found = provider.get_transaction_receipt(receipt.transaction_hash).await;
        assert_eq!(found.expect("an answer"), Some(receipt));
    }
}
