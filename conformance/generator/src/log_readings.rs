//! Log filters that are read differently, or wrongly by some.

use serde_json::{Value, json};

use crate::log_filter::MOST_ALTERNATIVES;

/// So many alternatives for a position, all different.
pub(crate) fn alternatives(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("0x{:064x}", number + 1)).collect()
}

struct Filters {
    a: &'static str,
    b: &'static str,
    s: String,
    t: String,
}

/// Filters that are read differently, or wrongly by some.
pub(crate) fn readings() -> Vec<(Option<&'static str>, &'static str, Value, &'static [&'static str])>
{
    let Filters { a, b, s, t } = Filters {
        a: "0x70c87d191324e6712a591f304b4eedef6ad9bb9d",
        b: "0x9b2055d370f73ec7d8a03e965129118dc8f5bf83",
        s: format!("0x{}", "11".repeat(32)),
        t: format!("0x{}", "2a".repeat(32)),
    };
    let (s, t) = (s.as_str(), t.as_str());
    let hash = s;
    vec![
        (Some("nothing"), "an empty object", json!({}), &[]),
        (
            None,
            "a range of numbers, as most clients write it",
            json!({ "fromBlock": "0x1", "toBlock": "0xff" }),
            &[],
        ),
        (
            None,
            "block 0: a zero is not a missing number",
            json!({ "fromBlock": "0x0", "toBlock": "0x0" }),
            &[],
        ),
        (
            None,
            "tags: they stay words",
            json!({ "fromBlock": "earliest", "toBlock": "latest" }),
            &[],
        ),
        (
            None,
            "safe and finalized: tags since the merge",
            json!({ "fromBlock": "safe", "toBlock": "finalized" }),
            &[],
        ),
        (
            Some("tag-in-capitals"),
            "a tag in capitals",
            json!({ "fromBlock": "LATEST" }),
            &["NumberForm"],
        ),
        (Some("unknown-tag"), "an unknown tag", json!({ "fromBlock": "newest" }), &["Refused"]),
        (
            Some("leading-zero"),
            "a number with a leading zero",
            json!({ "fromBlock": "0x01" }),
            &["NumberForm"],
        ),
        (
            Some("decimal"),
            "a number without 0x",
            json!({ "fromBlock": "12" }),
            &["Refused", "NumberForm"],
        ),
        (
            Some("json-number"),
            "a number as a JSON number",
            json!({ "fromBlock": 20 }),
            &["NumberForm"],
        ),
        (Some("0x-alone"), "0x without digits", json!({ "fromBlock": "0x" }), &["NumberForm"]),
        (Some("empty-number"), "an empty number", json!({ "fromBlock": "" }), &["NumberForm"]),
        (
            Some("2-to-the-63-minus-1"),
            "block 2^63 - 1, the last that geth takes",
            json!({ "fromBlock": "0x7fffffffffffffff" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-64-minus-1"),
            "block 2^64 - 1, the last that alloy takes",
            json!({ "fromBlock": "0xffffffffffffffff" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-63"),
            "block 2^63",
            json!({ "fromBlock": "0x8000000000000000" }),
            &["NumberForm"],
        ),
        (
            Some("2-to-the-64"),
            "block 2^64",
            json!({ "fromBlock": "0x10000000000000000" }),
            &["Refused", "NumberForm"],
        ),
        (
            Some("null-range"),
            "null for both ends",
            json!({ "fromBlock": null, "toBlock": null }),
            &[],
        ),
        (None, "one address, not in a list", json!({ "address": a }), &[]),
        (None, "two addresses: alternatives", json!({ "address": [a, b] }), &[]),
        (None, "an address twice counts once", json!({ "address": [a, a] }), &[]),
        (
            Some("no-addresses"),
            "an empty list of addresses: any",
            json!({ "address": [] }),
            &["EmptyList"],
        ),
        (Some("null-address"), "null as address: any", json!({ "address": null }), &[]),
        (
            Some("list-of-null"),
            "null in the list of addresses",
            json!({ "address": [null] }),
            &["NullInList"],
        ),
        (
            Some("null-among-addresses"),
            "null before an address",
            json!({ "address": [null, a] }),
            &["NullInList"],
        ),
        (
            Some("short-address"),
            "an address of 19 bytes",
            json!({ "address": &a[..40] }),
            &["Refused"],
        ),
        (
            Some("long-address"),
            "an address of 21 bytes",
            json!({ "address": format!("{a}00") }),
            &["Refused"],
        ),
        (
            Some("address-without-0x"),
            "an address without 0x",
            json!({ "address": &a[2..] }),
            &["Refused"],
        ),
        (
            Some("address-in-capitals"),
            "an address in capitals",
            json!({ "address": format!("0x{}", a[2..].to_uppercase()) }),
            &["MixedCase"],
        ),
        (
            Some("checksum-not-checked"),
            "an address in mixed case, with a false checksum",
            json!({ "address": "0x70C87d191324e6712a591f304b4eedef6ad9bB9d" }),
            &["MixedCase"],
        ),
        (
            Some("address-not-hex"),
            "an address with other letters",
            json!({ "address": format!("0xzz{}", &a[4..]) }),
            &["Refused"],
        ),
        (None, "one topic: one position", json!({ "topics": [s] }), &[]),
        (None, "two topics: two positions, not alternatives", json!({ "topics": [s, t] }), &[]),
        (None, "four topics: the most that a log has", json!({ "topics": [s, t, s, t] }), &[]),
        (None, "alternatives: one position", json!({ "topics": [[s, t]] }), &[]),
        (None, "an alternative twice counts once", json!({ "topics": [[s, s]] }), &[]),
        (Some("no-topics"), "an empty list of topics", json!({ "topics": [] }), &["EmptyList"]),
        (Some("null-topics"), "null as topics", json!({ "topics": null }), &[]),
        (Some("null-first"), "a wildcard, then a topic", json!({ "topics": [null, s] }), &[]),
        (
            Some("empty-list-first"),
            "an empty list, then a topic",
            json!({ "topics": [[], s] }),
            &["EmptyList"],
        ),
        (
            Some("one-null"),
            "one wildcard: a log needs a topic",
            json!({ "topics": [null] }),
            &["Arity"],
        ),
        (
            Some("one-empty-list"),
            "one empty list",
            json!({ "topics": [[]] }),
            &["Arity", "EmptyList"],
        ),
        (
            Some("topic-then-null"),
            "a topic, then a wildcard: a log needs two topics",
            json!({ "topics": [s, null] }),
            &["Arity"],
        ),
        (
            Some("topic-then-empty-list"),
            "a topic, then an empty list",
            json!({ "topics": [s, []] }),
            &["Arity", "EmptyList"],
        ),
        (
            Some("four-nulls"),
            "four wildcards: only logs with four topics",
            json!({ "topics": [null, null, null, null] }),
            &["Arity"],
        ),
        (
            Some("null-in-alternatives"),
            "null after an alternative",
            json!({ "topics": [[s, null]] }),
            &["Arity", "NullInList"],
        ),
        (
            Some("null-before-alternatives"),
            "null before an alternative, then a topic",
            json!({ "topics": [[null, s], t] }),
            &["NullInList"],
        ),
        (
            Some("null-hides-a-bad-topic"),
            "null, then something that is no topic: geth does not read it",
            json!({ "topics": [[null, "0x01"], t] }),
            &["NullInList"],
        ),
        (
            Some("list-of-one-null"),
            "a list with null only",
            json!({ "topics": [[null]] }),
            &["Arity", "NullInList"],
        ),
        (
            Some("five-topics"),
            "five positions",
            json!({ "topics": [s, t, s, t, s] }),
            &["TooManyTopics", "Refused"],
        ),
        (
            Some("five-nulls"),
            "five wildcards",
            json!({ "topics": [null, null, null, null, null] }),
            &["TooManyTopics", "Refused"],
        ),
        (
            Some("topics-as-text"),
            "a topic in the place of the list",
            json!({ "topics": s }),
            &["Refused"],
        ),
        (Some("short-topic"), "a topic of 31 bytes", json!({ "topics": [&s[..64]] }), &["Refused"]),
        (
            Some("long-topic"),
            "a topic of 33 bytes",
            json!({ "topics": [format!("{s}00")] }),
            &["Refused"],
        ),
        (
            Some("topic-without-0x"),
            "a topic without 0x",
            json!({ "topics": [&s[2..]] }),
            &["Refused"],
        ),
        (
            Some("topic-in-capitals"),
            "a topic in capitals",
            json!({ "topics": [format!("0x{}", t[2..].to_uppercase())] }),
            &["MixedCase"],
        ),
        (
            Some("list-in-a-list"),
            "a list in a list of alternatives",
            json!({ "topics": [[[s]]] }),
            &["Refused"],
        ),
        (Some("topic-is-a-number"), "a number as topic", json!({ "topics": [1] }), &["Refused"]),
        (None, "a block by its hash, and no range", json!({ "blockHash": hash }), &["BlockHash"]),
        (
            Some("hash-and-from"),
            "blockHash beside fromBlock",
            json!({ "blockHash": hash, "fromBlock": "0x1" }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("hash-and-to"),
            "blockHash beside toBlock",
            json!({ "blockHash": hash, "toBlock": "0x1" }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("hash-and-null"),
            "blockHash beside null",
            json!({ "blockHash": hash, "fromBlock": null }),
            &["BlockHash"],
        ),
        (
            Some("short-hash"),
            "a block hash of 31 bytes",
            json!({ "blockHash": &hash[..64] }),
            &["BlockHash", "Refused"],
        ),
        (
            Some("unknown-member"),
            "a member that nobody defines",
            json!({ "fromBlock": "0x1", "limit": "0x1" }),
            &["UnknownMember"],
        ),
        (
            Some("1001-alternatives"),
            "1,001 topics at a position: one more than geth takes",
            json!({ "topics": [alternatives(MOST_ALTERNATIVES + 1)] }),
            &["TooManyAlternatives"],
        ),
        (
            None,
            "everything at once: no member disturbs another",
            json!({ "fromBlock": "0x10", "toBlock": "0x20", "address": [a, b], "topics": [[s, t], null, t] }),
            &[],
        ),
    ]
}
