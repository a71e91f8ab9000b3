//! Areas of compact filters: filter headers, building a block's filter, checking a claimed one.

use std::collections::{BTreeSet, HashMap};

use bitcoin::bip158::{BlockFilter, FilterHeader, GcsFilterWriter};
use bitcoin::consensus::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, OutPoint, ScriptBuf};
use serde_json::{Value, json};

use crate::pack::{Area, Case, Group, Kind, Level, Member, invalid, member, value};
use crate::sources::{CORE, Sources, bytes, int, list, text};

const BIP: &str = "BIP158, testnet-19.json";
const FILE: &str = "bitcoin/bip158_vectors.json";
const MAINNET: &str = "bitcoin/mainnet_0-255.json";

const BLOCK: Member = member("block", Kind::Bytes, "block");
const PREVOUTS: Member = member(
    "prevout_scripts",
    Kind::List(&Kind::Bytes),
    "scripts of the spent outputs, in the order of the inputs, without the coinbase's",
);

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    let chain = Chain::read(sources);
    vec![headers(sources, &chain), basic(sources, &chain), check(sources)]
}

/// The first 256 blocks of mainnet, whose filter headers were published.
struct Chain {
    blocks: Vec<Block>,
    headers: Vec<String>,
    /// Scripts of all outputs.
    scripts: HashMap<OutPoint, ScriptBuf>,
}

impl Chain {
    fn read(sources: &Sources) -> Self {
        let rows = sources.fixture(MAINNET);
        let blocks: Vec<Block> = list(&rows)
            .iter()
            .map(|row| deserialize(&bytes(&row["block"])).expect("a block"))
            .collect();
        let headers =
            list(&rows).iter().map(|row| text(&row["filter_header"]).to_owned()).collect();
        let mut scripts = HashMap::new();
        for tx in blocks.iter().flat_map(|block| &block.txdata) {
            let txid = tx.compute_txid();
            for (vout, output) in (0..).zip(&tx.output) {
                scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
            }
        }
        Self { blocks, headers, scripts }
    }

    fn prevouts(&self, height: usize) -> Vec<String> {
        let inputs = self.blocks[height].txdata.iter().skip(1).flat_map(|tx| &tx.input);
        inputs.map(|input| hex::encode(&self.scripts[&input.previous_output])).collect()
    }

    /// The filter of a height as the crate `bitcoin` builds it. Its header is the published one.
    fn filter(&self, height: usize) -> Vec<u8> {
        let filter = BlockFilter::new_script_filter(&self.blocks[height], |outpoint| {
            self.scripts
                .get(outpoint)
                .cloned()
                .ok_or(bitcoin::bip158::Error::UtxoMissing(*outpoint))
        })
        .expect("all scripts are known");
        let before = self.before(height);
        let header = filter.filter_header(&before.parse::<FilterHeader>().expect("a header"));
        assert_eq!(header.to_string(), self.headers[height], "the header of {height}");
        filter.content
    }

    fn before(&self, height: usize) -> String {
        match height.checked_sub(1) {
            Some(before) => self.headers[before].clone(),
            None => FilterHeader::all_zeros().to_string(),
        }
    }
}

