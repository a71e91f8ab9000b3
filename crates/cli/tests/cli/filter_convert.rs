//! Tests of `filter convert`.

use super::filter_build::{built, lines};
use super::filter_test::built_guava;
use super::*;

fn keys() -> String {
    lines("key-", 0..1000)
}

/// Converts a filter, and returns the report and the new file.
fn converted(name: &str, from: &TempFile, args: &[&str]) -> (Value, TempFile) {
    let out = TempFile::absent(name);
    let json =
        json_of(&[&["filter", "convert", from.path(), "-o", out.path()], args].concat(), YES);
    (json, out)
}

/// Returns how many of the inserted keys, and how many of 5,000 other keys, may be in a filter.
fn asked(filter: &TempFile, args: &[&str]) -> (u32, u32) {
    let of = |keys: &str| {
        let args =
            [&["filter", "test", filter.path(), "-", "--show", "none", "--json"], args].concat();
        let json: Value =
            serde_json::from_str(&run_with(&args, keys.as_bytes()).stdout).expect("JSON");
        json["maybe"].as_u64().and_then(|count| u32::try_from(count).ok()).expect("a count")
    };
    (of(&keys()), of(&lines("other-", 0..5000)))
}

#[test]
fn parquet_there_and_back_is_the_same_filter() {
    let parquets =
        ["--kind", "split-block-256", "--hash", "xxh64", "--seed", "0", "--power-of-two"];
    let out = TempFile::absent("p.chsieve");
    let build = [&["filter", "build", "-", "-o", out.path()], &parquets[..]].concat();
    assert_eq!(run_with(&build, keys().as_bytes()).code, YES);
    let (json, parquet) = converted("p.parquet", &out, &["--to", "parquet"]);
    assert_eq!((&json["from"], &json["to"]), (&json!("native"), &json!("parquet")));
    // Thrift's compact protocol: field 1 is an i32 with the zigzag-encoded length of the bitset.
    let bytes = fs::read(&parquet.0).expect("written");
    assert_eq!(bytes[0], 0x15);
    let info = json_of(&["filter", "info", parquet.path(), "--as", "parquet"], YES);
    assert_eq!((&info["hash"], &info["keys"]), (&json!("xxh64"), &json!(null)));
    let about = info["estimated_keys"].as_f64().expect("an estimate");
    assert!((900.0..1100.0).contains(&about), "{about}");
    let (_, back) = converted("p2.chsieve", &parquet, &["--as", "parquet"]);
    let body = |file: &TempFile| {
        let bytes = fs::read(&file.0).expect("there");
        bytes[64..bytes.len() - 8].to_vec()
    };
    assert_eq!(body(&back), body(&out), "the same bits");
    assert_eq!(asked(&parquet, &["--as", "parquet"]), asked(&out, &[]));
    // Filters that Parquet would query differently, or can't read at all, are refused with the
    // reason.
    let convert = |filter: &TempFile, word: &str| {
        let args = ["filter", "convert", filter.path(), "--to", "parquet", "-o", "/dev/null"];
        fails(&args, b"", BAD_INPUT, &[word]);
    };
    convert(
        &built("sip.chsieve", &["--kind", "split-block-256"], &keys()),
        "not hashed by XXH64 with seed 0",
    );
    convert(&built("b.chsieve", &["--kind", "bloom"], &keys()), "only split-block-256 can");
    let odd = TempFile::absent("odd.chsieve");
    let args = [
        "filter",
        "build",
        "-",
        "--kind",
        "split-block-256",
        "--hash",
        "xxh64",
        "--seed",
        "0",
        "-o",
        odd.path(),
    ];
    assert_eq!(run_with(&args, keys().as_bytes()).code, YES);
    convert(&odd, "a power of two");
}

#[test]
fn fuse_filters_go_to_other_languages_and_back() {
    for (kind, format) in [("fuse8", "xor8"), ("fuse16", "xor16")] {
        let filter = built(&format!("{format}.chsieve"), &["--kind", kind], &keys());
        let (_, foreign) = converted(&format!("f.{format}"), &filter, &["--to", format]);
        let bytes = fs::read(&foreign.0).expect("written");
        assert_eq!(bytes[8..12], 1000_u32.to_le_bytes(), "the number of keys");
        let info = json_of(&["filter", "info", foreign.path(), "--as", format], YES);
        assert_eq!(
            (text(&info["kind"]), &info["keys"], &info["hash"]),
            (kind, &json!(1000), &json!(null))
        );
        // The bytes do not contain the hash function of the keys.
        let hashed = ["--hash", "siphash13", "--seed", "000102030405060708090a0b0c0d0e0f"];
        let (_, back) =
            converted(&format!("b.{format}"), &foreign, &[&["--as", format], &hashed[..]].concat());
        assert_eq!(fs::read(&back.0).expect("back"), fs::read(&filter.0).expect("there"));
        assert_eq!(
            asked(&foreign, &[&["--as", format], &hashed[..]].concat()),
            asked(&filter, &[])
        );
        let args = ["filter", "convert", foreign.path(), "--as", format, "-o", "/dev/null"];
        fails(&args, b"", USAGE, &["do not store the hash function"]);
        let other = if format == "xor8" { "xor16" } else { "xor8" };
        let args = ["filter", "convert", filter.path(), "--to", other, "-o", "/dev/null"];
        fails(&args, b"", BAD_INPUT, &["can't be converted to", "only fuse"]);
        let args = ["filter", "info", foreign.path(), "--as", other];
        fails(&args, b"", BAD_INPUT, &[other]);
    }
}

