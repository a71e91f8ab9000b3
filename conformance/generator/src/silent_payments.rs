//! Areas of silent payments, BIP352: the tweak of a transaction, its outputs to a wallet, and the
//! outputs that a sender makes.

use bitcoin::consensus::{self, Decodable};
use bitcoin::{Block, Script, Transaction, Txid, VarInt, Witness};
use serde_json::{Map, Value, json};

use crate::pack::{
    Answer, Area, Case, Expect, Group, Kind, Level, Member, member, optional, sides, value,
};
use crate::sources::{Sources, bytes, int, list, text};

const SOURCE: &str = "BIP352";

/// What a test of a file is named and flagged here, and why it is there. The tests keep the order of
/// their file.
type Test = (&'static str, &'static [&'static str], &'static str);

const OFFICIAL: &[Test] = &[
    (
        "two-inputs",
        &[],
        "two P2PKH inputs: the keys are in the signature scripts, and their sum counts",
    ),
    (
        "one-transaction-twice",
        &[],
        "both inputs spend one transaction: the output's number decides which is smaller",
    ),
    (
        "outpoint-order",
        &[],
        "the smallest outpoint by its 36 bytes: output 256 comes before output 1",
    ),
    ("one-key-twice", &[], "two inputs have one key, and it counts twice"),
    ("taproot-inputs", &[], "the key of a taproot input is its output key"),
    ("taproot-and-another", &[], "a taproot input beside one of another kind"),
    ("two-outputs-to-one", &[], "k goes up with each output to one scan key"),
    ("three-outputs-to-two", &["Several"], "k starts at 0 for each scan key"),
    ("label", &["Label"], "an output to a label: its key is the spend key plus the label's"),
    ("large-label", &["Label"], "a label above 1,000,000: labels are no small list"),
    ("label-and-none", &["Label", "Several"], "the recipient's plain and labelled address share k"),
    (
        "several-to-a-label",
        &["Label", "Several"],
        "four outputs to plain and labelled addresses: each order of k is right",
    ),
    ("change-label", &["Label"], "label 0 is for change: a wallet always looks for it"),
    (
        "internal-key-h",
        &["NoKey", "InternalKeyH"],
        "a script path whose internal key has no owner adds no key",
    ),
    ("uncompressed-keys", &["NoKey"], "an uncompressed key adds no key to the sum"),
    ("unrelated-outputs", &[], "outputs of others: nothing is found"),
    ("no-keys", &["NoKey", "Skipped"], "no input has a key: no payment can be made or found"),
    (
        "keys-cancel",
        &["Cancel", "Skipped"],
        "the keys' sum is the point at infinity: sending fails",
    ),
    (
        "above-the-limit",
        &["Limit"],
        "2,324 outputs to one scan key: one more than may be sent or looked for",
    ),
];

const MORE: &[Test] = &[
    (
        "spends-segwit-2",
        &["Skipped"],
        "a transaction that spends a later version of segwit is skipped, whatever its other inputs are",
    ),
    (
        "pay-to-anchor",
        &["NoKey"],
        "pay-to-anchor is segwit version 1 of 2 bytes: not skipped; its outpoint is the smallest",
    ),
    (
        "segwit-1-of-33-bytes",
        &["NoKey"],
        "a program of version 1 that is not taproot: not skipped, without a key",
    ),
    (
        "smallest-outpoint-without-key",
        &["NoKey"],
        "the outpoint of an input without a key is the smallest, and counts",
    ),
    (
        "annex",
        &["Annex"],
        "a key path with an annex: the witness has two elements, and is no script path",
    ),
    (
        "internal-key-h-and-annex",
        &["NoKey", "InternalKeyH", "Annex", "Skipped"],
        "the annex goes before the control block is looked for; then no key is left",
    ),
    (
        "internal-key-h-beside-a-key",
        &["NoKey", "InternalKeyH"],
        "only the other input's key counts",
    ),
    (
        "internal-key-h-of-two-steps",
        &["NoKey", "InternalKeyH"],
        "a longer control block begins with the internal key as well",
    ),
    ("hybrid-key", &["NoKey"], "a hybrid key (65 bytes, 06 or 07 first) is not compressed"),
    (
        "odd-y-cancels",
        &["Cancel", "Skipped"],
        "a taproot input is taken with even y: the same key in P2WPKH, of odd y, cancels it",
    ),
    ("reverse-order", &[], "outputs in reverse order of k: each k is looked for in all outputs"),
    (
        "off-the-curve",
        &["OffTheCurve"],
        "an output whose 32 bytes are no x of the curve is passed over",
    ),
    (
        "off-the-curve-and-labels",
        &["OffTheCurve", "Label"],
        "the same where labels are looked for by subtracting from each output",
    ),
    ("labels-in-turn", &["Label"], "label 0, then label 7, then none: each counts for one k"),
    (
        "unknown-label",
        &["Label"],
        "an output to a label that is not looked for ends the search, and hides the next one",
    ),
    ("largest-output-number", &[], "an output number near 2^32: 4 bytes, little-endian"),
];

const FLAGS: &[(&str, &str)] = &[
    ("Annex", "a taproot input has an annex, the last element that begins with 50"),
    ("Cancel", "the keys of the inputs sum up to the point at infinity"),
    ("Chain", "a transaction of a chain"),
    ("InternalKeyH", "a script path whose internal key is H, the point that nobody has a key of"),
    ("Label", "the wallet looks for labels"),
    ("Limit", "more outputs than K_max, 2,323"),
    ("NoKey", "an input adds no key; its outpoint counts all the same"),
    ("OffTheCurve", "an output whose key is no point of the curve"),
    ("Several", "several sets of outputs are right"),
    ("Skipped", "the transaction is not scanned"),
];

const INPUT: &[Member] = &[
    member(
        "outpoint",
        Kind::Fixed(36),
        "transaction id in wire order, then the output's number, little-endian",
    ),
    member("script_sig", Kind::Bytes, "script of the input"),
    member("witness", Kind::List(&Kind::Bytes), "elements of the witness"),
    member("prevout_script", Kind::Bytes, "script of the spent output"),
];

const SENDERS_INPUT: &[Member] = &[
    INPUT[0],
    INPUT[1],
    INPUT[2],
    INPUT[3],
    member("private_key", Kind::Fixed(32), "the key that signs"),
];

const FOUND: &[Member] = &[
    member("public_key", Kind::Fixed(32), "key of the output"),
    member(
        "private_key_tweak",
        Kind::Fixed(32),
        "what is added to `b_spend`, with the label's part",
    ),
];

const RECIPIENT: &[Member] = &[
    member("address", Kind::Text, "silent payment address"),
    optional("count", Kind::Integer, "so many outputs to it; 1 if absent"),
];

const INPUTS: Member = member("inputs", Kind::List(&Kind::Object(INPUT)), "the inputs in order");

const TWEAK: Member = member(
    "tweak",
    Kind::Bytes,
    "compressed point `input_hash · A`, of 33 bytes; empty if the transaction is not scanned",
);

/// Flags of what a sender makes or a recipient looks for: the transaction's tweak has no trap.
const ONE_SIDED: &[&str] = &["Label", "Several", "Limit", "OffTheCurve"];

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    let official = sources.corpus_json("silent_payments/bip352/send_and_receive.json");
    let official: Vec<_> = list(&official).iter().zip(OFFICIAL).collect();
    let more = sources.corpus_json("silent_payments/bip352/more_receiving.json");
    let more: Vec<_> = list(&more).iter().zip(MORE).collect();
    assert!(official.len() == OFFICIAL.len() && more.len() == MORE.len(), "a test without a name");

    let mut send = Vec::new();
    let mut receive = Vec::new();
    let mut tweak = block(sources);
    for (entry, test) in official {
        send.extend(list(&entry["sending"]).iter().map(|entry| sending(entry, test)));
        for (at, entry) in list(&entry["receiving"]).iter().enumerate() {
            // Of several wallets of one test, the first has its name.
            let case = receiving(entry, test);
            receive.push(if at == 0 { case.named(test.0) } else { case });
            tweak.push(tweak_of(entry, test));
        }
    }
    tweak.push(malleated(&tweak));
    for (entry, test) in more {
        let source = source_of(test);
        receive.push(receiving(entry, test).named(test.0).source(source));
        tweak.push(tweak_of(entry, test).source(source));
    }
    vec![
        Area {
            name: "bip352.tweak",
            title: "The tweak of a transaction for silent payments",
            about: "Which inputs have a key, which transactions are scanned, and the point that an index \
                    serves to light clients: the sum of the inputs' keys, multiplied by the input hash.",
            source: SOURCE,
            input: vec![
                INPUTS,
                member(
                    "output_scripts",
                    Kind::List(&Kind::Bytes),
                    "scripts of the outputs in order",
                ),
            ],
            value: vec![TWEAK],
            flags: FLAGS,
            groups: vec![Group { cases: tweak, ..Group::default() }],
        },
        Area {
            name: "bip352.receive",
            title: "The outputs of a transaction that pay a silent payment wallet",
            about: "The wallet looks for its plain address and for the labels given. Outputs are in \
                    ascending order of their keys. Where there are very many, only their number is compared.",
            source: SOURCE,
            input: vec![
                INPUTS,
                member("outputs", Kind::List(&Kind::Fixed(32)), "keys of the taproot outputs"),
                member("scan_private_key", Kind::Fixed(32), "`b_scan`"),
                member("spend_private_key", Kind::Fixed(32), "`b_spend`"),
                member("labels", Kind::List(&Kind::Integer), "labels to look for"),
            ],
            value: vec![
                TWEAK,
                member("outputs", Kind::List(&Kind::Object(FOUND)), "the outputs found"),
                member("count", Kind::Integer, "number of the outputs found"),
            ],
            flags: FLAGS,
            groups: vec![Group { cases: receive, ..Group::default() }],
        },
        Area {
            name: "bip352.send",
            title: "The outputs that pay silent payment addresses",
            about: "Recipients that share a scan key share k, and no rule says which of them comes \
                    first: each order is right. Where sending must fail, an answer without outputs is as \
                    good as a refusal. Outputs are in ascending order of their keys.",
            source: SOURCE,
            input: vec![
                member(
                    "inputs",
                    Kind::List(&Kind::Object(SENDERS_INPUT)),
                    "the inputs in order, with their keys",
                ),
                member("recipients", Kind::List(&Kind::Object(RECIPIENT)), "the recipients"),
            ],
            value: vec![member("outputs", Kind::List(&Kind::Fixed(32)), "keys of the outputs")],
            flags: FLAGS,
            groups: vec![Group { cases: send, ..Group::default() }],
        },
    ]
}

