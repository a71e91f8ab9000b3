//! Area of certificates: what a verifier says of an honest one, and of false ones. They are written
//! here after the documentation of the format.

use alloy_consensus::ReceiptEnvelope;
use alloy_primitives::{B256, Bloom, BloomInput, keccak256};
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

/// The bytes of an address, which is written with `0x`.
fn address_bytes(address: &str) -> Vec<u8> {
    hex::decode(address.trim_start_matches("0x")).expect("hex")
}

/// Returns `true` if the header's bloom leaves it open that the block has a log of the address.
fn is_examined(block: &ReceiptedBlock, address: &str) -> bool {
    let bloom = hex::decode(member_of(&block.header, "logs_bloom")).expect("hex");
    Bloom::from_slice(&bloom).contains_input(BloomInput::Raw(&address_bytes(address)))
}

fn quantity(number: u64) -> String {
    format!("{number:#x}")
}

/// The result of a query that selects these logs.
fn result_of(entries: &[Vec<u8>]) -> Value {
    json!({ "logs": format!("{:#x}", entries.len()), "digest": digest(entries) })
}

/// A certificate of all logs that an address has emitted in a range of blocks, with these headers, and
/// with the receipts of the blocks that must be examined.
fn certificate(blocks: &[&ReceiptedBlock], headers: &[&ReceiptedBlock], address: &str) -> Value {
    let (first, last) = (blocks[0], blocks[blocks.len() - 1]);
    let examined: Vec<_> = blocks.iter().filter(|block| is_examined(block, address)).collect();
    let logs: Vec<_> = blocks.iter().flat_map(|block| entries(block, address)).collect();
    let headers: Vec<_> =
        headers.iter().map(|block| json!({ "from": block.file, "at": "/header" })).collect();
    let receipts = examined.iter().map(|block| {
        let receipts = json!({ "from": block.file, "at": "/receipts" });
        json!({ "blockHash": keccak256(&block.header), "receipts": receipts })
    });
    json!({
        "format": "chainsieve-log-certificate", "version": 1, "profile": "ethereum",
        "chain": { "parentHash": format!("0x{}", member_of(&first.header, "parent_hash")),
            "first": quantity(first.number), "last": quantity(last.number),
            "lastHash": keccak256(&last.header) },
        "query": { "fromBlock": quantity(first.number), "toBlock": quantity(last.number),
            "address": [address] },
        "semantics": "geth", "result": result_of(&logs),
        "counts": { "blocks": format!("{:#x}", blocks.len()),
            "examined": format!("{:#x}", examined.len()) },
        "headers": headers,
        "receipts": receipts.collect::<Vec<_>>(),
    })
}

/// The case of a certificate that the verifier judges by the certificate's own query.
fn case(
    name: &'static str,
    comment: &str,
    certificate: &Value,
    trusted: B256,
    expect: Expect,
) -> Case {
    let input = json!({
        "certificate": certificate,
        "query": certificate["query"],
        "trusted_hash": hex::encode(trusted),
    });
    Case::new(comment, input, expect).named(name).level(Level::Specification)
}

fn complete(complete: bool) -> Expect {
    value(json!({ "complete": complete }))
}

/// A copy in which the member at each of these places is another.
fn changed(certificate: &Value, changes: &[(&str, Value)]) -> Value {
    let mut certificate = certificate.clone();
    for (pointer, to) in changes {
        *certificate.pointer_mut(pointer).expect("a member") = to.clone();
    }
    certificate
}

