//! Blocks and receipts as JSON, built from proven bytes alone.

use alloy_consensus::proofs::calculate_withdrawals_root;
use alloy_consensus::transaction::{Recovered, SignerRecoverable as _, TransactionInfo};
use alloy_consensus::{Header, Transaction as _, TxEnvelope};
use alloy_eips::eip2718::{Decodable2718 as _, Typed2718 as _};
use alloy_rlp::Decodable as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, TxKind, U64, U128, keccak256};
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::{BlockReceipts, Outcome};
use chainsieve::eth::transactions::VerifiedTransactions;
use serde_json::{Map, Value, json};

use super::Proven;
use super::blocks::Missing;
use super::journal::BlockHeader;
use super::refusal::Refusal;

/// Gas of a blob (EIP-4844).
const GAS_PER_BLOB: u64 = 131_072;
/// Hash of an empty list of ommers.
const NO_OMMERS: B256 = alloy_consensus::EMPTY_OMMER_ROOT_HASH;
/// Most ommers of a block (Yellow Paper 11.1).
const MOST_OMMERS: usize = 2;

/// Reason why proven bytes cannot be written as JSON.
fn unknown(block: BlockRef, why: String) -> Refusal {
    Refusal::from(Missing { block, why: vec![why] })
}

/// Returns a header as `newHeads` has it.
pub(super) fn head(block: &BlockHeader) -> Result<Value, Refusal> {
    let rlp = block.header.rlp();
    let fields = Header::decode(&mut &rlp[..]).ok();
    // A header with a field that is not known here would be written without it.
    let fields = fields.filter(|fields| alloy_rlp::encode(fields) == rlp);
    let fields = fields.ok_or_else(|| {
        unknown(block.at, "the header has a member that this version does not know".to_owned())
    })?;
    let mut json = serde_json::to_value(fields).expect("JSON");
    json["hash"] = json!(block.at.hash);
    Ok(json)
}

fn decoded(at: BlockRef, encoding: &[u8]) -> Result<Recovered<TxEnvelope>, Refusal> {
    let transaction = TxEnvelope::decode_2718_exact(encoding).map_err(|error| {
        let kind = encoding.first().copied().unwrap_or_default();
        unknown(at, format!("a transaction of type {kind:#x}: {error}"))
    })?;
    // Before EIP-2, a signature could have a high `s`.
    let sender = transaction.recover_signer_unchecked();
    let sender = sender.map_err(|error| unknown(at, format!("a signature: {error}")))?;
    Ok(Recovered::new_unchecked(transaction, sender))
}

impl Proven {
    /// Returns a block as `eth_getBlockByHash` has it, with its transactions if `is_full`, and with
    /// their hashes otherwise.
    pub(super) fn block_json(&self, block: &BlockHeader, is_full: bool) -> Result<Value, Refusal> {
        let mut json = head(block)?;
        let view = block.header.view();
        let root = view.withdrawals_root();
        let fits = |list: Option<&[_]>| list.map(calculate_withdrawals_root) == root;
        let (transactions, withdrawals) =
            self.blocks.fetch_body(block.at, view.transactions_root(), fits)?;
        let ommers = self.ommers(block)?;
        let list = |parts: usize| alloy_rlp::Header { list: true, payload_length: parts };
        let of_transaction = |encoding: &Bytes| match encoding.first() {
            // A legacy transaction is a list; a typed one is a string in the block.
            Some(0xc0..) => encoding.len(),
            _ => alloy_rlp::Encodable::length(&encoding[..]),
        };
        let length = |bytes: usize| bytes + list(bytes).length();
        let mut size = block.header.rlp().len()
            + length(transactions.encodings().iter().map(of_transaction).sum())
            + length(ommers.iter().map(|ommer| ommer.rlp().len()).sum());
        if let Some(withdrawals) = &withdrawals {
            size += alloy_rlp::Encodable::length(withdrawals);
            json["withdrawals"] = json!(withdrawals);
        }
        let size = length(size);
        json["size"] = json!(U64::from(size));
        json["uncles"] = json!(ommers.iter().map(HeaderBuf::hash).collect::<Vec<_>>());
        json["transactions"] = if is_full {
            let base_fee = view.base_fee_per_gas().map(|fee| fee.saturating_to::<u64>());
            let encodings = transactions.encodings().iter().zip(0..);
            let written = encodings.map(|(encoding, index)| {
                let place = TransactionInfo {
                    index: Some(index),
                    block_hash: Some(block.at.hash),
                    block_number: Some(block.at.number),
                    base_fee,
                    ..TransactionInfo::default()
                };
                let decoded = decoded(block.at, encoding)?;
                Ok(json!(Transaction::from_transaction(decoded, place)))
            });
            Value::Array(written.collect::<Result<_, Refusal>>()?)
        } else {
            json!(transactions.hashes())
        };
        Ok(json)
    }

