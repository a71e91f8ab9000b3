//! Areas of receipts and logsBloom: encoding, root, building a bloom, testing an item.

use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy_eips::eip2718::{Decodable2718 as _, Encodable2718};
use alloy_primitives::{Address, B256, Bloom, BloomInput, Log, hex as alloy_hex, keccak256};
use alloy_trie::root::ordered_trie_root_with_encoder;
use serde_json::{Value, json};

use crate::certificate;
use crate::headers::{LOG, member_of};
use crate::numbers::Numbers;
use crate::pack::{
    Answer, Area, Case, Group, Kind, Level, invalid, member, optional, sides, value,
};
use crate::sources::{Sources, bytes, int, list};

/// A block of the fixtures with its receipts.
pub(crate) struct ReceiptedBlock {
    pub(crate) number: u64,
    pub(crate) file: String,
    pub(crate) header: Vec<u8>,
    pub(crate) encoded: Vec<Vec<u8>>,
    pub(crate) receipts: Vec<ReceiptEnvelope>,
}

pub(crate) fn blocks(sources: &Sources) -> Vec<ReceiptedBlock> {
    [7_000_000, 14_764_013, 17_686_111, 17_686_112, 19_426_587]
        .into_iter()
        .map(|number| {
            let file = format!("ethereum/blocks/mainnet_{number}.json");
            let kept = sources.fixture(&file);
            let encoded: Vec<_> = list(&kept["receipts"]).iter().map(bytes).collect();
            let receipts = encoded.iter().map(|receipt| decode(receipt)).collect();
            ReceiptedBlock { number, file, header: bytes(&kept["header"]), encoded, receipts }
        })
        .collect()
}

fn decode(encoded: &[u8]) -> ReceiptEnvelope {
    ReceiptEnvelope::decode_2718(&mut &*encoded).expect("a receipt")
}

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    let blocks = blocks(sources);
    vec![
        build(&blocks),
        test(&blocks),
        encode(sources, &blocks),
        root(&blocks),
        certificate::area(&blocks),
    ]
}

fn log_json(log: &Log, with_data: bool) -> Value {
    let topics: Vec<_> = log.topics().iter().map(alloy_hex::encode).collect();
    let mut json = json!({ "address": alloy_hex::encode(log.address), "topics": topics });
    if with_data {
        json["data"] = json!(alloy_hex::encode(&log.data.data));
    }
    json
}

