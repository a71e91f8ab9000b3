//! Every real block, in every encoding, gives its root, its bloom and alloy's logs.

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_primitives::{B256, Log, b256};
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement};

use crate::blocks::{self, RealBlock};
use crate::constructed::slim;

/// Returns alloy's reading of the block, and checks the root with alloy.
fn by_alloy(block: &RealBlock) -> Vec<ReceiptEnvelope> {
    let decode =
        |rlp: &Vec<u8>| ReceiptEnvelope::decode_2718(&mut &rlp[..]).expect("alloy decodes it");
    let receipts: Vec<_> = block.encodings.iter().map(decode).collect();
    assert_eq!(calculate_receipt_root(&receipts), block.header.receipts_root, "{}", block.name);
    receipts
}

fn check(block: &RealBlock, form: &str, receipts: &BlockReceipts) {
    let name = format!("{} as {form}", block.name);
    let verified = receipts
        .verify(block.header.receipts_root, (&block.header.logs_bloom).into())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(verified.header_bloom(), BloomAgreement::Exact, "{name}");
    assert_eq!(verified.unsound_receipt(), None, "{name}");
    let expected = by_alloy(block);
    let mut logs = verified.logs();
    let mut log_index = 0;
    for (index, receipt) in expected.iter().enumerate() {
        for log in receipt.logs() {
            let found = logs.next().unwrap_or_else(|| panic!("{name}: log {log_index} is missing"));
            let log: &Log = log;
            assert_eq!(found.log, log, "{name}");
            assert_eq!((found.transaction_index, found.log_index), (index as u64, log_index));
            log_index += 1;
        }
    }
    assert_eq!(logs.next(), None, "{name}");
}

/// Returns an `eth_getBlockReceipts` answer with the fields that alloy writes for receipts.
pub(crate) fn json_of(receipts: &[ReceiptEnvelope]) -> serde_json::Value {
    let receipts = receipts.iter().enumerate().map(|(index, receipt)| {
        let mut json = serde_json::to_value(receipt).expect("JSON");
        json["transactionIndex"] = format!("{index:#x}").into();
        json
    });
    receipts.collect()
}

#[test]
fn the_slim_form() {
    for block in blocks::all() {
        let receipts = by_alloy(&block);
        let parts: Vec<_> = receipts
            .iter()
            .map(|receipt| {
                (u8::from(receipt.tx_type()), receipt.as_receipt().expect("one"), &[][..])
            })
            .collect();
        let receipts = BlockReceipts::from_slim_list(&slim(&parts)).expect("receipts");
        check(&block, "the slim form", &receipts);
    }
}

#[test]
fn json() {
    for block in blocks::all() {
        let mut json = json_of(&by_alloy(&block));
        let array = json.as_array_mut().expect("an array");
        array.reverse();
        let each: Vec<_> = array.iter().map(serde_json::Value::to_string).collect();
        let receipts = BlockReceipts::from_json_each(&each).expect("receipts");
        check(&block, "receipts one by one", &receipts);
        for receipt in array {
            receipt.as_object_mut().expect("an object").remove("logsBloom");
        }
        let receipts = BlockReceipts::from_json(&json.to_string()).expect("receipts");
        check(&block, "JSON without filters", &receipts);
    }
}

#[test]
fn json_of_nodes() {
    for block in blocks::corpus() {
        let Some(json) = &block.json else { continue };
        let receipts = BlockReceipts::from_json(json).expect("receipts");
        check(&block, "a node's JSON", &receipts);
        let mut log_index = 0;
        assert_eq!(receipts.claims().len(), receipts.len());
        for (claims, receipt) in receipts.claims().iter().zip(receipts.iter()) {
            assert_eq!(claims.block_number, Some(block.header.number));
            assert_eq!(claims.block_hash, Some(block.header.hash_slow()));
            assert!(claims.transaction_hash.is_some());
            assert_eq!(claims.log_indices.len(), receipt.logs.len());
            for claimed in &claims.log_indices {
                assert_eq!(*claimed, Some(log_index));
                log_index += 1;
            }
        }
    }
}

