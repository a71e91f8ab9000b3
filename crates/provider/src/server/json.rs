//! Blocks and receipts as JSON, built from proven bytes alone.

use alloy_consensus::transaction::{Recovered, SignerRecoverable as _, TransactionInfo};
use alloy_consensus::{EMPTY_ROOT_HASH, Header, Transaction as _, TxEnvelope};
use alloy_eips::eip2718::{Decodable2718 as _, Typed2718 as _};
use alloy_rlp::Decodable;
use alloy_rpc_types_eth::{Transaction, Withdrawal};
use chainsieve::alloy_primitives::{
    Address, B256, Bloom, Bytes, TxKind, U64, U128, U256, keccak256,
};
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::{BlockReceipts, DEPOSIT_TYPE, Outcome, Receipt};
use chainsieve::eth::transactions::{BlockTransactions, VerifiedTransactions};
use serde_json::{Map, Value, json};

use super::Proven;
use super::call::{Answer, Call};
use super::chain::BlockHeader;
use super::error::Refusal;
use crate::proven::{Body, Missing, Part};

/// Gas of a blob (EIP-4844).
const GAS_PER_BLOB: u64 = 131_072;

/// Reason why proven bytes cannot be written as JSON.
fn unknown(block: BlockRef, why: &str) -> Refusal {
    Refusal::not_proven("unknown_type", format!("block {}: {why}", block.number))
}

/// Returns a header in the form of `newHeads`.
pub(super) fn head(block: &BlockHeader) -> Result<Value, Refusal> {
    let rlp = block.header.rlp();
    let fields = Header::decode(&mut &rlp[..]).ok();
    // A header with a field that is not known here would be written without it.
    let fields = fields.filter(|fields| alloy_rlp::encode(fields) == rlp);
    let fields = fields.ok_or_else(|| {
        unknown(block.at, "the header has a member that this version does not know")
    })?;
    let mut json = serde_json::to_value(fields).expect("JSON");
    json["hash"] = json!(block.at.hash);
    Ok(json)
}

/// A transaction of a known type.
enum Decoded {
    Signed(Box<Recovered<TxEnvelope>>),
    Deposit(Deposit),
}

fn decoded(at: BlockRef, encoding: &[u8]) -> Result<Decoded, Refusal> {
    let transaction_type = encoding.first().copied().unwrap_or_default();
    let malformed = |error: &dyn std::fmt::Display| {
        unknown(at, &format!("a transaction of type {transaction_type:#x}: {error}"))
    };
    if is_deposit(encoding) {
        return Deposit::decode(encoding).map(Decoded::Deposit).map_err(|error| malformed(&error));
    }
    let transaction = TxEnvelope::decode_2718_exact(encoding).map_err(|error| malformed(&error))?;
    // Before EIP-2, a signature could have a high `s`.
    let sender = transaction.recover_signer_unchecked();
    let sender = sender.map_err(|error| unknown(at, &format!("a signature: {error}")))?;
    Ok(Decoded::Signed(Box::new(Recovered::new_unchecked(transaction, sender))))
}

/// A log in the form that clients receive: if a node only claims the hash of the transaction, the
/// hash is marked.
#[derive(serde::Serialize)]
#[serde(untagged)]
pub(super) enum WrittenLog<'a> {
    Proven(&'a LocatedLog),
    #[serde(rename_all = "camelCase")]
    Claimed {
        #[serde(flatten)]
        log: Box<LocatedLog>,
        /// Always `false`.
        transaction_hash_proven: bool,
    },
}

/// Returns logs in the form that clients receive.
pub(super) fn logs(logs: &[LocatedLog]) -> Vec<WrittenLog<'_>> {
    let written = |log: &'_ LocatedLog| match log.claimed_transaction_hash {
        None => None,
        claimed => {
            let (transaction_hash, claimed_transaction_hash) = (claimed, None);
            let log = LocatedLog { transaction_hash, claimed_transaction_hash, ..log.clone() };
            Some(WrittenLog::Claimed { log: Box::new(log), transaction_hash_proven: false })
        }
    };
    logs.iter().map(|log| written(log).unwrap_or(WrittenLog::Proven(log))).collect()
}

