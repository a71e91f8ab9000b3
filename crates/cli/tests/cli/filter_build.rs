//! Tests of `filter build` and `filter info`.

use super::*;

/// Every kind of filter, with the arguments that it requires.
pub(super) const KINDS: [(&str, &[&str]); 15] = [
    ("bloom", &[]),
    ("wide-bloom", &[]),
    ("partitioned", &[]),
    ("split-block-512", &[]),
    ("split-block-256", &[]),
    ("counting", &[]),
    ("scalable", &[]),
    ("rolling", &["--capacity", "2000"]),
    ("compressed", &[]),
    ("cuckoo8", &[]),
    ("cuckoo12", &[]),
    ("cuckoo16", &[]),
    ("fuse8", &[]),
    ("fuse16", &[]),
    ("ribbon", &[]),
];

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Returns one line for each number: `prefix` and the number.
pub(super) fn lines(prefix: &str, numbers: std::ops::Range<u32>) -> String {
    let lines: Vec<_> = numbers.map(|number| format!("{prefix}{number}\n")).collect();
    lines.concat()
}

/// Builds a filter with these keys, and returns its file.
pub(super) fn built(name: &str, args: &[&str], keys: &str) -> TempFile {
    let out = TempFile::absent(name);
    let args = [&["filter", "build", "-", "--seed", KEY, "-o", out.path()], args].concat();
    let output = run_with(&args, keys.as_bytes());
    assert_eq!(output.code, YES, "{args:?}: {}", output.stderr);
    out
}

#[test]
fn every_kind_is_built_described_and_asked() {
    let keys = lines("key-", 0..2000);
    let others = lines("other-", 0..5000);
    for (kind, more) in KINDS {
        let filter = built(&format!("{kind}.chsieve"), &[&["--kind", kind], more].concat(), &keys);
        let info = json_of(&["filter", "info", filter.path()], YES);
        assert_eq!((text(&info["kind"]), &info["keys"]), (kind, &json!(2000)));
        assert_eq!((&info["hash"], &info["seed"]), (&json!("siphash13"), &json!(KEY)));
        assert_eq!((&info["format"], &info["checksum"]), (&json!("native"), &json!("fits")));
        let bytes = fs::metadata(&filter.0).expect("a file").len();
        assert_eq!(info["bytes"], bytes);
        assert!(info["parameters"].as_object().is_some_and(|params| !params.is_empty()));
        let rate = info["rate"].as_f64().expect("a rate");
        assert!(rate > 0.0 && rate < 0.04, "{kind}: {rate}");
        let bits = info["bits_per_key"].as_f64().expect("bits");
        assert!((7.0..120.0).contains(&bits), "{kind}: {bits}");
        // Every inserted key matches, and other keys match at the rate that the filter reports.
        let ask = ["filter", "test", filter.path(), "-", "--show", "none", "--json"];
        let of = |keys: &str| -> Value {
            serde_json::from_str(&run_with(&ask, keys.as_bytes()).stdout).expect("JSON")
        };
        assert_eq!(of(&keys)["maybe"], 2000, "{kind}");
        let maybe = of(&others)["maybe"].as_f64().expect("a count");
        let expected = rate * 5000.0;
        assert!(
            (maybe - expected).abs() <= 6.0 * expected.sqrt() + 1.0,
            "{kind}: {maybe}, {expected}"
        );
        let page = run(&["filter", "info", filter.path()]);
        assert!(page.stdout.contains("the checksum matches") && page.stdout.contains(kind));
    }
}

#[test]
fn equal_keys_and_seed_make_equal_files() {
    let keys = lines("key-", 0..500);
    let turned: Vec<_> = keys.lines().rev().map(|line| format!("{line}\r\n")).collect();
    let turned = turned.concat();
    for (kind, more) in
        KINDS.into_iter().filter(|(kind, _)| !["scalable", "rolling"].contains(kind))
    {
        let args = [&["--kind", kind], more].concat();
        let one = built("one.chsieve", &args, &keys);
        let two = built("two.chsieve", &args, &turned);
        assert_eq!(fs::read(&one.0).expect("one"), fs::read(&two.0).expect("two"), "{kind}");
    }
}

