//! The expectations of the vectors count: where one is changed, a run reports its case.

use std::os::unix::fs::symlink;

use chainsieve_conformance::{Answer, Comparison, Expect, Expected};

use super::vectors::{CASES_OF_THE_CORPUS, OF_CORE, OF_FORMATS, OF_GETH, report};
use super::*;

/// In a copy of the vectors, the expectation of each case is changed in one place: the run reports
/// each case. The report has chainsieve's answers, and none agrees with an expectation that has
/// another value in any one place.
#[test]
fn each_changed_expectation_is_reported() {
    let others = ["--area", "filter.*", "--area", "certificate.*"];
    let mut places = 0;
    for (profile, args, cases) in [
        (Some("core-exact"), ["--profile", "core-exact"].as_slice(), OF_CORE),
        (Some("geth"), &["--profile", "geth"], OF_GETH),
        (None, &others, OF_FORMATS),
    ] {
        let changed = changed_pack(profile);
        let findings = findings(&[args, &["--pack", changed.path()]].concat());
        fs::remove_dir_all(&changed.0).expect("removed");
        let needs_corpus = profile == Some("core-exact") && !has_corpus();
        let expected = if needs_corpus { cases - CASES_OF_THE_CORPUS } else { cases };
        assert_eq!(findings.len(), expected, "{profile:?}");
        places += findings.iter().map(compared_places).sum::<usize>();
    }
    assert!(places > 10_000, "{places}");
}

/// Checks that each value of an answer is compared, and returns their number.
fn compared_places(finding: &Value) -> usize {
    let Some(got) = finding["got"].get("value") else { return 0 };
    let answer = Answer::Value(got.clone());
    let mut expected = got.clone();
    let leaves = leaves(got);
    for pointer in &leaves {
        let leaf = expected.pointer_mut(pointer).expect("a leaf");
        let kept = leaf.clone();
        change(leaf);
        let expect = Expect::One(Expected::Value(expected));
        let comparison = expect.compare(&answer, None);
        assert_eq!(comparison, Some(Comparison::Differs { at: pointer.clone() }), "{finding}");
        let Expect::One(Expected::Value(value)) = expect else { unreachable!() };
        expected = value;
        *expected.pointer_mut(pointer).expect("a leaf") = kept;
    }
    leaves.len()
}

/// Runs vectors against this program, and returns the findings.
fn findings(args: &[&str]) -> Vec<Value> {
    let mut report = report("", args, WRONG);
    let list = |value: &mut Value| match value.take() {
        Value::Array(items) => items,
        other => panic!("not a list: {other}"),
    };
    let areas = list(&mut report["subjects"][0]["areas"]);
    areas.into_iter().flat_map(|mut area| list(&mut area["findings"])).collect()
}

/// Writes a copy of the vectors in which one place of each expectation is changed. Of several
/// answers, those of the profile are changed.
fn changed_pack(profile: Option<&str>) -> TempFile {
    let folder = TempFile::absent(&format!("conformance-changed-{profile:?}"));
    drop(fs::remove_dir_all(&folder.0));
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pack = root.join("conformance");
    fs::create_dir_all(folder.0.join("vectors")).expect("a folder");
    fs::copy(pack.join("pack.json"), folder.0.join("pack.json")).expect("copied");
    symlink(root.join("fixtures"), folder.0.join("fixtures")).expect("a link");
    let read = |path: PathBuf| -> Value {
        serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
    };
    let profiles = &read(pack.join("pack.json"))["profiles"];
    let by = profile.map(|profile| profiles[profile]["by"].clone());
    for file in fs::read_dir(pack.join("vectors")).expect("vectors") {
        let file = file.expect("a file");
        let mut vectors = read(file.path());
        let groups = vectors["groups"].as_array_mut().expect("groups").iter_mut();
        let cases = groups.flat_map(|group| group["cases"].as_array_mut().expect("cases"));
        for (number, case) in cases.enumerate() {
            let expect = &mut case["expect"];
            let Some(alternatives) = expect.get_mut("any_of") else {
                change_answer(expect, number);
                continue;
            };
            for answer in alternatives.as_array_mut().expect("answers") {
                let names = answer["by"].as_array().expect("names");
                if by.as_ref().is_none_or(|by| names.contains(by)) {
                    change_answer(answer, number);
                }
            }
        }
        fs::write(folder.0.join("vectors").join(file.file_name()), vectors.to_string())
            .expect("written");
    }
    folder
}

/// Changes one of the values of an answer, or turns a refusal into an answer.
fn change_answer(answer: &mut Value, number: usize) {
    let members = answer.as_object_mut().expect("an object");
    if members.remove("invalid").is_some() {
        members.insert("value".into(), json!({}));
        return;
    }
    let value = &mut members["value"];
    let leaves = leaves(value);
    change(value.pointer_mut(&leaves[number % leaves.len()]).expect("a leaf"));
}

/// Returns the JSON pointers of all values that have no further values within.
fn leaves(value: &Value) -> Vec<String> {
    let below = |name: String, value: &Value| {
        leaves(value).into_iter().map(move |pointer| format!("/{name}{pointer}"))
    };
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().flat_map(|(name, value)| below(name.clone(), value)).collect()
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().flat_map(|(at, item)| below(at.to_string(), item)).collect()
        }
        _ => vec![String::new()],
    }
}

/// Changes a value as little as possible.
fn change(leaf: &mut Value) {
    *leaf = match &*leaf {
        Value::Null | Value::Object(_) => json!(0),
        Value::Bool(bool) => json!(!bool),
        Value::Number(number) => match number.as_u64() {
            Some(0) => json!(1),
            Some(number) => json!(number - 1),
            None => json!(0),
        },
        Value::String(text) => {
            let mut characters: Vec<_> = text.chars().collect();
            match characters.last_mut() {
                None => characters.push('0'),
                Some(last) => *last = if *last == '0' { '1' } else { '0' },
            }
            characters.into_iter().collect::<String>().into()
        }
        Value::Array(_) => json!([0]),
    };
}
