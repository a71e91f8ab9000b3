//! A node with a fixed chain. A test can replace its answers.

use chainsieve::alloy_primitives::{B256, hex};
use serde_json::{Value, json};

use testkit::eth::json_rpc::{self, Sent};
use testkit::eth::rpc_methods::{self, BlockId};
use testkit::eth::world::{ASKED, World, WorldBlock};

/// A node's chain, from block 0 on.
#[derive(Clone)]
pub(super) struct Chain {
    pub(super) blocks: Vec<WorldBlock>,
    /// Blocks of other branches, which the node returns only by their hash.
    pub(super) others: Vec<WorldBlock>,
}

impl Chain {
    pub(super) fn of(world: &World) -> Self {
        let blocks = world.canonical.iter().map(|hash| world.blocks[hash].clone());
        Self { blocks: blocks.collect(), others: Vec::new() }
    }

    /// Returns the chain as a lagging node has it: up to block `last`.
    pub(super) fn up_to(&self, last: usize) -> Self {
        Self { blocks: self.blocks[..=last].to_vec(), others: Vec::new() }
    }

    pub(super) fn hash(&self, number: u64) -> B256 {
        self.blocks[usize::try_from(number).expect("few")].at.hash
    }

    fn at(&self, tag: &Value) -> Option<&WorldBlock> {
        match BlockId::of(tag)? {
            BlockId::Tag("latest" | "finalized") => self.blocks.last(),
            BlockId::Tag(_) => None,
            BlockId::Hash(hash) => {
                self.blocks.iter().chain(&self.others).find(|block| block.at.hash == hash)
            }
            BlockId::Number(number) => self.blocks.get(usize::try_from(number).ok()?),
        }
    }

    /// Returns the logs that match the tests' query in the block range of a filter.
    pub(super) fn logs(&self, filter: &Value) -> Vec<Value> {
        let range = rpc_methods::range(filter, |tag| self.at(tag).map(|block| block.at.number));
        let blocks = self.blocks.iter().filter(|block| range.contains(&block.at.number));
        let logs = blocks.flat_map(|block| {
            block.asked.iter().map(|(index, data)| {
                json!({
                    "address": ASKED,
                    "topics": [],
                    "data": hex::encode_prefixed(data),
                    "blockNumber": format!("{:#x}", block.at.number),
                    "blockHash": block.at.hash,
                    "transactionHash": B256::ZERO,
                    // Each block of this chain has one transaction.
                    "transactionIndex": "0x0",
                    "logIndex": format!("{index:#x}"),
                    "removed": false,
                })
            })
        });
        logs.collect()
    }

    fn answer(&self, method: &str, params: &Value) -> Sent {
        if method == "eth_getLogs" {
            return Sent::Result(self.logs(&params[0]).into());
        }
        match rpc_methods::result(method, params, |tag| self.at(tag).map(Into::into)) {
            Some(result) => Sent::Result(result),
            None => Sent::Error(-32601, "the method does not exist/is not available"),
        }
    }
}

/// Starts a node with this chain and returns its URL. If `lie` returns an answer, this answer
/// replaces the true answer.
pub(super) fn serve(
    chain: &Chain,
    lie: impl Fn(&Chain, &str, &Value) -> Option<Sent> + Send + Sync + 'static,
) -> String {
    let chain = chain.clone();
    let address = json_rpc::serve_any(move |method, params| {
        lie(&chain, method, params).unwrap_or_else(|| chain.answer(method, params))
    });
    format!("http://{address}")
}

pub(super) fn honest(chain: &Chain) -> String {
    serve(chain, |_, _, _| None)
}
