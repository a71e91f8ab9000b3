//! Audits of Bitcoin nodes: honest ones, and those that lie.

use std::collections::HashMap;
use std::time::Duration;

use chainsieve::bitcoin::consensus::encode::serialize_hex;
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::{Block, Network, OutPoint, ScriptBuf};
use chainsieve::btc::server::ServedChain;
use chainsieve_client::testnode::next_block;
use chainsieve_conformance::audit::bitcoin::{audit_peer, audit_rpc};
use chainsieve_conformance::audit::{AuditError, AuditReport};
use chainsieve_conformance::serve::bitcoin::{LyingNode, blocks};
use chainsieve_conformance::serve::json_rpc::{Fate, Fault, Proxy, Source};
use chainsieve_conformance::serve::{self, Protocol, Verdict};
use chainsieve_provider::Provider;
use serde_json::{Value, json};

fn audit(lie: Option<&str>, from: u64, to: u64) -> Result<AuditReport, AuditError> {
    let mut builder = LyingNode::builder();
    if let Some(lie) = lie {
        builder = builder.lie(lie).expect("a lie of a peer");
    }
    let node = builder.start().expect("started");
    let verdict = lie.and_then(serve::find).map(|lie| lie.expected.verdict);
    let timeout = if verdict == Some(Verdict::MustTimeOut) { 2 } else { 60 };
    let timeout = Duration::from_secs(timeout);
    audit_peer(node.address(), Network::Regtest, from..=to, timeout, |_| {})
}

#[test]
fn an_honest_peer_agrees() {
    let report = audit(None, 0, 140).unwrap();
    assert!(report.agrees(), "{report:?}");
    assert_eq!((report.blocks, report.notes.len()), (141, 0));
    for rule in ["bitcoin.block", "bip158.basic", "bip157.header"] {
        assert_eq!(report.checks[rule], 141);
    }
}

/// The scripts that the block at height 101 spends are unknown if the range begins there.
#[test]
fn an_honest_peer_is_not_accused_where_scripts_are_unknown() {
    let report = audit(None, 101, 105).unwrap();
    assert_eq!((report.differences.len(), report.blocks), (0, 5));
    assert_eq!(report.undecided, 4, "one block spends an output of the range");
    assert!(report.why_undecided.unwrap().starts_with("filter of block 101: "));
    assert_eq!(report.notes, ["the filter header of block 100 is the peer's word"]);
}

#[test]
fn each_lie_of_a_peer_breaks_its_rule() {
    for lie in serve::lies().filter(|lie| lie.protocol == Protocol::BitcoinP2p) {
        let rule = match lie.id {
            "btc-header-unproven" => Some("bitcoin.header"),
            "btc-filter-header-noise" => Some("bip157.header"),
            "btc-block-altered" | "btc-witness-altered" => Some("bitcoin.block"),
            id if id.starts_with("btc-filter") => Some("bip158.basic"),
            // The audit loads no Bloom filter.
            id if id.starts_with("btc-merkleblock") || id.starts_with("btc-tx") => None,
            _ => {
                let error = audit(Some(lie.id), 0, 140).unwrap_err();
                let is_of_stream =
                    matches!(error, AuditError::Frame { .. } | AuditError::Handshake(_));
                assert!(is_of_stream, "{}: {error:?}", lie.id);
                continue;
            }
        };
        let report = audit(Some(lie.id), 0, 140).unwrap();
        let found: Vec<_> = report.differences.iter().map(|it| it.rule).collect();
        assert_eq!(found, rule.into_iter().collect::<Vec<_>>(), "{}: {report:?}", lie.id);
        for difference in &report.differences {
            assert_ne!(difference.expected, difference.got, "{}", lie.id);
        }
    }
}

#[test]
fn a_range_must_be_on_the_chain() {
    let error = audit(None, 3, 2).unwrap_err();
    assert_eq!(error.to_string(), "the range ends at 2, before it begins, at 3");
    let error = audit(None, 3, 141).unwrap_err();
    assert_eq!(error.to_string(), "the range ends at 141, the node's last block is 140");
}

/// A node with the JSON-RPC of Bitcoin Core and the built-in chain.
struct Core {
    chain: ServedChain,
    blocks: Vec<Block>,
    scripts: HashMap<OutPoint, ScriptBuf>,
    /// `true` if `getblock` has verbosity 3.
    names_prevouts: bool,
}

