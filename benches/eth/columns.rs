//! Verdicts from the columns of a data set: blocks of July 2023 with all their rows.

use std::collections::HashSet;

use alloy_consensus::proofs::calculate_receipt_root;
use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, LogData, U256};
use alloy_rlp::Encodable as _;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Grade, HeaderBasis, HeaderRow, LogRow, TransactionRow,
    verify_on,
};
use chainsieve::hash::keccak256_each;
use chainsieve::simd::Backend;

use crate::receipts::{Block, blocks, decode};
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let numbers: Vec<u64> = (17_686_110..=17_686_125).collect();
    let blocks: Vec<_> = blocks(&numbers).iter().map(Owned::of).collect();
    let rows: Vec<_> = blocks.iter().map(Owned::rows).collect();
    let columns: Vec<_> = blocks.iter().zip(&rows).map(|(block, rows)| rows.of(block)).collect();
    let profile = ChainProfile::ethereum();
    let count = columns.len();
    let permutations = blocks.iter().map(Owned::permutations).sum::<usize>() + distinct(&blocks);
    let messages = vec![&[7_u8; 100][..]; permutations];
    println!("# {count} blocks, {permutations} permutations of Keccak");

    let is_proven = |verdict: &BlockVerdict| {
        (verdict.grade, verdict.header) == (Grade::Complete, HeaderBasis::Recomputed)
    };
    let by_alloy = || {
        columns.iter().zip(&blocks).all(|(columns, block)| {
            let receipts = receipts_of(columns);
            let mut bloom = Bloom::ZERO;
            for receipt in &receipts {
                bloom |= *receipt.logs_bloom();
            }
            let header = &block.header;
            calculate_receipt_root(&receipts) == header.receipts_root
                && bloom == header.logs_bloom
                && header.hash_slow() == block.hash
        })
    };
    for backend in Backend::available() {
        let ours = || verify_on(backend, &columns, Some(&profile)).iter().all(is_proven);
        let bare = || keccak256_each(backend, &messages);
        assert_eq!((ours(), by_alloy()), (true, true));
        let title = format!("verdicts from the columns of {count} blocks, {backend:?}");
        report.ratio(&format!("{title} vs alloy: the same"), count, ours, by_alloy);
        report.ratio(&format!("{title} vs the permutations alone"), count, ours, bare);
        let nanoseconds = report.figure(&format!("{title}, per block"), count, ours);
        report.value(&format!("{title}, per second"), 1e9 / nanoseconds, "blocks");
    }
}

/// A block whose rows borrow from it.
struct Owned {
    header: Header,
    hash: B256,
    receipts: Vec<ReceiptEnvelope>,
    encodings: Vec<usize>,
}

/// The rows of a block.
struct Rows<'a> {
    header: [HeaderRow<'a>; 1],
    transactions: Vec<TransactionRow<'a>>,
    logs: Vec<LogRow<'a>>,
}

impl Owned {
    fn of(block: &Block) -> Self {
        use alloy_consensus::private::alloy_eips::Encodable2718 as _;
        let receipts = decode(&block.receipts);
        let header = block.header.clone();
        let encodings = receipts.iter().map(ReceiptEnvelope::encode_2718_len).collect();
        Self { hash: header.hash_slow(), header, receipts, encodings }
    }

