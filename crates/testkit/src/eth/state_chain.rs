//! A made-up execution chain without transactions, in which the states of some blocks have the
//! history contract, and a node that serves it.

use std::collections::{BTreeMap, HashMap};

use alloy_primitives::{B256, Bloom};
use chainsieve::eth::anchor::history_contract::{CODE_HASH, SERVE_WINDOW};
use serde_json::Value;

use super::history_state::HistoryState;
use super::json_rpc::Sent;
use super::linked_headers;
use super::rpc_methods::{self, BlockId, RpcBlock};

/// A chain from block 0 on.
pub struct StateChain {
    /// RLP and hash of each header.
    headers: Vec<(Vec<u8>, B256)>,
    numbers: HashMap<B256, u64>,
    states: BTreeMap<u64, HistoryState>,
}

impl StateChain {
    /// Makes a chain up to block `head`. The states of the blocks `kept` have the hashes of the 8,191
    /// blocks before them; no other state is known. Another `branch` gives other blocks.
    pub fn new(head: u64, branch: u64, kept: &[u64]) -> Self {
        let mut chain = Self { headers: vec![], numbers: HashMap::new(), states: BTreeMap::new() };
        let mut parent = B256::ZERO;
        for number in 0..=head {
            let mut header = linked_headers::header(parent, number, branch, Bloom::ZERO);
            if kept.contains(&number) {
                let window = number.saturating_sub(SERVE_WINDOW)..number;
                let blocks = window.map(|number| (number, chain.hash(number)));
                let state = HistoryState::new(CODE_HASH, blocks);
                header.state_root = state.root();
                chain.states.insert(number, state);
            }
            parent = header.hash_slow();
            chain.headers.push((alloy_rlp::encode(&header), parent));
            chain.numbers.insert(parent, number);
        }
        chain
    }

    fn at(&self, number: u64) -> Option<&(Vec<u8>, B256)> {
        self.headers.get(usize::try_from(number).ok()?)
    }

    /// Returns the number of the last block.
    pub fn head(&self) -> u64 {
        self.headers.len() as u64 - 1
    }

    pub fn header(&self, number: u64) -> &[u8] {
        &self.at(number).expect("a block of the chain").0
    }

    pub fn hash(&self, number: u64) -> B256 {
        self.at(number).expect("a block of the chain").1
    }

    /// Returns the state after a block.
    pub fn state(&self, number: u64) -> &HistoryState {
        &self.states[&number]
    }

    /// Returns the number of the block that a parameter names.
    pub fn number(&self, param: &Value) -> Option<u64> {
        match BlockId::of(param)? {
            BlockId::Tag(_) => Some(self.head()),
            BlockId::Hash(hash) => self.numbers.get(&hash).copied(),
            BlockId::Number(number) => Some(number).filter(|number| *number <= self.head()),
        }
    }

    /// Answers as an honest node that has each state of the chain. Other states are unknown.
    pub fn answer(&self, method: &str, params: &Value) -> Sent {
        if method == "eth_getProof" {
            let state = self.number(&params[2]).and_then(|number| self.states.get(&number));
            return state.map_or(Sent::Error(-32000, "missing trie node"), |state| {
                let slots: Vec<B256> = serde_json::from_value(params[1].clone()).expect("slots");
                Sent::Result(state.proof(&slots))
            });
        }
        let block = |param: &Value| {
            let (header_rlp, hash) = self.at(self.number(param)?)?;
            let (transactions, bodies, receipts) = (vec![], vec![], vec![]);
            Some(RpcBlock { header_rlp, hash: *hash, transactions, bodies, receipts })
        };
        rpc_methods::result(method, params, block)
            .map_or(Sent::Error(-32601, "the method does not exist"), Sent::Result)
    }
}
