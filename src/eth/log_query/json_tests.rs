//! Tests of queries as JSON: geth's published table, then one row for each rule where nodes differ.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, address, b256};

use super::{BlockSelection, BlockTag, LogQuery, Semantics};

const A0: Address = address!("0x70c87d191324e6712a591f304b4eedef6ad9bb9d");
const A1: Address = address!("0x9b2055d370f73ec7d8a03e965129118dc8f5bf83");
const T0: B256 = b256!("0x3ac225168df54212a25c1c01fd35bebfea408fdac2e31ddd6f80a4bbf9a5f1ca");
const T1: B256 = b256!("0x9084a792d2f8b16a62b882fd56f7860c07bf5fa91dd8a2ae7e809e5180fef0b3");
const T2: B256 = b256!("0x6ccae1c4af4152f460ff510e573399795dfab5dcf1fa60d1f33ac8fdc1e480ce");
const HASH: B256 = b256!("0x8bb1a9b5dd4ae0a2a9b1ae7d9cc05ab44ae8f0b0d4d9e2bb2f3f3c9a6ca0a2e4");

/// Replaces the names of values, such as `$A0`, by the values in quotes.
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

/// The rows of `TestUnmarshalJSONNewFilterArgs` in geth (`eth/filters/api_test.go`): text, first
/// and last block, addresses, topics of each position. An empty position is "any".
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

/// Each text is followed by the results of geth and alloy: the canonical form of the query, or the
/// error after `!`.
const DIVERGENCES: &str = r#"
{"topics":[[$T0,null,7]]}
  geth: {"topics":[null]}
  alloy: ! topics[0][2]: expected a topic or null, found a number
{"topics":[[null,$T0]]}
  both: {"topics":[null]}
{"topics":[[],[]]}
  both: {"topics":[null,null]}
{"topics":[$T0,null]}
  both: {"topics":[[$T0],null]}
{"topics":[[$T1,$T0,$T1]]}
  both: {"topics":[[$T0,$T1]]}
{"topics":null,"address":null}
  both: {}
{"topics":[],"address":[]}
  both: {}
{"address":[null,$A0]}
  geth: ! address[0]: expected an address, found null
  alloy: {}
{"address":[$A1,$A0,$A1]}
  both: {"address":[$A0,$A1]}
{"limit":3}
  geth: {}
  alloy: ! field "limit" is none of blockHash, fromBlock, toBlock, address, topics
{"addresses":[$A0]}
  geth: {}
  alloy: ! field "addresses" is none of blockHash, fromBlock, toBlock, address, topics
{"Topics":[$T0]}
  both: ! field "Topics" must be written "topics"
{"addreſs":$A0}
  both: ! field "addreſs" must be written "address"
{"address":$A0,"address":$A1}
  both: ! duplicate field "address"
{"topics":null,"topics":[$T0]}
  both: ! duplicate field "topics"
{"blockHash":$H,"fromBlock":"0x1"}
  both: ! blockHash excludes fromBlock and toBlock
{"blockHash":$H,"toBlock":"latest"}
  both: ! blockHash excludes fromBlock and toBlock
{"blockHash":$H,"fromBlock":null}
  both: {"blockHash":$H}
{"blockHash":null,"fromBlock":"safe"}
  both: {"fromBlock":"safe"}
{"fromBlock":16}
  both: ! fromBlock: expected a block number in hex or a tag, found a number
{"fromBlock":"16"}
  both: ! fromBlock: "16" is neither a number in hex with 0x nor one of earliest, latest, safe, finalized, pending
{"fromBlock":"0x"}
  both: ! fromBlock: no digits after 0x
{"fromBlock":"0x0"}
  both: {"fromBlock":"0x0"}
{"fromBlock":"0X1F"}
  both: {"fromBlock":"0x1f"}
{"fromBlock":"0x01"}
  geth: ! fromBlock: "0x01" has a leading zero
  alloy: {"fromBlock":"0x1"}
{"toBlock":"Latest"}
  geth: ! toBlock: "Latest" is neither a number in hex with 0x nor one of earliest, latest, safe, finalized, pending
  alloy: {"toBlock":"latest"}
{"toBlock":"pending"}
  both: {"toBlock":"pending"}
{"toBlock":"0x7fffffffffffffff"}
  both: {"toBlock":"0x7fffffffffffffff"}
{"toBlock":"0x8000000000000000"}
  geth: ! toBlock: "0x8000000000000000" is above 0x7fffffffffffffff
  alloy: {"toBlock":"0x8000000000000000"}
{"toBlock":"0x10000000000000000"}
  both: ! toBlock: "0x10000000000000000" is above 0xffffffffffffffff
{"toBlock":"0x+1"}
  both: ! toBlock: character '+' at 2 is not a hex digit
{"address":"70C87d191324e6712a591f304b4eedef6ad9bb9d"}
  geth: ! address: "70C87d191324e6712a591f304b4eedef6ad9bb9d" does not begin with 0x
  alloy: {"address":[$A0]}
{"address":"0X70c87d191324e6712a591f304b4eedef6ad9bb9d"}
  both: {"address":[$A0]}
{"address":"0x70c87d191324e6712a591f304b4eedef6ad9bb9"}
  both: ! address: 39 hex digits are not whole bytes
{"address":[$A0,$T0]}
  both: ! address[1]: 32 bytes, but an address has 20
{"address":""}
  geth: ! address: "" does not begin with 0x
  alloy: ! address: 0 bytes, but an address has 20
{"topics":[$T0,[$T1,$T1,$T2,"TOPIC31"]]}
  both: ! topics[1][3]: 31 bytes, but a topic has 32
{"topics":[$A0]}
  both: ! topics[0]: 20 bytes, but a topic has 32
{"blockHash":$A0}
  both: ! blockHash: 20 bytes, but a block hash has 32
{"topics":$T0}
  both: ! topics: expected a list, found a string
{"topics":[[[$T0]]]}
  both: ! topics[0][0]: expected a topic or null, found a list
{"topics":[{}]}
  both: ! topics[0]: expected a topic, a list of topics or null, found an object
{"topics":[null,null,null,null,null]}
  both: ! topics: 5 positions, but a log has at most 4 topics
{"address":7}
  both: ! address: expected an address or a list of addresses, found a number
{"address":[1,2]}
  both: ! address[0]: expected an address, found a number