impl Core {
    fn new(names_prevouts: bool) -> Self {
        let mut chain = ServedChain::new(Network::Regtest, true);
        let mut all = vec![chain.block(&chain.tip().hash).expect("genesis").as_ref().clone()];
        let mut scripts = HashMap::new();
        for block in blocks() {
            let _added = chain.add_block(block.clone(), None, Duration::MAX);
            for tx in &block.txdata {
                for (vout, output) in (0..).zip(&tx.output) {
                    let outpoint = OutPoint { txid: tx.compute_txid(), vout };
                    scripts.insert(outpoint, output.script_pubkey.clone());
                }
            }
            all.push(block);
        }
        Self { chain, blocks: all, scripts, names_prevouts }
    }

    fn answer(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        let block = || {
            let found = self.blocks.iter().find(|block| json!(block.block_hash()) == params[0]);
            found.ok_or_else(|| Fault::new(-5, "Block not found"))
        };
        match method {
            "getblockchaininfo" => Ok(json!({ "chain": "regtest", "blocks": 140 })),
            "getblockhash" => {
                let height = usize::try_from(params[0].as_u64().expect("a height")).expect("small");
                Ok(json!(self.blocks[height].block_hash()))
            }
            "getblockfilter" => {
                let hash = block()?.block_hash();
                let filters = self.chain.filters().expect("filters");
                let filter = filters.filter(&hash).expect("a filter");
                let header = filters.filter_header(&hash).expect("a header");
                Ok(json!({ "filter": hex::encode(filter), "header": header }))
            }
            "getblock" if params[1] == 0 => Ok(json!(serialize_hex(block()?))),
            "getblock" if !self.names_prevouts => Ok(json!({ "tx": [{ "vin": [{}] }] })),
            "getblock" => {
                let inputs = |tx: &chainsieve::bitcoin::Transaction| {
                    let inputs = tx.input.iter().map(|input| {
                        let from = input.previous_output;
                        match self.scripts.get(&from) {
                            None => json!({ "coinbase": "51" }),
                            Some(script) => json!({
                                "txid": from.txid,
                                "vout": from.vout,
                                "prevout": { "scriptPubKey": { "hex": script } },
                            }),
                        }
                    });
                    json!({ "vin": inputs.collect::<Vec<_>>() })
                };
                Ok(json!({ "tx": block()?.txdata.iter().map(inputs).collect::<Vec<_>>() }))
            }
            method => Err(Fault::method_not_found(method)),
        }
    }
}

/// Audits a node whose answers `alter` changes.
fn audit_core(
    names_prevouts: bool,
    from: u64,
    alter: impl Fn(&str, &mut Value) + Send + Sync + 'static,
) -> Result<AuditReport, AuditError> {
    let core = Core::new(names_prevouts);
    let source = Source::function(move |method, params| core.answer(method, params));
    let rule = move |method: &str, _: &Value, answer: &mut Value| {
        alter(method, &mut answer["result"]);
        Fate::Answered
    };
    let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, rule).expect("started");
    let provider =
        Provider::builder().url(&node.url()).retries(0).trust_head().build().expect("a URL");
    audit_rpc(&provider.nodes()[0], from..=140, |_| {})
}

#[test]
fn an_honest_node_with_json_rpc_agrees() {
    let report = audit_core(true, 0, |_, _| {}).unwrap();
    assert!(report.agrees() && report.blocks == 141, "{report:?}");
    let report = audit_core(true, 120, |_, _| {}).unwrap();
    assert!(report.agrees() && report.blocks == 21, "{report:?}");
    // Without the spent outputs, only the outputs of blocks in the range are known.
    let report = audit_core(false, 120, |_, _| {}).unwrap();
    assert!(report.differences.is_empty() && report.undecided > 0, "{report:?}");
}