#[test]
fn empty_lines_and_duplicates_are_left_out_and_told() {
    let input = "a\n\nb\r\n\r\na\nc";
    let out = TempFile::absent("dups.chsieve");
    let args = ["filter", "build", "-", "--kind", "split-block-512", "-o", out.path(), "--force"];
    let output = run_with(&[&args[..], &["--json"]].concat(), input.as_bytes());
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let counts = ["keys", "lines", "empty", "duplicates"].map(|name| json[name].as_u64());
    assert_eq!(counts, [Some(3), Some(6), Some(2), Some(1)]);
    assert_eq!(
        (&json["seed_random"], json["seed"].as_str().map(str::len)),
        (&json!(true), Some(32))
    );
    assert!(text(&json["warnings"][0]).contains("stored in the file"));
    let page = run_with(&args, input.as_bytes());
    assert!(
        page.stdout.contains("3; duplicates left out: 1; empty lines left out: 2"),
        "{}",
        page.stdout
    );
    assert!(page.stdout.contains("drawn at random"));
    // Keys that are inserted while they are read are not deduplicated, so the number of duplicates
    // is unknown.
    let args = [&args[..], &["--capacity", "10", "--json"]].concat();
    let json: Value =
        serde_json::from_str(&run_with(&args, input.as_bytes()).stdout).expect("JSON");
    assert_eq!((&json["keys"], &json["duplicates"]), (&json!(4), &json!(null)));
    // A key consists of all bytes of its line, including blanks. A byte order mark at the start of
    // the file is not part of a key.
    let filter = built("bytes.chsieve", &["--kind", "fuse16"], "\u{feff}first\n a\n#c\n");
    let of = |key: &str| run(&["filter", "test", filter.path(), key]).code;
    assert_eq!(["first", " a", "#c", "a"].map(of), [YES, YES, YES, NO]);
}

#[test]
fn hex_keys_are_the_bytes_that_they_stand_for() {
    let filter = built("hex.chsieve", &["--kind", "fuse16", "--hex"], "6b6579\n 0xFF00 \n\n");
    let test = ["filter", "test", filter.path()];
    assert_eq!(run(&[&test[..], &["key"]].concat()).code, YES);
    assert_eq!(run(&[&test[..], &["--hex", "ff00"]].concat()).code, YES);
    assert_eq!(run(&[&test[..], &["ff00"]].concat()).code, NO);
    let build = ["filter", "build", "-", "--kind", "bloom", "--hex", "-o", "/dev/null"];
    fails(&build, b"00\n\nzz\n", BAD_INPUT, &["standard input, line 3", "'z' at position 0"]);
    fails(&build, b"00\n0\n", BAD_INPUT, &["line 2", "an odd number of digits"]);
    fails(&build, b"0x\n", BAD_INPUT, &["line 1", "no digits"]);
}

#[test]
fn hash_functions_and_seeds() {
    let out = TempFile::absent("hash.chsieve");
    let build = |args: &[&str]| {
        let fixed = ["filter", "build", "-", "--kind", "bloom", "-o", out.path(), "--force"];
        let args = [&fixed[..], &["--json"], args].concat();
        let output = run_with(&args, b"key\n");
        assert_eq!(output.code, YES, "{}", output.stderr);
        serde_json::from_str::<Value>(&output.stdout).expect("JSON")
    };
    for (args, seed) in [
        (&["--hash", "xxh3", "--seed", "ff"][..], json!("00000000000000ff")),
        (&["--hash", "xxh64", "--seed", "0"], json!("0000000000000000")),
        (&["--hash", "murmur3", "--seed", "0xabcdef"], json!("00abcdef")),
        (&["--hash", "fnv1a"], json!(null)),
    ] {
        let json = build(args);
        assert_eq!((&json["hash"], &json["seed"]), (&json!(args[1]), &seed));
        assert_eq!((&json["seed_random"], &json["warnings"]), (&json!(false), &json!([])));
        assert_eq!(json_of(&["filter", "info", out.path()], YES)["seed"], seed);
        assert_eq!(run(&["filter", "test", out.path(), "key"]).code, YES);
    }
    assert_ne!(build(&[])["seed"], build(&[])["seed"], "drawn anew");
    let fails = |args: &[&str], code, word: &str| {
        let fixed = ["filter", "build", "-", "--kind", "bloom", "-o", out.path(), "--force"];
        let args = [&fixed[..], args].concat();
        fails(&args, b"key\n", code, &[word]);
    };
    fails(&["--seed", "00"], BAD_INPUT, "1 bytes, but the key of siphash13 has 16");
    fails(&["--hash", "fnv1a", "--seed", "0"], BAD_INPUT, "fnv1a has no seed");
    fails(&["--hash", "murmur3", "--seed", "100000000"], BAD_INPUT, "ffffffff");
    fails(&["--hash", "md5"], USAGE, "siphash13");
}