/// Cases of two blocks in a row.
fn of_two_blocks(blocks: &[ReceiptedBlock]) -> Vec<Case> {
    /// Uniswap's pool of USDC and WETH.
    const POOL: &str = "0x88e6a0c2ddd26feeb64f039a2c41296fcb3f5640";
    let at = |number: u64| blocks.iter().find(|block| block.number == number).expect("a block");
    let (one, two) = (at(17_686_111), at(17_686_112));
    let hashes = [one, two].map(|block| keccak256(&block.header));
    assert_eq!(member_of(&two.header, "parent_hash"), hex::encode(hashes[0]));
    assert_eq!([one, two].map(|block| entries(block, POOL).len()), [1, 2]);
    let both = certificate(&[one, two], &[one, two], POOL);
    assert_eq!(both["counts"]["examined"], "0x2");
    let later = certificate(&[two], &[one, two], POOL);
    let earlier = certificate(&[one], &[one, two], POOL);
    // The first address of the second block that the first block's bloom rules out.
    let mut addresses = two.receipts.iter().flat_map(ReceiptEnvelope::logs);
    let only_later = addresses
        .find_map(|log| {
            let address = log.address.to_string().to_lowercase();
            (!is_examined(one, &address)).then_some(address)
        })
        .expect("such an address");
    let ruled_out = certificate(&[one, two], &[one, two], &only_later);
    assert_eq!(ruled_out["counts"]["examined"], "0x1");
    let by_hash =
        changed(&later, &[("/query", json!({ "blockHash": hashes[1], "address": [POOL] }))]);
    let header_at = |at: usize| both["headers"][at].clone();
    let receipts_at = |at: usize| both["receipts"][at].clone();
    let refused = |name, comment: &str, certificate: &Value| {
        case(name, comment, certificate, hashes[1], invalid("certificate")).flag("FalseCertificate")
    };
    vec![
        case("two-blocks", "logs of two blocks in a row", &both, hashes[1], complete(true)),
        case(
            "ruled-out-block",
            "the bloom of the first block rules the address out: its receipts are not needed",
            &ruled_out,
            hashes[1],
            complete(true),
        ),
        case(
            "later-of-two-headers",
            "the first of two headers is the parent of the block that is asked about",
            &later,
            hashes[1],
            complete(true),
        ),
        case(
            "earlier-of-two-headers",
            "the trusted block is the child of the block that is asked about",
            &earlier,
            hashes[1],
            complete(true),
        ),
        case(
            "trusted-before-the-last",
            "the verifier trusts the first of two blocks: the second is anyone's",
            &both,
            hashes[0],
            complete(false),
        )
        .flag("NoProof"),
        case(
            "trusted-first-of-one",
            "the verifier trusts the block that is asked about, and not its child",
            &earlier,
            hashes[0],
            complete(true),
        ),
        case(
            "receipts-of-one",
            "of two blocks, the receipts of one are there",
            &changed(&both, &[("/receipts", json!([receipts_at(0)]))]),
            hashes[1],
            complete(false),
        )
        .flag("NoProof"),
        case(
            "receipts-in-other-order",
            "receipts name their block: their order means nothing",
            &changed(&both, &[("/receipts", json!([receipts_at(1), receipts_at(0)]))]),
            hashes[1],
            complete(true),
        ),
        case(
            "by-block-hash",
            "a query of one block by its hash",
            &by_hash,
            hashes[1],
            complete(true),
        ),
        refused(
            "by-block-hash-another-first",
            "the query names one block by its hash, the certificate begins with another",
            &changed(
                &by_hash,
                &[
                    ("/chain/first", json!(quantity(one.number))),
                    ("/chain/parentHash", earlier["chain"]["parentHash"].clone()),
                ],
            ),
        ),
        refused(
            "by-block-hash-another-last",
            "the query names the first block by its hash, the certificate ends with the second",
            &changed(
                &earlier,
                &[
                    ("/query", json!({ "blockHash": hashes[0], "address": [POOL] })),
                    ("/chain/last", json!(quantity(two.number))),
                    ("/chain/lastHash", json!(hashes[1])),
                ],
            ),
        ),
        refused(
            "by-unknown-block-hash",
            "a query of a block by its hash, whose header is not there",
            &changed(&by_hash, &[("/query/blockHash", json!(B256::repeat_byte(5)))]),
        ),
        refused(
            "another-first-block",
            "the query begins with a block, the certificate with the next",
            &changed(
                &both,
                &[
                    ("/chain/first", json!(quantity(two.number))),
                    ("/chain/parentHash", json!(hashes[0])),
                ],
            ),
        ),
        refused(
            "another-last-block",
            "the query ends with a block, the certificate with the one before",
            &changed(
                &both,
                &[
                    ("/chain/last", json!(quantity(one.number))),
                    ("/chain/lastHash", json!(hashes[0])),
                ],
            ),
        ),
        refused(
            "another-parent-of-two",
            "the parent's hash is another than that of the first of two headers",
            &changed(&later, &[("/chain/parentHash", earlier["chain"]["parentHash"].clone())]),
        ),
        refused(
            "last-hash-of-the-first",
            "the last hash is that of the first block",
            &changed(&both, &[("/chain/lastHash", json!(hashes[0]))]),
        ),
        refused(
            "result-of-one-block",
            "the logs of the second block are left out",
            &changed(&both, &[("/result", result_of(&entries(one, POOL)))]),
        ),
        refused(
            "logs-in-other-order",
            "the logs of the second block come first",
            &changed(
                &both,
                &[("/result", result_of(&[entries(two, POOL), entries(one, POOL)].concat()))],
            ),
        ),
        refused(
            "headers-swapped",
            "each header is not the child of the one before",
            &changed(&both, &[("/headers", json!([header_at(1), header_at(0)]))]),
        ),
        refused(
            "header-twice",
            "a header is no child of itself",
            &changed(&both, &[("/headers", json!([header_at(0), header_at(1), header_at(1)]))]),
        ),
        refused(
            "header-missing",
            "the header of the first block is missing",
            &changed(&both, &[("/headers", json!([header_at(1)]))]),
        ),
        refused(
            "last-header-missing",
            "the header of the last block is missing",
            &changed(&both, &[("/headers", json!([header_at(0)]))]),
        ),
        refused("no-header", "a list without headers", &changed(&both, &[("/headers", json!([]))])),
        refused(
            "receipts-twice",
            "the receipts of a block are there twice",
            &changed(
                &both,
                &[("/receipts", json!([receipts_at(0), receipts_at(1), receipts_at(1)]))],
            ),
        ),
        refused(
            "receipts-swapped",
            "each of two blocks has the receipts of the other",
            &changed(
                &both,
                &[
                    ("/receipts/0/blockHash", json!(hashes[1])),
                    ("/receipts/1/blockHash", json!(hashes[0])),
                ],
            ),
        ),
        refused(
            "needless-receipts",
            "receipts of a block that its bloom rules out",
            &changed(&ruled_out, &[("/receipts", both["receipts"].clone())]),
        ),
        refused(
            "needless-empty-receipts",
            "an empty list of receipts for a block that its bloom rules out",
            &changed(
                &ruled_out,
                &[(
                    "/receipts",
                    json!([
                        { "blockHash": hashes[0], "receipts": [] },
                        ruled_out["receipts"][0].clone(),
                    ]),
                )],
            ),
        ),
        refused(
            "all-examined",
            "a block that its bloom rules out is said to be examined",
            &changed(&ruled_out, &[("/counts/examined", json!("0x2"))]),
        ),
        refused(
            "blocks-one-less",
            "two blocks are asked about, one is counted",
            &changed(&both, &[("/counts/blocks", json!("0x1"))]),
        ),
    ]
}