impl Proven {
    /// Returns a block in the form of `eth_getBlockByHash`, with its transactions if `is_full`, and
    /// otherwise with their hashes.
    pub(super) fn block_json(&self, block: &BlockHeader, is_full: bool) -> Result<Value, Refusal> {
        let mut json = head(block)?;
        let Body { transactions, ommers, withdrawals } = self.blocks.body(block)?;
        let size = encoded(&block.header, &transactions, &ommers, withdrawals.as_deref()).len();
        if let Some(withdrawals) = &withdrawals {
            json["withdrawals"] = json!(withdrawals);
        }
        json["size"] = json!(U64::from(size));
        json["uncles"] = json!(ommers.iter().map(HeaderBuf::hash).collect::<Vec<_>>());
        json["transactions"] = if is_full {
            let encodings = transactions.encodings().iter().enumerate();
            let written =
                encodings.map(|(index, encoding)| self.transaction_of(block, index, encoding));
            Value::Array(written.collect::<Result<_, Refusal>>()?)
        } else {
            json!(transactions.hashes())
        };
        Ok(json)
    }

    /// Returns a transaction of a block in the form of `eth_getTransactionByHash`. The nonce of a deposit
    /// needs the receipts.
    pub(super) fn transaction_of(
        &self,
        block: &BlockHeader,
        index: usize,
        encoding: &[u8],
    ) -> Result<Value, Refusal> {
        let nonce = if is_deposit(encoding) {
            let receipts = self.blocks.receipts(&ChainBlock::from(block))?;
            receipts.receipts().iter().nth(index).and_then(proven_nonce)
        } else {
            None
        };
        transaction(Some((block, index)), encoding, nonce)
    }

    /// Returns a block in the encoding that nodes send to each other.
    pub(super) fn raw_block(&self, block: &BlockHeader) -> Result<Bytes, Refusal> {
        let Body { transactions, ommers, withdrawals } = self.blocks.body(block)?;
        Ok(encoded(&block.header, &transactions, &ommers, withdrawals.as_deref()).into())
    }

    /// Returns the receipt of the transaction with this index in a block.
    pub(super) fn receipt_json(&self, block: &BlockHeader, index: usize) -> Result<Value, Refusal> {
        let header = ChainBlock::from(block);
        let receipts = self.blocks.receipts(&header)?;
        let transactions = self.blocks.transactions(&header)?;
        receipt(block, receipts.receipts(), &transactions, index)
    }
}

impl Call {
    /// Writes all receipts of a block in the form of `eth_getBlockReceipts`.
    pub(super) fn receipts_json(&self, block: &BlockHeader) -> Answer {
        let header = ChainBlock::from(block);
        let receipts = self.blocks.receipts(&header)?;
        let transactions = self.blocks.transactions(&header)?;
        let count = receipts.receipts().len();
        self.written_list(
            (0..count).map(|index| receipt(block, receipts.receipts(), &transactions, index)),
        )
    }
}

/// Returns the RLP of a block.
fn encoded(
    header: &HeaderBuf,
    transactions: &VerifiedTransactions,
    ommers: &[HeaderBuf],
    withdrawals: Option<&[Withdrawal]>,
) -> Vec<u8> {
    let list = |payload: &[u8]| {
        let mut list = Vec::with_capacity(payload.len() + 9);
        alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut list);
        list.extend_from_slice(payload);
        list
    };
    let mut encodings = Vec::new();
    for encoding in transactions.encodings() {
        match encoding.first() {
            // A legacy transaction is a list; a typed one is a string in the block.
            Some(0xc0..) => encodings.extend_from_slice(encoding),
            _ => alloy_rlp::Encodable::encode(&encoding[..], &mut encodings),
        }
    }
    let mut block = header.rlp().to_vec();
    block.extend(list(&encodings));
    block.extend(list(&ommers.iter().flat_map(HeaderBuf::rlp).copied().collect::<Vec<_>>()));
    if let Some(withdrawals) = withdrawals {
        alloy_rlp::encode_list::<_, Withdrawal>(withdrawals, &mut block);
    }
    list(&block)
}

