//! Tests of `btc bloom new` and `btc bloom info`.

use super::*;

#[test]
fn filter_new_gives_the_published_payloads() {
    let vectors = fixture("bip37_vectors.json");
    let mut count = 0;
    for case in vectors["filterload"].as_array().expect("cases") {
        let filter = &case["filter"];
        assert_eq!(filter["flags"], 1);
        let numbers = ["elements", "fpr", "tweak"].map(|name| filter[name].to_string());
        let mut args: Vec<&str> = vec!["btc", "bloom", "new"];
        for (flag, number) in ["--elements", "--fpr", "--tweak"].iter().zip(&numbers) {
            args.extend([flag, number.as_str()]);
        }
        // The third case gives a private key instead of data.
        let Some(inserted) = case["insert"].as_array() else { continue };
        args.extend(inserted.iter().flat_map(|data| ["--data", text(data)]));
        let output = run(&args);
        assert_eq!(output.code, YES);
        assert_eq!(output.stdout.trim_end(), text(&case["payload"]));
        assert!(output.stderr.contains("3 bytes, 5 hash functions"), "{}", output.stderr);
        count += 1;
    }
    assert_eq!(count, 2);
    // The public key of that private key.
    let key = "045b81f0017e2091e2edcd5eecf10d5bdd120a5514cb3ee65b8447ec18bfc4575c6d5bf415e54e03b1067934a0f0ba76b01c6b9ab227142ee1d543764b69d901e0";
    let args = ["btc", "bloom", "new", "--elements", "2", "--fpr", "0.001", "--tweak", "0"];
    let both = run(&[&args[..], &["--with-keys", "--key", key]].concat());
    assert_eq!(both.stdout.trim_end(), "038fc16b080000000000000001");
    assert!(both.stderr.contains("keys beside their hashes"), "{}", both.stderr);
    let hash_only = json_of(&[&args[..], &["--key", key]].concat(), YES);
    assert_eq!(hash_only["elements"].as_array().map(Vec::len), Some(1));
}

#[test]
fn filter_new_takes_every_kind_of_item_from_flags_files_and_standard_input() {
    let address = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
    let outpoint = "32814b7911b053b7c62c621b70878f3452ab331b2998dc639abf109a407d0a0b:0";
    let key = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    let descriptor = format!("wpkh({XPUB}/<0;1>/*)");
    let lines = format!(
        "# a wallet\n{address} # the first\n\n{outpoint}\n{key}\n{descriptor}\n\
         script:5120{}\ndata: c0ffee00c0ffee00\n",
        "ab".repeat(32)
    );
    let expected = json!([
        ["address", null, "58ead0c62ba5970f9f68d8d66d820af3a65e0d2c"],
        [
            "outpoint",
            null,
            "0b0a7d409a10bf9a63dc98291b33ab52348f87701b622cc6b753b011794b813200000000"
        ],
        ["key", null, "751e76e8199196d454941c45d1b3a323f1433bd6"],
        ["descriptor", 0, "c0cebcd6c3d3ca8c75dc5ec62ebe55330ef910e2"],
        ["descriptor", 1, "9c90f934ea51fa0f6504177043e0908da6929983"],
        ["descriptor", 0, "3e34985dca6fddc9fb369940e4c7d8e2873f529c"],
        ["descriptor", 1, "4227d834f1aae95273f0c87495f4ff0cb3665452"],
        ["script", null, "ab".repeat(32)],
        ["data", null, "c0ffee00c0ffee00"],
    ]);
    let shown = |json: &Value| -> Value {
        let elements = json["elements"].as_array().expect("elements");
        elements.iter().map(|e| json!([e["kind"], e["index"], e["data"]])).collect()
    };
    let common = ["btc", "bloom", "new", "--json", "--tweak", "0x10", "--range", "0-1"];
    let file = TempFile::new("wallet.txt", &lines);
    let from_file = run(&[&common[..], &["--file", file.path()]].concat());
    let from_file: Value = serde_json::from_str(&from_file.stdout).expect("JSON");
    assert_eq!(shown(&from_file), expected);
    assert_eq!(from_file["tweak"], 16);
    assert_eq!(from_file["sized_for"], 109, "100 elements of room");
    let from_stdin = run_with(&[&common[..], &["-"]].concat(), lines.as_bytes());
    let from_stdin: Value = serde_json::from_str(&from_stdin.stdout).expect("JSON");
    assert_eq!(from_stdin, from_file);
    let from_flags = run(&[
        &common[..],
        &["--address", address, "--outpoint", outpoint, "--key", key],
        &["--descriptor", &descriptor, &format!("script:5120{}", "ab".repeat(32))],
        &["--data", "c0ffee00c0ffee00"],
    ]
    .concat());
    let from_flags: Value = serde_json::from_str(&from_flags.stdout).expect("JSON");
    assert_eq!(from_flags["payload"], from_file["payload"]);
}