    /// Returns the headers of a block's ommers, under the hash in its header.
    fn ommers(&self, block: &BlockHeader) -> Result<Vec<HeaderBuf>, Refusal> {
        let expected = block.header.view().ommers_hash();
        if expected == NO_OMMERS {
            return Ok(Vec::new());
        }
        for node in &self.blocks.nodes() {
            let mut headers: Vec<HeaderBuf> = Vec::new();
            // Only the hash in the header says how many there are.
            while headers.len() < MOST_OMMERS {
                let Ok(Some(header)) = node.ommer(block.at.hash, headers.len()) else { break };
                headers.push(header);
                let payload = headers.iter().flat_map(|header| header.rlp().to_vec());
                let payload: Vec<u8> = payload.collect();
                let mut list = Vec::new();
                alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut list);
                list.extend(payload);
                if keccak256(list) == expected {
                    return Ok(headers);
                }
            }
        }
        Err(unknown(block.at, "no upstream has the ommers of the header".to_owned()))
    }

    /// Returns all receipts of a block as `eth_getBlockReceipts` has them.
    pub(super) fn receipts_json(&self, block: &BlockHeader) -> Result<Vec<Value>, Refusal> {
        let header = ChainBlock::from(block);
        let receipts = self.blocks.receipts(&header)?;
        let transactions = self.blocks.transactions(&header)?;
        let count = receipts.receipts().len();
        (0..count).map(|index| receipt(block, receipts.receipts(), &transactions, index)).collect()
    }

    /// Returns the receipt of one transaction of a block.
    pub(super) fn receipt_json(
        &self,
        block: &BlockHeader,
        transaction: B256,
    ) -> Result<Option<Value>, Refusal> {
        let header = ChainBlock::from(block);
        let hashes = self.blocks.hashes(&header)?;
        let Some(index) = hashes.iter().position(|hash| *hash == transaction) else {
            return Ok(None);
        };
        let receipts = self.blocks.receipts(&header)?;
        let transactions = self.blocks.transactions(&header)?;
        receipt(block, receipts.receipts(), &transactions, index).map(Some)
    }
}

/// Returns a receipt with its logs. Members that receipt, transaction and header do not determine are
/// left out: `blobGasPrice` depends on the fork's schedule.
fn receipt(
    block: &BlockHeader,
    receipts: &BlockReceipts,
    transactions: &VerifiedTransactions,
    index: usize,
) -> Result<Value, Refusal> {
    let at = block.at;
    let lacks = || unknown(at, format!("the block has no transaction {index}"));
    let encoding = transactions.encodings().get(index).ok_or_else(lacks)?;
    let hash = transactions.hashes().get(index).ok_or_else(lacks)?;
    let transaction = decoded(at, encoding)?;
    let receipt = receipts.iter().nth(index).ok_or_else(lacks)?;
    let before = index.checked_sub(1).and_then(|before| receipts.iter().nth(before));
    let before = before.map_or(0, |before| before.cumulative_gas_used);
    let first_log: usize = receipts.iter().take(index).map(|receipt| receipt.logs.len()).sum();
    let view = block.header.view();
    let base_fee = view.base_fee_per_gas().map(|fee| fee.saturating_to::<u64>());
    let logs = receipt.logs.iter().zip(first_log as u64..).map(|(log, log_index)| LocatedLog {
        log: log.clone(),
        block_number: at.number,
        block_hash: at.hash,
        block_timestamp: Some(view.timestamp()),
        transaction_hash: Some(*hash),
        claimed_transaction_hash: None,
        transaction_index: index as u64,
        log_index,
        removed: false,
    });
    let sender = transaction.signer();
    let created = matches!(transaction.kind(), TxKind::Create)
        .then(|| Address::create(&sender, transaction.nonce()));
    let mut json = Map::new();
    let mut put = |name: &str, value: Value| json.insert(name.to_owned(), value);
    put("type", json!(U64::from(transaction.ty())));
    match receipt.outcome {
        Outcome::Status(status) => put("status", json!(U64::from(status))),
        Outcome::PostState(root) => put("root", json!(root)),
        Outcome::Unknown => None,
    };
    put("cumulativeGasUsed", json!(U64::from(receipt.cumulative_gas_used)));
    put("logsBloom", json!(receipt.logs.iter().collect::<Bloom>()));
    put("logs", json!(logs.collect::<Vec<_>>()));
    put("transactionHash", json!(hash));
    put("transactionIndex", json!(U64::from(index)));
    put("blockHash", json!(at.hash));
    put("blockNumber", json!(U64::from(at.number)));
    put("gasUsed", json!(U64::from(receipt.cumulative_gas_used.saturating_sub(before))));
    put("effectiveGasPrice", json!(U128::from(transaction.effective_gas_price(base_fee))));
    if let Some(blobs) = transaction.blob_versioned_hashes() {
        put("blobGasUsed", json!(U64::from(blobs.len() as u64 * GAS_PER_BLOB)));
    }
    put("from", json!(sender));
    put("to", json!(transaction.to()));
    put("contractAddress", json!(created));
    Ok(Value::Object(json))
}
