//! Areas of block headers: hash and fields from RLP, hash from JSON-RPC.

use alloy_primitives::{B256, keccak256};
use alloy_rlp::Decodable as _;
use serde_json::{Map, Value, json};

use crate::pack::{Area, Case, Group, Kind, Level, Member, invalid, member, value};
use crate::sources::{Sources, bytes, list, text};

const FILE: &str = "ethereum/headers.json";

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    vec![from_rlp(sources), from_json(sources)]
}

/// The items of an RLP list, each with its header.
pub(crate) fn items(mut list: &[u8]) -> Vec<Vec<u8>> {
    let header = alloy_rlp::Header::decode(&mut list).expect("RLP");
    assert!(header.list && header.payload_length == list.len(), "one list");
    let mut items = Vec::new();
    while !list.is_empty() {
        let whole = list;
        let item = alloy_rlp::Header::decode(&mut list).expect("RLP");
        // A single byte is its own header: nothing was consumed.
        list = &list[item.payload_length..];
        items.push(whole[..whole.len() - list.len()].to_vec());
    }
    items
}

/// The RLP list of items.
pub(crate) fn rlp_list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    let mut out = Vec::new();
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut out);
    out.extend(payload);
    out
}

/// The bytes of an RLP string.
fn string(item: &[u8]) -> &[u8] {
    let mut item = item;
    alloy_rlp::Header::decode_bytes(&mut item, false).expect("a string")
}

fn fields(header: &[u8]) -> Value {
    let items = items(header);
    let number =
        string(&items[8]).iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    json!({
        "hash": hex::encode(keccak256(header)),
        "parent_hash": hex::encode(string(&items[0])),
        "number": number,
        "receipts_root": hex::encode(string(&items[5])),
        "logs_bloom": hex::encode(string(&items[6])),
    })
}

/// Why a header is among the cases: the fields that its fork has.
fn comment(chain: &str, number: &Value, fork: &str, count: usize) -> String {
    let why = match (chain, count) {
        ("optimism" | "op-sepolia", _) => "another chain, the same hash of the same fields",
        (_, 15) => "the fields of the Yellow Paper",
        (_, 16) => "with a base fee",
        (_, 17) => "with a root of withdrawals",
        (_, 20) => "with blob gas and the beacon block's root",
        (_, 21) => "with a hash of requests",
        _ => "with fields that old readers do not know",
    };
    format!("{chain} {number}{fork}, {count} fields: {why}")
}