#[test]
fn filter_new_writes_files_and_makes_random_tweaks() {
    let address = "bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4n";
    let args = ["btc", "bloom", "new", "--tweak", "7", address];
    let payload = run(&args).stdout;
    let out = TempFile::absent("filter.hex");
    let silent = run(&[&args[..], &["--out", out.path()]].concat());
    assert_eq!((silent.code, silent.stdout.as_str()), (YES, ""));
    assert_eq!(out.read(), payload);
    run(&[&args[..], &["--out", out.path(), "--raw", "--force"]].concat());
    assert_eq!(hex::encode(fs::read(&out.0).expect("written")), payload.trim_end());
    let random = || json_of(&["btc", "bloom", "new", address], YES);
    let (one, two) = (random(), random());
    assert_eq!(one["tweak_random"], true);
    assert_ne!(one["tweak"], two["tweak"]);
    assert!(text(&one["warnings"][0]).contains(&format!("--tweak {}", one["tweak"])));
}

#[test]
fn filter_new_warns_of_what_it_cannot_do() {
    let warnings = |args: &[&str]| {
        let json = json_of(&[&["btc", "bloom", "new", "--tweak", "1"], args].concat(), YES);
        json["warnings"].to_string()
    };
    let data = "data:c0ffee00c0ffee00";
    assert_eq!(warnings(&[data]), "[]");
    assert!(warnings(&[data, "script:51"]).contains("pushes no data"));
    assert!(warnings(&["script:02aabb05cc"]).contains("ends inside a push"));
    assert!(warnings(&["data:c0ffee"]).contains("3 bytes also occur in unrelated scripts"));
    assert!(warnings(&[data, data]).contains("given twice"));
    assert!(
        warnings(&["--elements", "1", "--fpr", "0.01", data, "data:00000000c0ffee00"])
            .contains("sized for 1")
    );
    let address = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
    let page = run(&["btc", "bloom", "new", "--fpr", "0.01", "--elements", "2", address, data]);
    assert!(page.stderr.contains("fewer than 15"), "{}", page.stderr);
    assert!(warnings(&[address, "--update", "none"]).contains("--update none the node inserts"));
    assert!(warnings(&[address, "--elements", "4"]).contains("little room"));
}