pub(crate) fn area(blocks: &[ReceiptedBlock]) -> Area {
    const WETH: &str = "0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2";
    let block = blocks.iter().find(|block| block.number == 14_764_013).expect("a small block");
    let hash = keccak256(&block.header);
    let entries = entries(block, WETH);
    assert_eq!(entries.len(), 3, "logs of WETH");
    let of = result_of;
    let honest = certificate(&[block], &[block], WETH);
    let query = honest["query"].clone();
    let case = |name, comment: &str, certificate: Value, trusted: B256, expect: Expect| {
        let input = json!({ "certificate": certificate, "query": query, "trusted_hash": hex::encode(trusted) });
        Case::new(comment, input, expect).named(name).level(Level::Specification)
    };
    let changed = |pointer: &str, to: Value| changed(&honest, &[(pointer, to)]);
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
    let refused = |name, comment: &str, certificate: Value| {
        case(name, comment, certificate, hash, invalid("certificate")).flag("FalseCertificate")
    };
    let mut cases = vec![
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
        refused(
            "leading-zero",
            "the number of logs with a leading zero",
            changed("/result/logs", json!("0x03")),
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
    cases.extend(of_two_blocks(blocks));
    Area {
        name: "certificate.verify",
        title: "Certificates of logs",
        about: "Verifies that the certificate's logs are all logs of its blocks that match the query, on a \
                chain that ends in the trusted block.\n\nThe format is this project's own: no other project has \
                it, and no BIP or EIP defines it. Its specification is the section Certificate of \
                docs/formats.md, after which the generator writes the cases.",
        source: "the documentation of the format, and mainnet 14764013, 17686111 and 17686112",
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
