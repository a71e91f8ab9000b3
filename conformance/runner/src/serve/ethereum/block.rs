//! A built-in block in the forms of JSON-RPC.

use chainsieve::alloy_primitives::{Address, B64, Bytes, U64, U256, hex};
use chainsieve::eth::bloom;
use chainsieve::eth::header::{BlockRef, HeaderBuf, HeaderView};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::{BlockReceipts, Outcome};
use chainsieve::eth::transactions::BlockTransactions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A block of the fixtures, with its transactions and receipts.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) header: HeaderBuf,
    pub(super) logs: Vec<LocatedLog>,
    /// The result of `eth_getBlockReceipts`.
    pub(super) receipts: Vec<Value>,
    /// The transactions as `eth_getBlockByNumber` returns them.
    pub(super) transactions: Vec<Value>,
}

#[derive(Deserialize)]
struct Fixture {
    header: Bytes,
    receipts: Vec<Bytes>,
    /// Without the members that name the block and the index.
    transactions: Vec<Value>,
}

impl Block {
    /// Reads a block of the fixtures, and verifies its transactions and receipts.
    ///
    /// # Panics
    /// Panics if the fixture is damaged: fixtures are compiled in.
    pub(super) fn of_fixture(text: &str) -> Self {
        let fixture: Fixture = serde_json::from_str(text).expect("a block of the fixtures");
        let header = HeaderBuf::from_rlp(fixture.header.into()).expect("a header");
        let receipts = BlockReceipts::from_encodings(&fixture.receipts).expect("receipts");
        let verified = receipts.verify_block(&header).expect("the receipts of the block");
        let at = BlockRef::from(&header);
        let transactions = transactions_json(at, fixture.transactions);
        let hashes = BlockTransactions::from_json(&json!(transactions).to_string())
            .and_then(|all| all.verify(header.view().transactions_root()))
            .expect("the transactions of the block");
        let named = |log: LocatedLog| LocatedLog {
            transaction_hash: hashes.hash(log.transaction_index),
            ..log
        };
        let logs: Vec<_> = verified.logs().map(named).collect();
        let receipts = receipts_json(at, &receipts, &transactions, &logs);
        Self { header, logs, receipts, transactions }
    }

    pub(super) fn at(&self) -> BlockRef {
        BlockRef::from(&self.header)
    }

    /// Returns the result of `eth_getBlockByNumber`, with whole transactions if `is_full`, and with their
    /// hashes otherwise. The fixtures have no withdrawals.
    pub(super) fn to_json(&self, is_full: bool) -> Value {
        let mut block = header_json(&self.header.view());
        block["hash"] = json!(self.header.hash());
        block["size"] = json!(U64::from(self.header.rlp().len()));
        block["uncles"] = json!([]);
        block["transactions"] = if is_full {
            self.transactions.clone().into()
        } else {
            self.transactions.iter().map(|transaction| transaction["hash"].clone()).collect()
        };
        block
    }
}

/// Returns transactions with the block and the index of each.
fn transactions_json(block: BlockRef, transactions: Vec<Value>) -> Vec<Value> {
    let place = |(index, mut json): (u64, Value)| {
        json["blockHash"] = json!(block.hash);
        json["blockNumber"] = json!(U64::from(block.number));
        json["transactionIndex"] = json!(U64::from(index));
        json
    };
    (0..).zip(transactions).map(place).collect()
}