fn headers(sources: &Sources, chain: &Chain) -> Area {
    let input = |filter: String, previous: &Value| json!({ "filter": filter, "previous_header_display": previous });
    let of_bip = sources.fixture(FILE);
    let of_bip = list(&of_bip).iter().map(|row| {
        let filter = text(&row["basic_filter"]).to_owned();
        let expect = value(json!({ "filter_header_display": row["filter_header"] }));
        let comment = format!("testnet3 {}: the vectors of BIP158 themselves", row["height"]);
        Case::new(comment, input(filter, &row["previous_filter_header"]), expect).source(BIP)
    });
    let of_mainnet = (0..=10).chain([170, 181, 182, 183, 187, 221, 248, 255]).map(|height| {
        let filter = hex::encode(chain.filter(height));
        let expect = value(json!({ "filter_header_display": chain.headers[height] }));
        let case = Case::new(
            match height {
                0 => "mainnet 0: the header before the first one is 32 zero bytes".to_owned(),
                1..=10 => format!("mainnet {height}: one of a chain of headers from the first on"),
                255 => format!("mainnet {height}: depends on the filters of all blocks before it"),
                _ => format!("mainnet {height}: the block spends, so a spent script is an item"),
            },
            input(filter, &json!(chain.before(height))),
            expect,
        );
        if height == 0 { case.named("genesis").flag("Genesis") } else { case }
    });
    let cases: Vec<_> = of_bip.chain(of_mainnet).collect();
    let of_core = sources
        .core("basic_filter")
        .into_iter()
        .filter(|row| text(&row["encoded"]).len() < 1_200)
        .map(|row| {
            let expect = value(json!({ "filter_hash_display": row["filter_hash"] }));
            let zeros = json!("00".repeat(32));
            let comment = format!(
                "a filter of {} items: the hash covers all bytes, the number of items too",
                row["elements"]
            );
            Case::new(comment, input(text(&row["encoded"]).to_owned(), &zeros), expect).source(CORE)
        });
    Area {
        name: "bip157.header",
        title: "Filter hash and filter header",
        about: "The hash is the double SHA-256 of the filter; the header is the double SHA-256 of the \
                hash and the previous header. The one before the first block's is 32 zero bytes.",
        source: "filter headers of mainnet as the project neutrino published them",
        input: vec![
            member("filter", Kind::Bytes, "filter as it is sent"),
            member("previous_header_display", Kind::Fixed(32), "filter header of the block before"),
        ],
        value: vec![
            member("filter_hash_display", Kind::Fixed(32), "hash of the filter"),
            member("filter_header_display", Kind::Fixed(32), "header of the filter"),
        ],
        flags: &[("Genesis", "the first block: nothing comes before it")],
        groups: vec![Group {
            cases: cases
                .into_iter()
                .chain(of_core)
                .map(|case| case.level(Level::Specification))
                .collect(),
            ..Group::default()
        }],
    }
}

fn basic(sources: &Sources, chain: &Chain) -> Area {
    let mut cases = Vec::new();
    for (at, row) in list(&sources.fixture(FILE)).iter().enumerate() {
        let input = json!({ "block": { "from": FILE, "at": format!("/{at}/block") }, "prevout_scripts": row["prevout_scripts"] });
        let (comment, name) = match int(&row["height"]) {
            49_291 => ("an output with an empty script is left out", Some("empty-output")),
            180_480 => {
                ("a spent output with an empty script is left out", Some("spends-empty-output"))
            }
            926_485 => ("scripts that occur twice count once", Some("duplicates")),
            987_876 => (
                "a script that does not parse is an item like any other",
                Some("unparseable-script"),
            ),
            1_263_442 => ("witnesses are no items", Some("witness")),
            1_414_221 => ("no items at all: one byte", Some("no-items")),
            _ => ("a block of testnet3 that has no trap: one of BIP158's own vectors", None),
        };
        let case =
            Case::new(comment, input, value(json!({ "filter": row["basic_filter"] }))).source(BIP);
        cases.push(match name {
            Some(name) => case.named(name),
            None => case,
        });
    }
    for height in [0, 1, 9, 170, 181, 182, 183, 187, 221, 248] {
        let input = json!({ "block": { "from": MAINNET, "at": format!("/{height}/block") }, "prevout_scripts": chain.prevouts(height) });
        let expect = value(json!({ "filter": hex::encode(chain.filter(height)) }));
        let why = match height {
            0 => "the genesis block, whose output nobody can spend",
            1 | 9 => "a coinbase alone: one item",
            _ => "a spent script is an item",
        };
        cases.push(
            Case::new(format!("mainnet {height}: {why}"), input, expect)
                .source("filter headers of mainnet as the project neutrino published them"),
        );
    }
    for row in sources.core("basic_filter") {
        let source = sources.block(text(&row["block"]));
        let (block, prevouts) = match &source.fixture {
            Some(fixture) => {
                let kept = sources.fixture(fixture);
                let scripts: Vec<_> = list(&kept["prevouts"])
                    .iter()
                    .map(|prevout| prevout["script_pubkey"].clone())
                    .collect();
                // A block with many inputs is not repeated here.
                if scripts.len() > 200 {
                    (source.reference(), source.prevouts())
                } else {
                    (source.reference(), json!(scripts))
                }
            }
            None => (source.reference(), source.prevouts()),
        };
        let corpus = prevouts.is_object();
        let input = json!({ "block": block, "prevout_scripts": prevouts });
        let items = int(&row["elements"]);
        let why = match items {
            0 | 1 => "hardly an item: the shortest filters",
            2..100 => "few items, deltas far apart",
            100..2_000 => "a block of some size, with scripts that repeat",
            _ => "a large block: scripts of all kinds, and a number of items in 3 bytes",
        };
        let comment = format!("{} {}, {items} items: {why}", source.chain, source.height);
        let case =
            Case::new(comment, input, value(json!({ "filter": row["encoded"] }))).source(CORE);
        cases.push(if corpus {
            case.needs(source.chain, source.height, &source.hash())
        } else {
            case
        });
    }
    cases.extend(made_blocks());
    cases.push(without_witness());
    Area {
        name: "bip158.basic",
        title: "The basic filter of a block",
        about: "Items are the scripts of all outputs, but for those that are empty or begin with \
                OP_RETURN, and the scripts of all spent outputs that are not empty. P = 19, \
                M = 784,931; the key is the beginning of the block's hash.",
        source: "BIP158 and Bitcoin Core 28.1",
        input: vec![BLOCK, PREVOUTS],
        value: vec![member("filter", Kind::Bytes, "filter as it is sent")],
        flags: &[
            ("OpReturn", "a script that begins with OP_RETURN"),
            ("Hostile", "malformed: must be refused in an orderly way"),
        ],
        groups: vec![Group {
            cases: cases.into_iter().map(|case| case.level(Level::Specification)).collect(),
            ..Group::default()
        }],
    }
}

