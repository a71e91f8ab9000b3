//! The pack's own form: areas, cases and what they expect, and the files made of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bitcoin::hashes::{Hash as _, sha256};
use serde_json::{Map, Value, json};

/// Form of a member of an input or a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Bytes as lowercase hex.
    Bytes,
    /// So many bytes as lowercase hex.
    Fixed(u32),
    /// Hex digits of either case: only where a case is about that.
    AnyCase,
    Integer,
    Boolean,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A decimal number as text.
    Decimal,
    Text,
    List(&'static Self),
    Object(&'static [Member]),
    /// JSON as another format defines it.
    Json,
    /// An integer or one of these words.
    IntegerOr(&'static [&'static str]),
    /// A list of lists `[index, transaction id]`.
    Matches,
}

/// A member of an input or a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
    pub(crate) optional: bool,
}

pub(crate) const fn member(name: &'static str, kind: Kind, about: &'static str) -> Member {
    Member { name, kind, about, optional: false }
}

pub(crate) const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Member {
    Member { name, kind, about, optional: true }
}

/// How binding the expected answer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    /// A block with another answer is invalid.
    Consensus,
    /// A BIP, an EIP or the Yellow Paper says so.
    Specification,
    /// The reference implementation does so.
    Reference,
    /// Implementations differ, and none of them is wrong.
    Open,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Consensus => "consensus",
            Self::Specification => "specification",
            Self::Reference => "reference",
            Self::Open => "open",
        }
    }
}

/// An answer: a value, or a refusal of the given class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Value(Value),
    Invalid(&'static str),
}

impl Answer {
    fn write_into(&self, object: &mut Map<String, Value>) {
        match self {
            Self::Value(value) => object.insert("value".into(), value.clone()),
            Self::Invalid(class) => object.insert("invalid".into(), json!(class)),
        };
    }
}