fn from_rlp(sources: &Sources) -> Area {
    let rows = sources.fixture(FILE);
    let rows = list(&rows);
    let mut cases = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let header = bytes(&row["header"]);
        let fields = fields(&header);
        let hash = text(&row["hash"]).trim_start_matches("0x");
        assert_eq!(text(&fields["hash"]), hash, "the hash that the source gives");
        let (chain, number) = (text(&row["chain"]), &row["number"]);
        let fork = row["fork"].as_str().map(|fork| format!(", {fork}")).unwrap_or_default();
        let input =
            json!({ "header": { "from": FILE, "at": format!("/{at}/header"), "as": "bytes" } });
        let count = items(&header).len();
        let case = Case::new(comment(chain, number, &fork, count), input, value(fields))
            .level(Level::Consensus)
            .source(format!("{chain}, block {number}"))
            .flag_if(
                header.windows(256).any(|window| window.iter().all(|byte| *byte == 0xff)),
                "FullBloom",
            );
        cases.push(match (chain, number.as_u64()) {
            ("mainnet", Some(0)) => case.named("genesis"),
            ("mainnet", Some(15_537_394)) => case.named("first-of-paris"),
            ("sepolia", _) => case.named("first-of-amsterdam"),
            _ => case,
        });
    }
    // The page says that alloy refuses a field that no fork defines.
    let newest = rows.iter().find(|row| row["fork"] == "Amsterdam").expect("a header");
    let mut fields_of = items(&bytes(&newest["header"]));
    fields_of.push(vec![0x80]);
    alloy_consensus::Header::decode(&mut rlp_list(&fields_of).as_slice())
        .expect_err("a field more");
    let honest =
        bytes(&rows.iter().find(|row| row["number"] == 1_000_001).unwrap_or(&rows[3])["header"]);
    let fields_of = items(&honest);
    let hostile = |name: &'static str, comment: &str, header: Vec<u8>| {
        Case::new(comment, json!({ "header": hex::encode(header) }), invalid("header"))
            .named(name)
            .flag("Hostile")
            .level(Level::Specification)
            .source("Yellow Paper, appendix B and section 4.3")
    };
    let with = |at: usize, item: &[u8]| {
        let mut items = fields_of.clone();
        items[at] = item.to_vec();
        rlp_list(&items)
    };
    let short = |len: usize| honest[..len].to_vec();
    let long_prefix = {
        // The length of the list in 3 bytes, of which the first is 0.
        let mut header = vec![0xfa, 0];
        header.extend(&honest[1..]);
        header
    };
    cases.extend([
        hostile("no-bytes", "no bytes", Vec::new()),
        hostile("cut-in-the-bloom", "ends in the middle of the bloom", short(300)),
        hostile("last-byte-missing", "the last byte is missing", short(honest.len() - 1)),
        hostile("byte-behind", "a byte after the list", [honest.as_slice(), &[0]].concat()),
        hostile(
            "a-string",
            "a string of bytes, not a list",
            [&[0xb9, 2, 0][..], &vec![7; 512]].concat(),
        ),
        hostile("length-with-leading-zero", "the list's length has a leading zero", long_prefix),
        hostile(
            "parent-hash-of-31-bytes",
            "a parent hash of 31 bytes",
            with(0, &[&[0x9f][..], &[7; 31]].concat()),
        ),
        hostile(
            "number-with-leading-zero",
            "a block number with a leading zero",
            with(8, &[0x82, 0, 1]),
        ),
        hostile(
            "number-of-9-bytes",
            "a block number of 9 bytes",
            with(8, &[&[0x89][..], &[1; 9]].concat()),
        )
        .level(Level::Reference)
        .source("go-ethereum, Header.SanityCheck, as read"),
        hostile(
            "receipts-root-is-a-list",
            "a list in the place of the receipts root",
            with(5, &[0xc0]),
        ),
        hostile(
            "bloom-of-0-bytes",
            "a bloom of 0 bytes, as EIP-7668 proposes it: no fork has it",
            with(6, &[0x80]),
        ),
        hostile(
            "bloom-of-32-bytes",
            "a hash in the place of the bloom, as EIP-7745 proposes it: no fork has it",
            with(6, &[&[0xa0][..], &[7; 32]].concat()),
        ),
        hostile("8-fields", "a list that ends after the difficulty", rlp_list(&fields_of[..8])),
        hostile(
            "last-field-cut",
            "the last field announces more bytes than the list has",
            with(fields_of.len() - 1, &[0x88, 1, 2]),
        ),
    ]);
    cases.extend(later_fields(&bytes(&newest["header"])).into_iter().map(
        |(name, comment, header)| {
            alloy_consensus::Header::decode(&mut header.as_slice()).expect_err(name);
            hostile(name, comment, header).level(Level::Reference).source(
                "go-ethereum, Header's RLP and SanityCheck, as read; alloy-consensus refuses it",
            )
        },
    ));
    let mut longest = fields_of.clone();
    for at in [9, 10, 11] {
        longest[at] = [&[0x88, 0x7f][..], &[0xff; 7]].concat();
    }
    let header = rlp_list(&longest);
    alloy_consensus::Header::decode(&mut header.as_slice()).expect("a header");
    let input = json!({ "header": hex::encode(&header) });
    cases.push(
        Case::new("numbers of eight bytes: gas and time", input, value(fields(&header)))
            .named("numbers-of-8-bytes")
            .level(Level::Specification)
            .source("alloy-consensus"),
    );
    cases.extend(
        other_prefixes(&fields_of)
            .into_iter()
            .map(|(name, comment, header)| hostile(name, comment, header)),
    );
    Area {
        name: "header.hash",
        title: "Hash and fields of an Ethereum header",
        about: "The hash is Keccak-256 of the header's RLP as received: forks append fields at the end, \
                and a reader that rebuilds the header from the fields that it knows gets another hash. No \
                case has a field that no fork defines: go-ethereum and alloy refuse such a header, and a \
                reader that hashes what it received may read it.",
        source: "headers of mainnet, Sepolia, Goerli, Optimism and OP Sepolia with the hashes of their chains",
        input: vec![member("header", Kind::Bytes, "RLP of the header")],
        value: vec![
            member("hash", Kind::Fixed(32), "hash of the block"),
            member("parent_hash", Kind::Fixed(32), "hash of the parent"),
            member("number", Kind::Integer, "number of the block"),
            member("receipts_root", Kind::Fixed(32), "root of the receipts' trie"),
            member("logs_bloom", Kind::Fixed(256), "bloom of the logs"),
        ],
        flags: &[
            ("FullBloom", "all 2,048 bits of the bloom are set"),
            ("Hostile", "malformed: must be refused in an orderly way"),
        ],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// Headers with each member in which one of those after the extra data has another form. A reader that
/// only hashes what it received must look at them all the same, or its caller reads what no fork has.
fn later_fields(header: &[u8]) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let fields = items(header);
    let with = |at: usize, len: u8| {
        let mut fields = fields.clone();
        fields[at] = [vec![0x80 + len], vec![1; usize::from(len)]].concat();
        rlp_list(&fields)
    };
    let mut leading_zero = fields.clone();
    leading_zero[15] = vec![0x82, 0, 1];
    vec![
        ("difficulty-of-33-bytes", "a difficulty of 33 bytes", with(7, 33)),
        ("mix-hash-of-31-bytes", "a mix hash of 31 bytes", with(13, 31)),
        ("nonce-of-7-bytes", "a nonce of 7 bytes", with(14, 7)),
        ("base-fee-of-33-bytes", "a base fee of 33 bytes", with(15, 33)),
        ("base-fee-with-leading-zero", "a base fee with a leading zero", rlp_list(&leading_zero)),
        ("withdrawals-root-of-33-bytes", "a withdrawals root of 33 bytes", with(16, 33)),
        ("blob-gas-used-of-9-bytes", "gas of blobs, of 9 bytes", with(17, 9)),
        ("excess-blob-gas-of-9-bytes", "excess gas of blobs, of 9 bytes", with(18, 9)),
        ("beacon-root-of-31-bytes", "a parent beacon block root of 31 bytes", with(19, 31)),
        ("requests-hash-of-31-bytes", "a hash of requests of 31 bytes", with(20, 31)),
    ]
}