/// Items of a block's basic filter, by the text of BIP158.
fn items(block: &Block, prevouts: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let outputs = block.txdata.iter().flat_map(|tx| &tx.output);
    let outputs = outputs.map(|output| output.script_pubkey.to_bytes());
    let outputs = outputs.filter(|script| script.first().is_some_and(|first| *first != 0x6a));
    let spent = prevouts.iter().filter(|script| !script.is_empty()).cloned();
    outputs.chain(spent).collect()
}

/// A set with the key of a block.
fn set(block: &Block, items: &BTreeSet<Vec<u8>>) -> String {
    let hash = block.block_hash().to_byte_array();
    let word = |at: usize| u64::from_le_bytes(hash[at..at + 8].try_into().expect("8 bytes"));
    let mut out = Vec::new();
    let mut writer = GcsFilterWriter::new(&mut out, word(0), word(8), 784_931, 19);
    for item in items {
        writer.add_element(item);
    }
    writer.finish().expect("a vector takes all bytes");
    hex::encode(out)
}

/// A block whose scripts must be taken as they stand: it has an output with `output`, and spends one
/// with `spent`.
fn made(name: &'static str, comment: &str, output: &str, spent: &str) -> Case {
    let script = |digits: &str| hex::decode(digits).expect("hex");
    let mut block: Block = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
    let mut spend = block.txdata[0].clone();
    spend.input[0].previous_output = OutPoint { txid: spend.compute_txid(), vout: 0 };
    spend.output[0].script_pubkey = ScriptBuf::from_bytes(script(output));
    block.txdata.push(spend);
    block.header.merkle_root = block.compute_merkle_root().expect("transactions");
    let filter = set(&block, &items(&block, &[script(spent)]));
    let input = json!({ "block": hex::encode(bitcoin::consensus::serialize(&block)), "prevout_scripts": [spent] });
    Case::new(comment, input, value(json!({ "filter": filter })))
        .named(name)
        .source("the text of BIP158, written by the crate bitcoin 0.32")
}