/// Who reads the inputs of a test: only a sender has the keys.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Sender,
    Recipient,
}

/// The inputs of a test.
fn inputs(entry: &Value, side: Side) -> Value {
    let input = |input: &Value| {
        let txid: Txid = text(&input["txid"]).parse().expect("a transaction id");
        let vout = u32::try_from(int(&input["vout"])).expect("32 bits");
        let witness = bytes(&input["txinwitness"]);
        let witness: Witness = if witness.is_empty() {
            Witness::new()
        } else {
            consensus::deserialize(&witness).expect("a witness")
        };
        let script = &input["prevout"]["scriptPubKey"]["hex"];
        let mut json = input_json(
            &[consensus::serialize(&txid), vout.to_le_bytes().to_vec()].concat(),
            &bytes(&input["scriptSig"]),
            &witness,
            &bytes(script),
        );
        if side == Side::Sender {
            json["private_key"] = input["private_key"].clone();
        }
        json
    };
    list(&entry["given"]["vin"]).iter().map(input).collect()
}

fn input_json(outpoint: &[u8], script_sig: &[u8], witness: &Witness, script: &[u8]) -> Value {
    json!({ "outpoint": hex::encode(outpoint), "script_sig": hex::encode(script_sig),
        "witness": witness.iter().map(hex::encode).collect::<Vec<_>>(),
        "prevout_script": hex::encode(script) })
}

