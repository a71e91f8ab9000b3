//! Data sets: the rows of real blocks, whole and damaged. The oracle is alloy, which encodes receipts and
//! headers from the same rows.

mod attacked;
mod damage;
mod details;
mod evidence;
mod gaps;
mod rules;

use std::slice;

use alloy_consensus::private::alloy_eips::{Decodable2718 as _, Encodable2718 as _};
use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope};
use alloy_primitives::{B256, Log};
use alloy_trie::root::ordered_trie_root_encoded;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, HeaderRow, LogRow, Row, TransactionRow, verify,
};
use chainsieve::eth::header::HeaderBuf;

use crate::blocks::{self, RealBlock};
use crate::constructed::log;

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

type Change = fn(&mut Rows);

fn leak<T: AsRef<[u8]> + ?Sized>(bytes: &T) -> &'static [u8] {
    bytes.as_ref().to_vec().leak()
}

/// Returns the columns of a header, with every column that a header can have.
fn header_row(header: &Header) -> HeaderRow<'static> {
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
        trusted: Box::leak(Box::new(trusted(&block.header))),
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
            let row = log_row(log, index, rows.logs.len() as u64);
            let (transaction_hash, block_hash) = (Some(transaction_hash), Some(hash));
            rows.logs.push(LogRow { transaction_hash, block_hash, ..row });
        }
    }
    rows
}

/// A block of one receipt with one log, under a header with only their root.
struct Made {
    number: u64,
    header: HeaderRow<'static>,
    transaction: TransactionRow<'static>,
    log: LogRow<'static>,
}

impl Made {
    /// A block of a receipt that is hashed as `encoding`.
    fn of(encoding: &[u8], transaction: TransactionRow<'static>) -> Self {
        let root: B256 = ordered_trie_root_encoded(&[encoding]);
        let header = HeaderRow { receipts_root: Some(leak(&root)), ..HeaderRow::default() };
        let transaction = TransactionRow {
            transaction_index: Some(0),
            cumulative_gas_used: Some(46_913),
            ..transaction
        };
        let log = log_row(&log(2), 0, 0);
        Self { number: 1_000_000, header, transaction, log }
    }

    fn legacy(outcome: Eip658Value, transaction: TransactionRow<'static>) -> Self {
        let encoding = ReceiptEnvelope::Legacy(receipt(outcome).with_bloom()).encoded_2718();
        let receipt_type = Some(transaction.receipt_type.unwrap_or(0));
        Self::of(&encoding, TransactionRow { receipt_type, ..transaction })
    }

    fn verify(&self, profile: &ChainProfile) -> BlockVerdict {
        let columns = BlockColumns {
            number: self.number,
            headers: Some(slice::from_ref(&self.header)),
            transactions: Some(slice::from_ref(&self.transaction)),
            logs: Some(slice::from_ref(&self.log)),
            ..BlockColumns::default()
        };
        columns.verify(Some(profile))
    }
}

/// The receipt of a [`Made`] block.
fn receipt(status: Eip658Value) -> Receipt {
    Receipt { status, cumulative_gas_used: 46_913, logs: vec![log(2)] }
}

fn log_row(log: &Log, transaction_index: u64, log_index: u64) -> LogRow<'static> {
    LogRow {
        transaction_index: Some(transaction_index),
        log_index: Some(log_index),
        address: Some(leak(&log.address)),
        topics: Some(std::array::from_fn(|at| log.topics().get(at).map(leak))),
        data: Some(leak(&log.data.data)),
        ..LogRow::default()
    }
}

fn assumed(bloom: BloomSoundness, receipts: ReceiptsScope) -> ChainProfile {
    ChainProfile::assumed("ours", bloom, receipts)
}

/// A chain of which nothing is known but that its headers commit to everything.
fn exact() -> ChainProfile {
    assumed(BloomSoundness::Exact, ReceiptsScope::EveryLog)
}

const FIRST: u64 = 25_000_000;

/// Returns headers of Prague in a chain, without transactions.
fn prague(count: u64) -> Vec<Header> {
    let mut parent_hash = B256::repeat_byte(4);
    let header = |number| {
        let header = Header {
            number: FIRST + number,
            parent_hash,
            base_fee_per_gas: Some(7),
            withdrawals_root: Some(B256::repeat_byte(1)),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(B256::repeat_byte(2)),
            requests_hash: Some(B256::repeat_byte(3)),
            ..Header::default()
        };
        parent_hash = header.hash_slow();
        header
    };
    (0..count).map(header).collect()
}

fn trusted(header: &Header) -> HeaderBuf {
    HeaderBuf::from_rlp(alloy_rlp::encode(header)).expect("a header")
}

/// Verifies blocks without transactions: for each its number, the rows of its header, and the trusted header.
fn chain(
    blocks: &[(u64, &[HeaderRow<'_>], Option<&HeaderBuf>)],
    profile: Option<&ChainProfile>,
) -> Vec<BlockVerdict> {
    let columns = |&(number, headers, trusted): &(u64, _, _)| BlockColumns {
        number,
        headers: Some(headers),
        transactions: Some(&[]),
        logs: Some(&[]),
        trusted,
        is_filtered: false,
    };
    verify(&blocks.iter().map(columns).collect::<Vec<_>>(), profile)
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

/// Returns the undecided checks with the columns that they lack.
fn missing(verdict: &BlockVerdict) -> Vec<(Check, &'static str)> {
    verdict.missing.iter().map(|missing| (missing.check, missing.column)).collect()
}

fn lacks(verdict: &BlockVerdict, check: Check) -> Option<&'static str> {
    let mut missing = missing(verdict).into_iter();
    missing.find(|(missing, _)| *missing == check).map(|(_, column)| column)
}

/// Asserts that nothing is accused, and that a check needs a column.
#[track_caller]
fn undecided(verdict: &BlockVerdict, check: Check, column: &str) {
    assert!(verdict.faults.is_empty(), "{verdict}");
    assert_eq!(lacks(verdict, check), Some(column), "{verdict} {:?}", missing(verdict));
}