[{}]
  both: ! a query is an object, not a list
"#;

#[test]
fn each_divergence_has_its_row() {
    let topic_31 = format!("\"0x{}\"", "ab".repeat(31));
    let (mut text, mut texts, mut outcomes) = (String::new(), 0, 0);
    for line in DIVERGENCES.lines().filter(|line| !line.is_empty()) {
        let Some((whose, expected)) = line.strip_prefix("  ").and_then(|row| row.split_once(": "))
        else {
            text = line.replace("\"TOPIC31\"", &topic_31);
            texts += 1;
            continue;
        };
        let expected = match expected.strip_prefix("! ") {
            Some(message) => Err(message.into()),
            None => Ok(spelt(expected)),
        };
        for (semantics, name) in [(Semantics::Geth, "geth"), (Semantics::Alloy, "alloy")] {
            if whose == name || whose == "both" {
                let found = read(&text, semantics).map(|query| query.to_json());
                assert_eq!(found, expected, "{name} on {text}");
                outcomes += 1;
            }
        }
    }
    assert_eq!((texts, outcomes), (46, 92));
}

/// alloy's `Filter` accepts and rejects the same texts as this library under alloy's rules, with
/// one exception. alloy accepts one text that this library rejects under both semantics.
#[test]
fn alloy_itself_takes_and_refuses_the_same() {
    let topic_31 = format!("\"0x{}\"", "ab".repeat(31));
    let texts = DIVERGENCES.lines().filter(|line| !line.is_empty() && !line.starts_with("  "));
    let differ = texts.filter(|text| {
        let text = spelt(&text.replace("\"TOPIC31\"", &topic_31));
        let alloy = serde_json::from_str::<alloy_rpc_types_eth::Filter>(&text);
        alloy.is_ok() != LogQuery::from_json(&text, Semantics::Alloy).is_ok()
    });
    assert_eq!(differ.collect::<Vec<_>>(), [r#"{"toBlock":"0x+1"}"#]);
}

#[test]
fn what_is_not_json() {
    let cases = [
        ("", "not JSON: EOF while parsing a value at line 1 column 0"),
        ("{", "not JSON: EOF while parsing an object at line 1 column 1"),
        ("{} {}", "not JSON: trailing characters at line 1 column 4"),
        (r#"{"topics":[],}"#, "not JSON: trailing comma at line 1 column 14"),
        ("{'topics':[]}", "not JSON: key must be a string at line 1 column 2"),
        ("\u{feff}{}", "not JSON: expected value at line 1 column 1"),
    ];
    for (text, message) in cases {
        assert_eq!(read(text, Semantics::Geth), Err(message.into()), "{text}");
    }
    // Deep nesting does not overflow the stack: lists too deep for a query are skipped.
    let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let message = "topics[0][0]: expected a topic or null, found a list";
    let found = read(&format!(r#"{{"topics":{}}}"#, deep(100_000)), Semantics::Geth);
    assert_eq!(found, Err(message.into()));
    let found = read(&format!(r#"{{"x":{}}}"#, deep(100_000)), Semantics::Geth);
    assert_eq!(found, Ok(LogQuery::new()), "geth ignores the field");
    for (text, kind) in [("null", "null"), ("7", "a number"), (r#""q""#, "a string")] {
        let message = format!("a query is an object, not {kind}");
        assert_eq!(read(text, Semantics::Geth), Err(message));
    }
}

/// An error message repeats only the beginning of a long text.
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
    assert_eq!(query.to_json(), spelt(text));
    for semantics in [Semantics::Geth, Semantics::Alloy] {
        assert_eq!(LogQuery::from_json(&query.to_json(), semantics), Ok(query.clone()));
    }
}
