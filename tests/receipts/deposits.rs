//! Deposits of the OP stack: a real block of Regolith, and `op-alloy` as the oracle.

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope};
use alloy_primitives::{B256, b256};
use alloy_trie::root::ordered_trie_root_encoded;
use chainsieve::eth::receipts::{BlockReceipts, ReceiptsError};
use op_alloy_consensus::{OpDepositReceipt, OpReceiptEnvelope};

use crate::blocks::list_of;
use crate::constructed::{log, no_bloom, slim};
use crate::real::json_of;

/// A block of OP Goerli between Regolith and Canyon, with receipts and root from reth's tests
/// (`check_optimism_receipt_root`). The receipt has a nonce, and the root does not cover it.
#[test]
fn a_real_block_of_regolith() {
    let root = b256!("0xe255fed45eae7ede0556fe4fabc77b0d294d18781a5a581cab09127bc4cd9ffb");
    let json = include_str!("op_goerli_regolith.json");
    let receipts = BlockReceipts::from_json(json).expect("receipts");
    assert_eq!(receipts.iter().next().and_then(|receipt| receipt.deposit_nonce), Some(4_012_991));
    let verified = receipts.verify(root, no_bloom()).expect("the root");
    assert_eq!(verified.logs().count(), 16);
    let proof = verified.proof(0).expect("a proof");
    assert_eq!(proof.verify(root).expect("proven").deposit_nonce, None, "the root has none");
}

fn deposit(nonce: Option<u64>, version: Option<u64>) -> OpDepositReceipt {
    OpDepositReceipt {
        inner: Receipt {
            status: Eip658Value::success(),
            cumulative_gas_used: 46_913,
            logs: vec![log(3)],
        },
        deposit_nonce: nonce,
        deposit_receipt_version: version,
    }
}

fn encoding(receipt: OpDepositReceipt) -> Vec<u8> {
    OpReceiptEnvelope::Deposit(receipt.with_bloom()).encoded_2718()
}

/// Bedrock has no nonce. Regolith has a nonce that the root does not cover. From Canyon on, the
/// root covers the nonce and the version. The test checks all encodings.
#[test]
fn what_the_root_covers_by_fork() {
    let other = OpReceiptEnvelope::Eip1559(deposit(None, None).inner.with_bloom()).encoded_2718();
    let cases = [
        (deposit(None, None), deposit(None, None)),
        (deposit(Some(7), None), deposit(None, None)),
        (deposit(Some(7), Some(1)), deposit(Some(7), Some(1))),
        (deposit(Some(0), Some(1)), deposit(Some(0), Some(1))),
    ];
    for (sent, hashed) in cases {
        let root: B256 = ordered_trie_root_encoded(&[encoding(hashed), other.clone()]);
        let encodings = [encoding(sent.clone()), other.clone()];
        let plain = ReceiptEnvelope::Eip1559(sent.inner.clone().with_bloom());
        let mut json = json_of(&[plain.clone(), plain]);
        json[0]["type"] = "0x7e".into();
        for (field, value) in [
            ("depositNonce", sent.deposit_nonce),
            ("depositReceiptVersion", sent.deposit_receipt_version),
        ] {
            json[0][field] = value.map(|value| format!("{value:#x}")).into();
        }
        let json = json.to_string();
        let behind: Vec<_> =
            sent.deposit_nonce.into_iter().chain(sent.deposit_receipt_version).collect();
        let slim = slim(&[(0x7e, &sent.inner, &behind), (2, &sent.inner, &[])]);
        let forms = [
            BlockReceipts::from_encodings(&encodings),
            BlockReceipts::from_rlp_list(&list_of(&encodings)),
            BlockReceipts::from_json(&json),
            BlockReceipts::from_slim_list(&slim),
        ];
        for form in forms {
            let form = form.expect("receipts");
            let first = form.iter().next().expect("a deposit");
            assert_eq!(first.deposit_nonce, sent.deposit_nonce);
            assert_eq!(first.deposit_receipt_version, sent.deposit_receipt_version);
            assert!(
                form.verify(root, no_bloom()).is_ok(),
                "{sent:?}: {:?}",
                form.verify(root, no_bloom())
            );
        }
    }
}

#[test]
fn no_more_than_nonce_and_version() {
    let slim = slim(&[(0x7e, &deposit(None, None).inner, &[1, 1, 1])]);
    let error = BlockReceipts::from_slim_list(&slim);
    assert_eq!(error, Err(ReceiptsError::Behind { receipt: 0, bytes: 1 }));
    let json = r#"[{"type":"0x7e","status":"0x1","cumulativeGasUsed":"0x1","logs":[],
        "transactionIndex":"0x0","depositReceiptVersion":"0x1"}]"#;
    let error = BlockReceipts::from_json(json).expect_err("no nonce").to_string();
    assert!(error.starts_with("[0]: depositNonce is missing"), "{error}");
}