/// The expected answer, or several with the sides that give them, where implementations differ.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    One(Answer),
    AnyOf(Vec<(Vec<&'static str>, Answer)>),
}

pub(crate) fn value(value: Value) -> Expect {
    Expect::One(Answer::Value(value))
}

pub(crate) fn invalid(class: &'static str) -> Expect {
    Expect::One(Answer::Invalid(class))
}

/// Returns one expectation if all sides give the same answer, and otherwise each answer with the
/// sides that give it. A side may give several answers.
pub(crate) fn sides(sides: impl IntoIterator<Item = (&'static str, Answer)>) -> Expect {
    let mut answers: Vec<(Vec<&'static str>, Answer)> = Vec::new();
    for (side, answer) in sides {
        match answers.iter_mut().find(|(_, other)| *other == answer) {
            Some((by, _)) if by.contains(&side) => {}
            Some((by, _)) => by.push(side),
            None => answers.push((vec![side], answer)),
        }
    }
    match answers.len() {
        1 => Expect::One(answers.remove(0).1),
        _ => Expect::AnyOf(answers),
    }
}

impl Expect {
    fn json(&self) -> Value {
        let mut object = Map::new();
        match self {
            Self::One(answer) => answer.write_into(&mut object),
            Self::AnyOf(answers) => {
                let answers = answers.iter().map(|(by, answer)| {
                    let mut object = Map::new();
                    answer.write_into(&mut object);
                    object.insert("by".into(), json!(by));
                    Value::Object(object)
                });
                object.insert("any_of".into(), answers.collect());
            }
        }
        Value::Object(object)
    }
}

/// Flag of cases that only Bitcoin Core's code decides.
pub(crate) const QUIRK: &str = "core-quirk";

/// A case. Its id is the area's name and `name`, or the beginning of a hash of the input, so that
/// an id keeps its meaning when cases are added.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    name: Option<&'static str>,
    comment: String,
    level: Level,
    source: Option<String>,
    flags: Vec<&'static str>,
    needs: Option<Value>,
    input: Value,
    expect: Expect,
}

impl Case {
    pub(crate) fn new(comment: impl Into<String>, input: Value, expect: Expect) -> Self {
        let (comment, level) = (comment.into(), Level::Reference);
        let (name, source, flags, needs) = (None, None, Vec::new(), None);
        Self { name, comment, level, source, flags, needs, input, expect }
    }

    pub(crate) fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    pub(crate) fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    pub(crate) fn source(self, source: impl Into<String>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    pub(crate) fn flag(mut self, flag: &'static str) -> Self {
        self.flags.push(flag);
        self
    }

    pub(crate) fn flag_if(self, condition: bool, flag: &'static str) -> Self {
        if condition { self.flag(flag) } else { self }
    }

    /// The case needs a block that only the corpus has.
    pub(crate) fn needs(self, chain: &str, height: u64, hash: &str) -> Self {
        let needs = json!({ "corpus": true, "chain": chain, "height": height, "hash": hash });
        Self { needs: Some(needs), ..self }
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == Some(name)
    }

    pub(crate) fn input(&self) -> &Value {
        &self.input
    }

    pub(crate) fn expect(&self) -> &Expect {
        &self.expect
    }

    fn id(&self, area: &str) -> String {
        let hash = || hex::encode(sha256::Hash::hash(self.input.to_string().as_bytes()));
        match self.name {
            Some(name) => format!("{area}/{name}"),
            None => format!("{area}/{}", &hash()[..8]),
        }
    }

    fn json(&self, area: &str) -> Value {
        let mut object = Map::new();
        object.insert("id".into(), json!(self.id(area)));
        object.insert("comment".into(), json!(self.comment));
        object.insert("level".into(), json!(self.level.name()));
        if let Some(source) = &self.source {
            object.insert("source".into(), json!(source));
        }
        object.insert("flags".into(), json!(self.flags));
        if let Some(needs) = &self.needs {
            object.insert("needs".into(), needs.clone());
        }
        object.insert("input".into(), self.input.clone());
        object.insert("expect".into(), self.expect.json());
        Value::Object(object)
    }
}

/// Cases that share parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) params: Map<String, Value>,
    pub(crate) cases: Vec<Case>,
}

/// An area: one question that an implementation answers.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) source: &'static str,
    pub(crate) input: Vec<Member>,
    pub(crate) value: Vec<Member>,
    /// What each flag of the area's cases means.
    pub(crate) flags: &'static [(&'static str, &'static str)],
    pub(crate) groups: Vec<Group>,
}

impl Area {
    /// Returns the flags that cases have, with their meaning.
    fn used_flags(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let cases = || self.groups.iter().flat_map(|group| &group.cases);
        self.flags.iter().filter(move |(name, _)| cases().any(|case| case.flags.contains(name)))
    }

    /// Returns the area with the cases in the order of their size, the smallest first, each input
    /// once.
    ///
    /// # Panics
    /// Panics if two cases have one id, or if a flag is used that the area does not explain.
    pub(crate) fn sorted(mut self) -> Self {
        let mut inputs = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for group in &mut self.groups {
            // The named cases come first, so that they stay when another case has their input.
            group.cases.sort_by_key(|case| case.name.is_none());
            let params = Value::Object(group.params.clone()).to_string();
            group.cases.retain(|case| inputs.insert(format!("{params}{}", case.input)));
            // Inputs with references come last: what they stand for is large.
            group.cases.sort_by_cached_key(|case| {
                let (size, refers) = (case.input.to_string().len(), has_references(&case.input));
                (case.needs.is_some(), refers, size, case.id(""))
            });
            for case in &group.cases {
                assert!(ids.insert(case.id(self.name)), "two cases are {}", case.id(self.name));
                for flag in &case.flags {
                    let known = *flag == QUIRK || self.flags.iter().any(|(name, _)| name == flag);
                    assert!(known, "{}: no meaning of {flag}", self.name);
                }
            }
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.cases.len()).sum()
    }

    /// The vector file: one case per line.
    pub(crate) fn vectors(&self) -> String {
        let flags: Map<String, Value> =
            self.used_flags().map(|(name, about)| ((*name).into(), json!(about))).collect();
        let mut text = String::from("{\"pack\":1,");
        let head = [
            ("area", json!(self.name)),
            ("title", json!(self.title)),
            ("source", json!(self.source)),
            ("licence", json!("CC0-1.0")),
            ("flags", Value::Object(flags)),
        ];
        for (name, value) in head {
            let _ = write!(text, "\n\"{name}\":{value},");
        }
        text.push_str("\n\"groups\":[");
        for (at, group) in self.groups.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let params = Value::Object(group.params.clone());
            let _ = write!(text, "{comma}\n{{\"params\":{params},\"cases\":[");
            for (at, case) in group.cases.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                let _ = write!(text, "{comma}\n{}", case.json(self.name));
            }
            text.push_str("\n]}");
        }
        text.push_str("\n]}\n");
        text
    }

    /// The page: what is asked and answered, the flags, and the named cases.
    pub(crate) fn page(&self) -> String {
        let mut text = format!("# {}: {}\n\n{}\n\n", self.name, self.title, self.about);
        let _ = writeln!(text, "Expected values: {}. Cases: {}.\n", self.source, self.len());
        for (title, members) in [("Input", &self.input), ("Value", &self.value)] {
            let _ = writeln!(text, "| {title} | form | meaning |\n|---|---|---|");
            for member in members {
                let (name, form) = (member.name, member.kind.text());
                let optional = if member.optional { ", optional" } else { "" };
                let _ = writeln!(text, "| `{name}` | {form}{optional} | {} |", member.about);
            }
            text.push('\n');
        }
        if self.used_flags().next().is_some() {
            text.push_str("| Flag | meaning |\n|---|---|\n");
            for (name, about) in self.used_flags() {
                let _ = writeln!(text, "| `{name}` | {about} |");
            }
            text.push('\n');
        }
        let cases = self.groups.iter().flat_map(|group| &group.cases);
        let named: Vec<_> = cases.filter(|case| case.name.is_some()).collect();
        if !named.is_empty() {
            text.push_str("| Named case | why it is there |\n|---|---|\n");
            for case in named {
                let (id, comment) = (case.id(self.name), case.comment.replace('|', "\\|"));
                let _ = writeln!(text, "| `{id}` | {comment} |");
            }
        }
        text.trim_end().to_owned() + "\n"
    }

    /// The JSON Schema of the vector file.
    pub(crate) fn schema(&self) -> String {
        let answer = |name: &str, schema: Value| {
            json!({ "type": "object", "required": [name], "additionalProperties": false,
                "properties": { name: schema } })
        };
        let value = object_schema(&self.value, false);
        let class = json!({ "type": "string", "minLength": 1 });
        let by = json!({ "type": "array", "minItems": 1,
            "items": { "enum": ["core", "bip-text", "strict", "geth", "alloy"] } });
        let side = |name: &str, schema: &Value| {
            json!({ "type": "object", "required": [name, "by"], "additionalProperties": false,
                "properties": { name: schema, "by": by } })
        };
        let sides = json!({ "type": "array", "minItems": 2,
            "items": { "oneOf": [side("value", &value), side("invalid", &class)] } });
        let expect = json!({ "oneOf": [
            answer("value", value), answer("invalid", class), answer("any_of", sides),
        ] });
        let flags: Vec<_> = self.used_flags().map(|(name, _)| *name).chain([QUIRK]).collect();
        let case = json!({ "type": "object", "additionalProperties": false,
            "required": ["id", "comment", "level", "flags", "input", "expect"],
            "properties": {
                "id": { "type": "string", "pattern": format!("^{}/", self.name.replace('.', "\\.")) },
                "comment": { "type": "string", "minLength": 1 },
                "level": { "enum": ["consensus", "specification", "reference", "open"] },
                "source": { "type": "string", "minLength": 1 },
                "flags": { "type": "array", "items": { "enum": flags }, "uniqueItems": true },
                "needs": { "$ref": "#/$defs/needs" },
                "input": object_schema(&self.input, true),
                "expect": expect,
            } });
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": format!("Vectors of {}", self.name),
            "type": "object", "additionalProperties": false,
            "required": ["pack", "area", "title", "source", "licence", "flags", "groups"],
            "properties": {
                "pack": { "const": 1 },
                "area": { "const": self.name },
                "title": { "type": "string" },
                "source": { "type": "string" },
                "licence": { "type": "string" },
                "flags": { "type": "object", "additionalProperties": { "type": "string" } },
                "groups": { "type": "array", "minItems": 1, "items": {
                    "type": "object", "additionalProperties": false, "required": ["params", "cases"],
                    "properties": { "params": { "type": "object" },
                        "cases": { "type": "array", "minItems": 1, "items": case } } } },
            },
            "$defs": {
                "needs": { "type": "object", "additionalProperties": false,
                    "required": ["corpus", "chain", "height", "hash"],
                    "properties": { "corpus": { "const": true }, "chain": { "type": "string" },
                        "height": { "type": "integer" },
                        "hash": { "type": "string", "pattern": "^[0-9a-f]{64}$" } } },
                "reference": { "oneOf": [
                    reference(&[("from", json!({ "type": "string" })), ("at", json!({ "type": "string" }))], &["as"]),
                    reference(&[("corpus", json!({ "type": "string" }))], &["as"]),
                    reference(&[("counted", json!({ "type": "object" }))], &[]),
                    reference(&[("repeat", json!({ "type": "string" })), ("times", json!({ "type": "integer" }))], &[]),
                ] },
                "long": reference(&[("sha256", json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })),
                    ("bytes", json!({ "type": "integer", "minimum": 0 }))], &[]),
            },
        });
        serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
    }
}