/// A block whose last transaction is written in the form with witnesses, but has none.
fn without_witness() -> Case {
    let mut block: Block = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
    let mut spend = block.txdata[0].clone();
    spend.input[0].previous_output = OutPoint { txid: spend.compute_txid(), vout: 0 };
    block.txdata.push(spend.clone());
    let plain = bitcoin::consensus::serialize(&spend);
    let (version, rest) = plain.split_at(4);
    let (body, lock_time) = rest.split_at(rest.len() - 4);
    // Marker and flag; then the witness of the one input, of no items.
    let extended = [version, &[0, 1], body, &[0], lock_time].concat();
    let whole = bitcoin::consensus::serialize(&block);
    let bytes = [&whole[..whole.len() - plain.len()], &extended].concat();
    deserialize::<Block>(&bytes).expect_err("no witness");
    let input = json!({ "block": hex::encode(bytes), "prevout_scripts": ["51"] });
    Case::new("a transaction in the form with witnesses that has none", input, invalid("malformed"))
        .named("superfluous-witness")
        .flag("Hostile")
        .source("Bitcoin Core 28.1, UnserializeTransaction, as read; the crate bitcoin agrees")
}

fn made_blocks() -> [Case; 4] {
    let longest = format!("4b{}", "77".repeat(75));
    [
        made(
            "op-return-spent",
            "a spent script that begins with OP_RETURN is an item; an output's is not",
            "6a01aa",
            "6a01bb",
        )
        .flag("OpReturn"),
        made(
            "op-return-later",
            "OP_RETURN that is not the first operation: the output is an item",
            "516a",
            "51",
        ),
        made(
            "push-not-minimal",
            "OP_PUSHDATA1 for one byte: the script is not written anew in a shorter form",
            "4c01aa",
            "01aa",
        ),
        made("push-of-75-bytes", "the longest push of one length byte", &longest, "51"),
    ]
}

fn check(sources: &Sources) -> Area {
    let mut cases = Vec::new();
    for height in [170_u64, 57_043] {
        let file = format!("bitcoin/blocks/mainnet_{height}.json");
        let kept = sources.fixture(&file);
        let block: Block = deserialize(&bytes(&kept["block"])).expect("a block");
        let prevouts: Vec<_> = list(&kept["prevouts"])
            .iter()
            .map(|prevout| bytes(&prevout["script_pubkey"]))
            .collect();
        let honest = items(&block, &prevouts);
        let published = text(&kept["basic_filter"]).to_owned();
        assert_eq!(set(&block, &honest), published, "the filter of {height}");
        let case = |comment: &str, filter: String, correct: bool| {
            assert_eq!(filter == published, correct, "{comment}");
            let scripts: Vec<_> = prevouts.iter().map(hex::encode).collect();
            let input = json!({ "block": { "from": file, "at": "/block" }, "prevout_scripts": scripts, "filter": filter });
            Case::new(
                format!("block {height}: {comment}"),
                input,
                value(json!({ "correct": correct })),
            )
            .flag_if(!correct, "FalseFilter")
        };
        let without = |item: &[u8]| {
            let mut items = honest.clone();
            assert!(items.remove(item), "an item");
            set(&block, &items)
        };
        let mut with = honest.clone();
        with.insert(vec![0x51]);
        let output = block.txdata[0].output[0].script_pubkey.to_bytes();
        let mut other = block.clone();
        other.header.nonce ^= 1;
        let mut damaged = bytes(&json!(published));
        let last = damaged.len() - 2;
        damaged[last] ^= 0x10;
        cases.extend([
            case("the filter as it is", published.clone(), true),
            case("an output of the coinbase is left out: hides a payment", without(&output), false),
            case("a spent script is left out: hides a spend", without(&prevouts[0]), false),
            case("an item too many: costs the wallet a block", set(&block, &with), false),
            case("the key of another block", set(&other, &honest), false),
            case("no items at all: hides everything", "00".into(), false),
            case("a damaged byte", hex::encode(damaged), false),
            case("a byte too many", format!("{published}00"), false),
        ]);
    }
    Area {
        name: "bip158.check",
        title: "Judging a claimed filter",
        about: "Compares a filter that a peer claims with its block and the scripts that it spends.",
        source: "BIP158: the honest filters are those of Bitcoin Core 28.1, the false ones are made from \
                 them with the crate bitcoin 0.32",
        input: vec![BLOCK, PREVOUTS, member("filter", Kind::Bytes, "filter as a peer claims it")],
        value: vec![member(
            "correct",
            Kind::Boolean,
            "whether it is the block's filter, byte for byte",
        )],
        flags: &[("FalseFilter", "a peer that sends it lies")],
        groups: vec![Group {
            cases: cases.into_iter().map(|case| case.level(Level::Specification)).collect(),
            ..Group::default()
        }],
    }
}
