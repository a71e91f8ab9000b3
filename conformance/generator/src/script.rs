//! Areas of scripts: the data that BIP37 tests, and the kinds of outputs that it tells apart.

use serde_json::{Value, json};

use crate::pack::{Area, Case, Group, Kind, member, value};
use crate::sources::{CORE, Sources, list, text};

const SCRIPT: &[crate::pack::Member] = &[member("script", Kind::Bytes, "script")];

/// Scripts whose reading has a trap, with what Bitcoin Core makes of them.
struct Trap {
    name: &'static str,
    comment: &'static str,
    script: String,
    pushes: Vec<String>,
    well_formed: bool,
    kind: &'static str,
}

fn traps() -> Vec<Trap> {
    let trap = |name, comment, script: &str, pushes: &[&str], well_formed, kind| Trap {
        name,
        comment,
        script: script.to_owned(),
        pushes: pushes.iter().map(|push| (*push).to_owned()).collect(),
        well_formed,
        kind,
    };
    let key = |header: &str, len: usize| format!("{header}{}", "11".repeat(len - 1));
    let short = key("02", 33);
    let long = key("04", 65);
    let bare = |key: &str| format!("{:02x}{key}ac", key.len() / 2);
    let mut traps = vec![
        trap("empty", "an empty script", "", &[], true, "other"),
        trap("empty-push", "OP_0 pushes nothing: it is no data", "00", &[], true, "other"),
        trap(
            "small-numbers",
            "OP_1NEGATE, OP_1 and OP_16 carry no data",
            "4f5160",
            &[],
            true,
            "other",
        ),
        trap(
            "pushdata1",
            "OP_PUSHDATA1 of 1 byte: not minimal, but data",
            "4c01aa",
            &["aa"],
            true,
            "other",
        ),
        trap("empty-pushdata1", "OP_PUSHDATA1 of 0 bytes: no data", "4c00", &[], true, "other"),
        trap("empty-pushdata2", "OP_PUSHDATA2 of 0 bytes: no data", "4d0000", &[], true, "other"),
        trap(
            "empty-pushdata4",
            "OP_PUSHDATA4 of 0 bytes: no data",
            "4e00000000",
            &[],
            true,
            "other",
        ),
        trap("pushdata2", "OP_PUSHDATA2 of 1 byte", "4d0100aa", &["aa"], true, "other"),
        trap("pushdata4", "OP_PUSHDATA4 of 1 byte", "4e01000000aa", &["aa"], true, "other"),
        trap(
            "data-then-truncated",
            "a push, then one that ends too early: the first counts",
            "01aa02bb",
            &["aa"],
            false,
            "other",
        ),
        trap("truncated", "a push that ends too early", "02aa", &[], false, "other"),
        trap(
            "truncated-pushdata1",
            "OP_PUSHDATA1 without a length",
            "01aa4c",
            &["aa"],
            false,
            "other",
        ),
        trap(
            "truncated-pushdata2",
            "OP_PUSHDATA2 with half a length",
            "01aa4d01",
            &["aa"],
            false,
            "other",
        ),
        trap(
            "truncated-pushdata4",
            "OP_PUSHDATA4 with three quarters of a length",
            "01aa4e010000",
            &["aa"],
            false,
            "other",
        ),
        trap(
            "pushdata4-of-4-gib",
            "OP_PUSHDATA4 of 2^32 - 1 bytes",
            "01aa4effffffffbb",
            &["aa"],
            false,
            "other",
        ),
        trap("op-return", "data after OP_RETURN counts", "6a02aabb", &["aabb"], true, "other"),
        trap(
            "witness-program",
            "the program of P2WPKH is data",
            &format!("0014{}", "22".repeat(20)),
            &["22".repeat(20).as_str()],
            true,
            "other",
        ),
        trap(
            "bare-key-by-pushdata1",
            "a key pushed by OP_PUSHDATA1 is no bare key: Solver compares the script's first byte",
            &format!("4c{}", bare(&short)),
            &[short.as_str()],
            true,
            "other",
        ),
        trap("bare-key", "a key of 33 bytes", &bare(&short), &[short.as_str()], true, "pubkey"),
        trap(
            "bare-key-uncompressed",
            "a key of 65 bytes",
            &bare(&long),
            &[long.as_str()],
            true,
            "pubkey",
        ),
    ];
    for (name, header, len, is_key) in [
        ("key-header-ff", "ff", 33, false),
        ("key-header-03", "03", 33, true),
        ("key-header-04-short", "04", 33, false),
        ("key-header-06", "06", 65, true),
        ("key-header-07", "07", 65, true),
        ("key-header-02-long", "02", 65, false),
        ("key-header-05", "05", 65, false),
        ("key-of-32-bytes", "02", 32, false),
    ] {
        let key = key(header, len);
        let kind = if is_key { "pubkey" } else { "other" };
        let comment =
            "a bare key is one only if its first byte fits its length: CPubKey::ValidSize";
        traps.push(trap(name, comment, &bare(&key), &[key.as_str()], true, kind));
    }
    let multisig = |m: &str, keys: &[&str], n: &str, end: &str| {
        let keys: Vec<_> = keys.iter().map(|key| format!("{:02x}{key}", key.len() / 2)).collect();
        let keys = keys.concat();
        format!("{m}{keys}{n}{end}")
    };
    let s = short.as_str();
    let odd = key("05", 33);
    for (name, comment, script, keys, kind) in [
        ("multisig-1-of-1", "1 of 1", multisig("51", &[s], "51", "ae"), vec![s], "multisig"),
        ("multisig-2-of-2", "2 of 2", multisig("52", &[s, s], "52", "ae"), vec![s, s], "multisig"),
        ("multisig-more-than-keys", "2 of 1", multisig("52", &[s], "51", "ae"), vec![s], "other"),
        (
            "multisig-other-count",
            "1 key, said to be 2",
            multisig("51", &[s], "52", "ae"),
            vec![s],
            "other",
        ),
        ("multisig-0-of-1", "0 of 1", multisig("00", &[s], "51", "ae"), vec![s], "other"),
        (
            "multisig-odd-key",
            "a key whose first byte does not fit",
            multisig("51", &[&odd], "51", "ae"),
            vec![odd.as_str()],
            "other",
        ),
        (
            "multisig-number-as-push",
            "n as a push of one byte: not minimal",
            multisig("51", &[s], "0101", "ae"),
            vec![s, "01"],
            "other",
        ),
        (
            "multisig-m-as-push",
            "m as a push of one byte, which OP_1 would say: not minimal",
            multisig("0101", &[s], "51", "ae"),
            vec!["01", s],
            "other",
        ),
        (
            "multisig-key-by-pushdata1",
            "a key pushed by OP_PUSHDATA1: of keys, only the bytes count, not the push",
            format!("514c{}51ae", &bare(s)[..68]),
            vec![s],
            "multisig",
        ),
        (
            "multisig-nop-for-n",
            "OP_NOP in the place of n",
            multisig("51", &[s], "61", "ae"),
            vec![s],
            "other",
        ),
        (
            "multisig-verify",
            "CHECKMULTISIGVERIFY",
            multisig("51", &[s], "51", "af"),
            vec![s],
            "other",
        ),
        (
            "multisig-and-more",
            "another operation after it",
            multisig("51", &[s], "51", "ae61"),
            vec![s],
            "other",
        ),
    ] {
        traps.push(trap(name, comment, &script, &keys, true, kind));
    }
    let many = vec![s; 257];
    traps.push(trap(
        "multisig-257-keys-said-to-be-1",
        "257 keys, said to be 1: a counter of one byte is 1 as well",
        &multisig("51", &many, "51", "ae"),
        &many,
        true,
        "other",
    ));
    let seventeen = vec![s; 17];
    traps.push(trap(
        "multisig-1-of-17",
        "17 keys: n as a minimal push",
        &multisig("51", &seventeen, "0111", "ae"),
        &[seventeen.clone(), vec!["11"]].concat(),
        true,
        "multisig",
    ));
    traps.push(trap(
        "multisig-17-of-17",
        "17 of 17: m as a minimal push, too",
        &multisig("0111", &seventeen, "0111", "ae"),
        &[vec!["11"], seventeen.clone(), vec!["11"]].concat(),
        true,
        "multisig",
    ));
    let twenty = vec![s; 20];
    traps.push(trap(
        "multisig-1-of-20",
        "20 keys: the most",
        &multisig("51", &twenty, "0114", "ae"),
        &[twenty.clone(), vec!["14"]].concat(),
        true,
        "multisig",
    ));
    let twenty_one = vec![s; 21];
    traps.push(trap(
        "multisig-1-of-21",
        "21 keys: one too many",
        &multisig("51", &twenty_one, "0115", "ae"),
        &[twenty_one.clone(), vec!["15"]].concat(),
        true,
        "other",
    ));
    let three_hundred = vec![s; 300];
    traps.push(trap(
        "300-keys",
        "300 keys: a counter of one byte overflows",
        &multisig("51", &three_hundred, "60", "ae"),
        &three_hundred,
        true,
        "other",
    ));
    traps
}

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    let mut pushes = Vec::new();
    let mut kinds = Vec::new();
    for trap in traps() {
        let input = json!({ "script": trap.script });
        let flag = |case: Case| {
            case.named(trap.name).source("Bitcoin Core 28.1, GetOp and Solver, as read")
        };
        let of_pushes = json!({ "pushes": trap.pushes, "well_formed": trap.well_formed });
        pushes.push(flag(
            Case::new(trap.comment, input.clone(), value(of_pushes))
                .flag_if(!trap.well_formed, "Malformed"),
        ));
        kinds.push(flag(Case::new(trap.comment, input, value(json!({ "kind": trap.kind })))));
    }
    for row in sources.core("script") {
        let len = text(&row["script"]).len();
        let input = json!({ "script": row["script"] });
        let malformed = row["well_formed"] == Value::Bool(false);
        let of_pushes = json!({ "pushes": row["pushes"], "well_formed": row["well_formed"] });
        if len < 1_400 {
            let number = list(&row["pushes"]).len();
            let why = match (malformed, number) {
                (true, _) => ", then a malformed one: what comes before it counts",
                (false, 0) => ": operations and empty pushes are no data",
                _ => ": lengths of each form, at random",
            };
            let comment = format!("{number} pushes{why}");
            pushes.push(
                Case::new(comment, input.clone(), value(of_pushes)).flag_if(malformed, "Malformed"),
            );
            let kind = text(&row["type"]);
            let why = match kind {
                "pubkey" => "pubkey: wallets with bare keys rely on it",
                "multisig" => "multisig: wallets with bare multisig rely on it",
                _ if malformed => "does not parse: never a reason to insert",
                _ => {
                    "almost a key or multisig, or nothing like it: inserting too much fills the filter"
                }
            };
            kinds.push(Case::new(
                format!("{} bytes, {why}", len / 2),
                input,
                value(json!({ "kind": kind })),
            ));
        }
    }
    vec![
        Area {
            name: "script.pushes",
            title: "Data pushes of a script",
            about: "The elements that BIP37 tests: data pushes that are not empty, in order, up to the \
                    first malformed one.",
            source: CORE,
            input: SCRIPT.to_vec(),
            value: vec![
                member("pushes", Kind::List(&Kind::Bytes), "data pushes that are not empty"),
                member("well_formed", Kind::Boolean, "whether the script parses to its end"),
            ],
            flags: &[("Malformed", "a push ends too early: the pushes before it count")],
            groups: vec![Group { cases: pushes, ..Group::default() }],
        },
        Area {
            name: "script.kind",
            title: "Kinds of outputs: bare key, multisig, other",
            about: "`pubkey` and `multisig` as Bitcoin Core's Solver says; everything else is `other`. \
                    Keys are judged by their length and first byte, not by the curve.",
            source: CORE,
            input: SCRIPT.to_vec(),
            value: vec![member(
                "kind",
                Kind::OneOf(&["pubkey", "multisig", "other"]),
                "kind of the script",
            )],
            flags: &[],
            groups: vec![Group { cases: kinds, ..Group::default() }],
        },
    ]
}
