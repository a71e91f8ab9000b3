//! Areas of Golomb-coded sets: building, reading, matching.

use std::collections::BTreeSet;

use bitcoin::VarInt;
use bitcoin::bip158::{GcsFilterReader, GcsFilterWriter};
use bitcoin::hashes::siphash24;
use serde_json::{Value, json};

use crate::gcs_large;
use crate::numbers::Numbers;
use crate::pack::{
    Answer, Area, Case, Group, Kind, Level, Member, QUIRK, invalid, member, sides, value,
};
use crate::sources::{CORE, Sources, bytes, int, list, text};

/// The parameters of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    pub(crate) key: [u8; 16],
    pub(crate) p: u8,
    pub(crate) m: u64,
}

impl Params {
    fn input(&self) -> Value {
        json!({ "key": hex::encode(self.key), "p": self.p, "m": self.m })
    }

    pub(crate) fn words(&self) -> (u64, u64) {
        let word =
            |at: usize| u64::from_le_bytes(self.key[at..at + 8].try_into().expect("8 bytes"));
        (word(0), word(8))
    }

    /// The set as the crate `bitcoin` builds it.
    pub(crate) fn build(&self, items: &[Vec<u8>]) -> Vec<u8> {
        let (k0, k1) = self.words();
        let mut out = Vec::new();
        let mut writer = GcsFilterWriter::new(&mut out, k0, k1, self.m, self.p);
        for item in items {
            writer.add_element(item);
        }
        writer.finish().expect("a vector takes all bytes");
        out
    }

    /// The value of an item in a set of this size, by the text of BIP158.
    pub(crate) fn value(&self, item: &[u8], count: u64) -> u64 {
        let (k0, k1) = self.words();
        let hash = siphash24::Hash::hash_to_u64_with_keys(k0, k1, item);
        u64::try_from((u128::from(hash) * u128::from(count * self.m)) >> 64).expect("64 bits")
    }

    /// Returns `true` if the crate `bitcoin` finds one of the items in the set.
    pub(crate) fn matches(&self, mut encoded: &[u8], items: &[Vec<u8>]) -> bool {
        let (k0, k1) = self.words();
        let reader = GcsFilterReader::new(k0, k1, self.m, self.p);
        reader.match_any(&mut encoded, &mut items.iter().map(Vec::as_slice)).expect("a set")
    }
}

/// Who says which sets are malformed: no BIP does.
const AS_READ: &str = "Bitcoin Core 28.1, GCSFilter, as read";

pub(crate) const BIP158: (u8, u64) = (19, 784_931);

const KEY: Member = member("key", Kind::Fixed(16), "key of SipHash: k0, then k1, little-endian");
const P: Member = member("p", Kind::Integer, "bits of a remainder of the Golomb-Rice code");
const M: Member = member("m", Kind::Integer, "inverse of the false-positive rate");
const ENCODED: Member =
    member("encoded", Kind::Bytes, "the set: CompactSize number of items, then the code");

const FLAGS: &[(&str, &str)] = &[
    ("Empty", "the set has no items"),
    (
        "ZeroValue",
        "an item maps to 0, so its delta is 0: implementations that take 0 for the end miss it",
    ),
    ("Collision", "two items map to one value, so that a delta is 0: both are counted"),
    ("Duplicates", "an item is given twice, and counted once"),
    ("FalsePositive", "was not put in: an exact implementation finds it as well"),
    ("NonZeroPadding", "bits after the last item are set: Core does not look at them"),
    ("OutOfRange", "a value is not below N × M: no builder writes it, Core reads it"),
    ("Hostile", "malformed: must be refused in an orderly way"),
    ("Large", "many items"),
];

pub(crate) fn areas(sources: &Sources) -> Vec<Area> {
    let rows = sources.core("gcs");
    vec![
        build(sources, &rows),
        decode(&rows),
        matching(&rows)[0].clone(),
        matching(&rows)[1].clone(),
    ]
}

fn params(row: &Value) -> Params {
    let word = |name: &str| u64::from_str_radix(text(&row[name]), 16).expect("a word");
    let mut key = [0; 16];
    key[..8].copy_from_slice(&word("k0").to_le_bytes());
    key[8..].copy_from_slice(&word("k1").to_le_bytes());
    let p = row["p"].as_u64().map_or(BIP158.0, |p| u8::try_from(p).expect("small"));
    Params { key, p, m: row["m"].as_u64().unwrap_or(BIP158.1) }
}

