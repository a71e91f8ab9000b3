//! Tests of `eth index verify`, on intact and on damaged indexes.

use super::*;

#[test]
fn an_index_is_compared_with_its_headers() {
    let folder = TestFolder::new("index-compared");
    let all = chain();
    let headers = folder.write("headers.rlp", all.concat());
    for hashes in [&[][..], &["--block-hashes"]] {
        let (index, _) = build(&folder, &headers, hashes);
        let verify = ["eth", "index", "verify", &index];
        let alone = json_of(&verify, YES);
        assert_eq!((&alone["valid"], &alone["compared"]), (&json!(true), &Value::Null));
        assert_eq!((&alone["blocks"], &alone["sections"]), (&json!(BLOCKS), &json!(1)));
        assert!(text(&alone["warnings"][0]).contains("detects only accidents"));
        let whole = json_of(&[&verify[..], &[&headers]].concat(), YES);
        assert_eq!(
            whole["compared"],
            json!({ "blocks": BLOCKS, "first": START, "last": START + BLOCKS - 1, "sections": 1 })
        );
        // These headers cover a part of the blocks that contains no whole section.
        let part = folder.write("part.rlp", all[4_000..8_300].concat());
        fails(&[&verify[..], &[&part]].concat(), b"", BAD_INPUT, &["--part", "5000 to 9299"]);
        let some = json_of(&[&verify[..], &[&part, "--part"]].concat(), YES);
        assert_eq!(
            (&some["compared"]["blocks"], &some["compared"]["sections"]),
            (&json!(4_300), &json!(0))
        );
        // These headers include blocks that the index does not have.
        let more = made_up(START + BLOCKS, 2, keccak256(all.last().expect("a header")), 0);
        let more = folder.write("more.rlp", [&all[..], &more].concat().concat());
        fails(&[&verify[..], &[&more]].concat(), b"", BAD_INPUT, &["the index has 1000 to 9499"]);
        // These headers are of another chain and cover the whole range.
        let other = made_up(START, BLOCKS, B256::repeat_byte(7), 9);
        let other = folder.write("other.rlp", other.concat());
        let differs = json_of(&[&verify[..], &[&other]].concat(), WRONG);
        let error = text(&differs["error"]).to_owned();
        assert!(
            error.contains("00000000-01.segment differs from the headers at block 1000"),
            "{error}"
        );
        assert_eq!((&differs["valid"], &differs["compared"]), (&json!(false), &Value::Null));
        // These headers are of another chain and cover a part of the range, so only bloom bits or
        // hashes can differ.
        let other = folder.write("other.rlp", made_up(START + 5, 50, B256::ZERO, 9).concat());
        let differs = json_of(&[&verify[..], &[&other, "--part"]].concat(), WRONG);
        let error = text(&differs["error"]).to_owned();
        let what = if hashes.is_empty() {
            "is set in its filter, but not set in the index"
        } else {
            "its hash is"
        };
        assert!(error.contains(what) || error.contains("not set in its filter"), "{error}");
        assert!(error.contains("at block 10"), "{error}");
        fs::remove_dir_all(&index).expect("removed");
    }
}

#[test]
fn damage_is_named() {
    let folder = TestFolder::new("index-damaged");
    let headers = folder.write("headers.rlp", chain().concat());
    let (index, _) = build(&folder, &headers, &["--block-hashes"]);
    let names = fs::read_dir(&index)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let names: Vec<_> = names.filter(|name| name != "lock").collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let path = Path::new(&index).join(&name);
        let whole = fs::read(&path).expect("a file");
        // The file is truncated.
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        let found = run(&["eth", "index", "verify", &index]);
        assert_ne!(found.code, YES, "{name}");
        assert!(found.stdout.contains(&name) || found.stderr.contains(&name), "{}", found.stdout);
        fs::write(&path, &whole).expect("written");
    }
    assert_eq!(json_of(&["eth", "index", "verify", &index], YES)["valid"], true);
    // A query also reports damage, if it reads the damaged part.
    let path = Path::new(&index).join("00000000-01.segment");
    let whole = fs::read(&path).expect("a file");
    let mut damaged = whole.clone();
    // The row data comes after the section's record, the row entries and the block hashes.
    let data = 64 + 4_496 + 2_048 * 14 + 8_192 * 32;
    damaged[data + 4_096..].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&path, &damaged).expect("written");
    let args = ["eth", "index", "query", &index, "--address", &every(2).to_string()];
    let output = run(&args);
    assert_eq!(output.code, BAD_INPUT, "{}", output.stdout);
    let words = ["00000000-01.segment is damaged at byte", "row ", "checksum"];
    assert!(words.iter().all(|word| output.stderr.contains(word)), "{}", output.stderr);
    let page = run(&["eth", "index", "verify", &index]);
    assert!(
        page.stdout.starts_with("not valid: 00000000-01.segment is damaged"),
        "{}",
        page.stdout
    );
    // First the file is not part of an index, then it has a version that is not supported.
    fs::write(&path, b"not an index, and long enough to be read as its first sixty-four bytes")
        .expect("written");
    let found = run(&["eth", "index", "query", &index]);
    assert!(found.stderr.contains("00000000-01.segment is not an index file"), "{}", found.stderr);
    let mut later = whole;
    later[8] = 9;
    fs::write(&path, later).expect("written");
    let words = ["00000000-01.segment has version 9"];
    fails(&["eth", "index", "info", &index], b"", BAD_INPUT, &words);
    fails(&["eth", "index", "verify", &index], b"", BAD_INPUT, &words);
}