/// The tweak that a test expects; a test of a transaction that is not scanned has none.
fn expected_tweak(entry: &Value) -> Value {
    let tweak = &entry["expected"]["tweak"];
    if tweak.is_null() { json!("") } else { tweak.clone() }
}

/// Who computed the answers of a test that is not BIP352's. The BIP's own program does not know the
/// rule about later versions of segwit, and stops at outputs that are no points.
fn source_of(test: &Test) -> &'static str {
    if test.0 == "spends-segwit-2" || test.1.contains(&"OffTheCurve") {
        "made for BIP352's rules; computed by a program written from the text"
    } else {
        "made for BIP352's rules; computed by two programs, one of them BIP352's own"
    }
}

fn case(test: &Test, hidden: &[&str], input: Value, expect: Expect) -> Case {
    let case = Case::new(test.2, input, expect).level(Level::Specification);
    let flags = test.1.iter().filter(|flag| !hidden.contains(flag));
    flags.fold(case, |case, flag| case.flag(flag))
}

fn tweak_of(entry: &Value, test: &Test) -> Case {
    let scripts = list(&entry["given"]["outputs"]).iter().map(|key| format!("5120{}", text(key)));
    let input = json!({ "inputs": inputs(entry, Side::Recipient), "output_scripts": scripts.collect::<Vec<_>>() });
    let (name, flags, _) = test;
    let expect = value(json!({ "tweak": expected_tweak(entry) }));
    if flags.iter().any(|flag| ONE_SIDED.contains(flag)) {
        let comment =
            format!("the transaction of bip352.receive/{name}: its tweak is like any other");
        return Case::new(comment, input, expect).level(Level::Specification);
    }
    case(test, &[], input, expect).named(name)
}

