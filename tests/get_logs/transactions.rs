//! The transactions of the corpus' chains under the roots in their headers, from encodings, from
//! alloy's type and from JSON.

use std::collections::BTreeMap;

use alloy_consensus::TxEnvelope;
use alloy_consensus::private::alloy_eips::{Decodable2718 as _, Encodable2718 as _};
use alloy_consensus::transaction::Recovered;
use alloy_primitives::{Address, B256, Bytes, TxKind, U256, bytes};
use alloy_rpc_types_eth::Transaction;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::transactions::{BlockTransactions, TransactionsError};
use op_alloy_consensus::{OpTxEnvelope, TxDeposit};
use serde_json::{Value, json};

use testkit::eth::log_chains::Corpus;

/// Returns a transaction as a node sends it in JSON.
fn sent(encoding: &[u8]) -> Transaction {
    let envelope = TxEnvelope::decode_2718_exact(encoding).expect("a transaction");
    let transaction = Transaction {
        inner: Recovered::new_unchecked(envelope, Address::repeat_byte(1)),
        block_hash: None,
        block_number: None,
        transaction_index: None,
        effective_gas_price: None,
        block_timestamp: None,
    };
    let json = serde_json::to_string(&transaction).expect("JSON");
    serde_json::from_str(&json).expect("what was written")
}

#[test]
fn transactions_are_under_the_roots_of_their_headers() {
    let Some(corpus) = Corpus::open() else { return };
    let (mut verified, mut refused) = (0, 0);
    for (name, chain) in &corpus.chains {
        for (block, body) in chain.blocks() {
            let Some(encodings) = &body.encodings else { continue };
            let at = format!("{name}, block {}", block.number);
            let root = block.view().transactions_root();
            let given = BlockTransactions::from_encodings(encodings.clone());
            let proven = given.clone().verify(root).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!((proven.hashes(), proven.encodings()), (&body.hashes[..], &encodings[..]));
            assert_eq!(proven.hash(0), body.hashes.first().copied());
            assert_eq!(proven.hash(encodings.len() as u64), None);
            let list: Vec<Transaction> = encodings.iter().map(|encoding| sent(encoding)).collect();
            assert_eq!(BlockTransactions::try_from(&list[..]).as_ref(), Ok(&given), "{at}");
            let json = serde_json::to_string(&list).expect("JSON");
            assert_eq!(BlockTransactions::from_json(&json).as_ref(), Ok(&given), "{at}");
            // The hashes are those of the chain, whatever was claimed before.
            let mut logs: Vec<_> = block.logs.iter().map(claimed).collect();
            assert_eq!(given.prove_hashes(root, &mut logs), Ok(()));
            assert_eq!(logs, block.logs, "{at}");
            let mut reversed: Vec<_> = block.logs.iter().rev().map(claimed).collect();
            assert_eq!(given.prove_hashes(root, &mut reversed), Ok(()));
            reversed.reverse();
            assert_eq!(reversed, block.logs, "{at}");
            verified += encodings.len();

            // Any other list has another root.
            let mut others = Vec::new();
            if let Some((last, rest)) = encodings.split_last() {
                others.push(rest.to_vec());
                others.push([rest, &[last.clone(), last.clone()]].concat());
                let mut changed = last.to_vec();
                let middle = changed.len() / 2;
                changed[middle] ^= 1;
                others.push([rest, &[Bytes::from(changed)]].concat());
            }
            if encodings.len() > 1 {
                others.push(encodings.iter().rev().cloned().collect());
            }
            for other in others {
                let other = BlockTransactions::from_encodings(other);
                let mut logs: Vec<_> = block.logs.iter().map(claimed).collect();
                let before = logs.clone();
                let error = other.prove_hashes(root, &mut logs).expect_err(&at);
                assert_eq!(logs, before, "{at}");
                let is_of_root =
                    matches!(error, TransactionsError::Root { expected, .. } if expected == root);
                assert!(is_of_root, "{at}: {error}");
                assert_eq!(other.verify(root), Err(error));
                refused += 1;
            }
        }
    }
    assert_eq!(verified, 249 + 603 + 76);
    assert!(refused > 1_000, "{refused}");
}

