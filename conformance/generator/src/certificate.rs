//! Area of certificates: what a verifier says of an honest one, and of false ones. They are written
//! here after the documentation of the format.

use alloy_primitives::{B256, keccak256};
use serde_json::{Value, json};

use crate::headers::{member_of, rlp_list};
use crate::pack::{Area, Case, Expect, Group, Kind, Level, invalid, member, value};
use crate::receipts::ReceiptedBlock;

/// RLP of a string of bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    alloy_rlp::Encodable::encode(bytes, &mut out);
    out
}

fn number(number: usize) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    string(&bytes[zeros..])
}

/// The logs of a block that an address has emitted, each as its entry of the digest.
fn entries(block: &ReceiptedBlock, address: &str) -> Vec<Vec<u8>> {
    let hash = keccak256(&block.header);
    let mut entries = Vec::new();
    let mut log_index = 0;
    for (transaction, receipt) in block.receipts.iter().enumerate() {
        for log in receipt.logs() {
            if log.address.to_string().to_lowercase() == address {
                let topics: Vec<_> =
                    log.topics().iter().map(|topic| string(topic.as_slice())).collect();
                entries.push(rlp_list(&[
                    string(hash.as_slice()),
                    number(usize::try_from(block.number).expect("small")),
                    number(log_index),
                    number(transaction),
                    string(log.address.as_slice()),
                    rlp_list(&topics),
                    string(&log.data.data),
                ]));
            }
            log_index += 1;
        }
    }
    entries
}

fn digest(entries: &[Vec<u8>]) -> B256 {
    keccak256(rlp_list(entries))
}

