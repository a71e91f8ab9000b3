//! What the runner has put on a node's chain, and the placeholders that stand for it in queries.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::code::creation;
use super::rpc::Rpc;

/// Time in which a node must mine a transaction.
const MINING: Duration = Duration::from_secs(60);
/// Pause between two requests for a receipt.
const POLL: Duration = Duration::from_millis(10);
/// Gas of a transaction: more than the contracts need.
const GAS: &str = "0x7a120";

/// The members `setup` and `topics` of an input.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    setup: Vec<Emission>,
    /// 32 bytes by name, as `0x…`.
    topics: BTreeMap<String, String>,
}

/// A transaction that makes a contract emit a log, in a block of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Emission {
    /// The contract: the number of topics that it logs.
    contract: usize,
    topics: Vec<String>,
    label: String,
}

/// A log as the runner caused it.
#[derive(Debug)]
struct Emitted {
    label: String,
    block: u64,
    block_hash: String,
    transaction_hash: String,
    address: String,
    topics: Vec<String>,
    data: String,
}

/// The contracts and logs of a setup on a node.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) setup: Setup,
    contracts: Vec<String>,
    logs: Vec<Emitted>,
    head: u64,
}

impl Chain {
    /// Deploys the contracts, and makes them emit the logs.
    pub(super) fn new(rpc: &Rpc, setup: Setup) -> Result<Self, String> {
        let accounts = rpc.result("eth_accounts", &json!([]))?;
        let account = accounts[0].as_str().ok_or("eth_accounts: the node has no account")?;
        let mut contracts = Vec::new();
        for topics in 0..=4 {
            let data = format!("0x{}", hex::encode(creation(topics)));
            let receipt = mined(rpc, &json!({ "from": account, "gas": GAS, "data": data }))?;
            contracts.push(text(&receipt, "contractAddress")?);
        }
        let mut chain = Self { setup, contracts, logs: Vec::new(), head: 0 };
        for number in 0..chain.setup.setup.len() {
            let emitted = chain.emit(rpc, account, number)?;
            if chain.logs.last().is_some_and(|last| last.block >= emitted.block) {
                return Err(format!("{}: not in a block of its own", emitted.label));
            }
            chain.logs.push(emitted);
        }
        chain.head = quantity(&rpc.text("eth_blockNumber", &json!([]))?)?;
        Ok(chain)
    }

    fn emit(&self, rpc: &Rpc, account: &str, number: usize) -> Result<Emitted, String> {
        let Emission { contract, topics, label } = &self.setup.setup[number];
        let address = self.contracts.get(*contract).filter(|_| topics.len() == *contract);
        let address = address.ok_or_else(|| format!("{label}: contract and topics do not fit"))?;
        let topics: Vec<_> =
            topics.iter().map(|name| self.topic(name)).collect::<Result<_, _>>()?;
        // Logs are told apart by their data too, because topics repeat.
        let data = format!("0x{:064x}", number + 1);
        let words: String =
            topics.iter().chain([&data]).map(|word| word.trim_start_matches("0x")).collect();
        let call =
            json!({ "from": account, "gas": GAS, "to": address, "data": format!("0x{words}") });
        let receipt = mined(rpc, &call)?;
        Ok(Emitted {
            label: label.clone(),
            block: quantity(&text(&receipt, "blockNumber")?)?,
            block_hash: text(&receipt, "blockHash")?,
            transaction_hash: text(&receipt, "transactionHash")?,
            address: address.clone(),
            topics,
            data,
        })
    }

    fn topic(&self, name: &str) -> Result<String, String> {
        let topic = self.setup.topics.get(name).cloned();
        topic.ok_or_else(|| format!("the case has no topic {name:?}"))
    }

    /// Returns a query without placeholders.
    pub(super) fn query(&self, query: &Value) -> Result<Value, String> {
        Ok(match query {
            Value::String(text) => match text.strip_prefix('$') {
                Some(placeholder) => self.value_of(placeholder)?.into(),
                None => query.clone(),
            },
            Value::Array(items) => {
                items.iter().map(|item| self.query(item)).collect::<Result<_, _>>()?
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, _)| Ok((name.clone(), self.query(value)?));
                Value::Object(members.iter().map(member).collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    /// Returns the value of `contract:2`, `topic:T1`, `block:a+1`, `hash:a` or `head+1`.
    fn value_of(&self, placeholder: &str) -> Result<String, String> {
        let unknown = || format!("${placeholder} stands for nothing");
        let log = |label: &str| self.logs.iter().find(|log| log.label == label);
        if let Some(index) = placeholder.strip_prefix("contract:") {
            let contract = index.parse().ok().and_then(|index: usize| self.contracts.get(index));
            return contract.cloned().ok_or_else(unknown);
        }
        if let Some(name) = placeholder.strip_prefix("topic:") {
            return self.topic(name);
        }
        if let Some(label) = placeholder.strip_prefix("hash:") {
            return log(label).map(|log| log.block_hash.clone()).ok_or_else(unknown);
        }
        let sign = placeholder.find(['+', '-']).unwrap_or(placeholder.len());
        let (place, offset) = placeholder.split_at(sign);
        let offset: i64 =
            if offset.is_empty() { 0 } else { offset.parse().map_err(|_| unknown())? };
        let block = match place.strip_prefix("block:") {
            Some(label) => log(label).map(|log| log.block),
            None => (place == "head").then_some(self.head),
        };
        let block = block.and_then(|block| block.checked_add_signed(offset));
        block.map(|block| format!("{block:#x}")).ok_or_else(unknown)
    }

    /// Returns the label of a log that the node returned, with a remark if the log is not the one
    /// that the runner caused.
    pub(super) fn label(&self, log: &Value) -> String {
        let is = |value: &Value, expected: &str| {
            value.as_str().is_some_and(|value| value.eq_ignore_ascii_case(expected))
        };
        let found = self.logs.iter().find(|it| is(&log["transactionHash"], &it.transaction_hash));
        let Some(emitted) = found else { return format!("unknown log {log}") };
        let topics = log["topics"].as_array().is_some_and(|topics| {
            topics.len() == emitted.topics.len()
                && topics.iter().zip(&emitted.topics).all(|(topic, emitted)| is(topic, emitted))
        });
        let is_same = topics
            && is(&log["address"], &emitted.address)
            && is(&log["data"], &emitted.data)
            && is(&log["blockHash"], &emitted.block_hash);
        if is_same { emitted.label.clone() } else { format!("{}, altered", emitted.label) }
    }
}

/// Sends a transaction, and returns its receipt once it is mined.
fn mined(rpc: &Rpc, transaction: &Value) -> Result<Value, String> {
    let hash = rpc.text("eth_sendTransaction", &json!([transaction]))?;
    let end = Instant::now() + MINING;
    loop {
        let receipt = rpc.result("eth_getTransactionReceipt", &json!([hash]))?;
        if !receipt.is_null() {
            return match receipt["status"].as_str() {
                Some("0x1") => Ok(receipt),
                _ => Err(format!("the transaction {hash} failed")),
            };
        }
        if Instant::now() > end {
            return Err(format!("the transaction {hash} was not mined within {MINING:?}"));
        }
        thread::sleep(POLL);
    }
}

fn text(receipt: &Value, member: &str) -> Result<String, String> {
    let text = receipt[member].as_str().map(str::to_owned);
    text.ok_or_else(|| format!("a receipt without {member}"))
}

fn quantity(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| format!("not a quantity: {text:?}"))
}
