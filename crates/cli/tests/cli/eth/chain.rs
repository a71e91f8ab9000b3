//! Tests of `eth stats`, also on epoch 0 of mainnet.

use super::*;

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
}

#[test]
fn stats_of_two_blocks() {
    let headers = both_headers("stats.rlp");
    let svg = TempFile::absent("stats.svg");
    let title = "Fill & <rates>";
    let args = ["eth", "stats", headers.path(), "--svg", svg.path(), "--title", title];
    let json = json_of(&args, YES);
    let fills = Block::both().map(|block| f64::from(block.bits_set()) / 2048.0);
    assert_eq!((&json["blocks"], &json["linked"]), (&json!(2), &json!(true)));
    assert_eq!((&json["first"], &json["last"]), (&json!(17_686_111), &json!(17_686_112)));
    close(&json["fill"]["mean"], f64::midpoint(fills[0], fills[1]));
    close(&json["fill"]["min"], fills[0].min(fills[1]));
    close(&json["fill"]["max"], fills[0].max(fills[1]));
    for (index, bits) in [3, 6, 9].into_iter().enumerate() {
        // The expected rate is the mean of the blocks' rates, not the rate for the mean fill.
        close(&json["rates"][index], f64::midpoint(fills[0].powi(bits), fills[1].powi(bits)));
        close(&json["buckets"][1]["rates"][index], fills[1].powi(bits));
    }
    assert_eq!(json["buckets"].as_array().map(Vec::len), Some(2));
    let svg = svg.read();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("Fill &amp; &lt;rates&gt;") && svg.contains("prefers-color-scheme: dark"));
    assert!(svg.contains("2 blocks, 17,686,111 to 17,686,112"));
    assert_eq!(svg.matches("<circle").count(), 4 * 2, "a dot for each block and line");
    let month = json_of(&["eth", "stats", headers.path(), "--by", "month"], YES);
    assert_eq!(month["buckets"].as_array().map(Vec::len), Some(1));
    let page = run(&["eth", "stats", headers.path(), "--by", "month"]).stdout;
    assert!(page.contains("2023-07 "), "{page}");
    fails(&["eth", "stats", headers.path(), "--by", "0"], b"", USAGE, &["number of blocks"]);
}

#[test]
fn stats_of_full_and_empty_filters() {
    let all = eth_fixture("headers.json");
    let of = |number: u64| {
        let all = all.as_array().expect("a list");
        let found = all.iter().find(|h| h["number"] == number && h["chain"] == "mainnet");
        text(&found.expect("in the fixture")["header"]).to_owned()
    };
    // Known facts of mainnet: one of these two headers has a bloom with all bits set, and the block
    // of the other header has no logs.
    let file = TempFile::new("extremes.hex", format!("{}\n{}\n", of(15_537_394), of(19_840_104)));
    let json = json_of(&["eth", "stats", file.path()], YES);
    assert_eq!((&json["no_information"], &json["empty"]), (&json!(1), &json!(1)));
    assert_eq!(json["linked"], false);
    close(&json["rates"][0], 0.5);
    let page = run(&["eth", "stats", file.path()]).stdout;
    assert!(page.contains("1 block without logs, 1 block with every bit set"), "{page}");
}

/// Reads the whole archive of the blocks 0 to 8191.
#[test]
fn epoch_0_of_the_chain() {
    let Some((corpus, _)) = testkit::corpus::index("ethereum") else { return };
    let path = corpus.join("mainnet/era1/mainnet-00000-5ec1ffb8.era1");
    let path = path.to_str().expect("text");
    let json = json_of(&["eth", "stats", path], YES);
    assert_eq!((&json["blocks"], &json["linked"]), (&json!(8192), &json!(true)));
    assert_eq!((&json["first"], &json["last"]), (&json!(0), &json!(8191)));
    assert_eq!(json["empty"], 8192, "none of these blocks has a transaction");
    let lines = json_lines(&["eth", "scan", path, "--address", WETH], NO);
    let [summary] = &lines[..] else { panic!("no candidates: {}", lines.len()) };
    assert_eq!(summary["candidates"], 0);
    let last = text(&summary["last_hash"]).to_owned();
    for threads in ["1", "3"] {
        let args =
            ["eth", "scan", path, "--event", DEPOSIT, "--anchor", &last, "--threads", threads];
        let lines = json_lines(&args, NO);
        assert_eq!(lines[0]["anchored_to"], 8191);
        assert_eq!(lines[0]["last_hash"], last);
    }
    // The blooms exclude every block, so the audit is complete without any receipt.
    let none = TempFile::new("epoch-0.json", "[]");
    let mut args = vec!["eth", "audit", path, "--logs", none.path(), "--chain", "mainnet"];
    args.extend(["--anchor", &last, "--address", WETH]);
    let audit = json_of(&args, YES);
    assert_eq!(audit["blocks"]["absent_by_bloom"], 8192);
}
