//! Made-up chains, for cases that real chains don't contain.

use alloy_consensus::proofs::{calculate_receipt_root, ordered_trie_root_with_encoder};
use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, keccak256};

use testkit::eth::audit_runs::{Block, Run};

/// Contents of a block to build: the logs of each transaction, and changes to the header.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub(crate) receipts: Vec<Vec<Log>>,
    pub(crate) bloom: Option<Bloom>,
    pub(crate) post_states: bool,
}

/// Returns a log of contract number `contract`. Each topic repeats one byte.
pub(crate) fn log(contract: u8, topics: &[u8], data: u64) -> Log {
    let topics = topics.iter().map(|&topic| B256::repeat_byte(topic)).collect();
    let data = Bytes::copy_from_slice(&data.to_be_bytes());
    Log::new(Address::repeat_byte(contract), topics, data).expect("at most four topics")
}

pub(crate) fn plan(receipts: &[&[Log]]) -> Plan {
    Plan { receipts: receipts.iter().map(|logs| logs.to_vec()).collect(), ..Plan::default() }
}

pub(crate) fn envelopes(plan: &Plan) -> Vec<ReceiptEnvelope> {
    let receipts = plan.receipts.iter().enumerate().map(|(index, logs)| {
        let status = if plan.post_states {
            Eip658Value::PostState(B256::repeat_byte(0x50))
        } else {
            Eip658Value::Eip658(true)
        };
        let cumulative_gas_used = 30_000 * (index as u64 + 1);
        let receipt = Receipt { status, cumulative_gas_used, logs: logs.clone() };
        let receipt = ReceiptWithBloom::from(receipt);
        if index % 2 == 0 || plan.post_states {
            ReceiptEnvelope::Legacy(receipt)
        } else {
            ReceiptEnvelope::Eip1559(receipt)
        }
    });
    receipts.collect()
}

/// Returns `count` byte strings that stand in for the transactions of block `number`.
pub(crate) fn transactions(number: u64, count: usize) -> Vec<Bytes> {
    (0..count)
        .map(|index| Bytes::from(format!("\u{2}transaction {index} of {number}").into_bytes()))
        .collect()
}

pub(crate) fn transaction_hash(number: u64, index: usize) -> B256 {
    keccak256(&transactions(number, index + 1)[index])
}

/// Builds a linked chain of these blocks, starting at number `first`.
pub(crate) fn run(first: u64, plans: &[Plan]) -> Run {
    let mut parent_hash = B256::repeat_byte(0xaa);
    let mut blocks = Vec::new();
    for (number, plan) in (first..).zip(plans) {
        let receipts = envelopes(plan);
        let blooms = receipts.iter().map(ReceiptEnvelope::logs_bloom);
        let bloom = blooms.fold(Bloom::ZERO, |all, one| all | *one);
        let transactions = transactions(number, receipts.len());
        let header = Header {
            parent_hash,
            number,
            timestamp: 1_000_000 + 12 * number,
            receipts_root: calculate_receipt_root(&receipts),
            transactions_root: ordered_trie_root_with_encoder(&transactions, |bytes, out| {
                out.extend_from_slice(bytes);
            }),
            logs_bloom: plan.bloom.unwrap_or(bloom),
            ..Header::default()
        };
        parent_hash = header.hash_slow();
        blocks.push(Block::new(alloy_rlp::encode(&header), &receipts));
    }
    Run::new(blocks)
}