fn build(blocks: &[ReceiptedBlock]) -> Area {
    let mut cases = Vec::new();
    for block in blocks {
        for (at, receipt) in block
            .receipts
            .iter()
            .enumerate()
            .filter(|(_, receipt)| receipt.logs().len() < 12)
            .take(25)
        {
            let logs: Vec<_> = receipt.logs().iter().map(|log| log_json(log, false)).collect();
            let expect = value(json!({ "bloom": alloy_hex::encode(receipt.logs_bloom()) }));
            let why = match logs.len() {
                0 => "no bit may be set",
                1 => "its address and its topics, nothing else",
                _ => "the bits of all logs together",
            };
            let comment =
                format!("mainnet {}, receipt {at}, {} logs: {why}", block.number, logs.len());
            cases.push(Case::new(comment, json!({ "logs": logs }), expect).level(Level::Consensus));
        }
    }
    let whole = blocks.iter().find(|block| block.number == 14_764_013).expect("a small block");
    let logs: Vec<_> = whole
        .receipts
        .iter()
        .flat_map(ReceiptEnvelope::logs)
        .map(|log| log_json(log, false))
        .collect();
    let expect = value(json!({ "bloom": member_of(&whole.header, "logs_bloom") }));
    cases.push(
        Case::new(
            "all logs of mainnet 14764013: the bloom is the header's",
            json!({ "logs": logs }),
            expect,
        )
        .level(Level::Consensus)
        .named("whole-block"),
    );
    let log = |address: &str, topics: &[&str]| json!({ "logs": [{ "address": address, "topics": topics }] });
    let of = |items: &[&str]| {
        let mut bloom = Bloom::ZERO;
        for item in items {
            bloom.accrue(BloomInput::Raw(&hex::decode(item).expect("hex")));
        }
        value(json!({ "bloom": alloy_hex::encode(bloom) }))
    };
    let transfer = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    let emitter = "fffffffffffffffffffffffffffffffffffffffe";
    let zero = "00".repeat(20);
    let vector = (
        "ef2d6d194084c2de36e0dabfce45d046b37d1106",
        "02c69be41d0b7e40352fc85be1cd65eb03d40ef8427a0ca4596b1ead9a00e9fc",
    );
    let alloy = "alloy-primitives 1.7";
    cases.extend([
        Case::new("no logs", json!({ "logs": [] }), value(json!({ "bloom": "00".repeat(256) })))
            .named("no-logs")
            .source("Yellow Paper, section 4.4.1"),
        Case::new("the address of zeros: bytes that look like nothing are an item", log(&zero, &[]), of(&[&zero]))
            .named("address-zero")
            .source(alloy),
        Case::new("Transfer of ERC-20: the bits that each explorer asks for", log(emitter, &[transfer]), of(&[emitter, transfer]))
            .named("transfer")
            .source(alloy),
        Case::new(
            "an address and a topic: the vector of ethbloom",
            log(vector.0, &[vector.1]),
            of(&[vector.0, vector.1]),
        )
        .named("ethbloom-vector")
        .source("ethbloom and alloy-primitives"),
        Case::new(
            "an address as a topic is another item: it is padded",
            log(emitter, &[&format!("{}{emitter}", "00".repeat(12))]),
            of(&[emitter, &format!("{}{emitter}", "00".repeat(12))]),
        )
        .named("address-as-topic")
        .flag("PaddedAddress")
        .source(alloy),
        Case::new(
            "two of the three bits of the address coincide, so it sets two",
            log(&two_bit_address(), &[]),
            of(&[&two_bit_address()]),
        )
        .named("address-of-two-bits")
        .flag("TwoBits")
        .source(alloy),
        Case::new(
            "two of the three bits of the topic coincide: with the address of zeros, five bits are set",
            log(&zero, &[&two_bit_topic()]),
            of(&[&zero, &two_bit_topic()]),
        )
        .named("topic-of-two-bits")
        .flag("TwoBits")
        .source(alloy),
    ]);
    Area {
        name: "logsbloom.build",
        title: "logsBloom of logs",
        about: "Each address and each topic sets 3 of 2,048 bits: the low 11 bits of the first three pairs \
                of bytes of its Keccak-256. Bit 0 is the lowest bit of the last byte.",
        source: "receipts and headers of mainnet, whose blooms are part of the consensus",
        input: vec![member("logs", Kind::List(&Kind::Object(LOG)), "logs")],
        value: vec![member("bloom", Kind::Fixed(256), "bloom")],
        flags: FLAGS,
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// The first address, counted from 0, that sets two bits: 217 twice, and 1,147.
fn two_bit_address() -> String {
    item_of_bits::<20>([1_147, 217, 217])
}

/// The first topic, counted from 0, that sets two bits: 1,375 twice, and 1,998.
fn two_bit_topic() -> String {
    item_of_bits::<32>([1_375, 1_375, 1_998])
}

/// The first number, in so many bytes, whose hash leads to two equal bits. They are as given.
fn item_of_bits<const LEN: usize>(expected: [u16; 3]) -> String {
    let bits = |number: u16| {
        let mut item = [0; LEN];
        item[LEN - 2..].copy_from_slice(&number.to_be_bytes());
        let hash = keccak256(item);
        (item, [0, 2, 4].map(|at| u16::from_be_bytes([hash[at], hash[at + 1]]) & 0x7ff))
    };
    let equal = |[a, b, c]: [u16; 3]| a == b || b == c || a == c;
    let (item, found) = (0..u16::MAX).map(bits).find(|(_, bits)| equal(*bits)).expect("such bits");
    assert_eq!(found, expected);
    hex::encode(item)
}

const FLAGS: &[(&str, &str)] = &[
    ("TwoBits", "two of the three bits coincide: the item sets two bits, and they suffice"),
    ("PaddedAddress", "an address among topics has 12 zero bytes before it"),
    ("NotABloom", "a bloom has 256 bytes: of another length, a \"no\" would come from nothing"),
    ("MixedCase", "hex digits of either case are the same bytes"),
    ("FullBloom", "all 2,048 bits are set"),
    ("FalsePositive", "in no log: an exact implementation says \"maybe\" as well"),
];

fn test(blocks: &[ReceiptedBlock]) -> Area {
    let mut cases = Vec::new();
    let case = |comment: &str, bloom: &[u8], kind: &str, item: &[u8], contains: bool| {
        let input = json!({ "bloom": hex::encode(bloom), "kind": kind, "item": hex::encode(item) });
        Case::new(comment, input, value(json!({ "may_contain": contains })))
            .level(Level::Specification)
    };
    let mut numbers = Numbers::new(2048);
    for block in blocks {
        let bloom = hex::decode(member_of(&block.header, "logs_bloom")).expect("hex");
        let alloy = Bloom::from_slice(&bloom);
        let logs = block.receipts.iter().flat_map(ReceiptEnvelope::logs);
        let stride = logs.clone().count() / 12 + 1;
        for log in logs.step_by(stride) {
            cases.push(
                case(
                    "the address of a log of the block: a no would hide the log",
                    &bloom,
                    "address",
                    log.address.as_slice(),
                    true,
                )
                .level(Level::Consensus),
            );
            if let Some(topic) = log.topics().last() {
                cases.push(
                    case(
                        "a topic of a log of the block: a no would hide the log",
                        &bloom,
                        "topic",
                        topic.as_slice(),
                        true,
                    )
                    .level(Level::Consensus),
                );
            }
        }
        let (mut yes, mut no) = (0, 0);
        for _ in 0..400 {
            let (kind, len) = [("address", 20), ("topic", 32)][numbers.below(2)];
            let item = numbers.bytes(len);
            let found = alloy.contains_input(BloomInput::Raw(&item));
            let count = if found { &mut yes } else { &mut no };
            *count += 1;
            if *count <= 5 {
                let comment = if found {
                    "in no log, but its bits are set: exact bits, not only those of logs"
                } else {
                    "in no log: a reader that says maybe to all rules no block out"
                };
                cases.push(
                    case(comment, &bloom, kind, &item, found)
                        .flag_if(found, "FalsePositive")
                        .source("alloy-primitives 1.7"),
                );
            }
        }
    }
    let first = blocks[0].receipts.iter().flat_map(ReceiptEnvelope::logs).next().expect("a log");
    let bloom = hex::decode(member_of(&blocks[0].header, "logs_bloom")).expect("hex");
    let topic = hex::decode("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
        .expect("hex");
    let mut with_transfer = Bloom::ZERO;
    with_transfer.accrue(BloomInput::Raw(&topic));
    let mixed = "Ddf252ad1BE2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3eF";
    cases.push(
        Case::new(
            "a topic in mixed case",
            json!({ "bloom": hex::encode(with_transfer), "kind": "topic", "item": mixed }),
            value(json!({ "may_contain": true })),
        )
        .named("topic-in-mixed-case")
        .flag("MixedCase")
        .level(Level::Specification)
        .source("execution-apis, schema of hash32"),
    );
    cases.extend([
        case(
            "no bit is set: the bloom of a block without logs",
            &[0; 256],
            "address",
            first.address.as_slice(),
            false,
        )
        .named("empty-bloom"),
        case(
            "all bits are set: a full block, or a chain that fills blooms",
            &[0xff; 256],
            "address",
            first.address.as_slice(),
            true,
        )
        .named("full-bloom")
        .flag("FullBloom"),
        case(
            "one bit of three is missing: each must be tested",
            &one_missing(with_transfer),
            "topic",
            &topic,
            false,
        )
        .named("one-bit-missing"),
        case(
            "only the bits of the topic: a bloom that is hashed has others",
            with_transfer.as_slice(),
            "topic",
            &topic,
            true,
        )
        .named("only-its-bits"),
        case(
            "the bits in the order of the bytes: not the bloom's",
            &reversed(with_transfer),
            "topic",
            &topic,
            false,
        )
        .named("reversed"),
        {
            let mut padded = vec![0; 12];
            padded.extend(first.address);
            let alloy = Bloom::from_slice(&bloom).contains_input(BloomInput::Raw(&padded));
            case("an address of a log, padded like a topic", &bloom, "topic", &padded, alloy)
                .named("padded-address")
                .flag("PaddedAddress")
                .source("alloy-primitives 1.7")
        },
    ]);
    let address = hex::decode(two_bit_address()).expect("hex");
    let mut two_bits = Bloom::ZERO;
    two_bits.accrue(BloomInput::Raw(&address));
    cases.extend([
        case(
            "only the two bits of an address two of whose bits coincide: a reader that counts three says no",
            two_bits.as_slice(),
            "address",
            &address,
            true,
        )
        .named("two-bits")
        .flag("TwoBits"),
        case(
            "one of the two bits of such an address is missing",
            &one_missing(two_bits),
            "address",
            &address,
            false,
        )
        .named("one-of-two-bits-missing")
        .flag("TwoBits"),
    ]);
    for (name, len, byte) in [
        ("bloom-of-0-bytes", 0, 0),
        ("bloom-of-32-bytes", 32, 0xff),
        ("bloom-of-255-bytes", 255, 0),
        ("bloom-of-257-bytes", 257, 0),
    ] {
        let input = json!({ "bloom": hex::encode(vec![byte; len]), "kind": "topic", "item": hex::encode(&topic) });
        cases.push(
            Case::new(
                format!("a bloom of {len} bytes: a no would come from nothing"),
                input,
                invalid("length"),
            )
            .named(name)
            .flag("NotABloom")
            .level(Level::Specification)
            .source("Yellow Paper, section 4.4.1; EIP-7668 proposes 0 bytes"),
        );
    }
    Area {
        name: "logsbloom.test",
        title: "Test of an address or a topic against logsBloom",
        about: "True means that the block may have such a log. False means that it has none.",
        source: "logs and blooms of mainnet",
        input: vec![
            member("bloom", Kind::Bytes, "bloom"),
            member("kind", Kind::OneOf(&["address", "topic"]), "what the item is"),
            member("item", Kind::AnyCase, "20 bytes of an address, or 32 of a topic"),
        ],
        value: vec![member("may_contain", Kind::Boolean, "whether a log may have it")],
        flags: FLAGS,
        groups: vec![Group { cases, ..Group::default() }],
    }
}

fn one_missing(bloom: Bloom) -> Vec<u8> {
    let mut bytes = bloom.to_vec();
    let byte = bytes.iter_mut().find(|byte| **byte != 0).expect("a bit");
    *byte &= *byte - 1;
    bytes
}

fn reversed(bloom: Bloom) -> Vec<u8> {
    bloom.iter().rev().copied().collect()
}

const RECEIPT: &[crate::pack::Member] = &[
    member("type", Kind::Integer, "type of the transaction, 0 for legacy"),
    optional("status", Kind::Integer, "1 for success, since Byzantium"),
    optional("post_state", Kind::Fixed(32), "root of the state, before Byzantium"),
    member("cumulative_gas", Kind::Integer, "gas used in the block so far"),
    member(
        "logs",
        Kind::List(&Kind::Object(&[
            member("address", Kind::Fixed(20), "contract"),
            member("topics", Kind::List(&Kind::Fixed(32)), "topics"),
            member("data", Kind::Bytes, "data"),
        ])),
        "logs",
    ),
];

fn receipt_json(receipt: &ReceiptEnvelope) -> Value {
    let logs: Vec<_> = receipt.logs().iter().map(|log| log_json(log, true)).collect();
    let mut json = json!({ "type": receipt.tx_type() as u8 });
    match receipt.as_receipt().expect("a receipt").status {
        Eip658Value::Eip658(status) => json["status"] = json!(u8::from(status)),
        Eip658Value::PostState(root) => json["post_state"] = json!(alloy_hex::encode(root)),
    }
    json["cumulative_gas"] = json!(receipt.cumulative_gas_used());
    json["logs"] = json!(logs);
    json
}

fn encode(sources: &Sources, blocks: &[ReceiptedBlock]) -> Area {
    let mut cases = Vec::new();
    for block in blocks {
        let mut kinds = std::collections::BTreeMap::new();
        for (at, receipt) in block.receipts.iter().enumerate() {
            let kept =
                kinds.entry((receipt.tx_type() as u8, receipt.logs().len().min(4))).or_insert(0);
            if *kept == 3 || block.encoded[at].len() > 3_000 {
                continue;
            }
            *kept += 1;
            let input = json!({ "receipt": receipt_json(receipt) });
            let expect = value(json!({ "encoded": hex::encode(&block.encoded[at]) }));
            let why = match (receipt.tx_type() as u8, receipt.logs().len()) {
                (0, 0) => "a list alone, with an empty bloom",
                (0, _) => "a list alone, with a bloom that is not sent in JSON",
                (_, 0) => "the type before the list, no second wrapping",
                _ => "the type before the list, lengths of lists in lists",
            };
            let comment = format!(
                "mainnet {}, transaction {at}, type {}, {} logs: {why}",
                block.number,
                receipt.tx_type() as u8,
                receipt.logs().len(),
            );
            cases.push(Case::new(comment, input, expect).level(Level::Consensus));
        }
    }
    cases.extend(of_test_chain(sources));
    // Receipts of kinds that the blocks do not have.
    let made = Receipt {
        status: Eip658Value::PostState(crate::headers::ZERO),
        cumulative_gas_used: 21_000,
        logs: Vec::new(),
    };
    let pre_byzantium = ReceiptEnvelope::Legacy(ReceiptWithBloom::from(made));
    let made =
        Receipt { status: Eip658Value::Eip658(false), cumulative_gas_used: 0x80, logs: Vec::new() };
    let set_code = ReceiptEnvelope::Eip7702(ReceiptWithBloom::from(made));
    let made =
        Receipt { status: Eip658Value::Eip658(true), cumulative_gas_used: 0, logs: Vec::new() };
    let no_gas = ReceiptEnvelope::Legacy(ReceiptWithBloom::from(made));
    for (name, comment, receipt) in [
        ("no-gas", "no gas used so far: an empty string", no_gas),
        ("post-state", "before Byzantium: a root in the place of the status", pre_byzantium),
        ("type-4", "EIP-7702, failed: the status is an empty string", set_code),
    ] {
        let expect = value(json!({ "encoded": hex::encode(receipt.encoded_2718()) }));
        cases.push(
            Case::new(comment, json!({ "receipt": receipt_json(&receipt) }), expect)
                .named(name)
                .level(Level::Specification)
                .source("alloy-consensus 2.5"),
        );
    }
    Area {
        name: "receipts.encode",
        title: "Consensus encoding of an Ethereum receipt",
        about: "RLP of status or post-state, gas, bloom and logs; before it the type's byte, if the type is \
                not 0. Types are those of Ethereum, 0 to 4; receipts of other chains have further fields.",
        source: "receipts of mainnet, whose encodings lead to their block's receipts root",
        input: vec![member("receipt", Kind::Object(RECEIPT), "receipt")],
        value: vec![member("encoded", Kind::Bytes, "encoding")],
        flags: &[],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// The first successful receipts of types 3 and 4 on a test chain of execution-apis. The encodings of
/// all receipts of their blocks lead to the receipts root of the header.
fn of_test_chain(sources: &Sources) -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, name, comment) in [
        (
            3_u64,
            "type-3",
            "EIP-4844: the receipt of a transaction with blobs has no member for them",
        ),
        (4, "type-4-success", "EIP-7702, successful: the status is 01"),
    ] {
        let is_it = |row: &Value| row["type"] == kind && row["status"] == 1;
        let blocks = sources.lines("getlogs/chains/ea2025b/blocks.jsonl");
        let block = blocks.iter().find(|block| list(&block["receipts"]).iter().any(is_it));
        let block = block.expect("such a receipt");
        let rows = list(&block["receipts"]);
        let receipts: Vec<_> = rows.iter().map(receipt_of).collect();
        let encoded: Vec<_> = receipts.iter().map(Encodable2718::encoded_2718).collect();
        let root = member_of(&bytes(&block["header"]), "receipts_root");
        assert_eq!(trie_root(&encoded), root, "the receipts root of the block");
        let at = rows.iter().position(is_it).expect("such a receipt");
        let input = json!({ "receipt": receipt_json(&receipts[at]) });
        let expect = value(json!({ "encoded": hex::encode(&encoded[at]) }));
        cases.push(
            Case::new(comment, input, expect)
                .named(name)
                .level(Level::Consensus)
                .source(format!("the test chain ea2025b, block {}", block["number"])),
        );
    }
    cases
}

/// The receipt of a row of a test chain.
fn receipt_of(row: &Value) -> ReceiptEnvelope {
    let logs = list(&row["logs"]).iter().map(|log| {
        let topics = list(&log["topics"]).iter().map(|topic| B256::from_slice(&bytes(topic)));
        let address = Address::from_slice(&bytes(&log["address"]));
        Log::new_unchecked(address, topics.collect(), bytes(&log["data"]).into())
    });
    let receipt = ReceiptWithBloom::from(Receipt {
        status: Eip658Value::Eip658(row["status"] == 1),
        cumulative_gas_used: int(&row["cumulative_gas_used"]),
        logs: logs.collect(),
    });
    match int(&row["type"]) {
        0 => ReceiptEnvelope::Legacy(receipt),
        1 => ReceiptEnvelope::Eip2930(receipt),
        2 => ReceiptEnvelope::Eip1559(receipt),
        3 => ReceiptEnvelope::Eip4844(receipt),
        4 => ReceiptEnvelope::Eip7702(receipt),
        other => panic!("type {other}"),
    }
}

/// The root of the trie of encoded receipts.
fn trie_root(receipts: &[Vec<u8>]) -> String {
    let root =
        ordered_trie_root_with_encoder(receipts, |receipt, out| out.extend_from_slice(receipt));
    hex::encode(root)
}

fn root(blocks: &[ReceiptedBlock]) -> Area {
    let mut cases = Vec::new();
    for block in blocks {
        let root = member_of(&block.header, "receipts_root");
        assert_eq!(trie_root(&block.encoded), root, "the root of {}", block.number);
        let reference: Vec<_> = (0..block.encoded.len())
            .map(|at| json!({ "from": block.file, "at": format!("/receipts/{at}"), "as": "bytes" }))
            .collect();
        let why = if block.encoded.len() > 128 {
            "real receipts, and keys of one and two bytes"
        } else {
            "real receipts, which differ in length and type"
        };
        let comment = format!("mainnet {}, {} receipts: {why}", block.number, block.encoded.len());
        cases.push(
            Case::new(comment, json!({ "receipts": reference }), value(json!({ "root": root })))
                .level(Level::Consensus),
        );
    }
    // Receipts without logs: the number of them is what matters.
    let plain = |gas: u64| {
        let receipt = Receipt {
            status: Eip658Value::Eip658(true),
            cumulative_gas_used: gas,
            logs: Vec::new(),
        };
        ReceiptEnvelope::Legacy(ReceiptWithBloom::from(receipt)).encoded_2718()
    };
    for count in [0, 1, 2, 3, 16, 17, 127, 128, 129] {
        let receipts: Vec<_> = (1..=count).map(|number| plain(21_000 * number)).collect();
        let input = json!({ "receipts": receipts.iter().map(hex::encode).collect::<Vec<_>>() });
        let expect = value(json!({ "root": trie_root(&receipts) }));
        let why = match count {
            0 => "the root of an empty trie",
            1 => "a leaf alone, under the key of index 0, which is 80, not 00",
            2 | 3 => "a branch with few children",
            16 => "all keys but that of index 0 begin with the digit 0",
            17 => "the first key that begins with the digit 1",
            127 => "one less than there are keys of one byte",
            128 => "the last index whose key is one byte",
            _ => "the first index whose key has two bytes",
        };
        let case = Case::new(format!("{count} receipts: {why}"), input, expect)
            .level(Level::Specification)
            .source("alloy-trie 0.9")
            .flag_if(count > 128, "LongKey");
        cases.push(if count == 0 { case.named("none") } else { case });
    }
    // A type that no fork has, and the type of receipts that have no type byte. Whoever decodes them
    // refuses them; whoever is only asked for a root may take any bytes.
    for (name, receipt_type) in [("unknown-type", 5), ("type-0-written", 0)] {
        let receipt = [vec![receipt_type], plain(21_000)].concat();
        ReceiptEnvelope::decode_2718(&mut receipt.as_slice()).expect_err("no such type");
        let root = trie_root(core::slice::from_ref(&receipt));
        let expect = sides([
            ("geth", Answer::Invalid("type")),
            ("alloy", Answer::Invalid("type")),
            ("geth", Answer::Value(json!({ "root": root }))),
            ("alloy", Answer::Value(json!({ "root": root }))),
        ]);
        cases.push(
            Case::new(
                format!("a receipt of type {receipt_type}: no receipt begins with this byte"),
                json!({ "receipts": [hex::encode(receipt)] }),
                expect,
            )
            .named(name)
            .flag("UnknownType")
            .level(Level::Open)
            .source("EIP-2718; alloy-consensus refuses the receipt, alloy-trie has the root"),
        );
    }
    Area {
        name: "receipts.root",
        title: "Root of the receipts' trie of an Ethereum block",
        about: "Merkle Patricia trie with the RLP of the index as key and the encoded receipt as value.",
        source: "receipts and headers of mainnet",
        input: vec![member("receipts", Kind::List(&Kind::Bytes), "encoded receipts")],
        value: vec![member("root", Kind::Fixed(32), "root")],
        flags: &[
            ("LongKey", "from index 128 on, the key has two bytes"),
            ("UnknownType", "a receipt that a decoder refuses; a trie takes any bytes"),
        ],
        groups: vec![Group { cases, ..Group::default() }],
    }
}