pub(crate) fn with(params: Params, more: &Value) -> Value {
    let mut input = params.input();
    let object = input.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    input
}

/// An item that the key of zeros maps to 0 in a set of one item, for the parameters of BIP158.
const ZERO_ITEM: &str = "0003cf72";
const ZERO_KEY: Params = Params { key: [0; 16], p: BIP158.0, m: BIP158.1 };

/// Parameters under which items often map to one value.
const SMALL: Params = Params { key: [0; 16], p: 2, m: 4 };

/// Two items that map to one value: the set of both has a delta of 0.
fn collision() -> [Vec<u8>; 2] {
    let pair = |other: u8| [vec![1_u8], vec![other]];
    let found =
        (2..=255).map(pair).find(|pair| SMALL.value(&pair[0], 2) == SMALL.value(&pair[1], 2));
    found.expect("a collision")
}

/// Two items that have the same 64-bit hash under the key of zeros, found by a walk through some 2^32
/// hashes.
fn hash_collision() -> [Vec<u8>; 2] {
    let items = [0x3e2e_d7dc_b0ea_372d_u64, 0x2956_c111_a8c0_0e3e].map(u64::to_le_bytes);
    let hashes = items.map(|item| siphash24::Hash::hash_to_u64_with_keys(0, 0, &item));
    assert_eq!(hashes, [0xcb07_e393_4f93_e88e; 2]);
    items.map(|item| item.to_vec())
}

fn build(sources: &Sources, rows: &[Value]) -> Area {
    let mut cases = Vec::new();
    for row in rows {
        let params = params(row);
        let items = list(&row["elements"]);
        let distinct: BTreeSet<_> = items.iter().map(text).collect();
        if row.to_string().len() > 7_000 {
            continue;
        }
        let input = with(params, &json!({ "items": items }));
        let case = Case::new(
            {
                let (p, m) = (params.p, params.m);
                let why = match (items.len(), distinct.len() < items.len()) {
                    (0, _) => "a set without items is one byte",
                    (_, true) => "some are given twice, and count once",
                    (1, _) => "N × M is M, and the only delta is the value",
                    _ => "sorted, with deltas of each size",
                };
                format!("{} items, P = {p}, M = {m}: {why}", items.len())
            },
            input,
            value(json!({ "encoded": row["encoded"] })),
        );
        cases.push(
            case.source(CORE)
                .flag_if(items.is_empty(), "Empty")
                .flag_if(distinct.len() < items.len(), "Duplicates"),
        );
    }
    for row in sources.core("gcs_large") {
        let count = int(&row["n"]);
        let input = with(
            params(&row),
            &json!({ "items": { "counted": { "prefix": "chainsieve gcs ", "count": count } } }),
        );
        let case = Case::new(
            format!(
                "{count} items, {} of them distinct: as many as the filter of a large block has, or more",
                row["distinct"]
            ),
            input,
            value(json!({ "encoded": row["encoded"] })),
        );
        cases.push(case.source(CORE).flag("Large"));
    }
    let zero = hex::encode(ZERO_KEY.build(&[hex::decode(ZERO_ITEM).expect("hex")]));
    assert_eq!(zero, "01000000", "the item maps to 0");
    cases.push(
        Case::new(
            "one item, which maps to 0",
            with(ZERO_KEY, &json!({ "items": [ZERO_ITEM] })),
            value(json!({ "encoded": zero })),
        )
        .named("zero-value")
        .flag("ZeroValue")
        .source("the crate bitcoin 0.32"),
    );
    cases.push(
        Case::new(
            "the same item twice",
            with(ZERO_KEY, &json!({ "items": ["aa", "aa"] })),
            value(json!({ "encoded": hex::encode(ZERO_KEY.build(&[vec![0xaa]])) })),
        )
        .named("duplicate")
        .flag("Duplicates")
        .source("the crate bitcoin 0.32"),
    );
    let colliding = collision();
    let hex: Vec<_> = colliding.iter().map(hex::encode).collect();
    cases.push(
        Case::new(
            "two items that map to one value, 3: both are counted, the second delta is 0",
            with(SMALL, &json!({ "items": hex })),
            value(json!({ "encoded": hex::encode(SMALL.build(&colliding)) })),
        )
        .named("collision")
        .flag("Collision")
        .source("the crate bitcoin 0.32"),
    );
    let [one, other] = hash_collision();
    for (name, comment, items) in [
        ("hash-collision", "two items of one 64-bit hash: both are counted", vec![&one, &other]),
        (
            "hash-collision-and-duplicate",
            "two items of one 64-bit hash, and the first of them again: two are counted",
            vec![&one, &other, &one],
        ),
    ] {
        let items: Vec<_> = items.into_iter().cloned().collect();
        let hex: Vec<_> = items.iter().map(hex::encode).collect();
        let encoded = ZERO_KEY.build(&items);
        assert_eq!(encoded[0], 2, "distinct items are counted, not distinct hashes");
        let expect = value(json!({ "encoded": hex::encode(encoded) }));
        let case = Case::new(comment, with(ZERO_KEY, &json!({ "items": hex })), expect);
        cases.push(case.named(name).flag("Collision").source("the crate bitcoin 0.32"));
    }
    cases.extend(gcs_large::build());
    Area {
        name: "gcs.build",
        title: "Building a Golomb-coded set",
        about: "Each distinct item is hashed by SipHash-2-4 and mapped to the range below N × M by a \
                multiplication and a shift by 64; the sorted values are written as deltas.",
        source: "BIP158, computed by Bitcoin Core 28.1 or, where a case says so, by the crate bitcoin",
        input: vec![
            KEY,
            P,
            M,
            member("items", Kind::List(&Kind::Bytes), "items, some perhaps twice"),
        ],
        value: vec![ENCODED],
        flags: FLAGS,
        groups: vec![Group {
            cases: cases.into_iter().map(|case| case.level(Level::Specification)).collect(),
            ..Group::default()
        }],
    }
}

