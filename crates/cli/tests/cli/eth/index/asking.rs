//! Tests of index queries and of their predicted cost.

use super::*;

#[test]
fn real_headers_in_two_commands() {
    let folder = TestFolder::new("index-real");
    let router = ROUTER;
    let list = folder.write("addresses.txt", format!("{WETH}\n{}\n", every(3)));
    let list = format!("@{list}");
    let query = json!({ "address": [WETH], "topics": [[], null], "toBlock": "latest" });
    let query = folder.write("query.json", query.to_string());
    for (first, last) in
        [(10_234_001, 10_234_007), (17_686_110, 17_686_125), (22_431_080, 22_431_086)]
    {
        let headers = folder.write("headers.rlp", run_of(first, last));
        let (index, summary) = build(&folder, &headers, &[]);
        let blocks = last - first + 1;
        assert_eq!((&summary["added"], &summary["first"]), (&json!(blocks), &json!(first)));
        assert_eq!((&summary["last"], &summary["label"]), (&json!(last), &json!("mainnet")));
        let middle = (first + 2).to_string();
        let mut found = 0;
        for query in [
            &["--address", WETH][..],
            &QUERY,
            &["--event", DEPOSIT],
            &[],
            &["--address", &list, "--topic0", "any", "--topic2", router],
            &["--address", WETH, "--from", &middle],
            &["--address", WETH, "--to", &middle],
            &["--query", &query],
            &["--query", &query, "--semantics", "alloy", "--from", &middle, "--to", &middle],
            &["--address", &every(5).to_string(), "--event", "NeverHeardOf(uint256)"],
        ] {
            let (candidates, hashes) = same_as_scan(&index, &headers, query);
            // Unsealed blocks have their hashes in the index.
            assert_eq!(hashes, candidates);
            found += candidates;
        }
        assert!(found > 20, "{found}");
        fs::remove_dir_all(&index).expect("removed");
    }
}

#[test]
fn sealed_sections_answer_as_headers_do() {
    let folder = TestFolder::new("index-sealed");
    let headers = folder.write("headers.rlp", chain().concat());
    let queries: Vec<Vec<String>> = PERIODS
        .into_iter()
        .map(|period| vec!["--address".into(), every(period).to_string()])
        .chain([
            vec![],
            vec!["--event".into(), DEPOSIT.into()],
            vec!["--address".into(), every(100).to_string(), "--event".into(), DEPOSIT.into()],
            ["--address", &every(7).to_string(), "--from", "5,000", "--to", "9,300"]
                .map(String::from)
                .into(),
            ["--address", &every(2).to_string(), "--from", "9,191", "--to", "9,192"]
                .map(String::from)
                .into(),
        ])
        .collect();
    let last_sealed = START + 8191;
    for hashes in [false, true] {
        let more = if hashes { &["--block-hashes"][..] } else { &[] };
        let (index, summary) = build(&folder, &headers, more);
        assert_eq!((&summary["sealed_sections"], &summary["added"]), (&json!(1), &json!(BLOCKS)));
        assert_eq!(summary["block_hashes"], hashes);
        for query in &queries {
            let query: Vec<&str> = query.iter().map(String::as_str).collect();
            let (found, known) = same_as_scan(&index, &headers, &query);
            assert!(known <= found && (!hashes || known == found), "{query:?}: {known} of {found}");
        }
        // The summary names the block whose hash authenticates the last candidate.
        let address = every(3000).to_string();
        let args = ["eth", "index", "query", &index, "--address", &address, "--to", "6,000"];
        let (found, summary) = lines_of(&args, YES);
        let last = found.last().expect("a candidate")["number"].as_u64().expect("a number");
        let expected = if hashes { last } else { last_sealed };
        let header = &chain()[usize::try_from(expected - START).expect("small")];
        let link = json!({ "number": expected, "hash": keccak256(header) });
        assert_eq!(summary["link"], link);
        let Output { stdout: page, stderr: warnings, .. } = run(&args);
        let how = format!(
            "block {last}, use the headers up to block {last_sealed}, {}",
            keccak256(header)
        );
        assert_eq!(warnings.contains(&how), !hashes, "{warnings}");
        assert!(page.contains("not in the index") != hashes, "{page}");
        assert!(warnings.contains("as reliable as the builder of the index"), "{warnings}");
        fs::remove_dir_all(&index).expect("removed");
    }
}

#[test]
fn what_an_index_holds() {
    let folder = TestFolder::new("index-info");
    let all = chain();
    let headers = folder.write("headers.rlp", all.concat());
    let (index, built) = build(&folder, &headers, &["--label", "made up", "--block-hashes"]);
    let info = json_of(&["eth", "index", "info", &index], YES);
    let stats = json_of(&["eth", "stats", &headers], YES);
    for field in [
        "blocks",
        "first",
        "last",
        "first_time",
        "last_time",
        "empty",
        "no_information",
        "fill",
        "rates",
    ] {
        assert_eq!(info[field], stats[field], "{field}");
    }
    let hashes = [all.first(), all.last()].map(|header| keccak256(header.expect("a header")));
    assert_eq!((&info["first_hash"], &info["last_hash"]), (&json!(hashes[0]), &json!(hashes[1])));
    assert_eq!((&info["label"], &info["block_hashes"]), (&json!("made up"), &json!(true)));
    assert_eq!((&info["sealed_sections"], &info["unsealed"]), (&json!(1), &json!(BLOCKS - 8192)));
    let sizes = fs::read_dir(&index)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").metadata().expect("a file").len());
    assert_eq!(info["bytes"], json!(sizes.sum::<u64>()));
    assert_eq!(info["bytes"], built["bytes"]);
    let segment = &info["segments"][0];
    assert_eq!(segment["file"], "00000000-01.segment");
    assert_eq!((&segment["first"], &segment["last"]), (&json!(START), &json!(START + 8191)));
    let length = fs::metadata(Path::new(&index).join("00000000-01.segment")).expect("a file").len();
    assert_eq!(segment["bytes"], length);
    let page = run(&["eth", "index", "info", &index]).stdout;
    for words in
        ["made up", "00000000-01.segment  1000 – 9191", "1 section of 8,192 blocks in 1 segment"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
}