/// Headers of the usual length in which one prefix before the bloom is another. A reader that takes
/// the bloom from its usual place must look at each of them.
fn other_prefixes(items: &[Vec<u8>]) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let cut = |at: usize, name, comment| {
        let mut items = items.to_vec();
        // The string has one byte less, and its last byte is a string of its own.
        items[at][0] -= 1;
        *items[at].last_mut().expect("a byte") = 7;
        (name, comment, rlp_list(&items))
    };
    let mut headers = vec![
        cut(0, "parent-hash-cut", "a parent hash of 31 bytes, and a byte more"),
        cut(1, "ommers-hash-cut", "a hash of uncles of 31 bytes, and a byte more"),
        cut(2, "miner-cut", "an address of 19 bytes, and a byte more"),
        cut(3, "state-root-cut", "a state root of 31 bytes, and a byte more"),
        cut(4, "transactions-root-cut", "a transactions root of 31 bytes, and a byte more"),
        cut(5, "receipts-root-cut", "a receipts root of 31 bytes, and a byte more"),
    ];
    let list = |at: usize, name, comment| {
        let mut items = items.to_vec();
        items[at][0] += 0x40;
        (name, comment, rlp_list(&items))
    };
    headers.push(list(6, "bloom-is-a-list", "a list of 256 bytes in the place of the bloom"));
    headers
}

