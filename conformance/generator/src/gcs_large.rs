//! Golomb-coded sets of many items: readers that decode several parts at once must find where the
//! codes begin, however the values are spread.

use bitcoin::VarInt;
use bitcoin::hashes::{Hash as _, sha256, siphash24};
use serde_json::{Value, json};

use crate::gcs::{BIP158, Params, with};
use crate::numbers::Numbers;
use crate::pack::{Answer, Case, sides, value};

const BITCOIN: &str = "the crate bitcoin 0.32";

/// The items that `counted` stands for.
fn counted(prefix: &str, count: u32) -> Vec<Vec<u8>> {
    let item = |at: u32| {
        let hash = sha256::Hash::hash(&[prefix.as_bytes(), &at.to_le_bytes()].concat());
        hash.to_byte_array()[..4 + at as usize % 29].to_vec()
    };
    (0..count).map(item).collect()
}

/// A way to spread values unevenly: how likely an item is kept whose hash is at this part of all
/// hashes, in 256ths.
struct Spread {
    name: &'static str,
    comment: &'static str,
    kept: fn(usize) -> usize,
}

const SPREADS: [Spread; 6] = [
    Spread {
        name: "sparse-end",
        comment: "the values are seven times as dense in the lower half as in the upper half",
        kept: |at| if at < 128 { 255 } else { 36 },
    },
    Spread {
        name: "sparse-start",
        comment: "the values are seven times as dense in the upper half as in the lower half",
        kept: |at| if at < 128 { 36 } else { 255 },
    },
    Spread {
        name: "clusters",
        comment: "64 clusters of values, with codes of about 30 bits between them",
        kept: |at| if at % 4 < 2 { 255 } else { 0 },
    },
    Spread {
        name: "few-clusters",
        comment: "16 clusters of values, with codes of about 70 bits between them",
        kept: |at| if at % 16 < 8 { 255 } else { 0 },
    },
    Spread {
        name: "many-clusters",
        comment: "43 clusters of values, with codes of about 45 bits between them",
        kept: |at| if at % 6 < 3 { 255 } else { 0 },
    },
    Spread {
        name: "upper-half",
        comment: "all values are in the upper half: the first quotient is about 900",
        kept: |at| if at < 128 { 0 } else { 255 },
    },
];

/// Numbers of items of the uneven sets.
const UNEVEN: usize = 1_200;

/// Items whose values are spread so.
fn uneven(spread: &Spread, params: Params) -> Vec<Vec<u8>> {
    let (k0, k1) = params.words();
    let mut numbers = Numbers::new(1_158);
    let items = (0_u32..).map(|number| number.to_le_bytes()[..3].to_vec());
    let is_kept = |item: &Vec<u8>| {
        let hash = siphash24::Hash::hash_to_u64_with_keys(k0, k1, item);
        numbers.below(256) < (spread.kept)(usize::from(hash.to_be_bytes()[0]))
    };
    items.filter(is_kept).take(UNEVEN).collect()
}

