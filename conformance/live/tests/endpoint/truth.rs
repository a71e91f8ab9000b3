//! What is right: the blocks and receipts that anvil returns, one by one, and every answer made from
//! them without an index, a bloom or a proof.

use serde_json::{Map, Value, json};

use crate::anvil::{Anvil, number};

/// Members that every client knows, and that are compared.
const LOG: &[&str] = &[
    "address",
    "topics",
    "data",
    "blockNumber",
    "blockHash",
    "transactionHash",
    "transactionIndex",
    "logIndex",
    "removed",
];
const RECEIPT: &[&str] = &[
    "transactionHash",
    "transactionIndex",
    "blockHash",
    "blockNumber",
    "from",
    "to",
    "contractAddress",
    "gasUsed",
    "cumulativeGasUsed",
    "effectiveGasPrice",
    "type",
    "status",
    "logsBloom",
    "logs",
];
const TRANSACTION: &[&str] = &[
    "hash",
    "blockNumber",
    "blockHash",
    "transactionIndex",
    "from",
    "to",
    "nonce",
    "value",
    "gas",
    "input",
    "type",
];
const BLOCK: &[&str] = &[
    "number",
    "hash",
    "parentHash",
    "timestamp",
    "gasLimit",
    "gasUsed",
    "baseFeePerGas",
    "miner",
    "extraData",
    "stateRoot",
    "receiptsRoot",
    "transactions",
];
/// Members of a decoded event that every client knows, beside its arguments.
const PLACE: &[&str] =
    &["address", "blockNumber", "blockHash", "transactionHash", "transactionIndex", "logIndex"];
const HEAD: &[&str] = &["number", "hash", "parentHash"];

fn members(value: &Value, names: &[&str]) -> Value {
    let member = |name: &&str| ((*name).to_owned(), value[*name].clone());
    Value::Object(names.iter().map(member).collect::<Map<_, _>>())
}

pub(super) fn log(log: &Value) -> Value {
    members(log, LOG)
}

pub(super) fn receipt(receipt: &Value) -> Value {
    let mut known = members(receipt, RECEIPT);
    known["logs"] = receipt["logs"].as_array().expect("logs").iter().map(log).collect();
    known
}

pub(super) fn head(block: &Value) -> Value {
    members(block, HEAD)
}

/// Returns the block, whose transactions are complete, as clients that ask for it get it.
pub(super) fn block(block: &Value, full: bool) -> Value {
    let mut known = members(block, BLOCK);
    let transactions = block["transactions"].as_array().expect("transactions").iter();
    known["transactions"] = transactions
        .map(|one| if full { members(one, TRANSACTION) } else { one["hash"].clone() })
        .collect();
    known
}

/// Returns the size of a block in bytes. anvil does not count the empty list of withdrawals.
pub(super) fn size(block: &Value) -> Value {
    assert_eq!(block["withdrawals"], json!([]));
    json!(format!("{:#x}", number(&block["size"]) + 1))
}

/// Compares an answer, and names the members that differ.
pub(super) fn check(what: &str, found: &Value, right: &Value) {
    match (found, right) {
        (Value::Object(object), Value::Object(members)) => {
            for name in object.keys().chain(members.keys()) {
                let has = (object.contains_key(name), members.contains_key(name));
                assert_eq!(has, (true, true), "{what}.{name}");
                check(&format!("{what}.{name}"), &found[name], &right[name]);
            }
        }
        (Value::Array(list), Value::Array(items)) if list.len() == items.len() => {
            for ((found, right), index) in list.iter().zip(items).zip(0..) {
                check(&format!("{what}[{index}]"), found, right);
            }
        }
        _ => assert_eq!(found, right, "{what}"),
    }
}

/// A block of the node.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The block, with complete transactions.
    pub(super) json: Value,
    pub(super) receipts: Vec<Value>,
}

impl Block {
    pub(super) fn logs(&self) -> impl Iterator<Item = &Value> {
        self.receipts.iter().flat_map(|receipt| receipt["logs"].as_array().expect("logs"))
    }
}

/// All blocks of the node.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) blocks: Vec<Block>,
}

impl Truth {
    pub(super) fn of(node: &Anvil) -> Self {
        let block = |number: u64| {
            let at = format!("{number:#x}");
            let json = node.rpc().call("eth_getBlockByNumber", &json!([at, true]));
            let receipts = node.rpc().call("eth_getBlockReceipts", &json!([at]));
            let receipts = receipts.as_array().expect("receipts").clone();
            Block { json, receipts }
        };
        let blocks: Vec<_> = (0..=node.height()).map(block).collect();
        for pair in blocks.windows(2) {
            assert_eq!(pair[0].json["hash"], pair[1].json["parentHash"]);
        }
        Self { blocks }
    }