/// Logs of two blocks, as a node returned them, are found in the receipts, with the block data that
/// the header gives.
#[test]
fn logs_of_a_verified_block_know_their_place() {
    let json = include_str!("../../fixtures/ethereum/logs/weth_withdrawals_17686111-17686112.json");
    let expected = LocatedLog::list_from_json(json).expect("logs");
    let query = LogQuery::new()
        .address(expected[0].log.address)
        .event("Withdrawal(address,uint256)")
        .expect("a signature");
    let mut found = Vec::new();
    for block in blocks::fixtures() {
        let header = HeaderBuf::from_rlp(alloy_rlp::encode(&block.header)).expect("a header");
        let receipts = BlockReceipts::from_encodings(&block.encodings).expect("receipts");
        let verified = receipts.verify_block(&header).expect("its receipts");
        assert_eq!(verified.block(), BlockRef::from(&header));
        assert_eq!(verified.logs().count(), verified.receipts().logs().count());
        if (17_686_111..=17_686_112).contains(&block.header.number) {
            found.extend(verified.logs_matching(|log| query.matches(log, Semantics::Geth)));
        }
        let mut other = block.header.clone();
        other.receipts_root = B256::ZERO;
        let other = HeaderBuf::from_rlp(alloy_rlp::encode(&other)).expect("a header");
        assert!(receipts.verify_block(&other).is_err(), "{}", block.name);
    }
    found.sort_by_key(|log| (log.block_number, log.log_index));
    assert_eq!(found, expected);
}

/// Special blocks of the corpus: one whose bloom is full, and some without receipts.
#[test]
fn odd_blocks() {
    let blocks = blocks::corpus();
    if blocks.is_empty() {
        return;
    }
    let block = |number| {
        let block = blocks.iter().find(|block| block.header.number == number);
        block.expect("a block of the corpus")
    };
    let full = block(15_537_394);
    assert!(full.header.logs_bloom.iter().all(|&byte| byte == 0xff));
    assert_eq!(full.rlp.len(), 1_608_937);
    for number in [1, 100, 19_840_104] {
        let empty = block(number);
        assert_eq!(empty.rlp, [0xc0]);
        assert_eq!(empty.header.receipts_root, EMPTY_ROOT);
        for receipts in [
            BlockReceipts::from_rlp_list(&empty.rlp),
            BlockReceipts::from_slim_list(&empty.rlp),
            BlockReceipts::from_json("[]"),
            BlockReceipts::from_encodings(&[[0_u8; 0]; 0]),
        ] {
            let receipts = receipts.expect("no receipts");
            assert!(receipts.is_empty());
            check(empty, "nothing", &receipts);
            let verified = receipts.verify(EMPTY_ROOT, BloomView::from(&full.header.logs_bloom));
            let verified = verified.expect("the root");
            assert_eq!(verified.header_bloom(), BloomAgreement::Superset { extra_bits: 2048 });
            assert_eq!(verified.proof(0), None);
        }
    }
}

/// Root of the trie without entries: Keccak-256 of the RLP of the empty string.
const EMPTY_ROOT: B256 =
    b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

#[test]
fn consensus_encodings() {
    for block in blocks::all() {
        let receipts = BlockReceipts::from_encodings(&block.encodings).expect("receipts");
        check(&block, "encodings", &receipts);
        let receipts = BlockReceipts::from_rlp_list(&block.rlp).expect("receipts");
        check(&block, "a list", &receipts);
    }
}

/// Receipts as alloy's providers return them: read by alloy and converted, and read by the library.
mod of_alloy {
    use alloy_primitives::Address;
    use alloy_rpc_types_eth::{Log as RpcLog, TransactionReceipt};
    use chainsieve::eth::receipts::ReceiptsError;

    use super::*;

