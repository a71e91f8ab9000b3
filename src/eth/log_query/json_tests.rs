//! Queries as JSON: geth's published table, then a row for each rule where readers differ.

use alloc::format;
use alloc::string::{String, ToString as _};

use alloy_primitives::{Address, B256, address, b256};

use super::{BlockSelection, BlockTag, LogQuery, Semantics};

const A0: Address = address!("0x70c87d191324e6712a591f304b4eedef6ad9bb9d");
const A1: Address = address!("0x9b2055d370f73ec7d8a03e965129118dc8f5bf83");
const T0: B256 = b256!("0x3ac225168df54212a25c1c01fd35bebfea408fdac2e31ddd6f80a4bbf9a5f1ca");
const T1: B256 = b256!("0x9084a792d2f8b16a62b882fd56f7860c07bf5fa91dd8a2ae7e809e5180fef0b3");
const T2: B256 = b256!("0x6ccae1c4af4152f460ff510e573399795dfab5dcf1fa60d1f33ac8fdc1e480ce");
const HASH: B256 = b256!("0x8bb1a9b5dd4ae0a2a9b1ae7d9cc05ab44ae8f0b0d4d9e2bb2f3f3c9a6ca0a2e4");

/// Writes the values for their names, in quotes.
fn spelt(text: &str) -> String {
    let names =
        [("$H", HASH.to_string()), ("$A0", format!("{A0:#x}")), ("$A1", format!("{A1:#x}"))];
    let topics =
        [("$T0", T0), ("$T1", T1), ("$T2", T2)].map(|(name, topic)| (name, topic.to_string()));
    names.into_iter().chain(topics).fold(text.into(), |text: String, (name, value)| {
        text.replace(name, &format!("\"{value}\""))
    })
}

fn read(text: &str, semantics: Semantics) -> Result<LogQuery, String> {
    LogQuery::from_json(&spelt(text), semantics).map_err(|error| error.to_string())
}