#[test]
fn folding_halves_and_loses_no_key() {
    for kind in ["bloom", "wide-bloom", "partitioned", "split-block-512", "split-block-256"] {
        let args = ["--kind", kind, "--fpr", "1e-5", "--capacity", "4096"];
        let blocks = ["--kind", kind, "--fpr", "1e-5", "--capacity", "4096", "--power-of-two"];
        let args = if kind.starts_with("split") { &blocks[..] } else { &args[..] };
        let filter = built(&format!("fold-{kind}.chsieve"), args, &keys());
        let before = json_of(&["filter", "info", filter.path()], YES);
        let (json, half) = converted(&format!("half-{kind}.chsieve"), &filter, &["--fold", "1"]);
        let after = json_of(&["filter", "info", half.path()], YES);
        assert_eq!(after["bits"].as_u64().map(|bits| bits * 2), before["bits"].as_u64(), "{kind}");
        assert_eq!((&json["folds"], &json["rate"]), (&json!(1), &after["rate"]));
        assert!(json["rate"].as_f64() > json["rate_before"].as_f64(), "{kind}");
        let (json, small) =
            converted(&format!("small-{kind}.chsieve"), &filter, &["--fold-to-fpr", "0.02"]);
        assert!(json["folds"].as_u64() >= Some(2), "{kind}: {json}");
        let rate = json["rate"].as_f64().expect("a rate");
        assert!(rate <= 0.02, "{kind}: {rate}");
        let (found, by_chance) = asked(&small, &[]);
        let expected = rate * 5000.0;
        assert_eq!(found, 1000, "{kind}");
        assert!(
            (f64::from(by_chance) - expected).abs() <= 6.0 * expected.sqrt() + 1.0,
            "{kind}: {by_chance}"
        );
    }
    let cuckoo = built("fold-cuckoo.chsieve", &["--kind", "cuckoo8"], &keys());
    let convert = ["filter", "convert", cuckoo.path(), "-o", "/dev/null"];
    fails(&[&convert[..], &["--fold", "1"]].concat(), b"", BAD_INPUT, &["can't be folded"]);
    fails(&[&convert[..], &["--fold", "0"]].concat(), b"", USAGE, &["--fold"]);
    fails(
        &[&convert[..], &["--fold", "1", "--fold-to-fpr", "0.1"]].concat(),
        b"",
        USAGE,
        &["--fold"],
    );
    let odd =
        built("fold-odd.chsieve", &["--kind", "split-block-512", "--bits-per-key", "3.5"], &keys());
    let convert = ["filter", "convert", odd.path(), "-o", "/dev/null", "--fold", "63"];
    fails(&convert, b"", BAD_INPUT, &["an odd size cannot be halved"]);
    let (json, _) = converted("not-folded.chsieve", &odd, &["--fold-to-fpr", "1e-9"]);
    assert_eq!(json["folds"], 0);
    assert!(text(&json["warnings"][0]).contains("not folded"));
}

#[test]
fn compressed_and_back_is_the_same_filter() {
    let filter = built("c.chsieve", &["--kind", "bloom", "--bits-per-key", "60"], &keys());
    let (json, coded) = converted("coded.chsieve", &filter, &["--to", "compressed"]);
    assert_eq!(json["kind"], "compressed");
    assert!(text(&json["warnings"][0]).contains("not smaller"), "{json}");
    let (_, opened) = converted("opened.chsieve", &coded, &["--to", "bloom"]);
    assert_eq!(fs::read(&opened.0).expect("opened"), fs::read(&filter.0).expect("there"));
    assert_eq!(asked(&coded, &[]), asked(&filter, &[]));
    // A filter that was built as `compressed` is smaller than the smallest plain Bloom filter.
    let sent = built("sent.chsieve", &["--kind", "compressed"], &keys());
    let plain = built("plain.chsieve", &["--kind", "bloom"], &keys());
    let bytes = |file: &TempFile| fs::metadata(&file.0).expect("there").len();
    assert!(bytes(&sent) < bytes(&plain), "{} {}", bytes(&sent), bytes(&plain));
    let args = ["filter", "convert", plain.path(), "--to", "xor8", "-o", "/dev/null"];
    fails(&args, b"", BAD_INPUT, &["a bloom filter can't be converted to xor8"]);
}

#[test]
fn what_does_not_map_exactly_is_refused() {
    let bloom = built("murmur.chsieve", &["--kind", "bloom"], &keys());
    let args = ["filter", "convert", bloom.path(), "--to", "guava", "-o", "/dev/null"];
    fails(&args, b"", BAD_INPUT, &["places the bits of a key", "--kind guava"]);
    let guava = built_guava();
    let args = ["filter", "convert", guava.path(), "--as", "guava", "-o", "/dev/null"];
    fails(&args, b"", BAD_INPUT, &["places the bits of a key"]);
    let args =
        ["filter", "convert", bloom.path(), "--hash", "xxh3", "--seed", "0", "-o", "/dev/null"];
    fails(&args, b"", USAGE, &["xor8 and xor16"]);
    let args = ["filter", "convert", bloom.path(), "-o", bloom.path()];
    fails(&args, b"", USAGE, &["--out is also an input"]);
    fails(&[&args[..], &["--force"]].concat(), b"", USAGE, &["--out is also an input"]);
}
