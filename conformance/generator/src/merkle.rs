//! Areas of BIP37's merkle blocks: building one, reading one that may be false.

use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::{Block, MerkleBlock, VarInt, consensus};
use serde_json::{Value, json};

use crate::pack::{
    Answer, Area, Case, Expect, Group, Kind, Level, QUIRK, invalid, member, sides, value,
};
use crate::sources::{CORE, Sources, list, text};

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    vec![build(sources), read(sources)]
}

fn build(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    for row in sources.core("match").into_iter().chain(sources.core("update")) {
        let made = row["block_hex"].as_str().filter(|block| block.len() < 4_000);
        if made.is_none() && row["block"].is_null() {
            continue;
        }
        let source = made.is_none().then(|| sources.block(text(&row["block"])));
        if source.as_ref().is_some_and(|source| source.fixture.is_none()) {
            continue;
        }
        let block =
            source.as_ref().map_or_else(|| json!(made), super::sources::BlockSource::reference);
        let matched = list(&row["matched"]);
        let input = json!({ "block": block, "matched": matched });
        let block_of = source.as_ref().map_or_else(
            || "a made block".to_owned(),
            |source| format!("{} {}", source.chain, source.height),
        );
        let comment = match matched.len() {
            0 => format!("{block_of}, no match: the root alone, in one hash"),
            1 => format!("{block_of}, one match: a single path"),
            some => format!("{block_of}, {some} matches: paths that share nodes, in Core's order"),
        };
        let Some(payload) = row["merkleblock"].as_str() else { continue };
        let expected = if payload.len() > 8_000 {
            let bytes = hex::decode(payload).expect("hex");
            let hash = hex::encode(bitcoin::hashes::sha256::Hash::hash(&bytes));
            json!({ "sha256": hash, "bytes": bytes.len() })
        } else {
            json!(payload)
        };
        cases.push(Case::new(comment, input, value(json!({ "merkleblock": expected }))));
    }
    let genesis = bitcoin::constants::genesis_block(bitcoin::Network::Bitcoin);
    for matched in [&[][..], &[0]] {
        let built = MerkleBlock::from_block_with_predicate(&genesis, |_| !matched.is_empty());
        let input = json!({ "block": hex::encode(serialize(&genesis)), "matched": matched });
        let expect = value(json!({ "merkleblock": hex::encode(serialize(&built)) }));
        let comment =
            "a block of one transaction, whose id is the root: only a bit says that it matches";
        cases.push(Case::new(comment, input, expect).source("the crate bitcoin 0.32"));
    }
    Area {
        name: "bip37.merkleblock_build",
        title: "Building a merkle block",
        about: "The partial merkle tree of a block in which some transactions match.",
        source: "Bitcoin Core 28.1, CMerkleBlock",
        input: vec![
            member("block", Kind::Bytes, "block"),
            member(
                "matched",
                Kind::List(&Kind::Integer),
                "indices of matching transactions, ascending",
            ),
        ],
        value: vec![member("merkleblock", Kind::Bytes, "payload of the message merkleblock")],
        flags: &[],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// A merkle block in parts, to be told falsely.
#[derive(Clone)]
struct Parts {
    header: bitcoin::block::Header,
    transactions: u32,
    hashes: Vec<[u8; 32]>,
    flags: Vec<u8>,
}

impl Parts {
    /// Of a block of which one transaction matches, with all hashes of the tree: two leaves.
    fn of_two_leaves(block: &Block) -> Self {
        let hashes: Vec<_> =
            block.txdata.iter().map(|tx| tx.compute_txid().to_byte_array()).collect();
        assert_eq!(hashes.len(), 2);
        Self { header: block.header, transactions: 2, hashes, flags: vec![0b101] }
    }

    fn payload(&self) -> String {
        let mut payload = serialize(&self.header);
        payload.extend(self.transactions.to_le_bytes());
        payload.extend(serialize(&VarInt(self.hashes.len() as u64)));
        for hash in &self.hashes {
            payload.extend(hash);
        }
        payload.extend(serialize(&VarInt(self.flags.len() as u64)));
        payload.extend(&self.flags);
        hex::encode(payload)
    }
}

const AS_READ: &str = "Bitcoin Core 28.1, CPartialMerkleTree::ExtractMatches, as read";

fn parent(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    sha256d::Hash::hash(&[left.as_slice(), right].concat()).to_byte_array()
}

/// Falsified merkle blocks, each of which says what it does.
fn false_ones(sources: &Sources) -> Vec<Case> {
    let kept = sources.fixture("bitcoin/blocks/mainnet_170.json");
    let block: Block =
        consensus::deserialize(&hex::decode(text(&kept["block"])).expect("hex")).expect("a block");
    let honest = Parts::of_two_leaves(&block);
    let txids: Vec<_> = block.txdata.iter().map(|tx| tx.compute_txid().to_string()).collect();
    let of = |name: &'static str, comment: &str, parts: &Parts, class: &'static str| {
        let input = json!({ "merkleblock": parts.payload() });
        Case::new(comment, input, invalid(class))
            .named(name)
            .flag("Hostile")
            .level(Level::Specification)
            .source(AS_READ)
    };
    // The BIP has no limit of transactions, and does not say what none of them means.
    let of_core = |case: Case| case.level(Level::Reference);
    let changed = |change: &dyn Fn(&mut Parts)| {
        let mut parts = honest.clone();
        change(&mut parts);
        parts
    };
    let mut cases = vec![
        // The bits are: the root has a match below, the first leaf does not match, the second does.
        Case::new(
            "block 170: the first payment, with both leaves",
            json!({ "merkleblock": honest.payload() }),
            value(json!({ "matches": [[1, txids[1]]] })),
        )
        .named("honest")
        .level(Level::Specification),
        of(
            "other-root",
            "the header names another merkle root",
            &changed(&|parts| parts.header.merkle_root = bitcoin::TxMerkleNode::all_zeros()),
            "root",
        ),
        of_core(of(
            "no-transactions",
            "0 transactions: a tree without a leaf has no root",
            &changed(&|parts| parts.transactions = 0),
            "tree",
        )),
        of_core(of(
            "too-many-transactions",
            "16,845 transactions: no block has room for them",
            &changed(&|parts| parts.transactions = 16_845),
            "tree",
        )),
        of_core(of(
            "4-billion-transactions",
            "2^32 - 1 transactions: the height of the tree must not overflow",
            &changed(&|parts| parts.transactions = u32::MAX),
            "tree",
        )),
        of(
            "more-hashes-than-transactions",
            "3 hashes for 2 transactions",
            &changed(&|parts| parts.hashes.push([7; 32])),
            "tree",
        ),
        of(
            "fewer-bits-than-hashes",
            "no bits at all",
            &changed(&|parts| parts.flags.clear()),
            "tree",
        ),
        of(
            "unused-hash",
            "a hash that the tree has no place for",
            &changed(&|parts| {
                parts.transactions = 3;
                parts.hashes.push([7; 32]);
            }),
            "tree",
        ),
        of(
            "unused-byte-of-bits",
            "a whole byte of bits is left over",
            &changed(&|parts| parts.flags.push(0)),
            "tree",
        ),
        of(
            "hash-missing",
            "the second leaf is missing",
            &changed(&|parts| {
                parts.hashes.pop();
            }),
            "tree",
        ),
        of(
            "match-denied",
            "the second leaf, said not to match, under a root said to have a match",
            &changed(&|parts| {
                parts.hashes[1] = [9; 32];
                parts.flags = vec![0b001];
            }),
            "root",
        ),
        of(
            "leaf-replaced",
            "another transaction in the place of the payment",
            &changed(&|parts| parts.hashes[1] = [9; 32]),
            "root",
        ),
    ];
    // CVE-2012-2459: the last leaf twice gives the root of the tree with one leaf less.
    let mut twice = honest.clone();
    twice.header.merkle_root =
        bitcoin::TxMerkleNode::from_byte_array(parent(&honest.hashes[0], &honest.hashes[0]));
    twice.hashes[1] = honest.hashes[0];
    cases.push(of(
        "left-equals-right",
        "two equal children of a node that has both (CVE-2012-2459)",
        &twice,
        "tree",
    ));
    // CVE-2017-12842: the inner nodes of a tree of four, said to be the leaves of a tree of two.
    let four = sources.fixture("bitcoin/bip37_vectors.json");
    let four = four["blocks"]
        .as_object()
        .expect("blocks")
        .values()
        .map(|block| {
            consensus::deserialize::<Block>(&hex::decode(text(block)).expect("hex"))
                .expect("a block")
        })
        .find(|block| block.txdata.len() == 4)
        .expect("a block of four transactions");
    let leaves: Vec<_> = four.txdata.iter().map(|tx| tx.compute_txid().to_byte_array()).collect();
    let inner = [parent(&leaves[0], &leaves[1]), parent(&leaves[2], &leaves[3])];
    let shallow =
        Parts { header: four.header, transactions: 2, hashes: inner.to_vec(), flags: vec![0b101] };
    let shown = bitcoin::Txid::from_byte_array(inner[1]).to_string();
    cases.push(
        Case::new(
            "inner nodes in the place of leaves: the tree alone cannot tell (CVE-2017-12842)",
            json!({ "merkleblock": shallow.payload() }),
            value(json!({ "matches": [[1, shown]] })),
        )
        .named("inner-nodes-as-leaves")
        .level(Level::Specification)
        .flag("NoDepth")
        .source(AS_READ),
    );
    // Padding bits are not looked at.
    let padded = changed(&|parts| parts.flags = vec![0b1111_1101]);
    cases.push(
        Case::new(
            "the bits after the last one are set: nobody reads them",
            json!({ "merkleblock": padded.payload() }),
            value(json!({ "matches": [[1, txids[1]]] })),
        )
        .named("padding-bits-set")
        .level(Level::Specification)
        .source(AS_READ),
    );
    let length = "ffffffffffffffffff";
    let payload = honest.payload();
    let at = 2 * 84;
    for (name, comment, payload) in [
        ("empty", "no bytes: not even a header", String::new()),
        (
            "header-only",
            "a header and nothing else: no number of transactions",
            payload[..160].to_owned(),
        ),
        (
            "2-to-the-64-hashes",
            "2^64 - 1 hashes are announced",
            format!("{}{length}", &payload[..at]),
        ),
        (
            "16-million-hashes",
            "16,777,216 hashes are announced, two are there",
            format!("{}fe00000001{}", &payload[..at], &payload[at + 2..]),
        ),
        (
            "length-not-canonical",
            "the number of hashes in 3 bytes",
            format!("{}fd0200{}", &payload[..at], &payload[at + 2..]),
        ),
    ] {
        // The BIP does not say that a length is written in its shortest form.
        let level =
            if name == "length-not-canonical" { Level::Reference } else { Level::Specification };
        let case = Case::new(comment, json!({ "merkleblock": payload }), invalid("malformed"));
        cases.push(
            case.named(name)
                .flag("Hostile")
                .level(level)
                .source("Bitcoin Core 28.1, serialisation, as read"),
        );
    }
    cases.extend(of_one_rule());
    cases
}

/// Merkle blocks in which all is right but for one thing: only a reader that has the rule refuses
/// them.
fn of_one_rule() -> Vec<Case> {
    let payload = |root: &[u8; 32], transactions: u32, hashes: &[[u8; 32]], bits: u8| {
        let mut header = bitcoin::constants::genesis_block(bitcoin::Network::Regtest).header;
        header.merkle_root = bitcoin::TxMerkleNode::from_byte_array(*root);
        Parts { header, transactions, hashes: hashes.to_vec(), flags: vec![bits] }.payload()
    };
    let case = |comment: &str, merkleblock: String, expect: Expect| {
        Case::new(comment, json!({ "merkleblock": merkleblock }), expect).source(AS_READ)
    };
    let root = [0x33; 32];
    let none = || value(json!({ "matches": [] }));
    // A block of one transaction of 64 bytes, which a peer shows as two hashes of 32.
    let halves = [[0xaa; 32], [0xbb; 32]];
    let id = parent(&halves[0], &halves[1]);
    let shown = bitcoin::Txid::from_byte_array(halves[1]).to_string();
    vec![
        case(
            "the root is right, and a hash is left over: a reader that compares the root only accepts it",
            payload(&root, 3, &[root, [7; 32]], 0),
            invalid("tree"),
        )
        .named("left-over-hash")
        .level(Level::Specification)
        .flag("Hostile"),
        case(
            "16,666 transactions, the most that 4,000,000 units of weight have room for; none matches",
            payload(&root, 16_666, &[root], 0),
            none(),
        )
        .named("16666-transactions"),
        case(
            "16,667 transactions, one too many, and nothing else is wrong",
            payload(&root, 16_667, &[root], 0),
            invalid("tree"),
        )
        .named("16667-transactions")
        .flag("Hostile")
        .flag(QUIRK),
        case(
            "a block of one transaction of 64 bytes, shown as an inner node of two: the second half passes for a transaction id (CVE-2017-12842)",
            payload(&id, 2, &halves, 0b101),
            value(json!({ "matches": [[1, shown]] })),
        )
        .named("64-byte-transaction")
        .level(Level::Specification)
        .flag("NoDepth"),
    ]
}

fn read(sources: &Sources) -> Area {
    let mut with_trailing = 0;
    let of_core = sources.core("tree").into_iter().filter(|row| {
        with_trailing += usize::from(row["trailing"] == true);
        // Of the cases with trailing bytes, some show as much as all.
        text(&row["merkleblock"]).len() < 2_600 && (row["trailing"] != true || with_trailing <= 12)
    });
    let cases = of_core.map(|row| {
        let input = json!({ "merkleblock": row["merkleblock"] });
        let is = |field: &str| row[field] == Value::Bool(true);
        let (expect, comment) = if !is("parses") {
            (invalid("malformed"), "damaged, ends too early or announces too much: no parser may crash on it")
        } else if !is("valid") {
            (invalid("tree"), "damaged, parses, but the tree breaks a rule: a reader without it accepts a lie")
        } else if !is("root_is_headers") {
            (invalid("root"), "damaged, a tree in order whose root is not the header's: the root must be compared")
        } else {
            let comment = if is("trailing") {
                "a tree in order, and bytes after the message"
            } else {
                "a tree in order: its shape, and the places of its matches, must be found"
            };
            (value(json!({ "matches": row["matches"] })), comment)
        };
        let trailing = is("trailing");
        let damaged = matches!(expect, Expect::One(Answer::Invalid(_)));
        let expect = match expect {
            Expect::One(answer @ Answer::Value(_)) if trailing => {
                sides([("core", answer), ("strict", Answer::Invalid("trailing bytes"))])
            }
            expect => expect,
        };
        Case::new(comment, input, expect)
            .source(CORE)
            .flag_if(damaged, "Hostile")
            .flag_if(trailing && !damaged, "TrailingBytes")
    });
    let cases: Vec<_> = cases.collect();
    Area {
        name: "bip37.merkleblock",
        title: "Reading a merkle block",
        about: "Reads the payload and walks the partial merkle tree. Refused are: bytes that do not \
                parse, a tree that breaks a rule, and a tree whose root is not the header's. The \
                header's proof of work is not asked about.",
        source: CORE,
        input: vec![member("merkleblock", Kind::Bytes, "payload of the message merkleblock")],
        value: vec![member(
            "matches",
            Kind::Matches,
            "index in the block, and id in display order",
        )],
        flags: &[
            ("Hostile", "must be refused in an orderly way"),
            (
                "NoDepth",
                "the number of transactions is the peer's word: a caller that needs certainty asks for the coinbase as well",
            ),
            ("TrailingBytes", "bytes after the message: Core does not look at them"),
        ],
        groups: vec![Group {
            cases: cases.into_iter().chain(false_ones(sources)).collect(),
            ..Group::default()
        }],
    }
}