/// Sets to be built: at the lengths of the number of items, and spread unevenly.
pub(crate) fn build() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in [252, 253, 599, 600, 601, 1_099, 1_100, 1_101, 1_500, 3_000] {
        let params = Params { key: [u8::try_from(count % 251).expect("a byte"); 16], ..BASIC };
        let prefix = "chainsieve gcs ";
        let encoded = params.build(&counted(prefix, count));
        let items = json!({ "items": { "counted": { "prefix": prefix, "count": count } } });
        let expect = value(json!({ "encoded": hex::encode(encoded) }));
        cases.push(Case::new(format!("{count} items"), with(params, &items), expect));
    }
    // Other parameters than those of BIP158, in sets as large.
    for (p, m, count) in [(8, 300, 700), (18, 616_000, 1_200), (20, 1_569_862, 1_200)] {
        let params = Params { p, m, ..BASIC };
        let prefix = "chainsieve gcs ";
        let encoded = params.build(&counted(prefix, count));
        let items = json!({ "items": { "counted": { "prefix": prefix, "count": count } } });
        let expect = value(json!({ "encoded": hex::encode(encoded) }));
        let comment = format!("{count} items, with other parameters");
        cases.push(Case::new(comment, with(params, &items), expect));
    }
    // Quotients of thousands of ones, which are written in parts.
    let params = Params { p: 8, m: 600_000, ..BASIC };
    let items = counted("chainsieve gcs ", 20);
    let hex: Vec<_> = items.iter().map(hex::encode).collect();
    let expect = value(json!({ "encoded": hex::encode(params.build(&items)) }));
    let comment = "20 items, P = 8: quotients of about 2,300";
    let case = Case::new(comment, with(params, &json!({ "items": hex })), expect);
    cases.push(case.named("long-quotients"));
    // Many codes have 33 bits, one more than half a word, and some of them follow one another.
    let params = Params { p: 30, m: 1_500_000_000, ..BASIC };
    let (prefix, count) = ("chainsieve gcs ", 5_000);
    let encoded = params.build(&counted(prefix, count));
    let items = json!({ "items": { "counted": { "prefix": prefix, "count": count } } });
    let hash = hex::encode(sha256::Hash::hash(&encoded));
    let expect = value(json!({ "encoded": { "sha256": hash, "bytes": encoded.len() } }));
    let comment = "5,000 items, P = 30: codes around 32 bits";
    cases.push(Case::new(comment, with(params, &items), expect).named("codes-of-33-bits"));
    let mut items: Vec<_> = (0..520_u32).map(|item| item.to_be_bytes()[2..].to_vec()).collect();
    (items[300], items[515]) = (vec![0x33; 200], vec![0x55; 200]);
    let hex: Vec<_> = items.iter().map(hex::encode).collect();
    let expect = value(json!({ "encoded": hex::encode(BASIC.build(&items)) }));
    let comment = "520 items, two of them of 200 bytes and far apart";
    let case = Case::new(comment, with(BASIC, &json!({ "items": hex })), expect);
    cases.push(case.named("two-long-items"));
    for spread in SPREADS {
        let items = uneven(&spread, BASIC);
        let hex: Vec<_> = items.iter().map(hex::encode).collect();
        let expect = value(json!({ "encoded": hex::encode(BASIC.build(&items)) }));
        let case = Case::new(spread.comment, with(BASIC, &json!({ "items": hex })), expect);
        cases.push(case.named(spread.name));
    }
    cases.into_iter().map(|case| case.source(BITCOIN).flag("Large")).collect()
}

const BASIC: Params = Params { key: [0x58; 16], p: BIP158.0, m: BIP158.1 };

/// The set of `count` values, one above the other: each code but the first is the same, so that a
/// reader that begins within a code never finds the beginning of another.
fn steps(first: u64, step: u64, count: u64) -> Vec<u8> {
    let mut bits = Vec::new();
    for number in 0..count {
        let delta = if number == 0 { first } else { step };
        bits.extend((0..delta >> BASIC.p).map(|_| true));
        bits.push(false);
        bits.extend((0..BASIC.p).rev().map(|bit| delta >> bit & 1 == 1));
    }
    let mut encoded = bitcoin::consensus::serialize(&VarInt(count));
    for byte in bits.chunks(8) {
        let byte = byte.iter().zip((0..8).rev()).map(|(bit, at)| u8::from(*bit) << at);
        encoded.push(byte.sum());
    }
    encoded
}