fn reference(members: &[(&str, Value)], optional: &[&str]) -> Value {
    let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
    let mut properties: Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).into(), schema.clone())).collect();
    for name in optional {
        properties.insert((*name).into(), json!({ "enum": ["bytes", "scripts"] }));
    }
    json!({ "type": "object", "additionalProperties": false, "required": names,
        "properties": properties })
}

/// Schema of an object with these members. An input may have references in place of values, and
/// members that come from the group; a value may have hashes in place of long bytes.
fn object_schema(members: &[Member], input: bool) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|member| (member.name.to_owned(), member.kind.schema(input))).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false,
        "properties": properties });
    if !input {
        // A case may state a part of the value: the rest is then not compared.
        schema["minProperties"] = json!(1);
    }
    schema
}

impl Kind {
    fn text(self) -> String {
        match self {
            Self::Bytes => "hex".into(),
            Self::Fixed(bytes) => format!("hex of {bytes} bytes"),
            Self::AnyCase => "hex, of either case".into(),
            Self::Integer => "integer".into(),
            Self::Boolean => "boolean".into(),
            Self::OneOf(words) => words.join(", "),
            Self::Decimal => "decimal number as text".into(),
            Self::Text => "text".into(),
            Self::List(kind) => format!("list: {}", kind.text()),
            Self::Object(members) => {
                let names: Vec<_> = members
                    .iter()
                    .map(|member| format!("`{}`: {}", member.name, member.kind.text()))
                    .collect();
                format!("object of {}", names.join(", "))
            }
            Self::Json => "JSON".into(),
            Self::IntegerOr(words) => {
                format!("integer (as text above 2^53), or one of {}", words.join(", "))
            }
            Self::Matches => "list of `[index, transaction id]`".into(),
        }
    }