/// The members of a block object that belong to its header.
const MEMBERS: [&str; 24] = [
    "hash",
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
];

/// The header of an RLP list in JSON-RPC form.
fn json_of(header: &[u8]) -> Map<String, Value> {
    const NUMBERS: [&str; 9] = [
        "difficulty",
        "number",
        "gasLimit",
        "gasUsed",
        "timestamp",
        "baseFeePerGas",
        "blobGasUsed",
        "excessBlobGas",
        "slotNumber",
    ];
    let mut json = Map::new();
    json.insert("hash".into(), json!(format!("0x{}", hex::encode(keccak256(header)))));
    for (name, item) in MEMBERS[1..].iter().zip(items(header)) {
        let digits = hex::encode(string(&item));
        let text = match NUMBERS.contains(name) {
            true if digits.is_empty() => "0x0".to_owned(),
            true => format!("0x{}", digits.trim_start_matches('0')),
            false => format!("0x{digits}"),
        };
        json.insert((*name).to_owned(), json!(text));
    }
    json
}

/// The first block of Amsterdam on Sepolia, whose header has two members that older ones do not have.
fn amsterdam(sources: &Sources) -> Vec<Case> {
    let rows = sources.fixture(FILE);
    let header_of = |chain: &str, number: u64| {
        let mut rows = list(&rows).iter();
        rows.find(|row| row["chain"] == chain && row["number"] == number).expect("a header")
    };
    // What is written here of a mainnet block is what a node said of it.
    let known = sources.corpus_json("ethereum/mainnet/jsonrpc/block_15537394.json");
    let known = known.get("result").unwrap_or(&known);
    for (name, value) in json_of(&bytes(&header_of("mainnet", 15_537_394)["header"])) {
        assert_eq!(known[&name], value, "{name}");
    }
    let row = header_of("sepolia", 11_856_337);
    let honest = json_of(&bytes(&row["header"]));
    assert_eq!((&honest["hash"], honest.len()), (&row["hash"], MEMBERS.len()));
    let case = |comment: String, header: &Map<String, Value>, expect| {
        Case::new(comment, json!({ "header_json": header }), expect)
            .level(Level::Consensus)
            .source("sepolia, block 11856337")
    };
    let hash = text(&row["hash"]).trim_start_matches("0x");
    let mut cases = vec![
        with_gap(&honest, &bytes(&row["header"])),
        case(
            "the first block of Amsterdam, with blockAccessListHash and slotNumber".into(),
            &honest,
            value(json!({ "hash": hash })),
        )
        .named("first-of-amsterdam"),
    ];
    for name in ["blockAccessListHash", "slotNumber"] {
        let mut told = honest.clone();
        told.insert(name.into(), json!(another(name, text(&honest[name]))));
        let comment = format!("first of Amsterdam, {name} is another: it is part of the hash");
        cases.push(case(comment, &told, invalid("hash")).flag("Altered"));
        told.remove(name);
        let comment =
            format!("first of Amsterdam, {name} is missing: a reader that does not know it");
        cases.push(case(comment, &told, invalid("hash")).flag("Altered"));
    }
    cases
}

/// A value of the same form with another content.
fn another(name: &str, old: &str) -> String {
    match old.strip_suffix('0') {
        _ if name == "number" || old == "0x0" => "0x1".into(),
        Some(rest) => format!("{rest}1"),
        None => format!("{}0", &old[..old.len() - 1]),
    }
}