/// Returns a log as it is read from receipts: a node claims the hash of its transaction.
fn claimed(log: &LocatedLog) -> LocatedLog {
    let claimed_transaction_hash = Some(B256::repeat_byte(0xee));
    LocatedLog { transaction_hash: None, claimed_transaction_hash, ..log.clone() }
}

#[test]
fn a_log_of_no_transaction_keeps_its_claim() {
    let Some(corpus) = Corpus::open() else { return };
    let (block, body) = corpus.chains["ea2026"]
        .blocks()
        .find(|(block, _)| !block.logs.is_empty())
        .expect("a block with logs");
    let encodings = body.encodings.clone().expect("encodings");
    let beyond = encodings.len() as u64;
    let given = BlockTransactions::from_encodings(encodings);
    let root = block.view().transactions_root();
    let log = LocatedLog { transaction_index: beyond, ..claimed(&block.logs[0]) };
    let mut logs = [claimed(&block.logs[0]), log.clone()];
    assert_eq!(given.prove_hashes(root, &mut logs), Ok(()));
    assert_eq!(logs, [block.logs[0].clone(), log]);
}

/// Each field of a transaction that its hash depends on, by type.
#[test]
fn every_field_counts_and_no_other() {
    let Some(corpus) = Corpus::open() else { return };
    let bodies = corpus.chains.values().flat_map(|chain| &chain.bodies);
    let encodings = bodies.filter_map(|body| body.encodings.as_ref()).flatten();
    // One transaction of each type, and one that creates a contract.
    let mut samples: BTreeMap<(u64, bool), &Bytes> = BTreeMap::new();
    for encoding in encodings {
        let json = serde_json::to_value(sent(encoding)).expect("JSON");
        let number = json["type"].as_str().expect("a type");
        let number = u64::from_str_radix(&number[2..], 16).expect("a number");
        samples.entry((number, json["to"].is_null())).or_insert(encoding);
    }
    assert_eq!((0..5).filter(|number| samples.contains_key(&(*number, false))).count(), 5);
    assert!(samples.keys().any(|(_, creates)| *creates));
    let read = |json: &Value| BlockTransactions::from_json(&json!([json]).to_string());
    for ((number, _), encoding) in samples {
        let root = BlockTransactions::from_encodings(vec![encoding.clone()]).root();
        let honest = serde_json::to_value(sent(encoding)).expect("JSON");
        let is_right = |json: &Value| read(json).is_ok_and(|given| given.root() == root);
        assert!(is_right(&honest), "{honest}");
        // What nodes write, and the encoding lacks.
        let mut other = honest.clone();
        for name in ["hash", "from", "blockHash", "blockNumber", "transactionIndex", "more"] {
            other[name] = json!(null);
        }
        if number > 0 {
            // Some nodes write the parity only as `v`, and the price that was paid at the end.
            other["v"] = other["yParity"].clone();
            other.as_object_mut().expect("an object").remove("yParity");
        }
        if number == 0 {
            other.as_object_mut().expect("an object").remove("type");
            other.as_object_mut().expect("an object").remove("chainId");
        }
        if number > 1 {
            other["gasPrice"] = json!("0x123");
        }
        assert!(is_right(&other), "{other}");
        let mut fields = vec!["nonce", "gas", "value", "input", "r", "s", "to"];
        fields.extend(match number {
            0 => &["gasPrice", "v"][..],
            1 => &["gasPrice", "chainId", "accessList"],
            2 => &["maxFeePerGas", "maxPriorityFeePerGas", "chainId", "accessList"],
            3 => &["maxFeePerBlobGas", "blobVersionedHashes", "maxFeePerGas", "chainId"],
            _ => &["authorizationList", "maxFeePerGas", "chainId", "accessList"],
        });
        for name in fields {
            let mut changed = honest.clone();
            changed[name] = match &honest[name] {
                Value::Array(_) if name == "blobVersionedHashes" => json!([B256::repeat_byte(3)]),
                Value::Array(list) if list.is_empty() => {
                    json!([{ "address": Address::ZERO, "storageKeys": [B256::ZERO] }])
                }
                Value::Array(_) => json!([]),
                Value::Null => json!(Address::ZERO),
                Value::String(text) if name == "input" => json!(format!("{text}00")),
                _ if name == "to" => json!(Address::repeat_byte(8)),
                _ => json!("0x7e57"),
            };
            assert!(!is_right(&changed), "type {number}, {name}: {changed}");
            if name != "to" {
                changed[name] = json!(null);
                assert!(read(&changed).is_err(), "type {number}, without {name}");
            }
        }
    }
}

