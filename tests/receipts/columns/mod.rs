//! Data sets: the rows of real blocks, whole and damaged. The oracle is alloy, which encodes receipts and
//! headers from the same rows.

mod attacked;
mod damage;
mod datasets;
mod evidence;
mod gaps;
mod rules;

use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::{Eip658Value, ReceiptEnvelope};
use alloy_primitives::B256;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, HeaderRow, LogRow, Row, TransactionRow,
};
use chainsieve::eth::header::HeaderBuf;

use crate::blocks::{self, RealBlock};

/// The rows of a block. The cells are leaked: they live as long as the test.
#[derive(Clone)]
struct Rows {
    name: String,
    number: u64,
    headers: Vec<HeaderRow<'static>>,
    transactions: Vec<TransactionRow<'static>>,
    logs: Vec<LogRow<'static>>,
    trusted: &'static HeaderBuf,
    is_trusted: bool,
    is_filtered: bool,
}

impl Rows {
    fn verify(&self) -> BlockVerdict {
        self.columns().verify(Some(&ChainProfile::ethereum()))
    }

    fn columns(&self) -> BlockColumns<'_> {
        BlockColumns {
            number: self.number,
            headers: Some(&self.headers),
            transactions: Some(&self.transactions),
            logs: Some(&self.logs),
            trusted: self.is_trusted.then_some(self.trusted),
            is_filtered: self.is_filtered,
        }
    }

    fn trusted(&self) -> Self {
        Self { is_trusted: true, ..self.clone() }
    }
}

fn leak<T: AsRef<[u8]> + ?Sized>(bytes: &T) -> &'static [u8] {
    bytes.as_ref().to_vec().leak()
}

/// Returns the columns of a header, with every column that a header can have.
fn header_row(header: &alloy_consensus::Header) -> HeaderRow<'static> {
    let root = |root: Option<B256>| Cell::from(root.map(|root| leak(&root)));
    HeaderRow {
        hash: Some(leak(&header.hash_slow())),
        parent_hash: Some(leak(&header.parent_hash)),
        sha3_uncles: Some(leak(&header.ommers_hash)),
        miner: Some(leak(&header.beneficiary)),
        state_root: Some(leak(&header.state_root)),
        transactions_root: Some(leak(&header.transactions_root)),
        receipts_root: Some(leak(&header.receipts_root)),
        logs_bloom: Some(leak(&header.logs_bloom.0)),
        difficulty: Some(header.difficulty),
        gas_limit: Some(header.gas_limit),
        gas_used: Some(header.gas_used),
        timestamp: Some(header.timestamp),
        extra_data: Some(leak(&header.extra_data)),
        mix_hash: Some(leak(&header.mix_hash)),
        nonce: Some(leak(&header.nonce)),
        base_fee_per_gas: header.base_fee_per_gas.map(alloy_primitives::U256::from).into(),
        withdrawals_root: root(header.withdrawals_root),
        blob_gas_used: header.blob_gas_used.into(),
        excess_blob_gas: header.excess_blob_gas.into(),
        parent_beacon_block_root: root(header.parent_beacon_block_root),
        requests_hash: root(header.requests_hash),
        block_access_list_hash: Cell::Null,
        slot_number: Cell::Null,
        transaction_count: None,
    }
}

/// Returns the rows of a block, with every column.
fn rows_of(block: &RealBlock) -> Rows {
    let hash = leak(&block.header.hash_slow());
    let receipts: Vec<ReceiptEnvelope> = block
        .encodings
        .iter()
        .map(|rlp| ReceiptEnvelope::decode_2718(&mut &rlp[..]).expect("a receipt"))
        .collect();
    let receipts: &'static [ReceiptEnvelope] = receipts.leak();
    let mut rows = Rows {
        name: block.name.clone(),
        number: block.header.number,
        headers: vec![HeaderRow {
            transaction_count: Some(receipts.len() as u64),
            ..header_row(&block.header)
        }],
        transactions: Vec::new(),
        logs: Vec::new(),
        trusted: Box::leak(Box::new(
            HeaderBuf::from_rlp(alloy_rlp::encode(&block.header)).expect("a header"),
        )),
        is_trusted: false,
        is_filtered: false,
    };
    let mut before = 0;
    for (index, receipt) in (0..).zip(receipts) {
        // No transactions are at hand: any hash will do.
        let transaction_hash = leak(&alloy_primitives::keccak256(u64::to_be_bytes(index)));
        let parts = receipt.as_receipt().expect("a receipt");
        let (status, root) = match parts.status {
            Eip658Value::Eip658(status) => (Some(status), None),
            Eip658Value::PostState(root) => (None, Some(leak(&root))),
        };
        rows.transactions.push(TransactionRow {
            transaction_index: Some(index),
            hash: Some(transaction_hash),
            block_hash: Some(hash),
            receipt_type: Some(receipt.tx_type().into()),
            status,
            root,
            cumulative_gas_used: Some(parts.cumulative_gas_used),
            gas_used: Some(parts.cumulative_gas_used - before),
            deposit_nonce: None,
            deposit_receipt_version: None,
        });
        before = parts.cumulative_gas_used;
        for log in receipt.logs() {
            let topics = log.topics();
            rows.logs.push(LogRow {
                transaction_index: Some(index),
                log_index: Some(rows.logs.len() as u64),
                transaction_hash: Some(transaction_hash),
                block_hash: Some(hash),
                address: Some(leak(&log.address)),
                topics: Some(std::array::from_fn(|at| topics.get(at).map(leak))),
                data: Some(leak(&log.data.data)),
                is_removed: false,
            });
        }
    }
    rows
}

/// Returns the real blocks, those of the corpus included.
fn real() -> Vec<Rows> {
    blocks::all().iter().map(rows_of).collect()
}

/// Returns the real blocks that have at least one transaction with more than one log.
fn with_logs() -> Vec<Rows> {
    let mut blocks = real();
    blocks.retain(|block| block.logs.len() > 10);
    assert!(blocks.len() >= 5);
    blocks
}

/// Returns the failed checks.
fn faults(verdict: &BlockVerdict) -> Vec<(Check, Option<Row>)> {
    verdict.faults.iter().map(|fault| (fault.check, fault.row)).collect()
}
