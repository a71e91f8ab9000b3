//! Packs are read strictly, and their references resolved.

use std::fs;

use chainsieve_conformance::{
    Answer, CaseFault, InProcess, InputError, Inputs, Outcome, Pack, PackError,
};
use serde_json::{Value, json};

use crate::{Folder, case, load, outcome, pack_with, run_all, sums};

fn fault(cases: &[Value]) -> (String, CaseFault) {
    match Pack::from_folder(pack_with("test.add", &json!({"b": 1}), cases).path()) {
        Err(PackError::Case { file, case, fault }) => {
            assert_eq!(file, "vectors/area.json");
            (case, fault)
        }
        other => panic!("{other:?}"),
    }
}

fn with(member: &str, value: Value) -> Value {
    let mut case = case(7, &json!({"a": 1}), &json!({"value": {"sum": 2}}));
    case[member] = value;
    case
}

#[test]
fn the_fault_of_a_case_names_file_and_case() {
    let id = || "test.add/0007".to_owned();
    let by = json!({"any_of": [{"value": {}, "by": ["core", "kore"]}]});
    for (case, expected) in [
        (with("expect", json!({})), CaseFault::Expect),
        (with("expect", json!({"value": {}, "invalid": "x"})), CaseFault::Expect),
        (with("expect", json!({"value": 7})), CaseFault::Expect),
        (with("expect", json!({"any_of": []})), CaseFault::Expect),
        (with("expect", json!({"any_of": [{"value": {}, "by": []}]})), CaseFault::Expect),
        (with("flags", json!(["Carry", "Wrong"])), CaseFault::UnknownFlag("Wrong".into())),
        (with("expect", by), CaseFault::UnknownBy("kore".into())),
        (with("input", json!({"b": 2})), CaseFault::RepeatedMember("b".into())),
        (with("input", json!({"a": [{"corpus": "x"}]})), CaseFault::MissingNeeds),
    ] {
        assert_eq!(fault(&[case]), (id(), expected));
    }
    let twice = [with("flags", json!(["Carry", "core-quirk"])), with("flags", json!([]))];
    assert_eq!(fault(&twice), (id(), CaseFault::RepeatedId));
    for foreign in ["test.sub/0007", "test.add", "test.add/", "test.additions/0007"] {
        assert_eq!(fault(&[with("id", json!(foreign))]), (foreign.into(), CaseFault::ForeignId));
    }
    for (member, value) in [
        ("level", json!("wish")),
        ("comment", json!(null)),
        ("note", json!("unknown member")),
        ("needs", json!({"corpus": true})),
        ("expect", json!({"values": {}})),
        ("input", json!([])),
    ] {
        let (case, fault) = fault(&[with(member, value)]);
        assert_eq!(case, id());
        assert!(matches!(fault, CaseFault::Malformed(_)), "{member}: {fault}");
    }
    let (case, _) = fault(&[with("level", json!("open")), json!({"comment": "no id"})]);
    assert_eq!(case, "number 2");
}

