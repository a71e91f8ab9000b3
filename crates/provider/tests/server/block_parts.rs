//! Headers, transactions, ommers and encodings of blocks, over a node that makes them up.

use std::collections::BTreeSet;

use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::{calculate_transaction_root, ordered_trie_root_with_encoder};
use alloy_consensus::{Block, EMPTY_OMMER_ROOT_HASH, Header, TxEnvelope};
use alloy_rlp::Decodable as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, keccak256};
use chainsieve::eth::header::HeaderBuf;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
use testkit::eth::linked_headers;
use testkit::eth::log_chains::Corpus;

use crate::upstream::{self, Upstream, ask, post};
use crate::{endpoint, forgetful, started};

/// Methods that the node does not serve honestly: what they give must come from elsewhere.
const MADE_UP: [&str; 17] = [
    "debug_getRawBlock",
    "debug_getRawTransaction",
    "eth_getBlockTransactionCountByHash",
    "eth_getBlockTransactionCountByNumber",
    "eth_getHeaderByHash",
    "eth_getHeaderByNumber",
    "eth_getRawTransactionByBlockHashAndIndex",
    "eth_getRawTransactionByBlockNumberAndIndex",
    "eth_getRawTransactionByHash",
    "eth_getTransactionByBlockHashAndIndex",
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getUncleByBlockHashAndIndex",
    "eth_getUncleByBlockNumberAndIndex",
    "eth_getUncleCountByBlockHash",
    "eth_getUncleCountByBlockNumber",
    "eth_getBlockReceipts",
    "eth_blockNumber",
];

fn result(address: std::net::SocketAddr, method: &str, params: &Value) -> Value {
    let answer = ask(address, method, params);
    assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    answer["result"].clone()
}

fn bytes(value: &Value) -> Bytes {
    serde_json::from_value(value.clone()).expect("hex")
}

/// Checks a transaction in JSON against its hash, and returns its type.
fn check_transaction(json: &Value, block: &upstream::Block, index: usize) -> u8 {
    assert_eq!(json["hash"], json!(block.hashes[index]));
    assert_eq!(json["blockHash"], json!(block.hash));
    assert_eq!(json["blockNumber"], format!("{:#x}", block.number));
    assert_eq!(json["transactionIndex"], format!("{index:#x}"));
    let transaction: Transaction = serde_json::from_value(json.clone()).expect("a transaction");
    let envelope = transaction.inner.into_inner();
    assert_eq!(keccak256(envelope.encoded_2718()), block.hashes[index]);
    let sender: Address = serde_json::from_value(json["from"].clone()).expect("an address");
    let recovered = alloy_consensus::transaction::SignerRecoverable::recover_signer(&envelope);
    assert_eq!(sender, recovered.expect("signed"));
    envelope.encoded_2718()[0]
}