/// The first test with more in a signature script: the key is found by its hash, so the tweak is the
/// same.
fn malleated(tweaks: &[Case]) -> Case {
    let honest = tweaks.iter().find(|case| case.is_named("two-inputs")).expect("the first test");
    let mut input = honest.input().clone();
    let script = &mut input["inputs"][0]["script_sig"];
    *script = json!(format!("{}0075", text(script)));
    let comment = "OP_0 and OP_DROP after the key: a key is found by its hash wherever it stands";
    case(&("malleated", &[], comment), &[], input, honest.expect().clone()).named("malleated")
}

fn receiving(entry: &Value, test: &Test) -> Case {
    let (given, expected) = (&entry["given"], &entry["expected"]);
    let keys = &given["key_material"];
    let input = json!({ "inputs": inputs(entry, Side::Recipient), "outputs": given["outputs"],
        "scan_private_key": keys["scan_priv_key"], "spend_private_key": keys["spend_priv_key"],
        "labels": given["labels"] });
    let mut found = Map::new();
    found.insert("tweak".into(), expected_tweak(entry));
    if let Some(number) = expected.get("n_outputs") {
        found.insert("count".into(), number.clone());
    } else {
        let mut outputs = list(&expected["outputs"]).to_vec();
        outputs.sort_by_key(|output| text(&output["pub_key"]).to_owned());
        let outputs: Vec<_> = outputs.iter().map(|output| {
            json!({ "public_key": output["pub_key"], "private_key_tweak": output["priv_key_tweak"] })
        }).collect();
        found.insert("count".into(), json!(outputs.len()));
        found.insert("outputs".into(), json!(outputs));
    }
    case(test, &["Several"], input, value(Value::Object(found)))
}

fn sending(entry: &Value, test: &Test) -> Case {
    let recipients = list(&entry["given"]["recipients"]).iter().map(|recipient| {
        let mut json = json!({ "address": recipient["address"] });
        if let Some(count) = recipient.get("count") {
            json["count"] = count.clone();
        }
        json
    });
    let input = json!({ "inputs": inputs(entry, Side::Sender), "recipients": recipients.collect::<Vec<_>>() });
    let mut sets: Vec<_> = list(&entry["expected"]["outputs"])
        .iter()
        .map(|set| {
            let mut set: Vec<_> = list(set).iter().map(|key| text(key).to_owned()).collect();
            set.sort();
            Answer::Value(json!({ "outputs": set }))
        })
        .collect();
    if sets == [Answer::Value(json!({ "outputs": [] }))] {
        sets.push(Answer::Invalid("no payment can be made"));
    }
    let expect = sides(sets.into_iter().map(|set| ("bip-text", set)));
    case(test, &["OffTheCurve"], input, expect).named(test.0)
}