#[test]
fn the_fault_of_a_file_names_the_file() {
    let folder = sums([1]);
    let error = |name: &str, text: &str| {
        let before = fs::read_to_string(folder.path().join(name)).expect("there");
        folder.write(name, text);
        let error = Pack::from_folder(folder.path()).expect_err("invalid");
        folder.write(name, before);
        error.to_string()
    };
    let vectors = "vectors/area.json";
    assert!(error(vectors, "{").starts_with("vectors/area.json: EOF"));
    assert!(error(vectors, r#"{"pack": 1}"#).starts_with("vectors/area.json: missing field"));
    assert_eq!(
        error(vectors, r#"{"pack": 2, "new": true}"#),
        "vectors/area.json: format version 2, but this program reads version 1"
    );
    let other = r#"{"pack":1,"area":"b","title":"","source":"","licence":"","groups":[]}"#;
    assert_eq!(
        error(vectors, other),
        "vectors/area.json: has vectors of b, but pack.json lists it for test.add"
    );
    assert!(error("pack.json", r#"{"pack": 1, "version": 1}"#).starts_with("pack.json: "));
    let fewer = r#"{"pack":1,"version":"1","areas":
        [{"name":"test.add","file":"vectors/area.json","title":"","cases":2}]}"#;
    assert_eq!(error("pack.json", fewer), "vectors/area.json: 1 cases, but pack.json says 2");
    let entry = r#"{"name":"test.add","file":"vectors/area.json","title":""}"#;
    let twice = format!(r#"{{"pack":1,"version":"1","areas":[{entry},{entry}]}}"#);
    assert_eq!(error("pack.json", &twice), "pack.json: lists the area test.add twice");
    let outside = r#"{"pack":1,"version":"1","areas":[{"name":"a","file":"../x","title":""}]}"#;
    assert!(error("pack.json", outside).contains("../x: cannot be read: not a path below"));
    drop(fs::remove_file(folder.path().join(vectors)));
    let missing = Pack::from_folder(folder.path()).expect_err("missing").to_string();
    assert!(missing.starts_with("vectors/area.json: cannot be read: "), "{missing}");
}

#[test]
fn the_built_in_pack_is_of_the_format() {
    let pack = Pack::built_in().expect("of the format");
    let inputs = Inputs::new(&pack);
    for case in pack.areas().iter().flat_map(|area| &area.cases) {
        match inputs.of(case) {
            Ok(_) | Err(InputError::NoCorpus) => {}
            Err(error) => panic!("{}: {error}", case.id),
        }
    }
}

/// Returns the resolved input of a case with a member `x`.
fn resolved(x: &Value, corpus: Option<&Folder>) -> Result<Value, InputError> {
    let mut case = case(1, &json!({ "x": x }), &json!({"value": {}}));
    if corpus.is_some() {
        case["needs"] = json!({"corpus": true, "chain": "mainnet", "height": 170, "hash": "00"});
    }
    let folder = pack_with("test.add", &json!({"b": [{"repeat": "0a", "times": 2}]}), &[case]);
    let long = "f".repeat(1000);
    let fixture =
        json!({"list": [{"hex": "beef"}], "m/n": 7, "0x": "0xab", "long": {"a": [long, 1, null]}});
    folder.write("fixtures/a/b.json", fixture.to_string());
    let pack = load(&folder);
    let mut inputs = Inputs::new(&pack);
    if let Some(corpus) = corpus {
        inputs = inputs.with_corpus(corpus.path());
    }
    let mut input = inputs.of(&pack.areas()[0].cases[0])?;
    assert_eq!(input["b"], json!(["0a0a"]), "references in params are resolved too");
    Ok(input["x"].take())
}

#[test]
fn references_are_resolved() {
    for (x, expected) in [
        (json!({"from": "a/b.json", "at": "/list/0/hex"}), json!("beef")),
        (json!({"from": "a/b.json", "at": "/m~1n"}), json!(7)),
        (json!({"from": "a/b.json", "at": "/list"}), json!([{"hex": "beef"}])),
        (json!([{"deep": {"from": "a/b.json", "at": "/list/0/hex"}}]), json!([{"deep": "beef"}])),
        (json!({"from": "a/b.json", "at": "/0x", "as": "bytes"}), json!("ab")),
        (json!({"repeat": "ff00", "times": 3}), json!("ff00ff00ff00")),
        (json!({"repeat": "ff", "times": 0}), json!("")),
        (json!({"from": "a/b.json"}), json!({"from": "a/b.json"})),
    ] {
        assert_eq!(resolved(&x, None), Ok(expected), "{x}");
    }
    let counted = json!({"counted": {"prefix": "chainsieve gcs ", "count": 30}});
    let items = resolved(&counted, None).expect("generated");
    let lengths: Vec<_> =
        items.as_array().expect("a list").iter().map(|item| item.as_str().map(str::len)).collect();
    let expected: Vec<_> = (0..30).map(|i| Some(2 * (4 + i % 29))).collect();
    assert_eq!(lengths, expected);
    // Computed with Python's hashlib.
    assert_eq!(items[0], "8d889be6");
    assert_eq!(items[29], "af09db60");
}

#[test]
fn invalid_references_are_errors() {
    for (x, text) in [
        (json!({"from": "none.json", "at": ""}), "fixture none.json: "),
        (json!({"from": "a/b.json", "at": "/none"}), "fixture a/b.json: nothing at \"/none\""),
        (json!({"from": "a/b.json", "at": "/m~1n", "as": "bytes"}), "no 0x at \"/m~1n\""),
        (json!({"from": "../pack.json", "at": ""}), "fixture ../pack.json: not a path below"),
        (json!({"from": "/etc/hostname", "at": ""}), "fixture /etc/hostname: not a path below"),
        (json!({"from": "a\\b.json", "at": ""}), "fixture a\\b.json: not a path below"),
        (json!({"repeat": "f", "times": 2}), "\"f\" 2 times: not hex"),
        (json!({"repeat": "ff", "times": 1_u64 << 40}), "or more than 16777216 characters"),
        (json!({"repeat": "ff", "times": -1}), "\"ff\" -1 times: not hex, not a number"),
        (json!({"repeat": 7, "times": 1}), "7 1 times: "),
        (json!({"repeat": "ff".repeat(500), "times": -1}), "(500 bytes)\" -1 times: "),
        (json!({"counted": {"prefix": "", "count": u32::MAX}}), "\"count\":4294967295}: "),
        (json!({"counted": {"prefix": "", "count": 1_u64 << 40}}), "\"count\":1099511627776}: "),
        (json!({"counted": 7}), "counted 7: "),
    ] {
        let error = resolved(&x, None).expect_err("invalid").to_string();
        assert!(error.contains(text), "{x}: {error}");
    }
}

/// A file of some kilobytes must not make the runner build gigabytes.
#[test]
fn references_of_an_input_share_one_limit() {
    let generated = json!({"repeat": "ff", "times": 1 << 20});
    let within = json!(vec![&generated; 7]);
    assert!(resolved(&within, None).is_ok());
    let fixture = json!({"from": "a/b.json", "at": "/long"});
    for x in [
        json!(vec![generated; 9]),
        json!(vec![json!({"counted": {"prefix": "", "count": 1 << 16}}); 20_000]),
        json!(vec![fixture; 20_000]),
    ] {
        assert_eq!(resolved(&x, None), Err(InputError::TooLong));
    }
}

/// A link of a pack may lead anywhere.
#[cfg(unix)]
#[test]
fn devices_and_pipes_are_no_files_of_a_pack() {
    use std::os::unix::fs::symlink;

    let folder = sums([1]);
    let path = folder.path().join("vectors/area.json");
    let not_read = || Pack::from_folder(folder.path()).expect_err("no file").to_string();
    for target in ["/dev/zero", "/", "pipe"] {
        drop(fs::remove_file(&path));
        symlink(target, &path).expect("a link");
        if target == "pipe" {
            let pipe = folder.path().join("vectors/pipe");
            let made = std::process::Command::new("mkfifo").arg(pipe).status();
            assert!(made.is_ok_and(|status| status.success()));
        }
        let expected = "vectors/area.json: cannot be read: not a regular file";
        assert_eq!(not_read(), expected, "{target}");
    }
}

#[test]
fn the_corpus_is_a_folder_of_the_caller() {
    let corpus = Folder::new();
    corpus.write("main/block.raw", b"\x01\xab");
    corpus.write("main/too-long.raw", vec![0; (8 << 20) + 1]);
    corpus.write("main/block.prevouts.bin", b"\0\0\0\0\0\0\0\0\x02\x51\x52\0\0\0\0\0\0\0\0\0");
    let of = |x| resolved(&x, Some(&corpus));
    assert_eq!(of(json!({"corpus": "main/block.raw"})), Ok(json!("01ab")));
    let scripts = json!({"corpus": "main/block.prevouts.bin", "as": "scripts"});
    assert_eq!(of(scripts), Ok(json!(["5152", ""])));
    for (file, form, text) in [
        ("main/none.raw", None, "main/none.raw of the corpus: "),
        ("../x", None, "not a path below the folder"),
        ("main/too-long.raw", None, "larger than 8388608 bytes"),
        ("main/block.raw", Some("scripts"), "not a file of previous outputs"),
    ] {
        let mut reference = json!({ "corpus": file });
        if let Some(form) = form {
            reference["as"] = form.into();
        }
        let error = of(reference).expect_err("invalid").to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_case_without_its_corpus_is_not_run() {
    let mut needs = case(2, &json!({"x": {"corpus": "a"}}), &json!({"value": {}}));
    needs["needs"] = json!({"corpus": true, "chain": "mainnet", "height": 170, "hash": "00"});
    let cases = [case(1, &json!({}), &json!({"value": {}})), needs];
    let folder = pack_with("test.add", &json!({}), &cases);
    let mut subject = InProcess::new("x", "1", &["test.add"], |_, _| Answer::Value(json!({})));
    let run = run_all(&load(&folder), &mut subject).expect("it runs");
    assert_eq!((run.counts().agree, run.counts().not_run), (1, 1));
    assert_eq!(run.areas[0].cases[1].outcome, Outcome::NotRun("needs the corpus".into()));
    assert!(run.is_clean());
    // An answer is only asked for once the input is there.
    assert_eq!(run.areas[0].cases[1].input_bytes, 0);
    let agrees = outcome(&json!({"value": {}}), &Answer::Value(json!({})));
    assert_eq!(agrees.input_bytes, 2);
}