#[test]
fn parts_of_blocks_are_those_of_the_chain() {
    let Some(corpus) = Corpus::open() else { return };
    let mut kinds = BTreeSet::new();
    let (mut whole_blocks, mut with_ommers) = (0, 0);
    for name in ["ethtest", "ea2026"] {
        let chain = &corpus.chains[name];
        let upstream = Upstream::start(chain);
        upstream.lie(|method, _, _| {
            MADE_UP.contains(&method).then(|| Sent::Result(json!("0x3b9aca00")))
        });
        let server = started(endpoint(&[&upstream], chain.run.tip()));
        let ask = |method: &str, params: Value| result(server.address(), method, &params);
        let step = upstream.blocks().len() / 50 + 1;
        for block in upstream.blocks().iter().filter(|block| block.number > 0).step_by(step) {
            let (hash, number) = (json!(block.hash), json!(format!("{:#x}", block.number)));
            let header = Header::decode(&mut &block.header[..]).expect("a header");
            let has_ommers = header.ommers_hash != EMPTY_OMMER_ROOT_HASH;
            for (method, id) in [("eth_getHeaderByHash", &hash), ("eth_getHeaderByNumber", &number)]
            {
                let header = ask(method, json!([id]));
                let read = HeaderBuf::from_json(&header.to_string()).expect("a header");
                assert_eq!(read.hash(), block.hash, "{header}");
                assert_eq!(header["hash"], hash);
            }
            let count = format!("{:#x}", block.hashes.len());
            for (kind, id) in [("Hash", &hash), ("Number", &number)] {
                let counted = ask(&format!("eth_getBlockTransactionCountBy{kind}"), json!([id]));
                assert_eq!(counted, count);
                let count = format!("eth_getUncleCountByBlock{kind}");
                let ommer = format!("eth_getUncleByBlock{kind}AndIndex");
                if has_ommers {
                    // The corpus does not have them, so nothing is made up.
                    let answer = upstream::ask(server.address(), &count, &json!([id]));
                    assert_eq!(answer["error"]["code"], -32002, "{answer}");
                    with_ommers += 1;
                } else {
                    assert_eq!(ask(&count, json!([id])), "0x0");
                    assert_eq!(ask(&ommer, json!([id, "0x0"])), Value::Null);
                }
                let of = |method: &str, index: usize| {
                    let index = format!("{index:#x}");
                    ask(&format!("{method}ByBlock{kind}AndIndex"), json!([id, index]))
                };
                for index in 0..block.hashes.len() {
                    let raw = of("eth_getRawTransaction", index);
                    assert_eq!(keccak256(bytes(&raw)), block.hashes[index]);
                    kinds.insert(check_transaction(&of("eth_getTransaction", index), block, index));
                }
                assert_eq!(of("eth_getRawTransaction", block.hashes.len()), Value::Null);
                assert_eq!(of("eth_getTransaction", block.hashes.len()), Value::Null);
            }
            for (index, own) in block.hashes.iter().enumerate() {
                check_transaction(&ask("eth_getTransactionByHash", json!([own])), block, index);
                for method in ["eth_getRawTransactionByHash", "debug_getRawTransaction"] {
                    assert_eq!(keccak256(bytes(&ask(method, json!([own])))), *own);
                }
            }
            for id in [&hash, &number, &json!({ "blockHash": hash })] {
                let raw = bytes(&ask("debug_getRawHeader", json!([id])));
                assert_eq!(keccak256(&raw), block.hash);
                let receipts = ask("debug_getRawReceipts", json!([id]));
                let receipts: Vec<Bytes> = serde_json::from_value(receipts).expect("a list");
                let root = ordered_trie_root_with_encoder(&receipts, |receipt, out| {
                    out.extend_from_slice(receipt);
                });
                assert_eq!(root, header.receipts_root);
                // The corpus has no withdrawals.
                if has_ommers || header.withdrawals_root.is_some() && !block.has_no_withdrawals() {
                    continue;
                }
                let raw = bytes(&ask("debug_getRawBlock", json!([id])));
                let decoded = Block::<TxEnvelope>::decode(&mut &raw[..]).expect("a block");
                assert_eq!(decoded.header.hash_slow(), block.hash);
                let root = calculate_transaction_root(&decoded.body.transactions);
                assert_eq!(root, decoded.header.transactions_root);
                let whole = ask("eth_getBlockByHash", json!([hash, false]));
                assert_eq!(whole["size"], format!("{:#x}", raw.len()));
                whole_blocks += 1;
            }
        }
        let nowhere = json!([B256::repeat_byte(7)]);
        for method in ["eth_getTransactionByHash", "debug_getRawTransaction", "eth_getHeaderByHash"]
        {
            assert_eq!(ask(method, nowhere.clone()), Value::Null);
        }
        assert_eq!(ask("eth_getHeaderByNumber", json!(["latest"]))["hash"], json!(chain.run.tip()));
        assert_eq!(ask("eth_getHeaderByNumber", json!(["0xffffff"])), Value::Null);
    }
    // Legacy transactions begin with a list, typed ones with their type.
    assert!(kinds.iter().any(|kind| *kind >= 0xc0) && kinds.contains(&2), "{kinds:?}");
    assert!(whole_blocks > 20 && with_ommers > 0, "{whole_blocks}, {with_ommers}");
}

/// A transaction that waits for a block is bound by its hash. Where a node says it is, and what it is, is
/// not believed.
#[test]
fn a_node_cannot_make_up_a_transaction() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    let server = started(endpoint(&[&upstream], chain.run.tip()));
    let with = upstream.blocks().iter().filter(|block| block.hashes.len() > 1);
    let [block, other] = *with.take(2).collect::<Vec<_>>() else { panic!("two blocks") };
    let envelope = TxEnvelope::decode_2718_exact(&block.transactions()[0]).expect("one");
    let params = json!([block.hashes[0]]);
    let honest = upstream.answer("eth_getTransactionByHash", &params);
    let Sent::Result(honest) = honest else { panic!("no result") };
    let ask_with = |json: Value| {
        upstream.lie(move |method, _, _| {
            (method == "eth_getTransactionByHash").then(|| Sent::Result(json.clone()))
        });
        let answer = ask(server.address(), "eth_getTransactionByHash", &params);
        let raw = ask(server.address(), "eth_getRawTransactionByHash", &params);
        (answer, raw)
    };
    let mut waiting = honest.clone();
    waiting["blockHash"] = Value::Null;
    let (answer, raw) = ask_with(waiting.clone());
    assert_eq!(answer["result"]["hash"], params[0], "{answer}");
    assert_eq!(answer["result"]["blockHash"], Value::Null);
    assert_eq!(bytes(&raw["result"]), Bytes::from(envelope.encoded_2718()));
    // The sender is that of the signature, and not the one that the node states.
    assert_ne!(answer["result"]["from"], waiting["from"]);

    let altered = |name: &str, value: &str| {
        let mut json = waiting.clone();
        json[name] = json!(value);
        json
    };
    for json in
        [altered("value", "0x1234567"), altered("nonce", "0xffff"), altered("input", "0x99")]
    {
        let (answer, raw) = ask_with(json);
        for answer in [answer, raw] {
            assert_eq!(answer["error"]["data"]["reason"], "upstream", "{answer}");
        }
    }
    let mut elsewhere = honest;
    for hash in [other.hash, B256::repeat_byte(9)] {
        elsewhere["blockHash"] = json!(hash);
        let (answer, raw) = ask_with(elsewhere.clone());
        assert_eq!((&answer["result"], &raw["result"]), (&Value::Null, &Value::Null));
    }
}