    fn receipts(block: &RealBlock) -> Vec<TransactionReceipt> {
        let mut log_indices = 0..;
        let receipts = (0..).zip(by_alloy(block)).map(|(index, receipt)| TransactionReceipt {
            inner: receipt.map_logs(|inner| RpcLog {
                inner,
                log_index: log_indices.next(),
                ..RpcLog::default()
            }),
            transaction_hash: B256::with_last_byte(1),
            transaction_index: Some(index),
            block_hash: Some(block.header.hash_slow()),
            block_number: Some(block.header.number),
            gas_used: 21_000,
            effective_gas_price: 1,
            blob_gas_used: None,
            blob_gas_price: None,
            from: Address::ZERO,
            to: None,
            contract_address: None,
        });
        receipts.collect()
    }

    #[test]
    fn real_receipts_are_read_alike() {
        for block in blocks::all() {
            let mut receipts = receipts(&block);
            receipts.reverse();
            let json = serde_json::to_string(&receipts).expect("JSON");
            let ours = BlockReceipts::from_json(&json).expect("receipts");
            let read: Vec<TransactionReceipt> = serde_json::from_str(&json).expect("receipts");
            assert_eq!(BlockReceipts::try_from(&read[..]).as_ref(), Ok(&ours), "{}", block.name);
            check(&block, "receipts of alloy", &ours);
        }
    }

    #[test]
    fn what_nodes_sent() {
        for block in blocks::corpus() {
            let Some(json) = &block.json else { continue };
            let read: Vec<TransactionReceipt> = serde_json::from_str(json).expect("receipts");
            let converted = BlockReceipts::try_from(&read[..]).expect("receipts");
            assert_eq!(converted, BlockReceipts::from_json(json).expect("receipts"));
            check(&block, "a node's JSON by alloy", &converted);
        }
    }

    #[test]
    fn an_altered_field_is_refused() {
        type Alter = fn(&mut alloy_consensus::ReceiptWithBloom<alloy_consensus::Receipt<RpcLog>>);
        let alterations: [Alter; 6] = [
            |receipt| receipt.receipt.status = false.into(),
            |receipt| receipt.receipt.cumulative_gas_used += 1,
            |receipt| receipt.receipt.logs[0].inner.address = Address::ZERO,
            |receipt| receipt.receipt.logs[0].inner.data.topics_mut()[0] = B256::ZERO,
            |receipt| receipt.receipt.logs.truncate(0),
            |receipt| receipt.logs_bloom.0[0] ^= 1,
        ];
        let blocks = blocks::fixtures();
        let block = blocks.iter().find(|block| block.header.number == 17_686_111).expect("one");
        let real = receipts(block);
        let verify = |receipts: &[TransactionReceipt]| {
            let receipts = BlockReceipts::try_from(receipts).expect("receipts");
            let bloom = (&block.header.logs_bloom).into();
            receipts.after_byzantium().verify(block.header.receipts_root, bloom).map(drop)
        };
        assert_eq!(verify(&real), Ok(()));
        let at = real
            .iter()
            .position(|receipt| receipt.inner.status() && !receipt.inner.logs().is_empty());
        let at = at.expect("a receipt with a log");
        for alter in alterations {
            let mut altered = real.clone();
            alter(altered[at].inner.as_receipt_with_bloom_mut().expect("a receipt"));
            assert!(verify(&altered).is_err());
        }
    }

    #[test]
    fn indices_must_be_those_of_a_block() {
        let blocks = blocks::fixtures();
        let real = receipts(&blocks[0]);
        let refused = |alter: fn(&mut Vec<TransactionReceipt>)| {
            let mut receipts = real.clone();
            alter(&mut receipts);
            BlockReceipts::try_from(&receipts[..]).expect_err("other indices")
        };
        let missing = ReceiptsError::Missing { transaction_index: 0, receipts: real.len() - 1 };
        assert_eq!(refused(|receipts| drop(receipts.remove(0))), missing);
        let twice = ReceiptsError::Twice { transaction_index: 0 };
        assert_eq!(refused(|receipts| receipts[1].transaction_index = Some(0)), twice);
        let none = ReceiptsError::NoIndex { receipt: 1 };
        assert_eq!(refused(|receipts| receipts[1].transaction_index = None), none);
    }
}