#[test]
fn other_types_and_other_values_are_refused() {
    let Some(corpus) = Corpus::open() else { return };
    let bodies = &corpus.chains["ea2026"].bodies;
    let mut encodings = bodies.iter().flat_map(|body| body.encodings.as_ref().expect("encodings"));
    let honest = serde_json::to_value(sent(encodings.next().expect("one"))).expect("JSON");
    for number in ["0x5", "0x7f", "0x100", "0x1ff000000000000000000"] {
        let mut other = honest.clone();
        other["type"] = json!(number);
        let error = BlockTransactions::from_json(&json!([other]).to_string()).expect_err(number);
        assert!(error.to_string().contains("are unknown"), "{error}");
    }
    let hash = B256::ZERO.to_string();
    for text in ["", "{}", "null", "[null]", "[{}]", &json!([hash]).to_string(), "[] []"] {
        assert!(BlockTransactions::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn deposits_are_encoded_as_op_alloy_encodes_them() {
    for (to, mint) in [(TxKind::Call(Address::repeat_byte(2)), 0), (TxKind::Create, 1 << 70)] {
        let deposit = TxDeposit {
            source_hash: B256::repeat_byte(1),
            from: Address::repeat_byte(9),
            to,
            mint,
            value: U256::from(300),
            gas_limit: 1_000_000,
            is_system_transaction: mint == 0,
            input: bytes!("015d8eb9"),
        };
        let encoding = OpTxEnvelope::from(deposit.clone()).encoded_2718();
        let json = json!([{
            "type": "0x7e",
            "hash": B256::ZERO,
            "sourceHash": deposit.source_hash,
            "from": deposit.from,
            "to": deposit.to.to(),
            "mint": if mint == 0 { json!(null) } else { json!(U256::from(mint)) },
            "value": deposit.value,
            "gas": U256::from(deposit.gas_limit),
            "isSystemTx": deposit.is_system_transaction,
            "input": deposit.input,
            "nonce": "0x5", "gasPrice": "0x0", "v": "0x0", "r": "0x0", "s": "0x0",
        }]);
        let expected = BlockTransactions::from_encodings(vec![encoding.into()]);
        assert_eq!(BlockTransactions::from_json(&json.to_string()), Ok(expected));
    }
}

/// A node that names another hash has changed a field, or knows a field that alloy lacks.
#[test]
fn a_claimed_hash_must_be_that_of_the_fields() {
    let Some(corpus) = Corpus::open() else { return };
    let bodies = &corpus.chains["ea2026"].bodies;
    let encodings = bodies.iter().flat_map(|body| body.encodings.as_ref().expect("encodings"));
    for encoding in encodings {
        let mut json = serde_json::to_value(sent(encoding)).expect("JSON");
        json["hash"] = serde_json::json!(B256::repeat_byte(7));
        let changed: Transaction = serde_json::from_value(json).expect("a transaction");
        let error = BlockTransactions::try_from(&[changed][..]).expect_err("another hash");
        let TransactionsError::Hash { index, computed, claimed } = error else { panic!("{error}") };
        assert_eq!((index, claimed), (0, B256::repeat_byte(7)));
        assert_eq!(computed, alloy_primitives::keccak256(encoding));
    }
}