    pub(super) fn height(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    /// Returns the logs that a filter of `eth_getLogs` selects. Its range, if it has one, is given in
    /// numbers.
    pub(super) fn logs(&self, filter: &Value) -> Vec<&Value> {
        let bound = |name: &str, or: u64| match &filter[name] {
            Value::Null => or,
            bound => number(bound),
        };
        let range = bound("fromBlock", self.height())..=bound("toBlock", self.height());
        let has = |block: &&Block| match &filter["blockHash"] {
            Value::Null => range.contains(&number(&block.json["number"])),
            hash => *hash == block.json["hash"],
        };
        let blocks = self.blocks.iter().filter(has);
        blocks.flat_map(Block::logs).filter(|log| matches(filter, log)).collect()
    }

    fn block(&self, is: impl Fn(&Value) -> bool) -> &Block {
        self.blocks.iter().find(|block| is(&block.json)).expect("the block")
    }

    /// Returns the right answer to a question.
    pub(super) fn answer(&self, question: &Value) -> Value {
        let wanted = |block: &Value| match &question["hash"] {
            Value::Null => block["number"] == question["number"],
            hash => block["hash"] == *hash,
        };
        match question["ask"].as_str().expect("a kind") {
            "chainId" => json!("0x7a69"),
            "blockNumber" => json!(format!("{:#x}", self.height())),
            "logs" => self.logs(&question["filter"]).into_iter().map(log).collect(),
            "transfers" => self.transfers(question),
            "receipt" => {
                let mut receipts = self.blocks.iter().flat_map(|block| &block.receipts);
                let hash = &question["hash"];
                receipt(receipts.find(|it| it["transactionHash"] == *hash).expect("a receipt"))
            }
            "receipts" => {
                let block = self.block(|block| block["number"] == question["block"]);
                block.receipts.iter().map(receipt).collect()
            }
            "block" => block(&self.block(wanted).json, question["full"] == true),
            "error" => question["expected"].clone(),
            kind => panic!("no question {kind}"),
        }
    }

    /// Returns the events `Transfer` that a question selects.
    fn transfers(&self, question: &Value) -> Value {
        let word = |address: &Value| json!(format!("0x{:0>64}", &text(address)[2..]));
        let of = |addresses: &Value| match addresses {
            Value::Array(addresses) => addresses.iter().map(word).collect(),
            Value::Null => Value::Null,
            address => word(address),
        };
        let topics =
            json!([super::questions::TRANSFER, of(&question["from"]), of(&question["to"])]);
        let (from, to) = (&question["fromBlock"], &question["toBlock"]);
        let address = &question["address"];
        let filter =
            json!({ "address": address, "topics": topics, "fromBlock": from, "toBlock": to });
        let event = |log: &Value| {
            let mut event = members(log, PLACE);
            for (name, topic) in [("from", 1), ("to", 2)] {
                event[name] = json!(format!("0x{}", &text(&log["topics"][topic])[26..]));
            }
            let value = text(&log["data"])[2..].trim_start_matches('0');
            event["value"] = json!(format!("0x{}", if value.is_empty() { "0" } else { value }));
            event
        };
        self.logs(&filter).into_iter().map(event).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

/// Returns `true` if a filter's addresses and topics match a log, by the rules of the execution API:
/// a list has alternatives, null and the empty list match anything, and a log needs a topic for each
/// position.
pub(super) fn matches(filter: &Value, log: &Value) -> bool {
    let one_of = |wanted: &Value, found: &Value| match wanted {
        Value::Null => true,
        Value::Array(all) => all.is_empty() || all.iter().any(|one| is(one, found)),
        one => is(one, found),
    };
    let topics = filter["topics"].as_array().map_or(&[][..], Vec::as_slice);
    let found = log["topics"].as_array().expect("topics");
    one_of(&filter["address"], &log["address"])
        && topics.len() <= found.len()
        && topics.iter().zip(found).all(|(wanted, found)| one_of(wanted, found))
}

/// Compares hexadecimal text: addresses may have a checksum.
fn is(wanted: &Value, found: &Value) -> bool {
    text(wanted).eq_ignore_ascii_case(text(found))
}