fn decode(rows: &[Value]) -> Area {
    let mut cases = Vec::new();
    for row in rows {
        let params = params(row);
        let encoded = text(&row["encoded"]);
        if encoded.len() < 1_500 {
            cases.push(
                accepted("as Core built it: an honest set must be read", params, encoded)
                    .flag_if(encoded == "00", "Empty"),
            );
        }
        for mutant in
            list(&row["mutants"]).iter().filter(|mutant| text(&mutant["encoded"]).len() < 1_500)
        {
            let damaged = text(&mutant["encoded"]);
            let input = with(params, &json!({ "encoded": damaged }));
            cases.push(if mutant["accepted"] == true {
                accepted("a bit altered, but it still ends with its last item: Core reads it", params, damaged)
            } else {
                Case::new("a byte too many or too few, or a bit altered: it does not end with its last item", input, invalid("set")).flag("Hostile")
            });
        }
    }
    let zero = |encoded: &str| with(ZERO_KEY, &json!({ "encoded": encoded }));
    let bad = |name, comment: &str, encoded: &str| {
        Case::new(comment, zero(encoded), invalid("set")).named(name).flag("Hostile")
    };
    let ones = format!("01{}", "ff".repeat(40));
    cases.extend(
        [
            accepted("bits after the last item are set", ZERO_KEY, "011b7d68").named("padding-set"),
            accepted("the value N × M itself", ZERO_KEY, "019fd118").named("value-out-of-range"),
            accepted("a set without items is one byte", ZERO_KEY, "00")
                .named("no-items")
                .flag("Empty"),
            accepted("one item of value 0", ZERO_KEY, "01000000")
                .named("zero-value")
                .flag("ZeroValue"),
            accepted(
                "one item of one bit: P is 0, so a code has no remainder",
                Params { p: 0, m: 1, ..ZERO_KEY },
                "0100",
            )
            .named("p-0"),
            accepted(
                "one item of two bits: P is 1",
                Params { p: 1, m: 2, ..ZERO_KEY },
                "0140",
            )
            .named("p-1"),
            accepted(
                "codes of 7, 8 and 50 bits, and 7 bits of padding: they look like a fourth code",
                Params { p: 3, m: 1_000, ..ZERO_KEY },
                "03e1e1fffffffffff800",
            )
            .named("padding-like-a-code"),
            bad("no-bytes", "no bytes at all: not even a number of items", ""),
            bad("no-items-and-a-byte", "a byte after a set without items", "0000"),
            bad("items-missing", "one item is announced, none is there", "01"),
            bad("remainder-cut", "the remainder ends too early", "0100"),
            bad("a-byte-too-many", "a whole byte after the last item", "0100000000"),
            bad("count-not-canonical", "the number of items in 3 bytes", "fd0100000000"),
            bad(
                "count-above-2-to-the-25",
                "33,554,433 items: more than Core reads",
                "fe01000002000000",
            ),
            bad(
                "count-2-to-the-25",
                "33,554,432 items, the most that Core reads: none is there, and no memory may be taken for them",
                "fe00000002000000",
            ),
            bad("count-2-to-the-32", "2^32 items", "ff0000000001000000000000"),
            bad(
                "count-2-to-the-64",
                "2^64 - 1 items: a product with M overflows",
                "ffffffffffffffffff000000",
            ),
            bad("count-cut", "a number of items that ends too early", "fe0100"),
            bad("ones-only", "a quotient that never ends", &ones),
        ]
        .map(|case| case.source(AS_READ)),
    );
    cases.push(beyond_2_to_the_25());
    Area {
        name: "gcs.decode",
        title: "Reading a Golomb-coded set",
        about: "Reads a set that may be damaged. An orderly implementation refuses what Core refuses, and \
                allocates in proportion to the bytes, not to the announced number of items.",
        source: CORE,
        input: vec![KEY, P, M, ENCODED],
        value: vec![member("count", Kind::Integer, "number of items")],
        flags: FLAGS,
        groups: vec![Group { cases, ..Group::default() }],
    }
}

