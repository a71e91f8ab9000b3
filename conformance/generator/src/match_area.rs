//! Area of the matching of a block's transactions.

use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, OutPoint, Transaction, Txid, consensus};
use serde_json::{Value, json};

use crate::bloom::{Filter, parse};
use crate::match_rules::{expect, is_quirk};
use crate::pack::{Area, Case, Group, Kind, QUIRK, member};
use crate::sources::{BlockSource, CORE, Sources, bytes, int, list, small, text};

const UNIT_TESTS: &str = "Bitcoin Core 28.1, bloom_tests.cpp";
const TEXT: &str = "the text of BIP37 for `bip-text`";

/// A block without proof of work that has these transactions.
pub(crate) fn made_block(transactions: Vec<Transaction>) -> Block {
    let mut block: Block = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
    block.txdata = transactions;
    block.header.merkle_root = block.compute_merkle_root().expect("a transaction");
    block
}

pub(crate) fn area(sources: &Sources) -> Area {
    let mut cases = crate::match_traps::cases();
    cases.extend(unit_tests(sources));
    cases.extend(of_core(sources));
    Area {
        name: "bip37.match",
        title: "Matching of a block's transactions",
        about: "Tests each transaction in the order of the block, and inserts outpoints as the flags \
                say: transaction id, then data pushes of outputs, then spent outpoints, then data \
                pushes of inputs. Witnesses are never tested.\n\nThe text of BIP37 differs from Bitcoin \
                Core in one point: \"Once a match is found the algorithm aborts\", so outputs of a \
                transaction whose id matches are not tested, and none of its outpoints is inserted \
                (`bip-text`). The outputs are read as one step, of which all are tested, because \
                BIP37 inserts the outpoint \"if the filter matches any data element in a \
                scriptPubKey\". Read more literally, the algorithm would end with the first output \
                that matches; no case accepts that. The BIP says nothing about filters without data \
                or hash functions, nor about flags above 2: there only Core's answer is given.",
        source: "Bitcoin Core 28.1, CBloomFilter::IsRelevantAndUpdate; the text of BIP37 for `bip-text`",
        input: vec![
            member("filter", Kind::Bytes, "filterload payload"),
            member("block", Kind::Bytes, "block"),
        ],
        value: vec![
            member("matched", Kind::List(&Kind::Integer), "indices of matching transactions"),
            member("filter_after", Kind::Bytes, "filterload payload afterwards"),
        ],
        flags: &[
            ("NoData", "a filter of 0 bytes matches every transaction"),
            ("NoFunctions", "without hash functions every transaction matches"),
            ("Full", "all bits are set: every transaction matches"),
            ("ReservedFlags", "Core uses the two lowest bits only: 0x81 inserts all, 3 nothing"),
            (
                "InsertedOutpoint",
                "some transactions match only by an outpoint inserted earlier in the block",
            ),
            ("PublicKeyOnly", "outpoints are inserted for bare keys and bare multisig only"),
            (
                "IdAndOutput",
                "the id and an output of one transaction match: by the text of BIP37 the output is not tested",
            ),
        ],
        groups: vec![Group { cases, ..Group::default() }],
    }
}

fn txid(value: &Value) -> Txid {
    text(value).parse().expect("a transaction id")
}

/// The elements that a case of Bitcoin Core's unit tests inserts.
fn elements(row: &Value) -> Vec<Vec<u8>> {
    if row["insert_txid"].is_string() {
        vec![txid(&row["insert_txid"]).to_byte_array().to_vec()]
    } else if let Some(outpoint) = row["insert_outpoint"].as_array() {
        let (txid, vout) = (txid(&outpoint[0]), small(&outpoint[1]));
        vec![serialize(&OutPoint { txid, vout })]
    } else if let Some(elements) = row["insert"].as_array() {
        elements.iter().map(bytes).collect()
    } else {
        vec![bytes(&row["insert"])]
    }
}

fn sized(parts: &Value, elements: &[Vec<u8>]) -> Filter {
    let fpr = parts["fpr"].as_f64().expect("a rate");
    let (tweak, flags) = (small(&parts["tweak"]), small(&parts["flags"]));
    let mut filter = Filter::sized(int(&parts["elements"]), fpr, tweak, flags);
    for element in elements {
        filter.insert(element);
    }
    filter
}