/// Returns a transaction in the form of `eth_getTransactionByHash`, with its block and its index in
/// the block, or without both while it is pending. `deposit_nonce` is the nonce of a deposit, if it
/// is proven.
pub(super) fn transaction(
    place: Option<(&BlockHeader, usize)>,
    encoding: &[u8],
    deposit_nonce: Option<u64>,
) -> Result<Value, Refusal> {
    let at = place.map(|(block, _)| block.at);
    let at = at.unwrap_or(BlockRef { number: 0, hash: B256::ZERO });
    match decoded(at, encoding)? {
        Decoded::Signed(signed) => {
            let info = place.map_or_else(TransactionInfo::default, |(block, index)| {
                let base_fee = block.header.view().base_fee_per_gas();
                TransactionInfo {
                    index: Some(index as u64),
                    block_hash: Some(block.at.hash),
                    block_number: Some(block.at.number),
                    base_fee: base_fee.map(|fee| fee.saturating_to::<u64>()),
                    ..TransactionInfo::default()
                }
            });
            Ok(json!(Transaction::from_transaction(*signed, info)))
        }
        Decoded::Deposit(deposit) => {
            let mut json = deposit.json(keccak256(encoding));
            let mut put = |name: &str, value: Value| json.insert(name.to_owned(), value);
            put("blockHash", json!(place.map(|(block, _)| block.at.hash)));
            put("blockNumber", json!(place.map(|(block, _)| U64::from(block.at.number))));
            put("transactionIndex", json!(place.map(|(_, index)| U64::from(index))));
            if let Some(nonce) = deposit_nonce {
                put("nonce", json!(U64::from(nonce)));
            }
            Ok(Value::Object(json))
        }
    }
}

/// Returns the header of an ommer in the form of `eth_getUncleByBlockHashAndIndex`: a block without
/// contents.
pub(super) fn ommer(header: &HeaderBuf) -> Result<Value, Refusal> {
    let mut json = head(&BlockHeader::new(header.clone()))?;
    let nothing = BlockTransactions::default().verify(EMPTY_ROOT_HASH).expect("no transaction");
    json["size"] = json!(U64::from(encoded(header, &nothing, &[], None).len()));
    json["uncles"] = json!([]);
    Ok(json)
}

/// The fields of a transaction that its receipt in JSON contains.
struct Payer {
    transaction_type: u8,
    from: Address,
    to: TxKind,
    /// `None` if it is not proven.
    nonce: Option<u64>,
    gas_price: u128,
    /// Number of blobs; `None` if transactions of this type have no blobs.
    blobs: Option<u64>,
}

impl Payer {
    fn of(transaction: &Decoded, receipt: &Receipt, base_fee: Option<u64>) -> Self {
        match transaction {
            Decoded::Signed(signed) => Self {
                transaction_type: signed.ty(),
                from: signed.signer(),
                to: signed.kind(),
                nonce: Some(signed.nonce()),
                gas_price: signed.effective_gas_price(base_fee),
                blobs: signed.blob_versioned_hashes().map(|blobs| blobs.len() as u64),
            },
            Decoded::Deposit(deposit) => Self {
                transaction_type: DEPOSIT_TYPE,
                from: deposit.from,
                to: deposit.to,
                nonce: proven_nonce(receipt),
                gas_price: 0,
                blobs: None,
            },
        }
    }
}