/// Height of a block whose tweaks are known, and how many of its transactions are cases: the shortest
/// that are scanned, that are scanned and spend from a script hash, that have no key, and that have no
/// taproot output.
const HEIGHT: u64 = 866_342;
const TAKEN: [usize; 4] = [40, 10, 15, 10];

/// Transactions of a block, as an index of tweaks sees them.
fn block(sources: &Sources) -> Vec<Case> {
    let name = format!("bitcoin/mainnet/blocks/block_{HEIGHT}");
    let block: Block =
        consensus::deserialize(&sources.corpus(&format!("{name}.raw"))).expect("a block");
    let spent = sources.corpus(&format!("{name}.prevouts.bin"));
    let mut spent = &spent[..];
    let index = sources.corpus_json(&format!("silent_payments/index/mainnet_{HEIGHT}.json"));
    let tweaks: Map<String, Value> =
        list(&index["rows"]).iter().map(|row| (text(&row[1]).to_owned(), row[2].clone())).collect();
    let mut kinds = [const { Vec::new() }; 4];
    for transaction in &block.txdata[1..] {
        let mut spends_script_hash = false;
        let inputs: Value = transaction
            .input
            .iter()
            .map(|input| {
                let script = spent_script(&mut spent);
                spends_script_hash |= Script::from_bytes(script).is_p2sh();
                let outpoint = consensus::serialize(&input.previous_output);
                input_json(&outpoint, input.script_sig.as_bytes(), &input.witness, script)
            })
            .collect();
        let scripts = transaction.output.iter().map(|output| hex::encode(&output.script_pubkey));
        let input = json!({ "inputs": inputs, "output_scripts": scripts.collect::<Vec<_>>() });
        let txid = transaction.compute_txid().to_string();
        let (kind, why) = match tweaks.get(&txid) {
            Some(_) if spends_script_hash => (1, "is scanned, and spends from a script hash"),
            Some(_) => (0, "is scanned"),
            None if has_taproot_output(transaction) => (2, "has no input with a key"),
            None => (3, "has no taproot output"),
        };
        let comment = format!("a real transaction that {why}: {txid}");
        let tweak = tweaks.get(&txid).cloned().unwrap_or_else(|| json!(""));
        let case = Case::new(comment, input.clone(), value(json!({ "tweak": tweak })))
            .level(Level::Specification)
            .source(format!(
                "mainnet block {HEIGHT}; computed by two programs, one of them BIP352's own"
            ))
            .flag("Chain")
            .flag_if(kind > 1, "Skipped");
        kinds[kind].push((input.to_string().len(), case));
    }
    assert!(
        spent.is_empty() && kinds[0].len() + kinds[1].len() == tweaks.len(),
        "the block is that of the index"
    );
    let mut cases = Vec::new();
    for (mut kind, taken) in kinds.into_iter().zip(TAKEN) {
        kind.sort_by_key(|(len, _)| *len);
        cases.extend(kind.into_iter().take(taken).map(|(_, case)| case));
    }
    cases
}

fn has_taproot_output(transaction: &Transaction) -> bool {
    transaction.output.iter().any(|output| output.script_pubkey.is_p2tr())
}

/// Reads a spent output, value and script, and returns the script.
fn spent_script<'a>(spent: &mut &'a [u8]) -> &'a [u8] {
    *spent = &spent[8..];
    let len = VarInt::consensus_decode(spent).expect("a length").0;
    let (script, rest) = spent.split_at(usize::try_from(len).expect("a length that fits"));
    *spent = rest;
    script
}