    fn rows(&self) -> Rows<'_> {
        let header = &self.header;
        let row = HeaderRow {
            hash: Some(self.hash.as_slice()),
            parent_hash: Some(header.parent_hash.as_slice()),
            sha3_uncles: Some(header.ommers_hash.as_slice()),
            miner: Some(header.beneficiary.as_slice()),
            state_root: Some(header.state_root.as_slice()),
            transactions_root: Some(header.transactions_root.as_slice()),
            receipts_root: Some(header.receipts_root.as_slice()),
            logs_bloom: Some(header.logs_bloom.as_slice()),
            difficulty: Some(header.difficulty),
            gas_limit: Some(header.gas_limit),
            gas_used: Some(header.gas_used),
            timestamp: Some(header.timestamp),
            extra_data: Some(&header.extra_data),
            mix_hash: Some(header.mix_hash.as_slice()),
            nonce: Some(header.nonce.as_slice()),
            base_fee_per_gas: header.base_fee_per_gas.map(U256::from).into(),
            withdrawals_root: header.withdrawals_root.as_ref().map(|root| &root[..]).into(),
            blob_gas_used: Cell::Null,
            ..HeaderRow::default()
        };
        let (mut transactions, mut logs) = (Vec::new(), Vec::new());
        for (index, receipt) in (0..).zip(&self.receipts) {
            transactions.push(TransactionRow {
                transaction_index: Some(index),
                block_hash: row.hash,
                receipt_type: Some(receipt.tx_type().into()),
                status: Some(receipt.status()),
                cumulative_gas_used: Some(receipt.cumulative_gas_used()),
                ..TransactionRow::default()
            });
            for log in receipt.logs() {
                let topics = log.topics();
                logs.push(LogRow {
                    transaction_index: Some(index),
                    log_index: Some(logs.len() as u64),
                    block_hash: row.hash,
                    address: Some(log.address.as_slice()),
                    topics: Some(std::array::from_fn(|at| topics.get(at).map(|topic| &topic[..]))),
                    data: Some(&log.data.data),
                    ..LogRow::default()
                });
            }
        }
        Rows { header: [row], transactions, logs }
    }

    /// Returns the permutations that the header and the trie of the receipts need.
    fn permutations(&self) -> usize {
        let nibbles = |index: usize| -> Vec<u8> {
            let key = alloy_rlp::encode(index as u64);
            key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect()
        };
        let mut leaves: Vec<_> =
            self.encodings.iter().enumerate().map(|(at, &length)| (nibbles(at), length)).collect();
        leaves.sort();
        blocks_of(self.header.length()) + node(&leaves, 0)
    }
}

/// Returns the permutations of a message of this length.
fn blocks_of(length: usize) -> usize {
    length / 136 + 1
}

/// Returns the permutations of the trie of some leaves, which have their first `depth` nibbles in common.
fn node(leaves: &[(Vec<u8>, usize)], depth: usize) -> usize {
    let [(first, length), rest @ ..] = leaves else { return 0 };
    let Some((last, _)) = rest.last() else {
        let path = 1 + (first.len() - depth) / 2;
        // A list of the path and of the receipt, which has more than 255 bytes.
        return blocks_of(3 + path + usize::from(path > 1) + 3 + length);
    };
    let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let children: Vec<_> = leaves.chunk_by(|(a, _), (b, _)| a[common] == b[common]).collect();
    let branch = blocks_of(3 + 33 * children.len() + (17 - children.len()));
    let below: usize = children.into_iter().map(|child| node(child, common + 1)).sum();
    below + branch + usize::from(common > depth)
}

/// Returns the number of distinct addresses and topics, each of which needs a permutation.
fn distinct(blocks: &[Owned]) -> usize {
    let logs = blocks.iter().flat_map(|block| &block.receipts).flat_map(ReceiptEnvelope::logs);
    let values = logs.flat_map(|log| {
        log.topics().iter().map(|topic| &topic[..]).chain([log.address.as_slice()])
    });
    values.collect::<HashSet<_>>().len()
}

impl Rows<'_> {
    fn of(&self, block: &Owned) -> BlockColumns<'_> {
        BlockColumns {
            number: block.header.number,
            headers: Some(&self.header),
            transactions: Some(&self.transactions),
            logs: Some(&self.logs),
            ..BlockColumns::default()
        }
    }
}

/// Builds alloy's receipts from rows in order, as a program that uses alloy does.
fn receipts_of(columns: &BlockColumns<'_>) -> Vec<ReceiptEnvelope> {
    let mut logs = columns.logs.expect("logs").iter().peekable();
    let transactions = columns.transactions.expect("transactions").iter();
    transactions
        .map(|row| {
            let mut own = Vec::new();
            while let Some(log) = logs.next_if(|log| log.transaction_index == row.transaction_index)
            {
                let topics = log.topics.expect("topics").into_iter().flatten();
                let data = Bytes::copy_from_slice(log.data.expect("data"));
                own.push(Log {
                    address: Address::from_slice(log.address.expect("an address")),
                    data: LogData::new_unchecked(topics.map(B256::from_slice).collect(), data),
                });
            }
            let receipt = Receipt {
                status: Eip658Value::Eip658(row.status.expect("a status")),
                cumulative_gas_used: row.cumulative_gas_used.expect("gas"),
                logs: own,
            };
            let receipt: ReceiptWithBloom<Receipt> = receipt.with_bloom();
            match row.receipt_type.expect("a type") {
                0 => ReceiptEnvelope::Legacy(receipt),
                1 => ReceiptEnvelope::Eip2930(receipt),
                2 => ReceiptEnvelope::Eip1559(receipt),
                3 => ReceiptEnvelope::Eip4844(receipt),
                _ => ReceiptEnvelope::Eip7702(receipt),
            }
        })
        .collect()
}