pub(crate) fn area(blocks: &[ReceiptedBlock]) -> Area {
    const WETH: &str = "0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2";
    let block = blocks.iter().find(|block| block.number == 14_764_013).expect("a small block");
    let hash = keccak256(&block.header);
    let entries = entries(block, WETH);
    assert_eq!(entries.len(), 3, "logs of WETH");
    let of = |entries: &[Vec<u8>]| json!({ "logs": format!("{:#x}", entries.len()), "digest": digest(entries) });
    let quantity = format!("{:#x}", block.number);
    let receipts = json!({ "from": block.file, "at": "/receipts" });
    let query = json!({ "fromBlock": quantity, "toBlock": quantity, "address": [WETH] });
    let honest = json!({
        "format": "chainsieve-log-certificate", "version": 1, "profile": "ethereum",
        "chain": { "parentHash": format!("0x{}", member_of(&block.header, "parent_hash")),
            "first": quantity, "last": quantity, "lastHash": hash },
        "query": query, "semantics": "geth", "result": of(&entries),
        "counts": { "blocks": "0x1", "examined": "0x1" },
        "headers": [{ "from": block.file, "at": "/header" }],
        "receipts": [{ "blockHash": hash, "receipts": receipts }],
    });
    let case = |name, comment: &str, certificate: Value, trusted: B256, expect: Expect| {
        let input = json!({ "certificate": certificate, "query": query, "trusted_hash": hex::encode(trusted) });
        Case::new(comment, input, expect).named(name).level(Level::Specification)
    };
    let changed = |pointer: &str, to: Value| {
        let mut certificate = honest.clone();
        *certificate.pointer_mut(pointer).expect("a member") = to;
        certificate
    };
    let without = |member: &str| {
        let mut certificate = honest.clone();
        certificate.as_object_mut().expect("an object").remove(member);
        certificate
    };
    let mut more = honest.clone();
    more["note"] = json!("hello");
    let mut altered_receipts: Vec<Value> = (0..block.encoded.len())
        .map(|at| json!({ "from": block.file, "at": format!("/receipts/{at}") }))
        .collect();
    altered_receipts.pop();
    let complete = |complete: bool| value(json!({ "complete": complete }));
    let refused = |name, comment: &str, certificate: Value| {
        case(name, comment, certificate, hash, invalid("certificate")).flag("FalseCertificate")
    };
    let cases = vec![
        case(
            "honest",
            "three logs of one block, with header and receipts",
            honest.clone(),
            hash,
            complete(true),
        ),
        case(
            "without-receipts",
            "without receipts nothing is proven, and nothing is wrong",
            without("receipts"),
            hash,
            complete(false),
        )
        .flag("NoProof"),
        refused("without-headers", "no headers, and the verifier has none", without("headers")),
        case(
            "another-trusted-hash",
            "the verifier trusts another block: nothing is proven to it",
            honest.clone(),
            B256::repeat_byte(1),
            complete(false),
        )
        .flag("NoProof"),
        refused(
            "a-log-less",
            "a log is left out, in number and digest",
            changed("/result", of(&entries[..2])),
        ),
        refused("no-logs", "all logs are left out", changed("/result", of(&[]))),
        refused(
            "a-log-twice",
            "a log is counted twice",
            changed("/result", of(&[&entries[..], &entries[2..]].concat())),
        ),
        refused(
            "another-digest",
            "the digest is another",
            changed("/result/digest", json!(B256::ZERO)),
        ),
        refused(
            "another-count",
            "the number of logs is another",
            changed("/result/logs", json!("0x2")),
        ),
        refused(
            "nothing-examined",
            "the block is said to be ruled out by its filter",
            changed("/counts/examined", json!("0x0")),
        ),
        refused("more-blocks", "two blocks are counted", changed("/counts/blocks", json!("0x2"))),
        refused(
            "another-last-hash",
            "the last block's hash is another",
            changed("/chain/lastHash", json!(B256::repeat_byte(2))),
        ),
        refused(
            "another-parent",
            "the parent's hash is another",
            changed("/chain/parentHash", json!(B256::repeat_byte(3))),
        ),
        refused(
            "another-query",
            "the certificate answers another query",
            changed("/query/address", json!(["0xdac17f958d2ee523a2206206994597c13d831ec7"])),
        ),
        refused(
            "another-semantics",
            "by other rules than the verifier's",
            changed("/semantics", json!("alloy")),
        ),
        refused(
            "receipts-short",
            "the last receipt is missing",
            changed("/receipts/0/receipts", json!(altered_receipts)),
        ),
        refused(
            "receipts-of-no-block",
            "receipts of a block that was not asked about",
            changed("/receipts/0/blockHash", json!(B256::repeat_byte(4))),
        ),
        refused(
            "header-damaged",
            "a header with another bit",
            changed("/headers/0", json!(format!("0x{}", hex::encode(flipped(&block.header))))),
        ),
        refused(
            "version-2",
            "a version that this reader does not know",
            changed("/version", json!(2)),
        ),
        refused("another-format", "another format", changed("/format", json!("certificate"))),
        refused("unknown-member", "a member that the format does not have", more),
        refused("not-an-object", "a list", json!([])),
    ];
    Area {
        name: "certificate.verify",
        title: "Certificates of logs",
        about: "Verifies that the certificate's logs are all logs of its blocks that match the query, on a \
                chain that ends in the trusted block.\n\nThe format is this project's own: no other project has \
                it, and no BIP or EIP defines it. Its specification is the section Certificate of \
                docs/formats.md, after which the generator writes the cases.",
        source: "the documentation of the format, and mainnet 14764013",
        input: vec![
            member("certificate", Kind::Json, "certificate"),
            member("query", Kind::Json, "query that the verifier asks; geth's rules apply"),
            member("trusted_hash", Kind::Fixed(32), "block hash that the verifier trusts"),
        ],
        value: vec![member("complete", Kind::Boolean, "whether the result is proven complete")],
        flags: &[
            ("FalseCertificate", "contradicts the chain, the question or the format"),
            ("NoProof", "too little is there to prove it"),
        ],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// The header with another bit in its state root.
fn flipped(header: &[u8]) -> Vec<u8> {
    let mut header = header.to_vec();
    header[100] ^= 1;
    header
}
