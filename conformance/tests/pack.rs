//! The files of the pack hold what the format says.

use std::collections::BTreeSet;

use serde_json::Value;

fn json(path: &str) -> Value {
    let text = chainsieve_vectors::file(path).unwrap_or_else(|| panic!("no {path}"));
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn areas() -> Vec<String> {
    let pack = json("pack.json");
    let areas = pack["areas"].as_array().expect("a list").iter();
    areas.map(|area| area["name"].as_str().expect("a name").to_owned()).collect()
}

/// The groups of an area.
fn groups(vectors: &Value) -> &[Value] {
    vectors["groups"].as_array().expect("a list")
}

fn cases(vectors: &Value) -> impl Iterator<Item = &Value> {
    groups(vectors).iter().flat_map(|group| group["cases"].as_array().expect("a list"))
}

#[test]
fn each_file_is_valid_under_its_schema() {
    for area in areas() {
        let schema = json(&format!("schema/{area}.schema.json"));
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let vectors = json(&format!("vectors/{area}.json"));
        if let Some(error) = validator.iter_errors(&vectors).next() {
            panic!("{area}: {error} at {}", error.instance_path);
        }
        let page = format!("pages/{area}.md");
        let page = chainsieve_vectors::file(&page).expect("a page");
        assert!(page.starts_with(&format!("# {area}: ")), "{area}");
    }
}

/// Damages a case.
type Change = fn(&mut Value);

/// A schema that accepts everything would make the test above worthless.
#[test]
fn schemas_refuse_what_the_format_does_not_have() {
    for area in areas() {
        let schema = json(&format!("schema/{area}.schema.json"));
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let honest = json(&format!("vectors/{area}.json"));
        let case = "/groups/0/cases/0";
        let changes: [(&str, Change); 6] = [
            ("an unknown member", |case| case["expected"] = Value::Null),
            ("an unknown level", |case| case["level"] = "strict".into()),
            ("an unknown flag", |case| case["flags"] = ["NoSuchFlag"].into()),
            ("an unknown input", |case| case["input"]["no_such_member"] = 1.into()),
            ("two expectations", |case| {
                case["expect"] = serde_json::json!({ "value": {}, "invalid": "x" });
            }),
            ("an id of another area", |case| case["id"] = "other/1".into()),
        ];
        for (what, change) in changes {
            let mut changed = honest.clone();
            change(changed.pointer_mut(case).expect("a case"));
            assert!(!validator.is_valid(&changed), "{area}: {what}");
        }
    }
}

#[test]
fn ids_are_unique_and_inputs_do_not_repeat() {
    let mut ids = BTreeSet::new();
    for area in areas() {
        let vectors = json(&format!("vectors/{area}.json"));
        let mut inputs = BTreeSet::new();
        for case in cases(&vectors) {
            let id = case["id"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "two cases are {id}");
            assert!(inputs.insert(case["input"].to_string()), "{id} repeats an input");
        }
    }
    assert!(ids.len() > 5_000, "{} cases", ids.len());
}

/// Inputs that refer to other data come after those that do not.
#[test]
fn the_smallest_inputs_come_first() {
    for area in areas() {
        let vectors = json(&format!("vectors/{area}.json"));
        for group in groups(&vectors) {
            let inputs = group["cases"].as_array().expect("a list").iter();
            let inputs = inputs.map(|case| case["input"].to_string());
            let refers = |input: &str| {
                ["from", "corpus", "counted", "repeat"]
                    .iter()
                    .any(|name| input.contains(&format!("\"{name}\":")))
            };
            let plain: Vec<_> =
                inputs.take_while(|input| !refers(input)).map(|input| input.len()).collect();
            assert!(plain.is_sorted(), "{area}");
        }
    }
}

/// What conformance pages and the reports promise: each side of a disagreement has a name, and the
/// sides differ.
#[test]
fn sides_of_a_disagreement_differ() {
    for area in areas() {
        let vectors = json(&format!("vectors/{area}.json"));
        for case in cases(&vectors) {
            let Some(sides) = case["expect"]["any_of"].as_array() else { continue };
            let answers: BTreeSet<_> = sides
                .iter()
                .map(|side| (side["value"].to_string(), side["invalid"].is_string()))
                .collect();
            assert_eq!(answers.len(), sides.len(), "{}", case["id"]);
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(json("pack.json")["version"], env!("CARGO_PKG_VERSION"));
    let changes = include_str!("../CHANGELOG.md");
    assert!(changes.contains(concat!("## ", env!("CARGO_PKG_VERSION"))), "no entry");
}

/// The page of traps names cases that exist.
#[test]
fn each_trap_has_its_cases() {
    let mut ids = BTreeSet::new();
    for area in areas() {
        ids.insert(format!("{area}/*"));
        let vectors = json(&format!("vectors/{area}.json"));
        ids.extend(cases(&vectors).map(|case| case["id"].as_str().expect("an id").to_owned()));
    }
    let page = include_str!("../traps.md");
    let traps: Vec<_> =
        page.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(traps.len() > 55, "{} traps", traps.len());
    for trap in traps {
        let named = trap.rsplit_once(" | ").expect("a column of cases").1;
        for id in named.split('`').skip(1).step_by(2) {
            assert!(ids.contains(id), "{id} is no case: {trap}");
        }
    }
}