/// The rows of `TestUnmarshalJSONNewFilterArgs` in geth (eth/filters/api_test.go): the text, and
/// from, to, addresses, and the topics of each position, where empty is "any".
#[test]
fn geth_test_unmarshal_json() {
    type Row = (&'static str, [Option<u64>; 2], &'static [Address], &'static [&'static [B256]]);
    let rows: [Row; 8] = [
        ("{}", [None, None], &[], &[]),
        (
            r#"{"fromBlock":"0x123435","toBlock":"0xabcdef"}"#,
            [Some(0x0012_3435), Some(0x00ab_cdef)],
            &[],
            &[],
        ),
        (r#"{"address": $A0}"#, [None, None], &[A0], &[]),
        (r#"{"address": [$A0, $A1]}"#, [None, None], &[A0, A1], &[]),
        (r#"{"topics": [$T0]}"#, [None, None], &[], &[&[T0]]),
        (r#"{"topics": [$T0, $T1]}"#, [None, None], &[], &[&[T0], &[T1]]),
        (r#"{"topics": [$T0, null, $T2]}"#, [None, None], &[], &[&[T0], &[], &[T2]]),
        (
            r#"{"topics": [[$T0, $T1], null, [$T2, null]]}"#,
            [None, None],
            &[],
            &[&[T0, T1], &[], &[]],
        ),
    ];
    for (text, [from, to], addresses, topics) in rows {
        for semantics in [Semantics::Geth, Semantics::Alloy] {
            let query = read(text, semantics).expect(text);
            let range =
                BlockSelection::Range { from: from.map(Into::into), to: to.map(Into::into) };
            assert_eq!(*query.blocks(), range, "{text}");
            assert_eq!(query.address_set(), addresses, "{text}");
            assert_eq!(query.topics().len(), topics.len(), "{text}");
            for (found, expected) in query.topics().iter().zip(topics) {
                assert_eq!(found.values(), *expected, "{text}");
            }
        }
    }
}

/// What geth and alloy make of the same text: the canonical form of what they read, or the error.
#[test]
fn each_divergence_has_its_row() {
    let topic_31 = format!("0x{}", "ab".repeat(31));
    let rows: [(&str, Result<&str, &str>, Result<&str, &str>); 45] = [
        // "any" inside a position; geth does not look at what follows it.
        (
            r#"{"topics":[[$T0,null,7]]}"#,
            Ok(r#"{"topics":[null]}"#),
            Err("topics[0][2]: a number stands where a topic or null belongs"),
        ),
        (r#"{"topics":[[null,$T0]]}"#, Ok(r#"{"topics":[null]}"#), Ok(r#"{"topics":[null]}"#)),
        (r#"{"topics":[[],[]]}"#, Ok(r#"{"topics":[null,null]}"#), Ok(r#"{"topics":[null,null]}"#)),
        (
            r#"{"topics":[$T0,null]}"#,
            Ok(r#"{"topics":[[$T0],null]}"#),
            Ok(r#"{"topics":[[$T0],null]}"#),
        ),
        (
            r#"{"topics":[[$T1,$T0,$T1]]}"#,
            Ok(r#"{"topics":[[$T0,$T1]]}"#),
            Ok(r#"{"topics":[[$T0,$T1]]}"#),
        ),
        (r#"{"topics":null,"address":null}"#, Ok("{}"), Ok("{}")),
        (r#"{"topics":[],"address":[]}"#, Ok("{}"), Ok("{}")),
        (
            r#"{"address":[null,$A0]}"#,
            Err("address[0]: null stands where an address belongs"),
            Ok("{}"),
        ),
        (
            r#"{"address":[$A1,$A0,$A1]}"#,
            Ok(r#"{"address":[$A0,$A1]}"#),
            Ok(r#"{"address":[$A0,$A1]}"#),
        ),
        // Fields.
        (
            r#"{"limit":3}"#,
            Ok("{}"),
            Err(r#"field "limit" is none of blockHash, fromBlock, toBlock, address, topics"#),
        ),
        (
            r#"{"addresses":[$A0]}"#,
            Ok("{}"),
            Err(r#"field "addresses" is none of blockHash, fromBlock, toBlock, address, topics"#),
        ),
        (
            r#"{"Topics":[$T0]}"#,
            Err(r#"field "Topics" is to be written "topics""#),
            Err(r#"field "Topics" is to be written "topics""#),
        ),
        (
            r#"{"addreſs":$A0}"#,
            Err(r#"field "addreſs" is to be written "address""#),
            Err(r#"field "addreſs" is to be written "address""#),
        ),
        (
            r#"{"address":$A0,"address":$A1}"#,
            Err(r#"field "address" comes twice"#),
            Err(r#"field "address" comes twice"#),
        ),
        (
            r#"{"topics":null,"topics":[$T0]}"#,
            Err(r#"field "topics" comes twice"#),
            Err(r#"field "topics" comes twice"#),
        ),
        (
            r#"{"blockHash":$H,"fromBlock":"0x1"}"#,
            Err("blockHash excludes fromBlock and toBlock"),
            Err("blockHash excludes fromBlock and toBlock"),
        ),
        (
            r#"{"blockHash":$H,"toBlock":"latest"}"#,
            Err("blockHash excludes fromBlock and toBlock"),
            Err("blockHash excludes fromBlock and toBlock"),
        ),
        (
            r#"{"blockHash":$H,"fromBlock":null}"#,
            Ok(r#"{"blockHash":$H}"#),
            Ok(r#"{"blockHash":$H}"#),
        ),
        (
            r#"{"blockHash":null,"fromBlock":"safe"}"#,
            Ok(r#"{"fromBlock":"safe"}"#),
            Ok(r#"{"fromBlock":"safe"}"#),
        ),
        // Blocks.
        (
            r#"{"fromBlock":16}"#,
            Err("fromBlock: a number stands where a block number in hex or a tag belongs"),
            Err("fromBlock: a number stands where a block number in hex or a tag belongs"),
        ),
        (
            r#"{"fromBlock":"16"}"#,
            Err(
                r#"fromBlock: "16" is neither a number in hex with 0x nor one of earliest, latest, safe, finalized, pending"#,
            ),
            Err(
                r#"fromBlock: "16" is neither a number in hex with 0x nor one of earliest, latest, safe, finalized, pending"#,
            ),
        ),
        (
            r#"{"fromBlock":"0x"}"#,
            Err("fromBlock: no digits after 0x"),
            Err("fromBlock: no digits after 0x"),
        ),
        (r#"{"fromBlock":"0x0"}"#, Ok(r#"{"fromBlock":"0x0"}"#), Ok(r#"{"fromBlock":"0x0"}"#)),
        (r#"{"fromBlock":"0X1F"}"#, Ok(r#"{"fromBlock":"0x1f"}"#), Ok(r#"{"fromBlock":"0x1f"}"#)),
        (
            r#"{"fromBlock":"0x01"}"#,
            Err(r#"fromBlock: "0x01" has a leading zero"#),
            Ok(r#"{"fromBlock":"0x1"}"#),
        ),
        (
            r#"{"toBlock":"Latest"}"#,
            Err(
                r#"toBlock: "Latest" is neither a number in hex with 0x nor one of earliest, latest, safe, finalized, pending"#,
            ),
            Ok(r#"{"toBlock":"latest"}"#),
        ),
        (
            r#"{"toBlock":"pending"}"#,
            Ok(r#"{"toBlock":"pending"}"#),
            Ok(r#"{"toBlock":"pending"}"#),
        ),
        (
            r#"{"toBlock":"0x7fffffffffffffff"}"#,
            Ok(r#"{"toBlock":"0x7fffffffffffffff"}"#),
            Ok(r#"{"toBlock":"0x7fffffffffffffff"}"#),
        ),
        (
            r#"{"toBlock":"0x8000000000000000"}"#,
            Err(r#"toBlock: "0x8000000000000000" is above 0x7fffffffffffffff"#),
            Ok(r#"{"toBlock":"0x8000000000000000"}"#),
        ),
        (
            r#"{"toBlock":"0x10000000000000000"}"#,
            Err(r#"toBlock: "0x10000000000000000" is above 0xffffffffffffffff"#),
            Err(r#"toBlock: "0x10000000000000000" is above 0xffffffffffffffff"#),
        ),
        (
            r#"{"toBlock":"0x+1"}"#,
            Err("toBlock: character '+' at 2 is not a hex digit"),
            Err("toBlock: character '+' at 2 is not a hex digit"),
        ),
        // Bytes.
        (
            r#"{"address":"70C87d191324e6712a591f304b4eedef6ad9bb9d"}"#,
            Err(r#"address: "70C87d191324e6712a591f304b4eedef6ad9bb9d" does not begin with 0x"#),
            Ok(r#"{"address":[$A0]}"#),
        ),
        (
            r#"{"address":"0X70c87d191324e6712a591f304b4eedef6ad9bb9d"}"#,
            Ok(r#"{"address":[$A0]}"#),
            Ok(r#"{"address":[$A0]}"#),
        ),
        (
            r#"{"address":"0x70c87d191324e6712a591f304b4eedef6ad9bb9"}"#,
            Err("address: 39 hex digits are not whole bytes"),
            Err("address: 39 hex digits are not whole bytes"),
        ),
        (
            r#"{"address":[$A0,$T0]}"#,
            Err("address[1]: 32 bytes, an address has 20"),
            Err("address[1]: 32 bytes, an address has 20"),
        ),
        (
            r#"{"address":""}"#,
            Err(r#"address: "" does not begin with 0x"#),
            Err("address: 0 bytes, an address has 20"),
        ),
        (
            r#"{"topics":[$T0,[$T1,$T1,$T2,"TOPIC31"]]}"#,
            Err("topics[1][3]: 31 bytes, a topic has 32"),
            Err("topics[1][3]: 31 bytes, a topic has 32"),
        ),
        (
            r#"{"topics":[$A0]}"#,
            Err("topics[0]: 20 bytes, a topic has 32"),
            Err("topics[0]: 20 bytes, a topic has 32"),
        ),
        (
            r#"{"blockHash":$A0}"#,
            Err("blockHash: 20 bytes, a block hash has 32"),
            Err("blockHash: 20 bytes, a block hash has 32"),
        ),
        // Shapes.
        (
            r#"{"topics":$T0}"#,
            Err("topics: a string stands where a list belongs"),
            Err("topics: a string stands where a list belongs"),
        ),
        (
            r#"{"topics":[[[$T0]]]}"#,
            Err("topics[0][0]: a list stands where a topic or null belongs"),
            Err("topics[0][0]: a list stands where a topic or null belongs"),
        ),
        (
            r#"{"topics":[{}]}"#,
            Err("topics[0]: an object stands where a topic, a list of them or null belongs"),
            Err("topics[0]: an object stands where a topic, a list of them or null belongs"),
        ),
        (
            r#"{"topics":[null,null,null,null,null]}"#,
            Err("topics: 5 positions, a log has at most 4 topics"),
            Err("topics: 5 positions, a log has at most 4 topics"),
        ),
        (
            r#"{"address":[1,2]}"#,
            Err("address[0]: a number stands where an address belongs"),
            Err("address[0]: a number stands where an address belongs"),
        ),
        (r"[{}]", Err("a query is an object, not a list"), Err("a query is an object, not a list")),
    ];
    for (text, geth, alloy) in rows {
        let text = text.replace("TOPIC31", &topic_31);
        for (semantics, expected) in [(Semantics::Geth, geth), (Semantics::Alloy, alloy)] {
            let expected = expected.map(spelt).map_err(String::from);
            let found = read(&text, semantics).map(|query| query.to_json());
            assert_eq!(found, expected, "{semantics:?} on {text}");
        }
    }
}

#[test]
fn what_is_not_json() {
    let deep = format!(r#"{{"topics":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let cases = [
        ("", "not JSON: EOF while parsing a value at line 1 column 0"),
        ("{", "not JSON: EOF while parsing an object at line 1 column 1"),
        ("{} {}", "not JSON: trailing characters at line 1 column 4"),
        (r#"{"topics":[],}"#, "not JSON: trailing comma at line 1 column 14"),
        ("{'topics':[]}", "not JSON: key must be a string at line 1 column 2"),
        ("\u{feff}{}", "not JSON: expected value at line 1 column 1"),
        (deep.as_str(), "not JSON: recursion limit exceeded at line 1 column 137"),
    ];
    for (text, message) in cases {
        assert_eq!(read(text, Semantics::Geth), Err(message.into()), "{text}");
    }
    for (text, kind) in [("null", "null"), ("7", "a number"), (r#""q""#, "a string")] {
        let message = format!("a query is an object, not {kind}");
        assert_eq!(read(text, Semantics::Geth), Err(message));
    }
}

/// An error repeats no more of a text than a line's worth.
#[test]
fn errors_stay_short() {
    let long = "é".repeat(100_000);
    for text in [
        format!(r#"{{"fromBlock":"{long}"}}"#),
        format!(r#"{{"{long}":1}}"#),
        format!(r#"{{"address":"{long}"}}"#),
    ] {
        let message = read(&text, Semantics::Alloy).expect_err("no query");
        assert!(message.chars().count() < 250, "{message}");
    }
}

#[test]
fn the_canonical_form_has_one_order() {
    let query = LogQuery::new()
        .topic1(T1)
        .topic3([T2, T0, T2])
        .addresses([A1, A0])
        .to_block(BlockTag::Finalized)
        .from_block(0);
    let text = r#"{"fromBlock":"0x0","toBlock":"finalized","address":[$A0,$A1],"topics":[null,[$T1],null,[$T0,$T2]]}"#;
    assert_eq!(query.to_json(), spelt(&text.replace("[$T0,$T2]", "[$T0,$T2]")));
    // Sorted by value: 3a… before 6c….
    for semantics in [Semantics::Geth, Semantics::Alloy] {
        assert_eq!(LogQuery::from_json(&query.to_json(), semantics), Ok(query.clone()));
    }
}