    fn schema(self, input: bool) -> Value {
        let hex = |pattern: String| json!({ "type": "string", "pattern": pattern });
        let plain = match self {
            Self::Bytes => hex("^([0-9a-f]{2})*$".into()),
            Self::Fixed(bytes) => hex(format!("^[0-9a-f]{{{}}}$", 2 * bytes)),
            Self::AnyCase => hex("^([0-9a-fA-F]{2})*$".into()),
            Self::Integer => json!({ "type": "integer", "minimum": 0 }),
            Self::Boolean => json!({ "type": "boolean" }),
            Self::OneOf(words) => json!({ "enum": words }),
            Self::Decimal => hex("^[0-9.e-]+$".into()),
            Self::Text => json!({ "type": "string" }),
            Self::List(kind) => json!({ "type": "array", "items": kind.schema(input) }),
            Self::Object(members) => object_schema(members, input),
            Self::Json => json!({}),
            Self::IntegerOr(words) => {
                json!({ "oneOf": [{ "type": "integer" },
                    { "enum": words }, { "type": "string", "pattern": "^[0-9]+$" }] })
            }
            Self::Matches => json!({ "type": "array", "items": { "type": "array",
                "prefixItems": [{ "type": "integer" }, hex("^[0-9a-f]{64}$".into())],
                "minItems": 2, "maxItems": 2 } }),
        };
        let other = if input { "reference" } else { "long" };
        match self {
            Self::Json | Self::Boolean | Self::Integer | Self::OneOf(_) => plain,
            _ => json!({ "anyOf": [plain, { "$ref": format!("#/$defs/{other}") }] }),
        }
    }
}

