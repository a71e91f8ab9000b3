//! A provider's chain: real blocks of mainnet, followed by simulated empty blocks.

use chainsieve::alloy_primitives::{Address, Bloom, BloomInput, b256};

use super::server::{Answer, error};
use super::*;

/// Receipts root of a block without receipts, by the Yellow Paper: the hash of the RLP of the empty
/// string.
const EMPTY_ROOT: B256 = b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// The data of a simulated node.
pub(crate) struct Chain {
    pub(crate) blocks: Vec<Block>,
    pub(crate) finalized: u64,
}

impl Chain {
    /// Returns the two real blocks, followed by `empty` empty blocks; all are final.
    pub(crate) fn real_and(empty: usize) -> Self {
        let mut blocks: Vec<Block> = Block::both().into();
        for _ in 0..empty {
            let child = child(&blocks[blocks.len() - 1], "");
            blocks.push(child);
        }
        let finalized = blocks[blocks.len() - 1].number;
        Self { blocks, finalized }
    }

    pub(crate) fn last(&self) -> &Block {
        &self.blocks[self.blocks.len() - 1]
    }

    fn find(&self, tag: &Value) -> Option<&Block> {
        let tag = text(tag);
        let number = match tag {
            "latest" => self.last().number,
            "safe" | "finalized" => self.finalized,
            hash if hash.len() == 66 => return self.blocks.iter().find(|block| block.hash == hash),
            number => u64::from_str_radix(&number[2..], 16).expect("a number"),
        };
        self.blocks.iter().find(|block| block.number == number)
    }

    /// Returns the answer of an honest node without debug methods.
    pub(crate) fn answer(&self, method: &str, params: &Value) -> Answer {
        match method {
            "eth_chainId" => Ok(json!("0x1")),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                Ok(self.find(&params[0]).map_or(Value::Null, object))
            }
            "eth_getBlockReceipts" => Ok(self.find(&params[0]).map_or(Value::Null, |block| {
                write::rpc_receipts(block)
                    .into_iter()
                    .map(|receipt| named(receipt, block))
                    .collect()
            })),
            "eth_getTransactionReceipt" => {
                let receipts = self.blocks.iter().flat_map(|block| {
                    write::rpc_receipts(block).into_iter().map(|receipt| named(receipt, block))
                });
                let mut receipts = receipts;
                Ok(receipts.find(|receipt| receipt["transactionHash"] == params[0]).into())
            }
            "eth_getLogs" => self.logs(&params[0]),
            method => {
                let message = format!("the method {method} does not exist/is not available");
                Err(error(-32601, &message))
            }
        }
    }

    /// Returns all logs that match, by the rules of `eth_getLogs`.
    fn logs(&self, filter: &Value) -> Answer {
        let blocks: Vec<&Block> = if filter["blockHash"].is_null() {
            let at = |tag: &Value| u64::from_str_radix(&text(tag)[2..], 16).expect("a number");
            let (from, to) = (at(&filter["fromBlock"]), at(&filter["toBlock"]));
            if to > self.last().number {
                return Err(error(-32602, "block range extends beyond current head block"));
            }
            self.blocks.iter().filter(|block| (from..=to).contains(&block.number)).collect()
        } else {
            match self.find(&filter["blockHash"]) {
                Some(block) => vec![block],
                None => return Err(error(-32000, "unknown block")),
            }
        };
        let one_of = |wanted: &Value, value: &Value| match wanted {
            Value::Null => true,
            Value::Array(wanted) => wanted.is_empty() || wanted.contains(value),
            wanted => wanted == value,
        };
        let is_wanted = |log: &Value| {
            let topics = filter["topics"].as_array().cloned().unwrap_or_default();
            one_of(&filter["address"], &log["address"])
                && topics.iter().enumerate().all(|(at, wanted)| {
                    log["topics"].get(at).is_some_and(|topic| one_of(wanted, topic))
                })
        };
        Ok(blocks.into_iter().flat_map(Block::logs).filter(is_wanted).collect())
    }
}

/// Returns an invented transaction hash, which nothing under the receipts root can prove.
fn transaction(block: &Block, index: &str) -> B256 {
    keccak256(format!("{} {index}", block.hash))
}

fn named(mut receipt: Value, block: &Block) -> Value {
    receipt["transactionHash"] = json!(transaction(block, text(&receipt["transactionIndex"])));
    receipt
}

/// Returns a block as `eth_getBlockByNumber` returns it.
fn object(block: &Block) -> Value {
    let mut object = write::rpc_header(&block.header);
    let transactions = 0..block.receipts.len();
    object["transactions"] =
        transactions.map(|index| json!(transaction(block, &format!("{index:#x}")))).collect();
    object
}

/// Returns an empty block after `parent`; another `mark` gives another block.
pub(crate) fn child(parent: &Block, mark: &str) -> Block {
    let mut fields = items(&parent.header);
    let number = parent.number + 1;
    let digits = number.to_be_bytes();
    let digits = &digits[digits.iter().take_while(|byte| **byte == 0).count()..];
    fields[0] = write::string(&bytes(&json!(parent.hash)));
    fields[5] = write::string(EMPTY_ROOT.as_slice());
    fields[6] = write::string(&[0; 256]);
    fields[8] = write::string(digits);
    fields[10] = write::string(&[]);
    fields[12] = write::string(mark.as_bytes());
    let header = write::list(&fields);
    Block { number, hash: keccak256(&header).to_string(), header, receipts: Vec::new() }
}

/// Returns a block after `parent` with one legacy receipt, which has one log.
pub(crate) fn child_with_log(parent: &Block, address: Address, topic: B256, data: &[u8]) -> Block {
    let mut bloom = Bloom::ZERO;
    bloom.accrue(BloomInput::Raw(address.as_slice()));
    bloom.accrue(BloomInput::Raw(topic.as_slice()));
    let bloom = write::string(bloom.as_slice());
    let topics = write::list(&[write::string(topic.as_slice())]);
    let log = write::list(&[write::string(address.as_slice()), topics, write::string(data)]);
    let gas = write::string(&[0x52, 0x08]);
    let receipt = write::list(&[write::string(&[1]), gas, bloom.clone(), write::list(&[log])]);
    // The trie of one receipt is one leaf, whose path is the key 0x80 (Yellow Paper, appendix D).
    let leaf = write::list(&[write::string(&[0x20, 0x80]), write::string(&receipt)]);
    let mut fields = items(&child(parent, "").header);
    fields[5] = write::string(keccak256(leaf).as_slice());
    fields[6] = bloom;
    let header = write::list(&fields);
    let (number, hash) = (parent.number + 1, keccak256(&header).to_string());
    Block { number, hash, header, receipts: vec![receipt] }
}

/// Returns the same block with another number.
pub(super) fn numbered(block: &Block, number: u64) -> Block {
    let digits = number.to_be_bytes();
    let digits = &digits[digits.iter().take_while(|byte| **byte == 0).count()..];
    Block { number, ..with_field(block, 8, digits) }
}

/// Returns the same block with another string in field `at` of its header.
pub(crate) fn with_field(block: &Block, at: usize, bytes: &[u8]) -> Block {
    let mut fields = items(&block.header);
    fields[at] = write::string(bytes);
    let header = write::list(&fields);
    let hash = keccak256(&header).to_string();
    Block { number: block.number, hash, header, receipts: block.receipts.clone() }
}