#[test]
fn sizes_follow_from_rates_bits_and_capacities() {
    let keys = lines("k", 0..1000);
    let of = |args: &[&str]| {
        let filter = built("sized.chsieve", args, &keys);
        json_of(&["filter", "info", filter.path()], YES)
    };
    let bits = |json: &Value| json["bits"].as_u64().expect("bits");
    let (coarse, fine) =
        (of(&["--kind", "bloom", "--fpr", "0.1"]), of(&["--kind", "bloom", "--fpr", "1e-4"]));
    assert!(bits(&coarse) < 5_000 && bits(&fine) > 19_000, "{coarse} {fine}");
    let twelve = of(&["--kind", "bloom", "--bits-per-key", "12"]);
    assert_eq!((bits(&twelve), &twelve["parameters"]["hash_funcs"]), (12_032, &json!(8)));
    let blocks = of(&["--kind", "split-block-256", "--bits-per-key", "16", "--power-of-two"]);
    assert_eq!(blocks["parameters"]["num_blocks"], 64);
    let roomy = of(&["--kind", "cuckoo16", "--capacity", "5000"]);
    assert!(roomy["parameters"]["capacity"].as_u64() >= Some(5000) && bits(&roomy) > 80_000);
    // The filter is too small for the number of keys. For a Bloom filter, a warning shows the
    // higher rate; a cuckoo filter is full.
    let build = |kind, code, words: &[&str]| {
        let out = TempFile::absent("small.chsieve");
        let args = ["filter", "build", "-", "--kind", kind, "--capacity", "100", "-o", out.path()];
        let output = run_with(&args, keys.as_bytes());
        assert_eq!(output.code, code, "{}", output.stderr);
        for word in words {
            let said = format!("{}{}", output.stdout, output.stderr);
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(out.0.exists(), code == YES, "a failed build leaves no file");
    };
    build("bloom", YES, &["sized for 100, but 1000 keys were inserted"]);
    build("cuckoo12", BAD_INPUT, &["no room for another key", "sized for 100 keys by --capacity"]);
    build("scalable", YES, &["num_stages"]);
    // A rolling filter remembers the last keys, not the first ones.
    let rolling = built("rolling.chsieve", &["--kind", "rolling", "--capacity", "100"], &keys);
    let of = |key: &str| run(&["filter", "test", rolling.path(), key]).code;
    assert_eq!((of("k999"), of("k900"), of("k0")), (YES, YES, NO));
}

#[test]
fn build_refuses_what_makes_no_sense() {
    let out = TempFile::absent("refused.chsieve");
    let fails = |args: &[&str], code, words: &[&str]| {
        fails(&[&["filter", "build", "-o", out.path()], args].concat(), b"key\n", code, words);
        assert!(!out.0.exists(), "{args:?}");
    };
    fails(&["-"], USAGE, &["--kind"]);
    fails(&["--kind", "bloom"], USAGE, &["FILE"]);
    fails(&["-", "--kind", "blum"], USAGE, &["bloom", "ribbon"]);
    fails(&["-", "-", "--kind", "bloom"], USAGE, &["only once"]);
    fails(&["-", "--kind", "fuse8", "--capacity", "5"], USAGE, &["need all keys at once"]);
    fails(&["-", "--kind", "rolling"], USAGE, &["--capacity"]);
    fails(&["-", "--kind", "cuckoo8", "--bits-per-key", "9"], USAGE, &["--bits-per-key is for"]);
    fails(&["-", "--kind", "bloom", "--bits-per-key", "9", "--fpr", "0.1"], USAGE, &["--fpr"]);
    fails(&["-", "--kind", "bloom", "--power-of-two"], USAGE, &["split-block"]);
    fails(&["-", "--kind", "guava", "--hash", "xxh3"], USAGE, &["murmur3"]);
    fails(&["-", "--kind", "fuse8", "--fpr", "1e-9"], BAD_INPUT, &["out of reach"]);
    fails(&["-", "--kind", "cuckoo8", "--fpr", "1e-9"], BAD_INPUT, &["out of reach"]);
    fails(&["-", "--kind", "bloom", "--fpr", "2"], USAGE, &["not a rate"]);
    fails(
        &["-", "--kind", "bloom", "--fpr", "1e-30"],
        BAD_INPUT,
        &["more than 64 bits", "use wide-bloom"],
    );
    fails(&["-", "--kind", "bloom", "--capacity", "18446744073709551615"], BAD_INPUT, &["error"]);
    for kind in ["bloom", "wide-bloom", "split-block-512"] {
        let most = ["--capacity", "18446744073709551615", "--bits-per-key", "1000"];
        fails(&[&["-", "--kind", kind], &most[..]].concat(), BAD_INPUT, &["are possible"]);
    }
    fails(&["/nonexistent/keys", "--kind", "bloom"], BAD_INPUT, &["/nonexistent/keys"]);
    fails(&["/", "--kind", "bloom"], BAD_INPUT, &["directory"]);
    let nothing = TempFile::new("nothing.txt", "\n\n");
    fails(&[nothing.path(), "--kind", "bloom"], BAD_INPUT, &["no keys"]);
    super::fails(
        &["filter", "build", "-", "--kind", "bloom", "-o", "/nonexistent/f"],
        b"k\n",
        BAD_INPUT,
        &["no such directory"],
    );
    super::fails(
        &["filter", "build", "-", "--kind", "bloom", "-o", "-", "--json"],
        b"k\n",
        USAGE,
        &["--json"],
    );
    let keys = TempFile::new("own.txt", "key\n");
    super::fails(
        &["filter", "build", keys.path(), "--kind", "bloom", "-o", keys.path()],
        b"",
        USAGE,
        &["also an input"],
    );
    super::fails(
        &["filter", "build", keys.path(), "--kind", "bloom", "-o", keys.path(), "--force"],
        b"",
        USAGE,
        &["--out is also an input"],
    );
    assert_eq!(keys.read(), "key\n");
    let long = vec![b'a'; (1 << 20) + 1];
    super::fails(
        &["filter", "build", "-", "--kind", "bloom", "-o", out.path()],
        &long,
        BAD_INPUT,
        &["line 1: the line is longer than"],
    );
}

#[test]
fn several_files_make_one_filter_that_may_go_to_standard_output() {
    let (one, two) = (TempFile::new("1.txt", "a\nb\n"), TempFile::new("2.txt", "c\nb"));
    let args =
        ["filter", "build", one.path(), two.path(), "--kind", "cuckoo16", "--seed", KEY, "-o", "-"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve"));
    let output = command.args(args).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(YES));
    assert!(output.stdout.starts_with(b"CHSIEVEF"));
    let page = String::from_utf8(output.stderr).expect("text");
    assert!(page.contains("3; duplicates left out: 1"), "{page}");
    let filter = run_with(&["filter", "test", "-", "a", "b", "c", "d"], &output.stdout);
    assert_eq!(filter.stdout, "maybe  a\nmaybe  b\nmaybe  c\nno     d\n");
    // Every command also accepts a filter in hex.
    let hex = TempFile::new("filter.hex", hex::encode(&output.stdout));
    assert_eq!(run(&["filter", "test", hex.path(), "a"]).code, YES);
}

#[test]
fn a_filter_that_is_there_is_replaced_whole() {
    let out = built("kept.chsieve", &["--kind", "fuse8"], "a\n");
    let before = fs::read(&out.0).expect("there");
    let args = ["filter", "build", "-", "--kind", "fuse8", "-o", out.path()];
    fails(&args, b"b\n", BAD_INPUT, &["kept.chsieve exists: --force replaces it"]);
    assert_eq!(fs::read(&out.0).expect("there"), before);
    let args = ["filter", "build", "-", "--kind", "cuckoo8", "--capacity", "1", "-o", out.path()];
    let args = [&args[..], &["--force"]].concat();
    assert_eq!(run_with(&args, lines("k", 0..100).as_bytes()).code, BAD_INPUT);
    assert_eq!(fs::read(&out.0).expect("there"), before, "a build that fails changes nothing");
    let link = TempFile::absent("link.chsieve");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&out.0, &link.0).expect("a link");
        let args = ["filter", "build", "-", "--kind", "fuse8", "-o", link.path(), "--force"];
        assert_eq!(run_with(&args, b"b\n").code, YES);
        assert!(link.0.is_symlink(), "the link stays");
        assert_eq!(run(&["filter", "test", out.path(), "b"]).code, YES);
    }
}
