//! Areas of BIP37's merkle blocks: building one, reading one that may be false.

use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::{Block, VarInt, consensus};
use serde_json::{Value, json};

use crate::pack::{Area, Case, Group, Kind, Level, invalid, member, value};
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
        let comment = match matched.len() {
            0 => "no match: one hash".into(),
            1 => "one match".into(),
            some => format!("{some} matches"),
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
        self.hashes.iter().for_each(|hash| payload.extend(hash));
        payload.extend(serialize(&VarInt(self.flags.len() as u64)));
        payload.extend(&self.flags);
        hex::encode(payload)
    }
}

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
            .source("Bitcoin Core 28.1, CPartialMerkleTree::ExtractMatches, as read")
    };
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
        .named("honest"),
        of(
            "other-root",
            "the header names another merkle root",
            &changed(&|parts| parts.header.merkle_root = bitcoin::TxMerkleNode::all_zeros()),
            "root",
        ),
        of("no-transactions", "0 transactions", &changed(&|parts| parts.transactions = 0), "tree"),
        of(
            "too-many-transactions",
            "16,845 transactions: no block has room for them",
            &changed(&|parts| parts.transactions = 16_845),
            "tree",
        ),
        of(
            "4-billion-transactions",
            "2^32 - 1 transactions",
            &changed(&|parts| parts.transactions = u32::MAX),
            "tree",
        ),
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
    let four = four["blocks"].as_object().expect("blocks").values()
        .map(|block| consensus::deserialize::<Block>(&hex::decode(text(block)).expect("hex")).expect("a block"))
        .find(|block| block.txdata.len() == 4).expect("a block of four transactions");
    let leaves: Vec<_> = four.txdata.iter().map(|tx| tx.compute_txid().to_byte_array()).collect();
    let inner = [parent(&leaves[0], &leaves[1]), parent(&leaves[2], &leaves[3])];
    let shallow = Parts { header: four.header, transactions: 2, hashes: inner.to_vec(), flags: vec![0b101] };
    let shown = bitcoin::Txid::from_byte_array(inner[1]).to_string();
    cases.push(
        Case::new(
            "inner nodes in the place of leaves: the tree alone cannot tell (CVE-2017-12842)",
            json!({ "merkleblock": shallow.payload() }),
            value(json!({ "matches": [[1, shown]] })),
        )
        .named("inner-nodes-as-leaves").flag("NoDepth")
        .source("Bitcoin Core 28.1, CPartialMerkleTree::ExtractMatches, as read"),
    );
    // Padding bits are not looked at.
    let padded = changed(&|parts| parts.flags = vec![0b1111_1101]);
    cases.push(
        Case::new(
            "the bits behind the last one are set: nobody reads them",
            json!({ "merkleblock": padded.payload() }),
            value(json!({ "matches": [[1, txids[1]]] })),
        )
        .named("padding-bits-set")
        .source("Bitcoin Core 28.1, CPartialMerkleTree::ExtractMatches, as read"),
    );
    let length = "ffffffffffffffffff";
    let payload = honest.payload();
    let at = 2 * 84;
    for (name, comment, payload) in [
        ("empty", "no bytes", String::new()),
        ("header-only", "a header and nothing else", payload[..160].to_owned()),
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
        let case = Case::new(comment, json!({ "merkleblock": payload }), invalid("malformed"));
        cases.push(
            case.named(name).flag("Hostile").source("Bitcoin Core 28.1, serialisation, as read"),
        );
    }
    cases
}

fn read(sources: &Sources) -> Area {
    let of_core =
        sources.core("tree").into_iter().filter(|row| text(&row["merkleblock"]).len() < 2_600);
    let cases = of_core.map(|row| {
        let input = json!({ "merkleblock": row["merkleblock"] });
        let is = |field: &str| row[field] == Value::Bool(true);
        let (expect, comment) = if !is("parses") {
            (invalid("malformed"), "damaged: does not parse")
        } else if !is("valid") {
            (invalid("tree"), "damaged: the tree gives no root")
        } else if !is("root_is_headers") {
            (invalid("root"), "damaged: the tree gives another root than the header's")
        } else {
            (value(json!({ "matches": row["matches"] })), "the tree gives the header's root")
        };
        let trailing = is("trailing");
        let damaged = matches!(expect, crate::pack::Expect::One(crate::pack::Answer::Invalid(_)));
        Case::new(comment, input, expect)
            .source(CORE)
            .flag_if(damaged, "Hostile")
            .flag_if(trailing && !damaged, "TrailingBytes")
    });
    let cases: Vec<_> = cases.collect();
    let specified = false_ones(sources).into_iter().map(|case| case.level(Level::Specification));
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
            ("NoDepth", "the number of transactions is the peer's word: a caller that needs certainty asks for the coinbase as well"),
            ("TrailingBytes", "bytes after the message: Core does not look at them"),
        ],
        groups: vec![Group {
            cases: cases.into_iter().chain(specified).collect(),
            ..Group::default()
        }],
    }
}
