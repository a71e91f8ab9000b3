//! The transactions of the corpus' chains under the roots in their headers, from encodings and from
//! alloy's type.

use alloy_consensus::TxEnvelope;
use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::transaction::Recovered;
use alloy_primitives::{Address, B256, Bytes};
use alloy_rpc_types_eth::Transaction;
use chainsieve::eth::transactions::{BlockTransactions, TransactionHashError};

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
                let error = BlockTransactions::from_encodings(other).verify(root);
                assert_eq!(error.expect_err(&at).expected, root);
                refused += 1;
            }
        }
    }
    assert_eq!(verified, 249 + 603 + 76);
    assert!(refused > 1_000, "{refused}");
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
        let TransactionHashError { index, computed, claimed } = error;
        assert_eq!((index, claimed), (0, B256::repeat_byte(7)));
        assert_eq!(computed, alloy_primitives::keccak256(encoding));
    }
}