/// A set of more than 2^25 items that are all there, so that only the limit refuses it. With P = 0, an
/// item is a zero bit, and the ones before it are its delta. The five bytes of the number of items
/// have 29 zeros; repeated, they are the items as well.
fn beyond_2_to_the_25() -> Case {
    const COUNT: u64 = (1 << 25) + 76;
    const ZEROS: u64 = 29;
    let prefix = bitcoin::consensus::serialize(&VarInt(COUNT));
    let ones: u32 = prefix.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!((prefix.len(), u64::from(ones)), (5, 40 - ZEROS));
    assert!(COUNT.is_multiple_of(ZEROS) && prefix[4] & 1 == 0, "the last bit ends the last item");
    let params = Params { key: [0; 16], p: 0, m: 1 };
    let encoded = json!({ "repeat": hex::encode(&prefix), "times": COUNT / ZEROS + 1 });
    Case::new(
        "33,554,508 items, all of them there: only the limit of 2^25 refuses them",
        with(params, &json!({ "encoded": encoded })),
        invalid("set"),
    )
    .named("more-than-2-to-the-25-items")
    .flag("Hostile")
    .flag("Large")
    .flag(QUIRK)
    .source(AS_READ)
}

/// A case of a set that Core reads. A strict reader refuses what no builder writes: padding that is
/// not zero, and values that are not below N × M.
fn accepted(comment: &str, params: Params, encoded: &str) -> Case {
    let bytes = hex::decode(encoded).expect("hex");
    let (count, prefix): (VarInt, usize) =
        bitcoin::consensus::deserialize_partial(&bytes).expect("a number of items");
    let mut bits =
        bytes[prefix..].iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    let mut sum = 0_u64;
    for _ in 0..count.0 {
        let quotient = bits.by_ref().take_while(|bit| *bit == 1).count() as u64;
        let remainder =
            (0..params.p).fold(0, |value, _| value << 1 | u64::from(bits.next().expect("a bit")));
        sum += (quotient << params.p) + remainder;
    }
    let padding = bits.any(|bit| bit == 1);
    let out_of_range = count.0 > 0 && sum >= count.0 * params.m;
    let input = with(params, &json!({ "encoded": encoded }));
    let of_core = Answer::Value(json!({ "count": count.0 }));
    let of_strict = if padding || out_of_range { Answer::Invalid("set") } else { of_core.clone() };
    Case::new(comment, input, sides([("core", of_core), ("strict", of_strict)]))
        .flag_if(padding, "NonZeroPadding")
        .flag_if(out_of_range, "OutOfRange")
}

/// Why a list of queries has this length.
fn list_length(len: usize) -> &'static str {
    match len {
        1 => "the shortest list",
        3 | 9 => "the few scripts of a small wallet",
        _ => "more queries than the set has items",
    }
}