#[test]
fn filter_new_refuses_with_the_place_and_the_reason() {
    let new = ["btc", "bloom", "new"];
    let fails = |args: &[&str], code, words: &[&str]| {
        fails(&[&new[..], args].concat(), b"", code, words);
    };
    fails(&[], USAGE, &["nothing to watch"]);
    fails(&["--fpr", "much"], USAGE, &["--fpr"]);
    fails(&["--range", "9-0", "data:00"], USAGE, &["greater"]);
    fails(&["--update", "some", "data:00"], USAGE, &["p2pubkey-only"]);
    fails(&["--raw", "data:00"], USAGE, &["--out"]);
    fails(&["satoshi"], BAD_INPUT, &["satoshi", "neither an address"]);
    fails(&["00ff"], BAD_INPUT, &["script:HEX", "data:HEX or txid:HEX"]);
    fails(&["--data", "0g"], BAD_INPUT, &["'g' at position 1"]);
    fails(&["--data", ""], BAD_INPUT, &["empty data"]);
    fails(&["--script", "51"], BAD_INPUT, &["BIP37 cannot watch"]);
    let typo = "bc1q7dmjqztn342e7qyl4tlfyqc8mju8ny7me8vm4x";
    fails(&[typo], BAD_INPUT, &[typo, "wrong checksum"]);
    fails(&["1979m9gb8qypkDp8HYV3HvbWxCBX5anSzz"], BAD_INPUT, &["checksum"]);
    fails(&["--fpr", "0", "data:00"], USAGE, &["not a rate between 0 and 1"]);
    fails(&["--elements", "0", "data:00"], USAGE, &["--elements"]);
    fails(&["--elements", "1", "--fpr", "0.1", "data:00"], BAD_INPUT, &["matches everything"]);
    fails(&["tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"], BAD_INPUT, &["--network testnet"]);
    fails(&[XPUB], BAD_INPUT, &["descriptor"]);
    fails(
        &[
            "wpkh(xprv9s21ZrQH143K31xYSDQpPDxsXRTUcvj2iNHm5NUtrGiGG5e2DtALGdso3pGz6ssrdK4PFmM8NSpSBHNqPqm55Qn3LqFtT2emdEXVYsCzC2U)",
        ],
        BAD_INPUT,
        &["private key"],
    );
    fails(&["--file", "/nonexistent/wallet"], BAD_INPUT, &["/nonexistent/wallet"]);
    // Private keys are refused and not shown, because error messages end up in logs.
    let wif = "5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15C";
    for item in [wif.to_owned(), format!("pkh({wif})"), format!("descriptor:wpkh({wif})")] {
        let output = run(&[&new[..], &[&item]].concat());
        assert_eq!(output.code, BAD_INPUT);
        assert!(!output.stderr.contains("5Kg1"), "{}", output.stderr);
    }
    let file = TempFile::new("bad.txt", "data:00\n\ndata:0\n");
    fails(&["--file", file.path()], BAD_INPUT, &["line 3", "an odd number of digits"]);
    fails(&["-", "-"], USAGE, &["only once"]);
}

#[test]
fn filter_inspect_shows_fields_and_what_is_odd() {
    let inspect = |hex: &str, code| json_of(&["btc", "bloom", "info", hex], code);
    let json = inspect("03614e9b050000000000000001", YES);
    assert_eq!(json["bytes"], 3);
    assert_eq!(json["hash_funcs"], 5);
    assert_eq!(json["update"], "all");
    assert_eq!((&json["bits"], &json["bits_set"]), (&json!(24), &json!(12)));
    assert_eq!(json["rate"], 0.03125);
    assert_eq!(json["warnings"], json!([]));
    let odd = inspect("03614e9b0500000000000000817f", YES);
    assert_eq!((&odd["flags"], &odd["trailing_bytes"]), (&json!(0x81), &json!(1)));
    assert_eq!(odd["warnings"].as_array().map(Vec::len), Some(2));
    let empty = inspect("00050000000000000000", YES);
    assert_eq!(
        (&empty["matches_everything"], &empty["estimated_elements"]),
        (&json!(true), &json!(null))
    );
    let greedy = inspect("0100330000000000000001", NO);
    assert_eq!(greedy["accepted_by_nodes"], false);
    let large = format!("fda18c{}050000000000000001", "00".repeat(36_001));
    let file = TempFile::new("large.hex", &large);
    assert_eq!(inspect(file.path(), NO)["bytes"], 36_001);
    let page = run_with(&["btc", "bloom", "info", "-"], b"03614e9b05000000\n0000000001\n");
    assert_eq!(page.code, YES);
    assert!(page.stdout.contains("50.0 %, 12 of 24 bits"), "{}", page.stdout);
    fails(&["btc", "bloom", "info", "0361"], b"", BAD_INPUT, &["hex 0361", "ends early"]);
    fails(&["btc", "bloom", "info", "zz"], b"", BAD_INPUT, &["no such file", "not hex"]);
    fails(&["btc", "bloom", "info", "-"], b"", BAD_INPUT, &["filter"]);
    fails(&["btc", "bloom", "info"], b"", USAGE, &["FILTER"]);
}