/// Returns the result of `eth_getBlockReceipts`.
fn receipts_json(
    block: BlockRef,
    receipts: &BlockReceipts,
    transactions: &[Value],
    logs: &[LocatedLog],
) -> Vec<Value> {
    let BlockRef { number, hash } = block;
    let (mut logs, mut gas_before) = (logs.iter(), 0);
    let receipts = receipts.iter().zip(transactions).map(|(receipt, transaction)| {
        let mut logs_bloom = [0; bloom::BYTES];
        bloom::accrue_logs(&mut logs_bloom, &receipt.logs);
        let mut json = json!({
            "type": U64::from(receipt.receipt_type),
            "cumulativeGasUsed": U64::from(receipt.cumulative_gas_used),
            "gasUsed": U64::from(receipt.cumulative_gas_used - gas_before),
            "logs": logs.by_ref().take(receipt.logs.len()).collect::<Vec<_>>(),
            "logsBloom": hex::encode_prefixed(logs_bloom),
            "transactionHash": transaction["hash"],
            "transactionIndex": transaction["transactionIndex"],
            "blockHash": hash,
            "blockNumber": U64::from(number),
            "from": transaction["from"],
            "to": transaction["to"],
            "contractAddress": created_contract(transaction),
            "effectiveGasPrice": transaction["gasPrice"],
        });
        gas_before = receipt.cumulative_gas_used;
        match receipt.outcome {
            Outcome::Status(status) => json["status"] = json!(U64::from(u64::from(status))),
            Outcome::PostState(root) => json["root"] = json!(root),
            Outcome::Unknown => {}
        }
        json
    });
    receipts.collect()
}

/// Returns the address of the contract that a transaction creates; `None` if it creates none.
fn created_contract(transaction: &Value) -> Option<Address> {
    if !transaction["to"].is_null() {
        return None;
    }
    let from: Address = serde_json::from_value(transaction["from"].clone()).expect("a sender");
    let nonce: U64 = serde_json::from_value(transaction["nonce"].clone()).expect("a nonce");
    Some(from.create(nonce.to()))
}

/// A member of a header in JSON: its name, and the function that reads it. The function returns `None`
/// if the header lacks the field, or has it in an encoding that this library does not read.
type Member = (&'static str, fn(&HeaderView<'_>) -> Option<Value>);

/// All members of a header in JSON, but for its hash.
pub(crate) const HEADER_MEMBERS: [Member; 23] = [
    ("parentHash", |header| Some(json!(header.parent_hash()))),
    ("sha3Uncles", |header| Some(json!(header.ommers_hash()))),
    ("miner", |header| Some(json!(header.beneficiary()))),
    ("stateRoot", |header| Some(json!(header.state_root()))),
    ("transactionsRoot", |header| Some(json!(header.transactions_root()))),
    ("receiptsRoot", |header| Some(json!(header.receipts_root()))),
    ("logsBloom", |header| {
        Some(json!(header.logs_bloom().informative().map(hex::encode_prefixed)))
    }),
    ("difficulty", |header| Some(json!(header.difficulty()))),
    ("number", |header| Some(quantity(header.number()))),
    ("gasLimit", |header| Some(quantity(header.gas_limit()))),
    ("gasUsed", |header| Some(quantity(header.gas_used()))),
    ("timestamp", |header| Some(quantity(header.timestamp()))),
    ("extraData", |header| Some(json!(hex::encode_prefixed(header.extra_data())))),
    ("mixHash", |header| header.mix_hash().map(|hash| json!(hash))),
    ("nonce", |header| header.nonce().map(|nonce| json!(B64::new(nonce)))),
    ("baseFeePerGas", |header| header.base_fee_per_gas().map(|fee: U256| json!(fee))),
    ("withdrawalsRoot", |header| header.withdrawals_root().map(|hash| json!(hash))),
    ("blobGasUsed", |header| header.blob_gas_used().map(quantity)),
    ("excessBlobGas", |header| header.excess_blob_gas().map(quantity)),
    ("parentBeaconBlockRoot", |header| header.parent_beacon_block_root().map(|hash| json!(hash))),
    ("requestsHash", |header| header.requests_hash().map(|hash| json!(hash))),
    ("blockAccessListHash", |header| header.block_access_list_hash().map(|hash| json!(hash))),
    ("slotNumber", |header| header.slot_number().map(quantity)),
];

fn quantity(number: u64) -> Value {
    json!(U64::from(number))
}

/// Returns the members of a header in JSON, without its hash.
pub(crate) fn header_json(header: &HeaderView<'_>) -> Value {
    let members = HEADER_MEMBERS.iter().filter_map(|(name, read)| Some((*name, read(header)?)));
    members.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}