/// Ommers are bound by their hash in the header, in number and order, whatever a node gives.
#[test]
fn ommers_are_those_of_the_header() {
    let ommers: Vec<Header> =
        (1..=2).map(|branch| linked_headers::header(B256::ZERO, 3, branch, Bloom::ZERO)).collect();
    let chain = upstream::Block::chain(1, 3);
    let parent = chain.last().cloned();
    let with = |ommers: &[Header]| {
        let block = upstream::Block::made_up(parent.as_ref(), 1, Vec::new(), None);
        [&chain[..], &[block.with_ommers(ommers.to_vec())]].concat()
    };
    for count in 0..=2 {
        let ommers = &ommers[..count];
        let upstream = Upstream::of(with(ommers));
        let block = upstream.blocks()[3].clone();
        let server = started(endpoint(&[&upstream], block.hash).limits(forgetful()));
        let ask = |method: &str, params: Value| result(server.address(), method, &params);
        let (hash, number) = (json!(block.hash), json!("0x3"));
        assert_eq!(ask("eth_getUncleCountByBlockHash", json!([hash])), format!("{count:#x}"));
        assert_eq!(ask("eth_getUncleCountByBlockNumber", json!([number])), format!("{count:#x}"));
        for index in 0..3 {
            let params = json!([hash, format!("{index:#x}")]);
            let found = ask("eth_getUncleByBlockHashAndIndex", params);
            let same = json!([number, format!("{index:#x}")]);
            assert_eq!(ask("eth_getUncleByBlockNumberAndIndex", same), found);
            let Some(ommer) = ommers.get(index) else {
                assert_eq!(found, Value::Null);
                continue;
            };
            assert_eq!(found["hash"], json!(ommer.hash_slow()));
            let read = HeaderBuf::from_json(&found.to_string()).expect("a header");
            assert_eq!(read.hash(), ommer.hash_slow());
        }
        let raw = bytes(&ask("debug_getRawBlock", json!([hash])));
        let decoded = Block::<TxEnvelope>::decode(&mut &raw[..]).expect("a block");
        assert_eq!((decoded.header.hash_slow(), &decoded.body.ommers[..]), (block.hash, ommers));
        // Other ones, fewer, or in another order, are not taken.
        for is_swapped in [true, false] {
            if count == 0 {
                continue;
            }
            let own = upstream.clone();
            upstream.lie(move |method, params, _| {
                let swapped = json!([params[0], if params[1] == "0x0" { "0x1" } else { "0x0" }]);
                (method == "eth_getUncleByBlockHashAndIndex").then(|| {
                    if is_swapped {
                        own.answer(method, &swapped)
                    } else {
                        Sent::Result(Value::Null)
                    }
                })
            });
            let answer =
                upstream::ask(server.address(), "eth_getUncleCountByBlockHash", &json!([hash]));
            assert_eq!(answer["error"]["code"], -32002, "{answer}");
            upstream.be_honest();
        }
    }
}

/// Methods that give logs, receipts or blocks in other ways are refused, also if others are passed on.
#[test]
fn other_ways_to_blocks_are_not_passed_on() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    upstream.lie(|method, _, _| {
        method.contains('_').then(|| Sent::Result(json!("made up"))).filter(|_| {
            !["eth_chainId", "eth_getBlockByHash", "eth_getBlockByNumber", "debug_getRawHeader"]
                .contains(&method)
        })
    });
    let server = started(endpoint(&[&upstream], chain.run.tip()).pass_unverified());
    let call = |method: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": [] });
        post(server.address(), &call.to_string())
    };
    upstream.take_calls();
    for method in [
        "alchemy_getTransactionReceipts",
        "erigon_getHeaderByNumber",
        "erigon_getLatestLogs",
        "erigon_getLogs",
        "eth_newPendingTransactionFilter",
        "ots_getBlockDetails",
        "parity_getBlockReceipts",
        "qn_getReceipts",
    ] {
        let (headers, answer) = call(method);
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        assert_eq!(answer["error"]["data"]["reason"], "unverified_method", "{answer}");
        assert!(headers.get("chainsieve-unverified").is_none());
        assert!(!upstream.take_calls().iter().any(|called| called == method), "{method}");
    }
    let (headers, answer) = call("eth_feeHistory");
    assert_eq!(answer["result"], "made up");
    assert_eq!(headers["chainsieve-unverified"], "1");
}