fn matching(rows: &[Value]) -> [Area; 2] {
    let mut numbers = Numbers::new(158);
    let (mut one, mut any) = (Vec::new(), Vec::new());
    let hex_list = |items: &[Vec<u8>]| items.iter().map(hex::encode).collect::<Vec<_>>();
    for row in rows {
        let params = params(row);
        let encoded = bytes(&row["encoded"]);
        let items: Vec<_> = list(&row["elements"]).iter().map(bytes).collect();
        if encoded.len() > 700 {
            continue;
        }
        let text = hex::encode(&encoded);
        // Members match, by the definition of the set.
        for item in items.iter().take(2) {
            let input = with(params, &json!({ "encoded": text, "item": hex::encode(item) }));
            one.push(
                Case::new(
                    "a member: a no would hide a payment",
                    input,
                    value(json!({ "match": true })),
                )
                .level(Level::Specification)
                .source("the definition of the set"),
            );
        }
        let mut false_positives = 0;
        let mut absent = Vec::new();
        for attempt in 0..600 {
            let len = [22, 23, 25, 34, 35, 67, 7, 16][numbers.below(8)];
            let item = numbers.bytes(len);
            let found = !items.is_empty() && params.matches(&encoded, core::slice::from_ref(&item));
            if found && false_positives < 2 {
                false_positives += 1;
                let input = with(params, &json!({ "encoded": text, "item": hex::encode(&item) }));
                one.push(
                    Case::new(
                        "not a member, but of a member's value: values must be exact, not only found",
                        input,
                        value(json!({ "match": true })),
                    )
                    .level(Level::Specification)
                    .flag("FalsePositive"),
                );
            } else if !found {
                if attempt < 2 {
                    let input =
                        with(params, &json!({ "encoded": text, "item": hex::encode(&item) }));
                    one.push(
                        Case::new(
                            "not a member: a reader that says yes to all costs a wallet each block",
                            input,
                            value(json!({ "match": false })),
                        )
                        .level(Level::Specification)
                        .flag_if(items.is_empty(), "Empty"),
                    );
                }
                absent.push(item);
            }
        }
        for len in [1, 3, 9, 40, 130] {
            // A set or a list that is long, not both.
            if encoded.len() * len > 900 {
                continue;
            }
            let mut queries: Vec<_> = absent.iter().take(len).cloned().collect();
            let input = with(params, &json!({ "encoded": text, "items": hex_list(&queries) }));
            any.push(
                Case::new(
                    format!("{len} items, none a member: {}", list_length(len)),
                    input,
                    value(json!({ "match": false })),
                )
                .level(Level::Specification)
                .flag_if(items.is_empty(), "Empty"),
            );
            if let Some(item) = items.last() {
                let at = numbers.below(queries.len());
                queries[at].clone_from(item);
                let input = with(params, &json!({ "encoded": text, "items": hex_list(&queries) }));
                any.push(
                    Case::new(
                        format!("{len} items, a member at {at}: each place must be tested"),
                        input,
                        value(json!({ "match": true })),
                    )
                    .level(Level::Specification)
                    .source("the definition of the set"),
                );
            }
        }
    }
    let zero = |more: Value| with(ZERO_KEY, &more);
    let yes = |answer: bool| value(json!({ "match": answer }));
    one.extend([
        Case::new(
            "the only member maps to 0",
            zero(json!({ "encoded": "01000000", "item": ZERO_ITEM })),
            yes(true),
        )
        .named("zero-value")
        .flag("ZeroValue")
        .level(Level::Specification)
        .source("the definition of the set"),
        Case::new(
            "a set without items",
            zero(json!({ "encoded": "00", "item": "aa" })),
            yes(false),
        )
        .named("no-items")
        .flag("Empty")
        .level(Level::Specification)
        .source("the definition of the set"),
        Case::new(
            "no bytes: a no would come from nothing",
            zero(json!({ "encoded": "", "item": "aa" })),
            invalid("set"),
        )
        .named("no-bytes")
        .flag("Hostile")
        .level(Level::Reference)
        .source(AS_READ),
        Case::new(
            "one item is announced, none is there",
            zero(json!({ "encoded": "01", "item": "aa" })),
            invalid("set"),
        )
        .named("items-missing")
        .flag("Hostile")
        .level(Level::Reference)
        .source(AS_READ),
    ]);
    let other = hex::encode(ZERO_KEY.build(&[vec![0xaa]]));
    let zero_item = hex::decode(ZERO_ITEM).expect("hex");
    assert!(
        !ZERO_KEY
            .matches(&hex::decode("0108e2c0").expect("hex"), core::slice::from_ref(&zero_item))
    );
    any.extend([
        Case::new(
            "a set without items, and an item",
            zero(json!({ "encoded": "00", "items": ["aa"] })),
            yes(false),
        )
        .named("no-items")
        .flag("Empty")
        .level(Level::Specification)
        .source("the definition of the set"),
        Case::new("no queries", zero(json!({ "encoded": other, "items": [] })), yes(false))
            .named("no-queries")
            .level(Level::Specification)
            .source("the definition of the set"),
        Case::new(
            "the only member maps to 0",
            zero(json!({ "encoded": "01000000", "items": [ZERO_ITEM] })),
            yes(true),
        )
        .named("zero-value")
        .flag("ZeroValue")
        .level(Level::Specification)
        .source("the definition of the set"),
        Case::new(
            "an item that maps to 0 and is no member",
            zero(json!({ "encoded": "0108e2c0", "items": [ZERO_ITEM] })),
            yes(false),
        )
        .named("zero-value-absent")
        .level(Level::Specification)
        .flag("ZeroValue"),
        Case::new(
            "no bytes: a no would come from nothing",
            zero(json!({ "encoded": "", "items": ["aa"] })),
            invalid("set"),
        )
        .named("no-bytes")
        .flag("Hostile")
        .level(Level::Reference)
        .source(AS_READ),
        Case::new(
            "one item is announced, none is there",
            zero(json!({ "encoded": "01", "items": ["aa"] })),
            invalid("set"),
        )
        .named("items-missing")
        .flag("Hostile")
        .level(Level::Reference)
        .source(AS_READ),
        Case::new(
            "2^64 - 1 items are announced",
            zero(json!({ "encoded": "ffffffffffffffffff000000", "items": ["aa"] })),
            invalid("set"),
        )
        .named("count-2-to-the-64")
        .flag("Hostile")
        .level(Level::Reference)
        .source(AS_READ),
    ]);
    // Core reads a set to its end before it answers; a reader that stops early finds a "no" in what
    // is no set.
    let two = ZERO_KEY.build(&[vec![0xaa], vec![0xbb]]);
    let (two_items, cut) = (hex::encode(&two), hex::encode(&two[..two.len() - 2]));
    for (name, comment, encoded) in [
        ("count-cut", "a number of items that ends too early", "fd".to_owned()),
        (
            "count-not-canonical",
            "the number of items in 3 bytes",
            format!("fd0200{}", &two_items[2..]),
        ),
        ("a-byte-too-many", "a whole byte after the last item", format!("{two_items}00")),
        ("cut", "the second item ends too early", cut),
        ("ones-only", "a quotient that never ends", format!("01{}", "ff".repeat(40))),
    ] {
        // The item maps to 0, so it lies before every value.
        one.push(
            Case::new(
                comment,
                zero(json!({ "encoded": encoded, "item": ZERO_ITEM })),
                invalid("set"),
            )
            .named(name)
            .flag("Hostile")
            .level(Level::Reference)
            .source(AS_READ),
        );
        any.push(
            Case::new(
                comment,
                zero(json!({ "encoded": encoded, "items": [ZERO_ITEM, "cc"] })),
                invalid("set"),
            )
            .named(name)
            .flag("Hostile")
            .level(Level::Reference)
            .source(AS_READ),
        );
    }
    any.extend(gcs_large::match_any());
    let source = "the crate bitcoin 0.32, and the definition of the set where a case says so";
    let value = vec![member("match", Kind::Boolean, "whether the set may contain it")];
    [
        Area {
            name: "gcs.match",
            title: "Test of one item against a set",
            about: "A member always matches. A false \"no\" hides a payment from its wallet.",
            source,
            input: vec![KEY, P, M, ENCODED, member("item", Kind::Bytes, "item")],
            value: value.clone(),
            flags: FLAGS,
            groups: vec![Group { cases: one, ..Group::default() }],
        },
        Area {
            name: "gcs.match_any",
            title: "Test of several items against a set",
            about: "True if one of the items may be in the set.",
            source,
            input: vec![KEY, P, M, ENCODED, member("items", Kind::List(&Kind::Bytes), "items")],
            value,
            flags: FLAGS,
            groups: vec![Group { cases: any, ..Group::default() }],
        },
    ]
}
