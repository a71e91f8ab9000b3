//! Comparison of answers with expectations.

use chainsieve_conformance::{Answer, Outcome};
use serde_json::{Value, json};

use crate::outcome;

fn value(value: Value) -> Answer {
    Answer::Value(value)
}

fn refusal() -> Answer {
    Answer::Invalid("some text".into())
}

/// Returns the word of the outcome.
fn word(expect: &Value, answer: &Answer) -> &'static str {
    outcome(expect, answer).outcome.word()
}

#[test]
fn each_kind_of_expectation_is_compared() {
    let sixteen = json!({"sha256": "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb", "bytes": 16});
    let zeros = "00".repeat(16);
    for (expect, answer, expected) in [
        (json!({"value": {"k": 5}}), value(json!({"k": 5})), "agrees"),
        (json!({"value": {"k": 5}}), value(json!({"k": 5, "further": 1})), "agrees"),
        (json!({"value": {"k": 5}}), value(json!({"k": 5.0})), "agrees"),
        (json!({"value": {"k": 5}}), value(json!({"k": 6})), "differs"),
        (json!({"value": {"k": 5}}), value(json!({"k": "5"})), "differs"),
        (json!({"value": {"k": 5}}), value(json!({"K": 5})), "differs"),
        (json!({"value": {"k": 5}}), value(json!({})), "differs"),
        (json!({"value": {"k": null}}), value(json!({})), "differs"),
        (json!({"value": {"k": 5}}), refusal(), "refused"),
        (json!({"value": {"h": "0a"}}), value(json!({"h": "0A"})), "differs"),
        (json!({"value": {"l": [1, 2]}}), value(json!({"l": [1, 2]})), "agrees"),
        (json!({"value": {"l": [1, 2]}}), value(json!({"l": [2, 1]})), "differs"),
        (json!({"value": {"l": [1, 2]}}), value(json!({"l": [1, 2, 3]})), "differs"),
        (json!({"value": {"l": [1, 2]}}), value(json!({"l": [1]})), "differs"),
        (json!({"value": {"h": sixteen}}), value(json!({"h": zeros})), "agrees"),
        (json!({"value": {"h": sixteen}}), value(json!({"h": "00".repeat(17)})), "differs"),
        (json!({"value": {"h": sixteen}}), value(json!({"h": "01".repeat(16)})), "differs"),
        (json!({"value": {"h": sixteen}}), value(json!({"h": "0".repeat(31)})), "differs"),
        (json!({"value": {"h": sixteen}}), value(json!({"h": sixteen})), "differs"),
        (json!({"invalid": "Malformed"}), refusal(), "agrees"),
        (json!({"invalid": "Malformed"}), value(json!({})), "accepted"),
        (json!({"value": {"k": 5}}), Answer::Skipped("no such call".into()), "skipped"),
        (json!({"value": {"k": 5}}), Answer::Error("ZeroDivisionError".into()), "error"),
        (json!({"invalid": "Malformed"}), Answer::Error("TypeError".into()), "error"),
    ] {
        let text = format!("{expect} {answer:?}");
        assert_eq!(word(&expect, &answer), expected, "{text}");
    }
}

/// As floats of 64 bits, the integers of each of these pairs would be equal.
#[test]
fn integers_are_compared_exactly() {
    let number = |text: &str| -> Value { serde_json::from_str(text).expect("a number") };
    for (expected, got, expected_word) in [
        ("9007199254740992", "9007199254740993", "differs"),
        ("9007199254740993", "9007199254740992", "differs"),
        ("18446744073709551615", "18446744073709551614", "differs"),
        ("18446744073709551615", "18446744073709551616", "differs"),
        ("-9007199254740993", "-9007199254740992", "differs"),
        ("18446744073709551615", "18446744073709551615", "agrees"),
        ("9007199254740992", "9007199254740993.0", "differs"),
        ("900719925474099", "900719925474099.0", "agrees"),
        ("-3", "-3.0", "agrees"),
        ("3.0", "3", "agrees"),
        ("3", "3.0000000000000004", "differs"),
    ] {
        let expect = json!({"value": {"n": number(expected)}});
        let got = word(&expect, &value(json!({"n": number(got)})));
        assert_eq!(got, expected_word, "{expected}");
    }
}

#[test]
fn any_of_several_answers_agrees() {
    let expect = json!({"any_of": [
        {"value": {"logs": ["a"]}, "by": ["core"]},
        {"value": {"logs": []}, "by": ["bip-text", "geth"]},
        {"invalid": "Arity", "by": ["geth"]},
    ]});
    let by = |answer: &Answer| match outcome(&expect, answer).outcome {
        Outcome::Agrees { by } => by.join(" "),
        other => other.word().to_owned(),
    };
    assert_eq!(by(&value(json!({"logs": ["a"]}))), "core");
    assert_eq!(by(&value(json!({"logs": []}))), "bip-text geth");
    assert_eq!(by(&refusal()), "geth");
    assert_eq!(by(&value(json!({"logs": ["b"]}))), "differs");
}

#[test]
fn the_first_difference_is_named() {
    let expect = json!({"value": {"a": 1, "b": [{"c/d": 1}, {"c/d": 2}]}});
    let at = |answer| match outcome(&expect, &value(answer)).outcome {
        Outcome::Differs { at, .. } => at,
        other => other.word().to_owned(),
    };
    assert_eq!(at(json!({"a": 2, "b": []})), "/a");
    assert_eq!(at(json!({"a": 1, "b": []})), "/b");
    assert_eq!(at(json!({"a": 1, "b": [{"c/d": 1}, {"c/d": 3}]})), "/b/1/c~1d");
    assert_eq!(at(json!({"a": 1})), "/b");
}

/// Returns all values that differ from `value` in one place.
fn mutations(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!(0)],
        Value::Bool(bool) => vec![json!(!bool)],
        Value::Number(number) => vec![json!(number.as_u64().expect("small") + 1), json!("x")],
        Value::String(text) => vec![json!(format!("{text}0")), json!(""), json!(null)],
        Value::Array(items) => {
            let mut all = vec![json!([items.as_slice(), &[json!(0)]].concat()), json!({})];
            for place in 0..items.len() {
                let mut fewer = items.clone();
                fewer.remove(place);
                all.push(fewer.into());
                for mutation in mutations(&items[place]) {
                    let mut other = items.clone();
                    other[place] = mutation;
                    all.push(other.into());
                }
            }
            all
        }
        Value::Object(members) => {
            let mut all = Vec::new();
            for (name, member) in members {
                let mut more = members.clone();
                more.insert(format!("{name}_"), member.clone());
                all.push(more.into());
                for mutation in mutations(member) {
                    let mut other = members.clone();
                    other.insert(name.clone(), mutation);
                    all.push(other.into());
                }
            }
            all
        }
    }
}

#[test]
fn each_mutated_expectation_is_reported() {
    let answer = json!({
        "bytes": 10, "well_formed": true, "hash": "00ff", "none": null,
        "pushes": ["aa", "bb"], "matches": [[0, "aa"], [3, "bb"]],
    });
    assert_eq!(word(&json!({ "value": answer }), &value(answer.clone())), "agrees");
    let mutations = mutations(&answer);
    assert!(mutations.len() > 40, "{}", mutations.len());
    for mutation in mutations {
        let expect = json!({ "value": mutation });
        assert_eq!(word(&expect, &value(answer.clone())), "differs", "{mutation}");
    }
    assert_eq!(word(&json!({"invalid": "x"}), &value(answer)), "accepted");
}