#[test]
fn false_answers_of_json_rpc_break_their_rules() {
    type Alter = fn(&str, &mut Value);
    let cases: [(&str, Alter); 4] = [
        ("bip158.basic", |method, result| {
            if method == "getblockfilter" {
                result["filter"] = json!("00");
            }
        }),
        ("bip158.basic", |method, result| {
            if method == "getblockfilter" {
                result["filter"] = json!("no hex");
            }
        }),
        ("bip157.header", |method, result| {
            if method == "getblockfilter" {
                result["header"] = json!("00".repeat(32));
            }
        }),
        ("bitcoin.block", |method, result| {
            // The last digit of a coinbase's lock time.
            if let (Some(raw), "getblock") = (result.as_str(), method) {
                *result = json!(format!("{}1", &raw[..raw.len() - 1]));
            }
        }),
    ];
    for (rule, alter) in cases {
        let report = audit_core(true, 0, alter).unwrap();
        let found: Vec<_> = report.differences.iter().map(|it| it.rule).collect();
        assert_eq!(found, [rule], "{report:?}");
        assert_eq!(report.differences[0].block, 0);
    }
    let error = audit_core(true, 0, |method, result| {
        if method == "getblockchaininfo" {
            result["chain"] = json!("liquidv1");
        }
    });
    assert!(matches!(error, Err(AuditError::Network(name)) if name == "liquidv1"));
}

/// A right block, but not the one that was requested.
#[test]
fn another_block_than_the_requested_one_is_a_difference() {
    let other = serialize_hex(&blocks()[4]);
    let report = audit_core(true, 0, move |method, result| {
        if method == "getblock" && result.is_string() {
            *result = json!(other);
        }
    });
    let report = report.unwrap();
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    assert_eq!((difference.rule, difference.block), ("bitcoin.block", 0));
    assert_eq!(difference.expected, genesis_block(Network::Regtest).block_hash().to_string());
    // A node that sends the right block only before the range's last one.
    let (last, other) = (serialize_hex(&blocks()[139]), serialize_hex(&blocks()[138]));
    let report = audit_core(true, 100, move |method, result| {
        if method == "getblock" && *result == json!(last) {
            *result = json!(other);
        }
    });
    let report = report.unwrap();
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    assert_eq!((difference.rule, difference.block), ("bitcoin.block", 140));
}

/// Blocks with a coinbase alone spend nothing, so that no script is taken on trust or missing.
#[test]
fn blocks_without_spent_outputs_need_no_note() {
    let core = Core::new(true);
    let source = Source::function(move |method, params| match method {
        "getblockchaininfo" => Ok(json!({ "chain": "regtest", "blocks": 100 })),
        method => core.answer(method, params),
    });
    let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, |_, _, _| Fate::Answered);
    let node = node.expect("started");
    let provider =
        Provider::builder().url(&node.url()).retries(0).trust_head().build().expect("a URL");
    let report = audit_rpc(&provider.nodes()[0], 0..=100, |_| {}).unwrap();
    assert!(report.agrees() && report.notes.is_empty(), "{report:?}");
    let note = |names_prevouts| {
        let report = audit_core(names_prevouts, 120, |_, _| {}).unwrap();
        report.notes.last().cloned().unwrap()
    };
    assert_eq!(note(true), "the scripts of spent outputs are the node's word");
    assert!(note(false).starts_with("outputs only"));
}

/// A header is valid two hours later (Bitcoin Core, `MAX_FUTURE_BLOCK_TIME`): one clock may be
/// wrong.
#[test]
fn a_node_whose_clock_differs_is_not_accused() {
    let mut chain = ServedChain::new(Network::Regtest, true);
    let mut parent = genesis_block(Network::Regtest).header;
    for block in blocks() {
        parent = block.header;
        let _added = chain.add_block(block, None, Duration::MAX);
    }
    let mut block = next_block(&parent, 141, &ScriptBuf::new(), Vec::new());
    // The last time that a header can have, in the year 2106.
    block.header.time = u32::MAX;
    while !block.header.target().is_met_by(block.header.block_hash()) {
        block.header.nonce += 1;
    }
    let _added = chain.add_block(block, None, Duration::MAX);
    assert_eq!(chain.tip().height, 141);
    let node = LyingNode::builder().chain(chain).start().expect("started");
    let audit = |to| {
        let timeout = Duration::from_secs(60);
        audit_peer(node.address(), Network::Regtest, 0..=to, timeout, |_| {}).unwrap()
    };
    let report = audit(141);
    assert_eq!((report.differences.len(), report.undecided, report.blocks), (0, 1, 0));
    assert!(report.why_undecided.unwrap().contains("4294967295"));
    // The range ends before the header.
    assert!(audit(140).agrees());
}