/// Returns a receipt with its logs. Members that do not follow from the receipt, the transaction and
/// the header are left out: for example, `blobGasPrice` depends on the schedule of forks.
fn receipt(
    block: &BlockHeader,
    receipts: &BlockReceipts,
    transactions: &VerifiedTransactions,
    index: usize,
) -> Result<Value, Refusal> {
    let at = block.at;
    let lacks = || {
        let why = vec![format!("the block has no transaction {index}")];
        Refusal::from(Missing::of(at, Part::Transactions, why))
    };
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
    let payer = Payer::of(&transaction, receipt, base_fee);
    let mut json = Map::new();
    let mut put = |name: &str, value: Value| json.insert(name.to_owned(), value);
    put("type", json!(U64::from(payer.transaction_type)));
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
    put("effectiveGasPrice", json!(U128::from(payer.gas_price)));
    if let Some(blobs) = payer.blobs {
        put("blobGasUsed", json!(U64::from(blobs * GAS_PER_BLOB)));
    }
    put("from", json!(payer.from));
    put("to", json!(payer.to.to().copied()));
    match (payer.to, payer.nonce) {
        (TxKind::Call(_), _) => put("contractAddress", Value::Null),
        (TxKind::Create, Some(nonce)) => put("contractAddress", json!(payer.from.create(nonce))),
        // The nonce of a deposit before Canyon is not proven.
        (TxKind::Create, None) => None,
    };
    if let Some(nonce) = proven_nonce(receipt) {
        put("depositNonce", json!(U64::from(nonce)));
        put("depositReceiptVersion", json!(receipt.deposit_receipt_version.map(U64::from)));
    }
    Ok(Value::Object(json))
}

/// A deposit transaction of the OP stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deposit {
    source_hash: B256,
    pub(super) from: Address,
    pub(super) to: TxKind,
    mint: U256,
    value: U256,
    gas: u64,
    is_system: bool,
    input: Bytes,
}

/// Returns `true` if an encoding is that of a deposit.
pub(super) fn is_deposit(encoding: &[u8]) -> bool {
    encoding.first() == Some(&DEPOSIT_TYPE)
}

/// Returns the nonce of a deposit, if its receipt proves it: before Canyon, the receipts root does not
/// cover the nonce.
pub(super) fn proven_nonce(receipt: &Receipt) -> Option<u64> {
    receipt.deposit_nonce.filter(|_| receipt.deposit_receipt_version.is_some())
}

impl Deposit {
    pub(super) fn decode(encoding: &[u8]) -> Result<Self, alloy_rlp::Error> {
        let mut rest = encoding.strip_prefix(&[DEPOSIT_TYPE]).unwrap_or_default();
        let mut fields = alloy_rlp::Header::decode_bytes(&mut rest, true)?;
        let deposit = Self {
            source_hash: Decodable::decode(&mut fields)?,
            from: Decodable::decode(&mut fields)?,
            to: Decodable::decode(&mut fields)?,
            mint: Decodable::decode(&mut fields)?,
            value: Decodable::decode(&mut fields)?,
            gas: Decodable::decode(&mut fields)?,
            is_system: Decodable::decode(&mut fields)?,
            input: Decodable::decode(&mut fields)?,
        };
        if rest.is_empty() && fields.is_empty() {
            Ok(deposit)
        } else {
            Err(alloy_rlp::Error::UnexpectedLength)
        }
    }

    /// Returns the members that depend on no block. Members of a signature are zero, as op-geth writes them.
    pub(super) fn json(&self, hash: B256) -> Map<String, Value> {
        let mut json = json!({
            "type": U64::from(DEPOSIT_TYPE),
            "hash": hash,
            "sourceHash": self.source_hash,
            "from": self.from,
            "to": self.to.to(),
            "value": self.value,
            "gas": U64::from(self.gas),
            "gasPrice": "0x0",
            "input": self.input,
            "v": "0x0",
            "r": "0x0",
            "s": "0x0",
        });
        if !self.mint.is_zero() {
            json["mint"] = json!(self.mint);
        }
        if self.is_system {
            json["isSystemTx"] = json!(true);
        }
        match json {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}