fn unit_tests(sources: &Sources) -> Vec<Case> {
    let vectors = sources.fixture("bitcoin/bip37_vectors.json");
    let transaction = |name: &str| -> Transaction {
        consensus::deserialize(&bytes(&vectors["transactions"][name]["hex"]))
            .expect("a transaction")
    };
    let mut cases = Vec::new();
    for row in list(&vectors["matching"]) {
        let filter = sized(&row["filter"], &elements(row));
        let mut transactions = vec![transaction(text(&row["transaction"]))];
        let mut matched = if row["matches"] == true { vec![0] } else { vec![] };
        if row["then_spending_matches"] == true {
            transactions.push(transaction("spending"));
            matched.push(1);
        }
        let block = made_block(transactions);
        let expect = expect(&filter, &block, &matched, None);
        let input = json!({ "filter": filter.payload(), "block": hex::encode(serialize(&block)) });
        let comment = format!("a test of Core's own authors: {}", text(&row["why"]));
        cases.push(Case::new(comment, input, expect).source(UNIT_TESTS));
    }
    for row in list(&vectors["merkle_blocks"]) {
        let step = &row["steps"][0];
        let Some(matches) = step["matches"].as_array() else { continue };
        let filter = sized(&row["filter"], &elements(step));
        let matched: Vec<_> = matches.iter().map(|pair| small(&pair[0])).collect();
        let name = text(&row["block"]);
        let block: Block =
            consensus::deserialize(&bytes(&vectors["blocks"][name])).expect("a block");
        let at = format!("/blocks/{name}");
        let input = json!({ "filter": filter.payload(), "block": { "from": "bitcoin/bip37_vectors.json", "at": at } });
        cases.push(
            Case::new(
                "a block of Core's unit tests: the matches were written down by Core's authors",
                input,
                expect(&filter, &block, &matched, None),
            )
            .source(UNIT_TESTS),
        );
    }
    cases
}

/// Blocks that Bitcoin Core has matched.
fn of_core(sources: &Sources) -> Vec<Case> {
    let mut cases = Vec::new();
    for row in sources.core("match").into_iter().chain(sources.core("update")) {
        let Some(payload) = row["filterload"].as_str() else { continue };
        let filter = parse(&hex::decode(payload).expect("hex"));
        let made = row["block_hex"].as_str();
        // Made blocks are plenty: the small ones show as much.
        if made.is_some_and(|block| block.len() > 4_500) || payload.len() > 4_000 {
            continue;
        }
        let source = made.is_none().then(|| sources.block(text(&row["block"])));
        // Bitcoin Core filters a block only for a filter within the limits.
        if row["within_size"] == false {
            continue;
        }
        let (reference, block): (Value, Block) = if let Some(source) = &source {
            (source.reference(), source.block.clone())
        } else {
            let made = made.expect("a made block");
            let bytes = hex::decode(made).expect("hex");
            (json!(made), consensus::deserialize(&bytes).expect("a block"))
        };
        let matched: Vec<_> = list(&row["matched"]).iter().map(small).collect();
        let after = text(&row["filterload_after"]);
        let expect = expect(&filter, &block, &matched, Some(after));
        let differs = matches!(expect, crate::pack::Expect::AnyOf(_));
        let spends =
            row["only_by_inserted_outpoint"].as_array().is_some_and(|list| !list.is_empty());
        let comment =
            comment(&filter, source.as_ref(), matched.len(), block.txdata.len(), spends, differs);
        let input = json!({ "filter": payload, "block": reference });
        let is_full = !filter.data.is_empty() && filter.data.iter().all(|byte| *byte == 0xff);
        let case = Case::new(comment, input, expect)
            .flag_if(filter.data.is_empty(), "NoData")
            .flag_if(is_quirk(&filter), QUIRK)
            .flag_if(filter.hash_funcs == 0 && !filter.data.is_empty(), "NoFunctions")
            .flag_if(is_full, "Full")
            .flag_if(filter.flags > 2, "ReservedFlags")
            .flag_if(spends, "InsertedOutpoint")
            .flag_if(filter.flags & 3 == 2, "PublicKeyOnly")
            .flag_if(differs, "IdAndOutput")
            .source(if differs { format!("{CORE}; {TEXT}") } else { CORE.to_owned() });
        cases.push(source.map_or(case.clone(), |source| source.needed_by(case)));
    }
    cases
}

/// Why a block that Bitcoin Core has matched is among the cases.
fn comment(
    filter: &Filter,
    source: Option<&BlockSource>,
    matched: usize,
    transactions: usize,
    spends: bool,
    differs: bool,
) -> String {
    let block = match source {
        Some(source) => format!("{} {}", source.chain, source.height),
        None => "a made block".to_owned(),
    };
    let why = if filter.data.is_empty() {
        "a filter without data must match everything and stay as it is"
    } else if filter.hash_funcs == 0 {
        "a filter without hash functions must match everything"
    } else if differs {
        "an id matches, and so does an output: only Core tests the output, and takes in its outpoint"
    } else if filter.flags > 2 {
        "reserved flags must be masked, not refused"
    } else if spends && filter.flags & 3 == 2 {
        "spends are found only if the outpoints of keys are taken in, and no others"
    } else if spends {
        "spends are found only if outpoints are taken in at once, within the block"
    } else if matched == transactions && transactions > 1 {
        "everything matches: no transaction may stop the block"
    } else if matched == 0 {
        "no match at all: a single bit that is computed wrongly may make one"
    } else if filter.flags.trailing_zeros() >= 2 {
        "matches by elements and by chance, and the filter must stay as it is"
    } else if filter.flags & 3 == 2 {
        "matches by elements and by chance, and only keys may change the filter"
    } else {
        "matches by elements and by chance, each of which changes the filter for what follows"
    };
    format!("{block}, {matched} of {transactions} match: {why}")
}