/// Sets whose codes are all the same, and items of which one is in the set or none; and many items of
/// which one is in a small set, at each end of a batch that a reader may look up at once.
pub(crate) fn match_any() -> Vec<Case> {
    let mut cases = Vec::new();
    let members: Vec<_> = (0..30_u8).map(|member| vec![member; 5]).collect();
    let encoded = BASIC.build(&members);
    for at in [63, 64, 70, 127, 128, 191, 192, 255, 256, 299] {
        let absent = (0..300_u32).map(|number| number.to_be_bytes()[1..].to_vec());
        let mut items: Vec<_> = absent.collect();
        assert!(!BASIC.matches(&encoded, &items), "none of them");
        items[at].clone_from(&members[at % 30]);
        let hex: Vec<_> = items.iter().map(hex::encode).collect();
        let input = json!({ "encoded": hex::encode(&encoded), "items": hex });
        let comment = format!("300 items, of which number {at}, from 0, is a member");
        let case = Case::new(comment, with(BASIC, &input), value(json!({ "match": true })));
        cases.push(case.source("the definition of the set"));
    }
    // The value N x M itself, where that is a power of two: the first after the last of a table.
    let power = Params { key: [0; 16], p: 2, m: 4 };
    for item in ["aa", "bb", "cc"] {
        let input = with(power, &json!({ "encoded": "0180", "items": [item] }));
        let found = power.matches(&[1, 0x80], &[hex::decode(item).expect("hex")]);
        let answer = Answer::Value(json!({ "match": found }));
        let expect = sides([("core", answer), ("strict", Answer::Invalid("set"))]);
        let comment = "the value N × M itself, which is a power of two";
        cases.push(Case::new(comment, input, expect).flag("OutOfRange"));
    }
    // The same, in a table of 64 places: its first place after the last.
    let power = Params { key: [0; 16], p: 6, m: 64 };
    for item in ["aa", "bb", "cc"] {
        let input = with(power, &json!({ "encoded": "0180", "items": [item] }));
        let found = power.matches(&[1, 0x80], &[hex::decode(item).expect("hex")]);
        let answer = Answer::Value(json!({ "match": found }));
        let expect = sides([("core", answer), ("strict", Answer::Invalid("set"))]);
        let comment = "the value N × M itself, which is 64";
        cases.push(Case::new(comment, input, expect).flag("OutOfRange"));
    }
    let params = Params { m: 65, ..power };
    let last = (0_u16..).map(|item| item.to_le_bytes().to_vec());
    let last = last.into_iter().find(|item| params.value(item, 1) == 64).expect("such an item");
    let encoded = params.build(core::slice::from_ref(&last));
    let input = json!({ "encoded": hex::encode(encoded), "items": [hex::encode(last)] });
    let comment = "the greatest value, which is a power of two";
    let case = Case::new(comment, with(params, &input), value(json!({ "match": true })));
    cases.push(case.source("the definition of the set"));
    // A reader that hashes items of a length together must give each of them its place.
    let members = [vec![0x11; 30], vec![0x22; 12]];
    let encoded = BASIC.build(&members);
    let items = [hex::encode(&members[0]), hex::encode(&members[1]), "3333333333".to_owned()];
    let input = json!({ "encoded": hex::encode(encoded), "items": items });
    let comment = "each item of another length, the longest first";
    let case = Case::new(comment, with(BASIC, &input), value(json!({ "match": true })));
    cases.push(case.named("lengths-descending").source("the definition of the set"));
    let encoded = BASIC.build(&[vec![0x44; 200], vec![0x55; 20]]);
    let (short, long) = (vec![0x66; 8], vec![0x44; 200]);
    for (name, comment, items, found) in [
        ("long-item", "an item of 200 bytes", [long.clone(), short.clone()], true),
        (
            "long-item-absent",
            "an item of 200 bytes that is not a member",
            [vec![0x45; 200], short.clone()],
            false,
        ),
        ("long-item-last", "a short item, then one of 200 bytes", [short, long], true),
    ] {
        assert_eq!(BASIC.matches(&encoded, &items), found, "by the crate bitcoin");
        let hex: Vec<_> = items.iter().map(hex::encode).collect();
        let input = json!({ "encoded": hex::encode(&encoded), "items": hex });
        let case = Case::new(comment, with(BASIC, &input), value(json!({ "match": found })));
        cases.push(case.named(name));
    }
    for (count, step) in [(700, 0x5a5a5), (1_200, 0x2aaaa), (1_200, 0x80001), (1_300, 784_930)] {
        let encoded = steps(step, step, count);
        let is_member = |item: &[u8]| {
            let value = BASIC.value(item, count);
            value.is_multiple_of(step) && (1..=count).contains(&(value / step))
        };
        let items = || (0_u32..).map(|number| number.to_le_bytes().to_vec());
        let mut absent: Vec<_> = items().filter(|item| !is_member(item)).take(3).collect();
        let member = items().find(|item| is_member(item)).expect("a member");
        let mut case = |items: &[Vec<u8>], found: bool| {
            assert_eq!(BASIC.matches(&encoded, items), found, "by the crate bitcoin");
            let hex: Vec<Value> = items.iter().map(|item| json!(hex::encode(item))).collect();
            let input = json!({ "encoded": hex::encode(&encoded), "items": hex });
            let comment = format!("{count} codes, all of them the same");
            let expect = value(json!({ "match": found }));
            cases.push(Case::new(comment, with(BASIC, &input), expect).flag("Large"));
        };
        case(&absent, false);
        absent.push(member);
        case(&absent, true);
    }
    cases
}