/// A header object without the withdrawals root, though later members are there. The claimed hash is
/// that of the fields that are there.
fn with_gap(block: &Map<String, Value>, header: &[u8]) -> Case {
    let mut told = block.clone();
    told.remove("withdrawalsRoot");
    let mut fields = items(header);
    fields.remove(16);
    let hash = keccak256(rlp_list(&fields));
    told.insert("hash".into(), json!(format!("0x{}", hex::encode(hash))));
    let comment = "a member is missing before others, and the hash is that of the rest: the next member would take its place";
    Case::new(comment, json!({ "header_json": told }), invalid("hash"))
        .named("gap")
        .flag("Altered")
        .level(Level::Specification)
        .source("EIP-4895: the withdrawals root is field 16 of the header")
}

fn from_json(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    for number in [
        200_000,
        1_150_000,
        4_370_000,
        9_069_000,
        12_244_000,
        12_965_000,
        15_537_394,
        17_034_870,
        19_426_587,
        21_925_176,
        22_431_084,
        24_476_000_u64,
    ] {
        let block = sources.corpus_json(&format!("ethereum/mainnet/jsonrpc/block_{number}.json"));
        let block = block.get("result").unwrap_or(&block);
        let header: Map<String, Value> = MEMBERS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), block.get(*name)?.clone())))
            .collect();
        let hash = text(&header["hash"]).trim_start_matches("0x").to_owned();
        let case = |comment: String, header: &Map<String, Value>, expect| {
            Case::new(comment, json!({ "header_json": header }), expect)
                .level(Level::Consensus)
                .source(format!("mainnet, block {number}"))
        };
        cases.push(case(
            format!(
                "block {number}, {} members of its fork: each must come into the hash",
                header.len()
            ),
            &header,
            value(json!({ "hash": hash })),
        ));
        // Each member is told falsely once, in the smallest block, the first with a base fee, and the
        // newest.
        if ![200_000, 12_965_000, 24_476_000].contains(&number) {
            continue;
        }
        for name in header.keys() {
            let mut told = header.clone();
            let old = text(&header[name]);
            told.insert(name.clone(), json!(another(name, old)));
            let comment = format!("block {number}, {name} is another: the hash must be recomputed");
            cases.push(case(comment, &told, invalid("hash")).flag("Altered"));
            // A reader that takes zero for a missing member gets the right hash.
            if name != "hash" && old.bytes().any(|digit| !matches!(digit, b'0' | b'x')) {
                told.remove(name);
                let comment =
                    format!("block {number}, {name} is missing: nothing may stand for it");
                cases.push(case(comment, &told, invalid("hash")).flag("Altered"));
            }
        }
        let mut more = header.clone();
        more.insert("totalDifficulty".into(), json!("0x1"));
        more.insert("size".into(), json!("0x2"));
        cases.push(case(
            format!("block {number}, with members that are no part of the header: nodes send them"),
            &more,
            value(json!({ "hash": hash })),
        ));
    }
    cases.extend(amsterdam(sources));
    Area {
        name: "header.json",
        title: "Hash of an Ethereum header in JSON-RPC form",
        about: "Rebuilds the header from the members of `eth_getBlockByNumber` and compares the hash. An \
                object whose hash is not the one that it claims is refused: a node that invents a \
                bloom or a receipts root is found out here.",
        source: "headers of mainnet and Sepolia in JSON-RPC form, with the hashes of the chains",
        input: vec![member("header_json", Kind::Json, "block object, without transactions")],
        value: vec![member("hash", Kind::Fixed(32), "hash of the block")],
        flags: &[(
            "Altered",
            "a member is changed or left out: the hash cannot be the claimed one",
        )],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// The hash of a header, for other areas.
pub(crate) fn member_of(header: &[u8], name: &str) -> String {
    text(&fields(header)[name]).to_owned()
}

/// Members that logs have in several areas.
pub(crate) const LOG: &[Member] = &[
    member("address", Kind::Fixed(20), "contract"),
    member("topics", Kind::List(&Kind::Fixed(32)), "topics"),
];

/// Zero hash.
pub(crate) const ZERO: B256 = B256::ZERO;
