//! Hostile inputs: no input causes a panic, or a disproportionate use of memory or time.

use super::*;

/// Runs commands with the file as one of their inputs.
fn each_command(file: &str, check: impl Fn(&[&str], &Output)) {
    let logs = TempFile::new("hostile.logs", "[]");
    let header = hex::encode(Block::read(FIRST).header);
    for args in [
        &["eth", "header", file][..],
        &["eth", "anchor", "verify", file],
        &["eth", "stats", file],
        &["eth", "scan", file, "--address", WETH],
        &["eth", "forecast", file, "--address", WETH],
        &["eth", "audit", file, "--logs", logs.path(), "--chain", "1"],
        &["eth", "audit", &header, "--logs", file, "--chain", "1"],
        &["eth", "audit", &header, "--logs", logs.path(), "--chain", "1", "--receipts", file],
        &["eth", "scan", &header, "--query", file],
        &["eth", "verify-certificate", file, "--chain", "1", "--from", "1", "--to", "2"],
    ] {
        let output = run(args);
        assert!((0..=5).contains(&output.code), "{args:?}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{args:?}: {}", output.stderr);
        check(args, &output);
    }
}

#[test]
fn deep_long_and_odd_inputs() {
    let deep = "[".repeat(200_000);
    let objects = "{\"result\":".repeat(100_000);
    let long = format!("{{\"blockHash\":\"{}\"}}", "0".repeat(4 << 20));
    let lists = vec![0xc1; 1 << 20];
    let lengths = [&[0xff; 9][..], &[0; 100]].concat();
    for (name, input) in [
        ("deep", deep.into_bytes()),
        ("objects", objects.into_bytes()),
        ("long", long.into_bytes()),
        ("lists", lists),
        ("lengths", lengths),
        ("quotes", vec![b'"'; 1 << 20]),
        ("zeros", vec![0; 1 << 20]),
        ("e2", b"e2\0\0\0\0\0\0\x03\0\xff\xff\xff\xff\0\0".to_vec()),
    ] {
        let file = TempFile::new(name, input);
        each_command(file.path(), |args, output| {
            assert_ne!(output.code, YES, "{name}: {args:?}");
            assert!(output.stderr.len() < 2_000, "{name}: {args:?}: {}", output.stderr.len());
        });
    }
}

/// Returns the header with another number and time, which the creator of a header can choose freely.
fn header_of(header: &[u8], number: u64, time: u64) -> Vec<u8> {
    let mut fields = items(header);
    let minimal = |number: u64| {
        let digits = number.to_be_bytes();
        let zeros = digits.iter().take_while(|byte| **byte == 0).count();
        write::string(&digits[zeros..])
    };
    fields[8] = minimal(number);
    fields[11] = minimal(time);
    write::list(&fields)
}

#[test]
fn absurd_numbers_and_times() {
    let numbers = [0, 1, 7, 1 << 40, u64::MAX - 1, u64::MAX];
    let header = Block::read(FIRST).header;
    let headers: Vec<_> = numbers.iter().map(|&n| header_of(&header, n, u64::MAX - n)).collect();
    let file = TempFile::new("absurd.rlp", headers.concat());
    let svg = TempFile::absent("absurd.svg");
    for by in ["auto", "month", "1", "18446744073709551615"] {
        let args = ["eth", "stats", file.path(), "--by", by, "--svg", svg.path(), "--force"];
        let json = json_of(&args, YES);
        assert_eq!((&json["blocks"], &json["linked"]), (&json!(6), &json!(false)), "{by}");
        assert!(svg.read().ends_with("</svg>\n"), "{by}");
    }
    let shown = json_of(&["eth", "header", file.path()], YES);
    assert_eq!(shown["headers"][5]["number"], u64::MAX);
    // More rows than the command accepts.
    let many: Vec<u8> = (0..10_001).flat_map(|n| header_of(&header, n, 7)).collect();
    let many = TempFile::new("many.rlp", many);
    fails(&["eth", "stats", many.path(), "--by", "1"], b"", BAD_INPUT, &["--by a larger number"]);
    let json = json_of(&["eth", "stats", many.path()], YES);
    assert_eq!(json["blocks"], 10_001);
    let buckets = json["buckets"].as_array().expect("buckets");
    assert!((5..=24).contains(&buckets.len()), "{}", buckets.len());
    let counted: u64 =
        buckets.iter().map(|bucket| bucket["blocks"].as_u64().expect("a count")).sum();
    assert_eq!(counted, 10_001);
}