/// The index of the pack.
pub(crate) fn index(version: &str, areas: &[Area]) -> String {
    let bitcoin = ["bip37.*", "script.*", "gcs.*", "bip157.*", "bip158.*"];
    let ethereum = ["header.*", "logsbloom.*", "logs.*", "receipts.*"];
    let areas: Vec<_> = areas
        .iter()
        .map(|area| {
            json!({ "name": area.name, "title": area.title, "cases": area.len(),
                "file": format!("vectors/{}.json", area.name) })
        })
        .collect();
    let profile =
        |areas: &[&str], by: &str, about: &str| json!({ "areas": areas, "by": by, "about": about });
    let index = json!({
        "pack": 1,
        "version": version,
        "licence": "CC0-1.0",
        "flags": { QUIRK: "Bitcoin Core does so, and the BIPs do not say it" },
        "profiles": {
            "core-exact": profile(&bitcoin, "core", "Bitcoin Core 28.1, bit for bit"),
            "strict": profile(
                &bitcoin,
                "strict",
                "Bitcoin Core 28.1, but refuses what no builder writes: bits after a set, bytes after a message",
            ),
            "bip-text": profile(
                &[&bitcoin[..], &["bip352.*"]].concat(),
                "bip-text",
                "the text of the BIPs, where Bitcoin Core differs from it or lacks it",
            ),
            "geth": profile(&ethereum, "geth", "go-ethereum"),
            "alloy": profile(&ethereum, "alloy", "alloy 2, and nodes that read filters with it; in logs.node, ranges of blocks follow go-ethereum's rules here too"),
        },
        "areas": areas,
    });
    serde_json::to_string_pretty(&index).expect("an index is JSON") + "\n"
}

/// Returns `true` if an input has a reference in it.
fn has_references(input: &Value) -> bool {
    match input {
        Value::Object(object) => {
            ["from", "corpus", "counted", "repeat"].iter().any(|name| object.contains_key(*name))
                || object.values().any(has_references)
        }
        Value::Array(list) => list.iter().any(has_references),
        _ => false,
    }
}

/// The files of fixtures that the inputs refer to.
pub(crate) fn fixtures(areas: &[Area]) -> BTreeSet<String> {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                if let (Some(Value::String(from)), true) =
                    (object.get("from"), object.contains_key("at"))
                {
                    found.insert(from.clone());
                }
                object.values().for_each(|value| walk(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    for group in areas.iter().flat_map(|area| &area.groups) {
        group.params.values().for_each(|value| walk(value, &mut found));
        for case in &group.cases {
            walk(&case.input, &mut found);
        }
    }
    found
}
